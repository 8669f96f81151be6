//! JOSE signature algorithms.

/// JOSE signature algorithm (RFC 7518 section 3.1, RFC 8037 section 3.1).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Algorithm {
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// ECDSA on P-521 with SHA-512.
    Es512,
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    Rs384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    Rs512,
    /// RSASSA-PSS with SHA-256.
    Ps256,
    /// RSASSA-PSS with SHA-384.
    Ps384,
    /// RSASSA-PSS with SHA-512.
    Ps512,
    /// Ed25519.
    EdDsa,
}

impl Algorithm {
    pub(super) const COUNT: usize = 10;

    /// Algorithms by the names of the IANA registry. RFC 9864 uses "Ed25519" for EdDSA on that curve.
    const NAMES: [(&'static str, Self); 11] = [
        ("ES256", Self::Es256),
        ("ES384", Self::Es384),
        ("ES512", Self::Es512),
        ("RS256", Self::Rs256),
        ("RS384", Self::Rs384),
        ("RS512", Self::Rs512),
        ("PS256", Self::Ps256),
        ("PS384", Self::Ps384),
        ("PS512", Self::Ps512),
        ("EdDSA", Self::EdDsa),
        ("Ed25519", Self::EdDsa),
    ];

    /// Returns the names of all supported algorithms.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        Self::NAMES.iter().map(|(name, _)| *name).collect()
    }

    /// Returns the algorithm with this name. Unsigned (`none`) and shared-key algorithms are not supported.
    #[must_use]
    pub fn named(text: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(name, _)| *name == text).map(|(_, algorithm)| *algorithm)
    }
}
