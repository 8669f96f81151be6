//! Questions to name servers that addresses alone do not answer: aliases, zones, their servers, texts.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use outbound::resolve::{Families, Resolver};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use super::publisher::{PublishError, TxtRecord};

/// One question to one server.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);
/// Times a question is sent over UDP.
const TRIES: usize = 2;
/// Aliases followed.
const ALIASES_MAX: usize = 8;
/// Authoritative servers asked; zones have up to a dozen.
const SERVERS_MAX: usize = 16;
/// Octets of an answer over UDP; longer ones come truncated and are asked for over TCP.
const DATAGRAM_MAX: usize = 4_096;

#[derive(Clone)]
pub(super) struct Dns {
    recursive: Vec<SocketAddr>,
    resolver: Resolver,
}

impl std::fmt::Debug for Dns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dns").field("recursive", &self.recursive).finish_non_exhaustive()
    }
}

impl Dns {
    /// Asks these recursive servers; this machine's when there are none.
    pub(super) fn new(given: Vec<SocketAddr>, system: Resolver) -> Self {
        if given.is_empty() {
            return Self { recursive: system_servers(), resolver: system };
        }
        Self { resolver: Resolver::with_upstreams(given.clone()), recursive: given }
    }

    /// Where the name's records really are: aliases (CNAME) followed. The name itself when nobody knows better.
    pub(super) async fn canonical(&self, name: &str, deadline: Instant) -> String {
        let mut name = name.trim_end_matches('.').to_ascii_lowercase();
        for _ in 0..ALIASES_MAX {
            let answer = match self.recursive(&name, RecordType::CNAME, deadline).await {
                Ok(answer) => answer,
                Err(error) => {
                    tracing::debug!(%name, %error, "cannot tell whether the name is an alias; taken as none");
                    return name;
                }
            };
            let owner = |record: &&hickory_proto::rr::Record| text_of(&record.name) == name;
            let target = answer.answers.iter().filter(owner).find_map(|record| match &record.data {
                RData::CNAME(target) => Some(text_of(&target.0)),
                _ => None,
            });
            match target {
                Some(target) if target != name => name = target,
                _ => return name,
            }
        }
        name
    }

    /// The zone a name lies in, asked of this server.
    pub(super) async fn zone_at(
        server: SocketAddr,
        name: &str,
        deadline: Instant,
    ) -> Result<String, PublishError> {
        let answer = ask(server, name, RecordType::SOA, false, deadline).await?;
        zone_in(&answer).ok_or_else(|| {
            PublishError(format!("{server} is not authoritative for a zone that holds {name}"))
        })
    }

    /// Addresses of the authoritative servers of the zone a name lies in.
    pub(super) async fn servers_of(
        &self,
        name: &str,
        port: u16,
        deadline: Instant,
    ) -> Result<Vec<SocketAddr>, PublishError> {
        let answer = self.recursive(name, RecordType::SOA, deadline).await?;
        let zone =
            zone_in(&answer).ok_or_else(|| PublishError(format!("the zone of {name} cannot be found")))?;
        let answer = self.recursive(&zone, RecordType::NS, deadline).await?;
        let names = answer.answers.iter().filter_map(|record| match &record.data {
            RData::NS(server) => Some(text_of(&server.0)),
            _ => None,
        });
        let mut servers = Vec::new();
        for name in names.take(SERVERS_MAX) {
            let limit = ANSWER_LIMIT.min(deadline.saturating_duration_since(Instant::now()));
            match self.resolver.resolve(&name, Families::usable(), limit).await {
                Ok(found) => {
                    servers.extend(found.addresses.iter().map(|address| SocketAddr::new(*address, port)))
                }
                Err(error) => tracing::debug!(server = %name, %error, "a name server without addresses"),
            }
        }
        servers.truncate(SERVERS_MAX);
        if servers.is_empty() {
            return Err(PublishError(format!("no name server of the zone {zone} can be found")));
        }
        Ok(servers)
    }

    /// Whether this server answers with the record, without asking others.
    pub(super) async fn has_text(&self, server: SocketAddr, record: &TxtRecord, deadline: Instant) -> bool {
        let Ok(answer) = ask(server, &record.name, RecordType::TXT, false, deadline).await else {
            return false;
        };
        answer.answers.iter().any(|found| match &found.data {
            RData::TXT(text) => text.txt_data.concat() == record.value.as_bytes(),
            _ => false,
        })
    }

