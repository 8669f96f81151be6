//! TXT and CAA records, asked for anew each time: what was true before the client published its record must not count.
//!
//! A stub: it asks the configured name servers, over UDP from a random port with a random id, over TCP where the answer
//! was cut, and follows aliases where they leave the zone.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hickory_proto::op::{Edns, Message, MessageType, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// What we say we can take over UDP: never fragmented (DNS Flag Day 2020).
const UDP_MAX: u16 = 1_232;
/// Octets of an answer over TCP.
const TCP_MAX: usize = 65_535;
/// Aliases followed in all.
const ALIASES_MAX: usize = 8;
/// Records of one answer looked at: a zone with more is hostile.
const RECORDS_MAX: usize = 512;
/// Packets sent to one server before the next is asked.
const SENDS: usize = 2;
/// How long one packet waits for its answer; the whole look-up is bounded by its caller.
const PATIENCE: Duration = Duration::from_millis(1_500);
/// Name servers used, as in resolv.conf(5).
const SERVERS_MAX: usize = 3;

/// Why there is no answer: asking again may help.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum DnsError {
    /// The servers fail, or say that the zone's do.
    #[error("the name servers answer {code} for {name}")]
    Refused {
        /// Which name.
        name: String,
        /// The response code.
        code: String,
    },
    /// Nobody answered.
    #[error("no name server answered for {0}")]
    Silent(String),
    /// Aliases without an end.
    #[error("the aliases (CNAME) of {0} lead in a circle or too far")]
    Aliases(String),
    /// Not a DNS name.
    #[error("{0} is no DNS name")]
    BadName(String),
}

/// One CAA record (RFC 8659 section 4.1).
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct CaaRecord {
    pub(crate) critical: bool,
    /// In lower case.
    pub(crate) tag: String,
    pub(crate) value: Vec<u8>,
}

pub(crate) struct Dns {
    servers: Vec<SocketAddr>,
    turn: AtomicUsize,
}

impl Dns {
    /// With these servers, or those of this machine when there are none.
    pub(crate) fn new(servers: &[SocketAddr]) -> Self {
        let mut servers = servers.to_vec();
        if servers.is_empty() {
            servers = system_servers(&std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default());
        }
        servers.truncate(SERVERS_MAX);
        Self { servers, turn: AtomicUsize::new(0) }
    }

    /// The TXT records of a name, each with its parts put together; none where the name or the records do not exist.
    pub(crate) async fn txt(&self, name: &str) -> Result<Vec<Vec<u8>>, DnsError> {
        self.records(name, RecordType::TXT, |data| match data {
            RData::TXT(text) => Some(text.txt_data.concat()),
            _ => None,
        })
        .await
    }

    /// The CAA records of a name, without those of its parents.
    pub(crate) async fn caa(&self, name: &str) -> Result<Vec<CaaRecord>, DnsError> {
        self.records(name, RecordType::CAA, |data| match data {
            RData::CAA(caa) => Some(CaaRecord {
                critical: caa.issuer_critical,
                tag: caa.tag.to_ascii_lowercase(),
                value: caa.value.clone(),
            }),
            _ => None,
        })
        .await
    }

    async fn records<T>(
        &self,
        text: &str,
        kind: RecordType,
        read: impl Fn(&RData) -> Option<T>,
    ) -> Result<Vec<T>, DnsError> {
        let mut name = Name::from_ascii(text).map_err(|_| DnsError::BadName(text.to_owned()))?;
        name.set_fqdn(true);
        for _ in 0..ALIASES_MAX {
            let message = self.ask(&name, kind).await?;
            let end = end_of(&name, &message).ok_or_else(|| DnsError::Aliases(text.to_owned()))?;
            let found: Vec<T> = message
                .answers
                .iter()
                .take(RECORDS_MAX)
                .filter(|record| record.dns_class == DNSClass::IN && record.name == end)
                .filter_map(|record| read(&record.data))
                .collect();
            if !found.is_empty() || end == name || message.metadata.response_code == ResponseCode::NXDomain {
                return Ok(found);
            }
            // Only the alias was told: ask for what it leads to. Without a record there either, the loop ends next time.
            name = end;
        }
        Err(DnsError::Aliases(text.to_owned()))
    }

