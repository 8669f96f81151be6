//! Reads from a standby while the primary database is down.

use std::time::Duration;

use authority::keystore::KeyStore;
use credentials::{CredentialError, Credentials, CredentialsOptions, Kind, ReadAudit, SetRequest, Value};
use serde_json::json;
use store::testing::Cluster;
use store::{AuditFilter, Clock, Store, StoreOptions};
use tokio_util::sync::CancellationToken;

use crate::fixture::{NOW, admin, client, name, ring};

const TIMEOUT: Duration = Duration::from_secs(60);

struct Pair {
    primary: Cluster,
    _standby: Cluster,
    store: Store,
    credentials: Credentials,
    _folder: tempfile::TempDir,
}

/// Starts a primary with `/a` and a standby that may serve reads alone for this long.
async fn pair(alone: Duration) -> Pair {
    pair_with(alone, StoreOptions::default(), ReadAudit::Buffered).await
}

async fn pair_with(alone: Duration, options: StoreOptions, read_audit: ReadAudit) -> Pair {
    let (primary, standby, url) = tokio::task::spawn_blocking(|| {
        let primary = Cluster::start();
        let url = primary.database();
        let standby = primary.standby();
        (primary, standby, url)
    })
    .await
    .unwrap();
    let options = StoreOptions { replica: Some(standby.replica_url(&url)), replica_alone: alone, ..options };
    let store = Store::open_with(&url, &options).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::manual(NOW * 1_000_000);
    let keystore = KeyStore::new(store.clone(), ring(folder.path(), &["master"]), clock.clone());
    let options = CredentialsOptions { read_audit, ..CredentialsOptions::default() };
    let credentials = Credentials::open(store.clone(), keystore, clock, options);
    let pair = Pair { primary, _standby: standby, store, credentials, _folder: folder };
    pair.set("one").await.unwrap();
    pair.primary.wait_for_standby(&pair._standby);
    pair
}

impl Pair {
    async fn set(&self, value: &str) -> Result<(), CredentialError> {
        let request = SetRequest::new(name("/a"), Kind::Value, json!(value));
        self.credentials.set(&admin(), request).await.map(drop)
    }

    async fn value(&self) -> Result<Value, CredentialError> {
        let current = self.credentials.current(&admin(), &name("/a")).await?;
        Ok(current[0].value.clone())
    }

