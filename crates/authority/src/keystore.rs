//! Keys at rest, and signers made from them.
//!
//! A key's bytes are opened when it is first used and kept for a minute; a key held by a provider (a security module)
//! is never here at all. Whatever else is sealed under the master key is walked by [`KeyStore::rotate_master`] too.

mod masters;

use std::sync::Arc;
use std::time::Duration;

use flight::{Cache, Failed, Fresh};
use futures_util::FutureExt;
use keys::{
    Context, KeyError, KeyProvider, KeyRef, KeyType, Keyring, KeyringError, MasterKey, MasterKeyId,
    OpenError, PrivateKey, SignError, Signer,
};
use parking_lot::RwLock;
use serde_json::json;
use store::{AuditEvent, Clock, KeyRow, SEALED_KEYS, SealedColumn, SealedValue, Store, StoreError, Tx};
use uuid::Uuid;
use x509::SpkiHash;

pub use masters::{MasterKeyUse, ProveError};

/// Names a key in the table `keys`.
pub type KeyId = Uuid;

/// Keys kept open: the authorities of a large house and the accounts at its issuers, several times over.
const OPEN_KEYS_MAX: u64 = 4_096;
/// How long a key stays open, and so how long another node may use a key after it was blocked here.
const OPEN_FOR: Duration = Duration::from_secs(60);
/// Sealed values re-wrapped in one transaction: some 100 KB, well under a second.
const REWRAP_ROWS: usize = 500;
/// The word in key rows for those sealed in the database.
const SEALED: &str = "sealed";

/// Why a key cannot be had.
#[derive(Clone, Debug, thiserror::Error)]
pub enum KeyStoreError {
    /// The row does not exist.
    #[error("there is no key {0}")]
    Unknown(KeyId),
    /// Its use is forbidden.
    #[error("the key {id} is blocked: {reason}")]
    Blocked {
        /// Which.
        id: KeyId,
        /// The reason.
        reason: String,
    },
    /// Its sealed bytes do not open.
    #[error("the key {id}: {error}")]
    Sealed {
        /// Which.
        id: KeyId,
        /// Why.
        error: OpenError,
    },
    /// It is no key, or cannot be made.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The key does not match its row.
    #[error(
        "the key {0} is another one than its row says: the database was tampered with, or restored in part"
    )]
    Swapped(KeyId),
    /// No provider of this name is configured.
    #[error("the key provider {0:?} is not configured")]
    NoProvider(String),
    /// The key never leaves its provider.
    #[error("the key {id} is held by {provider:?}, which does not give keys out")]
    Held {
        /// Which.
        id: KeyId,
        /// The provider that holds the key.
        provider: String,
    },
    /// The provider failed.
    #[error("the key provider {name}: {error}")]
    Provider {
        /// Which.
        name: String,
        /// The last error.
        error: SignError,
    },
    /// An error of the database.
    #[error(transparent)]
    Store(Arc<StoreError>),
}

impl From<StoreError> for KeyStoreError {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}

/// Why the master key was not changed, or not to the end.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    /// The new master key cannot be opened.
    #[error(transparent)]
    Keyring(#[from] KeyringError),
    /// An error of the database. Call again: finished steps are not repeated.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How far a rotation has come.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RotateProgress {
    /// The column being walked, `keys.sealed`.
    pub column: String,
    /// Values re-wrapped so far, in all columns.
    pub done: u64,
    /// Values that needed it when the walk began, in all columns.
    pub total: u64,
}

/// Result of a rotation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rotated {
    /// The master key in use now.
    pub master: MasterKeyId,
    /// Values re-wrapped.
    pub rewrapped: u64,
    /// Values that did not open and stay as they are, `keys.sealed ID: why`, at most a hundred named. While there are
    /// any, keep the old master key.
    pub failed: Vec<String>,
    /// Values still under another master key: 0 when the old one can be forgotten.
    pub remaining: u64,
    /// The same by column.
    pub columns: Vec<RotatedColumn>,
}

/// What a rotation did to one column.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RotatedColumn {
    /// `keys.sealed`.
    pub column: String,
    /// Values re-wrapped.
    pub rewrapped: u64,
    /// Values still under another master key.
    pub remaining: u64,
}

