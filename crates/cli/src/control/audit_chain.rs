//! An export of the audit log, checked without the server: hash chains, and heads that were kept elsewhere.

use std::collections::BTreeMap;
use std::io::BufRead;

use api::audit::VerificationView;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use x509::Fingerprint;

/// Before the first event of a chain.
const GENESIS: [u8; 32] = [0; 32];

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

impl ExportedEvent {
    /// SHA-256 over the hash before it and every field, each with its length: as the server computes it.
    fn hash_after(&self, before: &[u8; 32]) -> Fingerprint {
        let mut input = before.to_vec();
        for number in [self.shard, self.sequence, self.at.as_microsecond()] {
            input.extend_from_slice(&number.to_be_bytes());
        }
        for text in [&self.actor, &self.action, &self.resource, &self.details.to_string()] {
            input.extend_from_slice(&(text.len() as u64).to_be_bytes());
            input.extend_from_slice(text.as_bytes());
        }
        Fingerprint::of(&input)
    }
}

/// The end of a chain as it was at some time: `shard:sequence:hash`.
#[derive(Debug)]
pub(super) struct KeptHead {
    shard: i64,
    sequence: i64,
    hash: Fingerprint,
}

impl KeptHead {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let mut part = || parts.next();
        let (shard, sequence, hash) = (part()?.parse().ok()?, part()?.parse().ok()?, part()?.parse().ok()?);
        part().is_none().then_some(Self { shard, sequence, hash })
    }
}

/// The heads of a file: the JSON of `bulla audit verify --output json`, or a head a line.
pub(super) fn kept_heads(text: &str) -> Result<Vec<KeptHead>, String> {
    #[derive(Deserialize)]
    struct Verification {
        heads: Vec<String>,
    }
    let heads: Vec<String> = if text.trim_start().starts_with('{') {
        serde_json::from_str::<Verification>(text).map_err(|error| error.to_string())?.heads
    } else {
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
    };
    let read =
        |head: &String| KeptHead::parse(head).ok_or_else(|| format!("{head:?} is not shard:sequence:hash"));
    let heads = heads.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    if heads.is_empty() { Err("it names no head".to_owned()) } else { Ok(heads) }
}

/// Recomputes every chain of an export, whatever the order of its lines, and finds the kept heads in it. An export of only a part of
/// the log has faults: a chain is proven from its first event.
pub(super) fn verify_export(export: impl BufRead, heads: &[KeptHead]) -> Result<VerificationView, String> {
    let mut chains: BTreeMap<i64, BTreeMap<i64, ExportedEvent>> = BTreeMap::new();
    let (mut count, mut faults) = (0, Vec::new());
    for (number, line) in export.lines().enumerate() {
        let at = |error: String| format!("line {}: {error}", number + 1);
        let line = line.map_err(|error| at(error.to_string()))?;
        let event: ExportedEvent = serde_json::from_str(&line).map_err(|error| at(error.to_string()))?;
        let (shard, sequence) = (event.shard, event.sequence);
        count += 1;
        if chains.entry(shard).or_default().insert(sequence, event).is_some() {
            faults.push(format!("chain {shard}: event {sequence} is there twice"));
        }
    }
    faults.extend(chains.iter().filter_map(|(shard, events)| chain_fault(*shard, events)));
    for head in heads {
        let event = chains.get(&head.shard).and_then(|events| events.get(&head.sequence));
        let (shard, sequence) = (head.shard, head.sequence);
        match event {
            Some(event) if event.hash == head.hash => {}
            Some(_) => {
                faults.push(format!("chain {shard}: event {sequence} is not the one of the kept head"))
            }
            None if sequence == 0 => {}
            None => faults.push(format!("chain {shard}: event {sequence} of the kept head is missing")),
        }
    }
    Ok(VerificationView {
        good: faults.is_empty(),
        events: count,
        chains: chains.len() as u64,
        faults,
        heads: chains.values().filter_map(|events| events.values().next_back()).map(head_of).collect(),
    })
}

fn head_of(event: &ExportedEvent) -> String {
    format!("{}:{}:{}", event.shard, event.sequence, event.hash)
}

