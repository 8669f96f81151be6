//! Secrets encrypted at rest: envelope encryption under master keys.
//!
//! Every secret has a data key of its own (AES-256-GCM). The data key is wrapped under a master key (AES-256-GCM too). Both layers
//! are bound to the table, row and column of the secret, so a sealed value that was moved elsewhere does not open. A change of the
//! master key only re-wraps the data keys ([`Keyring::rewrap`]).
//!
//! A sealed value is 97 bytes longer than its secret:
//!
//! | bytes | content |
//! | --- | --- |
//! | 1 | version, 1 |
//! | 8 | id of the master key |
//! | 12 | nonce of the wrapping |
//! | 48 | the data key, wrapped, with its tag |
//! | 12 | nonce of the secret |
//! | rest | the secret, encrypted, with its tag of 16 |

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use aws_lc_rs::hmac;
use parking_lot::RwLock;
use zeroize::Zeroizing;

pub use crate::master::{
    Argon2Cost, KeyringError, MasterKeyId, MasterKeySource, MissingFileAction, PassphraseSource,
    UnwrappedKey, Wrapper,
};
use crate::master::{KEY, MASTER_KEY_ID as ID, id_of};
use crate::random::random;

const VERSION: u8 = 1;
const NONCE: usize = 12;
const TAG: usize = 16;
/// Bytes of the version and the master key id.
const HEAD: usize = 1 + ID;
const WRAPPED: usize = NONCE + KEY + TAG;
/// Bytes by which a sealed value is longer than its secret.
pub const OVERHEAD: usize = HEAD + WRAPPED + NONCE + TAG;
/// Maximum number of master keys in a keyring: the current key, and the keys of unfinished rotations.
const MASTERS_MAX: usize = 16;
/// Plaintext of a canary.
const CANARY: &[u8] = b"bulla canary 1";

/// Table, row and column of a secret. The ciphertext is bound to them and does not open elsewhere.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Context<'a> {
    /// Name of the database table.
    pub table: &'a str,
    /// The row's primary key.
    pub row: &'a [u8],
    /// Name of the column in `table`.
    pub column: &'a str,
}

/// Reason why a sealed value cannot be opened.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum OpenError {
    /// The value was not written by [`Keyring::seal`], or was truncated.
    #[error("the stored value is not in the sealed format, or is truncated")]
    Malformed,
    /// The value is sealed under a master key that is not on this keyring.
    #[error("sealed with the master key {0}, which is not configured; add it to the older master keys")]
    UnknownMaster(MasterKeyId),
    /// The value was changed, or moved from another table, row or column.
    #[error("the sealed value was changed, or belongs to another table, row or column")]
    Forged,
}

/// Configuration of a keyring: the sources of its master keys.
#[derive(Debug)]
pub struct KeyringConfig {
    /// Master key that seals new values.
    pub current: MasterKeySource,
    /// Older master keys. They open the values that were sealed under them, until those are re-wrapped.
    pub older: Vec<MasterKeySource>,
}

/// The master keys in memory, shared by all threads. A new current master key can be added at any time.
pub struct Keyring {
    masters: RwLock<MasterKeys>,
}

struct MasterKeys {
    /// All master keys, the current one first.
    all: Vec<Arc<LoadedMasterKey>>,
}

struct LoadedMasterKey {
    id: MasterKeyId,
    key: RandomizedNonceKey,
    /// Key from which keys for other purposes are derived. This key itself is derived from the master key.
    deriving: hmac::Key,
}

impl LoadedMasterKey {
    fn new(secret: &[u8; KEY]) -> Self {
        let key = RandomizedNonceKey::new(&AES_256_GCM, secret).expect("32 octets are an AES-256 key");
        let root = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), b"bulla derived keys 1");
        Self { id: id_of(secret), key, deriving: hmac::Key::new(hmac::HMAC_SHA256, root.as_ref()) }
    }

    fn derived(&self, purpose: &str) -> hmac::Key {
        let secret = hmac::sign(&self.deriving, purpose.as_bytes());
        hmac::Key::new(hmac::HMAC_SHA256, secret.as_ref())
    }
}

