//! TXT and CAA records, asked for again each time: what was true before the client published its record must not count.
//!
//! A stub: it asks the configured name servers, over UDP from a random port with a random id, over TCP where the answer
//! was cut, and follows aliases where they leave the zone.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};
use outbound::{Deadline, resolve};

/// Aliases followed in all.
const ALIASES_MAX: usize = 8;
/// Records of one answer looked at: a zone with more is hostile.
const RECORDS_MAX: usize = 512;
/// How long one packet waits for its answer; the whole look-up is bounded by its caller.
const PATIENCE: Duration = Duration::from_millis(1_500);
/// How long one server has before the next is asked: two packets.
const SERVER_LIMIT: Duration = Duration::from_secs(3);
/// Name servers used; of this machine's there are no more.
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
    /// No name server answered.
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
            servers = resolve::name_servers();
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
            let deadline = Deadline::within(SERVER_LIMIT);
            let Ok(message) =
                resolve::ask(server, name, kind, resolve::Recursion::Desired, PATIENCE, deadline).await
            else {
                continue;
            };
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
