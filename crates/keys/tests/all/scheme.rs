//! Signatures over digests, verified with OpenSSL.

use std::fs;
use std::time::{Duration, Instant};

use keys::verify::{input_for_service, verifies};
use keys::{Batches, Hash, KeyType, PrivateKey, Scheme, SignJob, Signer, sign_slice};
use testbed::openssl_verifies;

use crate::software::key;

/// The key types that sign digests: all but Ed25519.
const KINDS: [KeyType; 6] =
    [KeyType::Rsa2048, KeyType::Rsa3072, KeyType::Rsa4096, KeyType::P256, KeyType::P384, KeyType::P521];

/// Returns whether AWS-LC supports the scheme: it has no RSA signatures with broken hashes.
fn made(scheme: Scheme) -> bool {
    !matches!(
        scheme,
        Scheme::RsaPkcs1(Hash::Md5Sha1 | Hash::Sha1 | Hash::Sha224)
            | Scheme::RsaPss(Hash::Md5Sha1 | Hash::Sha1 | Hash::Sha224)
    )
}

#[test]
fn openssl_verifies_every_scheme_of_every_key_type() {
    let mut checked = 0;
    for kind in KINDS {
        let key = key(kind);
        for hash in Hash::ALL {
            // The highest bit is set, which detects a digest that is truncated wrongly.
            let digest: Vec<u8> = (0..hash.octets()).map(|at| 0xff - at as u8).collect();
            for scheme in [Scheme::RsaPkcs1(hash), Scheme::RsaPss(hash), Scheme::Ecdsa(hash)] {
                let signed = key.sign_digest_now(scheme, &digest);
                if scheme.check(kind, digest.len()).is_err() || !made(scheme) {
                    assert!(signed.is_err(), "{kind} {scheme:?}");
                    continue;
                }
                let signature = signed.unwrap();
                assert!(openssl_verifies(key.spki(), scheme, &digest, &signature), "{kind} {scheme:?}");
                let mut other = digest.clone();
                other[0] ^= 1;
                assert!(!openssl_verifies(key.spki(), scheme, &other, &signature), "{kind} {scheme:?}");
                checked += 1;
            }
        }
    }
    assert_eq!(
        checked,
        3 * 3 + 3 * 3 + 3 * 6,
        "RSA PKCS #1 and PSS by three hashes, ECDSA by six, three keys each"
    );
}

#[test]
fn ed25519_signs_whole_messages() {
    let key = key(KeyType::Ed25519);
    for message in [&b"m"[..], &[7; 10_000]] {
        let signature = key.sign_digest_now(Scheme::Ed25519, message).unwrap();
        assert!(openssl_verifies(key.spki(), Scheme::Ed25519, message, &signature));
    }
}

#[tokio::test]
async fn signer_trait_and_slice_signing_agree() {
    let digest = [0x5a; 32];
    let deadline = Instant::now() + Duration::from_secs(60);
    let (rsa, ec) = (key(KeyType::Rsa2048), key(KeyType::P256));
    let scheme = Scheme::RsaPkcs1(Hash::Sha256);
    let through: &dyn Signer = &rsa;
    let signed = through.sign_digest(scheme, &digest, deadline).await.unwrap();
    assert_eq!(signed, rsa.sign_digest_now(scheme, &digest).unwrap(), "PKCS #1 v1.5 has no randomness");
    let jobs = [
        SignJob { key: &rsa, scheme, input: &digest },
        SignJob { key: &ec, scheme, input: &digest },
        SignJob { key: &ec, scheme: Scheme::Ecdsa(Hash::Sha256), input: &digest },
    ];
    let results = sign_slice(&jobs, Batches::All).signed;
    assert_eq!(results[0].as_ref(), Ok(&signed));
    assert!(results[1].is_err(), "an RSA scheme under a P-256 key");
    let signature = results[2].as_ref().unwrap();
    assert!(openssl_verifies(ec.spki(), Scheme::Ecdsa(Hash::Sha256), &digest, signature));
}

