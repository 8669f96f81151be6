//! What an order asks for: DNS names and IP addresses (RFC 8555 section 9.7.7, RFC 8738).

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use x509::{GeneralName, HostName};

use super::problem::{Kind, Problem};

/// One name, in its one spelling: lower case, no final dot, addresses as RFC 5952 writes them.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(tag = "type", content = "value", rename_all = "lowercase")]
pub(crate) enum Identifier {
    /// A host name, in orders perhaps with `*.` before it.
    Dns(String),
    /// An address.
    Ip(IpAddr),
}

/// An identifier as a client writes it.
#[derive(Debug, Deserialize)]
pub(crate) struct Wanted {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) value: String,
}

impl Wanted {
    /// Checks and normalises it.
    pub(crate) fn read(&self) -> Result<Identifier, Problem> {
        let refused = |kind, detail: String| Err(Problem::new(kind, detail));
        match self.kind.as_str() {
            "dns" => Identifier::dns(&self.value),
            "ip" => match self.value.parse::<IpAddr>() {
                // RFC 8738 section 3 wants the text form of RFC 5952, which has one spelling.
                Ok(address) if address.to_string() == self.value => Ok(Identifier::Ip(address)),
                Ok(address) => {
                    refused(Kind::Malformed, format!("write the address {:?} as {address}", self.value))
                }
                Err(_) => refused(Kind::Malformed, format!("{:?} is no IP address", self.value)),
            },
            other => refused(
                Kind::UnsupportedIdentifier,
                format!("identifiers of type {other:?} are not supported; dns and ip are"),
            ),
        }
    }
}

impl Identifier {
    /// A host name, with or without `*.`.
    pub(crate) fn dns(text: &str) -> Result<Self, Problem> {
        let rejected = |detail: String| Err(Problem::new(Kind::RejectedIdentifier, detail));
        let lower = text.to_ascii_lowercase();
        let host = lower.strip_prefix("*.").unwrap_or(&lower);
        if host.ends_with('.') {
            return rejected(format!("{text:?}: leave out the dot at the end"));
        }
        if !host.is_ascii() {
            return rejected(format!("{text:?}: give international names in their ASCII form (xn--…)"));
        }
        if host.parse::<IpAddr>().is_ok() {
            return rejected(format!("{text:?} is an address: ask for it with the type \"ip\""));
        }
        match HostName::parse(host) {
            Ok(_) => Ok(Self::Dns(lower)),
            Err(error) => rejected(format!("{text:?}: {error}")),
        }
    }

    /// Whether it is a wildcard name.
    pub(crate) fn is_wildcard(&self) -> bool {
        matches!(self, Self::Dns(name) if name.starts_with("*."))
    }

    /// What is authorised for it: the name without `*.` (RFC 8555 section 7.1.3).
    pub(crate) fn base(&self) -> Self {
        match self {
            Self::Dns(name) => Self::Dns(name.strip_prefix("*.").unwrap_or(name).to_owned()),
            Self::Ip(_) => self.clone(),
        }
    }

    /// The value alone.
    pub(crate) fn value(&self) -> String {
        match self {
            Self::Dns(name) => name.clone(),
            Self::Ip(address) => address.to_string(),
        }
    }

    /// As a certificate has it.
    pub(crate) fn general_name(&self) -> GeneralName {
        match self {
            Self::Dns(name) => GeneralName::Dns(name.clone()),
            Self::Ip(address) => GeneralName::Ip(*address),
        }
    }

    /// The identifier of a name in a certificate or request; `None` for kinds ACME has none for.
    pub(crate) fn of(name: &GeneralName) -> Option<Self> {
        match name {
            GeneralName::Dns(name) => Some(Self::Dns(name.to_ascii_lowercase())),
            GeneralName::Ip(address) => Some(Self::Ip(*address)),
            _ => None,
        }
    }

    /// As the database has it: `dns:a.example`.
    pub(crate) fn key(&self) -> String {
        match self {
            Self::Dns(name) => format!("dns:{name}"),
            Self::Ip(address) => format!("ip:{address}"),
        }
    }

    /// From [`Identifier::key`].
    pub(crate) fn from_key(key: &str) -> Option<Self> {
        match key.split_once(':')? {
            ("dns", name) => Some(Self::Dns(name.to_owned())),
            ("ip", address) => address.parse().ok().map(Self::Ip),
            _ => None,
        }
    }
}

impl fmt::Display for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: &str, value: &str) -> Result<String, Kind> {
        let wanted = Wanted { kind: kind.to_owned(), value: value.to_owned() };
        wanted.read().map(|identifier| identifier.key()).map_err(|problem| problem.kind)
    }

    #[test]
    fn identifiers_have_one_spelling() {
        let long = format!("{}.example", "a".repeat(64));
        let table: &[(&str, &str, Result<&str, Kind>)] = &[
            ("dns", "A.Example", Ok("dns:a.example")),
            ("dns", "*.A.example", Ok("dns:*.a.example")),
            ("dns", "xn--bcher-kva.example", Ok("dns:xn--bcher-kva.example")),
            ("dns", "host", Ok("dns:host")),
            ("dns", "a.example.", Err(Kind::RejectedIdentifier)),
            ("dns", "*", Err(Kind::RejectedIdentifier)),
            ("dns", "*.*.example", Err(Kind::RejectedIdentifier)),
            ("dns", "a*.example", Err(Kind::RejectedIdentifier)),
            ("dns", "bücher.example", Err(Kind::RejectedIdentifier)),
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

    #[test]
    fn identifiers_come_back_from_the_database() {
        for key in ["dns:a.example", "dns:*.a.example", "ip:10.0.0.1", "ip:::1"] {
            assert_eq!(Identifier::from_key(key).unwrap().key(), key);
        }
        assert!(Identifier::from_key("ip:x").is_none());
    }
}
