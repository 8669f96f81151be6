//! Files in age's format (age-encryption.org/v1), for exports: encrypted to a passphrase or to X25519 recipients, so that
//! the program `age` opens them too.
//!
//! Over aws-lc-rs as all else. Every byte is authenticated: the header by a MAC, the content in pieces of 64 KiB of which
//! the last is marked, so that a file cut off or changed anywhere is noticed.

mod error;
mod header;
mod recipient;
mod seal;
mod stream;

use std::io::{Read, Write};

pub use error::AgeError;
pub use header::AGE_LINE;
pub use recipient::{Identity, Recipient};
pub use seal::{Opening, Seal};
pub use stream::{AgeReader, AgeWriter};

/// Work of a passphrase, as a power of two: a second and 256 MiB, what `age` takes.
const WORK: u8 = 18;

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
    let file_key = crate::random::random::<{ header::FILE_KEY }>();
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
