//! Expands hosts, networks, ports and server names into single targets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use ipnet::IpNet;
use x509::HostName;

use super::error::TargetProblem;
use super::parse::{Endpoints, Hosts};
use super::ports::Ports;
use super::protocol::{HTTPS_PORT, Protocol, ProtocolSource};
use super::shuffle::{Shuffled, mix};
use super::{Host, Target};

/// Default maximum of addresses per network: a /16. A mistyped prefix length (/8 for /18) is rejected before the first packet.
pub const CIDR_ADDRESSES_MAX: u64 = 65_536;

/// Defaults for targets that do not specify these values themselves.
#[derive(Clone, Debug)]
pub struct TargetOptions {
    /// `--port`: ports of hosts and networks without a port. A URL without a port uses the port of its scheme.
    pub ports: Option<Ports>,
    /// `--sni`: server names for targets without `=name`. Each name is a separate target. Empty: the host's own name.
    pub server_names: Vec<HostName>,
    /// `--starttls`: protocol of targets without a scheme. `None`: guessed from the port.
    pub protocol: Option<Protocol>,
    /// `--max-addresses`: maximum addresses per network.
    pub addresses_max: u64,
}

impl Default for TargetOptions {
    fn default() -> Self {
        Self { ports: None, server_names: Vec::new(), protocol: None, addresses_max: CIDR_ADDRESSES_MAX }
    }
}

/// Lazy iterator over the targets of one text.
///
/// Addresses and ports of a network are shuffled, so that no host or rack gets many connections in a row.
#[derive(Clone, Debug)]
pub(super) struct Expansion {
    hosts: Hosts,
    ports: Ports,
    server_names: Vec<HostName>,
    protocol: Option<Protocol>,
    order: Order,
}

#[derive(Clone, Debug)]
enum Order {
    AsWritten(Range<u64>),
    Shuffled(Shuffled),
}

impl Expansion {
    pub(super) fn new(endpoints: Endpoints, options: &TargetOptions) -> Result<Self, TargetProblem> {
        let protocol = endpoints.protocol.or(options.protocol);
        let ports = match (endpoints.port, &options.ports) {
            (Some(port), _) => Ports::one(port),
            (None, Some(ports)) => ports.clone(),
            (None, None) => Ports::one(protocol.map_or(HTTPS_PORT, Protocol::default_port)),
        };
        let server_names = if endpoints.server_names.is_empty() {
            options.server_names.clone()
        } else {
            endpoints.server_names
        };
        let addresses = addresses(&endpoints.hosts, options.addresses_max)?;
        let count = addresses
            .checked_mul(u64::from(ports.count()))
            .and_then(|count| count.checked_mul(server_names.len().max(1) as u64))
            .ok_or(TargetProblem::TooManyTargets)?;
        let order = match &endpoints.hosts {
            Hosts::Network(network) => Order::Shuffled(Shuffled::new(count, seed(network))),
            Hosts::Name(_) | Hosts::Address(_) => Order::AsWritten(0..count),
        };
        Ok(Self { hosts: endpoints.hosts, ports, server_names, protocol, order })
    }

    /// Returns the number of remaining targets.
    pub(super) fn left(&self) -> u64 {
        match &self.order {
            Order::AsWritten(range) => range.end - range.start,
            Order::Shuffled(shuffled) => shuffled.left(),
        }
    }

    /// Returns the target with this number. Numbers count through the server names first, then the ports, then the addresses.
    fn target(&self, number: u64) -> Option<Target> {
        let names = self.server_names.len().max(1) as u64;
        let ports = u64::from(self.ports.count());
        let server_name = self.server_names.get((number % names) as usize).cloned();
        let port = self.ports.at((number / names % ports) as u32)?;
        let host = match &self.hosts {
            Hosts::Name(name) => Host::Name(name.clone()),
            Hosts::Address(address) => Host::Address(*address),
            Hosts::Network(network) => Host::Address(address_at(network, number / names / ports)),
        };
        let (protocol, source) = self.protocol_at(port);
        // The host's own name is the default, so a target that names it explicitly is the same endpoint.
        let server_name = server_name.filter(|name| !matches!(&host, Host::Name(own) if own == name));
        let target = Target::new(host, port, protocol, source, server_name);
        Some(match self.hosts {
            Hosts::Network(_) => target.of_network(),
            Hosts::Name(_) | Hosts::Address(_) => target,
        })
    }

    fn protocol_at(&self, port: u16) -> (Protocol, ProtocolSource) {
        match (self.protocol, Protocol::from_port(port)) {
            (Some(given), _) => (given, ProtocolSource::Given),
            (None, Some(guessed)) => (guessed, ProtocolSource::GuessedFromPort),
            (None, None) => (Protocol::Tls, ProtocolSource::Default),
        }
    }
}

impl Iterator for Expansion {
    type Item = Target;

    fn next(&mut self) -> Option<Target> {
        let number = match &mut self.order {
            Order::AsWritten(range) => range.next(),
            Order::Shuffled(shuffled) => shuffled.next(),
        }?;
        self.target(number)
    }
}

fn addresses(hosts: &Hosts, max: u64) -> Result<u64, TargetProblem> {
    let Hosts::Network(network) = hosts else { return Ok(1) };
    let host_bits = u32::from(network.max_prefix_len() - network.prefix_len());
    // 2^128 does not fit into a u128, so the result saturates.
    let addresses = 1_u128.checked_shl(host_bits).unwrap_or(u128::MAX);
    match u64::try_from(addresses) {
        Ok(addresses) if addresses <= max => Ok(addresses),
        _ => Err(TargetProblem::TooManyAddresses { addresses, max }),
    }
}

/// Returns the address at `index`; the network address is at 0. The first and last address of an IPv4 network are scanned, too,
/// because they can be hosts in clouds and behind NAT.
fn address_at(network: &IpNet, index: u64) -> IpAddr {
    match network.network() {
        IpAddr::V4(first) => Ipv4Addr::from(u32::from(first).wrapping_add(index as u32)).into(),
        IpAddr::V6(first) => Ipv6Addr::from(u128::from(first).wrapping_add(index.into())).into(),
    }
}

/// Returns the seed of the shuffled order. It depends only on the network, so that repeated scans use the same order.
fn seed(network: &IpNet) -> u64 {
    let bits = match network.network() {
        IpAddr::V4(first) => u128::from(u32::from(first)),
        IpAddr::V6(first) => u128::from(first),
    };
    mix((bits >> 64) as u64 ^ bits as u64, u64::from(network.prefix_len()))
}