/// Keys at rest. Cheap to clone; the clones share what is open.
#[derive(Clone)]
pub struct KeyStore {
    inner: Arc<KeyStoreState>,
}

struct KeyStoreState {
    store: Store,
    keyring: Arc<Keyring>,
    clock: Clock,
    open: Cache<KeyId, KeyRef, KeyStoreError>,
    providers: RwLock<Vec<Arc<dyn KeyProvider>>>,
    columns: RwLock<Vec<&'static SealedColumn>>,
}

/// A key ready to be stored, in a transaction of the caller's: see [`store::insert_key`].
#[derive(Debug)]
pub struct NewKey {
    /// Its row.
    pub row: KeyRow,
    /// The signer for this key.
    pub signer: KeyRef,
}

impl KeyStore {
    /// Over a database and the master keys.
    #[must_use]
    pub fn new(store: Store, keyring: Keyring, clock: Clock) -> Self {
        let inner = KeyStoreState {
            store,
            keyring: Arc::new(keyring),
            clock,
            open: Cache::with_entries(OPEN_KEYS_MAX),
            providers: RwLock::default(),
            columns: RwLock::new(vec![&SEALED_KEYS]),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The master keys, for whatever else is sealed at rest. Who seals a column also calls [`Self::also_sealed`].
    #[must_use]
    pub fn keyring(&self) -> &Keyring {
        &self.inner.keyring
    }

    /// [`Self::keyring`], for anyone who seals without the rest of this.
    #[must_use]
    pub fn ring(&self) -> Arc<Keyring> {
        Arc::clone(&self.inner.keyring)
    }

    /// Adds what holds keys elsewhere.
    pub fn add_provider(&self, provider: Arc<dyn KeyProvider>) {
        self.inner.providers.write().push(provider);
    }

    /// Another column sealed under the master key: [`Self::rotate_master`] walks it too.
    pub fn also_sealed(&self, column: &'static SealedColumn) {
        let mut columns = self.inner.columns.write();
        let known = columns.iter().any(|known| (known.table, known.column) == (column.table, column.column));
        if !known {
            columns.push(column);
        }
    }

    /// Makes a key, sealed, to be stored by the caller.
    ///
    /// # Errors
    /// [`KeyStoreError::Key`].
    #[crate::boxed]
    pub async fn prepare(&self, kind: KeyType, label: &str) -> Result<NewKey, KeyStoreError> {
        Ok(self.seal(PrivateKey::generate_aside(kind).await?, label))
    }

    /// As [`Self::prepare`], within the provider of this name. When it is not stored, the provider keeps it all the
    /// same.
    ///
    /// # Errors
    /// [`KeyStoreError::NoProvider`], [`KeyStoreError::Provider`].
    #[crate::boxed]
    pub async fn prepare_at(
        &self,
        provider: &str,
        kind: KeyType,
        label: &str,
    ) -> Result<NewKey, KeyStoreError> {
        let provider = self.provider(provider)?;
        let held = provider.generate(kind, label).await;
        let held =
            held.map_err(|error| KeyStoreError::Provider { name: provider.name().to_owned(), error })?;
        let row = self.row(&*held.signer, label, provider.name(), None, Some(held.locator));
        Ok(NewKey { row, signer: held.signer })
    }

    /// A key that came from elsewhere, sealed, to be stored by the caller.
    #[must_use]
    pub fn seal(&self, key: PrivateKey, label: &str) -> NewKey {
        let mut row = self.row(&key, label, SEALED, None, None);
        row.sealed = Some(self.inner.keyring.seal(&context(&row.id), &key.to_pkcs8_der()));
        NewKey { row, signer: Arc::new(key) }
    }

    /// Makes a key and stores it, with its audit row.
    ///
    /// # Errors
    /// [`KeyStoreError`]
    #[crate::boxed]
    pub async fn generate(
        &self,
        kind: KeyType,
        label: &str,
        actor: &str,
    ) -> Result<(KeyId, KeyRef), KeyStoreError> {
        let key = self.prepare(kind, label).await?;
        self.insert(key, "key.generate", actor).await
    }

    /// Stores a key that came from elsewhere, with its audit row. One that is here already keeps its row and label.
    ///
    /// # Errors
    /// [`KeyStoreError`]
    #[crate::boxed]
    pub async fn import(
        &self,
        key: PrivateKey,
        label: &str,
        actor: &str,
    ) -> Result<(KeyId, KeyRef), KeyStoreError> {
        let key = self.seal(key, label);
        self.insert(key, "key.import", actor).await
    }

    async fn insert(
        &self,
        key: NewKey,
        action: &'static str,
        actor: &str,
    ) -> Result<(KeyId, KeyRef), KeyStoreError> {
        let (actor, row) = (actor.to_owned(), key.row);
        let stored = self.inner.store.write("key_insert", |tx| insert(tx, row, action, actor).boxed());
        Ok((stored.await?, key.signer))
    }

    /// The key's signer. Many may ask at once: it is opened once.
    ///
    /// # Errors
    /// [`KeyStoreError`]
    #[crate::boxed]
    pub async fn signer(&self, id: KeyId) -> Result<KeyRef, KeyStoreError> {
        let this = self.clone();
        let open = move || async move {
            let opened = this.open(id).await;
            opened
                .map(|value| Fresh { value, lifetime: OPEN_FOR })
                .map_err(|error| Failed { error, lifetime: Duration::ZERO })
        };
        self.inner.open.fetch(&id, open).await
    }

    /// The private key itself, for what a signer does not do: decrypting, handing a key out. Opened again at each call.
    ///
    /// # Errors
    /// [`KeyStoreError`]; [`KeyStoreError::Held`] when a provider holds it.
    #[crate::boxed]
    pub async fn private_key(&self, id: KeyId) -> Result<PrivateKey, KeyStoreError> {
        self.unseal(&self.usable(id).await?)
    }

    /// Signers of these keys, opened again in one statement and kept by the caller alone; why not, where one cannot be
    /// had. Keys that are not there, or whose use is forbidden, are left out.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn signers(
        &self,
        ids: &[KeyId],
    ) -> Result<Vec<(KeyId, Result<KeyRef, KeyStoreError>)>, StoreError> {
        let rows = store::Keys::of(&self.inner.store).among(ids).await?;
        let mut signers = Vec::with_capacity(rows.len());
        for row in rows.iter().filter(|row| row.blocked_at_us.is_none()) {
            signers.push((row.id, self.signer_of(row).await));
        }
        Ok(signers)
    }

    async fn open(&self, id: KeyId) -> Result<KeyRef, KeyStoreError> {
        self.signer_of(&self.usable(id).await?).await
    }

    /// The key of a row, opened again.
    pub(crate) async fn open_row(&self, row: &KeyRow) -> Result<KeyRef, KeyStoreError> {
        self.signer_of(row).await
    }

    async fn signer_of(&self, row: &KeyRow) -> Result<KeyRef, KeyStoreError> {
        if row.provider == SEALED {
            return Ok(Arc::new(self.unseal(row)?));
        }
        let provider = self.provider(&row.provider)?;
        let opened = provider.open(row.locator.as_deref().unwrap_or_default()).await;
        let signer = opened.map_err(|error| KeyStoreError::Provider { name: row.provider.clone(), error })?;
        if signer.spki() == row.spki { Ok(signer) } else { Err(KeyStoreError::Swapped(row.id)) }
    }

    async fn usable(&self, id: KeyId) -> Result<KeyRow, KeyStoreError> {
        let row = store::Keys::of(&self.inner.store).get(id).await?.ok_or(KeyStoreError::Unknown(id))?;
        match row.blocked_at_us {
            Some(_) => Err(KeyStoreError::Blocked { id, reason: row.blocked_reason.unwrap_or_default() }),
            None => Ok(row),
        }
    }

    fn unseal(&self, row: &KeyRow) -> Result<PrivateKey, KeyStoreError> {
        let id = row.id;
        let held = || KeyStoreError::Held { id, provider: row.provider.clone() };
        let sealed = row.sealed.as_ref().filter(|_| row.provider == SEALED).ok_or_else(held)?;
        let opened = self.inner.keyring.open_sealed(&context(&id), sealed);
        let der = opened.map_err(|error| KeyStoreError::Sealed { id, error })?;
        let key = PrivateKey::from_pkcs8_der(&der)?;
        if key.spki() == row.spki { Ok(key) } else { Err(KeyStoreError::Swapped(id)) }
    }

    /// Forbids the use of a key: here at once, on other nodes within a minute. False when it was forbidden before.
    ///
    /// # Errors
    /// [`KeyStoreError::Store`]; [`KeyStoreError::Unknown`].
    #[crate::boxed]
    pub async fn block(&self, id: KeyId, reason: &str, actor: &str) -> Result<bool, KeyStoreError> {
        if store::Keys::of(&self.inner.store).get(id).await?.is_none() {
            return Err(KeyStoreError::Unknown(id));
        }
        let event = AuditEvent {
            at_us: self.inner.clock.now_us(),
            actor: actor.to_owned(),
            action: "key.block",
            resource: format!("key/{id}"),
            details: json!({ "reason": reason }),
        };
        let reason = reason.to_owned();
        let blocked =
            self.inner.store.write("key_block", move |tx| block(tx, id, reason, event).boxed()).await?;
        self.inner.open.invalidate(&id);
        Ok(blocked)
    }

    fn provider(&self, name: &str) -> Result<Arc<dyn KeyProvider>, KeyStoreError> {
        let providers = self.inner.providers.read();
        let found = providers.iter().find(|provider| provider.name() == name).cloned();
        found.ok_or_else(|| KeyStoreError::NoProvider(name.to_owned()))
    }

    fn row(
        &self,
        key: &dyn Signer,
        label: &str,
        provider: &str,
        sealed: Option<Vec<u8>>,
        locator: Option<String>,
    ) -> KeyRow {
        KeyRow {
            id: Uuid::now_v7(),
            key_type: key.key_type().name().to_owned(),
            spki: key.spki().to_vec(),
            spki_sha256: *SpkiHash::of(key.spki()).as_bytes(),
            provider: provider.to_owned(),
            sealed,
            locator,
            label: label.to_owned(),
            created_at_us: self.inner.clock.now_us(),
            blocked_at_us: None,
            blocked_reason: None,
        }
    }
}

/// Rotation of the master key.
impl KeyStore {
    /// Makes `master` the current master key and re-wraps every sealed value under it, while all goes on: what is not
    /// re-wrapped yet opens under the old one. `progress` is called before each page. Stopped or failed half way, the
    /// next call does the rest. With the master key that is current already it just does what is left over.
    ///
    /// The configuration must name both master keys until `remaining` is 0.
    ///
    /// # Errors
    /// [`RotateError`]
    pub async fn rotate_master(
        &self,
        master: &MasterKey,
        actor: &str,
        progress: impl FnMut(&RotateProgress) + Send,
    ) -> Result<Rotated, RotateError> {
        self.inner.keyring.promote(master)?;
        self.rewrap_all(actor, progress).await
    }

