//! Files in age's format (age-encryption.org/v1), for exports: encrypted to a passphrase or to X25519 recipients, so that
//! the program `age` opens them too.
//!
//! Over aws-lc-rs as all else. Every octet is authenticated: the header by a MAC, the content in pieces of 64 KiB of which
//! the last is marked, so that a file cut off or changed anywhere is noticed.

mod header;
mod recipient;
mod stream;

use std::io::{self, Read, Write};

use secrecy::SecretString;

pub use recipient::{Identity, Recipient};
pub use stream::{AgeReader, AgeWriter};

/// Work of a passphrase, as a power of two: a second and 256 MiB, what `age` takes.
const WORK: u8 = 18;
/// Work that is done to open a file, at most: a file cannot take all memory (1 GiB here).
const WORK_MAX: u8 = 20;

/// The first line of every such file, without its end.
pub const AGE_LINE: &str = "age-encryption.org/v1";

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
    #[error("it was changed or cut off after {0} octets of content")]
    Changed(u64),
    /// Something stands behind the end.
    #[error("something was added behind its end")]
    Longer,
    /// No recipient, no key.
    #[error("{0}")]
    BadKey(&'static str),
    /// The system.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Who is to open a file.
#[derive(Clone, Debug)]
pub enum Seal {
    /// Whoever knows this.
    Passphrase(SecretString),
    /// Whoever has a key of one of these; one at least.
    Recipients(Vec<Recipient>),
}

/// What opens a file.
#[derive(Clone, Debug)]
pub enum Opening {
    /// The passphrase. Up to some seconds of this thread.
    Passphrase(SecretString),
    /// Keys, any of which may fit.
    Identities(Vec<Identity>),
}

/// Begins a file: what is written to the answer is encrypted into `out`. [`AgeWriter::finish`] ends it.
///
/// # Errors
/// Those of `out`.
pub fn encrypt<W: Write>(seal: &Seal, out: W) -> Result<AgeWriter<W>, AgeError> {
    encrypt_with_work(seal, out, WORK)
}

/// The same with another work of the passphrase, for tests.
#[doc(hidden)]
pub fn encrypt_with_work<W: Write>(seal: &Seal, mut out: W, work: u8) -> Result<AgeWriter<W>, AgeError> {
    let file_key = crate::keyring::random::<{ header::FILE_KEY }>();
    out.write_all(header::write(seal, &file_key, work)?.as_bytes())?;
    AgeWriter::new(out, &file_key)
}

/// Opens a file: its header is read and proven, its content comes from the answer.
///
/// # Errors
/// [`AgeError`]
pub fn decrypt<R: Read>(opening: &Opening, mut from: R) -> Result<AgeReader<R>, AgeError> {
    let file_key = header::read(opening, &mut from)?;
    AgeReader::new(from, &file_key)
}