/// The first fault of a chain.
fn chain_fault(shard: i64, events: &BTreeMap<i64, ExportedEvent>) -> Option<String> {
    let (mut expected, mut before) = (1, GENESIS);
    for (sequence, event) in events {
        if *sequence != expected {
            return Some(format!("chain {shard}: event {expected} is missing"));
        }
        if event.hash_after(&before) != event.hash {
            return Some(format!("chain {shard}: event {sequence} was altered"));
        }
        (expected, before) = (expected + 1, *event.hash.as_bytes());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two events with the hashes that the server gives them: `store`'s tests hold it to the same.
    const FIRST: &str = r#"{"at":"2026-11-21T00:00:00Z","actor":"user:alice","action":"certificate.revoke","resource":"certificate/1","details":{"reason":"test"},"shard":0,"sequence":1,"hash":"ba200ee4200000a05c769954aef44286419093c0599ade1ce67267e3046eff8b"}"#;
    const SECOND: &str = r#"{"at":"2026-11-21T00:00:00.000001Z","actor":"token:ci","action":"credential.read","resource":"credential/a","details":{"times":2,"version":"v"},"shard":0,"sequence":2,"hash":"6b006e767a98c849572c26abbe8d30d8e5f10062cf6a7c49a3551f5d6381d80d"}"#;
    const HEAD_OF_FIRST: &str = "0:1:ba200ee4200000a05c769954aef44286419093c0599ade1ce67267e3046eff8b";
    const HEAD_OF_SECOND: &str = "0:2:6b006e767a98c849572c26abbe8d30d8e5f10062cf6a7c49a3551f5d6381d80d";

    fn verified(lines: &[&str], heads: &[&str]) -> VerificationView {
        let heads = if heads.is_empty() { Vec::new() } else { kept_heads(&heads.join("\n")).unwrap() };
        verify_export(lines.join("\n").as_bytes(), &heads).unwrap()
    }

    #[test]
    fn a_whole_export_is_good_in_any_order_and_has_the_kept_heads() {
        for lines in [[FIRST, SECOND], [SECOND, FIRST]] {
            let found = verified(&lines, &[HEAD_OF_FIRST, HEAD_OF_SECOND]);
            assert_eq!((found.good, found.events, found.chains), (true, 2, 1), "{:?}", found.faults);
            assert_eq!(found.heads, [HEAD_OF_SECOND]);
        }
        let json = format!(r#"{{"good": true, "heads": ["{HEAD_OF_FIRST}"]}}"#);
        assert_eq!(kept_heads(&json).unwrap().len(), 1);
    }

    #[test]
    fn every_changed_field_breaks_the_chain() {
        let changes = [
            ("user:alice", "user:mallory"),
            ("00:00:00Z", "00:00:01Z"),
            ("certificate.revoke", "certificate.issue"),
            ("certificate/1", "certificate/2"),
            ("\"test\"", "\"other\""),
            ("ba200ee4", "ba200ee5"),
        ];
        for (from, to) in changes {
            let found = verified(&[&FIRST.replace(from, to), SECOND], &[]);
            assert!(!found.good && found.faults.len() == 1, "{from}: {:?}", found.faults);
        }
    }

    #[test]
    fn what_is_missing_or_doubled_is_named() {
        for lines in [&[SECOND][..], &[FIRST, FIRST]] {
            assert!(!verified(lines, &[]).good, "{lines:?}");
        }
        // The end cut off is seen by the kept head alone.
        assert!(verified(&[FIRST], &[HEAD_OF_FIRST]).good);
        assert_eq!(
            verified(&[FIRST], &[HEAD_OF_SECOND]).faults,
            ["chain 0: event 2 of the kept head is missing"]
        );
    }

    /// Somebody who writes the database computes every hash again: the chain is whole, and only the kept head tells.
    #[test]
    fn history_written_anew_is_seen_by_the_kept_head() {
        let mut event: ExportedEvent = serde_json::from_str(FIRST).unwrap();
        event.actor = "user:mallory".to_owned();
        let anew = event.hash_after(&GENESIS).to_string();
        let hash = HEAD_OF_FIRST.rsplit(':').next().unwrap();
        let line = FIRST.replace("user:alice", "user:mallory").replace(hash, &anew);
        assert!(verified(&[&line], &[]).good);
        assert_eq!(
            verified(&[&line], &[HEAD_OF_FIRST]).faults,
            ["chain 0: event 1 is not the one of the kept head"]
        );
    }

    #[test]
    fn what_is_no_head_is_refused() {
        for text in ["", "{}", "0:1", "0:1:zz", "a:1:00", &format!("{HEAD_OF_FIRST}:1")] {
            assert!(kept_heads(text).is_err(), "{text}");
        }
        assert!(verify_export(&b"{}"[..], &[]).is_err());
    }
}
