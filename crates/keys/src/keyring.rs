//! Secrets sealed at rest: envelope encryption under master keys.
//!
//! Every secret has a data key of its own (AES-256-GCM); the data key is wrapped under a master key
//! (AES-256-GCM too). Both layers are bound to the table, row and column the secret stands in, so a
//! sealed value moved elsewhere does not open. To change the master key only the data keys are
//! wrapped again ([`Keyring::rewrap`]).
//!
//! A sealed value, 97 bytes longer than its secret:
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | version, 1 |
//! | 8 | the master key's id |
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
    Argon2Cost, KeyringError, MasterKey, MasterKeyId, MissingFile, PassphraseSource, UnwrappedKey, Wrapper,
};
use crate::master::{KEY, MASTER_KEY_ID as ID, id_of};
use crate::random::random;

const VERSION: u8 = 1;
const NONCE: usize = 12;
const TAG: usize = 16;
/// Bytes of version and master key.
const HEAD: usize = 1 + ID;
const WRAPPED: usize = NONCE + KEY + TAG;
/// Bytes a sealed value has beyond its secret.
pub const OVERHEAD: usize = HEAD + WRAPPED + NONCE + TAG;
/// Master keys held at once: the current one, and those of rotations not finished.
const MASTERS_MAX: usize = 16;
/// The plaintext of a canary.
const CANARY: &[u8] = b"bulla canary 1";

/// Table, row and column of a secret, bound to its ciphertext, so that it opens nowhere else.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Context<'a> {
    /// The table's name.
    pub table: &'a str,
    /// The row's primary key.
    pub row: &'a [u8],
    /// The column's name.
    pub column: &'a str,
}

/// Why a sealed value does not open.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum OpenError {
    /// Not written by [`Keyring::seal`], or cut off.
    #[error("not a sealed value, or one cut off")]
    Malformed,
    /// Sealed under a master key that is not on this ring.
    #[error("sealed under the master key {0}, which is not configured; add it to the older master keys")]
    UnknownMaster(MasterKeyId),
    /// Changed, or moved from another table, row or column.
    #[error("the sealed value was changed, or belongs to another table, row or column")]
    Forged,
}

/// Which master keys there are.
#[derive(Debug)]
pub struct KeyringConfig {
    /// What is sealed from now on is sealed under this one.
    pub current: MasterKey,
    /// These still open what was sealed under them, until it is re-wrapped.
    pub older: Vec<MasterKey>,
}

/// The master keys in memory. Shared freely; a new current master key may come while it is in use.
pub struct Keyring {
    masters: RwLock<Masters>,
}

struct Masters {
    /// The current one first.
    all: Vec<Arc<Master>>,
}

struct Master {
    id: MasterKeyId,
    key: RandomizedNonceKey,
    /// Keys for other purposes are derived from this one, which is derived from the master key.
    deriving: hmac::Key,
}

impl Master {
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
    /// Loads the master keys. A passphrase costs its argon2id: up to a second, on this thread.
    ///
    /// # Errors
    /// [`KeyringError`] when one cannot be had; the ring never starts with fewer keys than named.
    pub fn open(config: &KeyringConfig) -> Result<Self, KeyringError> {
        let mut all = vec![Arc::new(Master::new(&*config.current.load()?))];
        for older in &config.older {
            let master = Master::new(&*older.load()?);
            if all.iter().all(|known| known.id != master.id) {
                all.push(Arc::new(master));
            }
        }
        if all.len() > MASTERS_MAX {
            return Err(KeyringError::TooMany(MASTERS_MAX));
        }
        Ok(Self { masters: RwLock::new(Masters { all }) })
    }

    /// A ring with one random master key that nothing keeps: for tests, and for secrets that need
    /// not outlive the process.
    #[must_use]
    pub fn ephemeral() -> Self {
        let secret = random::<KEY>();
        Self { masters: RwLock::new(Masters { all: vec![Arc::new(Master::new(&secret))] }) }
    }

    /// The master key under which secrets are sealed now.
    #[must_use]
    pub fn current(&self) -> MasterKeyId {
        self.masters.read().all[0].id
    }

    /// What values sealed now begin with (version and master key), for finding the others in a database.
    #[must_use]
    pub fn current_head(&self) -> [u8; HEAD] {
        let mut head = [VERSION; HEAD];
        head[1..].copy_from_slice(&self.current().0);
        head
    }

