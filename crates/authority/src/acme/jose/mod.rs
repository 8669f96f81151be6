//! Signed requests: flattened JSON Web Signatures (RFC 7515), the part of them that ACME uses (RFC 8555 section 6.2).
//!
//! Everything here meets bytes from strangers: bounded, no recursion without a limit, no panic.

mod error;
pub(crate) mod strict;

use std::fmt;

use aws_lc_rs::{digest, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

pub use error::JwsError;
pub use x509::jwk::{Algorithm, JwkKey as AccountKey, thumbprint_of_spki};

/// Bytes of a whole request. A request for a certificate with a hundred names and an RSA-4096 key has some 12 KiB.
pub const REQUEST_MAX: usize = 64 * 1024;
/// Bytes of a key identifier or URL in a header.
const TEXT_MAX: usize = 2_048;

/// The signer named in the header: a key or an account.
#[derive(Debug)]
pub enum Signer {
    /// The key itself.
    Key(Box<AccountKey>),
    /// An account's URL, or the name of an external key.
    Kid(String),
}

/// A signed request, its signature not checked yet.
pub struct Jws {
    /// The algorithm's name as sent.
    alg: String,
    /// The signer.
    pub signer: Signer,
    /// The anti-replay nonce (RFC 8555 section 6.5.2).
    pub nonce: Option<String>,
    /// The URL it is meant for (RFC 8555 section 6.4).
    pub url: String,
    /// The decoded payload.
    pub payload: Vec<u8>,
    signing_input: Vec<u8>,
    signature: Vec<u8>,
}

impl Jws {
    /// Reads a flattened JWS.
    ///
    /// # Errors
    /// [`JwsError::Malformed`] or, for the key in it, [`JwsError::BadKey`].
    pub fn parse(body: &[u8]) -> Result<Self, JwsError> {
        if body.len() > REQUEST_MAX {
            return Err(malformed("it is too long"));
        }
        Self::from_value(strict::parse(body).map_err(|error| malformed(&error.to_string()))?)
    }

    /// [`Jws::parse`] of JSON that was read already (the one inside an external account binding).
    ///
    /// # Errors
    /// As [`Jws::parse`].
    pub fn from_value(value: Value) -> Result<Self, JwsError> {
        let Value::Object(mut members) = value else { return Err(malformed("it is not an object")) };
        let mut take = |name: &str| match members.remove(name) {
            Some(Value::String(text)) => Ok(text),
            _ => Err(malformed(&format!("its member {name:?} is missing or no text"))),
        };
        let (protected, payload, signature) = (take("protected")?, take("payload")?, take("signature")?);
        if let Some(name) = members.keys().next() {
            return Err(malformed(&format!(
                "the member {name:?} has no place in it; only protected, payload and signature have"
            )));
        }
        let header = strict::parse(&decode("protected", &protected)?)
            .map_err(|error| malformed(&format!("its header: {error}")))?;
        let Value::Object(header) = header else { return Err(malformed("its header is not an object")) };
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

    /// Checks the signature with an account's key.
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

    /// Checks that the algorithm is one of those understood, before a key is known.
    ///
    /// # Errors
    /// [`JwsError::BadAlgorithm`].
    pub fn check_algorithm(&self) -> Result<(), JwsError> {
        Algorithm::named(&self.alg).map(drop).ok_or_else(|| JwsError::BadAlgorithm(self.alg.clone()))
    }

    /// Checks the MAC with an external key (RFC 8555 section 7.3.4).
    ///
    /// # Errors
    /// As [`Jws::verify`].
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
    // RFC 7515 section 4.1.11: what is critical and not understood must be refused, and nothing is understood here.
    for refused in ["crit", "b64"] {
        if header.contains_key(refused) {
            return Err(malformed(&format!("its header has {refused:?}, which is not understood")));
        }
    }
    let optional = |name: &str| match header.get(name) {
        None => Ok(None),
        Some(Value::String(text)) if text.len() <= TEXT_MAX => Ok(Some(text.clone())),
        Some(_) => Err(malformed(&format!("{name:?} in its header is no text, or too long"))),
    };
    let required =
        |name: &str| optional(name)?.ok_or_else(|| malformed(&format!("{name:?} is missing in its header")));
    let signer = match (header.get("jwk"), optional("kid")?) {
        (Some(jwk), None) => Signer::Key(Box::new(AccountKey::from_jwk(jwk)?)),
        (None, Some(kid)) => Signer::Kid(kid),
        _ => return Err(malformed("its header must have either \"jwk\" or \"kid\"")),
    };
    Ok((required("alg")?, signer, optional("nonce")?, required("url")?))
}

fn decode(what: &str, text: &str) -> Result<Vec<u8>, JwsError> {
    URL_SAFE_NO_PAD
        .decode(text)
        .map_err(|_| malformed(&format!("{what:?} is not base64url without padding (RFC 7515 section 2)")))
}

/// SHA-256.
pub(crate) fn sha256(octets: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, octets).as_ref());
    out
}

fn malformed(reason: &str) -> JwsError {
    JwsError::Malformed(reason.to_owned())
}

#[cfg(test)]
mod tests;
