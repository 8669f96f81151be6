//! Identifiers in client requests, validated and normalized.

use std::net::IpAddr;

use serde::Deserialize;
use x509::HostName;

use super::identifier::Identifier;
use super::problem::{Kind, Problem};
use crate::names::check_delegable;

/// An identifier in the form that a client sent.
#[derive(Debug, Deserialize)]
pub(crate) struct RequestedIdentifier {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) value: String,
}

impl RequestedIdentifier {
    /// Validates and normalizes the identifier.
    pub(crate) fn read(&self) -> Result<Identifier, Problem> {
        let refused = |kind, detail: String| Err(Problem::new(kind, detail));
        match self.kind.as_str() {
            "dns" => Identifier::dns(&self.value),
            "ip" => match self.value.parse::<IpAddr>() {
                // RFC 8738 section 3 requires the text form of RFC 5952, which is unique for each address.
                Ok(address) if address.to_string() == self.value => Ok(Identifier::Ip(address)),
                Ok(address) => {
                    refused(Kind::Malformed, format!("write the IP address {:?} as {address}", self.value))
                }
                Err(_) => refused(Kind::Malformed, format!("{:?} is not an IP address", self.value)),
            },
            other => refused(
                Kind::UnsupportedIdentifier,
                format!("unsupported identifier type {other:?}; use dns or ip"),
            ),
        }
    }
}

impl Identifier {
    /// Parses a hostname, with or without `*.`.
    pub(crate) fn dns(text: &str) -> Result<Self, Problem> {
        let rejected = |detail: String| Err(Problem::new(Kind::RejectedIdentifier, detail));
        let lower = text.to_ascii_lowercase();
        let host = lower.strip_prefix("*.").unwrap_or(&lower);
        if host.ends_with('.') {
            return rejected(format!("{text:?}: remove the trailing dot"));
        }
        if !host.is_ascii() {
            return rejected(format!("{text:?}: write internationalized names as A-labels (xn--…)"));
        }
        if host.parse::<IpAddr>().is_ok() {
            return rejected(format!("{text:?} is an IP address: use the identifier type \"ip\""));
        }
        if let Err(error) = HostName::parse(host) {
            return rejected(format!("{text:?}: {error}"));
        }
        match check_delegable(host) {
            Ok(()) => Ok(Self::Dns(lower)),
            Err(reason) => rejected(format!("{text:?}: {reason}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: &str, value: &str) -> Result<String, Kind> {
        let wanted = RequestedIdentifier { kind: kind.to_owned(), value: value.to_owned() };
        wanted.read().map(|identifier| identifier.key()).map_err(|problem| problem.kind)
    }

    #[test]
    fn requested_identifiers_are_normalized_or_rejected() {
        let long = format!("{}.example", "a".repeat(64));
        let table: &[(&str, &str, Result<&str, Kind>)] = &[
            ("dns", "A.Example", Ok("dns:a.example")),
            ("dns", "*.A.example", Ok("dns:*.a.example")),
            ("dns", "xn--bcher-kva.example", Ok("dns:xn--bcher-kva.example")),
            ("dns", "intranet", Ok("dns:intranet")),
            ("dns", "a.example.", Err(Kind::RejectedIdentifier)),
            ("dns", "*", Err(Kind::RejectedIdentifier)),
            ("dns", "*.*.example", Err(Kind::RejectedIdentifier)),
            ("dns", "a*.example", Err(Kind::RejectedIdentifier)),
            ("dns", "bücher.example", Err(Kind::RejectedIdentifier)),
            ("dns", "-a.test", Err(Kind::RejectedIdentifier)),
            ("dns", "xn--a.test", Err(Kind::RejectedIdentifier)),
            ("dns", "a_b.test", Err(Kind::RejectedIdentifier)),
            ("dns", "co.uk", Err(Kind::RejectedIdentifier)),
            ("dns", "*.com", Err(Kind::RejectedIdentifier)),
            ("dns", "10.0.0.1", Err(Kind::RejectedIdentifier)),
            ("dns", "a b", Err(Kind::RejectedIdentifier)),
            ("dns", "", Err(Kind::RejectedIdentifier)),
            ("dns", &long, Err(Kind::RejectedIdentifier)),
            ("ip", "10.0.0.1", Ok("ip:10.0.0.1")),
            ("ip", "2001:db8::1", Ok("ip:2001:db8::1")),
            ("ip", "2001:0db8::1", Err(Kind::Malformed)),
            ("ip", "2001:DB8::1", Err(Kind::Malformed)),
            ("ip", "a.example", Err(Kind::Malformed)),
            ("ip", "10.0.0.1/8", Err(Kind::Malformed)),
            ("email", "a@example", Err(Kind::UnsupportedIdentifier)),
        ];
        for (kind, value, expected) in table {
            assert_eq!(read(kind, value), expected.map(str::to_owned), "{kind} {value}");
        }
    }
}
