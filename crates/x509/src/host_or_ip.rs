//! Host of a URI authority (RFC 3986 section 3.2.2): a name or an IP address.

use std::fmt;
use std::net::IpAddr;

use crate::{HostName, InvalidHostName};

/// A validated host name or an IP address, such as the host of a URI.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum HostOrIp {
    /// A lower-case host name without a trailing dot; never a wildcard.
    Dns(HostName),
    /// An IPv4 or IPv6 address. IPv4-mapped IPv6 addresses are converted to IPv4.
    Ip(IpAddr),
}

/// Error for text that is neither a host name nor an IP address.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{name:?} is not a host name: {reason}")]
pub struct InvalidHostOrIp {
    /// The text, truncated to 253 characters.
    pub name: String,
    /// The rule of host names that the text breaks.
    pub reason: InvalidHostName,
}

impl HostOrIp {
    /// Parses a host name, or an IP address with or without brackets.
    ///
    /// # Errors
    /// [`InvalidHostOrIp`]
    pub fn parse(text: &str) -> Result<Self, InvalidHostOrIp> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse::<IpAddr>() {
            // Each address has a single form: ::ffff:10.0.0.1 becomes 10.0.0.1.
            return Ok(Self::Ip(address.to_canonical()));
        }
        HostName::parse(text).map(Self::Dns).map_err(|reason| InvalidHostOrIp {
            name: text.chars().take(HostName::LENGTH_MAX).collect(),
            reason,
        })
    }

    /// Returns the host name; `None` for an address.
    #[must_use]
    pub fn dns(&self) -> Option<&str> {
        match self {
            Self::Dns(host) => Some(host.as_str()),
            Self::Ip(_) => None,
        }
    }
}

impl fmt::Display for HostOrIp {
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
    fn host_names_and_ip_addresses_are_normalized() {
        let of = |text: &str| HostOrIp::parse(text).map(|name| name.to_string());
        assert_eq!(of("A.Example.").unwrap(), "a.example");
        assert_eq!(of("[2001:DB8::1]").unwrap(), "2001:db8::1");
        assert_eq!(of("10.0.0.1").unwrap(), "10.0.0.1");
        assert_eq!(of("[::ffff:10.0.0.1]").unwrap(), "10.0.0.1");
        for wrong in ["", "a..b", "*.a.example", "a b", "a/b", &"a.".repeat(140)] {
            assert!(of(wrong).is_err(), "{wrong:?}");
        }
    }
}
