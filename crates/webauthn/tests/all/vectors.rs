//! `w3c.json` has the test vectors of the specification, from its source at https://github.com/w3c/webauthn (`index.bs`).

use data_encoding::HEXLOWER;
use proptest::prelude::*;
use serde::Deserialize;
use webauthn::assertion::RegisteredKey;
use webauthn::{Algorithm, Assertion, Base64Url, Credential, Error, Expected, Registration};

#[derive(Deserialize)]
struct Vector {
    name: String,
    create: Create,
    get: Get,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Create {
    challenge: String,
    #[serde(rename = "credential_id")]
    credential_id: String,
    #[serde(rename = "clientDataJSON")]
    client_data: String,
    attestation_object: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Get {
    challenge: String,
    authenticator_data: String,
    #[serde(rename = "clientDataJSON")]
    client_data: String,
    signature: String,
}

fn vectors() -> Vec<Vector> {
    serde_json::from_str(include_str!("w3c.json")).unwrap()
}

fn vector(name: &str) -> Vector {
    vectors().into_iter().find(|vector| vector.name == name).unwrap()
}

fn hex(text: &str) -> Vec<u8> {
    HEXLOWER.decode(text.as_bytes()).unwrap()
}

fn expected(challenge: &[u8]) -> Expected<'_> {
    Expected { challenge, rp_id: "example.org", origin: "https://example.org", user_verification: false }
}

fn registration(vector: &Vector) -> Registration {
    Registration {
        client_data_json: Base64Url(hex(&vector.create.client_data)),
        attestation_object: Base64Url(hex(&vector.create.attestation_object)),
    }
}

fn assertion(vector: &Vector) -> Assertion {
    Assertion {
        credential_id: Base64Url(hex(&vector.create.credential_id)),
        client_data_json: Base64Url(hex(&vector.get.client_data)),
        authenticator_data: Base64Url(hex(&vector.get.authenticator_data)),
        signature: Base64Url(hex(&vector.get.signature)),
        user_handle: None,
    }
}

fn registered(vector: &Vector) -> Result<Credential, Error> {
    registration(vector).verify(&expected(&hex(&vector.create.challenge)))
}

fn known(credential: &Credential) -> RegisteredKey<'_> {
    RegisteredKey {
        id: &credential.id,
        public_key: &credential.public_key,
        sign_count: credential.sign_count,
        backup_eligible: credential.backup_eligible,
        user_handle: b"ann",
    }
}

/// Returns the simplest vector, its credential and its assertion.
fn simple() -> (Vector, Credential, Assertion) {
    let vector = vector("ES256 Credential with No Attestation");
    let credential = registered(&vector).unwrap();
    let assertion = assertion(&vector);
    (vector, credential, assertion)
}

