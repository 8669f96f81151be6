//! Sources of master keys.

mod error;
mod file;
mod id;
mod passphrase;
mod wrapped;

use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::random::random;
pub use error::KeyringError;
use file::read_key;
pub(crate) use file::{create_if_absent, read_private};
pub use id::MasterKeyId;
pub(crate) use id::{KEY, MASTER_KEY_ID, id_of};
pub use passphrase::{Argon2Cost, PassphraseSource};
pub use wrapped::{MissingFileAction, UnwrappedKey, Wrapper};

/// Source of a master key: a file, a passphrase, an external service, or a hardware security module.
#[derive(Clone, Debug)]
pub enum MasterKeySource {
    /// A file of 32 bytes that only its owner (and group) may read.
    File {
        /// Path of the key file.
        path: PathBuf,
        /// Whether to create the file (mode 0600) if it is missing.
        create: bool,
    },
    /// A passphrase, stretched by argon2id.
    Passphrase(PassphraseSource),
    /// A key that an external service (a KMS, a program) has already decrypted.
    Unwrapped(UnwrappedKey),
    /// A file that holds the key encrypted under an AES key in a hardware security module. The file is useless without the module,
    /// which is used once, at startup.
    Pkcs11(crate::pkcs11::WrappedMasterKey),
}

impl MasterKeySource {
    pub(crate) fn load(&self) -> Result<Zeroizing<[u8; KEY]>, KeyringError> {
        match self {
            Self::File { path, create } => load_file(path, *create),
            Self::Passphrase(source) => source.load(),
            Self::Unwrapped(key) => Ok(key.secret()),
            Self::Pkcs11(source) => source.load(),
        }
    }

    /// Returns the id of the key, as in the values sealed under it.
    ///
    /// # Errors
    /// As [`crate::Keyring::open`].
    pub fn id(&self) -> Result<MasterKeyId, KeyringError> {
        self.load().map(|secret| id_of(&secret))
    }
}

fn load_file(path: &Path, create: bool) -> Result<Zeroizing<[u8; KEY]>, KeyringError> {
    if create && !path.exists() {
        create_if_absent(path, &*random::<KEY>())?;
    }
    let bytes = read_key(path, KEY as u64)?;
    let mut key = Zeroizing::new([0; KEY]);
    if bytes.len() != KEY {
        return Err(KeyringError::NotKey(path.to_owned()));
    }
    key.copy_from_slice(&bytes);
    Ok(key)
}
