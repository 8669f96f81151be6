//! The name server: it answers like a recursive resolver whose whole world is the fleet.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::{Edns, Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::{A, CNAME, SOA};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use parking_lot::RwLock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::counters::{Count, Counting};
use crate::world::ZONE;

/// How long clients may keep that a name does not exist, in seconds (RFC 2308 section 5).
const NEGATIVE_TTL: u32 = 30;
/// Aliases followed in one answer; a loop is cut off here and left for the client to notice.
const ALIASES_MAX: usize = 8;
/// What this server is ready to receive over UDP, in octets (the DNS flag day of 2020).
const UDP_PAYLOAD: u16 = 1_232;
/// Kernel buffer for queries, in octets: a scanner asks thousands at once, and what does not fit is lost.
const RECEIVE_BUFFER: usize = 4 << 20;
/// Queries answered over one TCP connection before it is closed.
const TCP_QUERIES_MAX: usize = 1_000;
/// How long a TCP client may be silent.
const TCP_IDLE: Duration = Duration::from_secs(10);

/// What is said of a name.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Addresses { addresses: Vec<Ipv4Addr>, ttl: u32 },
    Alias { to: String, ttl: u32 },
    NxDomain,
    ServFail,
    Refused,
    Silent,
}

#[derive(Debug)]
struct Entry {
    answer: Answer,
    delay: Duration,
    asked: Count,
}

/// All names there are.
#[derive(Debug, Default)]
pub(crate) struct Zone {
    names: RwLock<HashMap<Box<str>, Entry>>,
}

impl Zone {
    /// Says `answer` of `name` from now on, `delay` after the question.
    pub(crate) fn set(&self, name: &str, answer: Answer, delay: Duration) {
        let entry = Entry { answer, delay, asked: Count::default() };
        self.names.write().insert(name.into(), entry);
    }

    /// Says another thing of a name that there is; the delay and the count stay.
    pub(crate) fn change(&self, name: &str, answer: Answer) {
        if let Some(entry) = self.names.write().get_mut(name) {
            entry.answer = answer;
        }
    }

    /// How often `name` was asked for, whichever the type.
    pub(crate) fn asked(&self, name: &str) -> u64 {
        self.names.read().get(name).map_or(0, |entry| entry.asked.get())
    }

    /// The response and how long it takes; `None` for no response at all.
    fn answer(&self, query: &Message) -> Option<(Message, Duration)> {
        let mut response = Message::response(query.metadata.id, query.metadata.op_code);
        response.metadata.recursion_desired = query.metadata.recursion_desired;
        response.metadata.recursion_available = true;
        if query.edns.is_some() {
            let mut edns = Edns::new();
            edns.set_max_payload(UDP_PAYLOAD);
            response.set_edns(edns);
        }
        let Some(question) = query.queries.first() else {
            response.metadata.response_code = ResponseCode::FormErr;
            return Some((response, Duration::ZERO));
        };
        response.add_query(question.clone());
        let mut asked = question.name.to_ascii().to_ascii_lowercase();
        asked.truncate(asked.trim_end_matches('.').len());
        let names = self.names.read();
        let entry = names.get(asked.as_str());
        if let Some(entry) = entry {
            entry.asked.add();
        }
        let delay = entry.map_or(Duration::ZERO, |entry| entry.delay);
        let code = fill(&mut response, &names, question.name.clone(), asked, question.query_type)?;
        response.metadata.response_code = code;
        Some((response, delay))
    }
}

/// Adds the records; `None`: say nothing.
fn fill(
    response: &mut Message,
    names: &HashMap<Box<str>, Entry>,
    mut owner: Name,
    mut asked: String,
    kind: RecordType,
) -> Option<ResponseCode> {
    for _ in 0..ALIASES_MAX {
        match names.get(asked.as_str()).map(|entry| &entry.answer) {
            Some(Answer::Alias { to, ttl }) => {
                let Ok(target) = Name::from_ascii(format!("{to}.")) else { return Some(ResponseCode::ServFail) };
                response.add_answer(Record::from_rdata(owner, *ttl, RData::CNAME(CNAME(target.clone()))));
                (owner, asked) = (target, to.clone());
            }
            Some(Answer::Addresses { addresses, ttl }) if kind == RecordType::A => {
                for address in addresses {
                    response.add_answer(Record::from_rdata(owner.clone(), *ttl, RData::A(A(*address))));
                }
                if addresses.is_empty() {
                    add_soa(response);
                }
                return Some(ResponseCode::NoError);
            }
            Some(Answer::Addresses { .. }) => {
                add_soa(response);
                return Some(ResponseCode::NoError);
            }
            Some(Answer::NxDomain) | None => {
                add_soa(response);
                return Some(ResponseCode::NXDomain);
            }
            Some(Answer::ServFail) => return Some(ResponseCode::ServFail),
            Some(Answer::Refused) => return Some(ResponseCode::Refused),
            Some(Answer::Silent) => return None,
        }
    }
    Some(ResponseCode::NoError)
}

