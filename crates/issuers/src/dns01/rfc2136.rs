//! DNS UPDATE (RFC 2136), signed.

use std::net::SocketAddr;
use std::time::Instant;

use futures_util::future::{BoxFuture, FutureExt};

use super::lookup::{Dns, exchange};
use super::publisher::{PublishError, Publisher, TxtRecord};
use super::tsig::{Key, wire_name};
use crate::error::IssuerError;

const TYPE_SOA: u16 = 6;
const TYPE_TXT: u16 = 16;
const CLASS_IN: u16 = 1;
/// Deletes the record with the same data (section 2.5.4).
const CLASS_NONE: u16 = 254;
/// Opcode UPDATE in the flags.
const OPCODE_UPDATE: u16 = 5 << 11;
/// Octets of one character string.
const TEXT_MAX: usize = 255;

/// A primary name server that takes updates.
#[derive(Debug)]
pub(super) struct Rfc2136 {
    server: SocketAddr,
    zone: Option<String>,
    key: Key,
}

impl Rfc2136 {
    pub(super) fn new(server: SocketAddr, zone: Option<&str>, key: Key) -> Result<Self, IssuerError> {
        if zone.is_some_and(|zone| wire_name(zone).is_none()) {
            return Err(IssuerError::misconfigured("dns01.publisher.zone is no domain name"));
        }
        Ok(Self { server, zone: zone.map(str::to_owned), key })
    }

    async fn change(
        &self,
        record: &TxtRecord,
        class: u16,
        ttl: u32,
        deadline: Instant,
    ) -> Result<(), PublishError> {
        let zone = match &self.zone {
            Some(zone) => zone.clone(),
            None => Dns::zone_at(self.server, &record.name, deadline).await?,
        };
        let mut id = [0; 2];
        aws_lc_rs::rand::fill(&mut id).map_err(|error| PublishError(error.to_string()))?;
        let message = update(id, &zone, record, class, ttl)
            .ok_or_else(|| PublishError(format!("{} or its text is too long for the DNS", record.name)))?;
        let signed = self.key.sign(&message, wall_clock());
        let answer = exchange(self.server, &signed.message, deadline).await?;
        let checked = self.key.verify(&answer, &signed.mac, wall_clock());
        match answer[3] & 15 {
            0 => checked,
            // An error the signature tells more about.
            9 => checked.and(Err(PublishError(format!("{} is not authoritative for {zone}", self.server)))),
            5 => Err(PublishError(format!(
                "{} refuses the update: allow the key in the zone's update-policy",
                self.server
            ))),
            10 => Err(PublishError(format!("{} is not in the zone {zone}", record.name))),
            code => Err(PublishError(format!("{} answers the update with code {code}", self.server))),
        }
    }
}

/// TSIG wants the wall clock, whatever clock the domain runs by.
fn wall_clock() -> i64 {
    store::Clock::system().now_seconds()
}

/// The message of section 2: one zone, one change.
fn update(id: [u8; 2], zone: &str, record: &TxtRecord, class: u16, ttl: u32) -> Option<Vec<u8>> {
    let value = record.value.as_bytes();
    let length = u8::try_from(value.len()).ok().filter(|_| value.len() <= TEXT_MAX)?;
    let mut out = id.to_vec();
    for field in [OPCODE_UPDATE, 1, 0, 1, 0] {
        out.extend_from_slice(&field.to_be_bytes());
    }
    out.extend_from_slice(&wire_name(zone)?);
    out.extend_from_slice(&TYPE_SOA.to_be_bytes());
    out.extend_from_slice(&CLASS_IN.to_be_bytes());
    out.extend_from_slice(&wire_name(&record.name)?);
    out.extend_from_slice(&TYPE_TXT.to_be_bytes());
    out.extend_from_slice(&class.to_be_bytes());
    out.extend_from_slice(&ttl.to_be_bytes());
    out.extend_from_slice(&(u16::from(length) + 1).to_be_bytes());
    out.push(length);
    out.extend_from_slice(value);
    Some(out)
}

impl Publisher for Rfc2136 {
    fn publish<'a>(
        &'a self,
        record: &'a TxtRecord,
        ttl: u32,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<(), PublishError>> {
        self.change(record, CLASS_IN, ttl, deadline).boxed()
    }

    fn remove<'a>(
        &'a self,
        record: &'a TxtRecord,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<(), PublishError>> {
        self.change(record, CLASS_NONE, 0, deadline).boxed()
    }
}
