//! Bodies of stored segments: compressed lines, encrypted under a separate key for each segment.

use std::io::{self, Read as _};

use authority::keystore::KeyStore;
use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use aws_lc_rs::rand;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use keys::Context;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::error::AuditError;
use crate::tables::{SEALED_SEGMENTS, SegmentBody};

/// Bytes of an AES-256 key.
const KEY: usize = 32;
/// Bytes of the nonce that precedes the ciphertext.
const NONCE: usize = 12;
/// Maximum bytes of a decompressed body, enough for 100,000 events of 10 KB each.
const TEXT_MAX: u64 = 1 << 30;

/// Creates the compressor for the lines of a segment.
pub(crate) fn compressor() -> DeflateEncoder<Vec<u8>> {
    DeflateEncoder::new(Vec::new(), Compression::default())
}

/// Encrypts a compressed body for the segment with this head. Returns the sealed key and the body. A key encrypts only one body.
///
/// # Errors
/// [`AuditError::Encryption`]
pub(crate) fn seal(
    keystore: &KeyStore,
    id: Uuid,
    head: &str,
    compressed: &[u8],
) -> Result<(Vec<u8>, Vec<u8>), AuditError> {
    let failed = |_| AuditError::Encryption;
    let mut key = Zeroizing::new([0; KEY]);
    rand::fill(&mut *key).map_err(failed)?;
    let cipher = RandomizedNonceKey::new(&AES_256_GCM, &*key).map_err(failed)?;
    let mut body = vec![0; NONCE];
    body.extend_from_slice(compressed);
    let (nonce, tag) =
        cipher.seal_in_place_separate_tag(Aad::from(head), &mut body[NONCE..]).map_err(failed)?;
    body[..NONCE].copy_from_slice(nonce.as_ref());
    body.extend_from_slice(tag.as_ref());
    Ok((keystore.keyring().seal(&context(&id), &*key), body))
}

/// Decrypts and decompresses the lines of a segment.
///
/// # Errors
/// [`AuditError::Pruned`], [`AuditError::Sealed`], [`AuditError::Damaged`].
pub(crate) fn open(keystore: &KeyStore, segment: u64, stored: SegmentBody) -> Result<String, AuditError> {
    let damaged = || AuditError::Damaged(format!("segment {segment} cannot be decrypted"));
    let (Some(data_key), Some(mut body)) = (stored.data_key, stored.body) else {
        return Err(AuditError::Pruned(segment));
    };
    let key = keystore
        .keyring()
        .open_sealed(&context(&stored.id), &data_key)
        .map_err(|error| AuditError::Sealed { segment, error })?;
    let cipher = RandomizedNonceKey::new(&AES_256_GCM, &key).map_err(|_| damaged())?;
    let nonce = body.get(..NONCE).ok_or_else(damaged)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| damaged())?;
    let compressed = cipher
        .open_in_place(nonce, Aad::from(stored.head.as_str()), &mut body[NONCE..])
        .map_err(|_| damaged())?;
    inflate(compressed).map_err(|_| damaged())
}

fn inflate(compressed: &[u8]) -> io::Result<String> {
    let mut text = String::new();
    DeflateDecoder::new(compressed).take(TEXT_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn context(id: &Uuid) -> Context<'_> {
    Context { table: SEALED_SEGMENTS.table, row: id.as_bytes(), column: SEALED_SEGMENTS.column }
}
