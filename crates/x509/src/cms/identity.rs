//! Identifiers of the signers and recipients of a CMS message.

use crate::der::{DerError, Element, Writer, tag};
use crate::{Certificate, SerialNumber};

/// Identifier of the certificate of a signer or recipient in a CMS message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Identity {
    /// DER `Name` of the issuer, and the serial number of the certificate.
    IssuerSerial {
        /// DER `Name` of the issuer.
        issuer: Vec<u8>,
        /// Serial number of the certificate.
        serial: SerialNumber,
    },
    /// The subject key identifier.
    KeyId(Vec<u8>),
}

impl Identity {
    /// Returns the issuer and serial number of `certificate`.
    #[must_use]
    pub fn of(certificate: &Certificate) -> Self {
        Self::IssuerSerial { issuer: certificate.issuer.der.to_vec(), serial: certificate.serial.clone() }
    }

    /// Returns whether the identifier matches `certificate`.
    #[must_use]
    pub fn names(&self, certificate: &Certificate) -> bool {
        match self {
            Self::IssuerSerial { issuer, serial } => {
                certificate.serial == *serial && *certificate.issuer.der == **issuer
            }
            Self::KeyId(id) => certificate.subject_key_id.as_deref() == Some(id),
        }
    }

    pub(super) fn read(element: Element<'_>) -> Result<Self, DerError> {
        match element.tag {
            tag::SEQUENCE => {
                let mut fields = element.inside();
                let issuer = fields.expect(tag::SEQUENCE)?.whole.to_vec();
                let serial = SerialNumber::from_content(fields.expect(tag::INTEGER)?.content);
                fields.end()?;
                Ok(Self::IssuerSerial { issuer, serial })
            }
            0x80 => Ok(Self::KeyId(element.content.to_vec())),
            found => Err(DerError::Unexpected { expected: tag::SEQUENCE, found }),
        }
    }

    pub(super) fn write(&self, w: &mut Writer) {
        match self {
            Self::IssuerSerial { issuer, serial } => w.sequence(|w| {
                w.raw(issuer).integer_content(serial.content());
            }),
            Self::KeyId(id) => w.context_primitive(0, id),
        };
    }

    /// Returns the version of the enclosing structure: `plain` for issuer and serial number, otherwise `with_key_id` (RFC 5652
    /// sections 5.3 and 6.2.1).
    pub(super) fn version(&self, plain: i64, with_key_id: i64) -> i64 {
        match self {
            Self::IssuerSerial { .. } => plain,
            Self::KeyId(_) => with_key_id,
        }
    }
}
