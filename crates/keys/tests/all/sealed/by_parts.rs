//! HPKE with X-Wing, built from another library's primitives after RFC 9180 and draft-connolly-cfrg-xwing-kem. Data sealed here
//! opens with our code, which shows that our formats follow the standards.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::digest::{SHA3_256, digest};
use aws_lc_rs::hmac;
use aws_lc_rs::kem::{EncapsulationKey, ML_KEM_768};
use keys::sealed::NodeKey;
use x509::SpkiHash;

/// "HPKE", KEM 0x647a, KDF 1 (HKDF-SHA256), AEAD 2 (AES-256-GCM): RFC 9180 section 5.1.
const SUITE: &[u8] = &[b'H', b'P', b'K', b'E', 0x64, 0x7a, 0, 1, 0, 2];

/// Returns the algorithm byte, the X-Wing ciphertext, and the encrypted data with its tag.
pub(super) fn seal(to: &[u8], info: &[u8], aad: &[u8], text: &[u8]) -> Vec<u8> {
    let (encapped, secret) = encapsulate(to);
    let (key, nonce) = key_schedule(&secret, info);
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).unwrap());
    let mut sealed = text.to_vec();
    let nonce = Nonce::try_assume_unique_for_key(&nonce).unwrap();
    key.seal_in_place_append_tag(nonce, Aad::from(aad), &mut sealed).unwrap();
    [&[1][..], &encapped, &sealed].concat()
}

/// X-Wing's Encapsulate (draft-connolly-cfrg-xwing-kem section 5.4).
fn encapsulate(to: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (lattice, curve) = to.split_at(1_184);
    let (ct_m, ss_m) = EncapsulationKey::new(&ML_KEM_768, lattice).unwrap().encapsulate().unwrap();
    let own = PrivateKey::generate(&X25519).unwrap();
    let ct_x = own.compute_public_key().unwrap();
    let ss_x =
        agree(&own, UnparsedPublicKey::new(&X25519, curve), "agreed", |secret| Ok(secret.to_vec())).unwrap();
    let label = br"\.//^\";
    let combined = [ss_m.as_ref(), &ss_x, ct_x.as_ref(), curve, label].concat();
    let secret = digest(&SHA3_256, &combined).as_ref().to_vec();
    ([ct_m.as_ref(), ct_x.as_ref()].concat(), secret)
}

/// Key and nonce of the first message: RFC 9180 section 5.1, mode base.
fn key_schedule(secret: &[u8], info: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let context = [&[0][..], &extract(b"", b"psk_id_hash", b""), &extract(b"", b"info_hash", info)].concat();
    let secret = extract(secret, b"secret", b"");
    (expand(&secret, b"key", &context, 32), expand(&secret, b"base_nonce", &context, 12))
}

/// LabeledExtract (RFC 9180 section 4).
fn extract(salt: &[u8], label: &[u8], ikm: &[u8]) -> Vec<u8> {
    mac(salt, &[b"HPKE-v1", SUITE, label, ikm].concat())
}

/// LabeledExpand (RFC 9180 section 4) of one block of HKDF (RFC 5869 section 2.3).
fn expand(secret: &[u8], label: &[u8], info: &[u8], length: u8) -> Vec<u8> {
    let text = [&[0, length][..], b"HPKE-v1", SUITE, label, info, &[1]].concat();
    mac(secret, &text)[..usize::from(length)].to_vec()
}

fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text).as_ref().to_vec()
}

/// The draft's vectors (section C): seeds, and the SHA-256 of their public keys.
#[test]
fn seeds_expand_to_the_key_pairs_of_the_xwing_draft() {
    for (seed, public) in [
        (
            "7f9c2ba4e88f827d616045507605853ed73b8093f6efbc88eb1a6eacfa66ef26",
            "2e816deebcd76c5c80d0cd2d174478871658e8e2ff42bc9d4a6e486372e856bb",
        ),
        (
            "badfd6dfaac359a5efbb7bcc4b59d538df9a04302e10c8bc1cbf1a0b3a5120ea",
            "c42ba5f8430d7d2c83739338203819f090e8303ce9c8b02107c272bfa5376916",
        ),
        (
            "ef58538b8d23f87732ea63b02b4fa0f4873360e2841928cd60dd4cee8cc0d4c9",
            "6b080d6b84f095342092fa7a22423e58bd681397ad0ef00eac92bd254db4fa95",
        ),
    ] {
        let node = NodeKey::from_bytes(&hex_bytes(seed)).unwrap();
        assert_eq!(SpkiHash::of(node.public().as_bytes()).to_string(), public, "{seed}");
    }
}

fn hex_bytes(text: &str) -> Vec<u8> {
    data_encoding::HEXLOWER.decode(text.as_bytes()).unwrap()
}
