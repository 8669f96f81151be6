//! Statements are accepted only with a valid signature of the control plane.

use std::time::{Duration, Instant};

use keyless::places::{Attributes, PAYLOAD_MAX, SignedStatement, Statement, StatementError};
use keys::sealed::NodeKey;
use keys::{KeyType, PrivateKey, Signer as _};
use uuid::Uuid;
use x509::SpkiHash;

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn statement() -> Statement {
    Statement {
        node: Uuid::from_u128(7),
        name: "fra-1".to_owned(),
        site: "frankfurt".to_owned(),
        address: "10.0.0.7:2407".to_owned(),
        kem: NodeKey::generate().unwrap().public().clone(),
        tls_spki_sha256: SpkiHash::of(b"spki"),
        attributes: Attributes::of([("country", "DE"), ("region", "EU")]).unwrap(),
        issued_at_s: 1_000,
        not_after_s: 4_600,
    }
}

#[tokio::test]
async fn statement_signed_by_the_control_plane_is_accepted() {
    let (key, other) =
        (PrivateKey::generate(KeyType::Ed25519).unwrap(), PrivateKey::generate(KeyType::Ed25519).unwrap());
    let stated = statement();
    let signed = stated.sign(&key, soon()).await.unwrap();
    let travelled = serde_json::from_str(&serde_json::to_string(&signed).unwrap()).unwrap();
    assert_eq!(signed, travelled);
    assert_eq!(signed.verify(key.spki()), Ok(stated.clone()));
    assert_eq!(signed.verify(other.spki()), Err(StatementError::Forged), "another control plane");
    for payload in [
        signed.payload.replace("\"DE\"", "\"FR\""),
        signed.payload.replace("4600", "9999"),
        format!("{} ", signed.payload),
    ] {
        let changed = SignedStatement { payload, ..signed.clone() };
        assert_eq!(changed.verify(key.spki()), Err(StatementError::Forged));
    }
    for signature in ["", "AAAA", "!"] {
        let changed = SignedStatement { signature: signature.to_owned(), ..signed.clone() };
        assert_eq!(changed.verify(key.spki()), Err(StatementError::Forged));
    }
    assert!(stated.holds_at(4_599) && stated.holds_at(0) && !stated.holds_at(4_600));
}

#[tokio::test]
async fn signature_without_the_domain_prefix_is_rejected() {
    let key = PrivateKey::generate(KeyType::Ed25519).unwrap();
    let mut signed = statement().sign(&key, soon()).await.unwrap();
    let bare = key.sign_now(signed.payload.as_bytes()).unwrap();
    signed.signature = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bare);
    assert_eq!(signed.verify(key.spki()), Err(StatementError::Forged));
}

#[tokio::test]
async fn only_ed25519_keys_sign_and_verify_statements() {
    let key = PrivateKey::generate(KeyType::P256).unwrap();
    assert_eq!(statement().sign(&key, soon()).await, Err(StatementError::NotEd25519));
    let good = PrivateKey::generate(KeyType::Ed25519).unwrap();
    let signed = statement().sign(&good, soon()).await.unwrap();
    assert_eq!(signed.verify(key.spki()), Err(StatementError::NotEd25519));
    assert_eq!(signed.verify(b"no key"), Err(StatementError::NotEd25519));
}

#[tokio::test]
async fn statement_with_unknown_fields_is_accepted_and_oversized_rejected() {
    let key = PrivateKey::generate(KeyType::Ed25519).unwrap();
    let signed_of = |payload: String| {
        let bytes = [b"bulla key node statement v1\n", payload.as_bytes()].concat();
        let signature = key.sign_now(&bytes).unwrap();
        let signature = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, signature);
        SignedStatement { payload, signature }
    };
    let stated = statement();
    let text = serde_json::to_string(&stated).unwrap();
    let later = signed_of(text.replacen('{', "{\"rack\":7,", 1));
    assert_eq!(later.verify(key.spki()), Ok(stated));
    let malformed = signed_of("{}".to_owned()).verify(key.spki());
    assert!(matches!(malformed, Err(StatementError::Malformed(_))), "{malformed:?}");
    let long = signed_of(" ".repeat(PAYLOAD_MAX + 1));
    assert_eq!(long.verify(key.spki()), Err(StatementError::TooLong));
    let long = Statement { name: "n".repeat(PAYLOAD_MAX), ..statement() };
    assert_eq!(long.sign(&key, soon()).await, Err(StatementError::TooLong));
}