fn add_soa(response: &mut Message) {
    let name = |text: String| Name::from_ascii(text).unwrap_or_default();
    let soa = SOA::new(
        name(format!("ns.{ZONE}.")),
        name(format!("hostmaster.{ZONE}.")),
        1,
        3_600,
        600,
        86_400,
        NEGATIVE_TTL,
    );
    response.add_authority(Record::from_rdata(name(format!("{ZONE}.")), NEGATIVE_TTL, RData::SOA(soa)));
}

/// The sockets of the name server, bound to one port of 127.0.0.1.
pub(crate) struct Sockets {
    udp: UdpSocket,
    tcp: TcpListener,
    pub(crate) address: SocketAddr,
}

impl Sockets {
    pub(crate) async fn bind() -> io::Result<Self> {
        /// A free port for UDP may be taken for TCP.
        const ATTEMPTS: usize = 16;
        let mut last = io::Error::other("no port tried");
        for _ in 0..ATTEMPTS {
            let udp = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None)?;
            udp.set_nonblocking(true)?;
            // Whatever the kernel grants will do.
            let _ = udp.set_recv_buffer_size(RECEIVE_BUFFER);
            udp.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
            let udp = UdpSocket::from_std(udp.into())?;
            let address = udp.local_addr()?;
            match TcpListener::bind(address).await {
                Ok(tcp) => return Ok(Self { udp, tcp, address }),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Starts answering.
    pub(crate) fn serve(
        self,
        zone: &Arc<Zone>,
        counting: &Arc<Counting>,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) {
        let server = Server {
            zone: zone.clone(),
            counting: counting.clone(),
            tasks: tasks.clone(),
            stop: stop.clone(),
        };
        tasks.spawn(server.clone().udp(Arc::new(self.udp)));
        tasks.spawn(server.tcp(self.tcp));
    }
}

#[derive(Clone)]
struct Server {
    zone: Arc<Zone>,
    counting: Arc<Counting>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Server {
    async fn udp(self, socket: Arc<UdpSocket>) {
        let mut buffer = vec![0; 4_096];
        loop {
            let received = tokio::select! {
                () = self.stop.cancelled() => return,
                received = socket.recv_from(&mut buffer) => received,
            };
            // An error here is about a datagram sent before (ICMP), not about the socket.
            let Ok((length, client)) = received else { continue };
            let Some((response, delay)) = self.respond(&buffer[..length], false) else { continue };
            if delay.is_zero() {
                let _ = socket.send_to(&response, client).await;
                continue;
            }
            let (socket, stop) = (socket.clone(), self.stop.clone());
            self.tasks.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = tokio::time::sleep(delay) => {
                        let _ = socket.send_to(&response, client).await;
                    }
                }
            });
        }
    }

    async fn tcp(self, listener: TcpListener) {
        loop {
            let accepted = tokio::select! {
                () = self.stop.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            let server = self.clone();
            self.tasks.spawn(async move {
                let stop = server.stop.clone();
                tokio::select! {
                    () = stop.cancelled() => {}
                    _ = server.tcp_client(stream) => {}
                }
            });
        }
    }

    async fn tcp_client(&self, mut stream: TcpStream) -> io::Result<()> {
        for _ in 0..TCP_QUERIES_MAX {
            let length = tokio::time::timeout(TCP_IDLE, stream.read_u16()).await??;
            let mut query = vec![0; usize::from(length)];
            stream.read_exact(&mut query).await?;
            if let Some((response, delay)) = self.respond(&query, true) {
                tokio::time::sleep(delay).await;
                stream.write_u16(response.len() as u16).await?;
                stream.write_all(&response).await?;
            }
        }
        Ok(())
    }

    fn respond(&self, query: &[u8], tcp: bool) -> Option<(Vec<u8>, Duration)> {
        let query = Message::from_vec(query).ok()?;
        if query.metadata.message_type != MessageType::Query {
            return None;
        }
        self.counting.dns_queries.add();
        match query.queries.first().map(|question| question.query_type) {
            Some(RecordType::A) => self.counting.dns_a.add(),
            Some(RecordType::AAAA) => self.counting.dns_aaaa.add(),
            _ => {}
        }
        if tcp {
            self.counting.dns_tcp.add();
        }
        let (response, delay) = self.zone.answer(&query)?;
        let mut octets = response.to_vec().ok()?;
        if !tcp && octets.len() > usize::from(query.max_payload()) {
            octets = response.truncate().to_vec().ok()?;
        }
        Some((octets, delay))
    }
}
