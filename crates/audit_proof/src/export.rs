//! Verification of an audit log export without the server.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;

use api::audit::{SegmentHead, SignedHead, VerificationView};
use x509::Fingerprint;

use crate::event::{Event, genesis, parse_export_line};
use crate::point::ChainPoint;
use crate::segment;
use crate::signature::key_of;
use crate::stored_heads::StoredHeads;

/// Prefix of a line with a segment's head.
const SEGMENT: &str = r#"{"format":"bulla-audit-segment"#;
/// Prefix of a line in a segment.
const LINE: &str = r#"{"kind":"#;

type Position = (i64, i64);

/// The events and segments of an export, and the faults found while parsing.
#[derive(Default)]
struct Export {
    chains: BTreeMap<i64, BTreeMap<i64, Event>>,
    segments: BTreeMap<u64, (SegmentHead, Vec<String>)>,
    events: u64,
    faults: Vec<String>,
}

/// Intermediate results of the verification of an export.
#[derive(Default)]
struct ExportCheck {
    /// Positions of the events whose hashes the kept heads contain.
    wanted: BTreeSet<Position>,
    /// Hashes found at the wanted positions.
    found: BTreeMap<Position, Fingerprint>,
    /// Segments whose lines are missing: chain, first and last position.
    pruned: Vec<(i64, i64, i64)>,
    /// Position and hash of the last sealed event, by chain.
    sealed: BTreeMap<i64, (i64, Fingerprint)>,
    faults: Vec<String>,
    notes: Vec<String>,
}

/// Verifies every chain and segment of an export, in any order of its events, and finds the kept heads in it. An export of only a
/// part of the log is reported as faulty, because a chain is proven from its first event. `key` is the expected signing key of the
/// kept heads, a DER SubjectPublicKeyInfo.
///
/// # Errors
/// The first line that cannot be parsed.
pub fn verify(
    export: impl BufRead,
    stored_heads: &StoredHeads,
    key: Option<&[u8]>,
) -> Result<VerificationView, String> {
    let export = Export::read(export)?;
    let (points, faults) = stored_heads.check(key);
    let mut walk = ExportCheck { faults, ..ExportCheck::default() };
    walk.faults.extend(export.faults.iter().cloned());
    walk.wanted = points.iter().map(|point| (point.shard, point.sequence)).collect();
    let stored_key = stored_heads.signed.first().and_then(|head| key_of(&head.key).ok());
    walk.segments(&export, key.or(stored_key.as_deref()));
    let heads = walk.chains(&export);
    points.iter().for_each(|point| walk.compare(point));
    stored_heads.signed.iter().for_each(|head| walk.compare_segments(&export, head));
    if key.is_none()
        && let Some(head) = stored_heads.signed.last()
    {
        let key = key_of(&head.key).map(|spki| Fingerprint::of(&spki).to_string()).unwrap_or_default();
        walk.notes.push(format!(
            "the heads are signed by the key {key}: give --key to say which key must have signed"
        ));
    }
    Ok(VerificationView {
        good: walk.faults.is_empty(),
        events: export.events,
        chains: heads.len() as u64,
        faults: walk.faults,
        heads,
        segments: export.segments.len() as u64,
        signed_heads: stored_heads.signed.len() as u64,
        notes: walk.notes,
    })
}

impl Export {
    fn read(export: impl BufRead) -> Result<Self, String> {
        let mut read = Self::default();
        let mut segment = None;
        for (number, line) in export.lines().enumerate() {
            let at = |error: String| format!("line {}: {error}", number + 1);
            let line = line.map_err(|error| at(error.to_string()))?;
            if line.starts_with(SEGMENT) {
                let head: SegmentHead = serde_json::from_str(&line).map_err(|error| at(error.to_string()))?;
                segment = Some(head.segment);
                if let Some((head, _)) = read.segments.insert(head.segment, (head, Vec::new())) {
                    read.faults.push(format!("segment {} occurs twice", head.segment));
                }
            } else if line.starts_with(LINE) {
                let of = segment.and_then(|number| read.segments.get_mut(&number));
                of.ok_or_else(|| at("a line outside of any segment".to_owned()))?.1.push(line);
            } else {
                let event = parse_export_line(&line).map_err(|error| at(error.to_string()))?;
                read.add_event(event);
            }
        }
        Ok(read)
    }