    /// Re-wraps every sealed value that is under an older master key under the current one, as
    /// [`Self::rotate_master`] does. For after a start with another current master key.
    ///
    /// # Errors
    /// [`RotateError::Store`]
    pub async fn rewrap_all(
        &self,
        actor: &str,
        mut progress: impl FnMut(&RotateProgress) + Send,
    ) -> Result<Rotated, RotateError> {
        let id = self.inner.keyring.current();
        self.note_current(false).await?;
        let columns = self.inner.columns.read().clone();
        let head = self.inner.keyring.current_head();
        let mut total = 0;
        for column in &columns {
            total += store::Keys::of(&self.inner.store).sealed_count(column, &head).await?;
        }
        let mut report =
            Rotated { master: id, rewrapped: 0, failed: Vec::new(), remaining: 0, columns: Vec::new() };
        for column in &columns {
            let before = report.rewrapped;
            self.rewrap_column(column, total, &mut report, &mut progress).await?;
            let remaining = store::Keys::of(&self.inner.store).sealed_count(column, &head).await?;
            report.remaining += remaining;
            let (column, rewrapped) = (name_of(column), report.rewrapped - before);
            report.columns.push(RotatedColumn { column, rewrapped, remaining });
        }
        if report.remaining == 0 {
            self.forget_others().await?;
        }
        self.audit_rotation(&report, actor).await?;
        Ok(report)
    }

