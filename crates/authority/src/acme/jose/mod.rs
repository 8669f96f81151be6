//! Signed requests: flattened JSON Web Signatures (RFC 7515), limited to the features that ACME uses (RFC 8555 section 6.2).
//!
//! This code parses untrusted input. All sizes and the nesting depth are limited, and it does not panic.

mod error;
pub(crate) mod strict;

use std::fmt;

use aws_lc_rs::{digest, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

pub use error::JwsError;
pub use x509::jwk::{Algorithm, JwkKey as AccountKey, thumbprint_of_spki};

/// Maximum length of a request in bytes. A CSR with 100 names and an RSA-4096 key has about 12 KiB.
pub const REQUEST_MAX: usize = 64 * 1024;
/// Maximum length in bytes of a key identifier or URL in a header.
const TEXT_MAX: usize = 2_048;

/// The signer that the header identifies.
#[derive(Debug)]
pub enum Signer {
    /// The key is in the header.
    Key(Box<AccountKey>),
    /// The header has the URL of an account or the identifier of an external key.
    Kid(String),
}

/// A parsed signed request. Its signature is not yet verified.
pub struct Jws {
    /// Name of the algorithm in the request.
    alg: String,
    /// Signer that the protected header identifies.
    pub signer: Signer,
    /// The anti-replay nonce (RFC 8555 section 6.5.2).
    pub nonce: Option<String>,
    /// URL to which the request is addressed (RFC 8555 section 6.4).
    pub url: String,
    /// Payload of the request, decoded from base64url.
    pub payload: Vec<u8>,
    signing_input: Vec<u8>,
    signature: Vec<u8>,
}

impl Jws {
    /// Parses a flattened JWS.
    ///
    /// # Errors
    /// [`JwsError::Malformed`] or, for the key in it, [`JwsError::BadKey`].
    pub fn parse(body: &[u8]) -> Result<Self, JwsError> {
        if body.len() > REQUEST_MAX {
            return Err(malformed("too long"));
        }
        Self::from_value(strict::parse(body).map_err(|error| malformed(&error.to_string()))?)
    }

    /// Parses a flattened JWS from parsed JSON, such as the JWS in an external account binding.
    ///
    /// # Errors
    /// The errors of [`Jws::parse`].
    pub fn from_value(value: Value) -> Result<Self, JwsError> {
        let Value::Object(mut members) = value else { return Err(malformed("not a JSON object")) };
        let mut take = |name: &str| match members.remove(name) {
            Some(Value::String(text)) => Ok(text),
            _ => Err(malformed(&format!("the member {name:?} is missing or is not a string"))),
        };
        let (protected, payload, signature) = (take("protected")?, take("payload")?, take("signature")?);
        if let Some(name) = members.keys().next() {
            return Err(malformed(&format!(
                "unknown member {name:?}; only protected, payload and signature are allowed"
            )));
        }
        let header = strict::parse(&decode("protected", &protected)?)
            .map_err(|error| malformed(&format!("invalid protected header: {error}")))?;
        let Value::Object(header) = header else {
            return Err(malformed("the protected header is not a JSON object"));
        };
        let (alg, signer, nonce, url) = read_header(&header)?;
        Ok(Self {
            alg,
            signer,
            nonce,
            url,
            payload: decode("payload", &payload)?,
            signing_input: [protected.as_bytes(), b".", payload.as_bytes()].concat(),
            signature: decode("signature", &signature)?,
        })
    }

    /// Verifies the signature with the key of an account.
    ///
    /// # Errors
    /// [`JwsError::BadAlgorithm`], [`JwsError::BadSignature`].
    pub fn verify(&self, key: &AccountKey) -> Result<(), JwsError> {
        let algorithm = Algorithm::named(&self.alg)
            .filter(|algorithm| key.can(*algorithm))
            .ok_or_else(|| JwsError::BadAlgorithm(self.alg.clone()))?;
        match key.signed(algorithm, &self.signing_input, &self.signature) {
            true => Ok(()),
            false => Err(JwsError::BadSignature),
        }
    }

    /// Checks that the algorithm is supported, before the key is known.
    ///
    /// # Errors
    /// [`JwsError::BadAlgorithm`].
    pub fn check_algorithm(&self) -> Result<(), JwsError> {
        Algorithm::named(&self.alg).map(drop).ok_or_else(|| JwsError::BadAlgorithm(self.alg.clone()))
    }

    /// Verifies the MAC with the secret of an external key (RFC 8555 section 7.3.4).
    ///
    /// # Errors
    /// The errors of [`Jws::verify`].
    pub fn verify_mac(&self, secret: &[u8]) -> Result<(), JwsError> {
        let algorithm = match self.alg.as_str() {
            "HS256" => hmac::HMAC_SHA256,
            "HS384" => hmac::HMAC_SHA384,
            "HS512" => hmac::HMAC_SHA512,
            _ => return Err(JwsError::BadAlgorithm(self.alg.clone())),
        };
        hmac::verify(&hmac::Key::new(algorithm, secret), &self.signing_input, &self.signature)
            .map_err(|_| JwsError::BadSignature)
    }
}

impl fmt::Debug for Jws {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jws").field("url", &self.url).field("signer", &self.signer).finish_non_exhaustive()
    }
}

type Header = (String, Signer, Option<String>, String);

fn read_header(header: &Map<String, Value>) -> Result<Header, JwsError> {
    // RFC 7515 section 4.1.11: an unsupported critical extension must be rejected, and no extension is supported.
    for refused in ["crit", "b64"] {
        if header.contains_key(refused) {
            return Err(malformed(&format!(
                "the protected header has the unsupported parameter {refused:?}"
            )));
        }
    }
    let optional = |name: &str| match header.get(name) {
        None => Ok(None),
        Some(Value::String(text)) if text.len() <= TEXT_MAX => Ok(Some(text.clone())),
        Some(_) => {
            Err(malformed(&format!("{name:?} in the protected header is not a string, or is too long")))
        }
    };
    let required = |name: &str| {
        optional(name)?.ok_or_else(|| malformed(&format!("{name:?} is missing in the protected header")))
    };
    let signer = match (header.get("jwk"), optional("kid")?) {
        (Some(jwk), None) => Signer::Key(Box::new(AccountKey::from_jwk(jwk)?)),
        (None, Some(kid)) => Signer::Kid(kid),
        _ => return Err(malformed("the protected header must have either \"jwk\" or \"kid\"")),
    };
    Ok((required("alg")?, signer, optional("nonce")?, required("url")?))
}

fn decode(what: &str, text: &str) -> Result<Vec<u8>, JwsError> {
    URL_SAFE_NO_PAD
        .decode(text)
        .map_err(|_| malformed(&format!("{what:?} is not base64url without padding (RFC 7515 section 2)")))
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    out
}

fn malformed(reason: &str) -> JwsError {
    JwsError::Malformed(reason.to_owned())
}

#[cfg(test)]
mod tests;
