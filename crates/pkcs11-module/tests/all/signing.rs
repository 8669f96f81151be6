//! Every mechanism with every supported key type.

use std::thread;

use cryptoki::error::{Error, RvError};
use cryptoki::mechanism::eddsa::{EddsaParams, EddsaSignatureScheme};
use cryptoki::mechanism::rsa::{PkcsMgfType, PkcsPssParams};
use cryptoki::mechanism::{Mechanism, MechanismType};
use keys::{Hash, KeyType, Scheme};

use crate::world::{KINDS, World, in_a_process, initialised, openssl_verifies, private_key, session, spki};

const MESSAGE: &[u8] = b"what is signed";

fn value_of<T: std::fmt::Debug>(result: Result<T, Error>) -> RvError {
    match result {
        Err(Error::Pkcs11(value, _)) => value,
        other => panic!("{other:?}"),
    }
}

fn pss(hash: Hash, salt: u64) -> PkcsPssParams {
    let (hash_alg, mgf) = match hash {
        Hash::Sha256 => (MechanismType::SHA256, PkcsMgfType::MGF1_SHA256),
        Hash::Sha384 => (MechanismType::SHA384, PkcsMgfType::MGF1_SHA384),
        Hash::Sha512 => (MechanismType::SHA512, PkcsMgfType::MGF1_SHA512),
        _ => (MechanismType::SHA1, PkcsMgfType::MGF1_SHA1),
    };
    PkcsPssParams { hash_alg, mgf, s_len: salt.into() }
}

fn ed25519() -> Mechanism<'static> {
    Mechanism::Eddsa(EddsaParams::new(EddsaSignatureScheme::Ed25519))
}

/// Returns the DigestInfo of PKCS #1, encoded by hand.
fn digest_info(hash: Hash, digest: &[u8]) -> Vec<u8> {
    let oid = match hash {
        Hash::Sha256 => "2.16.840.1.101.3.4.2.1",
        Hash::Sha384 => "2.16.840.1.101.3.4.2.2",
        Hash::Sha512 => "2.16.840.1.101.3.4.2.3",
        _ => "1.3.14.3.2.26",
    };
    x509::der::write(|der| {
        der.sequence(|info| {
            info.sequence(|algorithm| {
                algorithm.oid_text(oid).null();
            });
            info.octets(digest);
        });
    })
}

#[test]
fn every_mechanism_signs() {
    in_a_process("signing::every_mechanism_signs_");
}

#[test]
#[ignore = "started by the test of the same name, with its own environment"]
fn every_mechanism_signs_() {
    let world = World::new();
    let module = initialised();
    let session = session(&module);
    let check = |kind: KeyType, mechanism: &Mechanism<'_>, data: &[u8], scheme: Scheme| {
        let key = private_key(&session, kind.name());
        let signature =
            session.sign(mechanism, key, data).unwrap_or_else(|error| panic!("{mechanism:?}: {error}"));
        let digest = scheme.input(MESSAGE).unwrap();
        let spki = spki(&world, kind.name());
        assert!(openssl_verifies(&spki, scheme, &digest, &signature), "{kind} {mechanism:?}");
    };
    for hash in [Hash::Sha256, Hash::Sha384, Hash::Sha512] {
        let digest = hash.digest(MESSAGE).unwrap();
        let salt = hash.octets() as u64;
        let (pkcs1, whole_pss, ecdsa) = match hash {
            Hash::Sha256 => (
                Mechanism::Sha256RsaPkcs,
                Mechanism::Sha256RsaPkcsPss(pss(hash, salt)),
                Mechanism::EcdsaSha256,
            ),
            Hash::Sha384 => (
                Mechanism::Sha384RsaPkcs,
                Mechanism::Sha384RsaPkcsPss(pss(hash, salt)),
                Mechanism::EcdsaSha384,
            ),
            _ => (
                Mechanism::Sha512RsaPkcs,
                Mechanism::Sha512RsaPkcsPss(pss(hash, salt)),
                Mechanism::EcdsaSha512,
            ),
        };
        let rsa = KeyType::Rsa2048;
        check(rsa, &Mechanism::RsaPkcs, &digest_info(hash, &digest), Scheme::RsaPkcs1(hash));
        check(rsa, &Mechanism::RsaPkcsPss(pss(hash, salt)), &digest, Scheme::RsaPss(hash));
        check(rsa, &pkcs1, MESSAGE, Scheme::RsaPkcs1(hash));
        check(rsa, &whole_pss, MESSAGE, Scheme::RsaPss(hash));
        for kind in [KeyType::P256, KeyType::P384, KeyType::P521] {
            check(kind, &Mechanism::Ecdsa, &digest, Scheme::Ecdsa(hash));
            check(kind, &ecdsa, MESSAGE, Scheme::Ecdsa(hash));
        }
    }
    check(KeyType::Ed25519, &ed25519(), MESSAGE, Scheme::Ed25519);
    for kind in KINDS {
        let (mechanism, scheme) = match kind {
            KeyType::Ed25519 => (ed25519(), Scheme::Ed25519),
            KeyType::Rsa2048 => (Mechanism::Sha256RsaPkcs, Scheme::RsaPkcs1(Hash::Sha256)),
            _ => (Mechanism::EcdsaSha256, Scheme::Ecdsa(Hash::Sha256)),
        };
        session.sign_init(&mechanism, private_key(&session, kind.name())).unwrap();
        for part in MESSAGE.chunks(5) {
            session.sign_update(part).unwrap();
        }
        let signature = session.sign_final().unwrap();
        let digest = scheme.input(MESSAGE).unwrap();
        assert!(openssl_verifies(&spki(&world, kind.name()), scheme, &digest, &signature), "{kind} in parts");
    }
}

