//! Stored private keys, and signers for them.
//!
//! A key is decrypted at its first use and cached for one minute. A key in a provider (a security module) is never in this process.
//! [`KeyStore::rotate_master`] also re-encrypts all other data that is encrypted under the master key.

mod masters;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use db::{Cursor, Value};
use flight::{Cache, Failed, Fresh};
use futures_util::FutureExt;
use keys::{
    Context, KeyError, KeyProvider, KeyRef, KeyType, Keyring, KeyringError, MasterKeyId, MasterKeySource,
    OpenError, PrivateKey, SignError, Signer,
};
use parking_lot::RwLock;
use serde_json::json;
use shared::Shared;
use store::{AuditEvent, Clock, KeyRow, SEALED_KEYS, SealedColumn, SealedValue, Store, StoreError, Tx};
use uuid::Uuid;
use x509::SpkiHash;

pub use masters::{MasterKeyCheckError, MasterKeyUse};

/// Identifier of a key in the table `keys`.
pub type KeyId = Uuid;

/// Maximum number of cached keys: several times the number of CAs and issuer accounts of a large organization.
const OPEN_KEYS_MAX: u64 = 4_096;
/// Lifetime of a cached key. After a key is blocked on one node, other nodes may use it for this time.
const CACHE_LIFETIME: Duration = Duration::from_secs(60);
/// Maximum number of values to re-wrap in one transaction. 500 values have about 100 KB and take well under a second.
const REWRAP_ROWS: usize = 500;
/// Encryption context of pagination cursors. Encrypted cursors are never stored.
const HIDDEN_CURSOR: Context<'static> = Context { table: "hidden", row: &[], column: "cursor" };
/// Provider name in the rows of keys that are stored encrypted in the database.
const SEALED: &str = "sealed";

/// Reason why a key is not available.
#[derive(Clone, Debug, thiserror::Error)]
pub enum KeyStoreError {
    /// No key with this identifier is stored.
    #[error("unknown key {0}")]
    Unknown(KeyId),
    /// The key is blocked.
    #[error("the key {id} is blocked: {reason}")]
    Blocked {
        /// Identifier of the blocked key.
        id: KeyId,
        /// Reason why the key is blocked.
        reason: String,
    },
    /// The key cannot be decrypted.
    #[error("cannot open the key {id}: {error}")]
    Sealed {
        /// Identifier of the key that cannot be decrypted.
        id: KeyId,
        /// Error of the decryption.
        error: OpenError,
    },
    /// The data is not a valid key, or the key cannot be generated.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The key does not match its row.
    #[error(
        "the key {0} does not match its database row: the database was tampered with, or partially restored"
    )]
    Swapped(KeyId),
    /// No provider of this name is configured.
    #[error("the key provider {0:?} is not configured")]
    NoProvider(String),
    /// The key cannot be exported from its provider.
    #[error("the key {id} is in {provider:?}, which does not export keys")]
    NotExportable {
        /// Identifier of the key that cannot be exported.
        id: KeyId,
        /// Name of the provider that stores the key.
        provider: String,
    },
    /// The key provider failed.
    #[error("the key provider {name}: {error}")]
    Provider {
        /// Name of the provider that failed.
        name: String,
        /// Error of the provider.
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

/// Reason why the master key was not changed, or not completely.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    /// The new master key cannot be used.
    #[error(transparent)]
    Keyring(#[from] KeyringError),
    /// An error of the database. Repeat the call; finished steps are not repeated.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Progress of a rotation of the master key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RotationProgress {
    /// Column in progress, such as `keys.sealed`.
    pub column: String,
    /// Number of values re-wrapped so far, in all columns.
    pub done: u64,
    /// Number of values to re-wrap, counted at the start, in all columns.
    pub total: u64,
}

/// Result of [`KeyStore::rotate_master`] or [`KeyStore::rewrap_all`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RotationResult {
    /// Current master key, under which new values are encrypted.
    pub master: MasterKeyId,
    /// Number of re-wrapped values.
    pub rewrapped: u64,
    /// Values that could not be decrypted and were not changed, as `keys.sealed ID: reason`; at most 100. While the list is not
    /// empty, keep the old master key.
    pub failed: Vec<String>,
    /// Number of values still encrypted under another master key. At 0 the old master key may be removed.
    pub remaining: u64,
    /// Numbers of re-wrapped and remaining values, one entry per column.
    pub columns: Vec<RotatedColumn>,
}

