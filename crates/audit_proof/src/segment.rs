//! Segments: old events of one chain, with a Merkle tree over their lines. Each segment's head contains the hash of the previous
//! head.

use std::collections::BTreeMap;
use std::io::{self, Write};

use api::audit::{SegmentHead, SegmentLine};
use jiff::Timestamp;
use serde_json::Value;
use x509::Fingerprint;
use x509::merkle::{self, Hash};

use crate::event::{Event, genesis};
use crate::point::ChainPoint;
use crate::signature;

/// The first member of every head of a segment.
pub const FORMAT: &str = "bulla-audit-segment-1";

/// The action whose events are aggregated.
const READ: &str = "credential.read";
/// Time span of aggregated events in µs.
const MINUTE_US: i64 = 60_000_000;

/// Whether reads of the same version by the same actor within a minute are aggregated into one line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reads {
    /// One line per minute, with the count and the first and last time.
    ByMinute,
    /// A separate line for each event.
    Each,
}

/// Reason why events cannot be sealed into a segment.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// The chain is broken. No event is sealed.
    #[error("chain {shard}: event {sequence} {what}")]
    Broken {
        /// Number of the broken hash chain (shard).
        shard: i64,
        /// Position of the event.
        sequence: i64,
        /// Description of the fault.
        what: &'static str,
    },
    /// Writing the body failed.
    #[error("the body of the segment could not be written: {0}")]
    Write(#[from] io::Error),
}

/// Returns the head as JSON on one line.
#[must_use]
pub fn line(head: &SegmentHead) -> String {
    // Only numbers and strings: serialization cannot fail.
    serde_json::to_string(head).unwrap_or_default()
}

/// Returns the SHA-256 of the head as JSON on one line. The next segment contains it as `previous`.
#[must_use]
pub fn hash(head: &SegmentHead) -> Fingerprint {
    Fingerprint::of(line(head).as_bytes())
}

/// Returns the signed text: the head as JSON on one line, without the member `signature`.
#[must_use]
pub fn signed_text(head: &SegmentHead) -> String {
    line(&SegmentHead { signature: String::new(), ..head.clone() })
}

/// Checks the signature of a head, with `key` (a DER SubjectPublicKeyInfo) or, without one, with the key in the head.
///
/// # Errors
/// A description of the fault.
pub fn check_signature(head: &SegmentHead, key: Option<&[u8]>) -> Result<(), String> {
    signature::check(&signed_text(head), &head.key, &head.signature, key)
        .map_err(|fault| format!("segment {}: {fault}", head.segment))
}

/// Returns a line of a segment as JSON, without a line break.
#[must_use]
pub fn line_text(line: &SegmentLine) -> String {
    // Only numbers and strings: serialization cannot fail.
    serde_json::to_string(line).unwrap_or_default()
}

/// Group key of aggregated reads: minute, actor, resource and version.
type ReadGroupKey = (i64, String, String, String);

#[derive(Clone, Copy)]
struct ReadCount {
    times: u64,
    records: u64,
    first_us: i64,
    last_us: i64,
}

/// Builder of a segment. The caller adds the events of one chain in order.
pub struct SegmentBuilder<W> {
    body: W,
    reads: Reads,
    shard: i64,
    first: i64,
    before: Fingerprint,
    last: i64,
    after: Fingerprint,
    from_us: i64,
    to_us: i64,
    leaves: Vec<Hash>,
    counts: BTreeMap<ReadGroupKey, ReadCount>,
}

impl<W: Write> SegmentBuilder<W> {
    /// Starts a segment after the event at the position `last` with the hash `before`. Lines are written to `body`.
    pub fn new(body: W, reads: Reads, shard: i64, last: i64, before: Fingerprint) -> Self {
        let (first, after) = (last + 1, before);
        let (from_us, to_us) = (i64::MAX, i64::MIN);
        let (leaves, counts) = (Vec::new(), BTreeMap::new());
        Self { body, reads, shard, first, before, last, after, from_us, to_us, leaves, counts }
    }