    async fn rewrap_column(
        &self,
        column: &'static SealedColumn,
        total: u64,
        report: &mut Rotated,
        progress: &mut (impl FnMut(&RotateProgress) + Send),
    ) -> Result<(), RotateError> {
        let head = self.inner.keyring.current_head();
        let name = name_of(column);
        let mut after: Option<Vec<u8>> = None;
        loop {
            progress(&RotateProgress { column: name.clone(), done: report.rewrapped, total });
            let page = store::Keys::of(&self.inner.store)
                .sealed_page(column, after.as_deref(), &head, REWRAP_ROWS)
                .await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.row.clone());
            let replacements = self.rewrap_page(column, page, report);
            let count = replacements.len() as u64;
            let replaced = self.inner.store.write("sealed_replace", move |tx| {
                async move { store::replace_sealed(tx, column, replacements).await }.boxed()
            });
            replaced.await?;
            report.rewrapped += count;
        }
    }

    fn rewrap_page(
        &self,
        column: &SealedColumn,
        page: Vec<SealedValue>,
        report: &mut Rotated,
    ) -> Vec<(SealedValue, Vec<u8>)> {
        const NAMED: usize = 100;
        let mut replacements = Vec::with_capacity(page.len());
        for value in page {
            let context = Context { table: column.table, row: &value.row, column: column.column };
            match self.inner.keyring.rewrap(&context, &value.sealed) {
                Ok(new) => replacements.push((value, new)),
                Err(error) if report.failed.len() < NAMED => {
                    let row = Uuid::from_slice(&value.row).map_or_else(
                        |_| String::from_utf8_lossy(&value.row).into_owned(),
                        |id| id.to_string(),
                    );
                    report.failed.push(format!("{}.{} {row}: {error}", column.table, column.column));
                }
                Err(_) => {}
            }
        }
        replacements
    }

