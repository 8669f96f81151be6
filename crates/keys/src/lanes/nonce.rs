//! Nonces of ECDSA on P-256: RFC 6979 section 3.2 with SHA-256, and fresh randomness as additional input (section 3.6).
//!
//! Nonces depend on key and digest even if the randomness fails. With fresh randomness, two signatures of the same digest have
//! different nonces. Therefore a faulty and a correct signature together do not reveal the key.

use std::sync::LazyLock;

use aws_lc_rs::hmac::{self, HMAC_SHA256, Key};
use zeroize::Zeroizing;

/// Bytes of a number below n.
pub(super) const BYTES: usize = 32;
/// Bytes of fresh randomness. More bytes would need another SHA-256 block, twice for each signature.
pub(super) const FRESH: usize = 16;
/// Bytes of V, a separator byte, the key and the digest.
const SEED: usize = BYTES + 1 + 2 * BYTES;

/// n, the order of the group (SP 800-186 section 3.2.1.3).
const ORDER: [u8; BYTES] = [
    0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc,
    0xe6, 0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
];

/// Initial state of the generator: K is all zeros.
static FIRST: LazyLock<Key> = LazyLock::new(|| Key::new(HMAC_SHA256, &[0; BYTES]));

/// Computes a nonce, above zero and below n, for the leftmost 256 bits of a digest. `fresh` has [`FRESH`] bytes, or none for the
/// deterministic nonces of RFC 6979. Returns `None` if the library fails. The caller must wipe the stack afterwards.
pub(super) fn nonce(
    nonce: &mut [u8; BYTES],
    private: &[u8; BYTES],
    digest: &[u8; BYTES],
    fresh: &[u8],
) -> Option<()> {
    let mut seed = Zeroizing::new([0; SEED + FRESH]);
    let seed = seed.get_mut(..SEED + fresh.len())?;
    seed[..BYTES].fill(1);
    seed[BYTES + 1..][..BYTES].copy_from_slice(private);
    seed[2 * BYTES + 1..][..BYTES].copy_from_slice(&reduce_modulo_order(digest));
    seed[SEED..].copy_from_slice(fresh);
    let mut key = next_key(&FIRST, seed)?;
    // V is written back to the start of the seed before the next hash.
    step(&key, seed)?;
    seed[BYTES] = 1;
    key = next_key(&key, seed)?;
    loop {
        // Two steps before the first candidate, one step before each later one.
        step(&key, seed)?;
        hmac::sign_to_buffer(&key, &seed[..BYTES], nonce).ok()?;
        if is_below_order(nonce) && *nonce != [0; BYTES] {
            return Some(());
        }
        seed[..BYTES].copy_from_slice(nonce);
        seed[BYTES] = 0;
        key = next_key(&key, &seed[..=BYTES])?;
    }
}

/// Computes the next K from this K and `given`.
fn next_key(key: &Key, given: &[u8]) -> Option<Key> {
    let mut bytes = Zeroizing::new([0; BYTES]);
    hmac::sign_to_buffer(key, given, bytes.as_mut()).ok()?;
    Some(Key::new(HMAC_SHA256, bytes.as_ref()))
}

/// Computes the next V from K and the previous V, which is at the start of the seed.
fn step(key: &Key, seed: &mut [u8]) -> Option<()> {
    let before = Zeroizing::new(<[u8; BYTES]>::try_from(seed.get(..BYTES)?).ok()?);
    hmac::sign_to_buffer(key, before.as_ref(), seed.get_mut(..BYTES)?).ok().map(drop)
}

/// Reduces a number below 2^256 modulo n. The number is a digest and therefore not secret.
fn reduce_modulo_order(number: &[u8; BYTES]) -> [u8; BYTES] {
    let (less, is_below) = subtract_order(number);
    if is_below { *number } else { less }
}

/// Compares in constant time, because the number may be a nonce.
fn is_below_order(number: &[u8; BYTES]) -> bool {
    subtract_order(number).1
}

/// Subtracts n from a number, modulo 2^256. Also returns whether the subtraction borrowed.
fn subtract_order(number: &[u8; BYTES]) -> ([u8; BYTES], bool) {
    let (mut less, mut borrow) = ([0; BYTES], 0);
    for at in (0..BYTES).rev() {
        let difference = i16::from(number[at]) - i16::from(ORDER[at]) + borrow;
        less[at] = difference as u8;
        borrow = difference >> 8;
    }
    (less, borrow != 0)
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::digest;

    use super::*;

    fn hex(digits: &str) -> [u8; BYTES] {
        data_encoding::HEXUPPER.decode(digits.as_bytes()).unwrap().try_into().unwrap()
    }

    /// RFC 6979 appendix A.2.5.
    const PRIVATE: &str = "C9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721";

    fn of(private: &[u8; BYTES], digest: &[u8; BYTES], fresh: &[u8]) -> [u8; BYTES] {
        let mut made = [0; BYTES];
        nonce(&mut made, private, digest, fresh).unwrap();
        made
    }

    #[test]
    fn nonces_equal_published_vectors() {
        for (message, wanted) in [
            ("sample", "A6E3C57DD01ABE90086538398355DD4C3B17AA873382B0F24D6129493D8AAD60"),
            ("test", "D16B6AE827F17175E040871A1C7EC3500192C4C92677336EC2537ACAEE0008E0"),
        ] {
            let digest = digest::digest(&digest::SHA256, message.as_bytes());
            assert_eq!(of(&hex(PRIVATE), digest.as_ref().try_into().unwrap(), &[]), hex(wanted));
        }
    }

    #[test]
    fn nonce_depends_on_key_digest_and_fresh_randomness() {
        let (private, digest, fresh) = (hex(PRIVATE), [7; BYTES], [9; FRESH]);
        let mut made = vec![of(&private, &digest, &[]), of(&private, &digest, &fresh)];
        for at in [0, BYTES - 1] {
            let (mut other, mut digest_other) = (private, digest);
            (other[at], digest_other[at]) = (other[at] ^ 1, digest_other[at] ^ 1);
            made.extend([of(&other, &digest, &fresh), of(&private, &digest_other, &fresh)]);
        }
        for at in [0, FRESH - 1] {
            let mut other = fresh;
            other[at] ^= 1;
            made.push(of(&private, &digest, &other));
        }
        let count = made.len();
        made.sort_unstable();
        made.dedup();
        assert_eq!(made.len(), count);
        assert!(nonce(&mut [0; BYTES], &private, &digest, &[0; FRESH + 1]).is_none());
    }

    #[test]
    fn digests_are_reduced_modulo_the_group_order() {
        let mut before = ORDER;
        before[BYTES - 1] -= 1;
        assert!(is_below_order(&before) && is_below_order(&[0; BYTES]));
        assert!(!is_below_order(&ORDER) && !is_below_order(&[0xff; BYTES]));
        let mut after = ORDER;
        after[BYTES - 1] += 5;
        let mut five = [0; BYTES];
        five[BYTES - 1] = 5;
        assert_eq!(
            [reduce_modulo_order(&before), reduce_modulo_order(&ORDER), reduce_modulo_order(&after)],
            [before, [0; BYTES], five]
        );
        // A digest of n or more is equivalent to its remainder modulo n.
        assert_eq!(of(&hex(PRIVATE), &after, &[]), of(&hex(PRIVATE), &five, &[]));
    }
}
