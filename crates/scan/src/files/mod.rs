//! Reads certificates from files and directories.
//!
//! The format is detected by content, not by name: PEM, DER, PKCS#7, PKCS#12, JKS, JCEKS. Private keys are skipped and, where
//! possible, never decrypted; buffers are wiped from memory.

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

/// Reads the certificates of one file; symbolic links are followed.
///
/// # Errors
/// [`FileError`]; also when the file contains no certificate.
pub fn read(path: &Path, passwords: &Passwords) -> Result<Contents, FileError> {
    let bytes = open::read_regular_file(path)?;
    contents(&bytes, passwords)
}

/// Reads the certificates in `bytes` in any supported format.
///
/// # Errors
/// [`FileError`], except for errors about the file itself.
pub fn contents(bytes: &[u8], passwords: &Passwords) -> Result<Contents, FileError> {
    let mut found = match bytes {
        [0xfe, 0xed, 0xfe, 0xed, ..] => java::read(bytes, Format::Jks, passwords)?,
        [0xce, 0xce, 0xce, 0xce, ..] => java::read(bytes, Format::Jceks, passwords)?,
        [0x30, ..] => match der::read(bytes, passwords) {
            // The byte of "0" may start a text or a SEQUENCE.
            Err(FileError::NoCertificate) => pem::read(bytes)?,
            other => other?,
        },
        _ => pem::read(bytes)?,
    };
    // Java key stores define their chains themselves.
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
