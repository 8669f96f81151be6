//! Digests for the comparison of passwords and tokens.

use aws_lc_rs::hmac;

/// Bytes of SHA-256.
pub(super) const DIGEST: usize = 32;

pub(super) type Digest = [u8; DIGEST];

/// Returns HMAC-SHA256 of `parts` with `key`.
pub(super) fn under(key: &hmac::Key, parts: &[&[u8]]) -> Digest {
    let mut context = hmac::Context::with_key(key);
    for part in parts {
        context.update(part);
    }
    let mut digest = [0; DIGEST];
    digest.copy_from_slice(context.sign().as_ref());
    digest
}
