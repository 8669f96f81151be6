//! Certificates in files and folders.
//!
//! What a file is, its content says, not its name: PEM, DER, PKCS#7, PKCS#12, JKS, JCEKS. Private keys
//! are passed over where they stand and never decrypted where that can be avoided; what was read is
//! wiped from memory.

mod ber;
mod chain;
mod contents;
mod der;
mod error;
mod java;
mod open;
mod password;
mod pem;
mod pkcs12;
mod walk;

use std::path::Path;

pub use contents::{CertificateFound, Contents, Format};
pub use error::FileError;
pub use open::FILE_MAX;
pub use password::{PASSWORDS_MAX, Passwords};
pub use walk::{DEPTH_MAX, Walk, WalkCounts, WalkedFile};

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

#[cfg(test)]
mod tests;
