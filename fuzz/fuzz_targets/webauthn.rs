//! Any bytes, read as the response of a security key: no panic, and a key that a registration returns can be parsed again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use webauthn::{Assertion, Base64Url, Expected, PublicKey, Registration};

/// Client data that matches [`EXPECTED`], so that the parts behind it are reached.
const CREATED: &[u8] =
    br#"{"type":"webauthn.create","challenge":"eA","origin":"https://example.org","crossOrigin":false}"#;
const ASSERTED: &[u8] =
    br#"{"type":"webauthn.get","challenge":"eA","origin":"https://example.org","crossOrigin":false}"#;
const EXPECTED: Expected<'_> = Expected {
    challenge: b"x",
    rp_id: "example.org",
    origin: "https://example.org",
    user_verification: false,
};

fuzz_target!(|bytes: &[u8]| {
    let _ = PublicKey::parse(bytes);
    for client_data in [CREATED, bytes] {
        let registration = Registration {
            client_data_json: Base64Url::from(client_data),
            attestation_object: Base64Url::from(bytes),
        };
        if let Ok(credential) = registration.verify(&EXPECTED) {
            assert!(PublicKey::parse(&credential.public_key).is_ok());
        }
    }
    // The first two bytes are the length of the public key, the rest is authenticator data.
    let Some((length, rest)) = bytes.split_first_chunk::<2>() else { return };
    let Some((key, data)) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length))) else { return };
    let assertion = Assertion {
        credential_id: Base64Url(vec![0; 16]),
        client_data_json: Base64Url::from(ASSERTED),
        authenticator_data: Base64Url::from(data),
        signature: Base64Url::from(&bytes[..bytes.len().min(64)]),
        user_handle: None,
    };
    let _ = assertion.verify_signature(&EXPECTED, key);
});
