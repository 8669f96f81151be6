//! Ports for programs that have to be told theirs.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Below are those of services that a machine may have.
const FIRST: u16 = 10_000;
/// From here on Linux gives ports out by itself, where it is not told otherwise (`ip_local_port_range`).
const GIVEN_OUT: u16 = 32_768;
/// Processes begin so far apart, so that two at once do not ask for the same.
const APART: u32 = 7_919;

/// A port that nobody on this machine listens or receives on, by TCP or UDP. The system gives it to no connection and no listener
/// that asks for any, and this process to nobody else, until all have had their turn.
///
/// # Panics
///
/// Where none of them is free.
pub fn free_port() -> u16 {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let ports = ours();
    let begin = std::process::id().wrapping_mul(APART);
    let next = |_| {
        let number = begin.wrapping_add(TAKEN.fetch_add(1, Relaxed));
        ports.start + (number % ports.len() as u32) as u16
    };
    ports.clone().map(next).find(|port| is_free(*port)).expect("a free port")
}

fn is_free(port: u16) -> bool {
    let anywhere = (Ipv4Addr::UNSPECIFIED, port);
    TcpListener::bind(anywhere).is_ok() && UdpSocket::bind(anywhere).is_ok()
}

/// Those that the system does not give out.
fn ours() -> Range<u16> {
    let told = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let given_out = told.split_whitespace().next().and_then(|first| first.parse().ok());
    // A machine that gives out all has none apart.
    let end = given_out.filter(|first| *first > FIRST + 1_000).unwrap_or(GIVEN_OUT);
    FIRST..end
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
        // One that the system gives out is none of them.
        let any = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        assert!(!ours().contains(&any), "{any}");
    }
}
