//! The handle, and the ways into the database.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use authority::Authority;
use authority::keystore::KeyStore;
use authority::tables::{Insertion, NewIssued};
use events::CredentialChange;
use futures_util::FutureExt;
use keys::RsaStock;
use keys::keyring::Keyring;
use parking_lot::Mutex;
use store::{AuditEvent, Batcher, BatcherOptions, Clock, NewCertificate, NewEvent, Store, StoreError, Tx};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::CredentialError;
use crate::live_tokens::{self, LiveTokens};
use crate::options::CredentialsOptions;
use crate::read_log::ReadLog;
use crate::rotation::{HookSender, RotationReport};
use crate::tables;
use crate::tables::{
    CredentialAsker, CredentialRow, NAMES_UNBOUNDED, NewCredentialVersion, Put, SEALED_CREDENTIALS,
    SEALED_HOOKS, SEALED_WRAPS, put_credential_versions,
};
use crate::version::Version;

/// Versions of one transaction; some KiB each.
const BATCH_MAX: usize = 256;
/// Versions that wait in the queue; past it callers wait before it.
const WAITING_MAX: usize = 4_096;
/// Transactions under way: while one commits, the next is being sent.
const AT_ONCE: usize = 2;
/// Names of one statement, one version each: no value is left out for those of others.
const LOOKUPS_MAX: usize = NAMES_UNBOUNDED;
/// Statements that read under way.
const LOOKUPS_AT_ONCE: usize = 2;
/// From the start to the first look at what is past its time: a process that never lives for an hour looks, too.
const TIDY_FIRST: Duration = Duration::from_secs(60);
/// Interval between such runs.
const TIDY_EVERY: Duration = Duration::from_secs(3_600);
/// RSA keys that are generated in advance.
const RSA_STOCK: usize = 64;
/// A transaction that lost against another is tried so often.
const ATTEMPTS: usize = 3;

/// Credentials. Cheap to clone.
#[derive(Clone)]
pub struct Credentials(Arc<CredentialsState>);

struct CredentialsState {
    store: Store,
    keystore: KeyStore,
    clock: Clock,
    options: CredentialsOptions,
    stock: RsaStock,
    versions: Batcher<NewVersion, Result<Put, Arc<StoreError>>>,
    /// On PostgreSQL: a statement in the same process waits for nobody.
    lookups: Option<Batcher<LookupKey, Result<Vec<CredentialRow>, Arc<StoreError>>>>,
    reads: ReadLog,
    live_tokens: LiveTokens,
    /// This process among those that may have the duty of rotating.
    node: Uuid,
    hooks: OnceLock<Arc<dyn HookSender>>,
    authority: OnceLock<Authority>,
    rotation_asked: Notify,
    rotation_totals: Mutex<RotationReport>,
    read_only: AtomicBool,
}

/// The caller and the name in lower case.
type LookupKey = (CredentialAsker, String);

/// A version to store, with its events.
#[derive(Clone)]
pub(crate) struct NewVersion {
    pub(crate) row: NewCredentialVersion,
    /// `credential.set`, for one.
    pub(crate) action: &'static str,
    /// A certificate made here that signs itself: it stands in the inventory.
    pub(crate) certificate: Option<Arc<NewCertificate>>,
    /// The certificate to record as issued, if a CA signed it, so that it can be revoked.
    pub(crate) issued: Option<NewIssued>,
}

impl Credentials {
    /// Over the database and the master keys. Starts the task that stores.
    #[must_use]
    pub fn open(store: Store, keystore: KeyStore, clock: Clock, options: CredentialsOptions) -> Self {
        keystore.also_sealed(&SEALED_CREDENTIALS);
        keystore.also_sealed(&SEALED_WRAPS);
        keystore.also_sealed(&SEALED_HOOKS);
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
        Self(Arc::new(CredentialsState {
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
            rotation_asked: Notify::new(),
            rotation_totals: Mutex::default(),
            read_only: AtomicBool::new(false),
        }))
    }

    /// Gives what posts to hooks; without it policies with a hook that is asked keep their old values. The first counts.
    pub fn post_through(&self, sender: Arc<dyn HookSender>) {
        let _ = self.0.hooks.set(sender);
    }

    /// Gives the authority that authorities among the credentials are made known to: what they sign can be revoked then.
    /// The first counts.
    pub fn publish_through(&self, authority: Authority) {
        let _ = self.0.authority.set(authority);
    }

    pub(crate) fn authority(&self) -> Option<&Authority> {
        self.0.authority.get()
    }

    /// The work that comes by itself, until `stop`: RSA keys made ready, the log of readings, tokens and one-time values
    /// tidied, what is past its time destroyed, rotation.
    pub async fn run(self, stop: CancellationToken) {
        let reads = self.0.reads.clone().run(self.0.store.clone(), stop.clone());
        let stock = stop.clone().run_until_cancelled_owned(self.keep_stock());
        tokio::join!(reads, stock, self.tidy(stop.clone()), self.rotate(stop));
    }

