//! Names of hosts.

use std::fmt;
use std::net::IpAddr;

use x509::{HostName, InvalidHostName};

/// A host: a DNS name or an IP address.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Host {
    /// A name in lower case, without a trailing dot; never a wildcard.
    Dns(HostName),
    /// An IPv4 or IPv6 address. IPv4-mapped addresses are IPv4.
    Ip(IpAddr),
}

/// Text that is no host name and no IP address.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{name:?} is no host name: {reason}")]
pub struct InvalidHost {
    /// The text, cut to 253 characters.
    pub name: String,
    /// What is wrong with the text.
    pub reason: InvalidHostName,
}

impl Host {
    /// Parses a DNS name, or an IP address with or without brackets.
    ///
    /// # Errors
    /// [`InvalidHost`]
    pub fn parse(text: &str) -> Result<Self, InvalidHost> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse::<IpAddr>() {
            // One address has one name: ::ffff:10.0.0.1 is 10.0.0.1.
            return Ok(Self::Ip(address.to_canonical()));
        }
        HostName::parse(text)
            .map(Self::Dns)
            .map_err(|reason| InvalidHost { name: text.chars().take(HostName::LENGTH_MAX).collect(), reason })
    }

    /// The DNS name, if the host is one.
    #[must_use]
    pub fn dns(&self) -> Option<&str> {
        match self {
            Self::Dns(host) => Some(host.as_str()),
            Self::Ip(_) => None,
        }
    }
}

impl fmt::Display for Host {
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
        let of = |text: &str| Host::parse(text).map(|name| name.to_string());
        assert_eq!(of("A.Example.").unwrap(), "a.example");
        assert_eq!(of("[2001:DB8::1]").unwrap(), "2001:db8::1");
        assert_eq!(of("10.0.0.1").unwrap(), "10.0.0.1");
        assert_eq!(of("[::ffff:10.0.0.1]").unwrap(), "10.0.0.1");
        for wrong in ["", "a..b", "*.a.example", "a b", "a/b", &"a.".repeat(140)] {
            assert!(of(wrong).is_err(), "{wrong:?}");
        }
    }
}