#[test]
fn the_vectors_of_the_specification_are_accepted() {
    let mut algorithms = Vec::new();
    for vector in vectors() {
        let name = &vector.name;
        // Algorithms that are not offered, and pages in frames of other sites.
        let refused = match name.as_str() {
            name if name.contains("ES384") || name.contains("ES512") || name.contains("Ed448") => {
                Some(Error::PublicKey)
            }
            name if name.contains("Origin") => Some(Error::Origin),
            _ => None,
        };
        let credential = match (registered(&vector), refused) {
            (Err(error), Some(refused)) => {
                assert_eq!(error, refused, "{name}");
                continue;
            }
            (registered, None) => registered.unwrap_or_else(|error| panic!("{name}: {error}")),
            (Ok(_), Some(_)) => panic!("{name} is accepted"),
        };
        assert_eq!(credential.id, hex(&vector.create.credential_id), "{name}");
        algorithms.push(credential.algorithm);
        let (assertion, challenge) = (assertion(&vector), hex(&vector.get.challenge));
        let verified = assertion.verify(&expected(&challenge), &known(&credential));
        verified.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    assert_eq!(algorithms.len(), 10);
    assert!(Algorithm::ALL.iter().all(|one| algorithms.contains(one)), "{algorithms:?}");
}

#[test]
fn a_response_of_another_ceremony_is_rejected() {
    let (vector, credential, assertion) = simple();
    let challenge = hex(&vector.get.challenge);
    let good = expected(&challenge);
    let verify = |expected: &Expected<'_>| assertion.verify(expected, &known(&credential)).unwrap_err();
    assert_eq!(verify(&Expected { challenge: &challenge[1..], ..good }), Error::Challenge);
    assert_eq!(verify(&Expected { challenge: b"", ..good }), Error::Challenge);
    assert_eq!(verify(&Expected { origin: "https://example.org:8443", ..good }), Error::Origin);
    assert_eq!(verify(&Expected { origin: "http://example.org", ..good }), Error::Origin);
    assert_eq!(verify(&Expected { rp_id: "org", ..good }), Error::RelyingParty);
    assert_eq!(verify(&Expected { user_verification: true, ..good }), Error::UserVerification);
    // An assertion is no registration, and the other way round.
    let created = hex(&vector.create.challenge);
    let swapped = Assertion { client_data_json: Base64Url(hex(&vector.create.client_data)), ..assertion };
    assert_eq!(swapped.verify(&expected(&created), &known(&credential)), Err(Error::Type));
    let swapped =
        Registration { client_data_json: Base64Url(hex(&vector.get.client_data)), ..registration(&vector) };
    assert_eq!(swapped.verify(&good), Err(Error::Type));
}

#[test]
fn an_assertion_of_another_credential_is_rejected() {
    let (vector, credential, assertion) = simple();
    let challenge = hex(&vector.get.challenge);
    let other = registered(&self::vector("Packed Attestation with ES256 Credential")).unwrap();
    let verify = |known: &RegisteredKey<'_>| assertion.verify(&expected(&challenge), known);
    assert!(verify(&known(&credential)).is_ok());
    assert_eq!(verify(&RegisteredKey { id: &other.id, ..known(&credential) }), Err(Error::Credential));
    assert_eq!(
        verify(&RegisteredKey { public_key: &other.public_key, ..known(&credential) }),
        Err(Error::Signature)
    );
    let eligible = !credential.backup_eligible;
    assert_eq!(
        verify(&RegisteredKey { backup_eligible: eligible, ..known(&credential) }),
        Err(Error::Credential)
    );
    let handle = Some(Base64Url(b"bob".to_vec()));
    let of_another = Assertion { user_handle: handle, ..assertion.clone() };
    assert_eq!(of_another.verify(&expected(&challenge), &known(&credential)), Err(Error::Credential));
}

#[test]
fn a_counter_must_increase_where_there_is_one() {
    let (vector, credential, assertion) = simple();
    let challenge = hex(&vector.get.challenge);
    // The vectors have no counter.
    let verify = |sign_count| {
        let known = RegisteredKey { sign_count, ..known(&credential) };
        assertion.verify(&expected(&challenge), &known).map(|verified| verified.sign_count)
    };
    assert_eq!(verify(0), Ok(0));
    assert_eq!(verify(1), Err(Error::Counter));
}

#[test]
fn an_absent_user_and_an_impossible_backup_are_rejected() {
    let (vector, credential, assertion) = simple();
    let challenge = hex(&vector.get.challenge);
    let flags = assertion.authenticator_data.0[32];
    let with = |flags: u8| {
        let mut changed = assertion.clone();
        changed.authenticator_data.0[32] = flags;
        changed.verify(&expected(&challenge), &known(&credential)).unwrap_err()
    };
    assert_eq!(with(flags & !1), Error::UserPresence);
    // Backed up, but not eligible for it.
    assert_eq!(with(0x11), Error::AuthenticatorData);
    // Extensions that are not there.
    assert_eq!(with(flags | 0x80), Error::Cbor);
}

#[test]
fn parts_that_are_too_long_are_rejected() {
    let (vector, credential, assertion) = simple();
    let challenge = hex(&vector.get.challenge);
    let verify = |changed: Assertion| changed.verify(&expected(&challenge), &known(&credential));
    let long = Base64Url(vec![b' '; 64 << 10]);
    assert_eq!(verify(Assertion { signature: long.clone(), ..assertion.clone() }), Err(Error::Size));
    assert_eq!(verify(Assertion { client_data_json: long.clone(), ..assertion.clone() }), Err(Error::Size));
    assert_eq!(verify(Assertion { authenticator_data: long.clone(), ..assertion.clone() }), Err(Error::Size));
    assert_eq!(verify(Assertion { user_handle: Some(long.clone()), ..assertion.clone() }), Err(Error::Size));
    assert_eq!(verify(Assertion { credential_id: long.clone(), ..assertion }), Err(Error::Size));
    let changed = Registration { attestation_object: long, ..registration(&vector) };
    assert_eq!(changed.verify(&expected(&hex(&vector.create.challenge))), Err(Error::Size));
}

proptest! {
    #[test]
    fn a_changed_assertion_is_rejected(part in 0_usize..3, at: proptest::sample::Index, bit in 0_u8..8) {
        let (vector, credential, mut assertion) = simple();
        let bytes = match part {
            0 => &mut assertion.client_data_json.0,
            1 => &mut assertion.authenticator_data.0,
            _ => &mut assertion.signature.0,
        };
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(assertion.verify(&expected(&hex(&vector.get.challenge)), &known(&credential)).is_err());
    }

    #[test]
    fn a_shorter_or_changed_registration_never_panics(
        which in 0_usize..15, cut: proptest::sample::Index, at: proptest::sample::Index, byte: u8,
    ) {
        let vector = &vectors()[which];
        let mut registration = registration(vector);
        let object = &mut registration.attestation_object.0;
        let at = at.index(object.len());
        object[at] = byte;
        let _ = registration.verify(&expected(&hex(&vector.create.challenge)));
        let object = &mut registration.attestation_object.0;
        let length = cut.index(object.len());
        object.truncate(length);
        prop_assert!(registration.verify(&expected(&hex(&vector.create.challenge))).is_err());
    }
}