    async fn audit_rotation(&self, report: &Rotated, actor: &str) -> Result<(), StoreError> {
        let event = AuditEvent {
            at_us: self.inner.clock.now_us(),
            actor: actor.to_owned(),
            action: "master_key.rotate",
            resource: format!("master_key/{}", report.master),
            details: json!({ "rewrapped": report.rewrapped, "remaining": report.remaining }),
        };
        let written =
            self.inner.store.write("master_key_rotated", move |tx| store::audit(tx, vec![event]).boxed());
        written.await
    }
}

impl std::fmt::Debug for KeyStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyStore").field("keyring", &self.inner.keyring).finish_non_exhaustive()
    }
}

/// `keys.sealed`.
fn name_of(column: &SealedColumn) -> String {
    format!("{}.{}", column.table, column.column)
}

/// What a sealed key is bound to.
fn context(id: &KeyId) -> Context<'_> {
    Context { table: SEALED_KEYS.table, row: id.as_bytes(), column: SEALED_KEYS.column }
}

/// Stores a key and its audit row, in the caller's transaction. The id of the row that holds the key.
pub(crate) async fn insert(
    tx: &mut Tx,
    row: KeyRow,
    action: &'static str,
    actor: String,
) -> Result<KeyId, StoreError> {
    let id = store::insert_key(tx, &row).await?;
    let event = AuditEvent {
        at_us: row.created_at_us,
        actor,
        action,
        resource: format!("key/{id}"),
        details: json!({
            "key_type": row.key_type,
            "provider": row.provider,
            "label": row.label,
            "spki_sha256": SpkiHash::from_bytes(row.spki_sha256).to_string(),
            "known_before": id != row.id,
        }),
    };
    store::audit(tx, vec![event]).await?;
    Ok(id)
}

async fn block(tx: &mut Tx, id: KeyId, reason: String, event: AuditEvent) -> Result<bool, StoreError> {
    let blocked = store::block_stored_key(tx, id, event.at_us, &reason).await?;
    if blocked {
        store::audit(tx, vec![event]).await?;
    }
    Ok(blocked)
}
