//! Old events are sealed and pruned, and the log remains verifiable.

use audit::tables::{self, Segments};
use audit::{AuditError, Step};
use audit_proof::{inclusion, segment};
use db::{Cost, Value};
use futures_util::FutureExt;
use keys::{Argon2Cost, MasterKeySource, PassphraseSource};
use serde_json::json;
use store::AuditFilter;
use testbed::tables::{DAY, NOW};

use crate::fixture::{Fixture, event, retention};

const VERSION: &str = "01939bd0-0000-7000-8000-000000000001";

impl Fixture {
    async fn rows(&self) -> usize {
        let page = self.store.audit_page(&AuditFilter::default(), None, 10_000).await.unwrap();
        page.rows.len()
    }

    /// Asserts that the log verifies, both on the server and offline with every signed head.
    async fn is_whole(&self, when: &str) {
        assert_eq!(self.faults().await, [""; 0], "{when}");
        let heads = self.log.heads_after(0).await.unwrap();
        let audited = self.audited(&heads).await;
        assert_eq!(audited.faults, [""; 0], "{when}");
        assert_eq!(audited.signed_heads as usize, heads.len(), "{when}");
    }

    /// Writes old events with signed heads between them, and some recent events.
    async fn history(&self) {
        for part in 0..3 {
            let days = 100 - 10 * part;
            self.clock.set(NOW - days * DAY);
            self.write(days, 40).await;
            self.log.sign().await.unwrap();
        }
        self.clock.set(NOW);
        self.write(1, 5).await;
    }
}

pub(crate) async fn old_events_are_sealed_then_pruned_and_the_log_verifies(fixture: Fixture) {
    fixture.history().await;
    let before = fixture.rows().await;
    let log = fixture.with(retention(None, 50));
    let steps = fixture.retain(&log).await;
    let sealed = steps.iter().filter(|step| matches!(step, Step::Sealed(_))).count();
    let trimmed: u64 = steps.iter().map(|step| if let Step::Trimmed(rows) = step { *rows } else { 0 }).sum();
    assert!(sealed >= 3, "{steps:?}");
    assert_eq!(trimmed, 121, "{steps:?}");
    // Recent events and the records of the sealing remain. The audit key was created long ago.
    assert_eq!(fixture.rows().await, before - 121 + sealed);
    fixture.is_whole("sealed").await;
    let after_sealing = fixture.log.sign().await.unwrap();
    assert_eq!(after_sealing.segments as usize, sealed);

    let log = fixture.with(retention(Some(60), 50));
    let steps = fixture.retain(&log).await;
    assert_eq!(steps.iter().filter(|step| matches!(step, Step::Pruned(_))).count(), sealed, "{steps:?}");
    fixture.is_whole("pruned").await;
    assert!(matches!(fixture.log.segment(1).await, Err(AuditError::Pruned(1))));
    // Notes list what can no longer be compared. The segments are checked against the signed head.
    let audited = fixture.audited(&fixture.log.heads_after(0).await.unwrap()).await;
    assert!(audited.notes.iter().any(|note| note.contains("pruned segment")), "{:?}", audited.notes);
    assert_eq!(audited.segments as usize, sealed);
}

