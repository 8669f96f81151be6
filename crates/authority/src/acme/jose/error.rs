//! Reasons to refuse a signed request.

use x509::jwk::BadJwk;

/// Why a signed request is not one.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum JwsError {
    /// It breaks a rule of the encoding.
    #[error("the request is not a flattened JWS: {0}")]
    Malformed(String),
    /// An algorithm not understood here, or one that does not fit the key.
    #[error("the signature algorithm {0:?} is not accepted")]
    BadAlgorithm(String),
    /// The key in it is not acceptable.
    #[error("the key is not acceptable: {0}")]
    BadKey(#[from] BadJwk),
    /// The signature is not the key's over these bytes.
    #[error("the signature does not fit the key and the request")]
    BadSignature,
}
