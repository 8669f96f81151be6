//! Errors of minting.

use keys::SignError;

/// Reason why a leaf cannot be minted.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MintError {
    /// The CA certificate expires within a minute, or has expired.
    #[error("the CA of the proxy has expired or expires within a minute: configure a new CA")]
    AuthorityEnds,
    /// The mirrored certificate expires within a minute, or has expired.
    #[error("the server certificate to mirror has expired or expires within a minute")]
    MirroredEnds,
    /// The CA's key failed to sign.
    #[error("the CA key failed to sign: {0}")]
    NotSigned(#[from] SignError),
    /// The client needs an RSA key, and no pre-generated RSA key is available.
    #[error("no RSA key is available yet: retry in a few seconds")]
    NoRsaKey,
    /// The leaf's key cannot be generated.
    #[error("cannot create a key for the leaf certificate: {0}")]
    NoKey(String),
    /// The system's random number generator failed.
    #[error("the operating system returned no random bytes")]
    NoRandomness,
    /// The CA's path length constraint permits no intermediate CA (RFC 5280 section 4.2.1.9).
    #[error("the CA cannot issue intermediates: use a CA whose pathlen is 1 or more, or absent")]
    NoneBelow,
    /// The new intermediate CA is invalid.
    #[error("invalid intermediate certificate: {0}")]
    Intermediate(#[from] BadAuthority),
}

/// Reason why a chain cannot issue leaves.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadAuthority {
    /// The chain has no certificate.
    #[error("no certificate found")]
    Empty,
    /// A certificate cannot be parsed.
    #[error("cannot parse a certificate of the chain: {0}")]
    Unreadable(#[from] x509::ParseError),
    /// A certificate is not a CA certificate.
    #[error("{0} is not a CA certificate: it needs basicConstraints CA:TRUE and keyCertSign")]
    NotAnAuthority(String),
    /// The key does not match the certificate.
    #[error("the key does not match the certificate of {0}")]
    OtherKey(String),
}
