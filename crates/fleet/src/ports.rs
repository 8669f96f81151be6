//! Free ports for programs that take their port as an option.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Lowest port that [`free_port`] returns. Lower ports may belong to services of the machine.
const FIRST: u16 = 10_000;
/// First port that Linux assigns by default (`ip_local_port_range`).
const EPHEMERAL_START: u16 = 32_768;
/// Distance of the first ports of two processes, so that concurrent processes try different ports.
const PROCESS_STRIDE: u32 = 7_919;
/// Distance of two consecutive ports: some programs also listen on the next port.
const PORT_STRIDE: u32 = 11;

/// Returns a port without a TCP or UDP socket on this machine. The system does not assign it to connections or to listeners that
/// request any port. This process does not return it again until all other ports have been returned.
///
/// # Panics
///
/// When no port is free.
pub fn free_port() -> u16 {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let given_out = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let ports = ports_below_ephemeral(&given_out);
    let begin = std::process::id().wrapping_mul(PROCESS_STRIDE);
    let next = |_| {
        let number = begin.wrapping_add(TAKEN.fetch_add(PORT_STRIDE, Relaxed));
        ports.start + (number % ports.len() as u32) as u16
    };
    ports.clone().map(next).find(|port| is_free(*port)).expect("a free port")
}

fn is_free(port: u16) -> bool {
    let anywhere = (Ipv4Addr::UNSPECIFIED, port);
    TcpListener::bind(anywhere).is_ok() && UdpSocket::bind(anywhere).is_ok()
}

/// Returns the ports below the range that the system assigns (`given_out`: its first and last port). If fewer than about a
/// thousand ports would remain, returns the range below Linux's default.
fn ports_below_ephemeral(given_out: &str) -> Range<u16> {
    let first = given_out.split_whitespace().next().and_then(|first| first.parse().ok());
    FIRST..first.filter(|first| *first > FIRST + 1_000).unwrap_or(EPHEMERAL_START)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_are_free_unique_and_not_adjacent() {
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
    fn free_port_range_is_below_the_ephemeral_range_or_the_default() {
        for (given_out, ports) in [
            ("32768\t60999\n", 10_000..32_768),
            ("20000 65535", 10_000..20_000),
            ("1024 65535", 10_000..32_768),
            ("", 10_000..32_768),
        ] {
            assert_eq!(ports_below_ephemeral(given_out), ports, "{given_out}");
        }
    }
}
