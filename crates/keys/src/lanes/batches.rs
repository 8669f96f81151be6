//! Which signatures are made in batches.

use coded::named;

use crate::KeyType;

named! {
    /// Which signatures are made in batches, where the processor can.
    ///
    /// The check of an RSA signature is complete: a result that leads back to its input is the signature. The checks on the curves find
    /// faults of the arithmetic, but no bias of a nonce, which would give the key away through signatures that all verify. So RSA is
    /// the default, and the curves are a choice until others have reviewed the arithmetic.
    #[derive(Default)]
    pub enum Batches: "choice of batches" {
        /// None: every signature is made by itself, by the library.
        Off => "off",
        /// Batches of RSA-2048 keys.
        #[default]
        Rsa => "rsa",
        /// Those by RSA-2048, P-256 and Ed25519 keys.
        All => "all",
    }
}

impl Batches {
    /// Whether signatures by keys of this kind are made in batches.
    #[must_use]
    pub const fn include(self, kind: KeyType) -> bool {
        match kind {
            KeyType::Rsa2048 => matches!(self, Self::Rsa | Self::All),
            KeyType::P256 | KeyType::Ed25519 => matches!(self, Self::All),
            _ => false,
        }
    }
}
