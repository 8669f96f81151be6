//! Events of the log, and the hash that chains them.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use x509::Fingerprint;

/// Returns the hash that precedes the first event of a chain, the first head and the first segment: all zeros.
#[must_use]
pub fn genesis() -> Fingerprint {
    Fingerprint::from_bytes([0; 32])
}

/// An event with the fields that its hash covers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Event {
    /// Number of the hash chain (shard) that contains the event.
    pub shard: i64,
    /// Position in the chain, from 1.
    pub sequence: i64,
    /// Time of the event, µs.
    pub at_us: i64,
    /// Actor that caused the event.
    pub actor: String,
    /// Action, as in the audit log: `profile.put`.
    pub action: String,
    /// Resource that the event is about.
    pub resource: String,
    /// Details as JSON without spaces, members sorted.
    pub details: String,
    /// SHA-256 over the previous hash and the fields of the event.
    pub hash: Fingerprint,
}

impl Event {
    /// Returns the hash of this event, if the previous event of the chain has the hash `before`: SHA-256 over that hash and every
    /// field, each text preceded by its length.
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

/// Formats an event as a line of `bulla audit export`, without a line break. Its details are written unchanged and must be JSON.
///
/// # Errors
/// The time is out of the calendar's range.
pub fn format_export_line(event: &Event) -> Result<String, jiff::Error> {
    let text = |text: &str| Value::String(text.to_owned());
    let at = Timestamp::from_microsecond(event.at_us)?;
    let (actor, action, resource) = (text(&event.actor), text(&event.action), text(&event.resource));
    let Event { details, shard, sequence, hash, .. } = event;
    Ok(format!(
        r#"{{"at":"{at}","actor":{actor},"action":{action},"resource":{resource},"details":{details},"shard":{shard},"sequence":{sequence},"hash":"{hash}"}}"#
    ))
}

/// Parses an event from a line of `bulla audit export`.
///
/// # Errors
/// The line is not an event.
pub fn parse_export_line(line: &str) -> Result<Event, serde_json::Error> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exported_event_lines_roundtrip() {
        let mut event = Event {
            shard: 7,
            sequence: 1,
            at_us: 1_800_000_000_000_001,
            actor: "identity:ci".into(),
            action: "proxy.allow".into(),
            resource: "a.example:443".into(),
            details: r#"{"a":"\"\u0001","b":[1,null]}"#.into(),
            hash: genesis(),
        };
        event.hash = event.hash_after(&genesis());
        let line = format_export_line(&event).unwrap();
        let read = parse_export_line(&line).unwrap();
        assert_eq!(read, event);
        assert_eq!(read.hash_after(&genesis()), event.hash);
        assert!(format_export_line(&Event { at_us: i64::MAX, ..event }).is_err());
    }
}
