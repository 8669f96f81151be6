//! Key derivation of TPM 2.0 (Part 1, 11.4.10), with SHA-256.

use aws_lc_rs::agreement::{ECDH_P256, PrivateKey, UnparsedPublicKey, agree};
use aws_lc_rs::{digest, hmac};
use zeroize::Zeroizing;

use super::error::TpmError;

/// Bytes of SHA-256.
pub(super) const HASH: usize = 32;
/// Bytes of a coordinate on P-256.
const COORDINATE: usize = 32;

pub(super) fn sha256(parts: &[&[u8]]) -> [u8; HASH] {
    let mut hash = digest::Context::new(&digest::SHA256);
    parts.iter().for_each(|part| hash.update(part));
    let mut out = [0; HASH];
    out.copy_from_slice(hash.finish().as_ref());
    out
}

pub(super) fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> [u8; HASH] {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    parts.iter().for_each(|part| context.update(part));
    let mut out = [0; HASH];
    out.copy_from_slice(context.sign().as_ref());
    out
}

/// Derives a key by KDFa (NIST SP 800-108 in counter mode).
pub(super) fn kdf_a(key: &[u8], label: &[u8], u: &[u8], v: &[u8], bytes: usize) -> Zeroizing<Vec<u8>> {
    let bits = (u32::try_from(bytes).unwrap_or(u32::MAX) * 8).to_be_bytes();
    let mut out = Zeroizing::new(Vec::with_capacity(bytes + HASH));
    for counter in 1_u32.. {
        if out.len() >= bytes {
            break;
        }
        let block = hmac_sha256(key, &[&counter.to_be_bytes(), label, &[0], u, v, &bits]);
        out.extend_from_slice(&*Zeroizing::new(block));
    }
    out.truncate(bytes);
    out
}

/// A secret that only the holder of a P-256 private key can recover.
pub(super) struct Salt {
    pub(super) secret: Zeroizing<[u8; HASH]>,
    /// Coordinates of the ephemeral public key.
    pub(super) x: [u8; COORDINATE],
    pub(super) y: [u8; COORDINATE],
}

impl Salt {
    /// Creates a salt for a public key: one-pass ECDH, then KDFe (NIST SP 800-56A), as in Part 1, C.6.1.
    pub(super) fn for_key(x: &[u8], y: &[u8]) -> Result<Self, TpmError> {
        let [x, y] = [padded(x)?, padded(y)?];
        let failed = |_| TpmError::Session("cannot generate a key");
        let own = PrivateKey::generate(&ECDH_P256).map_err(failed)?;
        let public = own.compute_public_key().map_err(failed)?;
        let point = [&[4], &x[..], &y].concat();
        let (own_x, own_y) = public.as_ref()[1..].split_at(COORDINATE);
        let no_point = TpmError::Session("the TPM's storage root key is not a point on P-256");
        let secret = agree(&own, UnparsedPublicKey::new(&ECDH_P256, &point), no_point, |shared| {
            Ok(sha256(&[&1_u32.to_be_bytes(), shared, b"SECRET\0", own_x, &x]))
        })?;
        Ok(Self { secret: Zeroizing::new(secret), x: padded(own_x)?, y: padded(own_y)? })
    }
}

/// Adds leading zeros, which TPMs may omit.
fn padded(number: &[u8]) -> Result<[u8; COORDINATE], TpmError> {
    let mut out = [0; COORDINATE];
    let start = COORDINATE.checked_sub(number.len());
    let start = start.ok_or(TpmError::Session("the TPM's storage root key is not on P-256"))?;
    out[start..].copy_from_slice(number);
    Ok(out)
}
