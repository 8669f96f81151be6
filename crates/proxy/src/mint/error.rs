//! Why there is no leaf.

use keys::SignError;

/// Why there is no leaf.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MintError {
    /// The authority ends within a minute, or has.
    #[error("the authority of the leaves ends: give the proxy another one")]
    AuthorityEnds,
    /// The certificate that is mirrored ends within a minute, or has.
    #[error("the certificate that the leaf is to be like ends")]
    MirroredEnds,
    /// Its key.
    #[error("the authority's key did not sign: {0}")]
    NotSigned(#[from] SignError),
    /// The client needs an RSA key, and none is ready yet.
    #[error("no RSA key is ready yet")]
    NoRsaKey,
    /// The leaf's own key.
    #[error("no key for the leaf: {0}")]
    NoKey(String),
    /// The library.
    #[error("there is no randomness")]
    NoRandomness,
    /// The authority is not to have another below it (RFC 5280 section 4.2.1.9).
    #[error("the authority permits none below it: give one whose pathlen is 1 or more, or that has none")]
    NoneBelow,
    /// The intermediate's own.
    #[error("an intermediate's certificate is not sound: {0}")]
    Intermediate(#[from] BadAuthority),
}

/// A chain that leaves cannot stand below.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadAuthority {
    /// No certificate.
    #[error("there is no certificate")]
    Empty,
    /// One that is not read.
    #[error("a certificate of the chain cannot be read: {0}")]
    Unreadable(#[from] x509::ParseError),
    /// Not an authority's.
    #[error("{0} is no authority's certificate: it needs basicConstraints CA:TRUE and keyCertSign")]
    NotAnAuthority(String),
    /// The key of another.
    #[error("the key is not that of {0}")]
    OtherKey(String),
}
