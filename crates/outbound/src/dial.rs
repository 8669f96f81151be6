//! Opens TCP connections and classifies connection errors.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::Instant;

use crate::budget::Pressure;

/// Delay between the attempts for two addresses, as RFC 8305 section 5 recommends.
pub const STAGGER: Duration = Duration::from_millis(250);

/// Reason why a connection could not be established.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum DialError {
    /// The host is reachable, but no process listens on the port, or a firewall rejects the connection.
    #[error("connection refused: no process listens on that port, or a firewall rejects the connection")]
    Refused,
    /// The connection was reset before it was established.
    #[error("connection reset before it was established")]
    Reset,
    /// A router, or this host's routing table, reports that the host is unreachable.
    #[error("no route to the host")]
    HostUnreachable,
    /// A router, or this host's routing table, reports that the network is unreachable; also the IPv6 error on hosts without IPv6.
    #[error("no route to the network")]
    NetworkUnreachable,
    /// The host did not respond before the timeout.
    #[error("no answer within the time allowed")]
    TimedOut,
    /// This process or machine is out of file descriptors (EMFILE, ENFILE) or socket memory (ENOBUFS). Operator: raise `ulimit -n`
    /// or lower the number of concurrent probes.
    #[error("this machine is out of file descriptors or socket memory; raise `ulimit -n`")]
    NoDescriptors,
    /// All local ports for this destination are in use or in TIME_WAIT (EADDRNOTAVAIL). Operator: lower the concurrency, or widen
    /// `net.ipv4.ip_local_port_range`.
    #[error("no free local port; widen net.ipv4.ip_local_port_range, or open fewer connections at a time")]
    NoPorts,
    /// A firewall or policy of this machine denies the connection.
    #[error("this machine's firewall or policy forbids the connection")]
    Denied,
    /// The list of addresses was empty.
    #[error("no address to connect to")]
    NoAddress,
    /// Another error, as the system's error number.
    #[error("system error {0}")]
    Other(i32),
}

impl DialError {
    /// Returns a stable code for records and metrics.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Reset => "reset",
            Self::HostUnreachable => "host-unreachable",
            Self::NetworkUnreachable => "network-unreachable",
            Self::TimedOut => "timed-out",
            Self::NoDescriptors => "no-descriptors",
            Self::NoPorts => "no-ports",
            Self::Denied => "denied",
            Self::NoAddress => "no-address",
            Self::Other(_) => "other",
        }
    }

    /// Returns whether a retry may succeed. A refused connection is final.
    #[must_use]
    pub fn is_transient(self) -> bool {
        match self {
            Self::TimedOut | Self::Reset | Self::NoDescriptors | Self::NoPorts => true,
            Self::Refused
            | Self::HostUnreachable
            | Self::NetworkUnreachable
            | Self::Denied
            | Self::NoAddress
            | Self::Other(_) => false,
        }
    }

    /// Returns the exhausted resource of this machine, for [`crate::budget`].
    #[must_use]
    pub fn pressure(self) -> Option<Pressure> {
        match self {
            Self::NoDescriptors | Self::NoPorts => Some(Pressure::OutOfResources),
            Self::TimedOut | Self::Reset => Some(Pressure::Lost),
            _ => None,
        }
    }
}

impl From<&io::Error> for DialError {
    fn from(error: &io::Error) -> Self {
        let Some(errno) = Errno::from_io_error(error) else {
            return match error.kind() {
                io::ErrorKind::TimedOut => Self::TimedOut,
                _ => Self::Other(0),
            };
        };
        match errno {
            Errno::CONNREFUSED => Self::Refused,
            Errno::CONNRESET | Errno::CONNABORTED | Errno::PIPE => Self::Reset,
            Errno::HOSTUNREACH | Errno::HOSTDOWN => Self::HostUnreachable,
            Errno::NETUNREACH | Errno::NETDOWN | Errno::AFNOSUPPORT => Self::NetworkUnreachable,
            Errno::TIMEDOUT => Self::TimedOut,
            Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM => Self::NoDescriptors,
            Errno::ADDRNOTAVAIL | Errno::ADDRINUSE | Errno::AGAIN => Self::NoPorts,
            Errno::ACCESS | Errno::PERM => Self::Denied,
            other => Self::Other(other.raw_os_error()),
        }
    }
}

