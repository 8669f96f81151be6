//! What a leaf is for.

use std::fmt;
use std::net::IpAddr;

use x509::{HostName, InvalidHostName};

/// A host name or an address.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum LeafName {
    /// In lower case, without a dot at its end; never a wildcard.
    Dns(HostName),
    /// IPv4 or IPv6.
    Ip(IpAddr),
}

/// Text that no leaf is made for.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{name:?} is no host name: {reason}")]
pub struct BadLeafName {
    /// As it came, cut at 253 octets.
    pub name: String,
    /// What is wrong with it.
    pub reason: InvalidHostName,
}

impl LeafName {
    /// Reads a host name, or an address with or without brackets.
    ///
    /// # Errors
    /// [`BadLeafName`]
    pub fn parse(text: &str) -> Result<Self, BadLeafName> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse::<IpAddr>() {
            // One address has one name: ::ffff:10.0.0.1 is 10.0.0.1.
            return Ok(Self::Ip(address.to_canonical()));
        }
        HostName::parse(text)
            .map(Self::Dns)
            .map_err(|reason| BadLeafName { name: text.chars().take(HostName::LENGTH_MAX).collect(), reason })
    }

    /// The host name, if it is one.
    #[must_use]
    pub fn dns(&self) -> Option<&str> {
        match self {
            Self::Dns(host) => Some(host.as_str()),
            Self::Ip(_) => None,
        }
    }
}

impl fmt::Display for LeafName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(host) => f.write_str(host.as_str()),
            Self::Ip(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_clients_write_them() {
        let of = |text: &str| LeafName::parse(text).map(|name| name.to_string());
        assert_eq!(of("A.Example.").unwrap(), "a.example");
        assert_eq!(of("[2001:DB8::1]").unwrap(), "2001:db8::1");
        assert_eq!(of("10.0.0.1").unwrap(), "10.0.0.1");
        assert_eq!(of("[::ffff:10.0.0.1]").unwrap(), "10.0.0.1");
        for wrong in ["", "a..b", "*.a.example", "a b", "a/b", &"a.".repeat(140)] {
            assert!(of(wrong).is_err(), "{wrong:?}");
        }
    }
}
