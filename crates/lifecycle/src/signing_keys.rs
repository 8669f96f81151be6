//! Private keys that the key service uses for managed certificates: the keys of all valid versions.
//!
//! Encrypted keys are decrypted in this process and never leave it. Keys of a provider stay at the provider.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use authority::keystore::{KeyId, KeyStore};
use keys::KeyRef;
use store::{Clock, Store, StoreError};

use crate::tables;
use crate::tables::managed::{SigningKeyRow, SigningKeysBy};

/// Maximum number of keys of managed certificates per key service. Each takes 2 to 5 KB.
pub const SIGNING_KEYS_MAX: usize = 100_000;
/// Interval between complete loads of all certificates. A key may still sign for up to this time after its certificate was revoked
/// or removed, or the key was blocked. New keys are found by every call of `refresh`.
pub const WALK_EVERY: Duration = Duration::from_secs(60);
/// Maximum rows of a page, and maximum keys loaded by one statement.
const PAGE: usize = 1_000;

/// Reason why the keys of managed certificates cannot be loaded. Keys loaded before stay available.
#[derive(Debug, thiserror::Error)]
pub enum SigningKeysError {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There are more keys than the maximum.
    #[error("managed certificates have more than {SIGNING_KEYS_MAX} keys, the maximum of one key service")]
    TooMany,
}

/// Result of an update of the signing keys.
#[derive(Debug, Default)]
pub struct SigningKeysUpdate {
    /// All keys with the names of their certificates. `None` if nothing changed since the last call.
    pub keys: Option<Vec<(String, KeyRef)>>,
    /// Keys that cannot be opened, with the reason. Each is reported once.
    pub broken: Vec<(KeyId, String)>,
}

/// Private keys of all valid versions in one database. [`SigningKeys::refresh`] loads new keys.
pub struct SigningKeys {
    store: Store,
    keystore: KeyStore,
    clock: Clock,
    rows: HashSet<SigningKeyRow>,
    open: HashMap<KeyId, KeyRef>,
    broken: HashSet<KeyId>,
    /// Row id of the newest version whose key is already loaded.
    newest: i64,
    walked: Option<Instant>,
    walk_every: Duration,
}

impl std::fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKeys").field("open", &self.open.len()).finish_non_exhaustive()
    }
}

impl SigningKeys {
    /// Creates an empty set of keys for this database.
    #[must_use]
    pub fn new(store: Store, keystore: KeyStore, clock: Clock) -> Self {
        let (rows, open, broken) = (HashSet::new(), HashMap::new(), HashSet::new());
        let (newest, walked, walk_every) = (0, None, WALK_EVERY);
        Self { store, keystore, clock, rows, open, broken, newest, walked, walk_every }
    }

    /// Sets the interval between complete loads of all keys. Default: [`WALK_EVERY`].
    #[must_use]
    pub fn with_walk_interval(self, walk_every: Duration) -> Self {
        Self { walk_every, ..self }
    }

    /// Returns the number of keys that failed to open.
    #[must_use]
    pub fn broken(&self) -> usize {
        self.broken.len()
    }

    /// Loads new keys. Loads all keys again when the interval of [`SigningKeys::with_walk_interval`] has passed.
    ///
    /// # Errors
    /// [`SigningKeysError`]. Keys loaded before stay available.
    ///
    /// # Cancellation
    /// Keys loaded before stay available.
    #[crate::boxed]
    pub async fn refresh(&mut self) -> Result<SigningKeysUpdate, SigningKeysError> {
        let is_due = self.walked.is_none_or(|walked| walked.elapsed() >= self.walk_every);
        let mut update = if is_due { self.walk().await? } else { self.load_new_keys().await? };
        if update.keys.is_some() {
            let named =
                |row: &SigningKeyRow| Some((row.certificate.clone(), self.open.get(&row.key)?.clone()));
            update.keys = Some(self.rows.iter().filter_map(named).collect());
        }
        Ok(update)
    }

    async fn walk(&mut self) -> Result<SigningKeysUpdate, SigningKeysError> {
        // Read before the complete load, so that the next call finds versions added meanwhile.
        let newest = tables::Managed::of(&self.store).newest_version().await?;
        let (rows, _) = self.after(SigningKeysBy::Certificate, 0, HashSet::new()).await?;
        let update = self.take(rows, true).await?;
        (self.newest, self.walked) = (newest, Some(Instant::now()));
        Ok(update)
    }

    async fn load_new_keys(&mut self) -> Result<SigningKeysUpdate, SigningKeysError> {
        let (rows, newest) = self.after(SigningKeysBy::Version, self.newest, self.rows.clone()).await?;
        let update = self.take(rows, false).await?;
        self.newest = newest;
        Ok(update)
    }

    /// Appends all rows with an id above `after` to the given rows. Returns the id of the last row.
    async fn after(
        &self,
        by: SigningKeysBy,
        mut after: i64,
        mut rows: HashSet<SigningKeyRow>,
    ) -> Result<(HashSet<SigningKeyRow>, i64), SigningKeysError> {
        loop {
            let page =
                tables::Managed::of(&self.store).signing_keys(by, after, PAGE, self.clock.now_us()).await?;
            rows.extend(page.keys);
            if rows.len() > SIGNING_KEYS_MAX {
                return Err(SigningKeysError::TooMany);
            }
            let Some(next) = page.next else { return Ok((rows, after)) };
            after = next;
        }
    }

    /// Opens new keys, and closes keys that are not in `rows`. With `retry_broken`, also retries keys that failed to open.
    async fn take(
        &mut self,
        rows: HashSet<SigningKeyRow>,
        retry_broken: bool,
    ) -> Result<SigningKeysUpdate, SigningKeysError> {
        let ids: HashSet<KeyId> = rows.iter().map(|row| row.key).collect();
        let is_missing =
            |id: &KeyId| !self.open.contains_key(id) && (retry_broken || !self.broken.contains(id));
        let missing: Vec<KeyId> = ids.iter().copied().filter(is_missing).collect();
        let (mut opened, mut broken) = (HashMap::new(), Vec::new());
        for some in missing.chunks(PAGE) {
            for (id, signer) in self.keystore.signers(some).await? {
                match signer {
                    Ok(signer) => drop(opened.insert(id, signer)),
                    Err(error) => broken.push((id, error.to_string())),
                }
            }
        }
        // No await from here on, so cancellation cannot leave partial changes.
        let is_other = rows != self.rows || !opened.is_empty();
        self.rows = rows;
        self.open.extend(opened);
        self.open.retain(|id, _| ids.contains(id));
        broken.retain(|(id, _)| !self.broken.contains(id));
        let reported: HashSet<KeyId> = broken.iter().map(|(id, _)| *id).collect();
        self.broken.retain(|id| ids.contains(id) && !self.open.contains_key(id));
        self.broken.extend(reported);
        Ok(SigningKeysUpdate { keys: is_other.then(Vec::new), broken })
    }
}