    async fn until_value(&self, wanted: &str) {
        let began = std::time::Instant::now();
        while self.value().await.ok() != Some(text(wanted)) {
            assert!(began.elapsed() < TIMEOUT, "it is not {wanted}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns the number of logged reads of `/a`.
    async fn logged(&self) -> u64 {
        let page = self.store.audit_page(&AuditFilter::default(), None, 1_000).await.unwrap();
        let reads = page.rows.into_iter().filter(|row| row.action == "credential.read");
        let times =
            |details: &str| serde_json::from_str::<serde_json::Value>(details).unwrap()["times"].as_u64();
        reads.map(|row| times(&row.details).unwrap_or(1)).sum()
    }
}

fn text(value: &str) -> Value {
    Value::Value(keys::Secret::new(value))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standby_serves_reads_and_rejects_writes_while_primary_is_down() {
    let pair = pair(Duration::from_secs(3_600)).await;
    let stop = CancellationToken::new();
    let running = tokio::spawn(pair.credentials.clone().run(stop.clone()));
    pair.until_value("one").await;
    assert_eq!(pair.store.is_reading_replica(), Some(false));
    pair.primary.stop();
    for _ in 0..100 {
        assert_eq!(pair.value().await.unwrap(), text("one"));
    }
    assert_eq!(pair.store.is_reading_replica(), Some(true));
    let denied = pair.credentials.current(&client("other"), &name("/a")).await.unwrap_err();
    assert!(matches!(denied, CredentialError::NotFound), "permissions hold: {denied}");
    let refused = pair.set("two").await.unwrap_err();
    let CredentialError::Store(error) = &refused else { panic!("{refused}") };
    assert!(error.is_transient(), "{refused}");
    // After the primary is back, new writes are visible and the reads served meanwhile are logged.
    pair.primary.resume();
    let began = std::time::Instant::now();
    while pair.set("two").await.is_err() {
        assert!(began.elapsed() < TIMEOUT, "nothing can be written again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    pair.until_value("two").await;
    assert_eq!(pair.store.is_reading_replica(), Some(false));
    while pair.logged().await < 102 {
        assert!(began.elapsed() < TIMEOUT, "{} readings are logged", pair.logged().await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stop.cancel();
    running.await.unwrap();
}

/// A standby cannot write audit records, and without one no secret is returned.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standby_returns_no_secret_when_read_audit_is_durable() {
    let hour = Duration::from_secs(3_600);
    let pair = pair_with(hour, StoreOptions::default(), ReadAudit::Durable).await;
    pair.until_value("one").await;
    pair.primary.stop();
    let refused = pair.value().await.unwrap_err();
    assert!(matches!(refused, CredentialError::Unlogged(_)), "{refused}");
    pair.primary.resume();
    pair.until_value("one").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standby_reads_are_rejected_after_the_staleness_limit() {
    let pair = pair(Duration::from_millis(1)).await;
    assert_eq!(pair.value().await.unwrap(), text("one"));
    pair.primary.stop();
    let began = std::time::Instant::now();
    let refused = loop {
        match pair.value().await {
            Err(refused) => break refused,
            Ok(_) => assert!(began.elapsed() < TIMEOUT, "it is believed for ever"),
        }
    };
    let CredentialError::Store(error) = &refused else { panic!("{refused}") };
    assert!(error.is_transient(), "{refused}");
    pair.primary.resume();
    pair.until_value("one").await;
}

/// Waiting for a free reader connection does not count as an unavailable database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_primary_does_not_cause_failover_to_standby() {
    let one_reader = StoreOptions { connections: 3, ..StoreOptions::default() };
    let pair = pair_with(Duration::from_secs(3_600), one_reader, ReadAudit::Buffered).await;
    let sql = |statement: &'static str| pair.primary.psql("bulla_1", statement);
    let while_it_is_busy = || {
        std::thread::scope(|scope| {
            assert!(sql("CREATE TABLE released ()"));
            // Reads of the audit log wait for this lock, until the test releases it. At most three minutes, if the test fails.
            scope.spawn(|| {
                assert!(sql("BEGIN; LOCK TABLE audit_events IN ACCESS EXCLUSIVE MODE; DO $$ BEGIN
                    FOR waited IN 1..18000 LOOP EXIT WHEN EXISTS (SELECT 1 FROM released); PERFORM pg_sleep(0.01); END LOOP;
                    END $$; COMMIT"));
            });
            let began = std::time::Instant::now();
            while !sql("DO $$ BEGIN IF NOT EXISTS (SELECT 1 FROM pg_locks WHERE relation = 'audit_events'::regclass
                    AND mode = 'AccessExclusiveLock' AND granted) THEN RAISE EXCEPTION 'not yet'; END IF; END $$")
        {
            assert!(began.elapsed() < TIMEOUT, "the lock is not taken");
        }
            tokio::runtime::Handle::current().block_on(async {
                let store = pair.store.clone();
                let slow =
                    tokio::spawn(async move { store.audit_page(&AuditFilter::default(), None, 1).await });
                while pair.store.pools().iter().any(|pool| pool.name == "readers" && pool.in_use == 0) {
                    assert!(began.elapsed() < TIMEOUT, "nobody reads the log");
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                // Longer than a read may take once it has a connection.
                let release = async {
                    tokio::time::sleep(Duration::from_secs(6)).await;
                    assert!(sql("INSERT INTO released DEFAULT VALUES"));
                };
                let (value, ()) = tokio::join!(pair.value(), release);
                assert_eq!(value.unwrap(), text("one"));
                assert_eq!(pair.store.is_reading_replica(), Some(false));
                slow.await.unwrap().unwrap();
            });
        })
    };
    tokio::task::block_in_place(while_it_is_busy);
}
