//! A read is logged before the value leaves the process.

use credentials::{CredentialError, CredentialsOptions, Kind, Mode, ReadAudit, Refusal};
use futures_util::future::join_all;
use serde_json::json;
use store::AuditFilter;
use testbed::until;

use crate::fixture::{Fixture, admin, name};
use crate::values::password;

impl Fixture {
    /// Returns the sum of the logged read counts of a name.
    async fn reads_of(&self, at: &str) -> u64 {
        let filter = AuditFilter {
            action: Some("credential.read".to_owned()),
            resource: Some(format!("credential{at}")),
            ..AuditFilter::default()
        };
        let page = self.store.audit_page(&filter, None, 1_000).await.unwrap();
        let times = |details: &str| {
            serde_json::from_str::<serde_json::Value>(details).unwrap()["times"].as_u64().unwrap_or(1)
        };
        page.rows.iter().map(|row| times(&row.details)).sum()
    }
}

/// No background task writes the log here, so the read itself wrote the entry.
pub(crate) async fn read_is_logged_before_the_response(fixture: Fixture) {
    let credentials = &fixture.credentials;
    let version = fixture.set("/a", Kind::Password, json!("secret")).await;
    credentials.current(&admin(), &name("/a")).await.unwrap();
    assert_eq!(fixture.reads_of("/a").await, 1, "current");
    credentials.version(&admin(), version.id).await.unwrap();
    assert_eq!(fixture.reads_of("/a").await, 2, "version");
    credentials.versions(&admin(), &name("/a"), None).await.unwrap();
    assert_eq!(fixture.reads_of("/a").await, 3, "versions");
    credentials.numbered(&admin(), &name("/a"), None).await.unwrap();
    assert_eq!(fixture.reads_of("/a").await, 4, "numbered");
    credentials.lookup(&admin(), &[name("/a"), name("/none")]).await.unwrap();
    assert_eq!((fixture.reads_of("/a").await, fixture.reads_of("/none").await), (5, 0), "lookup");
    let made = credentials.generate(&admin(), password("/a", 20, Mode::NoOverwrite)).await.unwrap();
    assert_eq!(made.id, version.id);
    assert_eq!(fixture.reads_of("/a").await, 6, "what generating found there");
    credentials.wrap(&admin(), &name("/a"), 60).await.unwrap();
    assert_eq!(fixture.reads_of("/a").await, 7, "wrap");
    let listed = credentials.list_versions(&admin(), &name("/a")).await.unwrap();
    assert_eq!((listed.versions.len(), fixture.reads_of("/a").await), (1, 7), "no value, no record");
}

pub(crate) async fn reads_fail_while_the_audit_log_is_not_writable(fixture: Fixture) {
    let version = fixture.set("/a", Kind::Json, json!({ "x": "secret" })).await;
    let wrapped = fixture.credentials.wrap(&admin(), &name("/a"), 60).await.unwrap();
    store::testing::rename_table(&fixture.store, "audit_events", "gone").await.unwrap();
    let credentials = &fixture.credentials;
    let unlogged = |what: &str, error: CredentialError| {
        assert!(matches!(error, CredentialError::Unlogged(_)), "{what}: {error}");
        assert_eq!(error.refusal(), Refusal::Unavailable, "{what}");
        assert!(error.to_string().contains("audit log"), "{what}: {error}");
    };
    unlogged("current", credentials.current(&admin(), &name("/a")).await.unwrap_err());
    unlogged("version", credentials.version(&admin(), version.id).await.unwrap_err());
    unlogged("versions", credentials.versions(&admin(), &name("/a"), None).await.unwrap_err());
    unlogged("numbered", credentials.numbered(&admin(), &name("/a"), None).await.unwrap_err());
    unlogged("lookup", credentials.lookup(&admin(), &[name("/a")]).await.unwrap_err());
    unlogged("wrap", credentials.wrap(&admin(), &name("/a"), 60).await.unwrap_err());
    let services = json!({ "s": [{ "credentials": { "credhub-ref": "/a" } }] }).to_string();
    let services = api::credhub::Bindings::parse(&services).unwrap();
    unlogged("interpolate", credentials.interpolate(&admin(), &services).await.unwrap_err());
    assert!(credentials.unwrap("b", wrapped.token.expose()).await.is_err());
    // If no value is returned, no entry is needed.
    assert!(credentials.lookup(&admin(), &[name("/none")]).await.unwrap()[0].is_none());
    store::testing::rename_table(&fixture.store, "gone", "audit_events").await.unwrap();
    credentials.current(&admin(), &name("/a")).await.unwrap();
    credentials.unwrap("b", wrapped.token.expose()).await.unwrap();
    assert_eq!(fixture.reads_of("/a").await, 2, "the one before for the token, and the one after");
    fixture.log().await;
}

/// Another connection holds a lock until all readers wait for the log: however fast a commit is, it cannot record one read alone.
pub(crate) async fn concurrent_reads_share_log_transactions(fixture: Fixture) {
    const READERS: usize = 200;
    fixture.set("/a", Kind::Password, json!("secret")).await;
    let (admin, at) = (admin(), name("/a"));
    let write_lock = fixture.lock_writes("audit_events");
    let reads = join_all((0..READERS).map(|_| fixture.credentials.current(&admin, &at)));
    let release = async {
        until("all readers wait for the log", || fixture.credentials.reads_waiting() == READERS).await;
        drop(write_lock);
    };
    let (answers, ()) = tokio::join!(reads, release);
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(fixture.reads_of("/a").await, READERS as u64);
    let rows = fixture.log().await.iter().filter(|line| line.contains("credential.read")).count();
    assert!(rows <= READERS / 4, "{rows} transactions, one row each, for {READERS} reads");
}

pub(crate) async fn lookup_is_logged_in_one_transaction(fixture: Fixture) {
    for at in 0..30 {
        fixture.set(&format!("/n/{at}"), Kind::Value, json!("v")).await;
    }
    let names: Vec<_> = (0..30).map(|at| name(&format!("/n/{at}"))).collect();
    let before = fixture.store.statements_sent();
    fixture.credentials.lookup(&admin(), &names).await.unwrap();
    let sent = fixture.store.statements_sent() - before;
    assert!(sent <= 6, "{sent} statements: the lookup, the chain, the records, its end");
    assert_eq!(fixture.log().await.iter().filter(|line| line.contains("credential.read")).count(), 30);
}

pub(crate) async fn buffered_reads_succeed_without_the_log_and_are_written_on_shutdown(fixture: Fixture) {
    let buffered = CredentialsOptions { read_audit: ReadAudit::Buffered, ..CredentialsOptions::default() };
    let credentials = fixture.with_options(buffered);
    fixture.set("/a", Kind::Password, json!("secret")).await;
    store::testing::rename_table(&fixture.store, "audit_events", "gone").await.unwrap();
    credentials.current(&admin(), &name("/a")).await.unwrap();
    store::testing::rename_table(&fixture.store, "gone", "audit_events").await.unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    stop.cancel();
    credentials.run(stop).await;
    assert_eq!(fixture.reads_of("/a").await, 1, "written at the stop");
}
