//! The handle [`Credentials`], and its batched database access.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use authority::Authority;
use authority::keystore::KeyStore;
use authority::tables::{Insertion, NewIssued};
use callout::Databases;
use events::CredentialChange;
use futures_util::FutureExt;
use keys::RsaStock;
use keys::keyring::Keyring;
use parking_lot::Mutex;
use shared::Shared;
use store::{AuditEvent, Batcher, BatcherOptions, Clock, NewCertificate, NewEvent, Store, StoreError, Tx};
use telemetry::spans::{Span, TraceParent};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::CredentialError;
use crate::leases::LeaseUpkeep;
use crate::live_tokens::{self, LiveTokens};
use crate::options::CredentialsOptions;
use crate::read_log::ReadLog;
use crate::rotation::{HookSender, RotationReport};
use crate::tables;
use crate::tables::{
    CredentialRow, NAMES_UNBOUNDED, NewCredentialVersion, Put, Requester, SEALED_CONNECTIONS,
    SEALED_CREDENTIALS, SEALED_HOOKS, SEALED_WRAPS, put_credential_versions,
};
use crate::version::Version;

/// Maximum versions in one transaction; each takes a few KiB.
const BATCH_MAX: usize = 256;
/// Maximum versions in the queue. When it is full, callers wait.
const WAITING_MAX: usize = 4_096;
/// Maximum concurrent transactions per process. With two, one is sent while the other commits.
const AT_ONCE: usize = 2;
/// Maximum names in one lookup statement, one version each. The values of this many names always fit into the size limit of a
/// response.
const LOOKUPS_MAX: usize = NAMES_UNBOUNDED;
/// Maximum concurrent read statements per process.
const LOOKUPS_AT_ONCE: usize = 2;
/// Delay from startup to the first deletion of expired data. Short, so that processes that run for less than an hour also delete
/// expired data.
const TIDY_FIRST: Duration = Duration::from_secs(60);
/// Interval between deletions of expired data.
const TIDY_EVERY: Duration = Duration::from_secs(3_600);
/// Number of RSA keys that are generated in advance.
const RSA_STOCK: usize = 64;
/// Maximum attempts of a transaction that fails because of a conflict.
const ATTEMPTS: usize = 3;

/// The handle of the credential store. Cheap to clone.
#[derive(Clone)]
pub struct Credentials(Shared<CredentialsState>);

struct CredentialsState {
    store: Store,
    keystore: KeyStore,
    clock: Clock,
    options: CredentialsOptions,
    stock: RsaStock,
    versions: Batcher<NewVersion, Result<Put, Arc<StoreError>>>,
    /// Batcher of lookups. Only on PostgreSQL: an embedded database has no round trips to share.
    lookups: Option<Batcher<LookupKey, Result<Vec<CredentialRow>, Arc<StoreError>>>>,
    reads: ReadLog,
    live_tokens: LiveTokens,
    /// Id of this process as holder of the rotation lease.
    node: Uuid,
    hooks: OnceLock<Arc<dyn HookSender>>,
    authority: OnceLock<Authority>,
    rotation_requested: Notify,
    rotation_totals: Mutex<RotationReport>,
    databases: OnceLock<Databases>,
    leases: LeaseUpkeep,
    read_only: AtomicBool,
}

/// Key of a lookup: the caller, and the name in lower case.
type LookupKey = (Requester, String);

/// A version to store, with its events and certificate records.
#[derive(Clone)]
pub(crate) struct NewVersion {
    pub(crate) row: NewCredentialVersion,
    /// Action in the audit log, such as `credential.set`.
    pub(crate) action: &'static str,
    /// A self-signed certificate generated here, to be added to the inventory.
    pub(crate) certificate: Option<Arc<NewCertificate>>,
    /// The certificate to record as issued, if a CA signed it, so that it can be revoked.
    pub(crate) issued: Option<NewIssued>,
}

