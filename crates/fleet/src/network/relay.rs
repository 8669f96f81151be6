//! What is between the sites: takes each packet, and gives it to whom it is for after its way's delay, or never.
//!
//! It has one socket for packets of all links (`AF_PACKET`), on which a packet comes with where it came from: sending to
//! that is how a site is reached.

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

/// A link's longest packet, headers of the network layer included.
const PACKET_MAX: usize = 65_535;
/// Packets under way at most, as a router's memory has an end: the next ones are lost.
const UNDER_WAY_MAX: usize = 65_536;
/// What the socket holds while the relay is not running, as far as the system allows it.
const SOCKET_OCTETS: usize = 8 << 20;
/// Losses are the same in each run.
const SEED: u64 = 9;
const TCP: u8 = 6;

/// How it is between two sites.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Way {
    /// There, and as long back.
    pub one_way: Duration,
    /// Packets of a thousand that are lost, each way by itself.
    pub lost_of_1000: u32,
    /// All are.
    pub is_hole: bool,
}

impl Way {
    /// Open, so long there and back.
    #[must_use]
    pub fn round_trip(round_trip: Duration) -> Self {
        Self { one_way: round_trip / 2, ..Self::default() }
    }

    /// Drops all bytes without an error.
    #[must_use]
    pub fn hole() -> Self {
        Self { is_hole: true, ..Self::default() }
    }
}

pub(super) struct Relay {
    socket: OwnedFd,
    state: Mutex<State>,
    /// A packet is under way that is due before those that were.
    sooner: Condvar,
}

#[derive(Default)]
struct State {
    /// Where each site was heard last, by the third byte of its address.
    sites: HashMap<u8, SocketAddrAny>,
    ways: HashMap<(u8, u8), Line>,
    under_way: BinaryHeap<Reverse<Packet>>,
    sent: u64,
}

/// Between two sites, both directions.
#[derive(Default)]
struct Line {
    way: Way,
    packets: u64,
    lost: u64,
}

/// The soonest first, in the order in which they came.
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
        // More than usual is a privilege; without it a stall of this machine loses more.
        if sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_OCTETS).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, SOCKET_OCTETS)?;
        }
        let relay = Arc::new(Self { socket, state: Mutex::default(), sooner: Condvar::new() });
        let (taking, giving) = (Arc::clone(&relay), Arc::clone(&relay));
        thread::Builder::new().name("relay-in".to_owned()).spawn(move || taking.take())?;
        thread::Builder::new().name("relay-out".to_owned()).spawn(move || giving.give())?;
        Ok(relay)
    }

    pub(super) fn knows(&self, address: Ipv4Addr) -> bool {
        self.state.lock().sites.contains_key(&number(address))
    }

    pub(super) fn set(&self, one: Ipv4Addr, other: Ipv4Addr, way: Way) {
        self.state.lock().ways.entry(pair(number(one), number(other))).or_default().way = way;
    }

    pub(super) fn packets(&self, one: Ipv4Addr, other: Ipv4Addr) -> (u64, u64) {
        let state = self.state.lock();
        let line = state.ways.get(&pair(number(one), number(other)));
        line.map_or((0, 0), |line| (line.packets, line.lost))
    }

    fn take(&self) {
        let mut random = Random::new(SEED);
        let mut octets = vec![0; PACKET_MAX];
        loop {
            // A link that goes down is an error once.
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
            let line = state.ways.entry(pair(number(source), number(target))).or_default();
            line.packets += 1;
            let is_lost = random.below(1_000) < u64::from(line.way.lost_of_1000);
            if line.way.is_hole || is_lost || is_full {
                line.lost += 1;
                continue;
            }
            let at = Instant::now() + line.way.one_way;
            state.sent += 1;
            let packet = Packet { at, number: state.sent, to: number(target), octets: whole(packet) };
            let is_first = state.under_way.peek().is_none_or(|Reverse(first)| packet < *first);
            state.under_way.push(Reverse(packet));
            if is_first {
                self.sooner.notify_one();
            }
        }
    }

    fn give(&self) {
        let mut state = self.state.lock();
        loop {
            let now = Instant::now();
            match state.under_way.peek().map(|Reverse(first)| first.at) {
                None => self.sooner.wait(&mut state),
                Some(at) if at > now => drop(self.sooner.wait_until(&mut state, at)),
                Some(_) => {
                    let packet = state.under_way.pop();
                    let to = packet.as_ref().and_then(|Reverse(packet)| state.sites.get(&packet.to).cloned());
                    let (Some(Reverse(packet)), Some(to)) = (packet, to) else { continue };
                    // A link whose queue is full loses packets, as links do.
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

/// From and to (RFC 791 section 3.1).
fn addresses(packet: &[u8]) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let address = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?));
    Some((address(12)?, address(16)?))
}

/// The packet with its checksum: a link between namespaces leaves it to hardware that it does not have.
fn whole(packet: &[u8]) -> Vec<u8> {
    const CHECKSUM: usize = 16;
    let mut packet = packet.to_vec();
    let header = usize::from(packet[0] & 15) * 4;
    if packet[9] != TCP || packet.len() < header + CHECKSUM + 2 {
        return packet;
    }
    let (ip, tcp) = packet.split_at_mut(header);
    tcp[CHECKSUM..CHECKSUM + 2].fill(0);
    // Addresses, protocol and length count too (RFC 9293 section 3.1).
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
