//! The handle, and the ways into the database.

use std::sync::Arc;

use authority::keystore::KeyStore;
use futures_util::FutureExt;
use keys::keyring::Keyring;
use store::credentials::{
    CredentialAsker, CredentialRow, NewCredentialVersion, Put, SEALED_CREDENTIALS, put_credential_versions,
};
use store::{AuditEvent, Batcher, BatcherOptions, Clock, Event, NewCertificate, Store, StoreError, Tx};
use tokio_util::sync::CancellationToken;

use crate::CredentialError;
use crate::reading::ReadLog;
use crate::stock::RsaStock;
use crate::token::{self, NotEnded};
use crate::version::Version;

/// Versions of one transaction; some KiB each.
const BATCH_MAX: usize = 256;
/// Versions that wait in the queue; past it callers wait before it.
const WAITING_MAX: usize = 4_096;
/// Transactions under way: while one commits, the next is being sent.
const AT_ONCE: usize = 2;
/// A transaction that lost against another is tried so often.
const ATTEMPTS: usize = 3;

/// How credentials are kept.
#[derive(Clone, Copy, Debug)]
pub struct CredentialsOptions {
    /// Whether a certificate's `ca` has both versions of an authority that changes.
    pub concatenate_cas: bool,
    /// Whether certificates with other keys than RSA may be set; CredHub refuses them.
    pub any_key: bool,
}

impl Default for CredentialsOptions {
    fn default() -> Self {
        Self { concatenate_cas: true, any_key: false }
    }
}

/// Credentials. Cheap to clone.
#[derive(Clone)]
pub struct Credentials(Arc<Inner>);

struct Inner {
    store: Store,
    keystore: KeyStore,
    clock: Clock,
    options: CredentialsOptions,
    stock: RsaStock,
    versions: Batcher<NewVersion, Result<Put, Arc<StoreError>>>,
    reads: ReadLog,
    not_ended: NotEnded,
}

/// A version with what is told of it once it is stored.
#[derive(Clone)]
pub(crate) struct NewVersion {
    pub(crate) row: NewCredentialVersion,
    /// `credential.set`, for one.
    pub(crate) action: &'static str,
    /// A certificate made here: it stands in the inventory.
    pub(crate) certificate: Option<Arc<NewCertificate>>,
}

impl Credentials {
    /// Over the database and the master keys. Starts the task that stores.
    #[must_use]
    pub fn open(store: Store, keystore: KeyStore, clock: Clock, options: CredentialsOptions) -> Self {
        keystore.also_sealed(&SEALED_CREDENTIALS);
        let batches = BatcherOptions { batch_max: BATCH_MAX, queue_max: WAITING_MAX, at_once: AT_ONCE };
        let writing = store.clone();
        let versions = Batcher::new("credential-put", batches, move |all| put(writing.clone(), all).boxed());
        let reads = ReadLog::default();
        Self(Arc::new(Inner {
            store,
            keystore,
            clock,
            options,
            stock: RsaStock::default(),
            versions,
            reads,
            not_ended: token::not_ended(),
        }))
    }

    /// The work that comes by itself, until `stop`: RSA keys made ready, the log of readings, tokens tidied.
    pub async fn run(self, stop: CancellationToken) {
        let reads = self.0.reads.clone().run(self.0.store.clone(), stop.clone());
        let stock = self.0.stock.clone().run(stop.clone());
        tokio::join!(reads, stock, self.tidy(stop));
    }

    async fn tidy(&self, stop: CancellationToken) {
        const EVERY: std::time::Duration = std::time::Duration::from_secs(3_600);
        let _live = telemetry::tasks::guard("credential-tidy");
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(EVERY) => {}
            }
            if let Err(error) = self.store().tidy_credential_tokens(self.now_us()).await {
                tracing::warn!(%error, "ended tokens could not be tidied");
            }
        }
    }

    /// How they are kept.
    #[must_use]
    pub fn options(&self) -> CredentialsOptions {
        self.0.options
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

    pub(crate) fn not_ended(&self) -> &NotEnded {
        &self.0.not_ended
    }

    pub(crate) fn now_us(&self) -> i64 {
        self.0.clock.now_us()
    }

    pub(crate) fn open_row(&self, row: CredentialRow) -> Result<Version, CredentialError> {
        Version::open(row, self.keyring())
    }

    pub(crate) async fn put(&self, version: NewVersion) -> Result<Put, CredentialError> {
        let answer = self.0.versions.submit(version).await;
        let answer =
            answer.map_err(|_| CredentialError::Internal("the queue of versions is gone".to_owned()))?;
        answer.map_err(CredentialError::Store)
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

async fn put(store: Store, all: Vec<NewVersion>) -> Vec<Result<Put, Arc<StoreError>>> {
    let rows: Arc<[NewCredentialVersion]> = all.iter().map(|new| new.row.clone()).collect();
    let all: Arc<[NewVersion]> = all.into();
    let mut left = ATTEMPTS;
    loop {
        left -= 1;
        let (rows, shared) = (Arc::clone(&rows), Arc::clone(&all));
        let stored = store.write("credential_put", move |tx| put_all(tx, rows, shared).boxed()).await;
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
    store::audit(tx, stored().map(|(new, name)| audited(new, name)).collect()).await?;
    store::emit(tx, stored().map(|(new, name)| told(new, name)).collect()).await?;
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

fn told(new: &NewVersion, name: &str) -> Event {
    Event {
        at_us: new.row.at_us,
        kind: "credential.changed",
        subject: format!("credential{name}"),
        body: serde_json::json!({
            "name": name,
            "type": new.row.kind,
            "version": new.row.version,
            "by": new.row.asker.actor,
        }),
    }
}
