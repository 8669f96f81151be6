//! Files in age's format (age-encryption.org/v1), for exports. A file is encrypted to a passphrase or to X25519 recipients, and the
//! program `age` opens it too.
//!
//! The cryptography is aws-lc-rs. Every byte is authenticated: the header by a MAC, the content in pieces of 64 KiB of which the
//! last is marked. A file that was cut off or changed anywhere is therefore rejected.

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

/// Default scrypt work factor, as a power of two: one second and 256 MiB, the same as `age`.
const WORK: u8 = 18;

/// Begins a file. The returned writer encrypts into `out`; [`AgeWriter::finish`] ends the file.
///
/// # Errors
/// Write errors of `out`.
pub fn encrypt<W: Write>(seal: &Seal, out: W) -> Result<AgeWriter<W>, AgeError> {
    encrypt_with_work(seal, out, WORK)
}

/// Like `encrypt`, with another scrypt work factor, for tests.
#[doc(hidden)]
pub fn encrypt_with_work<W: Write>(seal: &Seal, mut out: W, work: u8) -> Result<AgeWriter<W>, AgeError> {
    let file_key = crate::random::random::<{ header::FILE_KEY }>();
    out.write_all(header::write(seal, &file_key, work)?.as_bytes())?;
    AgeWriter::new(out, &file_key)
}

/// Opens a file: reads its header and checks the MAC. The returned reader yields the decrypted content.
///
/// # Errors
/// [`AgeError`]
pub fn decrypt<R: Read>(opening: &Opening, mut from: R) -> Result<AgeReader<R>, AgeError> {
    let file_key = header::read(opening, &mut from)?;
    AgeReader::new(from, &file_key)
}