    async fn recursive(
        &self,
        name: &str,
        kind: RecordType,
        deadline: Instant,
    ) -> Result<Message, PublishError> {
        let mut failure = PublishError("no name server is known; set propagation.resolvers".to_owned());
        for &server in &self.recursive {
            match ask(server, name, kind, true, deadline).await {
                Ok(answer) => return Ok(answer),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

/// The owner of the SOA record, be it the answer or the authority for "there is none".
fn zone_in(answer: &Message) -> Option<String> {
    let sections = answer.answers.iter().chain(&answer.authorities);
    let soa = sections.into_iter().find(|record| record.record_type() == RecordType::SOA)?;
    Some(text_of(&soa.name))
}

fn text_of(name: &Name) -> String {
    name.to_ascii().trim_end_matches('.').to_ascii_lowercase()
}

/// The nameserver lines of `/etc/resolv.conf`.
fn system_servers() -> Vec<SocketAddr> {
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    lines.filter_map(|rest| Some(SocketAddr::new(rest.trim().parse().ok()?, 53))).take(3).collect()
}

/// One question to one server: over UDP, and over TCP when the answer does not fit. NXDOMAIN is an answer.
async fn ask(
    server: SocketAddr,
    name: &str,
    kind: RecordType,
    recursion: bool,
    deadline: Instant,
) -> Result<Message, PublishError> {
    let failed = |what: String| PublishError(format!("name server {server}: {what}"));
    let mut owner = Name::from_ascii(name).map_err(|error| failed(format!("{name}: {error}")))?;
    owner.set_fqdn(true);
    let mut id = [0; 2];
    aws_lc_rs::rand::fill(&mut id).map_err(|error| failed(error.to_string()))?;
    let mut message = Message::new(u16::from_be_bytes(id), MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = recursion;
    message.add_query(Query::query(owner, kind));
    let question = message.to_vec().map_err(|error| failed(error.to_string()))?;
    let octets = exchange(server, &question, deadline).await?;
    let answer = Message::from_vec(&octets).map_err(|error| failed(error.to_string()))?;
    match answer.metadata.response_code {
        ResponseCode::NoError | ResponseCode::NXDomain => Ok(answer),
        code => Err(failed(format!("{name}: {code}"))),
    }
}

/// Sends a message and receives the one with the same identifier: UDP first, TCP for what is long.
pub(super) async fn exchange(
    server: SocketAddr,
    message: &[u8],
    deadline: Instant,
) -> Result<Vec<u8>, PublishError> {
    let failed = |error: std::io::Error| PublishError(format!("name server {server}: {error}"));
    for _ in 0..TRIES {
        let until = deadline.min(Instant::now() + ANSWER_LIMIT);
        match tokio::time::timeout_at(until.into(), by_datagram(server, message)).await {
            Ok(Ok(answer)) if is_truncated(&answer) => break,
            Ok(result) => return result.map_err(failed),
            Err(_) if Instant::now() >= deadline => break,
            Err(_) => {}
        }
    }
    let until = deadline.min(Instant::now() + ANSWER_LIMIT);
    match tokio::time::timeout_at(until.into(), by_stream(server, message)).await {
        Ok(result) => result.map_err(failed),
        Err(_) => Err(PublishError(format!("name server {server} does not answer"))),
    }
}

fn is_truncated(answer: &[u8]) -> bool {
    answer.get(2).is_some_and(|flags| flags & 2 != 0)
}

async fn by_datagram(server: SocketAddr, message: &[u8]) -> std::io::Result<Vec<u8>> {
    let local: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // A socket a question: its port, drawn by the system, is part of what a forger must guess.
    let socket = UdpSocket::bind(local).await?;
    socket.connect(server).await?;
    socket.send(message).await?;
    let mut answer = vec![0; DATAGRAM_MAX];
    loop {
        let length = socket.recv(&mut answer).await?;
        if length >= 12 && answer[..2] == message[..2] && answer[2] & 0x80 != 0 {
            answer.truncate(length);
            return Ok(answer);
        }
    }
}

async fn by_stream(server: SocketAddr, message: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(message.len()).map_err(|_| std::io::ErrorKind::InvalidInput)?;
    let framed = [&length.to_be_bytes()[..], message].concat();
    stream.write_all(&framed).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; length.into()];
    stream.read_exact(&mut answer).await?;
    if answer.len() < 12 || answer[..2] != message[..2] {
        return Err(std::io::ErrorKind::InvalidData.into());
    }
    Ok(answer)
}