#[test]
fn keys_are_read_from_pem_and_der_files() {
    let folder = tempfile::tempdir().unwrap();
    for kind in [KeyType::Rsa2048, KeyType::P384, KeyType::Ed25519] {
        let key = key(kind);
        let (pem, der) = (folder.path().join("a.key"), folder.path().join("b.key"));
        fs::write(&pem, key.to_pkcs8_pem().as_bytes()).unwrap();
        fs::write(&der, &*key.to_pkcs8_der()).unwrap();
        for path in [pem, der] {
            assert_eq!(PrivateKey::from_file(&path).unwrap().spki(), key.spki(), "{kind}");
        }
    }
    for (octets, what) in [(&b"nothing"[..], "text"), (&[0x30; 70_000], "too long"), (b"", "empty")] {
        fs::write(folder.path().join("c.key"), octets).unwrap();
        assert!(PrivateKey::from_file(&folder.path().join("c.key")).is_err(), "{what}");
    }
    assert!(PrivateKey::from_file(&folder.path().join("none.key")).is_err());
}

#[test]
fn only_valid_digest_signatures_verify() {
    for kind in [KeyType::Rsa2048, KeyType::P256, KeyType::P384, KeyType::P521] {
        let key = key(kind);
        for hash in Hash::ALL {
            let input: Vec<u8> = (0..hash.octets()).map(|at| 0xff - at as u8).collect();
            for scheme in [Scheme::RsaPkcs1(hash), Scheme::RsaPss(hash), Scheme::Ecdsa(hash)] {
                if scheme.check(kind, input.len()).is_err() {
                    continue;
                }
                let given = input_for_service(kind, scheme, &input);
                assert_eq!(given.is_some(), made(scheme), "{kind} {scheme:?}");
                let Some((own, digest)) = given else {
                    assert!(!verifies(key.spki(), kind, scheme, &input, &[0; 256]), "{kind} {scheme:?}");
                    continue;
                };
                // As a service signs that supports only the curve's own hash.
                let mut signature = key.sign_digest_now(own, &digest).unwrap();
                let is_one = |scheme, input: &[u8], signature: &[u8]| {
                    verifies(key.spki(), kind, scheme, input, signature)
                };
                assert!(is_one(scheme, &input, &signature), "{kind} {scheme:?}");
                assert!(openssl_verifies(key.spki(), scheme, &input, &signature), "{kind} {scheme:?}");
                let mut other = input.clone();
                other[0] ^= 1;
                assert!(!is_one(scheme, &other, &signature), "{kind} {scheme:?}: another digest");
                for at in [0, signature.len() / 2, signature.len() - 1] {
                    signature[at] ^= 0x10;
                    assert!(!is_one(scheme, &input, &signature), "{kind} {scheme:?}: octet {at} is wrong");
                    signature[at] ^= 0x10;
                }
            }
        }
    }
    let padded = [Scheme::RsaPkcs1(Hash::Sha256), Scheme::RsaPss(Hash::Sha256)];
    let rsa = key(KeyType::Rsa2048);
    for (made, checked) in [(padded[0], padded[1]), (padded[1], padded[0])] {
        let signature = rsa.sign_digest_now(made, &[7; 32]).unwrap();
        assert!(!verifies(rsa.spki(), KeyType::Rsa2048, checked, &[7; 32], &signature), "{checked:?}");
    }
}

#[test]
fn only_valid_ed25519_signatures_verify() {
    let (edwards, p256) = (key(KeyType::Ed25519), key(KeyType::P256));
    for message in [&b"\0"[..], b"what is signed", &[7; 5_000]] {
        let (own, given) = input_for_service(KeyType::Ed25519, Scheme::Ed25519, message).unwrap();
        assert_eq!((own, &given[..]), (Scheme::Ed25519, message));
        let mut signature = edwards.sign_digest_now(Scheme::Ed25519, message).unwrap();
        let is_one = |message: &[u8], signature: &[u8]| {
            verifies(edwards.spki(), KeyType::Ed25519, Scheme::Ed25519, message, signature)
        };
        assert!(is_one(message, &signature));
        assert!(openssl_verifies(edwards.spki(), Scheme::Ed25519, message, &signature));
        assert!(!is_one(&[message, &[0]].concat(), &signature));
        assert!(!verifies(p256.spki(), KeyType::P256, Scheme::Ed25519, message, &signature));
        for at in [0, 32, 63] {
            signature[at] ^= 0x10;
            assert!(!is_one(message, &signature), "octet {at} is wrong");
            signature[at] ^= 0x10;
        }
    }
    assert_eq!(input_for_service(KeyType::P256, Scheme::Ed25519, b"message"), None);
}