    /// Asks one server after the other, each time beginning with another one.
    async fn ask(&self, name: &Name, kind: RecordType) -> Result<Message, DnsError> {
        let mut worst = DnsError::Silent(name.to_ascii());
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        for turn in 0..self.servers.len() {
            let server = self.servers[(first + turn) % self.servers.len()];
            let Some(message) = ask_server(server, name, kind).await else { continue };
            match message.metadata.response_code {
                ResponseCode::NoError | ResponseCode::NXDomain => return Ok(message),
                code => worst = DnsError::Refused { name: name.to_ascii(), code: code.to_str().to_owned() },
            }
        }
        Err(worst)
    }
}

/// The name at the end of the aliases in a message; `None` when they lead in a circle.
fn end_of(name: &Name, message: &Message) -> Option<Name> {
    let mut end = name.clone();
    for _ in 0..=ALIASES_MAX {
        let next = message.answers.iter().take(RECORDS_MAX).find_map(|record| match &record.data {
            RData::CNAME(to) if record.name == end => Some(to.0.clone()),
            _ => None,
        });
        match next {
            Some(next) => end = next,
            None => return Some(end),
        }
    }
    None
}

async fn ask_server(server: SocketAddr, name: &Name, kind: RecordType) -> Option<Message> {
    for _ in 0..SENDS {
        let (id, question) = question(name, kind)?;
        let answer = timeout(PATIENCE, over_udp(server, &question, id, name, kind)).await.ok().flatten();
        match answer {
            Some(message) if message.metadata.truncation => {
                let whole = timeout(PATIENCE, over_tcp(server, &question)).await.ok().flatten()?;
                return belongs(&whole, id, name, kind).then_some(whole);
            }
            Some(message) => return Some(message),
            None => {}
        }
    }
    None
}

fn question(name: &Name, kind: RecordType) -> Option<(u16, Vec<u8>)> {
    let mut id = [0; 2];
    aws_lc_rs::rand::fill(&mut id).ok()?;
    let mut message = Message::query();
    message.metadata.id = u16::from_be_bytes(id);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name.clone(), kind));
    let mut edns = Edns::new();
    edns.set_max_payload(UDP_MAX);
    message.set_edns(edns);
    Some((message.metadata.id, message.to_vec().ok()?))
}

async fn over_udp(
    server: SocketAddr,
    question: &[u8],
    id: u16,
    name: &Name,
    kind: RecordType,
) -> Option<Message> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await.ok()?;
    socket.connect(server).await.ok()?;
    socket.send(question).await.ok()?;
    let mut buffer = [0; UDP_MAX as usize];
    loop {
        let length = socket.recv(&mut buffer).await.ok()?;
        // Whatever is not the answer to this question was not asked for: go on waiting.
        match Message::from_vec(&buffer[..length]) {
            Ok(message) if belongs(&message, id, name, kind) => return Some(message),
            _ => {}
        }
    }
}

async fn over_tcp(server: SocketAddr, question: &[u8]) -> Option<Message> {
    let mut stream = TcpStream::connect(server).await.ok()?;
    let length = u16::try_from(question.len()).ok()?;
    stream.write_all(&[&length.to_be_bytes(), question].concat()).await.ok()?;
    let length = usize::from(stream.read_u16().await.ok()?).min(TCP_MAX);
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).await.ok()?;
    Message::from_vec(&answer).ok()
}

fn belongs(message: &Message, id: u16, name: &Name, kind: RecordType) -> bool {
    message.metadata.id == id
        && message.metadata.message_type == MessageType::Response
        && matches!(&message.queries[..], [query] if query.name == *name && query.query_type == kind)
}

/// `nameserver` lines; without any the one on this machine, as resolv.conf(5) says.
fn system_servers(resolv_conf: &str) -> Vec<SocketAddr> {
    let mut servers: Vec<SocketAddr> = resolv_conf
        .lines()
        .filter_map(|line| line.split(['#', ';']).next()?.trim().strip_prefix("nameserver"))
        .filter_map(|rest| rest.trim().parse::<IpAddr>().ok())
        .map(|address| SocketAddr::new(address, 53))
        .collect();
    if servers.is_empty() {
        servers.push(SocketAddr::from(([127, 0, 0, 1], 53)));
    }
    servers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_are_those_of_the_file() {
        let servers =
            system_servers("# none\nnameserver 10.0.0.1 # one\nsearch a\nnameserver ::1\nnameserver x\n");
        assert_eq!(servers, ["10.0.0.1:53".parse().unwrap(), "[::1]:53".parse().unwrap()]);
        assert_eq!(system_servers(""), ["127.0.0.1:53".parse().unwrap()]);
    }
}