/// The result of a rotation for one column.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RotatedColumn {
    /// Table and column, such as `keys.sealed`.
    pub column: String,
    /// Number of re-wrapped values.
    pub rewrapped: u64,
    /// Number of values still encrypted under another master key.
    pub remaining: u64,
}

/// The store of private keys, which are encrypted in the database or stored in a key provider. Clones are cheap and share the
/// cache.
#[derive(Clone)]
pub struct KeyStore {
    inner: Shared<KeyStoreState>,
}

struct KeyStoreState {
    store: Store,
    keyring: Arc<Keyring>,
    clock: Clock,
    open: Cache<KeyId, KeyRef, KeyStoreError>,
    providers: RwLock<Vec<Arc<dyn KeyProvider>>>,
    columns: RwLock<Vec<&'static SealedColumn>>,
}

/// A new or imported key that the caller stores in its own transaction: see [`store::insert_key`].
#[derive(Debug)]
pub struct NewKey {
    /// Database row of the key.
    pub row: KeyRow,
    /// Signer for the key, usable before the row is stored.
    pub signer: KeyRef,
}

impl KeyStore {
    /// Creates a key store with a database and the master keys.
    #[must_use]
    pub fn new(store: Store, keyring: Keyring, clock: Clock) -> Self {
        let inner = KeyStoreState {
            store,
            keyring: Arc::new(keyring),
            clock,
            open: Cache::with_entries_max(OPEN_KEYS_MAX),
            providers: RwLock::default(),
            columns: RwLock::new(vec![&SEALED_KEYS]),
        };
        Self { inner: Shared::new(inner) }
    }

    /// Returns the master keys, to encrypt other data at rest. If you encrypt a column with them, also call
    /// [`Self::register_sealed_column`].
    #[must_use]
    pub fn keyring(&self) -> &Keyring {
        &self.inner.keyring
    }

    /// Encrypts a pagination cursor that contains the key of a row which the caller may not see. [`Self::reveal_cursor`] decrypts
    /// the cursor.
    #[must_use]
    pub fn hide_cursor(&self, cursor: &Cursor) -> Cursor {
        let sealed = self.keyring().seal(&HIDDEN_CURSOR, cursor.to_string().as_bytes());
        Cursor::new(HIDDEN_CURSOR.table, &[Value::Text(URL_SAFE_NO_PAD.encode(sealed))])
    }

    /// Decrypts a cursor of [`Self::hide_cursor`]. Returns any other cursor unchanged.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`] for an encrypted cursor that this server did not make.
    pub fn reveal_cursor(&self, cursor: &Cursor) -> Result<Cursor, StoreError> {
        let Ok(key) = cursor.key(HIDDEN_CURSOR.table, &[Value::Text(String::new())]) else {
            return Ok(cursor.clone());
        };
        let [Value::Text(sealed)] = &key[..] else { return Err(StoreError::BadCursor) };
        let sealed = URL_SAFE_NO_PAD.decode(sealed).map_err(|_| StoreError::BadCursor)?;
        let opened = self.keyring().open_sealed(&HIDDEN_CURSOR, &sealed);
        let opened = opened.map_err(|_| StoreError::BadCursor)?;
        std::str::from_utf8(&opened).map_err(|_| StoreError::BadCursor)?.parse()
    }

    /// Returns the master keys as a shared handle, for code that encrypts data without access to this store.
    #[must_use]
    pub fn ring(&self) -> Arc<Keyring> {
        Arc::clone(&self.inner.keyring)
    }

    /// Adds a key provider, such as a security module. Keys in this provider are then available under the provider's name.
    pub fn add_provider(&self, provider: Arc<dyn KeyProvider>) {
        self.inner.providers.write().push(provider);
    }

