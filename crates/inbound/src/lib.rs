//! What a connection in needs: somebody who listens.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

/// Connections that may wait to be taken. The system has no more than it is told to (`net.core.somaxconn`, 4,096 where nobody changed
/// it); of whoever comes beyond, the first packet is dropped and sent again after a second. Tokio's own listeners have 128.
const WAITING_MAX: u32 = 65_535;

/// Listens at `address`, also where connections of a listener before are not forgotten yet. Must be called on a runtime.
///
/// # Errors
/// What the system says: the address is in use, or none of this machine's, or nobody may listen there.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(WAITING_MAX)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, TcpStream};
    use std::time::Duration;

    use super::*;

    /// As long as a connection that has no place is waited for.
    const PATIENCE: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_crowd_has_its_place_before_anybody_is_taken() {
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
            let waiting: Vec<_> = (0..crowd).map(|_| TcpStream::connect_timeout(&at, PATIENCE)).collect();
            assert!(waiting.iter().all(Result::is_ok), "{address}");
            assert_eq!(listen(at).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        }
    }
}
