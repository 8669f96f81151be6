//! Lookups of TXT and CAA records without a cache, so that a record counts as soon as the client has published it.
//!
//! The stub resolver queries the configured DNS servers over UDP from a random port with a random identifier. It repeats a query
//! over TCP if the response is truncated. It follows CNAME records that lead out of the zone.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};
use outbound::{Deadline, resolve};

/// Maximum number of aliases (CNAME records) to follow.
const ALIASES_MAX: usize = 8;
/// Maximum number of records of a response to evaluate. A zone with more records is considered hostile.
const RECORDS_MAX: usize = 512;
/// Timeout for the response to one UDP query. The caller limits the whole lookup.
const TIMEOUT: Duration = Duration::from_millis(1_500);
/// Time limit for one server before the next is queried: enough for two UDP queries.
const SERVER_LIMIT: Duration = Duration::from_secs(3);
/// Maximum number of DNS servers to use; resolver configurations have no more.
const SERVERS_MAX: usize = 3;

/// Reason why a lookup failed. A retry may succeed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum DnsError {
    /// The DNS servers returned an error.
    #[error("the DNS servers returned {code} for {name}")]
    Refused {
        /// Name that was looked up.
        name: String,
        /// DNS response code.
        code: String,
    },
    /// No DNS server responded.
    #[error("no DNS server answered for {0}")]
    Silent(String),
    /// The chain of aliases is too long or a loop.
    #[error("the CNAME records of {0} form a loop, or a chain that is too long")]
    Aliases(String),
    /// The name is not a DNS name.
    #[error("{0} is not a DNS name")]
    BadName(String),
}

/// One CAA record (RFC 8659 section 4.1).
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct CaaRecord {
    pub(crate) critical: bool,
    /// Tag in lower case.
    pub(crate) tag: String,
    pub(crate) value: Vec<u8>,
}

pub(crate) struct Dns {
    servers: Vec<SocketAddr>,
    turn: AtomicUsize,
}

impl Dns {
    /// Creates a resolver with these servers, or with this machine's if the list is empty.
    pub(crate) fn new(servers: &[SocketAddr]) -> Self {
        let mut servers = servers.to_vec();
        if servers.is_empty() {
            servers = resolve::name_servers();
        }
        servers.truncate(SERVERS_MAX);
        Self { servers, turn: AtomicUsize::new(0) }
    }

    /// Returns the TXT records of a name, each with its parts joined. Returns an empty list if the name or the records do not
    /// exist.
    pub(crate) async fn txt(&self, name: &str) -> Result<Vec<Vec<u8>>, DnsError> {
        self.records(name, RecordType::TXT, |data| match data {
            RData::TXT(text) => Some(text.txt_data.concat()),
            _ => None,
        })
        .await
    }

    /// Returns the CAA records of a name, without its parents' records.
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
            let message = self.send_query(&name, kind).await?;
            let end = canonical_name(&name, &message).ok_or_else(|| DnsError::Aliases(text.to_owned()))?;
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
            // The response contains only the alias. Query its target. If the target has no records either, the loop ends in the
            // next round.
            name = end;
        }
        Err(DnsError::Aliases(text.to_owned()))
    }

    /// Queries the servers one after the other until one returns a usable response. Each lookup starts with a different server.
    async fn send_query(&self, name: &Name, kind: RecordType) -> Result<Message, DnsError> {
        let mut worst = DnsError::Silent(name.to_ascii());
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        for turn in 0..self.servers.len() {
            let server = self.servers[(first + turn) % self.servers.len()];
            let deadline = Deadline::within(SERVER_LIMIT);
            let Ok(message) =
                resolve::send_query(server, name, kind, resolve::Recursion::Desired, TIMEOUT, deadline).await
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

/// Returns the final name of the alias chain in a message; `None` if the chain is a loop.
fn canonical_name(name: &Name, message: &Message) -> Option<Name> {
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
