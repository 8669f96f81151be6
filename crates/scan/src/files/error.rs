//! Errors of reading certificates from a file.

use super::contents::Format;

/// Reason why no certificates could be read from a file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The operating system returned an error.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    /// The file is a device, pipe or socket. Such files are never opened, because that may block or have effects.
    #[error("is a {0}, not a file; only regular files are read")]
    Special(&'static str),
    /// The file is larger than [`super::FILE_MAX`].
    #[error("is too large: {size} bytes, the maximum is {max}; split it into smaller files")]
    TooLarge {
        /// Size of the file in bytes.
        size: u64,
        /// Maximum size in bytes.
        max: u64,
    },
    /// The directory is nested deeper than [`super::DEPTH_MAX`].
    #[error(
        "is nested more than {max} folders deep; give the path of the file, or of a deeper folder that contains it"
    )]
    TooDeep {
        /// Maximum nesting depth of directories.
        max: usize,
    },
    /// The certificates are encrypted, and no password was given.
    #[error("contains encrypted certificates; give passwords with --password-file, one per line")]
    PasswordNeeded,
    /// The certificates are encrypted, and none of the passwords is correct.
    #[error("contains encrypted certificates, and none of the {tried} given passwords decrypts them")]
    WrongPassword {
        /// Number of passwords tried, not counting the empty one.
        tried: usize,
    },
    /// The format was detected, but the file is malformed or of an unsupported variant.
    #[error("is {format} but cannot be parsed: {why}", format = .format.name())]
    Malformed {
        /// The detected format.
        format: Format,
        /// Reason why the file cannot be parsed.
        why: String,
    },
    /// The file is readable and contains no certificate.
    #[error("contains no certificate")]
    NoCertificate,
}