pub(crate) async fn sealed_reads_are_counted_per_minute_and_signed_points_kept(fixture: Fixture) {
    let read = |second, actor| event(60, second, actor, "credential.read", json!({ "version": VERSION }));
    // One chain: 50 reads in one minute, 10 in the next, and 5 by another actor.
    let mut events: Vec<_> = (0..50).map(|second| read(second, "token:a")).collect();
    events.extend((60..70).map(|second| read(second, "token:a")));
    fixture.put(events).await;
    fixture.clock.set(NOW - 60 * DAY + 70_000_000);
    fixture.log.sign().await.unwrap();
    fixture.clock.set(NOW);
    fixture.put((70..75).map(|second| read(second, "token:b")).collect()).await;
    let times = json!({ "version": VERSION, "times": 7, "until_us": NOW - 60 * DAY + 119_000_000 });
    fixture.put(vec![event(60, 100, "token:b", "credential.read", times)]).await;
    fixture.put(vec![event(60, 200, "token:b", "credential.set", json!({}))]).await;
    fixture.retain(&fixture.with(retention(None, 100_000))).await;
    let (head, text) = fixture.log.segment(1).await.unwrap();
    assert_eq!((head.first, head.last), (1, 68), "{head:?}");
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let counted: Vec<(&str, u64, u64)> = lines
        .iter()
        .filter(|line| line["kind"] == "reads")
        .map(|line| {
            (
                line["actor"].as_str().unwrap(),
                line["times"].as_u64().unwrap(),
                line["records"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(counted, [("token:a", 50, 50), ("token:a", 10, 10), ("token:b", 12, 6)]);
    assert_eq!(
        lines.len(),
        6,
        "three counts, the point of the signed head, the audit key, the other event: {text}"
    );
    assert_eq!(lines.iter().filter(|line| line["kind"] == "point" && line["sequence"] == 61).count(), 1);
    fixture.is_whole("counted").await;
}

/// Simulates a crash after each step: a new process continues.
pub(crate) async fn log_verifies_after_a_restart_at_each_retention_step(fixture: Fixture) {
    fixture.history().await;
    let options = retention(Some(60), 50);
    let (mut kinds, mut steps) = (Vec::new(), 0);
    loop {
        let log = fixture.reopened(options.clone()).await;
        let step = log.retain().await.unwrap();
        fixture.is_whole(&format!("after {step:?}")).await;
        if step == Step::Nothing {
            break;
        }
        steps += 1;
        assert!(steps < 100);
        kinds.push(std::mem::discriminant(&step));
    }
    kinds.dedup();
    assert!(kinds.len() >= 3, "sealed, trimmed, pruned");
    assert!(
        Segments::of(&fixture.store)
            .after(0, 100)
            .await
            .unwrap()
            .iter()
            .all(|row| row.pruned_at_us.is_some())
    );
}

/// Simulates a crash inside a transaction: the last write of each step fails, and nothing of the step is stored.
pub(crate) async fn failed_write_rolls_back_the_whole_retention_step(fixture: Fixture) {
    fixture.history().await;
    let log = fixture.with(retention(Some(60), 50));
    for _ in 0..60 {
        let before = fixture.state().await;
        // The audit row is the last write of a step. An existing row with the same sequence number makes it fail.
        let taken =
            "-- test\nINSERT INTO audit_events (shard, sequence, at, actor, action, resource, details, hash)
SELECT shard, sequence + 1, 9000000000000000, 'x', 'x', 'x', '{}', hash FROM audit_chains WHERE shard = 0";
        fixture.store.execute(taken, Vec::new()).await.unwrap();
        let outcome = log.retain().await;
        fixture
            .store
            .execute("-- test\nDELETE FROM audit_events WHERE actor = 'x'", Vec::new())
            .await
            .unwrap();
        match outcome {
            Ok(Step::Nothing) => return,
            // Trimming has only one write, so it cannot fail half-way.
            Ok(Step::Trimmed(_)) => {}
            Ok(step) => panic!("{step:?} without its audit row"),
            Err(_) => {
                assert_eq!(fixture.state().await, before);
                fixture.is_whole("after a step that failed").await;
                log.retain().await.unwrap();
            }
        }
        fixture.is_whole("after the step").await;
    }
    panic!("it does not end");
}

impl Fixture {
    /// Returns the number of segments, of pruned segments, and of rows.
    async fn state(&self) -> (usize, usize, usize) {
        let segments = Segments::of(&self.store).after(0, 1_000).await.unwrap();
        let pruned = segments.iter().filter(|row| row.pruned_at_us.is_some()).count();
        (segments.len(), pruned, self.rows().await)
    }
}

pub(crate) async fn altered_chain_is_not_sealed_and_raises_an_event(fixture: Fixture) {
    fixture.history().await;
    let alter = "-- test\nUPDATE audit_events SET actor = 'user:mallory' WHERE shard = 0 AND sequence = 2";
    fixture.store.execute(alter, Vec::new()).await.unwrap();
    let log = fixture.with(retention(None, 50));
    let error = loop {
        match log.retain().await {
            Ok(Step::Nothing) => panic!("sealed"),
            Ok(_) => {}
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("chain 0: event 2 was altered"), "{error}");
    assert_eq!(Segments::of(&fixture.store).end(0).await.unwrap().0, 0);
    let count_sql = "-- test\nSELECT COUNT(*) FROM outbox WHERE kind = 'audit.broken'";
    let mut rows = fixture.store.rows(Cost::Walk, count_sql, Vec::new()).await.unwrap();
    assert_eq!(rows.remove(0).int().unwrap(), 1);
    // An event rewritten with all later hashes does not match the signed head.
    fixture.rewrite(0, 2, "user:mallory").await;
    let error = log.retain().await.unwrap_err().to_string();
    assert!(error.contains("does not match a signed head"), "{error}");
}

pub(crate) async fn inclusion_proof_verifies_segment_lines_and_rejects_altered_ones(fixture: Fixture) {
    fixture.history().await;
    fixture.retain(&fixture.with(retention(None, 50))).await;
    let signed = fixture.log.sign().await.unwrap();
    let (_, key) = fixture.log.public_key().await.unwrap();
    let (head, _) = fixture.log.segment(1).await.unwrap();
    let last = head.lines - 1;
    for line in [0, last] {
        let proof = fixture.log.prove(1, line).await.unwrap();
        let text = serde_json::to_string(&proof).unwrap();
        let read: api::audit::InclusionProof = serde_json::from_str(&text).unwrap();
        assert_eq!(inclusion::check(&read, std::slice::from_ref(&signed), Some(&key)), Ok(()));
    }
    assert!(matches!(fixture.log.prove(1, last + 1).await, Err(AuditError::NoLine { .. })));
    assert!(matches!(fixture.log.prove(999, 0).await, Err(AuditError::NoSegment(999))));
    let proof = fixture.log.prove(1, 0).await.unwrap();
    let altered = text_altered(&proof, "user:alice", "user:mallory");
    assert!(inclusion::check(&altered, &[], Some(&key)).unwrap_err().contains("is not in segment 1"));
    let altered = text_altered(
        &proof,
        &format!("\"from\":\"{}\"", proof.segment.from),
        "\"from\":\"2020-01-01T00:00:00Z\"",
    );
    assert!(inclusion::check(&altered, &[], Some(&key)).unwrap_err().contains("the signature is not by"));
    let mut short = proof.clone();
    short.later.clear();
    if signed.segments > 1 {
        assert!(
            inclusion::check(&short, &[signed], Some(&key))
                .unwrap_err()
                .contains("which is not in the proof")
        );
    }
    // A proof that was created before the segment was pruned is still accepted.
    fixture.retain(&fixture.with(retention(Some(60), 50))).await;
    let later = fixture.log.sign().await.unwrap();
    assert_eq!(inclusion::check(&proof, &[later], Some(&key)), Ok(()));
}

fn text_altered(proof: &api::audit::InclusionProof, from: &str, to: &str) -> api::audit::InclusionProof {
    let text = serde_json::to_string(proof).unwrap();
    assert!(text.contains(from), "{from} in {text}");
    serde_json::from_str(&text.replace(from, to)).unwrap()
}

pub(crate) async fn altered_and_deleted_segments_are_detected(fixture: Fixture) {
    fixture.history().await;
    fixture.retain(&fixture.with(retention(None, 50))).await;
    fixture.log.sign().await.unwrap();
    fixture.is_whole("before").await;
    let row = Segments::of(&fixture.store).after(0, 1).await.unwrap().remove(0);
    // Change the segment head so that its `after` hash is wrong.
    let mut head: api::audit::SegmentHead = serde_json::from_str(&row.head).unwrap();
    head.after = head.root.clone();
    let set = "-- test\nUPDATE audit_segments SET head = ?2 WHERE number = ?1";
    fixture.store.execute(set, vec![row.number.into(), segment::line(&head).into()]).await.unwrap();
    let faults = fixture.faults().await.join("; ");
    for part in [
        "segment 1: the signature is not by",
        "does not contain the hash of the previous segment",
        "segment 1 cannot be decrypted",
    ] {
        assert!(faults.contains(part), "{part}: {faults}");
    }
    fixture.store.execute(set, vec![row.number.into(), row.head.as_str().into()]).await.unwrap();
    fixture.is_whole("as it was").await;
    // Flip one bit of the segment body.
    let body = Segments::of(&fixture.store).body(row.number).await.unwrap().unwrap().body.unwrap();
    let mut altered = body.clone();
    altered[20] ^= 1;
    let set = "-- test\nUPDATE audit_segments SET body = ?2 WHERE number = ?1";
    fixture.store.execute(set, vec![row.number.into(), Value::Blob(altered)]).await.unwrap();
    assert!(fixture.faults().await[0].contains("segment 1 cannot be decrypted"));
    fixture.store.execute(set, vec![row.number.into(), Value::Blob(body)]).await.unwrap();
    // Delete the newest segment: the signed head still names it.
    let newest = Segments::of(&fixture.store).newest().await.unwrap().unwrap().number;
    fixture
        .store
        .execute("-- test\nDELETE FROM audit_segments WHERE number = ?1", vec![newest.into()])
        .await
        .unwrap();
    let faults = fixture.faults().await.join("; ");
    assert!(faults.contains(&format!("segment {newest} of signed head")), "{faults}");
    let audited = fixture.audited(&fixture.log.heads_after(0).await.unwrap()).await;
    assert!(audited.faults.iter().any(|fault| fault.contains("is missing")), "{:?}", audited.faults);
}

pub(crate) async fn segments_are_readable_after_master_key_rotation(fixture: Fixture) {
    fixture.history().await;
    fixture.retain(&fixture.with(retention(None, 50))).await;
    let passphrase = PassphraseSource {
        passphrase: "correct horse battery".to_owned().into(),
        parameters: fixture.database.path("parameters"),
        create: Some(Argon2Cost::default()),
    };
    let rotated = fixture
        .keystore
        .rotate_master(&MasterKeySource::Passphrase(passphrase), "user:test", |_| {})
        .await
        .unwrap();
    assert_eq!((rotated.remaining, rotated.failed), (0, Vec::new()));
    let column = rotated.columns.iter().find(|column| column.column == "audit_segments.data_key").unwrap();
    assert!(column.rewrapped > 0);
    fixture.is_whole("under another master key").await;
    // Two nodes seal the same segment: the second write stores nothing.
    let row = Segments::of(&fixture.store).body(1).await.unwrap().unwrap();
    let twice = tables::NewSegment {
        number: 1,
        id: row.id,
        shard: 0,
        last: 1,
        hash: [0; 32],
        ends_at_us: 0,
        head: row.head,
        data_key: row.data_key.unwrap(),
        body: row.body.unwrap(),
    };
    let stored = fixture
        .store
        .write("twice", move |tx| async move { tables::insert_segment(tx, twice).await }.boxed());
    assert!(!stored.await.unwrap());
}
