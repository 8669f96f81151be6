//! Destination patterns of rules: names, addresses and networks, with or without a port.

use std::collections::HashMap;
use std::net::IpAddr;

use http_relay::names::BadRule;
use ipnet::IpNet;
use x509::HostName;

/// Maximum networks in one list of destination patterns.
const NETWORKS_MAX: usize = 1_000_000;
/// Length of the prefix `::ffff:0:0/96`, in bits, before the IPv4 address in an IPv4-mapped IPv6 address.
const MAPPED_BITS: u8 = 96;

/// A destination pattern of a rule, parsed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Destination<'a> {
    /// A name, `NAME` or `*.NAME`, with an optional port.
    Name(&'a str, Option<u16>),
    /// A network, with an optional port. A single address is a network with the prefix length 32 or 128.
    Network(IpNet, Option<u16>),
}

impl<'a> Destination<'a> {
    pub(crate) fn parse(pattern: &'a str) -> Result<Self, BadRule> {
        let wrong = || BadRule::Destination(pattern.to_owned());
        if let Some((address, rest)) = pattern.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            let (network, port) = match rest.rsplit_once(':') {
                Some((length, port)) => {
                    (format!("{address}{length}"), Some(port_of(port).ok_or_else(wrong)?))
                }
                None => (format!("{address}{rest}"), None),
            };
            return Ok(Self::Network(parse_network(&network).ok_or_else(wrong)?, port));
        }
        // An IPv6 network without brackets, such as 2001:db8::/32.
        if let Some(network) = parse_network(pattern) {
            return Ok(Self::Network(network, None));
        }
        let (host, port) = match pattern.rsplit_once(':') {
            Some((host, port)) => (host, Some(port_of(port).ok_or_else(wrong)?)),
            None => (pattern, None),
        };
        match parse_network(host) {
            Some(network @ IpNet::V4(_)) => Ok(Self::Network(network, port)),
            // Without brackets, address and port of IPv6 cannot be separated.
            Some(IpNet::V6(_)) => Err(wrong()),
            None if HostName::parse(host.strip_prefix("*.").unwrap_or(host)).is_ok() => {
                Ok(Self::Name(host, port))
            }
            None => Err(wrong()),
        }
    }
}

fn port_of(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port > 0)
}

/// Parses an address or a network. A network must have no bits set beyond its prefix length.
fn parse_network(text: &str) -> Option<IpNet> {
    let network = match text.parse::<IpAddr>() {
        Ok(address) => IpNet::from(address),
        Err(_) => text.parse::<IpNet>().ok()?,
    };
    let network = match (network.addr().to_canonical(), network.prefix_len().checked_sub(MAPPED_BITS)) {
        (four @ IpAddr::V4(_), Some(length)) if network.addr().is_ipv6() => IpNet::new(four, length).ok()?,
        _ => network,
    };
    (network.trunc() == network).then_some(network)
}

/// Map from a network and a port to the value of a rule.
#[derive(Clone, Debug)]
pub(crate) struct Networks<T> {
    values: HashMap<(IpNet, Option<u16>), T>,
    /// Prefix lengths of all networks, longest first.
    lengths: Vec<u8>,
}

impl<T> Default for Networks<T> {
    fn default() -> Self {
        Self { values: HashMap::new(), lengths: Vec::new() }
    }
}

impl<T> Networks<T> {
    pub(crate) fn is_full(&self) -> bool {
        self.values.len() >= NETWORKS_MAX
    }

    /// Adds a value. Returns false if the network and port already have a value.
    pub(crate) fn insert(&mut self, network: IpNet, port: Option<u16>, value: T) -> bool {
        if !self.lengths.contains(&network.prefix_len()) {
            self.lengths.push(network.prefix_len());
            self.lengths.sort_unstable_by(|one, other| other.cmp(one));
        }
        self.values.insert((network, port), value).is_none()
    }

    /// Returns the value of the smallest network that contains `address`. Within a network, the value for this port takes
    /// precedence over the value for all ports.
    pub(crate) fn get(&self, address: IpAddr, port: u16) -> Option<&T> {
        self.lengths.iter().find_map(|length| {
            let network = IpNet::new(address, *length).ok()?.trunc();
            self.values.get(&(network, Some(port))).or_else(|| self.values.get(&(network, None)))
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destination_is_parsed_as_name_or_network_with_optional_port() {
        let read = |pattern: &str| match Destination::parse(pattern) {
            Ok(Destination::Name(name, port)) => format!("{name} {port:?}"),
            Ok(Destination::Network(network, port)) => format!("{network} {port:?}"),
            Err(_) => "-".to_owned(),
        };
        for (pattern, wanted) in [
            ("a.example", "a.example None"),
            ("*.a.example:8443", "*.a.example Some(8443)"),
            ("10.0.0.0/8", "10.0.0.0/8 None"),
            ("10.0.0.0/8:443", "10.0.0.0/8 Some(443)"),
            ("10.0.0.1", "10.0.0.1/32 None"),
            ("10.0.0.1:443", "10.0.0.1/32 Some(443)"),
            ("[fd00::]/8:443", "fd00::/8 Some(443)"),
            ("[fd00::]/8", "fd00::/8 None"),
            ("fd00::/8", "fd00::/8 None"),
            ("[fd00::/8]:443", "fd00::/8 Some(443)"),
            ("::1", "::1/128 None"),
            ("[::1]:443", "::1/128 Some(443)"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8 None"),
            ("::ffff:10.0.0.1", "10.0.0.1/32 None"),
            ("10.1.2.3/8", "-"),
            ("10.0.0.0/33", "-"),
            ("fd00::/8:443", "-"),
            ("a.example:0", "-"),
            ("a.example:", "-"),
            ("a.example:70000", "-"),
            ("a*.example", "-"),
            ("[::1", "-"),
            ("", "-"),
        ] {
            assert_eq!(read(pattern), wanted, "{pattern}");
        }
    }
}
