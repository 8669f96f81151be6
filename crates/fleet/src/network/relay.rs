//! The relay between the sites: receives each packet and delivers it after the delay of the connection, or drops it.
//!
//! One packet socket (`AF_PACKET`) serves all links. A packet is received with its link address, and the relay sends packets for a
//! site to that address.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrAny, SocketFlags, SocketType, eth, recvfrom, sendto,
    socket_with, sockopt,
};

use crate::random::Random;

/// Longest packet of a link, including headers of the network layer.
const PACKET_MAX: usize = 65_535;
/// Maximum delayed packets; further ones are lost, like in a router with limited memory.
const UNDER_WAY_MAX: usize = 65_536;
/// Receive buffer of the socket in bytes, or less if the system allows less, for times when the relay is not scheduled.
const SOCKET_BYTES: usize = 8 << 20;
/// Seed of packet loss, which is the same in each run.
const SEED: u64 = 9;
const TCP: u8 = 6;

/// Properties of the connection between two sites.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LinkConditions {
    /// Delay in each direction.
    pub one_way: Duration,
    /// Packet loss per thousand, independent for each direction.
    pub lost_of_1000: u32,
    /// Whether all packets are lost.
    pub is_hole: bool,
}

impl LinkConditions {
    /// Returns a connection without loss and with this round-trip time.
    #[must_use]
    pub fn round_trip(round_trip: Duration) -> Self {
        Self { one_way: round_trip / 2, ..Self::default() }
    }

    /// Returns a black hole: all packets are dropped without an error.
    #[must_use]
    pub fn hole() -> Self {
        Self { is_hole: true, ..Self::default() }
    }
}

pub(super) struct Relay {
    socket: OwnedFd,
    state: Mutex<State>,
    /// Notified when a packet is due before all other delayed packets.
    earlier_packet: Condvar,
}

#[derive(Default)]
struct State {
    /// Link address from which each site last sent, by the third byte of its IP address.
    sites: HashMap<u8, SocketAddrAny>,
    links: HashMap<(u8, u8), Line>,
    under_way: BinaryHeap<Reverse<Packet>>,
    sent: u64,
}

/// Properties and counters of one connection, for both directions.
#[derive(Default)]
struct Line {
    conditions: LinkConditions,
    packets: u64,
    lost: u64,
}

/// A delayed packet; ordered by due time, then by arrival.
#[derive(Eq, Ord, PartialEq, PartialOrd)]
struct Packet {
    at: Instant,
    number: u64,
    to: u8,
    octets: Vec<u8>,
}

impl Relay {
    pub(super) fn start() -> io::Result<Arc<Self>> {
        let socket =
            socket_with(AddressFamily::PACKET, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(eth::IP))?;
        // A larger buffer needs privileges. Without them, a stall of the machine loses more packets.
        if sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BYTES).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BYTES)?;
        }
        let relay = Arc::new(Self { socket, state: Mutex::default(), earlier_packet: Condvar::new() });
        let (taking, delivery) = (Arc::clone(&relay), Arc::clone(&relay));
        thread::Builder::new().name("relay-in".to_owned()).spawn(move || taking.take())?;
        thread::Builder::new().name("relay-out".to_owned()).spawn(move || delivery.deliver())?;
        Ok(relay)
    }

    pub(super) fn knows(&self, address: Ipv4Addr) -> bool {
        self.state.lock().sites.contains_key(&number(address))
    }

    pub(super) fn set(&self, one: Ipv4Addr, other: Ipv4Addr, conditions: LinkConditions) {
        self.state.lock().links.entry(pair(number(one), number(other))).or_default().conditions = conditions;
    }

    pub(super) fn packets(&self, one: Ipv4Addr, other: Ipv4Addr) -> (u64, u64) {
        let state = self.state.lock();
        let line = state.links.get(&pair(number(one), number(other)));
        line.map_or((0, 0), |line| (line.packets, line.lost))
    }

    fn take(&self) {
        let mut random = Random::new(SEED);
        let mut octets = vec![0; PACKET_MAX];
        loop {
            // A link that goes down causes one error.
            let Ok((length, _, from)) = recvfrom(&self.socket, octets.as_mut_slice(), RecvFlags::empty())
            else {
                continue;
            };
            let packet = &octets[..length.min(PACKET_MAX)];
            let Some((source, target)) = addresses(packet) else { continue };
            let mut state = self.state.lock();
            if let Some(from) = from {
                state.sites.insert(number(source), from);
            }
            if !state.sites.contains_key(&number(target)) || target.octets()[..2] != source.octets()[..2] {
                continue;
            }
            let is_full = state.under_way.len() >= UNDER_WAY_MAX;
            let line = state.links.entry(pair(number(source), number(target))).or_default();
            line.packets += 1;
            let is_lost = random.below(1_000) < u64::from(line.conditions.lost_of_1000);
            if line.conditions.is_hole || is_lost || is_full {
                line.lost += 1;
                continue;
            }
            let at = Instant::now() + line.conditions.one_way;
            state.sent += 1;
            let packet = Packet { at, number: state.sent, to: number(target), octets: whole(packet) };
            let is_first = state.under_way.peek().is_none_or(|Reverse(first)| packet < *first);
            state.under_way.push(Reverse(packet));
            if is_first {
                self.earlier_packet.notify_one();
            }
        }
    }

    fn deliver(&self) {
        let mut state = self.state.lock();
        loop {
            let now = Instant::now();
            match state.under_way.peek().map(|Reverse(first)| first.at) {
                None => self.earlier_packet.wait(&mut state),
                Some(at) if at > now => drop(self.earlier_packet.wait_until(&mut state, at)),
                Some(_) => {
                    let packet = state.under_way.pop();
                    let to = packet.as_ref().and_then(|Reverse(packet)| state.sites.get(&packet.to).cloned());
                    let (Some(Reverse(packet)), Some(to)) = (packet, to) else { continue };
                    // A link with a full queue loses packets.
                    parking_lot::MutexGuard::unlocked(&mut state, || {
                        let _ = sendto(&self.socket, &packet.octets, SendFlags::empty(), &to);
                    });
                }
            }
        }
    }
}

fn number(address: Ipv4Addr) -> u8 {
    address.octets()[2]
}

fn pair(one: u8, other: u8) -> (u8, u8) {
    (one.min(other), one.max(other))
}

/// Returns source and destination address (RFC 791 section 3.1).
fn addresses(packet: &[u8]) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let address = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?));
    Some((address(12)?, address(16)?))
}

/// Returns the packet with its checksum, which links between namespaces leave to nonexistent hardware.
fn whole(packet: &[u8]) -> Vec<u8> {
    const CHECKSUM: usize = 16;
    let mut packet = packet.to_vec();
    let header = usize::from(packet[0] & 15) * 4;
    if packet[9] != TCP || packet.len() < header + CHECKSUM + 2 {
        return packet;
    }
    let (ip, tcp) = packet.split_at_mut(header);
    tcp[CHECKSUM..CHECKSUM + 2].fill(0);
    // The checksum includes addresses, protocol and length (RFC 9293 section 3.1).
    let sum = sum(&ip[12..20]) + u64::from(TCP) + tcp.len() as u64 + sum(tcp);
    let folded = (0..3).fold(sum, |sum, _| (sum & 0xffff) + (sum >> 16));
    tcp[CHECKSUM..CHECKSUM + 2].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    packet
}

fn sum(octets: &[u8]) -> u64 {
    octets
        .chunks(2)
        .map(|pair| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or_default()))
        .sum()
}
