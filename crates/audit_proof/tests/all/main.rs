//! Tests of exports and heads in their file format.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

use api::audit::VerificationView;
use audit_proof::event::{genesis, parse_export_line};
use audit_proof::export;
use audit_proof::stored_heads::StoredHeads;

/// Two events with the hashes that the server computes. The tests of `store` check the same values.
const FIRST: &str = r#"{"at":"2026-11-21T00:00:00Z","actor":"user:alice","action":"certificate.revoke","resource":"certificate/1","details":{"reason":"test"},"shard":0,"sequence":1,"hash":"ba200ee4200000a05c769954aef44286419093c0599ade1ce67267e3046eff8b"}"#;
const SECOND: &str = r#"{"at":"2026-11-21T00:00:00.000001Z","actor":"token:ci","action":"credential.read","resource":"credential/a","details":{"times":2,"version":"v"},"shard":0,"sequence":2,"hash":"6b006e767a98c849572c26abbe8d30d8e5f10062cf6a7c49a3551f5d6381d80d"}"#;
const HEAD_OF_FIRST: &str = "0:1:ba200ee4200000a05c769954aef44286419093c0599ade1ce67267e3046eff8b";
const HEAD_OF_SECOND: &str = "0:2:6b006e767a98c849572c26abbe8d30d8e5f10062cf6a7c49a3551f5d6381d80d";

fn verified(lines: &[&str], heads: &[&str]) -> VerificationView {
    let heads = if heads.is_empty() {
        StoredHeads::default()
    } else {
        StoredHeads::parse(&heads.join("\n")).unwrap()
    };
    export::verify(lines.join("\n").as_bytes(), &heads, None).unwrap()
}

#[test]
fn complete_export_verifies_in_any_order_and_contains_kept_heads() {
    for lines in [[FIRST, SECOND], [SECOND, FIRST]] {
        let found = verified(&lines, &[HEAD_OF_FIRST, HEAD_OF_SECOND]);
        assert_eq!((found.good, found.events, found.chains), (true, 2, 1), "{:?}", found.faults);
        assert_eq!(found.heads, [HEAD_OF_SECOND]);
    }
    let json = format!(r#"{{"good": true, "heads": ["{HEAD_OF_FIRST}"]}}"#);
    assert_eq!(StoredHeads::parse(&json).unwrap().points.len(), 1);
}

#[test]
fn changing_any_field_breaks_the_hash_chain() {
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
fn missing_and_duplicate_events_are_reported() {
    for lines in [&[SECOND][..], &[FIRST, FIRST]] {
        assert!(!verified(lines, &[]).good, "{lines:?}");
    }
    // Truncation at the end is detected only with the kept head.
    assert!(verified(&[FIRST], &[HEAD_OF_FIRST]).good);
    assert_eq!(
        verified(&[FIRST], &[HEAD_OF_SECOND]).faults,
        ["chain 0: event 2 of the kept head is missing"]
    );
}

/// An attacker with database access recomputes every hash: the chain verifies, and only the kept head reveals the change.
#[test]
fn rewritten_history_is_detected_by_kept_head() {
    let mut event = parse_export_line(FIRST).unwrap();
    event.actor = "user:mallory".to_owned();
    let anew = event.hash_after(&genesis()).to_string();
    let hash = HEAD_OF_FIRST.rsplit(':').next().unwrap();
    let line = FIRST.replace("user:alice", "user:mallory").replace(hash, &anew);
    assert!(verified(&[&line], &[]).good);
    assert_eq!(
        verified(&[&line], &[HEAD_OF_FIRST]).faults,
        ["chain 0: event 1 does not match the kept head"]
    );
}

#[test]
fn malformed_heads_and_exports_are_rejected() {
    for text in ["", "{}", "0:1", "0:1:zz", "a:1:00", &format!("{HEAD_OF_FIRST}:1")] {
        assert!(StoredHeads::parse(text).is_err(), "{text}");
    }
    assert!(export::verify(&b"{}"[..], &StoredHeads::default(), None).is_err());
}
