//! Errors of minting.

use keys::SignError;

/// Why a leaf cannot be minted.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MintError {
    /// The CA certificate expires within a minute, or has expired.
    #[error("the authority of the leaves ends: give the proxy another one")]
    AuthorityEnds,
    /// The mirrored certificate expires within a minute, or has expired.
    #[error("the certificate that the leaf is to be like ends")]
    MirroredEnds,
    /// The CA's key failed to sign.
    #[error("the authority's key did not sign: {0}")]
    NotSigned(#[from] SignError),
    /// The client needs an RSA key, and none is generated yet.
    #[error("no RSA key is ready yet")]
    NoRsaKey,
    /// The leaf's key cannot be generated.
    #[error("no key for the leaf: {0}")]
    NoKey(String),
    /// The system's random number generator failed.
    #[error("there is no randomness")]
    NoRandomness,
    /// The CA's path length constraint permits no intermediate CA (RFC 5280 section 4.2.1.9).
    #[error("the authority permits none below it: give one whose pathlen is 1 or more, or that has none")]
    NoneBelow,
    /// The new intermediate CA is invalid.
    #[error("an intermediate's certificate is not sound: {0}")]
    Intermediate(#[from] BadAuthority),
}

/// Why a chain cannot issue leaves.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadAuthority {
    /// The chain has no certificate.
    #[error("there is no certificate")]
    Empty,
    /// A certificate cannot be parsed.
    #[error("a certificate of the chain cannot be read: {0}")]
    Unreadable(#[from] x509::ParseError),
    /// A certificate is not a CA certificate.
    #[error("{0} is no authority's certificate: it needs basicConstraints CA:TRUE and keyCertSign")]
    NotAnAuthority(String),
    /// The key does not match the certificate.
    #[error("the key is not that of {0}")]
    OtherKey(String),
}
