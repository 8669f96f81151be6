//! Errors of age files.

use std::io;

/// Highest scrypt work factor that is accepted, as a power of two. A file cannot make this process use more than 1 GiB of memory.
pub(super) const WORK_MAX: u8 = 20;

/// Reason why an age file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum AgeError {
    /// The file is not in age format.
    #[error("not an age file: {0}")]
    NotAge(&'static str),
    /// The passphrase is wrong.
    #[error("the passphrase is wrong, or the file's header was changed")]
    WrongPassphrase,
    /// The file is encrypted to none of the given keys.
    #[error(
        "none of the given keys opens the file: it was encrypted to other keys, or its header was changed"
    )]
    NotForKeys,
    /// The file is encrypted to a passphrase, and no passphrase was given.
    #[error("the file is encrypted with a passphrase, but no passphrase was given")]
    NeedsPassphrase,
    /// The file is encrypted to keys, and no key was given.
    #[error("the file is encrypted to keys, but no key was given")]
    NeedsKeys,
    /// The file demands a higher scrypt work factor than is accepted.
    #[error("the work factor of the passphrase is 2^{0}; at most 2^{WORK_MAX} is accepted")]
    TooMuchWork(u8),
    /// The MAC of the header is wrong: the header was changed.
    #[error("the file's header was changed: the MAC does not match")]
    HeaderChanged,
    /// Authentication of the content failed: the content was changed or truncated. Contains the number of bytes before the failure.
    #[error("the file was changed or truncated after {0} bytes of content")]
    Changed(u64),
    /// Data follows the last piece of the content.
    #[error("the file has extra bytes after its end")]
    Longer,
    /// The text is neither a recipient nor a private key.
    #[error("{0}")]
    BadKey(&'static str),
    /// The file cannot be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
}
