//! JSON Web Signatures (RFC 7515) with keys that may live elsewhere: ACME's requests and step-ca's tokens.

use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keys::{KeyRef, KeyType, SignError};
use serde_json::{Value, json};
use x509::der::{Reader, tag};

/// Bytes as JOSE writes them.
pub(crate) fn base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Bytes from JOSE's letters; padding is tolerated, as CAs print keys with it.
pub(crate) fn from_base64url(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text.trim().trim_end_matches('=')).ok()
}

/// A key whose public half cannot be written as a JWK.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("keys of type {0} cannot sign for this service; use p256")]
pub(crate) struct UnusableKey(pub(crate) KeyType);

/// A key that signs JWS.
#[derive(Clone, Debug)]
pub(crate) struct JwsKey {
    key: KeyRef,
    algorithm: &'static str,
    /// Octets of each half of an ECDSA signature; 0 for others.
    half: usize,
    members: Vec<(&'static str, String)>,
}

impl JwsKey {
    pub(crate) fn new(key: KeyRef) -> Result<Self, UnusableKey> {
        let kind = key.key_type();
        let members = members_of(kind, key.spki()).ok_or(UnusableKey(kind))?;
        let (algorithm, half) = match kind {
            KeyType::P256 => ("ES256", 32),
            KeyType::P384 => ("ES384", 48),
            KeyType::P521 => ("ES512", 66),
            KeyType::Ed25519 => ("EdDSA", 0),
            KeyType::Rsa2048 | KeyType::Rsa3072 | KeyType::Rsa4096 => ("RS256", 0),
            _ => return Err(UnusableKey(kind)),
        };
        Ok(Self { key, algorithm, half, members })
    }

    /// `alg`, for protected headers.
    pub(crate) fn algorithm(&self) -> &'static str {
        self.algorithm
    }

    /// The public key as a JWK.
    pub(crate) fn jwk(&self) -> Value {
        self.members.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect()
    }

    /// SHA-256 thumbprint (RFC 7638).
    pub(crate) fn thumbprint(&self) -> String {
        // Members in lexicographic order, no white space; the values are base64url and need no escapes.
        let body: Vec<String> =
            self.members.iter().map(|(name, value)| format!("\"{name}\":\"{value}\"")).collect();
        let text = format!("{{{}}}", body.join(","));
        base64url(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes()))
    }

    /// The flattened JSON serialisation (RFC 7515 section 7.2.2).
    pub(crate) async fn flattened(
        &self,
        protected: &Value,
        payload: &[u8],
        deadline: Instant,
    ) -> Result<Value, SignError> {
        let (protected, payload) = (base64url(protected.to_string()), base64url(payload));
        let signature = self.signature(format!("{protected}.{payload}").as_bytes(), deadline).await?;
        Ok(json!({ "protected": protected, "payload": payload, "signature": base64url(signature) }))
    }

    /// The compact serialisation (RFC 7515 section 7.1), as JWTs have it.
    pub(crate) async fn compact(
        &self,
        header: &Value,
        claims: &Value,
        deadline: Instant,
    ) -> Result<String, SignError> {
        let input = format!("{}.{}", base64url(header.to_string()), base64url(claims.to_string()));
        let signature = self.signature(input.as_bytes(), deadline).await?;
        Ok(format!("{input}.{}", base64url(signature)))
    }

    async fn signature(&self, input: &[u8], deadline: Instant) -> Result<Vec<u8>, SignError> {
        let signature = self.key.sign(input, deadline).await?;
        if self.half == 0 {
            return Ok(signature);
        }
        fixed_width(&signature, self.half)
            .ok_or_else(|| SignError::Failed("it gave something that is no ECDSA signature".to_owned()))
    }
}

/// HMAC-SHA256 over protected header and payload, flattened: external account binding (RFC 8555 section 7.3.4).
pub(crate) fn flattened_hmac(key: &[u8], protected: &Value, payload: &Value) -> Value {
    let (protected, payload) = (base64url(protected.to_string()), base64url(payload.to_string()));
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, key);
    let mac = aws_lc_rs::hmac::sign(&key, format!("{protected}.{payload}").as_bytes());
    json!({ "protected": protected, "payload": payload, "signature": base64url(mac) })
}