impl Keyring {
    /// Loads the master keys. A passphrase is stretched by argon2id, which takes up to a second on this thread.
    ///
    /// # Errors
    /// [`KeyringError`] if any master key cannot be loaded.
    pub fn open(config: &KeyringConfig) -> Result<Self, KeyringError> {
        let mut all = vec![Arc::new(LoadedMasterKey::new(&*config.current.load()?))];
        for older in &config.older {
            let master = LoadedMasterKey::new(&*older.load()?);
            if all.iter().all(|known| known.id != master.id) {
                all.push(Arc::new(master));
            }
        }
        if all.len() > MASTERS_MAX {
            return Err(KeyringError::TooMany(MASTERS_MAX));
        }
        Ok(Self { masters: RwLock::new(MasterKeys { all }) })
    }

    /// Creates a keyring with one random master key that is not stored: for tests, and for secrets that need not outlive the
    /// process.
    #[must_use]
    pub fn ephemeral() -> Self {
        let secret = random::<KEY>();
        Self { masters: RwLock::new(MasterKeys { all: vec![Arc::new(LoadedMasterKey::new(&secret))] }) }
    }

    /// Returns the id of the master key that seals new values.
    #[must_use]
    pub fn current(&self) -> MasterKeyId {
        self.masters.read().all[0].id
    }

    /// Returns the header (version and id of the current master key) of newly sealed values. A database query uses this header to
    /// find values under other master keys.
    #[must_use]
    pub fn current_header(&self) -> [u8; HEAD] {
        let mut head = [VERSION; HEAD];
        head[1..].copy_from_slice(&self.current().0);
        head
    }

    /// Returns the ids of all master keys on the keyring, the current one first.
    #[must_use]
    pub fn masters(&self) -> Vec<MasterKeyId> {
        self.masters.read().all.iter().map(|master| master.id).collect()
    }

    /// Returns the id of the current master key, and a canary: a known text sealed under that key. A process that can open the
    /// stored canary has the right key, and does not need to write anything for this check.
    #[must_use]
    pub fn canary(&self) -> (MasterKeyId, Vec<u8>) {
        let id = self.current();
        (id, self.seal(&canary_context(&id), CANARY))
    }

    /// Checks that this keyring has master key `id`, and that this key opens `canary`. Returns `false` if the key is missing.
    ///
    /// # Errors
    /// [`OpenError::Forged`] or [`OpenError::Malformed`] if the key is present and the canary was changed.
    pub fn proves(&self, id: MasterKeyId, canary: &[u8]) -> Result<bool, OpenError> {
        if !self.masters().contains(&id) {
            return Ok(false);
        }
        if Self::master_key_id_of(canary) != Some(id) {
            return Err(OpenError::Forged);
        }
        let text = self.open_sealed(&canary_context(&id), canary)?;
        if text.as_slice() == CANARY { Ok(true) } else { Err(OpenError::Forged) }
    }

    /// Makes another master key the current one, and returns its id. The earlier keys still open their values. Promoting the
    /// current key changes nothing.
    ///
    /// # Errors
    /// [`KeyringError`]
    pub fn promote(&self, master: &MasterKeySource) -> Result<MasterKeyId, KeyringError> {
        let master = Arc::new(LoadedMasterKey::new(&*master.load()?));
        let id = master.id;
        let all = &mut self.masters.write().all;
        all.retain(|known| known.id != id);
        if all.len() >= MASTERS_MAX {
            return Err(KeyringError::TooMany(MASTERS_MAX));
        }
        all.insert(0, master);
        Ok(id)
    }

    /// Removes an older master key from the keyring. Values that are sealed under it can no longer be opened. Returns `false` if
    /// the key is the current one or not on the keyring.
    pub fn forget(&self, id: MasterKeyId) -> bool {
        let all = &mut self.masters.write().all;
        let at = all.iter().skip(1).position(|master| master.id == id);
        at.map(|at| all.remove(at + 1)).is_some()
    }

