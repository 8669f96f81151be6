//! Private key of a step-ca provisioner in the formats that operators have: PKCS #8 PEM, a private JWK, or the encrypted JWK (JWE)
//! of step-ca's configuration.

use std::num::NonZeroU32;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::key_wrap::{AES_128, AES_256, AesKek, KeyWrap};
use aws_lc_rs::pbkdf2;
use keys::{PrivateKey, Secret};
use serde::Deserialize;
use x509::der::{self, tag};
use zeroize::Zeroizing;

use crate::error::IssuerError;
use crate::jose::from_base64url;

/// Maximum iterations of the password derivation. step uses 100 000 or 600 000; many more would block the server.
const ROUNDS_MAX: u32 = 10_000_000;

/// Parses the key. `password` decrypts a JWE.
pub(super) fn read(text: &Secret, password: Option<&Secret>) -> Result<PrivateKey, IssuerError> {
    let bad = |what: &str| IssuerError::misconfigured(format!("provisioner.key: {what}"));
    let text = text.expose().trim();
    if text.starts_with("-----BEGIN") {
        return PrivateKey::from_pem(text).map_err(|error| bad(&error.to_string()));
    }
    if text.starts_with('{') {
        return from_jwk(text.as_bytes())
            .ok_or_else(|| bad("not a private JWK with kty EC and crv P-256, P-384 or P-521"));
    }
    let password = password.ok_or_else(|| bad("the key is encrypted; set provisioner.password"))?;
    let jwk =
        open(text, password).ok_or_else(|| bad("the key cannot be decrypted with provisioner.password"))?;
    from_jwk(&jwk).ok_or_else(|| bad("the decrypted key is not an EC key"))
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    crv: String,
    x: String,
    y: String,
    d: Secret,
}

/// Converts a JWK (RFC 7518 section 6.2) to RFC 5915 within RFC 5208.
fn from_jwk(text: &[u8]) -> Option<PrivateKey> {
    let jwk: Jwk = serde_json::from_slice(text).ok()?;
    let curve: &[u64] = match (jwk.kty.as_str(), jwk.crv.as_str()) {
        ("EC", "P-256") => &[1, 2, 840, 10_045, 3, 1, 7],
        ("EC", "P-384") => &[1, 3, 132, 0, 34],
        ("EC", "P-521") => &[1, 3, 132, 0, 35],
        _ => return None,
    };
    let secret = Zeroizing::new(from_base64url(jwk.d.expose())?);
    let point = [&[4][..], &from_base64url(&jwk.x)?, &from_base64url(&jwk.y)?].concat();
    let pkcs8 = Zeroizing::new(der::write(|w| {
        w.sequence(|w| {
            w.integer(0);
            w.sequence(|w| {
                w.oid(&[1, 2, 840, 10_045, 2, 1]).oid(curve);
            });
            w.octets_of(|w| {
                w.sequence(|w| {
                    w.integer(1).octets(&secret);
                    w.nest(tag::context_constructed(1), |w| {
                        w.bits(&point);
                    });
                });
            });
        });
    }));
    PrivateKey::from_pkcs8_der(&pkcs8).ok()
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    enc: String,
    p2s: String,
    p2c: u32,
}

