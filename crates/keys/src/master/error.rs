//! Errors of loading master keys.

use std::io;
use std::path::PathBuf;

/// Minimum characters of a passphrase. Stretching cannot protect a shorter one.
pub(super) const PASSPHRASE_MIN: usize = 12;

/// A master key cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
    /// The file does not exist.
    #[error("the master key file {0} does not exist; create one with 32 random bytes, mode 0600")]
    Missing(PathBuf),
    /// The file cannot be read or written.
    #[error("the master key file {path}: {error}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// Users other than the owner may read or write the key file.
    #[error("{path} is open to others than its owner (mode {mode:04o}); run: chmod 600 {path}")]
    Open {
        /// Path of the file.
        path: PathBuf,
        /// The permission bits of the file.
        mode: u32,
    },
    /// The file does not have exactly 32 bytes.
    #[error("{0} is not a master key: it must hold 32 bytes, no text")]
    NotKey(PathBuf),
    /// The file is not a valid parameters file of a passphrase.
    #[error("{path} does not hold the parameters of a passphrase: {what}")]
    NotParameters {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with the file.
        what: String,
    },
    /// The parameters file was made with another passphrase.
    #[error("the passphrase is not the one that {0} was made with")]
    WrongPassphrase(PathBuf),
    /// The passphrase is too short.
    #[error("the passphrase has under {PASSPHRASE_MIN} characters; take a longer one")]
    WeakPassphrase,
    /// More master keys are configured than a keyring can hold.
    #[error("more than {0} master keys at once; finish a rotation and forget the oldest")]
    TooMany(usize),
    /// The file does not hold a wrapped master key.
    #[error("{path} does not hold an encrypted master key: {what}")]
    NotWrapped {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with the file.
        what: String,
    },
    /// The external service that wraps the master key did not return it.
    #[error("{by} did not give the master key: {why}")]
    Wrapper {
        /// Name of the service.
        by: String,
        /// Error text of the service.
        why: String,
    },
    /// The external service returned a different master key than before.
    #[error("{by} gave another key than the one that {path} was made with")]
    OtherKey {
        /// Name of the service.
        by: String,
        /// Path of the file with the wrapped key.
        path: PathBuf,
    },
    /// The hardware security module did not return the key.
    #[error("the security module: {0}")]
    Module(String),
}