    /// Seals a secret for one table, row and column. A master key may wrap 2^32 data keys (NIST SP 800-38D section 8.3) and must be
    /// rotated before that.
    #[must_use]
    pub fn seal(&self, context: &Context<'_>, plaintext: &[u8]) -> Vec<u8> {
        let master = Arc::clone(&self.masters.read().all[0]);
        let data_key = random::<KEY>();
        let mut sealed = Vec::with_capacity(plaintext.len() + OVERHEAD);
        sealed.push(VERSION);
        sealed.extend_from_slice(&master.id.0);
        wrap(&master, context, &data_key, &mut sealed);
        let nonce_at = sealed.len();
        sealed.extend_from_slice(&[0; NONCE]);
        sealed.extend_from_slice(plaintext);
        let cipher = RandomizedNonceKey::new(&AES_256_GCM, &*data_key).expect("32 octets are a key");
        let aad = Aad::from(bound(context, "secret", None));
        let text = &mut sealed[nonce_at + NONCE..];
        let (nonce, tag) = cipher.seal_in_place_separate_tag(aad, text).expect("AES-GCM seals");
        sealed[nonce_at..nonce_at + NONCE].copy_from_slice(nonce.as_ref());
        sealed.extend_from_slice(tag.as_ref());
        sealed
    }

    /// Opens a secret that was sealed for this context.
    ///
    /// # Errors
    /// [`OpenError`]
    pub fn open_sealed(&self, context: &Context<'_>, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        let parts = Parts::read(sealed)?;
        let data_key = self.unwrap(context, &parts)?;
        let cipher = RandomizedNonceKey::new(&AES_256_GCM, &*data_key).expect("32 octets are a key");
        let (nonce, text) = parts.secret.split_at(NONCE);
        let aad = Aad::from(bound(context, "secret", None));
        let mut text = Zeroizing::new(text.to_vec());
        let length = open_in_place(&cipher, nonce, aad, &mut text)?;
        text.truncate(length);
        Ok(text)
    }

    /// Returns whether a value is sealed under the current master key.
    #[must_use]
    pub fn is_current(&self, sealed: &[u8]) -> bool {
        Parts::read(sealed).is_ok_and(|parts| parts.master == self.current())
    }

    /// Computes an HMAC-SHA-256 over the message, under a key derived from the current master key and `purpose`.
    #[must_use]
    pub fn mac(&self, purpose: &str, message: &[u8]) -> [u8; 32] {
        let master = Arc::clone(&self.masters.read().all[0]);
        let mut code = [0; 32];
        code.copy_from_slice(hmac::sign(&master.derived(purpose), message).as_ref());
        code
    }

    /// Checks a code of [`Self::mac`], under the current master key or any older one.
    #[must_use]
    pub fn verify_mac(&self, purpose: &str, message: &[u8], code: &[u8]) -> bool {
        let masters = self.masters.read().all.clone();
        masters.iter().any(|master| hmac::verify(&master.derived(purpose), message, code).is_ok())
    }

    /// Returns the master key id in the first 9 bytes of a sealed value.
    #[must_use]
    pub fn master_key_id_of_header(head: &[u8]) -> Option<MasterKeyId> {
        let (version, id) = head.split_first()?;
        (*version == VERSION).then_some(())?;
        <[u8; ID]>::try_from(id).ok().map(MasterKeyId)
    }

    /// Returns the id of the master key that a value is sealed under. `None` if the bytes are not a sealed value.
    #[must_use]
    pub fn master_key_id_of(sealed: &[u8]) -> Option<MasterKeyId> {
        Parts::read(sealed).ok().map(|parts| parts.master)
    }

