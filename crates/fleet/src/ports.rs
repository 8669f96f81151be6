//! Ports for programs that have to be told theirs.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Below are those of services that a machine may have.
const FIRST: u16 = 10_000;
/// From here on Linux gives ports out by itself, where it is not told otherwise (`ip_local_port_range`).
const GIVEN_OUT: u16 = 32_768;
/// Processes begin so far apart, so that two at once do not ask for the same.
const PROCESSES_APART: u32 = 7_919;
/// Two that are given one after the other: some programs listen on the port next to theirs, too.
const APART: u32 = 11;

/// A port that nobody on this machine listens or receives on, by TCP or UDP. The system gives it to no connection and no listener
/// that asks for any, and this process to nobody else, until all have had their turn.
///
/// # Panics
///
/// Where none of them is free.
pub fn free_port() -> u16 {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let given_out = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let ports = apart(&given_out);
    let begin = std::process::id().wrapping_mul(PROCESSES_APART);
    let next = |_| {
        let number = begin.wrapping_add(TAKEN.fetch_add(APART, Relaxed));
        ports.start + (number % ports.len() as u32) as u16
    };
    ports.clone().map(next).find(|port| is_free(*port)).expect("a free port")
}

fn is_free(port: u16) -> bool {
    let anywhere = (Ipv4Addr::UNSPECIFIED, port);
    TcpListener::bind(anywhere).is_ok() && UdpSocket::bind(anywhere).is_ok()
}

/// Ports outside the range that the system assigns, given by its first and last port. Empty if the system assigns all ports.
fn apart(given_out: &str) -> Range<u16> {
    let first = given_out.split_whitespace().next().and_then(|first| first.parse().ok());
    FIRST..first.filter(|first| *first > FIRST + 1_000).unwrap_or(GIVEN_OUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_free_and_given_once() {
        let all: std::collections::HashSet<u16> = (0..100).map(|_| free_port()).collect();
        assert_eq!(all.len(), 100);
        let listeners: Vec<_> =
            all.iter().map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).unwrap()).collect();
        assert!(all.iter().all(|port| !is_free(*port)));
        drop(listeners);
        let mut next = all.iter().filter(|port| all.contains(&(**port + 1)));
        assert_eq!(next.next(), None, "nor is any next to another");
    }

    #[test]
    fn they_are_none_that_the_system_gives_out() {
        for (given_out, ports) in [
            ("32768\t60999\n", 10_000..32_768),
            ("20000 65535", 10_000..20_000),
            ("1024 65535", 10_000..32_768),
            ("", 10_000..32_768),
        ] {
            assert_eq!(apart(given_out), ports, "{given_out}");
        }
    }
}
