//! JSON Web Signatures (RFC 7515) for ACME requests and step-ca tokens. The keys may be in an external key store.

use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keys::{KeyRef, KeyType, SignError};
use serde_json::{Value, json};

/// Encodes bytes as base64url without padding.
pub(crate) fn base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Decodes base64url. Accepts padding, because CAs print keys with it.
pub(crate) fn from_base64url(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text.trim().trim_end_matches('=')).ok()
}

/// The public key has no JWK form.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("keys of type {0} cannot sign for this service; use p256")]
pub(crate) struct UnusableKey(pub(crate) KeyType);

/// A key for JSON Web Signatures.
#[derive(Clone, Debug)]
pub(crate) struct JwsKey {
    key: KeyRef,
    algorithm: &'static str,
    /// Bytes of each half of an ECDSA signature. 0 for other algorithms.
    half: usize,
    jwk: Value,
    thumbprint: String,
}

impl JwsKey {
    pub(crate) fn new(key: KeyRef) -> Result<Self, UnusableKey> {
        let kind = key.key_type();
        let canonical = x509::jwk::canonical(key.spki()).ok_or(UnusableKey(kind))?;
        let jwk = serde_json::from_str(&canonical).map_err(|_| UnusableKey(kind))?;
        let thumbprint =
            base64url(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, canonical.as_bytes()));
        let (algorithm, half) = match kind {
            KeyType::P256 => ("ES256", 32),
            KeyType::P384 => ("ES384", 48),
            KeyType::P521 => ("ES512", 66),
            KeyType::Ed25519 => ("EdDSA", 0),
            KeyType::Rsa2048 | KeyType::Rsa3072 | KeyType::Rsa4096 => ("RS256", 0),
            _ => return Err(UnusableKey(kind)),
        };
        Ok(Self { key, algorithm, half, jwk, thumbprint })
    }

    /// Returns the `alg` value for protected headers.
    pub(crate) fn algorithm(&self) -> &'static str {
        self.algorithm
    }

    /// Returns the public key as a JWK.
    pub(crate) fn jwk(&self) -> &Value {
        &self.jwk
    }

    /// Returns the SHA-256 thumbprint (RFC 7638).
    pub(crate) fn thumbprint(&self) -> &str {
        &self.thumbprint
    }

    /// Signs and returns the flattened JSON serialization (RFC 7515 section 7.2.2).
    pub(crate) async fn sign_flattened(
        &self,
        protected: &Value,
        payload: &[u8],
        deadline: Instant,
    ) -> Result<Value, SignError> {
        let (protected, payload) = (base64url(protected.to_string()), base64url(payload));
        let signature = self.signature(format!("{protected}.{payload}").as_bytes(), deadline).await?;
        Ok(json!({ "protected": protected, "payload": payload, "signature": base64url(signature) }))
    }

    /// Signs and returns the compact serialization (RFC 7515 section 7.1) of JWTs.
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
        x509::jwk::ecdsa_der_to_fixed(&signature, self.half)
            .ok_or_else(|| SignError::Failed("the signer did not return an ECDSA signature".to_owned()))
    }
}

/// Returns an HMAC-SHA256 over protected header and payload in flattened form, for an external account binding (RFC 8555 section
/// 7.3.4).
pub(crate) fn flattened_hmac(key: &[u8], protected: &Value, payload: &Value) -> Value {
    let (protected, payload) = (base64url(protected.to_string()), base64url(payload.to_string()));
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, key);
    let mac = aws_lc_rs::hmac::sign(&key, format!("{protected}.{payload}").as_bytes());
    json!({ "protected": protected, "payload": payload, "signature": base64url(mac) })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ED25519, UnparsedPublicKey, VerificationAlgorithm};

    use x509::der::Reader;

    use super::*;

    #[tokio::test]
    async fn signed_jws_verifies() {
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
    fn unsupported_jws_key_types_are_rejected() {
        let key: KeyRef = Arc::new(keys::PrivateKey::generate(KeyType::MlDsa44).unwrap());
        assert_eq!(JwsKey::new(key).err(), Some(UnusableKey(KeyType::MlDsa44)));
    }
}