/// Connects to `address` with Nagle's algorithm off: handshakes are small writes that wait for responses.
///
/// # Errors
/// [`DialError`]; [`DialError::TimedOut`] after `limit`.
///
/// # Cancellation
/// Dropping the future closes the socket.
#[crate::boxed]
pub async fn connect(address: SocketAddr, limit: Duration) -> Result<TcpStream, DialError> {
    connect_until(address, crate::Deadline::within(limit).instant()).await
}

async fn connect_until(address: SocketAddr, until: Instant) -> Result<TcpStream, DialError> {
    let stream = tokio::time::timeout_at(until, open(address))
        .await
        .map_err(|_| DialError::TimedOut)?
        .map_err(|error| DialError::from(&error))?;
    Ok(stream)
}

async fn open(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_nodelay(true)?;
    socket.connect(address).await
}

/// A failed attempt to connect to one address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Attempt {
    /// Address to which the attempt failed.
    pub address: IpAddr,
    /// Reason why the attempt failed.
    pub error: DialError,
}

/// The first established connection, and the attempts that failed before it.
#[derive(Debug)]
pub struct Connected {
    /// The open connection.
    pub stream: TcpStream,
    /// Address that accepted the connection.
    pub address: IpAddr,
    /// Failed attempts, in order of failure.
    pub failed: Vec<Attempt>,
}

/// Connects to the one of `addresses` that responds first (RFC 8305). Address families alternate, beginning with IPv6; each attempt
/// starts [`STAGGER`] after the previous one or as soon as that one has failed. Other connections are closed.
///
/// # Errors
/// The errors of all attempts, in order of failure; empty when there was no address.
///
/// # Cancellation
/// Dropping the future closes every socket.
#[crate::boxed]
pub async fn race(addresses: &[IpAddr], port: u16, limit: Duration) -> Result<Connected, Vec<Attempt>> {
    let until = crate::Deadline::within(limit).instant();
    let mut waiting = interleaved(addresses).into_iter();
    let mut under_way = FuturesUnordered::new();
    let mut failed = Vec::new();
    let begin = |address: IpAddr| async move {
        (address, connect_until(SocketAddr::new(address, port), until).await)
    };
    under_way.extend(waiting.next().map(begin));
    let mut next_at = Instant::now() + STAGGER;
    loop {
        tokio::select! {
            done = under_way.next() => match done {
                Some((address, Ok(stream))) => return Ok(Connected { stream, address, failed }),
                Some((address, Err(error))) => {
                    failed.push(Attempt { address, error });
                    under_way.extend(waiting.next().map(begin));
                    next_at = Instant::now() + STAGGER;
                }
                None => return Err(failed),
            },
            () = tokio::time::sleep_until(next_at), if waiting.len() > 0 => {
                under_way.extend(waiting.next().map(begin));
                next_at = Instant::now() + STAGGER;
            }
        }
    }
}

/// Like [`race`], but returns a single error: the error of the address tried first, which is the preferred one.
///
/// # Errors
/// The preferred address and its error. If `addresses` is empty: the unspecified address and [`DialError::NoAddress`].
#[crate::boxed]
pub async fn happy_eyeballs(
    addresses: &[IpAddr],
    port: u16,
    limit: Duration,
) -> Result<(TcpStream, IpAddr), (IpAddr, DialError)> {
    match race(addresses, port, limit).await {
        Ok(connected) => Ok((connected.stream, connected.address)),
        Err(failed) => {
            let preferred = interleaved(addresses).first().copied();
            let of_preferred = failed.iter().find(|attempt| Some(attempt.address) == preferred);
            Err(of_preferred.map_or((IpAddr::from([0, 0, 0, 0]), DialError::NoAddress), |attempt| {
                (attempt.address, attempt.error)
            }))
        }
    }
}

/// Returns IPv6 and IPv4 addresses alternately, each family in its given order.
fn interleaved(addresses: &[IpAddr]) -> Vec<IpAddr> {
    let mut six = addresses.iter().filter(|address| address.is_ipv6());
    let mut four = addresses.iter().filter(|address| address.is_ipv4());
    let mut order = Vec::with_capacity(addresses.len());
    while order.len() < addresses.len() {
        order.extend(six.next());
        order.extend(four.next());
    }
    order
}

/// Closes with a reset, so that the local port is not blocked by TIME_WAIT for a minute: otherwise the 28,000 ports for one
/// destination are used up within seconds.
///
/// Call it only when all sent data has been received: a reset discards unread data, and some servers log it. Elsewhere, drop the
/// stream to close it normally.
pub fn close_with_reset(stream: TcpStream) {
    // Fails only on a closed socket; then dropping it is enough.
    let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
}