    /// Sets read-only mode in this process. Rotation and the deletion of expired versions pause; callers check it for requests.
    pub fn set_read_only(&self, on: bool) {
        self.0.read_only.store(on, Ordering::Relaxed);
    }

    /// [`Self::set_read_only`]
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.0.read_only.load(Ordering::Relaxed)
    }

    /// Many servers never make an RSA key: the stock is filled once the first is wanted.
    async fn keep_stock(&self) {
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
            if let Err(error) = tables::Credentials::of(self.store()).tidy_tokens(self.now_us()).await {
                tracing::warn!(%error, "ended tokens could not be tidied");
            }
            if let Err(error) = self.destroy_past(&stop).await {
                tracing::warn!(%error, "credentials past their time could not be destroyed");
            }
            if let Err(error) = self.tidy_wraps().await {
                tracing::warn!(%error, "one-time values could not be tidied");
            }
        }
    }

    /// The options.
    #[must_use]
    pub fn options(&self) -> &CredentialsOptions {
        &self.0.options
    }

    /// The stock of RSA keys.
    #[must_use]
    pub fn stock(&self) -> &RsaStock {
        &self.0.stock
    }

    pub(crate) fn store(&self) -> &Store {
        &self.0.store
    }

    pub(crate) fn keyring(&self) -> &Keyring {
        self.0.keystore.keyring()
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

    pub(crate) fn rotation_asked(&self) -> &Notify {
        &self.0.rotation_asked
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

    /// The current version of a name. On PostgreSQL concurrent lookups share a statement, because the round trip costs several
    /// times the lookup.
    pub(crate) async fn rows_of(&self, asked: LookupKey) -> Result<Vec<CredentialRow>, CredentialError> {
        let Some(lookups) = &self.0.lookups else {
            let rows = tables::Credentials::of(self.store()).current(&[asked], self.now_us()).await?;
            return Ok(rows.into_iter().map(|(_, row)| row).collect());
        };
        let answer = lookups.submit(asked).await;
        let answer =
            answer.map_err(|_| CredentialError::Internal("the queue of lookups is gone".to_owned()))?;
        answer.map_err(CredentialError::from)
    }

    pub(crate) async fn put(&self, version: NewVersion) -> Result<Put, CredentialError> {
        let answer = self.0.versions.submit(version).await;
        let answer =
            answer.map_err(|_| CredentialError::Internal("the queue of versions is gone".to_owned()))?;
        answer.map_err(CredentialError::from)
    }

    pub(crate) fn event(
        &self,
        asker: &CredentialAsker,
        action: &'static str,
        name: &str,
        details: serde_json::Value,
    ) -> AuditEvent {
        AuditEvent {
            at_us: self.now_us(),
            actor: asker.actor.clone(),
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
            for (place, row) in rows {
                answers[place].push(row);
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
        let stored = store.write_points("credential_put", move |tx| put_all(tx, rows, shared).boxed()).await;
        match stored {
            Ok(fates) => return fates.into_iter().map(Ok).collect(),
            // Undone by the database, so that nothing of it can be there.
            Err(StoreError::Busy { .. }) if left > 0 => {}
            Err(error) => {
                let error = Arc::new(error);
                return all.iter().map(|_| Err(Arc::clone(&error))).collect();
            }
        }
    }
}

/// The versions, and what the inventory, the log and the outbox say of those that are stored.
async fn put_all(
    tx: &mut Tx,
    rows: Arc<[NewCredentialVersion]>,
    all: Arc<[NewVersion]>,
) -> Result<Vec<Put>, StoreError> {
    let fates = put_credential_versions(tx, &rows).await?;
    let stored = || {
        all.iter().zip(&fates).filter_map(|(new, fate)| match fate {
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
    if recorded.iter().any(|fate| *fate != Insertion::New) {
        return Err(StoreError::Corrupt("a key that was just made is blocked".to_owned()));
    }
    let events: Vec<NewEvent> = stored().map(|(new, name)| told(new, name)).collect();
    store::audit_and_emit(tx, stored().map(|(new, name)| audited(new, name)).collect(), &events).await?;
    Ok(fates)
}

fn audited(new: &NewVersion, name: &str) -> AuditEvent {
    AuditEvent {
        at_us: new.row.at_us,
        actor: new.row.asker.actor.clone(),
        action: new.action,
        resource: format!("credential{name}"),
        details: serde_json::json!({ "type": new.row.kind, "version": new.row.version }),
    }
}

fn told(new: &NewVersion, name: &str) -> NewEvent {
    let body = CredentialChange {
        name: name.to_owned(),
        by: new.row.asker.actor.clone(),
        kind: Some(new.row.kind.to_string()),
        version: Some(new.row.version),
    };
    store::new_event(new.row.at_us, format!("credential{name}"), &events::Event::CredentialChanged(body))
}
