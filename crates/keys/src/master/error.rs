//! Errors of loading master keys.

use std::io;
use std::path::PathBuf;

/// Minimum characters of a passphrase. Stretching cannot protect a shorter one.
pub(super) const PASSPHRASE_MIN: usize = 12;

/// Reason why a master key cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
    /// A file of the master key does not exist.
    #[error("the master key file {0} does not exist; create one with 32 random bytes, mode 0600")]
    Missing(PathBuf),
    /// The file cannot be read or written.
    #[error("cannot access the master key file {path}: {error}")]
    File {
        /// Path of the file that cannot be read or written.
        path: PathBuf,
        /// Operating system error, for example for a missing permission.
        error: io::Error,
    },
    /// Users other than the owner may read or write the key file.
    #[error("other users can access {path} (mode {mode:04o}); run: chmod 600 {path}")]
    Open {
        /// Path of the key file.
        path: PathBuf,
        /// The permission bits of the file.
        mode: u32,
    },
    /// The file does not have exactly 32 bytes.
    #[error("{0} is not a master key: the file must have exactly 32 bytes, not text")]
    NotKey(PathBuf),
    /// The file is not a valid parameters file of a passphrase.
    #[error("{path} does not have valid passphrase parameters: {what}")]
    NotParameters {
        /// Path of the invalid parameters file.
        path: PathBuf,
        /// Description of the fault in the file.
        what: String,
    },
    /// The parameters file was made with another passphrase.
    #[error("wrong passphrase: {0} was created with another passphrase")]
    WrongPassphrase(PathBuf),
    /// The passphrase has fewer than 12 characters.
    #[error("the passphrase has fewer than {PASSPHRASE_MIN} characters; use a longer one")]
    WeakPassphrase,
    /// More master keys are configured than a keyring can hold.
    #[error("more than {0} master keys are configured; finish a rotation and remove the oldest key")]
    TooMany(usize),
    /// The file does not hold a wrapped master key.
    #[error("{path} does not have a valid encrypted master key: {what}")]
    NotWrapped {
        /// Path of the invalid file.
        path: PathBuf,
        /// Description of the fault in the file.
        what: String,
    },
    /// The external service that wraps the master key did not return it.
    #[error("{by} did not return the master key: {why}")]
    Wrapper {
        /// Name of the external service.
        by: String,
        /// Error text of the service.
        why: String,
    },
    /// The external service returned a different master key than before.
    #[error("{by} returned a master key other than the one for which {path} was created")]
    OtherKey {
        /// Name of the external service.
        by: String,
        /// Path of the file with the wrapped key.
        path: PathBuf,
    },
    /// The hardware security module did not return the key.
    #[error("security module: {0}")]
    Module(String),
}
