//! Exchange of DNS messages with one name server, other than address lookups: other record types, and updates (RFC 2136).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;

use super::name::WireName;
use super::query::{self, Query};
use crate::{Deadline, dial};

/// Number of times a message is sent over UDP.
const SENDS: usize = 2;
/// Longest UDP response in bytes. Servers truncate longer ones, which are then fetched over TCP.
const DATAGRAM_MAX: usize = 4_096;

/// Reason why a name server returned no usable response.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The server did not answer in time.
    #[error("no answer within the time allowed")]
    TimedOut,
    /// The operating system reported an error.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The TCP connection to the server failed.
    #[error(transparent)]
    Dial(#[from] dial::DialError),
    /// The response has another id or another question.
    #[error("the answer belongs to another query")]
    Foreign,
    /// The response is not a DNS message.
    #[error("the answer cannot be parsed: {0}")]
    Unreadable(String),
}

/// Whether the server should resolve recursively (RFC 1035 section 4.1.1, bit RD).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Recursion {
    /// Recursion is requested.
    Desired,
    /// The server answers only from its own data.
    NotDesired,
}

/// Queries one server for records and returns its response, with any response code. Each packet has the timeout `attempt_limit`; see
/// [`exchange`].
///
/// # Errors
/// [`ExchangeError`].
#[crate::boxed]
pub async fn send_query(
    server: SocketAddr,
    name: &Name,
    kind: RecordType,
    recursion: Recursion,
    attempt_limit: Duration,
    deadline: Deadline,
) -> Result<Message, ExchangeError> {
    let name = WireName::from_answer(name);
    let mut extended = true;
    loop {
        let mut query = Query::new(&name, kind, extended).with_id(query::random_id()?);
        if recursion == Recursion::NotDesired {
            query = query.without_recursion();
        }
        let answer = send(server, query.message_bytes(), query.question(), attempt_limit, deadline).await?;
        let answer =
            Message::from_vec(&answer).map_err(|error| ExchangeError::Unreadable(error.to_string()))?;
        if !extended || answer.metadata.response_code != ResponseCode::FormErr {
            return Ok(answer);
        }
        // RFC 6891 section 7: the server does not support EDNS.
        extended = false;
    }
}

/// Sends a message to one server and returns the response with the same id. Sends up to twice over UDP, then over TCP if the
/// response was truncated, or if there was none and time is left. Each attempt has the timeout `attempt_limit`. Packets with another id are
/// ignored.
///
/// # Errors
/// [`ExchangeError`].
#[crate::boxed]
pub async fn exchange(
    server: SocketAddr,
    message: &[u8],
    attempt_limit: Duration,
    deadline: Deadline,
) -> Result<Vec<u8>, ExchangeError> {
    send(server, message, &[], attempt_limit, deadline).await
}

async fn send(
    server: SocketAddr,
    message: &[u8],
    question: &[u8],
    attempt_limit: Duration,
    deadline: Deadline,
) -> Result<Vec<u8>, ExchangeError> {
    for _ in 0..SENDS {
        match deadline.child(attempt_limit).bound(over_udp(server, message, question)).await {
            Ok(Ok(answer)) if query::is_truncated(&answer) => break,
            Ok(result) => return Ok(result?),
            Err(_) if deadline.has_passed() => return Err(ExchangeError::TimedOut),
            Err(_) => {}
        }
    }
    let answering = over_tcp(server, message, question);
    deadline.child(attempt_limit).bound(answering).await.map_err(|_| ExchangeError::TimedOut)?
}

/// Sends a message over UDP and receives the response. Each message has a new socket: an off-path attacker must guess its random
/// port and the id.
async fn over_udp(server: SocketAddr, message: &[u8], question: &[u8]) -> io::Result<Vec<u8>> {
    let socket = connected_socket(server)?;
    socket.send(message).await?;
    let mut answer = vec![0; DATAGRAM_MAX];
    loop {
        let length = socket.recv(&mut answer).await?;
        if is_answer(&answer[..length], message, question) {
            answer.truncate(length);
            return Ok(answer);
        }
    }
}

/// Sends a query over TCP. Each message has a length prefix of two bytes (RFC 1035 section 4.2.2). The caller sets the timeout.
pub(super) async fn over_tcp(
    server: SocketAddr,
    message: &[u8],
    question: &[u8],
) -> Result<Vec<u8>, ExchangeError> {
    let mut stream = dial::connect(server, Duration::MAX).await?;
    let length = u16::try_from(message.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    stream.write_all(&[&length.to_be_bytes(), message].concat()).await?;
    let mut answer = vec![0; stream.read_u16().await?.into()];
    stream.read_exact(&mut answer).await?;
    if is_answer(&answer, message, question) { Ok(answer) } else { Err(ExchangeError::Foreign) }
}

/// Opens a UDP socket on a random port that receives from this server only.
pub(super) fn connected_socket(server: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = std::net::UdpSocket::bind(SocketAddr::new(any, 0))?;
    socket.connect(server)?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}

/// Returns whether the response matches. The response to an update need not repeat the question (RFC 2136 section 3.8); then
/// `question` is empty.
fn is_answer(answer: &[u8], message: &[u8], question: &[u8]) -> bool {
    query::response_id(answer).is_some_and(|id| message.starts_with(&id.to_be_bytes()))
        && (question.is_empty() || query::repeats(answer, question))
}
