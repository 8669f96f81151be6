//! DNS server of the fleet, over UDP and TCP. Each name defines the response: correct, late, wrong or none.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, CNAME, SOA};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use inbound::{Acceptor, ConnectionHandler, ServiceTasks, Slot, Slots, WhenFull};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;

/// Longest accepted query in bytes; real ones have less than 300.
const QUESTION_MAX: usize = 1_232;
/// Longest UDP response in bytes to clients that do not announce a size (RFC 1035 section 4.2.1).
const ANSWER_MAX: usize = 512;
/// Maximum delayed responses at a time; further queries wait in the socket's buffer.
const DELAYED_MAX: usize = 8_192;
/// Maximum concurrent TCP connections per server.
const STREAMS_MAX: usize = 256;
/// Idle timeout of a TCP connection.
const STREAM_IDLE: Duration = Duration::from_secs(10);
/// TTL and minimum in the SOA record: the lifetime of negative responses, in seconds.
pub(crate) const NEGATIVE_TTL: u32 = 60;

/// The DNS server's response to a query.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Reply {
    /// CNAME records to follow in order, then the addresses of the last name (or of the queried name).
    Found { aliases: Vec<(String, u32)>, addresses: Vec<Ipv4Addr>, ttl: u32 },
    /// A CNAME chain that leads back to the name.
    Loop(Vec<String>),
    /// NXDOMAIN: the name does not exist.
    NxDomain,
    /// SERVFAIL: the server fails.
    ServFail,
    /// REFUSED: the server does not respond to this query.
    Refused,
    /// No response.
    Silence,
}

/// Source of DNS data.
pub(crate) trait Zone: Send + Sync + 'static {
    /// Returns the response for `name` (lower case, no trailing dot), and its delay.
    fn reply(&self, name: &str) -> (Reply, Duration);
}

/// Number of queries by response.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueryCounts(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl QueryCounts {
    fn count(&self, answered: &'static str) {
        *self.0.lock().entry(answered).or_default() += 1;
    }

    /// Returns the counters so far.
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().clone()
    }
}

/// Starts a DNS server on a free port of `127.0.0.1`; its tasks belong to `tasks`.
pub(crate) async fn start(
    zone: Arc<dyn Zone>,
    tasks: &ServiceTasks,
) -> io::Result<(SocketAddr, QueryCounts)> {
    let (datagrams, streams) = bind().await?;
    let address = datagrams.local_addr()?;
    // Thousands of queries may arrive at the same time; the default buffer holds a few hundred.
    let _ = socket2::SockRef::from(&datagrams).set_recv_buffer_size(4 << 20);
    let questions = QueryCounts::default();
    let server = Arc::new(Server { zone, questions: questions.clone() });
    tasks.spawn_bounded(server.clone().answer_datagrams(datagrams, tasks.clone()));
    Acceptor::new(tasks, Slots::new(STREAMS_MAX), WhenFull::Wait).start(streams, server);
    Ok((address, questions))
}