#[test]
fn invalid_mechanisms_keys_and_lengths_are_rejected() {
    in_a_process("signing::invalid_mechanisms_keys_and_lengths_are_rejected_");
}

#[test]
#[ignore = "started by the test of the same name, with its own environment"]
fn invalid_mechanisms_keys_and_lengths_are_rejected_() {
    let world = World::new();
    let module = initialised();
    let session = session(&module);
    let digest = Hash::Sha256.digest(MESSAGE).unwrap();
    let sha256 = pss(Hash::Sha256, 32);
    let other_mgf = PkcsPssParams { mgf: PkcsMgfType::MGF1_SHA1, ..sha256 };
    let mixed = digest_info(Hash::Sha384, &digest);
    let with_context = Mechanism::Eddsa(EddsaParams::new(EddsaSignatureScheme::Ed25519ctx(b"context")));
    let prehashed = Mechanism::Eddsa(EddsaParams::new(EddsaSignatureScheme::Ed25519ph(b"")));
    let too_long = vec![0; 65_506];
    for (label, mechanism, data, wanted) in [
        ("rsa2048", Mechanism::RsaPkcs, &digest[..], RvError::DataInvalid),
        ("rsa2048", Mechanism::RsaPkcs, &mixed[..], RvError::DataInvalid),
        ("rsa2048", Mechanism::RsaPkcs, &[0; 36], RvError::DataInvalid),
        ("rsa2048", Mechanism::RsaPkcsPss(sha256), &[0; 48], RvError::DataLenRange),
        ("rsa2048", Mechanism::RsaPkcsPss(pss(Hash::Sha256, 20)), &digest, RvError::MechanismParamInvalid),
        ("rsa2048", Mechanism::RsaPkcsPss(other_mgf), &digest, RvError::MechanismParamInvalid),
        ("rsa2048", Mechanism::Sha384RsaPkcsPss(sha256), &digest, RvError::MechanismParamInvalid),
        ("rsa2048", Mechanism::Ecdsa, &digest, RvError::KeyTypeInconsistent),
        ("rsa2048", Mechanism::RsaX509, &digest, RvError::MechanismInvalid),
        ("p256", Mechanism::RsaPkcs, &digest, RvError::KeyTypeInconsistent),
        ("p256", Mechanism::Ecdsa, &[0; 33], RvError::DataLenRange),
        ("p256", ed25519(), MESSAGE, RvError::KeyTypeInconsistent),
        ("rsa2048", ed25519(), MESSAGE, RvError::KeyTypeInconsistent),
        ("ed25519", Mechanism::Ecdsa, &digest, RvError::KeyTypeInconsistent),
        ("ed25519", Mechanism::EcdsaSha256, MESSAGE, RvError::KeyTypeInconsistent),
        ("ed25519", with_context, MESSAGE, RvError::MechanismParamInvalid),
        ("ed25519", prehashed, MESSAGE, RvError::MechanismParamInvalid),
        ("ed25519", ed25519(), &too_long, RvError::DataLenRange),
    ] {
        let signed = session.sign(&mechanism, private_key(&session, label), data);
        assert_eq!(value_of(signed), wanted, "{label} {mechanism:?}");
    }
    // The failed operations leave no state: the same session signs.
    assert!(session.sign(&Mechanism::Ecdsa, private_key(&session, "p256"), &digest).is_ok());
    let update = session.sign_init(&Mechanism::Ecdsa, private_key(&session, "p256"));
    update.unwrap();
    assert_eq!(value_of(session.sign_update(&digest)), RvError::FunctionNotSupported);
    assert_eq!(value_of(session.sign_final()), RvError::OperationNotInitialized);
    // The length limit also applies to messages in parts.
    session.sign_init(&ed25519(), private_key(&session, "ed25519")).unwrap();
    session.sign_update(&too_long[..65_505]).unwrap();
    assert_eq!(value_of(session.sign_update(&[0])), RvError::DataLenRange);
    assert_eq!(value_of(session.sign_final()), RvError::OperationNotInitialized);
    let longest = session.sign(&ed25519(), private_key(&session, "ed25519"), &too_long[..65_505]).unwrap();
    assert!(openssl_verifies(&spki(&world, "ed25519"), Scheme::Ed25519, &too_long[..65_505], &longest));
}

#[test]
fn threads_sign_concurrently() {
    in_a_process("signing::threads_sign_concurrently_");
}

#[test]
#[ignore = "started by the test of the same name, with its own environment"]
fn threads_sign_concurrently_() {
    let world = World::new();
    let module = initialised();
    let public = spki(&world, "p256");
    thread::scope(|scope| {
        for number in 0..16_u8 {
            let (module, public) = (&module, &public);
            scope.spawn(move || {
                let session = session(module);
                let key = private_key(&session, "p256");
                for round in 0..32 {
                    let digest = [number ^ round; 32];
                    let signature = session.sign(&Mechanism::Ecdsa, key, &digest).unwrap();
                    if round == 0 {
                        let scheme = Scheme::Ecdsa(Hash::Sha256);
                        assert!(openssl_verifies(public, scheme, &digest, &signature));
                    }
                }
            });
        }
    });
}