    /// Wraps the data key of a sealed value under the current master key. The secret itself is neither changed nor decrypted.
    ///
    /// # Errors
    /// [`OpenError`]. A change of the encrypted secret is detected by [`Self::open_sealed`], not here.
    pub fn rewrap(&self, context: &Context<'_>, sealed: &[u8]) -> Result<Vec<u8>, OpenError> {
        let parts = Parts::read(sealed)?;
        let data_key = self.unwrap(context, &parts)?;
        let master = Arc::clone(&self.masters.read().all[0]);
        let mut out = Vec::with_capacity(sealed.len());
        out.push(VERSION);
        out.extend_from_slice(&master.id.0);
        wrap(&master, context, &data_key, &mut out);
        out.extend_from_slice(parts.secret);
        Ok(out)
    }

    fn unwrap(&self, context: &Context<'_>, parts: &Parts<'_>) -> Result<Zeroizing<[u8; KEY]>, OpenError> {
        let masters = self.masters.read();
        let master = masters.all.iter().find(|master| master.id == parts.master);
        let master = Arc::clone(master.ok_or(OpenError::UnknownMaster(parts.master))?);
        drop(masters);
        let (nonce, wrapped) = parts.wrapped.split_at(NONCE);
        let mut room = Zeroizing::new([0; KEY + TAG]);
        room.copy_from_slice(wrapped);
        let aad = Aad::from(bound(context, "data key", Some(master.id)));
        open_in_place(&master.key, nonce, aad, &mut *room)?;
        let mut data_key = Zeroizing::new([0; KEY]);
        data_key.copy_from_slice(&room[..KEY]);
        Ok(data_key)
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").field("masters", &self.masters()).finish_non_exhaustive()
    }
}

struct Parts<'a> {
    master: MasterKeyId,
    wrapped: &'a [u8],
    secret: &'a [u8],
}

impl<'a> Parts<'a> {
    fn read(sealed: &'a [u8]) -> Result<Self, OpenError> {
        if sealed.len() < OVERHEAD || sealed[0] != VERSION {
            return Err(OpenError::Malformed);
        }
        let mut master = [0; ID];
        master.copy_from_slice(&sealed[1..HEAD]);
        let (wrapped, secret) = sealed[HEAD..].split_at(WRAPPED);
        Ok(Self { master: MasterKeyId(master), wrapped, secret })
    }
}

fn wrap(master: &LoadedMasterKey, context: &Context<'_>, data_key: &[u8; KEY], out: &mut Vec<u8>) {
    let aad = Aad::from(bound(context, "data key", Some(master.id)));
    let mut room = Zeroizing::new(*data_key);
    let sealed = master.key.seal_in_place_separate_tag(aad, &mut *room);
    let (nonce, tag) = sealed.expect("AES-GCM seals");
    out.extend_from_slice(nonce.as_ref());
    out.extend_from_slice(&*room);
    out.extend_from_slice(tag.as_ref());
}

fn open_in_place(
    key: &RandomizedNonceKey,
    nonce: &[u8],
    aad: Aad<Vec<u8>>,
    room: &mut [u8],
) -> Result<usize, OpenError> {
    let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| OpenError::Malformed)?;
    key.open_in_place(nonce, aad, room).map(|text| text.len()).map_err(|_| OpenError::Forged)
}

fn canary_context(id: &MasterKeyId) -> Context<'_> {
    Context { table: "master_keys", row: &id.0, column: "canary" }
}

/// Returns the additional authenticated data of both layers. Each part is preceded by its length, so that different contexts never
/// have equal data.
fn bound(context: &Context<'_>, layer: &str, master: Option<MasterKeyId>) -> Vec<u8> {
    let parts = [layer.as_bytes(), context.table.as_bytes(), context.row, context.column.as_bytes()];
    let mut aad = Vec::with_capacity(64 + context.row.len());
    aad.push(VERSION);
    for part in parts {
        aad.extend_from_slice(&(part.len() as u64).to_be_bytes());
        aad.extend_from_slice(part);
    }
    aad.extend(master.iter().flat_map(|id| id.0));
    aad
}
