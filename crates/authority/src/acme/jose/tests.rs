use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

struct Ec(EcdsaKeyPair);

impl Ec {
    fn new() -> Self {
        Self(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())
    }

    fn jwk(&self) -> Value {
        let (x, y) = self.0.public_key().as_ref()[1..].split_at(32);
        json!({"kty": "EC", "crv": "P-256", "x": b64(x), "y": b64(y)})
    }

    fn sign(&self, header: &Value, payload: &str) -> Value {
        self.sign_text(&header.to_string(), payload)
    }

    fn sign_text(&self, header: &str, payload: &str) -> Value {
        let (protected, payload) = (b64(header), b64(payload));
        let input = format!("{protected}.{payload}");
        let signature = self.0.sign(&SystemRandom::new(), input.as_bytes()).unwrap();
        json!({"protected": protected, "payload": payload, "signature": b64(signature)})
    }
}

fn header(key: &Ec) -> Value {
    json!({"alg": "ES256", "jwk": key.jwk(), "nonce": "n", "url": "https://ca/new"})
}

fn parse(value: &Value) -> Result<Jws, JwsError> {
    Jws::parse(value.to_string().as_bytes())
}

fn key_of(jws: &Jws) -> &AccountKey {
    match &jws.signer {
        Signer::Key(key) => key,
        Signer::Kid(_) => panic!("no key in it"),
    }
}

#[test]
fn jws_signature_is_verified() {
    let key = Ec::new();
    let jws = parse(&key.sign(&header(&key), "{}")).unwrap();
    jws.verify(key_of(&jws)).unwrap();
    assert_eq!(
        (jws.url.as_str(), jws.nonce.as_deref(), &*jws.payload),
        ("https://ca/new", Some("n"), &b"{}"[..])
    );
    let other = Ec::new();
    let forged = parse(&other.sign(&header(&key), "{}")).unwrap();
    assert_eq!(forged.verify(key_of(&forged)), Err(JwsError::BadSignature));
    let mut altered = key.sign(&header(&key), "{}");
    altered["payload"] = json!(b64("[]"));
    let altered = parse(&altered).unwrap();
    assert_eq!(altered.verify(key_of(&altered)), Err(JwsError::BadSignature));
}

#[test]
fn ed25519_is_accepted_under_both_algorithm_names() {
    let pair = Ed25519KeyPair::generate().unwrap();
    let jwk = json!({"kty": "OKP", "crv": "Ed25519", "x": b64(pair.public_key().as_ref())});
    for alg in ["EdDSA", "Ed25519"] {
        let protected = b64(json!({"alg": alg, "jwk": jwk, "url": "u"}).to_string());
        let signature = b64(pair.sign(format!("{protected}.").as_bytes()));
        let jws = parse(&json!({"protected": protected, "payload": "", "signature": signature})).unwrap();
        jws.verify(key_of(&jws)).unwrap();
    }
}

#[test]
fn algorithm_must_match_the_key() {
    let key = Ec::new();
    for alg in ["ES384", "RS256", "none", "HS256", "es256", ""] {
        let mut header = header(&key);
        header["alg"] = json!(alg);
        let jws = parse(&key.sign(&header, "{}")).unwrap();
        assert_eq!(jws.verify(key_of(&jws)), Err(JwsError::BadAlgorithm(alg.to_owned())), "{alg}");
    }
}

#[test]
fn hmac_is_verified() {
    let secret = [7; 32];
    let protected = b64(r#"{"alg":"HS256","kid":"k","url":"u"}"#);
    let input = format!("{protected}.{}", b64("{}"));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), input.as_bytes());
    let jws = parse(&json!({"protected": protected, "payload": b64("{}"), "signature": b64(tag)})).unwrap();
    jws.verify_mac(&secret).unwrap();
    assert_eq!(jws.verify_mac(&[8; 32]), Err(JwsError::BadSignature));
}

#[test]
fn malformed_flattened_jws_is_rejected() {
    let key = Ec::new();
    let good = key.sign(&header(&key), "{}");
    assert!(parse(&good).is_ok());
    let mut table: Vec<(Vec<u8>, &str)> = Vec::new();
    for (member, value) in
        [("header", json!({})), ("signatures", json!([])), ("x", json!(1)), ("payload", json!(null))]
    {
        let mut bad = good.clone();
        bad[member] = value;
        table.push((bad.to_string().into_bytes(), member));
    }
    for (change, name) in [
        (json!({"crit": ["x"]}), "crit"),
        (json!({"b64": false}), "b64"),
        (json!({"kid": "k"}), "either"),
        (json!({"jwk": null}), "not a JSON object"),
        (json!({"nonce": 1}), "nonce"),
        (json!({"url": "u".repeat(TEXT_MAX + 1)}), "url"),
        (json!({"alg": null}), "alg"),
    ] {
        let mut header = header(&key);
        for (member, value) in change.as_object().unwrap() {
            header[member] = value.clone();
        }
        table.push((key.sign(&header, "{}").to_string().into_bytes(), name));
    }
    let twice = r#"{"alg":"ES256","kid":"a","kid":"b","url":"u"}"#;
    table.push((key.sign_text(twice, "{}").to_string().into_bytes(), "duplicate member"));
    table.push((good.to_string().replacen("\"payload\":\"", "\"payload\":\"=", 1).into_bytes(), "base64url"));
    table.push((
        good.to_string().replacen("\"payload\"", "\"signature\":\"\",\"payload\"", 1).into_bytes(),
        "duplicate member",
    ));
    // The last character of the encoding of one byte has four unused bits, which must be zero.
    table.push((br#"{"protected":"e31","payload":"","signature":""}"#.to_vec(), "base64url"));
    table.push((b"[]".to_vec(), "object"));
    table.push((vec![b' '; REQUEST_MAX + 1], "long"));
    for (body, reason) in table {
        let error = Jws::parse(&body).expect_err(reason).to_string();
        assert!(error.contains(reason), "{error}: {reason}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic_the_parser(body in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = Jws::parse(&body);
    }

    #[test]
    fn arbitrary_headers_do_not_panic_the_parser(header in "\\PC{0,200}", payload in "\\PC{0,40}") {
        let body = json!({"protected": b64(header), "payload": payload, "signature": ""}).to_string();
        let _ = Jws::parse(body.as_bytes());
    }
}
