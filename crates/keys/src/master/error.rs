//! Why there are no master keys.

use std::io;
use std::path::PathBuf;

/// Characters of a passphrase, at least: below this any cost is too little.
pub(super) const PASSPHRASE_MIN: usize = 12;

/// Why there are no master keys.
#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
    /// The file is not there.
    #[error("the master key file {0} does not exist; create one with 32 random bytes, mode 0600")]
    Missing(PathBuf),
    /// The file cannot be read or written.
    #[error("the master key file {path}: {error}")]
    File {
        /// Which.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// Others than its owner may read or write the key.
    #[error("{path} is open to others than its owner (mode {mode:04o}); run: chmod 600 {path}")]
    Open {
        /// Which file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Not 32 bytes.
    #[error("{0} is not a master key: it must hold 32 bytes, no text")]
    NotKey(PathBuf),
    /// The parameters file of a passphrase is not one.
    #[error("{path} does not hold the parameters of a passphrase: {what}")]
    NotParameters {
        /// Which file.
        path: PathBuf,
        /// The error.
        what: String,
    },
    /// The passphrase is not the one the parameters were made with.
    #[error("the passphrase is not the one that {0} was made with")]
    WrongPassphrase(PathBuf),
    /// Too easy to guess.
    #[error("the passphrase has under {PASSPHRASE_MIN} characters; take a longer one")]
    WeakPassphrase,
    /// More master keys than a ring holds.
    #[error("more than {0} master keys at once; finish a rotation and forget the oldest")]
    TooMany(usize),
    /// The file does not hold a key that somebody else encrypted.
    #[error("{path} does not hold an encrypted master key: {what}")]
    NotWrapped {
        /// Which file.
        path: PathBuf,
        /// The error.
        what: String,
    },
    /// The service that wraps the key did not return it.
    #[error("{by} did not give the master key: {why}")]
    Wrapper {
        /// Name of the service.
        by: String,
        /// In its words.
        why: String,
    },
    /// Who encrypts the key gave another one.
    #[error("{by} gave another key than the one that {path} was made with")]
    OtherKey {
        /// Name of the service.
        by: String,
        /// Which file.
        path: PathBuf,
    },
    /// The security module did not give the key.
    #[error("the security module: {0}")]
    Module(String),
}
