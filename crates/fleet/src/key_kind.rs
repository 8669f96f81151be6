//! Key types in certificates of the fleet.

/// Type of a certificate's key, including weak and obsolete types.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum KeyKind {
    P256,
    P384,
    Ed25519,
    Rsa2048,
    Rsa1024,
    Rsa512,
    Dsa1024,
}
