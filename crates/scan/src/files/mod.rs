//! Certificates in files and folders.
//!
//! What a file is, its content says, not its name: PEM, DER, PKCS#7, PKCS#12, JKS, JCEKS. Private keys
//! are passed over where they stand and never decrypted where that can be avoided; what was read is
//! wiped from memory.

mod ber;
mod chain;
mod der;
mod java;
mod open;
mod password;
mod pem;
mod pkcs12;
mod walk;

use std::path::Path;

pub use open::FILE_MAX;
pub use password::{PASSWORDS_MAX, Passwords};
pub use walk::{DEPTH_MAX, FileLook, Walk, WalkCounts};

/// What kind of file it is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Format {
    /// RFC 7468.
    Pem,
    /// A bare certificate, or several one behind the other.
    Der,
    /// RFC 5652 section 5, or RFC 2315: certificates in a signed (often: unsigned) message.
    Pkcs7,
    /// RFC 7292.
    Pkcs12,
    /// Java's own key store.
    Jks,
    /// Java's key store of the cryptography extension.
    Jceks,
}

impl Format {
    /// The stable word for outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pem => "pem",
            Self::Der => "der",
            Self::Pkcs7 => "pkcs7",
            Self::Pkcs12 => "pkcs12",
            Self::Jks => "jks",
            Self::Jceks => "jceks",
        }
    }
}

/// A certificate and where in the file it was.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CertificateFound {
    /// The alias or friendly name, where the format has one; free of control characters.
    pub alias: Option<String>,
    /// The entry of the file it belongs to, counted from 0; the certificates of one chain share it
    /// (see [`Contents::chains`]).
    pub entry: u32,
    /// Its place in the entry's chain, counted from 0, the holder's own first.
    pub index: u32,
    /// The bytes as found. Nothing has checked that they are a certificate.
    pub der: Vec<u8>,
}

/// What a file holds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Contents {
    /// What kind of file it is.
    pub format: Format,
    /// In the file's order.
    pub certificates: Vec<CertificateFound>,
    /// What else there is to say: parts that were not read, and why.
    pub notes: Vec<String>,
    /// The store's own seal over its content was checked with one of the passwords given (JKS and
    /// JCEKS). Without the password certificates are readable all the same.
    pub seal_checked: bool,
}

impl Contents {
    fn new(format: Format) -> Self {
        Self { format, certificates: Vec::new(), notes: Vec::new(), seal_checked: false }
    }

    /// Adds a certificate whose entry is yet to be found.
    fn push(&mut self, alias: Option<String>, der: &[u8]) {
        self.certificates.push(CertificateFound { alias, entry: 0, index: 0, der: der.to_vec() });
    }
}

/// Why a file gave no certificates.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system says no.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    /// A device, pipe or socket: never opened, because opening alone may hang or do something.
    #[error("is a {0}, not a file; only regular files are read")]
    Special(&'static str),
    /// Larger than [`FILE_MAX`].
    #[error("has {size} octets, more than the {max} that are read; split it or name its parts")]
    TooLarge {
        /// In octets.
        size: u64,
        /// The bound, in octets.
        max: u64,
    },
    /// Deeper than [`DEPTH_MAX`].
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
        /// What it looked like.
        format: Format,
        /// What is wrong.
        why: String,
    },
    /// Readable, and no certificate in it.
    #[error("holds no certificate")]
    NoCertificate,
}

/// Reads the certificates of one file, which may be named through symbolic links.
///
/// # Errors
/// [`FileError`]; also when the file is readable and holds none.
pub fn read(path: &Path, passwords: &Passwords) -> Result<Contents, FileError> {
    let bytes = open::whole_file(path)?;
    contents(&bytes, passwords)
}

/// Reads the certificates in `bytes`, whatever format they are.
///
/// # Errors
/// [`FileError`], but for what concerns the file itself.
pub fn contents(bytes: &[u8], passwords: &Passwords) -> Result<Contents, FileError> {
    let mut found = match bytes {
        [0xfe, 0xed, 0xfe, 0xed, ..] => java::read(bytes, Format::Jks, passwords)?,
        [0xce, 0xce, 0xce, 0xce, ..] => java::read(bytes, Format::Jceks, passwords)?,
        [0x30, ..] => match der::read(bytes, passwords) {
            // "0" begins a text as well as it begins a sequence.
            Err(FileError::NoCertificate) => pem::read(bytes)?,
            other => other?,
        },
        _ => pem::read(bytes)?,
    };
    // Java's stores say themselves what belongs together.
    if !matches!(found.format, Format::Jks | Format::Jceks) {
        found.join_chains();
    }
    if found.certificates.is_empty() && found.notes.is_empty() {
        return Err(FileError::NoCertificate);
    }
    if found.certificates.is_empty() {
        return Err(FileError::Malformed { format: found.format, why: found.notes.join("; ") });
    }
    Ok(found)
}

/// A name from a file as it may be shown: no control characters, bounded.
fn shown(name: &str) -> String {
    /// Aliases are short; this is only against files made to annoy.
    const NAME_MAX: usize = 200;
    name.chars().filter(|c| !c.is_control()).take(NAME_MAX).collect()
}

#[cfg(test)]
mod tests;
