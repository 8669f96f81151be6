//! Every key type: generation, encoding, parsing, signing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use keys::{DecryptError, KeyError, KeyRef, KeyType, OaepHash, PrivateKey, SignError, Signer};
use x509::{PublicKey, verify_signature};

/// Returns one key of each type for the whole binary, because generating RSA keys takes seconds.
pub(crate) fn key(kind: KeyType) -> PrivateKey {
    static KEYS: OnceLock<Mutex<HashMap<KeyType, PrivateKey>>> = OnceLock::new();
    let mut keys = KEYS.get_or_init(Mutex::default).lock().unwrap();
    keys.entry(kind).or_insert_with(|| PrivateKey::generate(kind).unwrap()).clone()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[tokio::test]
async fn signatures_of_every_key_type_verify() {
    for kind in KeyType::ALL {
        let key = key(kind);
        assert_eq!(key.key_type(), kind);
        let public = PublicKey::parse(key.spki()).unwrap();
        assert_eq!(KeyType::of(&public), Some(kind));
        assert_eq!(KeyType::of_spki(key.spki()), Some(kind));
        let signer: KeyRef = Arc::new(key.clone());
        for message in [&b""[..], b"message", &[7; 10_000]] {
            for signature in [key.sign_now(message).unwrap(), signer.sign(message, soon()).await.unwrap()] {
                assert_eq!(
                    verify_signature(&public, &key.algorithm(), message, &signature),
                    Ok(()),
                    "{kind}"
                );
                let other = [message, b"!"].concat();
                assert!(verify_signature(&public, &key.algorithm(), &other, &signature).is_err(), "{kind}");
            }
        }
    }
}

#[tokio::test]
async fn expired_deadline_fails_only_as_late() {
    let key = key(KeyType::Rsa2048);
    let hold: Vec<_> = (0..64).map(|_| key.sign(b"x", soon())).collect();
    let late = key.sign(b"x", Instant::now() - Duration::from_secs(1));
    let (late, results) = futures_util::future::join(late, futures_util::future::join_all(hold)).await;
    assert!(results.iter().all(Result::is_ok));
    // The request may have been served immediately. It must not fail in any other way.
    assert!(matches!(late, Ok(_) | Err(SignError::Late)), "{late:?}");
}

#[test]
fn every_key_type_round_trips_through_pem_and_der() {
    for kind in KeyType::ALL {
        let key = key(kind);
        let restored = PrivateKey::from_pem(&key.to_pkcs8_pem()).unwrap();
        assert_eq!(restored.spki(), key.spki(), "{kind}");
        assert_eq!(restored.to_pkcs8_der(), key.to_pkcs8_der(), "{kind}");
        let der = PrivateKey::from_pkcs8_der(&key.to_pkcs8_der()).unwrap();
        assert_eq!(der.spki(), key.spki(), "{kind}");
        let sealed = key.to_encrypted_pem(b"open sesame").unwrap();
        assert_eq!(PrivateKey::from_pem(&sealed).unwrap_err(), KeyError::Encrypted);
        assert_eq!(PrivateKey::from_encrypted_pem(&sealed, b"open sesame").unwrap().spki(), key.spki());
    }
}

#[test]
fn wrong_passphrase_is_reported() {
    let sealed = key(KeyType::P256).to_encrypted_pem(b"open sesame").unwrap();
    for wrong in 0..8 {
        let error = PrivateKey::from_encrypted_pem(&sealed, format!("wrong {wrong}").as_bytes()).unwrap_err();
        assert_eq!(error, KeyError::WrongPassphrase);
    }
}

#[test]
fn malformed_keys_are_rejected_without_panic() {
    assert_eq!(PrivateKey::from_pem("hello").unwrap_err(), KeyError::NoKey);
    assert!(matches!(PrivateKey::from_der(b"hello").unwrap_err(), KeyError::Malformed(_)));
    assert!(matches!(PrivateKey::from_der(&[0x30; 40_000]).unwrap_err(), KeyError::Malformed(_)));
    let whole = key(KeyType::P256).to_pkcs8_der();
    for length in 0..whole.len() {
        assert!(PrivateKey::from_der(&whole[..length]).is_err(), "{length}");
    }
    let two = [&whole[..], &whole[..]].concat();
    assert!(matches!(PrivateKey::from_der(&two).unwrap_err(), KeyError::Malformed(_)));
    for (at, bit) in (0..whole.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut changed = whole.to_vec();
        changed[at] ^= 1 << bit;
        // The changed bytes may parse or fail, but a parsed key must be valid.
        if let Ok(read) = PrivateKey::from_der(&changed) {
            let public = PublicKey::parse(read.spki()).unwrap();
            let signature = read.sign_now(b"m").unwrap();
            assert_eq!(verify_signature(&public, &read.algorithm(), b"m", &signature), Ok(()), "{at}/{bit}");
        }
    }
}

#[test]
fn debug_output_hides_the_private_key() {
    let key = key(KeyType::P256);
    let text = format!("{key:?}");
    assert!(text.starts_with("PrivateKey(p256, "), "{text}");
    let der = key.to_pkcs8_der();
    let hex = data_encoding::HEXLOWER.encode(&der[36..68]);
    assert!(!text.contains(&hex[..16]), "{text}");
}

#[test]
fn decryption_requires_an_rsa_key() {
    let key = key(KeyType::P256);
    assert_eq!(key.rsa_decrypt_pkcs1(&[0; 256]).unwrap_err(), DecryptError::NotRsa(KeyType::P256));
    assert_eq!(
        key.rsa_decrypt_oaep(OaepHash::Sha256, &[0; 256]).unwrap_err(),
        DecryptError::NotRsa(KeyType::P256)
    );
}
