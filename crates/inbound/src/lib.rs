//! Incoming connections: listeners, one accept loop for all services, connection slots and tasks.

mod acceptor;
mod frames;
mod listener;
mod proxies;
pub mod proxy_protocol;
mod reserved;
mod shares;
mod silence;
mod slots;
mod tasks;
mod web_page;
mod writes;

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::net::TcpListener;

pub use acceptor::{Acceptor, ConnectionHandler, Refusal, WhenFull};
pub use frames::{CountedFrames, Flood, FrameCounter};
pub use listener::Listener;
pub use proxies::TrustedProxies;
pub use reserved::reserve;
#[cfg(unix)]
pub use reserved::reserve_socket;
pub use shares::{KeyedConcurrencyLimit, KeyedPermit};
pub use silence::Silence;
pub use slots::{OriginLimit, Slot, Slots};
pub use tasks::ServiceTasks;
pub use web_page::is_sent_by_web_page;

/// Backlog of a listener: connections that wait to be accepted. The system caps it at `net.core.somaxconn` (4,096 by default).
/// Beyond that, the first packet is dropped and sent again after a second. Tokio's default is 128.
const WAITING_MAX: u32 = 65_535;

/// Listens at `address`, even if old connections of a previous listener still exist. Must be called on a runtime.
///
/// # Errors
/// The address is in use, belongs to another machine, or is not permitted.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    reserved::socket(address)?.listen(WAITING_MAX)
}

/// By default, one address may use 1/`ADDRESS_SHARE_PARTS` (an eighth) of a listener's slots, so that seven addresses cannot take
/// all slots.
const ADDRESS_SHARE_PARTS: usize = 8;

/// Returns how many of a listener's `connections_max` slots one address (of IPv6, one /64) may have by default: an eighth.
#[must_use]
pub fn slots_per_address(connections_max: usize) -> usize {
    (connections_max / ADDRESS_SHARE_PARTS).max(1)
}

/// Returns the network that limits count as one client: the IPv4 address, or the /64 of an IPv6 address, because one host can use
/// all addresses of a /64.
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, TcpStream};
    use std::time::Duration;

    use super::*;

    /// Timeout for connections that wait in the backlog.
    const TIMEOUT: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn backlog_queues_up_to_500_connections_before_accept() {
        let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap_or_default();
        let crowd = most.trim().parse().unwrap_or(500).min(500);
        for address in
            [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), SocketAddr::from((Ipv6Addr::LOCALHOST, 0))]
        {
            let Ok(listener) = listen(address) else {
                assert!(address.is_ipv6(), "{address}");
                continue;
            };
            let at = listener.local_addr().unwrap();
            let waiting: Vec<_> = (0..crowd).map(|_| TcpStream::connect_timeout(&at, TIMEOUT)).collect();
            assert!(waiting.iter().all(Result::is_ok), "{address}");
            assert_eq!(listen(at).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        }
    }

    #[test]
    fn network_is_the_ipv6_prefix_and_mapped_addresses_are_ipv4() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2:3::4"), of("2001:db8:1:2::1"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
