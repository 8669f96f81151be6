//! Parses DNS responses. Pure functions.

use std::net::IpAddr;
use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{DNSClass, RData, Record};

use super::error::ResolveError;
use super::kind::Kind;
use super::name::WireName;

/// Maximum CNAME records followed. Real chains have up to five or six; BIND follows 16, and each may cost a query.
pub const CHAIN_MAX: usize = 8;
/// Longest accepted TTL: seven days, as in RFC 8767 section 4.
pub const LIFETIME_MAX: Duration = Duration::from_secs(7 * 86_400);

/// Longest TTL of a negative response: RFC 2308 section 5 recommends hours because longer ones have caused problems.
const NEGATIVE_LIFETIME_MAX: Duration = Duration::from_secs(3 * 3_600);

/// Result of reading one response.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Reading {
    /// The response ends with an alias, and has no records for the alias' target.
    Alias,
    /// The response ends the chain.
    End(End),
}

/// The end of an alias chain.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum End {
    /// The name has these addresses.
    Addresses(Vec<IpAddr>),
    /// The name has no addresses. The SOA record sets the TTL (zero without one, RFC 2308 section 5).
    Nothing(ResolveError),
}

/// The names of an alias chain, and the lowest TTL so far.
#[derive(Clone, Debug)]
pub(crate) struct AliasChain {
    /// The requested name, then each alias.
    pub(crate) names: Vec<WireName>,
    /// Lowest TTL so far.
    pub(crate) lifetime: Duration,
}

impl AliasChain {
    pub(crate) fn new(name: WireName) -> Self {
        Self { names: vec![name], lifetime: LIFETIME_MAX }
    }

    pub(crate) fn end(&self) -> &WireName {
        // Never empty: it starts with one name, and names are only added.
        &self.names[self.names.len() - 1]
    }

    fn limit_lifetime(&mut self, seconds: u32) {
        self.lifetime = self.lifetime.min(lifetime(seconds));
    }

    fn follow(&mut self, alias: WireName) -> Result<(), ResolveError> {
        if self.names.contains(&alias) || self.names.len() > CHAIN_MAX {
            return Err(ResolveError::AliasLoop(alias.to_string()));
        }
        self.names.push(alias);
        Ok(())
    }
}

/// Converts a TTL; one with the top bit set is zero (RFC 2181 section 8).
fn lifetime(seconds: u32) -> Duration {
    if seconds > i32::MAX as u32 { Duration::ZERO } else { Duration::from_secs(seconds.into()) }
}

/// Returns an error if the upstream itself failed, which says nothing about the name: another upstream may succeed.
pub(crate) fn check_response_code(message: Message) -> Result<Message, ResolveError> {
    match message.metadata.response_code {
        ResponseCode::NoError | ResponseCode::NXDomain => Ok(message),
        ResponseCode::ServFail => Err(ResolveError::ServFail),
        ResponseCode::Refused => Err(ResolveError::Refused),
        ResponseCode::FormErr => {
            Err(ResolveError::Malformed("the server rejects the query as malformed (FORMERR)"))
        }
        ResponseCode::NotImp => {
            Err(ResolveError::Malformed("the server does not support the query (NOTIMP)"))
        }
        _ => Err(ResolveError::Malformed("unexpected response code")),
    }
}

/// Follows the aliases in `message`, a response without error, from the last name of `alias_chain`.
///
/// # Errors
/// [`ResolveError::AliasLoop`].
pub(crate) fn follow(
    message: &Message,
    kind: Kind,
    alias_chain: &mut AliasChain,
) -> Result<Reading, ResolveError> {
    let code = message.metadata.response_code;
    let names_before = alias_chain.names.len();
    while let Some((alias, ttl)) = cname_target(message, alias_chain.end()) {
        alias_chain.limit_lifetime(ttl);
        alias_chain.follow(alias)?;
    }
    let addresses = addresses_of(message, kind, alias_chain);
    if !addresses.is_empty() {
        return Ok(Reading::End(End::Addresses(addresses)));
    }
    let negative_lifetime = negative_ttl(message, alias_chain.end());
    if code == ResponseCode::NoError && negative_lifetime.is_none() && alias_chain.names.len() > names_before
    {
        return Ok(Reading::Alias);
    }
    alias_chain.lifetime = alias_chain.lifetime.min(negative_lifetime.unwrap_or(Duration::ZERO));
    // With aliases, the response code applies to the last name (RFC 6604 section 3).
    Ok(Reading::End(End::Nothing(match code {
        ResponseCode::NXDomain => ResolveError::NxDomain,
        _ => ResolveError::NoAddress,
    })))
}

/// Parses arbitrary bytes as a response for `name`; returns its addresses with their TTL. For the fuzz target and its unit test.
///
/// # Errors
/// [`ResolveError`].
#[doc(hidden)]
pub fn read_response(bytes: &[u8], name: &str) -> Result<Vec<(IpAddr, Duration)>, ResolveError> {
    let message = Message::from_vec(bytes).map_err(|_| ResolveError::Malformed("not a DNS message"))?;
    let message = check_response_code(message)?;
    let mut read = Vec::new();
    for kind in [Kind::A, Kind::Aaaa] {
        let mut alias_chain = AliasChain::new(WireName::parse(name)?);
        if let Reading::End(End::Addresses(found)) = follow(&message, kind, &mut alias_chain)? {
            read.extend(found.into_iter().map(|address| (address, alias_chain.lifetime)));
        }
    }
    Ok(read)
}

fn is_record_for(record: &Record, name: &WireName) -> bool {
    record.dns_class == DNSClass::IN && WireName::from_answer(&record.name) == *name
}

fn cname_target(message: &Message, name: &WireName) -> Option<(WireName, u32)> {
    message.answers.iter().find_map(|record| match &record.data {
        RData::CNAME(alias) if is_record_for(record, name) => {
            Some((WireName::from_answer(&alias.0), record.ttl))
        }
        _ => None,
    })
}

fn addresses_of(message: &Message, kind: Kind, alias_chain: &mut AliasChain) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for record in &message.answers {
        let address = match (&record.data, kind) {
            (RData::A(address), Kind::A) => IpAddr::V4(address.0),
            (RData::AAAA(address), Kind::Aaaa) => IpAddr::V6(address.0),
            _ => continue,
        };
        if is_record_for(record, alias_chain.end()) {
            alias_chain.limit_lifetime(record.ttl);
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
    }
    addresses
}

/// Returns the TTL of a negative response: the lower of the SOA's TTL and its minimum (RFC 2308 section 5). An SOA record of
/// another zone is ignored.
fn negative_ttl(message: &Message, name: &WireName) -> Option<Duration> {
    message.authorities.iter().find_map(|record| match &record.data {
        RData::SOA(soa) if name.is_in(&WireName::from_answer(&record.name)) => {
            Some(lifetime(record.ttl).min(lifetime(soa.minimum)).min(NEGATIVE_LIFETIME_MAX))
        }
        _ => None,
    })
}
