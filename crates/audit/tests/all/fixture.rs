//! Test fixture: an audit log in a new database, and what an auditor gets from it.

use std::path::PathBuf;

use api::audit::{AuditView, SignedHead, VerificationView};
use audit::{AuditLog, AuditOptions, AuditParts, Reads, Retention, Step, WitnessOptions};
use audit_proof::event::Event;
use audit_proof::stored_heads::StoredHeads;
use audit_proof::{export, head, segment};
use authority::keystore::KeyStore;
use futures_util::FutureExt;
use jiff::Timestamp;
use keys::Keyring;
use serde_json::{Value, json};
use store::{AuditEvent, AuditFilter, Clock, Store};
use testbed::Database;
use testbed::tables::{DAY, NOW};
use x509::Fingerprint;

pub(crate) struct Fixture {
    pub(crate) store: Store,
    pub(crate) keystore: KeyStore,
    pub(crate) clock: Clock,
    pub(crate) log: AuditLog,
    // Keep this field last: the stores must be dropped before the database server.
    pub(crate) database: Database,
}

impl Fixture {
    pub(crate) async fn sqlite() -> Self {
        Self::over(Database::sqlite()).await
    }

    pub(crate) async fn postgres() -> Self {
        Self::over(Database::postgres().await).await
    }

    async fn over(database: Database) -> Self {
        let (store, clock) = (database.open().await, Clock::manual(NOW));
        let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone());
        let log = log(&store, &keystore, &clock, AuditOptions::default());
        Self { store, keystore, clock, log, database }
    }

    /// The same log with other options.
    pub(crate) fn with(&self, options: AuditOptions) -> AuditLog {
        log(&self.store, &self.keystore, &self.clock, options)
    }

    /// Returns the log as another process opens it.
    pub(crate) async fn reopened(&self, options: AuditOptions) -> AuditLog {
        log(&self.database.open().await, &self.keystore, &self.clock, options)
    }

    pub(crate) fn witness(&self) -> PathBuf {
        self.database.path("witness.jsonl")
    }

    /// Returns the log with a file witness at `path`.
    pub(crate) fn with_file(&self, path: PathBuf) -> AuditLog {
        let witness = WitnessOptions { file: Some(path), ..WitnessOptions::default() };
        self.with(AuditOptions { witness, ..AuditOptions::default() })
    }

    /// Writes `count` events dated `days` days ago, one second apart, each in its own transaction.
    pub(crate) async fn write(&self, days: i64, count: usize) {
        for at in 0..count {
            let event = event(days, at, "user:alice", "certificate.revoke", json!({ "reason": "test" }));
            self.put(vec![event]).await;
        }
    }

    /// Writes events in one transaction, so that they are in one chain.
    pub(crate) async fn put(&self, events: Vec<AuditEvent>) {
        let put = self.store.write("put", move |tx| async move { store::audit(tx, events).await }.boxed());
        put.await.unwrap();
    }

    /// Runs retention steps until nothing is left to do.
    pub(crate) async fn retain(&self, log: &AuditLog) -> Vec<Step> {
        let mut steps = Vec::new();
        loop {
            match log.retain().await.unwrap() {
                Step::Nothing => return steps,
                step => steps.push(step),
            }
        }
    }

    /// Returns the output of `bulla audit export`: the rows, then the segments.
    pub(crate) async fn export(&self) -> String {
        let mut lines = Vec::new();
        let mut after = None;
        loop {
            let page = self.store.audit_page(&AuditFilter::default(), after.as_ref(), 1_000).await.unwrap();
            for row in page.rows {
                let view = AuditView {
                    at: Timestamp::from_microsecond(row.at_us).unwrap().to_string(),
                    actor: row.actor,
                    action: row.action,
                    resource: row.resource,
                    details: serde_json::from_str(&row.details).unwrap(),
                    shard: row.shard,
                    sequence: row.sequence,
                    hash: Fingerprint::from_bytes(row.hash).to_string(),
                };
                lines.push(serde_json::to_string(&view).unwrap());
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        for row in audit::tables::Segments::of(&self.store).after(0, 1_000).await.unwrap() {
            lines.push(row.head.clone());
            if row.pruned_at_us.is_none() {
                let (head, text) = self.log.segment(row.number.unsigned_abs()).await.unwrap();
                assert_eq!(segment::line(&head), row.head);
                lines.extend(text.lines().map(str::to_owned));
            }
        }
        lines.join("\n")
    }

    /// Returns the result of an offline verification with these heads and the server's public key.
    pub(crate) async fn audited(&self, heads: &[SignedHead]) -> VerificationView {
        let text: Vec<String> = heads.iter().map(head::line).collect();
        let stored_heads = if heads.is_empty() {
            StoredHeads::default()
        } else {
            StoredHeads::parse(&text.join("\n")).unwrap()
        };
        let (_, key) = self.log.public_key().await.unwrap();
        export::verify(self.export().await.as_bytes(), &stored_heads, Some(&key)).unwrap()
    }

    /// Returns the faults that the server reports for its own log.
    pub(crate) async fn faults(&self) -> Vec<String> {
        self.log.verify().await.unwrap().chains.faults
    }

    /// Simulates an attacker with database access: changes the actor of an event and recomputes all later hashes.
    pub(crate) async fn rewrite(&self, shard: i64, sequence: i64, actor: &str) {
        let rows = self.store.audit_chain_page(shard, 0, 100_000).await.unwrap();
        let mut before = Fingerprint::from_bytes([0; 32]);
        for row in rows {
            let mut event = Event {
                shard,
                sequence: row.sequence,
                at_us: row.at_us,
                actor: row.actor,
                action: row.action,
                resource: row.resource,
                details: row.details,
                hash: before,
            };
            if row.sequence == sequence {
                event.actor = actor.to_owned();
            }
            before = event.hash_after(&before);
            let hash = before.as_bytes().to_vec();
            let update = "-- rewrite\nUPDATE audit_events SET actor = ?3, hash = ?4 WHERE shard = ?1 AND sequence = ?2";
            let values = vec![shard.into(), row.sequence.into(), event.actor.into(), hash.into()];
            assert_eq!(self.store.execute(update, values).await.unwrap(), 1);
        }
        let head = "-- rewrite\nUPDATE audit_chains SET hash = ?2 WHERE shard = ?1";
        self.store.execute(head, vec![shard.into(), before.as_bytes().to_vec().into()]).await.unwrap();
    }
}

fn log(store: &Store, keystore: &KeyStore, clock: &Clock, options: AuditOptions) -> AuditLog {
    let parts =
        AuditParts { store: store.clone(), keystore: keystore.clone(), clock: clock.clone(), options };
    AuditLog::new(parts)
}

/// An event dated `days` days ago plus `second` seconds.
pub(crate) fn event(
    days: i64,
    second: usize,
    actor: &str,
    action: &'static str,
    details: Value,
) -> AuditEvent {
    AuditEvent {
        at_us: NOW - days * DAY + second as i64 * 1_000_000,
        actor: actor.to_owned(),
        action,
        resource: "certificate/1".to_owned(),
        details,
    }
}

/// Options that seal after 30 days, prune after `prune` days, and put at most `records_max` events into a segment.
pub(crate) fn retention(prune: Option<u32>, records_max: usize) -> AuditOptions {
    let retention =
        Retention { seal_after_days: Some(30), prune_after_days: prune, reads: Reads::ByMinute, records_max };
    AuditOptions { retention, ..AuditOptions::default() }
}
