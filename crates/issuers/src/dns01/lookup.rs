//! DNS lookups beyond addresses: aliases, zones, their name servers, TXT records.

use std::fmt::Display;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use outbound::Deadline;
use outbound::guard::Guard;
use outbound::resolve::{self, Families, Recursion, Resolver};

use super::publisher::{PublishError, TxtRecord};

/// Timeout of one DNS packet.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of aliases to follow.
const ALIASES_MAX: usize = 8;
/// Maximum number of authoritative servers to query. Zones have up to a dozen.
const SERVERS_MAX: usize = 16;

#[derive(Clone)]
pub(super) struct Dns {
    recursive: Vec<SocketAddr>,
    resolver: Resolver,
    guard: Guard,
}

impl std::fmt::Debug for Dns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dns").field("recursive", &self.recursive).finish_non_exhaustive()
    }
}

impl Dns {
    /// Creates a client of the given recursive servers, or of this machine's servers if the list is empty.
    pub(super) fn new(given: Vec<SocketAddr>, system: Resolver, guard: Guard) -> Self {
        if given.is_empty() {
            return Self { recursive: resolve::name_servers(), resolver: system, guard };
        }
        Self { resolver: Resolver::with_upstreams(given.clone()), recursive: given, guard }
    }

    /// Follows aliases (CNAME) to the name that has the records. Returns the name itself if the lookup fails.
    pub(super) async fn canonical(&self, name: &str, deadline: Instant) -> String {
        let mut name = name.trim_end_matches('.').to_ascii_lowercase();
        for _ in 0..ALIASES_MAX {
            let answer = match self.recursive(&name, RecordType::CNAME, deadline).await {
                Ok(answer) => answer,
                Err(error) => {
                    tracing::debug!(%name, %error, "cannot check whether the name is a CNAME alias; the name is used unchanged");
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

    /// Asks this server for the zone of a name.
    pub(super) async fn query_zone(
        server: SocketAddr,
        name: &str,
        deadline: Instant,
    ) -> Result<String, PublishError> {
        let answer = send_query(server, name, RecordType::SOA, Recursion::NotDesired, deadline).await?;
        zone_from_soa(&answer).ok_or_else(|| {
            PublishError(format!("{server} is not authoritative for a zone that holds {name}"))
        })
    }

    /// Returns the addresses of the authoritative servers for a name's zone.
    pub(super) async fn authoritative_servers(
        &self,
        name: &str,
        port: u16,
        deadline: Instant,
    ) -> Result<Vec<SocketAddr>, PublishError> {
        let answer = self.recursive(name, RecordType::SOA, deadline).await?;
        let zone = zone_from_soa(&answer)
            .ok_or_else(|| PublishError(format!("the zone of {name} cannot be found")))?;
        let answer = self.recursive(&zone, RecordType::NS, deadline).await?;
        let names = answer.answers.iter().filter_map(|record| match &record.data {
            RData::NS(server) => Some(text_of(&server.0)),
            _ => None,
        });
        let mut servers = Vec::new();
        for name in names.take(SERVERS_MAX) {
            let limit = RESPONSE_TIMEOUT.min(deadline.saturating_duration_since(Instant::now()));
            match self.resolver.resolve(&name, Families::usable(), limit).await {
                // The zone's owner controls the addresses of its name servers.
                Ok(found) => {
                    let allowed =
                        found.addresses.iter().filter(|address| self.guard.address(**address).is_ok());
                    servers.extend(allowed.map(|address| SocketAddr::new(*address, port)));
                }
                Err(error) => tracing::debug!(server = %name, %error, "a name server has no address"),
            }
        }
        servers.truncate(SERVERS_MAX);
        if servers.is_empty() {
            return Err(PublishError(format!("no name server of the zone {zone} can be found")));
        }
        Ok(servers)
    }

    /// Returns whether this server itself, without recursion, returns the record.
    pub(super) async fn has_txt_record(
        &self,
        server: SocketAddr,
        record: &TxtRecord,
        deadline: Instant,
    ) -> bool {
        let Ok(answer) =
            send_query(server, &record.name, RecordType::TXT, Recursion::NotDesired, deadline).await
        else {
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
        let mut failure =
            PublishError("no recursive resolver is known; set propagation.resolvers".to_owned());
        for &server in &self.recursive {
            match send_query(server, name, kind, Recursion::Desired, deadline).await {
                Ok(answer) => return Ok(answer),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

/// Returns the owner of the SOA record, from the answer or from the authority section of a negative answer.
fn zone_from_soa(answer: &Message) -> Option<String> {
    let sections = answer.answers.iter().chain(&answer.authorities);
    let soa = sections.into_iter().find(|record| record.record_type() == RecordType::SOA)?;
    Some(text_of(&soa.name))
}

fn text_of(name: &Name) -> String {
    name.to_ascii().trim_end_matches('.').to_ascii_lowercase()
}

/// Sends a query to one server. NXDOMAIN is not an error.
async fn send_query(
    server: SocketAddr,
    name: &str,
    kind: RecordType,
    recursion: Recursion,
    deadline: Instant,
) -> Result<Message, PublishError> {
    let failed = |what: &dyn Display| PublishError(format!("name server {server}: {what}"));
    let mut owner = Name::from_ascii(name).map_err(|error| failed(&format_args!("{name}: {error}")))?;
    owner.set_fqdn(true);
    let deadline = Deadline::at(deadline.into());
    let answer = resolve::send_query(server, &owner, kind, recursion, RESPONSE_TIMEOUT, deadline).await;
    let answer = answer.map_err(|error| failed(&error))?;
    match answer.metadata.response_code {
        ResponseCode::NoError | ResponseCode::NXDomain => Ok(answer),
        code => Err(failed(&format_args!("{name}: {code}"))),
    }
}

/// Sends a message to one server and returns the response.
pub(super) async fn exchange(
    server: SocketAddr,
    message: &[u8],
    deadline: Instant,
) -> Result<Vec<u8>, PublishError> {
    resolve::exchange(server, message, RESPONSE_TIMEOUT, Deadline::at(deadline.into()))
        .await
        .map_err(|error| PublishError(format!("name server {server}: {error}")))
}