    fn add_event(&mut self, event: Event) {
        let (shard, sequence) = (event.shard, event.sequence);
        self.events += 1;
        if self.chains.entry(shard).or_default().insert(sequence, event).is_some() {
            self.faults.push(format!("chain {shard}: event {sequence} occurs twice"));
        }
    }
}

impl ExportCheck {
    fn segments(&mut self, export: &Export, key: Option<&[u8]>) {
        let mut before = None;
        for (head, lines) in export.segments.values() {
            let (number, shard) = (head.segment, head.shard);
            self.faults.extend(segment::break_between(before, head));
            self.faults.extend(segment::check_signature(head, key).err());
            before = Some(head);
            let (last, hash) = self.sealed.get(&shard).copied().unwrap_or((0, genesis()));
            if head.first != last + 1 || head.before != hash.to_string() {
                self.faults
                    .push(format!("segment {number} does not continue chain {shard} after event {last}"));
            }
            let after = head.after.parse().unwrap_or(genesis());
            self.sealed.insert(shard, (head.last, after));
            self.note((shard, head.last), after);
            if lines.is_empty() {
                self.pruned.push((shard, head.first, head.last));
                continue;
            }
            match segment::check_lines(head, lines.iter().map(String::as_str)) {
                Ok(points) => {
                    for point in points {
                        self.note((shard, point.sequence), point.hash);
                    }
                }
                Err(fault) => self.faults.push(fault),
            }
        }
    }

    /// Verifies the events after the segments. Returns the last point of each chain.
    fn chains(&mut self, export: &Export) -> Vec<String> {
        let shards = self.sealed.keys().chain(export.chains.keys()).copied();
        let shards: BTreeSet<i64> = shards.collect();
        let none = BTreeMap::new();
        let mut heads = Vec::with_capacity(shards.len());
        for shard in shards {
            let (mut sequence, mut hash) = self.sealed.get(&shard).copied().unwrap_or((0, genesis()));
            // Skip events that are sealed already: sealing may run during an export.
            for event in
                export.chains.get(&shard).unwrap_or(&none).range(sequence + 1..).map(|(_, event)| event)
            {
                if event.sequence != sequence + 1 {
                    self.faults.push(format!("chain {shard}: event {} is missing", sequence + 1));
                    break;
                }
                if event.hash_after(&hash) != event.hash {
                    self.faults.push(format!("chain {shard}: event {} was altered", event.sequence));
                    break;
                }
                (sequence, hash) = (event.sequence, event.hash);
                self.note((shard, sequence), hash);
            }
            heads.push(ChainPoint { shard, sequence, hash }.to_string());
        }
        heads
    }

    fn note(&mut self, position: Position, hash: Fingerprint) {
        if self.wanted.contains(&position) {
            self.found.insert(position, hash);
        }
    }

    fn compare(&mut self, point: &ChainPoint) {
        let (shard, sequence) = (point.shard, point.sequence);
        match self.found.get(&(shard, sequence)) {
            Some(hash) if *hash == point.hash => {}
            Some(_) => {
                self.faults.push(format!("chain {shard}: event {sequence} does not match the kept head"))
            }
            None if sequence == 0 => {}
            None if self
                .pruned
                .iter()
                .any(|(of, first, last)| *of == shard && (*first..=*last).contains(&sequence)) =>
            {
                self.notes
                    .push(format!("chain {shard}: event {sequence} of a kept head is in a pruned segment"));
            }
            None => self.faults.push(format!("chain {shard}: event {sequence} of the kept head is missing")),
        }
    }

    /// Checks that the export has the newest segment that a signed head names.
    fn compare_segments(&mut self, export: &Export, head: &SignedHead) {
        let (number, sequence) = (head.segments, head.sequence);
        match export.segments.get(&number) {
            _ if number == 0 => {}
            Some((found, _)) if segment::hash(found).to_string() == head.segment => {}
            Some(_) => self.faults.push(format!("segment {number} does not match signed head {sequence}")),
            None => self.faults.push(format!("segment {number} of signed head {sequence} is missing")),
        }
    }
}
