//! What an order asks for: DNS names and IP addresses (RFC 8555 section 9.7.7, RFC 8738).

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use x509::GeneralName;

/// One name, in its one spelling: lower case, no final dot, addresses as RFC 5952 writes them.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(tag = "type", content = "value", rename_all = "lowercase")]
pub(crate) enum Identifier {
    /// A host name, in orders perhaps with `*.` before it.
    Dns(String),
    /// An address.
    Ip(IpAddr),
}

impl Identifier {
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

    #[test]
    fn identifiers_come_back_from_the_database() {
        for key in ["dns:a.example", "dns:*.a.example", "ip:10.0.0.1", "ip:::1"] {
            assert_eq!(Identifier::from_key(key).unwrap().key(), key);
        }
        assert!(Identifier::from_key("ip:x").is_none());
    }
}
