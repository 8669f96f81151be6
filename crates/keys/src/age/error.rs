//! Errors of age files.

use std::io;

/// Highest scrypt work factor that is accepted, as a power of two. A file cannot make this process use more than 1 GiB of memory.
pub(super) const WORK_MAX: u8 = 20;

/// An age file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum AgeError {
    /// The file is not in age format.
    #[error("it is no file of age's format: {0}")]
    NotAge(&'static str),
    /// The passphrase is wrong.
    #[error("the passphrase is wrong, or the file's header was changed")]
    WrongPassphrase,
    /// The file is encrypted to none of the given keys.
    #[error("none of the keys given opens it: it was encrypted to others, or its header was changed")]
    NotForKeys,
    /// The file is encrypted to a passphrase, and no passphrase was given.
    #[error("it was encrypted to a passphrase, and none was given")]
    NeedsPassphrase,
    /// The file is encrypted to keys, and no key was given.
    #[error("it was encrypted to keys, and none was given")]
    NeedsKeys,
    /// The file demands a higher scrypt work factor than is accepted.
    #[error("its passphrase takes 2^{0} units of work; at most 2^{WORK_MAX} are done")]
    TooMuchWork(u8),
    /// The MAC of the header is wrong: the header was changed.
    #[error("its header was changed: the MAC does not fit")]
    HeaderChanged,
    /// Authentication of the content failed: the content was changed or cut off.
    #[error("it was changed or cut off after {0} bytes of content")]
    Changed(u64),
    /// Data follows the last piece of the content.
    #[error("there are bytes after its end")]
    Longer,
    /// The text is neither a recipient nor a private key.
    #[error("{0}")]
    BadKey(&'static str),
    /// Error of the operating system.
    #[error("{0}")]
    Io(#[from] io::Error),
}
