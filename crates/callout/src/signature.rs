//! The signature of a webhook. It proves to the operator's service that the request comes from this server.
//!
//! Header `x-bulla-timestamp` contains seconds since 1970-01-01 UTC. Header `x-bulla-signature` contains `v1=` and the HMAC-SHA256
//! of `timestamp "." body` in hexadecimal.

use aws_lc_rs::hmac;
use data_encoding::HEXLOWER;
use keys::Secret;
use store::Clock;

use crate::client::Request;
use crate::error::HttpError;

/// Minimum bytes of a key: a key of less than 128 bits can be guessed.
const KEY_MIN: usize = 16;

/// A key shared with a service.
pub struct SigningKey(hmac::Key);

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SigningKey(…)")
    }
}

impl SigningKey {
    /// Creates a key from a secret of at least 16 bytes.
    ///
    /// # Errors
    /// [`HttpError::Misconfigured`] for a shorter secret.
    pub fn new(secret: &Secret) -> Result<Self, HttpError> {
        let bytes = secret.expose().as_bytes();
        if bytes.len() < KEY_MIN {
            return Err(HttpError::misconfigured(format!(
                "the secret of a service must have at least {KEY_MIN} bytes"
            )));
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, bytes)))
    }

    /// Adds the timestamp and signature headers to a request. The time is from the wall clock; the service compares it with its
    /// own clock.
    #[must_use]
    pub fn sign<'a>(&self, request: Request<'a>) -> Request<'a> {
        let now = Clock::system().now_seconds();
        let signature = self.signature(now, request.body.as_deref().unwrap_or_default());
        request.header("x-bulla-timestamp", now.to_string()).header("x-bulla-signature", signature)
    }

    fn signature(&self, now: i64, body: &[u8]) -> String {
        let covered = [now.to_string().as_bytes(), b".", body].concat();
        let mac = hmac::sign(&self.0, &covered);
        format!("v1={}", HEXLOWER.encode(mac.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_matches_openssl_and_short_secrets_are_rejected() {
        let key = SigningKey::new(&Secret::new("0123456789abcdef")).unwrap();
        // Computed with: printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac 0123456789abcdef
        let expected = "v1=9eb18f493f8ec135d9eb2dad817c369bb4e9cbfa818657897a7437c1cd8c3a23";
        assert_eq!(key.signature(1_700_000_000, br#"{"a":1}"#), expected);
        assert!(SigningKey::new(&Secret::new("short")).is_err());
    }
}