    /// Registers another column that is encrypted under the master key, so that [`Self::rotate_master`] re-wraps it too.
    pub fn register_sealed_column(&self, column: &'static SealedColumn) {
        let mut columns = self.inner.columns.write();
        let known = columns.iter().any(|known| (known.table, known.column) == (column.table, column.column));
        if !known {
            columns.push(column);
        }
    }

    /// Generates a key and encrypts it. The caller stores the result.
    ///
    /// # Errors
    /// [`KeyStoreError::Key`].
    #[crate::boxed]
    pub async fn prepare(&self, kind: KeyType, label: &str) -> Result<NewKey, KeyStoreError> {
        Ok(self.seal(PrivateKey::generate_in_background(kind).await?, label))
    }

    /// Generates a key like [`Self::prepare`], in the provider of this name. The provider keeps the key even if the caller does not
    /// store it.
    ///
    /// # Errors
    /// [`KeyStoreError::NoProvider`], [`KeyStoreError::Provider`].
    #[crate::boxed]
    pub async fn prepare_in_provider(
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

    /// Encrypts an imported key. The caller stores the result.
    #[must_use]
    pub fn seal(&self, key: PrivateKey, label: &str) -> NewKey {
        let mut row = self.row(&key, label, SEALED, None, None);
        row.sealed = Some(self.inner.keyring.seal(&context(&row.id), &key.to_pkcs8_der()));
        NewKey { row, signer: Arc::new(key) }
    }

    /// Generates and stores a key, with an audit event.
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

    /// Stores an imported key, with an audit event. If the key already exists, its row and label are not changed.
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

    /// Returns the signer for a key. Concurrent calls decrypt the key only once.
    ///
    /// # Errors
    /// [`KeyStoreError`]
    #[crate::boxed]
    pub async fn signer(&self, id: KeyId) -> Result<KeyRef, KeyStoreError> {
        let this = self.clone();
        let open = move || async move {
            let opened = this.open(id).await;
            opened
                .map(|value| Fresh { value, lifetime: CACHE_LIFETIME })
                .map_err(|error| Failed { error, lifetime: Duration::ZERO })
        };
        self.inner.open.fetch(&id, open).await
    }

    /// Returns the private key itself, for purposes other than signing, such as decryption or export. Each call decrypts it again.
    ///
    /// # Errors
    /// [`KeyStoreError`]; [`KeyStoreError::NotExportable`] if the key is in a provider.
    #[crate::boxed]
    pub async fn private_key(&self, id: KeyId) -> Result<PrivateKey, KeyStoreError> {
        self.unseal(&self.usable_row(id).await?)
    }

    /// Returns signers for several keys. Reads all of them in one database statement and bypasses the cache. Each result is a
    /// signer or an error. Keys that do not exist or are blocked are omitted.
    ///
    /// # Errors
    /// Fails if the database fails.
    #[crate::boxed]
    pub async fn signers(
        &self,
        ids: &[KeyId],
    ) -> Result<Vec<(KeyId, Result<KeyRef, KeyStoreError>)>, StoreError> {
        let rows = store::Keys::of(&self.inner.store).among(ids).await?;
        let mut signers = Vec::with_capacity(rows.len());
        for row in rows.iter().filter(|row| row.blocked_at_us.is_none()) {
            signers.push((row.id, self.open_signer(row).await));
        }
        Ok(signers)
    }

    async fn open(&self, id: KeyId) -> Result<KeyRef, KeyStoreError> {
        self.open_signer(&self.usable_row(id).await?).await
    }

    /// Decrypts the key of a row without the cache.
    pub(crate) async fn open_row(&self, row: &KeyRow) -> Result<KeyRef, KeyStoreError> {
        self.open_signer(row).await
    }

    async fn open_signer(&self, row: &KeyRow) -> Result<KeyRef, KeyStoreError> {
        if row.provider == SEALED {
            return Ok(Arc::new(self.unseal(row)?));
        }
        let provider = self.provider(&row.provider)?;
        let opened = provider.open(row.locator.as_deref().unwrap_or_default()).await;
        let signer = opened.map_err(|error| KeyStoreError::Provider { name: row.provider.clone(), error })?;
        if signer.spki() == row.spki { Ok(signer) } else { Err(KeyStoreError::Swapped(row.id)) }
    }

    async fn usable_row(&self, id: KeyId) -> Result<KeyRow, KeyStoreError> {
        let row = store::Keys::of(&self.inner.store).get(id).await?.ok_or(KeyStoreError::Unknown(id))?;
        match row.blocked_at_us {
            Some(_) => Err(KeyStoreError::Blocked { id, reason: row.blocked_reason.unwrap_or_default() }),
            None => Ok(row),
        }
    }

    fn unseal(&self, row: &KeyRow) -> Result<PrivateKey, KeyStoreError> {
        let id = row.id;
        let held = || KeyStoreError::NotExportable { id, provider: row.provider.clone() };
        let sealed = row.sealed.as_ref().filter(|_| row.provider == SEALED).ok_or_else(held)?;
        let opened = self.inner.keyring.open_sealed(&context(&id), sealed);
        let der = opened.map_err(|error| KeyStoreError::Sealed { id, error })?;
        let key = PrivateKey::from_pkcs8_der(&der)?;
        if key.spki() == row.spki { Ok(key) } else { Err(KeyStoreError::Swapped(id)) }
    }

    /// Blocks a key, immediately on this node and within one minute on other nodes. Returns false if it was already blocked.
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
    /// Makes `master` the current master key and re-wraps every encrypted value under it, without downtime: values that are not yet
    /// re-wrapped are decrypted with the old master key. `progress` is called before each batch of values. If the rotation is
    /// interrupted, the next call continues it. If `master` is already current, only the remaining values are re-wrapped.
    ///
    /// The configuration must contain both master keys until `remaining` is 0.
    ///
    /// # Errors
    /// [`RotateError`]
    pub async fn rotate_master(
        &self,
        master: &MasterKeySource,
        actor: &str,
        progress: impl FnMut(&RotationProgress) + Send,
    ) -> Result<RotationResult, RotateError> {
        self.inner.keyring.promote(master)?;
        self.rewrap_all(actor, progress).await
    }

    /// Re-wraps every value that is encrypted under an older master key, as [`Self::rotate_master`] does. Call it after a restart
    /// with a different current master key.
    ///
    /// # Errors
    /// [`RotateError::Store`]
    pub async fn rewrap_all(
        &self,
        actor: &str,
        mut progress: impl FnMut(&RotationProgress) + Send,
    ) -> Result<RotationResult, RotateError> {
        let id = self.inner.keyring.current();
        self.record_current_master_key(false).await?;
        let columns = self.inner.columns.read().clone();
        let head = self.inner.keyring.current_header();
        let mut total = 0;
        for column in &columns {
            total += store::Keys::of(&self.inner.store).sealed_count(column, &head).await?;
        }
        let mut report = RotationResult {
            master: id,
            rewrapped: 0,
            failed: Vec::new(),
            remaining: 0,
            columns: Vec::new(),
        };
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
        report: &mut RotationResult,
        progress: &mut (impl FnMut(&RotationProgress) + Send),
    ) -> Result<(), RotateError> {
        let head = self.inner.keyring.current_header();
        let name = name_of(column);
        let mut after: Option<Vec<u8>> = None;
        loop {
            progress(&RotationProgress { column: name.clone(), done: report.rewrapped, total });
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
        report: &mut RotationResult,
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

    async fn audit_rotation(&self, report: &RotationResult, actor: &str) -> Result<(), StoreError> {
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

/// Returns the name of a column, such as `keys.sealed`.
fn name_of(column: &SealedColumn) -> String {
    format!("{}.{}", column.table, column.column)
}

/// Returns the encryption context of a key.
fn context(id: &KeyId) -> Context<'_> {
    Context { table: SEALED_KEYS.table, row: id.as_bytes(), column: SEALED_KEYS.column }
}

/// Stores a key and its audit event in the caller's transaction. Returns the identifier of the row that contains the key.
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