    /// Returns the number of events so far.
    #[must_use]
    pub fn records(&self) -> u64 {
        (self.last + 1 - self.first).unsigned_abs()
    }

    /// Returns the latest time of an event so far, µs.
    #[must_use]
    pub fn ends_at_us(&self) -> i64 {
        self.to_us
    }

    /// Returns position and hash of the last event so far.
    #[must_use]
    pub fn end(&self) -> (i64, Fingerprint) {
        (self.last, self.after)
    }

    /// Adds the next event. `signed` is the hash in a signed head at this position: such an event is not aggregated, so that its
    /// hash stays provable.
    ///
    /// # Errors
    /// [`SegmentError`]
    pub fn push(&mut self, event: Event, signed: Option<&Fingerprint>) -> Result<(), SegmentError> {
        let (shard, sequence) = (self.shard, event.sequence);
        let broken = |what| Err(SegmentError::Broken { shard, sequence, what });
        if event.shard != shard || sequence != self.last + 1 {
            return broken("does not follow the previous event: events are missing");
        }
        if event.hash_after(&self.after) != event.hash {
            return broken("was altered");
        }
        if signed.is_some_and(|hash| *hash != event.hash) {
            return broken("does not match a signed head");
        }
        // A reader of the segment computes the hash from the parsed details.
        let parsed = serde_json::from_str::<Value>(&event.details).ok();
        let Some(details) = parsed.filter(|details| is_canonical_json(details, &event.details)) else {
            return broken("has details that are not in the log's JSON format");
        };
        (self.last, self.after) = (sequence, event.hash);
        (self.from_us, self.to_us) = (self.from_us.min(event.at_us), self.to_us.max(event.at_us));
        if signed.is_some() {
            self.write(&SegmentLine::Point { sequence, hash: event.hash.to_string() })?;
        }
        if self.reads == Reads::ByMinute && self.count(&event, &details) {
            return Ok(());
        }
        let Event { at_us, actor, action, resource, hash, .. } = event;
        let hash = hash.to_string();
        self.write(&SegmentLine::Event { sequence, at_us, actor, action, resource, details, hash })
    }

    /// Counts a read with the others of its minute. Returns false for any other event.
    fn count(&mut self, event: &Event, details: &Value) -> bool {
        if event.action != READ {
            return false;
        }
        let known = |name: &String| ["version", "times", "until_us"].contains(&name.as_str());
        let Some(members) = details.as_object().filter(|members| members.keys().all(known)) else {
            return false;
        };
        let Some(version) = members.get("version").and_then(Value::as_str) else { return false };
        let times = members.get("times").map_or(Some(1), Value::as_u64);
        let until_us = members.get("until_us").map_or(Some(event.at_us), Value::as_i64);
        let (Some(times), Some(until_us)) = (times, until_us) else { return false };
        let minute = event.at_us.div_euclid(MINUTE_US);
        let key = (minute, event.actor.clone(), event.resource.clone(), version.to_owned());
        let none = ReadCount { times: 0, records: 0, first_us: event.at_us, last_us: until_us };
        let count = self.counts.entry(key).or_insert(none);
        count.times += times;
        count.records += 1;
        count.first_us = count.first_us.min(event.at_us);
        count.last_us = count.last_us.max(until_us);
        true
    }

    fn write(&mut self, line: &SegmentLine) -> Result<(), SegmentError> {
        let mut text = line_text(line);
        self.leaves.push(merkle::leaf_hash(text.as_bytes()));
        text.push('\n');
        Ok(self.body.write_all(text.as_bytes())?)
    }

