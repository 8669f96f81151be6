//! Identifiers in orders: DNS names and IP addresses (RFC 8555 section 9.7.7, RFC 8738).

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use x509::GeneralName;

/// An identifier in canonical form: lower case, no final dot, addresses as in RFC 5952.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(tag = "type", content = "value", rename_all = "lowercase")]
pub(crate) enum Identifier {
    /// A hostname. In orders it may begin with `*.`.
    Dns(String),
    /// An IP address.
    Ip(IpAddr),
}

impl Identifier {
    /// Returns whether the identifier is a wildcard name.
    pub(crate) fn is_wildcard(&self) -> bool {
        matches!(self, Self::Dns(name) if name.starts_with("*."))
    }

    /// Returns the identifier to authorize: the name without `*.` (RFC 8555 section 7.1.3).
    pub(crate) fn base(&self) -> Self {
        match self {
            Self::Dns(name) => Self::Dns(name.strip_prefix("*.").unwrap_or(name).to_owned()),
            Self::Ip(_) => self.clone(),
        }
    }

    /// Returns the value without the type.
    pub(crate) fn value(&self) -> String {
        match self {
            Self::Dns(name) => name.clone(),
            Self::Ip(address) => address.to_string(),
        }
    }

    /// Returns the subject alternative name for certificates.
    pub(crate) fn general_name(&self) -> GeneralName {
        match self {
            Self::Dns(name) => GeneralName::Dns(name.clone()),
            Self::Ip(address) => GeneralName::Ip(*address),
        }
    }

    /// Returns the identifier of a name in a certificate or CSR; `None` for kinds of names that ACME does not support.
    pub(crate) fn of(name: &GeneralName) -> Option<Self> {
        match name {
            GeneralName::Dns(name) => Some(Self::Dns(name.to_ascii_lowercase())),
            GeneralName::Ip(address) => Some(Self::Ip(*address)),
            _ => None,
        }
    }

    /// Returns the database form, such as `dns:a.example`.
    pub(crate) fn key(&self) -> String {
        match self {
            Self::Dns(name) => format!("dns:{name}"),
            Self::Ip(address) => format!("ip:{address}"),
        }
    }

    /// Parses the output of [`Identifier::key`].
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
    fn identifiers_round_trip_through_their_database_key() {
        for key in ["dns:a.example", "dns:*.a.example", "ip:10.0.0.1", "ip:::1"] {
            assert_eq!(Identifier::from_key(key).unwrap().key(), key);
        }
        assert!(Identifier::from_key("ip:x").is_none());
    }
}