/// Decrypts a compact JWE (RFC 7516) with a password (RFC 7518 section 4.8), as `step crypto jwk create` writes it.
fn open(text: &str, password: &Secret) -> Option<Zeroizing<Vec<u8>>> {
    let mut parts = text.split('.');
    let (header, wrapped, nonce, ciphertext, tag) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let fields: Header = serde_json::from_slice(&from_base64url(header)?).ok()?;
    let rounds = NonZeroU32::new(fields.p2c).filter(|rounds| rounds.get() <= ROUNDS_MAX)?;
    let (derivation, kek_length) = match fields.alg.as_str() {
        "PBES2-HS256+A128KW" => (pbkdf2::PBKDF2_HMAC_SHA256, 16),
        "PBES2-HS512+A256KW" => (pbkdf2::PBKDF2_HMAC_SHA512, 32),
        _ => return None,
    };
    let salt = [fields.alg.as_bytes(), &[0], &from_base64url(&fields.p2s)?].concat();
    let mut kek = Zeroizing::new(vec![0; kek_length]);
    pbkdf2::derive(derivation, rounds, &salt, password.expose().as_bytes(), &mut kek);
    let wrapped = from_base64url(wrapped)?;
    let mut key = Zeroizing::new(vec![0; wrapped.len()]);
    let key = match kek_length {
        16 => AesKek::new(&AES_128, &kek).ok()?.unwrap(&wrapped, &mut key).ok()?.to_vec(),
        _ => AesKek::new(&AES_256, &kek).ok()?.unwrap(&wrapped, &mut key).ok()?.to_vec(),
    };
    let key = Zeroizing::new(key);
    if fields.enc != "A256GCM" {
        return None;
    }
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).ok()?);
    let nonce = Nonce::try_assume_unique_for_key(&from_base64url(nonce)?).ok()?;
    let mut sealed = Zeroizing::new([from_base64url(ciphertext)?, from_base64url(tag)?].concat());
    let plain = key.open_in_place(nonce, Aad::from(header.as_bytes()), &mut sealed).ok()?.to_vec();
    Some(Zeroizing::new(plain))
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::aead::NONCE_LEN;
    use keys::{KeyType, Signer};
    use serde_json::json;

    use super::*;
    use crate::jose::{JwsKey, base64url};

    /// RFC 7517 appendix A.2: a private key with its public key.
    const JWK: &str = r#"{"kty":"EC","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
        "y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM","d":"870MB6gfuTJ4HtUnUvYMyJpr5eUZNP4Bk43bVdj3eAE","use":"enc"}"#;

    fn x_of(key: PrivateKey) -> String {
        let key: keys::KeyRef = std::sync::Arc::new(key);
        JwsKey::new(key).unwrap().jwk()["x"].as_str().unwrap().to_owned()
    }

    #[test]
    fn private_key_is_read_from_jwk_or_pem() {
        let key = read(&Secret::new(JWK), None).unwrap();
        assert_eq!(x_of(key), "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4");
        let pem = PrivateKey::generate(KeyType::P384).unwrap();
        let decoded = read(&Secret::new(pem.to_pkcs8_pem().as_str()), None).unwrap();
        assert_eq!(decoded.spki(), pem.spki());
        // A public key that does not match the private key.
        let swapped = JWK.replace("MKBCTNIc", "MKBCTNId");
        for bad in [swapped.as_str(), "{}", "{\"kty\":\"RSA\"}", "-----BEGIN X-----", "a.b.c"] {
            assert!(read(&Secret::new(bad), None).is_err(), "{bad}");
        }
    }

    /// Encrypts in the format of step: PBES2, AES key wrap, AES-GCM.
    fn sealed(algorithm: &str, password: &str) -> String {
        let (derivation, length) = match algorithm {
            "PBES2-HS256+A128KW" => (pbkdf2::PBKDF2_HMAC_SHA256, 16),
            _ => (pbkdf2::PBKDF2_HMAC_SHA512, 32),
        };
        let header = json!({"alg": algorithm, "enc": "A256GCM", "p2s": base64url([9; 16]), "p2c": 1_000, "cty": "jwk+json"});
        let header = base64url(header.to_string());
        let salt = [algorithm.as_bytes(), &[0], &[9; 16]].concat();
        let mut kek = vec![0; length];
        pbkdf2::derive(derivation, NonZeroU32::new(1_000).unwrap(), &salt, password.as_bytes(), &mut kek);
        let key = [5; 32];
        let mut wrapped = vec![0; 40];
        let wrapped = match length {
            16 => AesKek::new(&AES_128, &kek).unwrap().wrap(&key, &mut wrapped).unwrap().to_vec(),
            _ => AesKek::new(&AES_256, &kek).unwrap().wrap(&key, &mut wrapped).unwrap().to_vec(),
        };
        let mut text = JWK.as_bytes().to_vec();
        let aead = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).unwrap());
        let nonce = Nonce::assume_unique_for_key([3; NONCE_LEN]);
        aead.seal_in_place_append_tag(nonce, Aad::from(header.as_bytes()), &mut text).unwrap();
        let (ciphertext, tag) = text.split_at(text.len() - AES_256_GCM.tag_len());
        let parts = [base64url(wrapped), base64url([3; NONCE_LEN]), base64url(ciphertext), base64url(tag)];
        format!("{header}.{}", parts.join("."))
    }

    #[test]
    fn encrypted_jwk_opens_only_with_its_password() {
        for algorithm in ["PBES2-HS256+A128KW", "PBES2-HS512+A256KW"] {
            let jwe = Secret::new(sealed(algorithm, "open sesame"));
            let key = read(&jwe, Some(&Secret::new("open sesame"))).unwrap();
            assert_eq!(x_of(key), "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4");
            assert!(read(&jwe, Some(&Secret::new("open sesam"))).is_err());
            assert!(read(&jwe, None).is_err());
        }
    }
}
