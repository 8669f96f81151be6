//! Errors in signed requests.

use x509::jwk::BadJwk;

/// Reason why a signed request is rejected.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum JwsError {
    /// The request violates a rule of the encoding.
    #[error("the request is not a flattened JWS: {0}")]
    Malformed(String),
    /// The algorithm is not supported or does not fit the key.
    #[error("the signature algorithm {0:?} is not accepted")]
    BadAlgorithm(String),
    /// The key in the request is not acceptable.
    #[error("the key is not acceptable: {0}")]
    BadKey(#[from] BadJwk),
    /// The signature does not match the request and the key.
    #[error("the signature does not match the key and the request")]
    BadSignature,
}
