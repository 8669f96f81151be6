//! Why a file gave no certificates.

use super::contents::Format;

/// Why a file gave no certificates.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The operating system denies access.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    /// A device, pipe or socket: never opened, because opening alone may hang or do something.
    #[error("is a {0}, not a file; only regular files are read")]
    Special(&'static str),
    /// Larger than [`super::FILE_MAX`].
    #[error("has {size} bytes, at most {max} are read; split it or name its parts")]
    TooLarge {
        /// In bytes.
        size: u64,
        /// The bound, in bytes.
        max: u64,
    },
    /// Deeper than [`super::DEPTH_MAX`].
    #[error("lies more than {max} folders deep; name it, or a folder nearer to it, by itself")]
    TooDeep {
        /// The bound.
        max: usize,
    },
    /// Its certificates are encrypted, and no password was given.
    #[error("its certificates are encrypted; give passwords with --password-file, one a line")]
    PasswordNeeded,
    /// Its certificates are encrypted, and none of the passwords fits.
    #[error("its certificates are encrypted, and none of the {tried} passwords given opens it")]
    WrongPassword {
        /// How many were tried, the empty one not counted.
        tried: usize,
    },
    /// The right format, broken or of a kind that is not known.
    #[error("is {format} that cannot be read: {why}", format = .format.name())]
    Malformed {
        /// The detected format.
        format: Format,
        /// The error.
        why: String,
    },
    /// Readable, and no certificate in it.
    #[error("holds no certificate")]
    NoCertificate,
}
