//! Selection of the signatures that are made in batches.

use coded::named;

use crate::KeyType;

named! {
    /// Key types whose signatures are computed in batches, if the processor supports it.
    ///
    /// The check of an RSA signature is complete: a signature that passes is correct. The checks on the curves find arithmetic
    /// faults, but no bias of a nonce. A biased nonce reveals the key through signatures that all verify. So RSA is the default,
    /// and the curves are optional until others have reviewed the arithmetic.
    #[derive(Default)]
    pub enum Batches: "choice of batches" {
        /// No batches. The library makes every signature alone.
        Off => "off",
        /// Batches for RSA-2048 keys.
        #[default]
        Rsa => "rsa",
        /// Batches for RSA-2048, P-256 and Ed25519 keys.
        All => "all",
    }
}

impl Batches {
    /// Returns whether signatures with keys of this type are made in batches.
    #[must_use]
    pub const fn include(self, kind: KeyType) -> bool {
        match kind {
            KeyType::Rsa2048 => matches!(self, Self::Rsa | Self::All),
            KeyType::P256 | KeyType::Ed25519 => matches!(self, Self::All),
            _ => false,
        }
    }
}