    /// Ends the segment. Returns its unsigned head, with number `segment` and the previous head's hash `previous`, and the body.
    ///
    /// # Errors
    /// [`SegmentError::Write`]
    pub fn finish(mut self, segment: u64, previous: &str) -> Result<(SegmentHead, W), SegmentError> {
        for ((_, actor, resource, version), count) in std::mem::take(&mut self.counts) {
            let ReadCount { times, records, first_us, last_us } = count;
            let line = SegmentLine::Reads { actor, resource, version, times, records, first_us, last_us };
            self.write(&line)?;
        }
        let head = SegmentHead {
            format: FORMAT.to_owned(),
            segment,
            shard: self.shard,
            first: self.first,
            last: self.last,
            lines: self.leaves.len() as u64,
            from: format_time(self.from_us),
            to: format_time(self.to_us),
            before: self.before.to_string(),
            after: self.after.to_string(),
            root: Fingerprint::from_bytes(merkle::root_of(&self.leaves)).to_string(),
            previous: previous.to_owned(),
            key: String::new(),
            signature: String::new(),
        };
        Ok((head, self.body))
    }
}

fn is_canonical_json(value: &Value, text: &str) -> bool {
    let written = value.to_string();
    written == text
}

fn format_time(at_us: i64) -> String {
    Timestamp::from_microsecond(at_us).map(|at| at.to_string()).unwrap_or_default()
}

/// Returns why `next` does not follow `before`, the newest segment of the log so far. `None` when it does.
#[must_use]
pub fn break_between(before: Option<&SegmentHead>, next: &SegmentHead) -> Option<String> {
    let number = next.segment;
    let (last, previous) = match before {
        Some(head) => (head.segment, hash(head)),
        None => (0, genesis()),
    };
    if next.format != FORMAT {
        return Some(format!("segment {number}: the format is {:?}, not {FORMAT}", next.format));
    }
    if number != last + 1 {
        return Some(format!("segment {} is missing", last + 1));
    }
    (next.previous != previous.to_string()).then(|| {
        format!(
            "segment {number} does not contain the hash of the previous segment: one of the two was altered"
        )
    })
}

/// Checks the lines of a segment against its head. Returns the points of the chain that the lines prove.
///
/// # Errors
/// A description of the fault.
pub fn check_lines<'a>(
    head: &SegmentHead,
    lines: impl Iterator<Item = &'a str>,
) -> Result<Vec<ChainPoint>, String> {
    let number = head.segment;
    let (mut leaves, mut points, mut records) = (Vec::new(), Vec::new(), 0_u64);
    let mut last: Option<(i64, Fingerprint)> = Some((head.first - 1, parsed(&head.before)?));
    for text in lines {
        leaves.push(merkle::leaf_hash(text.as_bytes()));
        let line: SegmentLine =
            serde_json::from_str(text).map_err(|error| format!("segment {number}: invalid line: {error}"))?;
        match line {
            SegmentLine::Reads { records: count, .. } => records += count,
            SegmentLine::Point { sequence, hash } => {
                points.push(ChainPoint { shard: head.shard, sequence, hash: parsed(&hash)? });
            }
            SegmentLine::Event { sequence, at_us, actor, action, resource, details, hash } => {
                let (shard, hash, details) = (head.shard, parsed(&hash)?, details.to_string());
                let event = Event { shard, sequence, at_us, actor, action, resource, details, hash };
                // After aggregated reads, the hash before the event is not in the segment.
                let before = last.filter(|(last_sequence, _)| *last_sequence + 1 == sequence);
                if before.is_some_and(|(_, before)| event.hash_after(&before) != hash) {
                    return Err(format!("segment {number}: event {sequence} was altered"));
                }
                records += 1;
                last = Some((sequence, hash));
                points.push(ChainPoint { shard, sequence, hash });
            }
        }
    }
    let root = Fingerprint::from_bytes(merkle::root_of(&leaves)).to_string();
    if root != head.root || leaves.len() as u64 != head.lines {
        return Err(format!("segment {number}: the lines do not match the head"));
    }
    if i64::try_from(records) != Ok(head.last + 1 - head.first) {
        return Err(format!(
            "segment {number}: contains {records} events, but its head covers events {} to {}",
            head.first, head.last
        ));
    }
    Ok(points)
}

fn parsed(hash: &str) -> Result<Fingerprint, String> {
    hash.parse().map_err(|_| format!("{hash:?} is not a hash"))
}
