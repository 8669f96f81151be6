//! Connections, and why they fail.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustix::io::Errno;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// The next address is tried when the last has said nothing for this long (RFC 8305 section 5).
pub const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// Nothing listens there.
    #[error("connection refused")]
    Refused,
    /// The peer reset the connection while it was being made.
    #[error("connection reset")]
    Reset,
    /// There is no way to that host or network.
    #[error("{0}")]
    Unreachable(io::Error),
    /// Nothing came back: the SYN was swallowed.
    #[error("nothing came back in {0:?}")]
    TimedOut(Duration),
    /// This process or system is out of descriptors, ports or buffers.
    #[error("{0}: fewer connections at once, or a higher `ulimit -n`, would help")]
    Exhausted(io::Error),
    /// Local policy forbids it.
    #[error("{0}: a local firewall or sandbox forbids it")]
    Denied(io::Error),
    /// Anything else the system says.
    #[error("{0}")]
    Other(io::Error),
}

impl From<io::Error> for DialError {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::CONNREFUSED) => Self::Refused,
            Some(Errno::CONNRESET) => Self::Reset,
            Some(Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::NETDOWN | Errno::HOSTDOWN) => {
                Self::Unreachable(error)
            }
            // The kernel gave up on the SYN before we did.
            Some(Errno::TIMEDOUT) => Self::TimedOut(Duration::ZERO),
            Some(
                Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::ADDRNOTAVAIL,
            ) => Self::Exhausted(error),
            Some(Errno::ACCESS | Errno::PERM) => Self::Denied(error),
            _ => Self::Other(error),
        }
    }
}

/// Connects to `address` within `limit`. Small writes go out at once (`TCP_NODELAY`).
///
/// # Errors
/// [`DialError`], one for each way it can end.
///
/// # Cancellation
/// Dropping the future closes the socket.
pub async fn connect(address: SocketAddr, limit: Duration) -> Result<TcpStream, DialError> {
    let stream = match tokio::time::timeout(limit, TcpStream::connect(address)).await {
        Ok(connected) => connected?,
        Err(_) => return Err(DialError::TimedOut(limit)),
    };
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Connects to whichever of `addresses` answers first, IPv6 and IPv4 in turn, a new attempt every
/// [`ATTEMPT_DELAY`] or as soon as one fails (RFC 8305). `limit` bounds all of it; the attempts
/// that lose are dropped.
///
/// # Errors
/// The last attempt's address and error; [`DialError::TimedOut`] with the first address when
/// nothing answered. With no address at all, `Unreachable`.
pub async fn happy_eyeballs(
    addresses: &[IpAddr],
    port: u16,
    limit: Duration,
) -> Result<(TcpStream, IpAddr), (IpAddr, DialError)> {
    let deadline = Instant::now() + limit;
    let mut waiting = interleaved(addresses).into_iter();
    let mut attempts = JoinSet::new();
    let mut begin = |attempts: &mut JoinSet<_>| {
        if let Some(address) = waiting.next() {
            let target = SocketAddr::new(address, port);
            attempts.spawn(async move { (address, connect(target, limit).await) });
        }
    };
    begin(&mut attempts);
    let unspecified = IpAddr::from([0, 0, 0, 0]);
    let mut failed = (
        addresses.first().copied().unwrap_or(unspecified),
        DialError::Unreachable(io::Error::other("the name has no address")),
    );
    while !attempts.is_empty() {
        let next = Instant::now() + ATTEMPT_DELAY;
        match timeout_at(next.min(deadline), attempts.join_next()).await {
            Ok(Some(Ok((address, Ok(stream))))) => return Ok((stream, address)),
            Ok(Some(Ok((address, Err(error))))) => {
                failed = (address, error);
                begin(&mut attempts);
            }
            Ok(_) => begin(&mut attempts),
            Err(_) if Instant::now() >= deadline => {
                return Err((failed.0, DialError::TimedOut(limit)));
            }
            Err(_) => begin(&mut attempts),
        }
    }
    Err(failed)
}

/// IPv6 first, then by turns, each family in its given order (RFC 8305 section 4).
fn interleaved(addresses: &[IpAddr]) -> Vec<IpAddr> {
    let mut v6 = addresses.iter().filter(|a| a.is_ipv6()).copied();
    let mut v4 = addresses.iter().filter(|a| a.is_ipv4()).copied();
    let mut order = Vec::with_capacity(addresses.len());
    loop {
        match (v6.next(), v4.next()) {
            (None, None) => return order,
            (first, second) => order.extend(first.into_iter().chain(second)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const LIMIT: Duration = Duration::from_secs(5);

    async fn closed_port() -> u16 {
        let listener = tokio::net::TcpListener::bind((LOOPBACK, 0)).await.unwrap();
        listener.local_addr().unwrap().port()
    }

    #[tokio::test]
    async fn a_port_without_a_listener_refuses() {
        let address = SocketAddr::new(LOOPBACK, closed_port().await);
        assert!(matches!(connect(address, LIMIT).await, Err(DialError::Refused)));
    }

    #[tokio::test]
    async fn the_first_address_that_answers_wins() {
        let listener = tokio::net::TcpListener::bind((LOOPBACK, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        // Nothing listens on the other loopback addresses.
        let addresses = ["127.0.0.2".parse().unwrap(), "127.0.0.3".parse().unwrap(), LOOPBACK];
        let (_, address) = happy_eyeballs(&addresses, port, LIMIT).await.unwrap();
        assert_eq!(address, LOOPBACK);
    }

    #[tokio::test]
    async fn when_all_fail_the_last_error_is_told() {
        let port = closed_port().await;
        let addresses = ["127.0.0.2".parse().unwrap(), LOOPBACK];
        let (address, error) = happy_eyeballs(&addresses, port, LIMIT).await.unwrap_err();
        assert!(addresses.contains(&address));
        assert!(matches!(error, DialError::Refused), "{error}");
        assert!(happy_eyeballs(&[], port, LIMIT).await.is_err());
    }

    #[test]
    fn families_take_turns() {
        let parse = |list: &[&str]| list.iter().map(|a| a.parse().unwrap()).collect::<Vec<IpAddr>>();
        assert_eq!(
            interleaved(&parse(&["192.0.2.1", "192.0.2.2", "2001:db8::1"])),
            parse(&["2001:db8::1", "192.0.2.1", "192.0.2.2"])
        );
    }
}
