//! Why a file does not open.

use std::io;

/// Work that is done to open a file, at most: a file cannot take all memory (1 GiB here).
pub(super) const WORK_MAX: u8 = 20;

/// Why a file does not open.
#[derive(Debug, thiserror::Error)]
pub enum AgeError {
    /// Not this format.
    #[error("it is no file of age's format: {0}")]
    NotAge(&'static str),
    /// Not for this passphrase.
    #[error("the passphrase is wrong, or the file's header was changed")]
    WrongPassphrase,
    /// Not for any of the keys.
    #[error("none of the keys given opens it: it was encrypted to others, or its header was changed")]
    NotForKeys,
    /// Encrypted to a passphrase, and none was given.
    #[error("it was encrypted to a passphrase, and none was given")]
    NeedsPassphrase,
    /// Encrypted to keys, and none was given.
    #[error("it was encrypted to keys, and none was given")]
    NeedsKeys,
    /// More work than is done.
    #[error("its passphrase takes 2^{0} units of work; at most 2^{WORK_MAX} are done")]
    TooMuchWork(u8),
    /// The header was changed.
    #[error("its header was changed: the MAC does not fit")]
    HeaderChanged,
    /// The content was changed.
    #[error("it was changed or cut off after {0} bytes of content")]
    Changed(u64),
    /// Something stands behind the end.
    #[error("there are bytes after its end")]
    Longer,
    /// No recipient, no key.
    #[error("{0}")]
    BadKey(&'static str),
    /// The system.
    #[error("{0}")]
    Io(#[from] io::Error),
}