impl Credentials {
    /// Opens the credential store over the database and the master keys. Starts the background task that writes versions.
    #[must_use]
    pub fn open(store: Store, keystore: KeyStore, clock: Clock, options: CredentialsOptions) -> Self {
        keystore.register_sealed_column(&SEALED_CREDENTIALS);
        keystore.register_sealed_column(&SEALED_WRAPS);
        keystore.register_sealed_column(&SEALED_HOOKS);
        keystore.register_sealed_column(&SEALED_CONNECTIONS);
        let batches = BatcherOptions { batch_max: BATCH_MAX, queue_max: WAITING_MAX, at_once: AT_ONCE };
        let writing = store.clone();
        let versions = Batcher::new("credential-put", batches, move |all| put(writing.clone(), all).boxed());
        let reads = ReadLog::open(options.read_audit, &store);
        let lookups = store.is_postgres().then(|| {
            let (reading, clock) = (store.clone(), clock.clone());
            let batches =
                BatcherOptions { batch_max: LOOKUPS_MAX, queue_max: WAITING_MAX, at_once: LOOKUPS_AT_ONCE };
            Batcher::new("credential-lookup", batches, move |all| {
                look_up(reading.clone(), clock.now_us(), all).boxed()
            })
        });
        Self(Shared::new(CredentialsState {
            store,
            keystore,
            clock,
            options,
            stock: RsaStock::new(RSA_STOCK),
            versions,
            lookups,
            reads,
            live_tokens: live_tokens::live_tokens(),
            node: Uuid::new_v4(),
            hooks: OnceLock::new(),
            authority: OnceLock::new(),
            rotation_requested: Notify::new(),
            rotation_totals: Mutex::default(),
            databases: OnceLock::new(),
            leases: LeaseUpkeep::default(),
            read_only: AtomicBool::new(false),
        }))
    }

    /// Sets the sender of hook requests. Without a sender, credentials whose rotation needs the consent of a hook keep their values. Only
    /// the first call has an effect.
    pub fn set_hook_sender(&self, sender: Arc<dyn HookSender>) {
        let _ = self.0.hooks.set(sender);
    }

    /// Sets the authority that publishes the CAs stored as credentials, so that their certificates can be revoked. Only the first call
    /// has an effect.
    pub fn set_publishing_authority(&self, authority: Authority) {
        let _ = self.0.authority.set(authority);
    }

    /// Sets the handle for sessions at target databases. Without this handle, dynamic credentials are refused, and leases are not
    /// revoked. Only the first call has an effect.
    pub fn set_databases(&self, databases: Databases) {
        let _ = self.0.databases.set(databases);
    }

    pub(crate) fn databases(&self) -> Option<&Databases> {
        self.0.databases.get()
    }

    pub(crate) fn lease_upkeep(&self) -> &LeaseUpkeep {
        &self.0.leases
    }

    pub(crate) fn authority(&self) -> Option<&Authority> {
        self.0.authority.get()
    }

    /// Runs the background work until `stop`: generates RSA keys in advance, writes the read log, removes expired tokens and data,
    /// rotates credentials, and revokes leases.
    pub async fn run(self, stop: CancellationToken) {
        let reads = self.0.reads.clone().run(self.0.store.clone(), stop.clone());
        let stock = stop.clone().run_until_cancelled_owned(self.keep_rsa_stock_filled());
        tokio::join!(
            reads,
            stock,
            self.tidy(stop.clone()),
            self.rotate(stop.clone()),
            self.run_lease_upkeep(stop)
        );
    }

    /// Sets read-only mode in this process. The mode pauses rotation and the deletion of expired versions here; the caller must
    /// reject write requests itself.
    pub fn set_read_only(&self, on: bool) {
        self.0.read_only.store(on, Ordering::Relaxed);
    }