    /// Every master key on the ring, the current one first.
    #[must_use]
    pub fn masters(&self) -> Vec<MasterKeyId> {
        self.masters.read().all.iter().map(|master| master.id).collect()
    }

    /// A known text sealed under the current master key, to be kept where the sealed values are: who can open it has the
    /// key, and nothing has to be written to find out.
    #[must_use]
    pub fn canary(&self) -> (MasterKeyId, Vec<u8>) {
        let id = self.current();
        (id, self.seal(&canary_context(&id), CANARY))
    }

    /// Whether this ring has the key and opens its canary; `false` when the key is not there.
    ///
    /// # Errors
    /// [`OpenError::Forged`] or [`OpenError::Malformed`] when the key is there and the canary was changed.
    pub fn proves(&self, id: MasterKeyId, canary: &[u8]) -> Result<bool, OpenError> {
        if !self.masters().contains(&id) {
            return Ok(false);
        }
        if Self::master_of(canary) != Some(id) {
            return Err(OpenError::Forged);
        }
        let text = self.open_sealed(&canary_context(&id), canary)?;
        if text.as_slice() == CANARY { Ok(true) } else { Err(OpenError::Forged) }
    }

    /// Makes another master key the current one; those before still open what they sealed.
    /// Returns its id. To promote the current one again changes nothing.
    ///
    /// # Errors
    /// [`KeyringError`]
    pub fn promote(&self, master: &MasterKey) -> Result<MasterKeyId, KeyringError> {
        let master = Arc::new(Master::new(&*master.load()?));
        let id = master.id;
        let all = &mut self.masters.write().all;
        all.retain(|known| known.id != id);
        if all.len() >= MASTERS_MAX {
            return Err(KeyringError::TooMany(MASTERS_MAX));
        }
        all.insert(0, master);
        Ok(id)
    }

    /// Takes an older master key off the ring; what is still sealed under it opens no more.
    /// `false` when it is the current one or not there.
    pub fn forget(&self, id: MasterKeyId) -> bool {
        let all = &mut self.masters.write().all;
        let at = all.iter().skip(1).position(|master| master.id == id);
        at.map(|at| all.remove(at + 1)).is_some()
    }

    /// Seals a secret for one place. A master key may wrap 2^32 data keys (NIST SP 800-38D section
    /// 8.3): rotate it before.
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

    /// The secret sealed for this place.
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

    /// Whether a value is sealed under the current master key.
    #[must_use]
    pub fn is_current(&self, sealed: &[u8]) -> bool {
        Parts::read(sealed).is_ok_and(|parts| parts.master == self.current())
    }

    /// A code that proves that this ring made the message, for this purpose (HMAC-SHA-256 under a key derived from the
    /// current master key).
    #[must_use]
    pub fn mac(&self, purpose: &str, message: &[u8]) -> [u8; 32] {
        let master = Arc::clone(&self.masters.read().all[0]);
        let mut code = [0; 32];
        code.copy_from_slice(hmac::sign(&master.derived(purpose), message).as_ref());
        code
    }

    /// Whether [`Self::mac`] made the code, under the current master key or one before it.
    #[must_use]
    pub fn is_mac(&self, purpose: &str, message: &[u8], code: &[u8]) -> bool {
        let masters = self.masters.read().all.clone();
        masters.iter().any(|master| hmac::verify(&master.derived(purpose), message, code).is_ok())
    }

    /// The master key that a sealed value's first 9 bytes name.
    #[must_use]
    pub fn master_of_head(head: &[u8]) -> Option<MasterKeyId> {
        let (version, id) = head.split_first()?;
        (*version == VERSION).then_some(())?;
        <[u8; ID]>::try_from(id).ok().map(MasterKeyId)
    }

    /// The master key a value is sealed under; `None` for what is no sealed value.
    #[must_use]
    pub fn master_of(sealed: &[u8]) -> Option<MasterKeyId> {
        Parts::read(sealed).ok().map(|parts| parts.master)
    }

    /// The same secret with its data key wrapped under the current master key. The secret itself is
    /// not touched, nor seen.
    ///
    /// # Errors
    /// [`OpenError`]; a secret that was changed is noticed by [`Self::open_sealed`], not here.
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

fn wrap(master: &Master, context: &Context<'_>, data_key: &[u8; KEY], out: &mut Vec<u8>) {
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

/// What both layers are bound to. Lengths stand before the parts, so no two places look alike.
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
