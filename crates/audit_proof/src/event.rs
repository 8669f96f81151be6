//! Events of the log, and the hash that chains them.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use x509::Fingerprint;

/// The hash before the first event of a chain, and before the first head and segment: zeros.
#[must_use]
pub fn genesis() -> Fingerprint {
    Fingerprint::from_bytes([0; 32])
}

/// An event as its hash covers it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Event {
    /// Its chain.
    pub shard: i64,
    /// Its place in the chain, from 1.
    pub sequence: i64,
    /// When, µs.
    pub at_us: i64,
    /// The actor.
    pub actor: String,
    /// The action, as in the audit log: `profile.put`.
    pub action: String,
    /// The resource.
    pub resource: String,
    /// JSON without spaces, members sorted.
    pub details: String,
    /// SHA-256 over the hash before it and its fields.
    pub hash: Fingerprint,
}

impl Event {
    /// The hash that the event has after the one with the hash `before`: SHA-256 over that hash and every field, each text after its
    /// length.
    #[must_use]
    pub fn hash_after(&self, before: &Fingerprint) -> Fingerprint {
        let mut input = before.as_bytes().to_vec();
        for number in [self.shard, self.sequence, self.at_us] {
            input.extend_from_slice(&number.to_be_bytes());
        }
        for text in [&self.actor, &self.action, &self.resource, &self.details] {
            input.extend_from_slice(&(text.len() as u64).to_be_bytes());
            input.extend_from_slice(text.as_bytes());
        }
        Fingerprint::of(&input)
    }
}

/// A line of `bulla audit export`.
#[derive(Deserialize)]
struct ExportedEvent {
    at: Timestamp,
    actor: String,
    action: String,
    resource: String,
    details: Value,
    shard: i64,
    sequence: i64,
    hash: Fingerprint,
}

/// Reads an event from a line of `bulla audit export`.
///
/// # Errors
/// Why it is none.
pub fn read_exported(line: &str) -> Result<Event, serde_json::Error> {
    let event: ExportedEvent = serde_json::from_str(line)?;
    Ok(Event {
        shard: event.shard,
        sequence: event.sequence,
        at_us: event.at.as_microsecond(),
        actor: event.actor,
        action: event.action,
        resource: event.resource,
        details: event.details.to_string(),
        hash: event.hash,
    })
}