    /// Returns whether this process is in read-only mode; see [`Self::set_read_only`].
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.0.read_only.load(Ordering::Relaxed)
    }

    /// Keeps the stock of RSA keys filled after the first request for an RSA key. Many servers never need such a key.
    async fn keep_rsa_stock_filled(&self) {
        let _live = telemetry::tasks::guard("credential-rsa-stock");
        self.0.stock.wanted().await;
        self.0.stock.keep().await;
    }

    async fn tidy(&self, stop: CancellationToken) {
        let _live = telemetry::tasks::guard("credential-tidy");
        let mut wait = TIDY_FIRST;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => wait = TIDY_EVERY,
            }
            if self.is_read_only() {
                continue;
            }
            if let Err(error) =
                tables::Credentials::of(self.store()).delete_expired_tokens(self.now_us()).await
            {
                tracing::warn!(%error, "expired and revoked tokens could not be deleted");
            }
            if let Err(error) = self.destroy_past(&stop).await {
                tracing::warn!(%error, "credentials past their retention period could not be destroyed");
            }
            if let Err(error) = self.tidy_wraps().await {
                tracing::warn!(%error, "expired one-time values could not be deleted");
            }
        }
    }

    /// Returns the settings that the store was opened with.
    #[must_use]
    pub fn options(&self) -> &CredentialsOptions {
        &self.0.options
    }

    /// Returns the stock of RSA keys that were generated in advance.
    #[must_use]
    pub fn stock(&self) -> &RsaStock {
        &self.0.stock
    }

    pub(crate) fn store(&self) -> &Store {
        &self.0.store
    }

    pub(crate) fn keystore(&self) -> &KeyStore {
        &self.0.keystore
    }

    pub(crate) fn keyring(&self) -> &Keyring {
        self.0.keystore.keyring()
    }

    /// Returns the number of reads that wait for their record in the audit log, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn reads_waiting(&self) -> usize {
        self.reads().pending()
    }

    pub(crate) fn reads(&self) -> &ReadLog {
        &self.0.reads
    }

    pub(crate) fn live_tokens(&self) -> &LiveTokens {
        &self.0.live_tokens
    }

    pub(crate) fn node(&self) -> Uuid {
        self.0.node
    }

    pub(crate) fn hook_sender(&self) -> Option<&dyn HookSender> {
        self.0.hooks.get().map(AsRef::as_ref)
    }

    pub(crate) fn rotation_requested(&self) -> &Notify {
        &self.0.rotation_requested
    }

    pub(crate) fn rotation_totals(&self) -> &Mutex<RotationReport> {
        &self.0.rotation_totals
    }

    pub(crate) fn now_us(&self) -> i64 {
        self.0.clock.now_us()
    }

    pub(crate) fn open_row(&self, row: CredentialRow) -> Result<Version, CredentialError> {
        Version::open(row, self.keyring())
    }

    /// Returns the current versions of a name. On PostgreSQL concurrent lookups share a statement, because the round trip costs
    /// several times the lookup.
    pub(crate) async fn rows_of(&self, lookup_key: LookupKey) -> Result<Vec<CredentialRow>, CredentialError> {
        let Some(lookups) = &self.0.lookups else {
            let rows = tables::Credentials::of(self.store()).current(&[lookup_key], self.now_us()).await?;
            return Ok(rows.into_iter().map(|(_, row)| row).collect());
        };
        let answer = lookups.submit(lookup_key).await;
        let answer =
            answer.map_err(|_| CredentialError::Internal("the lookup queue has stopped".to_owned()))?;
        answer.map_err(CredentialError::from)
    }

    pub(crate) async fn put(&self, version: NewVersion) -> Result<Put, CredentialError> {
        let answer = self.0.versions.submit(version).await;
        let answer =
            answer.map_err(|_| CredentialError::Internal("the version queue has stopped".to_owned()))?;
        answer.map_err(CredentialError::from)
    }

    pub(crate) fn event(
        &self,
        requester: &Requester,
        action: &'static str,
        name: &str,
        details: serde_json::Value,
    ) -> AuditEvent {
        AuditEvent {
            at_us: self.now_us(),
            actor: requester.actor.clone(),
            action,
            resource: format!("credential{name}"),
            details,
        }
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("options", &self.0.options).finish_non_exhaustive()
    }
}