/// The members a thumbprint is made of, in lexicographic order.
fn members_of(kind: KeyType, spki: &[u8]) -> Option<Vec<(&'static str, String)>> {
    let mut info = Reader::new(spki).sequence().ok()?;
    info.expect(tag::SEQUENCE).ok()?;
    let bits = info.expect(tag::BIT_STRING).ok()?.whole_bits().ok()?;
    let curve = |name: &str, half: usize| {
        let (x, y) = bits.strip_prefix(&[4])?.split_at_checked(half)?;
        (y.len() == half).then(|| {
            vec![("crv", name.to_owned()), ("kty", "EC".to_owned()), ("x", base64url(x)), ("y", base64url(y))]
        })
    };
    match kind {
        KeyType::P256 => curve("P-256", 32),
        KeyType::P384 => curve("P-384", 48),
        KeyType::P521 => curve("P-521", 66),
        KeyType::Ed25519 => {
            Some(vec![("crv", "Ed25519".to_owned()), ("kty", "OKP".to_owned()), ("x", base64url(bits))])
        }
        KeyType::Rsa2048 | KeyType::Rsa3072 | KeyType::Rsa4096 => {
            let mut numbers = Reader::new(bits).sequence().ok()?;
            let n = numbers.expect(tag::INTEGER).ok()?.content;
            let e = numbers.expect(tag::INTEGER).ok()?.content;
            let bare = |number: &[u8]| base64url(number.strip_prefix(&[0]).unwrap_or(number));
            Some(vec![("e", bare(e)), ("kty", "RSA".to_owned()), ("n", bare(n))])
        }
        _ => None,
    }
}

/// Two INTEGERs in DER as two numbers of fixed width (RFC 7518 section 3.4).
fn fixed_width(der: &[u8], half: usize) -> Option<Vec<u8>> {
    let mut numbers = Reader::new(der).sequence().ok()?;
    let mut out = vec![0; 2 * half];
    for place in 0..2 {
        let content = numbers.expect(tag::INTEGER).ok()?.content;
        let significant = content.iter().position(|&b| b != 0).map_or(&[][..], |at| &content[at..]);
        let start = (place + 1) * half - Some(significant.len()).filter(|&length| length <= half)?;
        out[start..(place + 1) * half].copy_from_slice(significant);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ED25519, UnparsedPublicKey, VerificationAlgorithm};

    use super::*;

    #[test]
    fn signatures_become_fixed_width() {
        let der = |r: &[u8], s: &[u8]| {
            x509::der::write(|w| {
                w.sequence(|w| {
                    w.unsigned(r).unsigned(s);
                });
            })
        };
        assert_eq!(fixed_width(&der(&[0x80, 1], &[7]), 4), Some(vec![0, 0, 0x80, 1, 0, 0, 0, 7]));
        assert_eq!(
            fixed_width(&der(&[1, 2, 3, 4], &[0xff; 4]), 4),
            Some(vec![1, 2, 3, 4, 255, 255, 255, 255])
        );
        assert_eq!(fixed_width(&der(&[1, 2, 3, 4, 5], &[1]), 4), None);
        assert_eq!(fixed_width(b"nonsense", 4), None);
    }

    #[test]
    fn the_thumbprint_of_rfc_7638() {
        let n = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZ\
                 CiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJ\
                 ZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBni\
                 Iqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw";
        let spki = x509::der::write(|w| {
            w.sequence(|w| {
                w.sequence(|w| {
                    w.oid(&[1, 2, 840, 113_549, 1, 1, 1]).null();
                });
                w.bits_of(|w| {
                    w.sequence(|w| {
                        w.unsigned(&from_base64url(n).unwrap()).unsigned(&[1, 0, 1]);
                    });
                });
            });
        });
        let members = members_of(KeyType::Rsa2048, &spki).unwrap();
        assert_eq!(members[2].1, n);
        let key = Arc::new(keys::PrivateKey::generate(KeyType::P256).unwrap());
        let jws = JwsKey { key, algorithm: "RS256", half: 0, members };
        assert_eq!(jws.thumbprint(), "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
    }

    #[tokio::test]
    async fn what_is_signed_verifies() {
        let table: [(KeyType, &'static dyn VerificationAlgorithm); 2] =
            [(KeyType::P256, &ECDSA_P256_SHA256_FIXED), (KeyType::Ed25519, &ED25519)];
        for (kind, algorithm) in table {
            let key: KeyRef = Arc::new(keys::PrivateKey::generate(kind).unwrap());
            let public = x509::PublicKey::parse(key.spki()).unwrap();
            let jws = JwsKey::new(key).unwrap();
            let deadline = Instant::now() + Duration::from_secs(5);
            let token =
                jws.compact(&json!({"alg": jws.algorithm()}), &json!({"sub": "a"}), deadline).await.unwrap();
            let (input, signature) = token.rsplit_once('.').unwrap();
            let mut info = Reader::new(&public.spki).sequence().unwrap();
            info.any().unwrap();
            let bits = info.any().unwrap().whole_bits().unwrap().to_vec();
            let verifier = UnparsedPublicKey::new(algorithm, bits);
            assert!(verifier.verify(input.as_bytes(), &from_base64url(signature).unwrap()).is_ok(), "{kind}");
        }
    }

    #[test]
    fn keys_nobody_verifies_are_refused() {
        let key: KeyRef = Arc::new(keys::PrivateKey::generate(KeyType::MlDsa44).unwrap());
        assert_eq!(JwsKey::new(key).err(), Some(UnusableKey(KeyType::MlDsa44)));
    }
}
