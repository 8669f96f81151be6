//! The query of a SCEP URL (RFC 8894 section 4.1).

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use coded::named;
use percent_encoding::percent_decode_str;

use crate::operation::AccessRule;

/// Base64 decoder that accepts missing padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

named! {
    /// The operation in the query.
    pub(super) enum Operation: "operation of SCEP" {
        /// Returns the capabilities of the server.
        Capabilities => "GetCACaps",
        /// Returns the encryption certificate and the certificates of the CA.
        Certificates => "GetCACert",
        /// Handles an enveloped message.
        Message => "PKIOperation",
    }
}

impl Operation {
    /// Returns the description of the operation. The exhaustive match forces new operations to have one.
    #[cfg(test)]
    fn description(self) -> &'static crate::Operation {
        &OPERATIONS[match self {
            Self::Capabilities => 0,
            Self::Certificates => 1,
            Self::Message => 2,
        }]
    }
}

/// The SCEP operations. Each also has a path with the name of a profile.
pub const OPERATIONS: [crate::Operation; 3] = [
    crate::Operation::of(&["GET"], "/scep?operation=GetCACaps", AccessRule::Anybody),
    crate::Operation::of(&["GET"], "/scep?operation=GetCACert", AccessRule::Anybody),
    crate::Operation::of(&["GET", "POST"], "/scep?operation=PKIOperation", AccessRule::ScepMessage),
];

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Query {
    pub(super) operation: Operation,
    /// The message, for PKIOperation. For other operations it is the name of a CA, which is ignored because the path determines the
    /// CA.
    pub(super) message: Option<Vec<u8>>,
}

impl Query {
    /// Parses a query. Returns `None` if it names no supported operation.
    pub(super) fn read(query: &str) -> Option<Self> {
        let value = |key: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(name, _)| *name == key).map(|(_, value)| value)
        };
        let name = value("operation")?;
        let operation = *Operation::ALL.iter().find(|known| known.name() == name)?;
        let message = value("message").filter(|_| operation == Operation::Message).and_then(decode_base64);
        Some(Self { operation, message })
    }
}

/// Decodes base64 in a URL. An unescaped `+`, or the space that it was decoded to, counts as `+`.
fn decode_base64(value: &str) -> Option<Vec<u8>> {
    let mut base64_text = Vec::with_capacity(value.len());
    for byte in percent_decode_str(value) {
        match byte {
            b'\r' | b'\n' => {}
            b' ' => base64_text.push(b'+'),
            other => base64_text.push(other),
        }
    }
    LENIENT.decode(base64_text).ok().filter(|message| !message.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_is_listed() {
        for operation in Operation::ALL {
            assert!(operation.description().path.ends_with(operation.name()), "{operation:?}");
        }
        assert_eq!(Operation::ALL.len(), OPERATIONS.len());
    }

    #[test]
    fn scep_queries_are_parsed_in_the_forms_clients_send() {
        let message =
            |bytes: &[u8]| Some(Query { operation: Operation::Message, message: Some(bytes.to_vec()) });
        let without = |operation| Some(Query { operation, message: None });
        let table = [
            ("operation=GetCACaps", without(Operation::Capabilities)),
            ("operation=GetCACert&message=My%20CA", without(Operation::Certificates)),
            ("message=x&operation=GetCACert", without(Operation::Certificates)),
            ("operation=PKIOperation", without(Operation::Message)),
            ("operation=PKIOperation&message=+/8=", message(&[0xfb, 0xff])),
            ("operation=PKIOperation&message=%2B%2f8%3D", message(&[0xfb, 0xff])),
            ("operation=PKIOperation&message=%20%2f8", message(&[0xfb, 0xff])),
            ("operation=PKIOperation&message=%0a+/8=%0D%0A", message(&[0xfb, 0xff])),
            ("operation=PKIOperation&message=%2", without(Operation::Message)),
            ("operation=PKIOperation&message=%%%", without(Operation::Message)),
            ("operation=PKIOperation&message=", without(Operation::Message)),
            ("operation=GetNextCACert", None),
            ("", None),
            ("operation", None),
        ];
        for (query, want) in table {
            assert_eq!(Query::read(query), want, "{query}");
        }
    }
}