async fn look_up(
    store: Store,
    now_us: i64,
    all: Vec<LookupKey>,
) -> Vec<Result<Vec<CredentialRow>, Arc<StoreError>>> {
    match tables::Credentials::of(&store).current(&all, now_us).await {
        Ok(rows) => {
            let mut answers = vec![Vec::new(); all.len()];
            for (index, row) in rows {
                answers[index].push(row);
            }
            answers.into_iter().map(Ok).collect()
        }
        Err(error) => {
            let error = Arc::new(error);
            all.iter().map(|_| Err(Arc::clone(&error))).collect()
        }
    }
}

async fn put(store: Store, all: Vec<NewVersion>) -> Vec<Result<Put, Arc<StoreError>>> {
    let rows: Arc<[NewCredentialVersion]> = all.iter().map(|new| new.row.clone()).collect();
    let all: Arc<[NewVersion]> = all.into();
    let mut left = ATTEMPTS;
    loop {
        left -= 1;
        let (rows, shared) = (Arc::clone(&rows), Arc::clone(&all));
        let stored = store.write_indexed("credential_put", move |tx| put_all(tx, rows, shared).boxed()).await;
        match stored {
            Ok(outcomes) => return outcomes.into_iter().map(Ok).collect(),
            // The database has rolled the transaction back, so that a retry stores nothing twice.
            Err(StoreError::Busy { .. }) if left > 0 => {}
            Err(error) => {
                let error = Arc::new(error);
                return all.iter().map(|_| Err(Arc::clone(&error))).collect();
            }
        }
    }
}

/// Stores versions in one transaction, with their inventory, audit log and outbox entries.
async fn put_all(
    tx: &mut Tx,
    rows: Arc<[NewCredentialVersion]>,
    all: Arc<[NewVersion]>,
) -> Result<Vec<Put>, StoreError> {
    let outcomes = put_credential_versions(tx, &rows).await?;
    let stored = || {
        all.iter().zip(&outcomes).filter_map(|(new, outcome)| match outcome {
            Put::Stored { name, .. } => Some((new, name.as_str())),
            _ => None,
        })
    };
    let certificates: Vec<NewCertificate> =
        stored().filter_map(|(new, _)| Some(new.certificate.as_deref()?.clone())).collect();
    if !certificates.is_empty() {
        let at_us = rows.iter().map(|row| row.at_us).max().unwrap_or_default();
        store::insert_known_certificates(tx, &certificates, at_us).await?;
    }
    let issued: Vec<NewIssued> = stored().filter_map(|(new, _)| new.issued.clone()).collect();
    let recorded = if issued.is_empty() { Vec::new() } else { authority::issue::record(tx, &issued).await? };
    if recorded.iter().any(|outcome| *outcome != Insertion::New) {
        return Err(StoreError::Corrupt("a newly generated key is blocked".to_owned()));
    }
    let events: Vec<NewEvent> = stored().map(|(new, name)| change_event(new, name)).collect();
    store::audit_and_emit(tx, stored().map(|(new, name)| audited(new, name)).collect(), &events).await?;
    if telemetry::spans::is_installed() {
        telemetry::spans::emit(stored().map(|(new, name)| span(new, name)).collect());
    }
    Ok(outcomes)
}

/// Returns the span of a new version. Its trace has the ID of the version, so requests with the credential can link to it.
fn span(new: &NewVersion, name: &str) -> Span {
    let at = TraceParent::of_object(new.row.version.as_u128());
    Span::new(at, 0, "credential version", new.row.at_us, telemetry::spans::now_us())
        .with("bulla.credential", name)
        .with("bulla.actor", &new.row.requester.actor)
}

fn audited(new: &NewVersion, name: &str) -> AuditEvent {
    AuditEvent {
        at_us: new.row.at_us,
        actor: new.row.requester.actor.clone(),
        action: new.action,
        resource: format!("credential{name}"),
        details: serde_json::json!({ "type": new.row.kind, "version": new.row.version }),
    }
}

fn change_event(new: &NewVersion, name: &str) -> NewEvent {
    let body = CredentialChange {
        name: name.to_owned(),
        by: new.row.requester.actor.clone(),
        kind: Some(new.row.kind.to_string()),
        version: Some(new.row.version),
    };
    store::new_event(new.row.at_us, format!("credential{name}"), &events::Event::CredentialChanged(body))
}