/// Binds the same port for UDP and TCP; tries another port if it is in use for one of them.
async fn bind() -> io::Result<(UdpSocket, TcpListener)> {
    const TRIES: usize = 16;
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..TRIES {
        let datagrams = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        match TcpListener::bind(datagrams.local_addr()?).await {
            Ok(streams) => return Ok((datagrams, streams)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

struct Server {
    zone: Arc<dyn Zone>,
    questions: QueryCounts,
}

impl Server {
    async fn answer_datagrams(self: Arc<Self>, socket: UdpSocket, tasks: ServiceTasks) {
        let socket = Arc::new(socket);
        let late = Arc::new(Semaphore::new(DELAYED_MAX));
        let mut question = vec![0; QUESTION_MAX];
        loop {
            // An error concerns one datagram, such as a closed port of a client.
            let Ok((length, from)) = socket.recv_from(&mut question).await else { continue };
            if !from.ip().is_loopback() {
                continue;
            }
            let Some((answer, after)) = self.answer(&question[..length], true) else { continue };
            if after.is_zero() {
                let _ = socket.send_to(&answer, from).await;
                continue;
            }
            let Ok(permit) = late.clone().acquire_owned().await else { return };
            let socket = socket.clone();
            tasks.spawn_bounded(async move {
                let _permit = permit;
                tokio::time::sleep(after).await;
                let _ = socket.send_to(&answer, from).await;
            });
        }
    }

    async fn answer_stream(&self, mut stream: TcpStream) -> io::Result<()> {
        loop {
            let length = tokio::time::timeout(STREAM_IDLE, stream.read_u16()).await??;
            let mut question = vec![0; usize::from(length).min(QUESTION_MAX)];
            tokio::time::timeout(STREAM_IDLE, stream.read_exact(&mut question)).await??;
            let Some((answer, after)) = self.answer(&question, false) else { return Ok(()) };
            tokio::time::sleep(after).await;
            let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
            stream.write_all(&[&length.to_be_bytes(), &answer[..]].concat()).await?;
        }
    }

    /// Returns the response and its delay; `None` for no response.
    fn answer(&self, question: &[u8], datagram: bool) -> Option<(Vec<u8>, Duration)> {
        let question = Message::from_vec(question).ok()?;
        let query = question.queries.first()?.clone();
        let name = query.name().to_ascii().trim_end_matches('.').to_ascii_lowercase();
        let (reply, after) = self.zone.reply(&name);
        let mut answer = Message::new(question.metadata.id, MessageType::Response, OpCode::Query);
        answer.metadata.recursion_desired = question.metadata.recursion_desired;
        answer.metadata.recursion_available = true;
        answer.add_query(query.clone());
        self.questions.count(fill(&mut answer, reply, query.name(), query.query_type())?);
        let mut bytes = answer.to_vec().ok()?;
        let limit = usize::from(question.max_payload()).max(ANSWER_MAX);
        if datagram && bytes.len() > limit {
            bytes = answer.truncate().to_vec().ok()?;
        }
        Some((bytes, after))
    }
}

impl ConnectionHandler for Server {
    async fn serve(self: Arc<Self>, stream: TcpStream, from: SocketAddr, _: &mut Slot) {
        if from.ip().is_loopback() {
            // A client that disconnects affects only its own connection.
            drop(self.answer_stream(stream).await);
        }
    }
}

/// Fills the message with the response; returns its name for the counters, `None` for no response.
fn fill(message: &mut Message, reply: Reply, queried: &Name, kind: RecordType) -> Option<&'static str> {
    match reply {
        Reply::Silence => return None,
        Reply::ServFail => {
            message.metadata.response_code = ResponseCode::ServFail;
            return Some("servfail");
        }
        Reply::Refused => {
            message.metadata.response_code = ResponseCode::Refused;
            return Some("refused");
        }
        Reply::NxDomain => {
            message.metadata.response_code = ResponseCode::NXDomain;
            message.add_authority(soa());
            return Some("nxdomain");
        }
        Reply::Loop(names) => {
            let mut from = queried.clone();
            for to in names.iter().map(String::as_str).chain([queried.to_ascii().as_str()]) {
                let to = name(to)?;
                message.add_answer(Record::from_rdata(from, NEGATIVE_TTL, RData::CNAME(CNAME(to.clone()))));
                from = to;
            }
            return Some("loop");
        }
        Reply::Found { aliases, addresses, ttl } => {
            let mut at = queried.clone();
            for (to, ttl) in aliases {
                let to = name(&to)?;
                message.add_answer(Record::from_rdata(at, ttl, RData::CNAME(CNAME(to.clone()))));
                at = to;
            }
            if kind == RecordType::A && !addresses.is_empty() {
                for address in addresses {
                    message.add_answer(Record::from_rdata(at.clone(), ttl, RData::A(A(address))));
                }
                return Some("address");
            }
            // Without an SOA record the lifetime of a negative response is undefined (RFC 2308 section 2.2).
            message.add_authority(soa());
        }
    }
    Some("no-data")
}

fn name(text: &str) -> Option<Name> {
    let mut name = Name::from_ascii(text).ok()?;
    name.set_fqdn(true);
    Some(name)
}

fn soa() -> Record {
    let zone = Name::from_ascii("test.").unwrap_or_default();
    let data = SOA::new(zone.clone(), zone.clone(), 1, 3_600, 600, 86_400, NEGATIVE_TTL);
    Record::from_rdata(zone, NEGATIVE_TTL, RData::SOA(data))
}
