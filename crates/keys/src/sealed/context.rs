//! Context that sealed bytes are bound to, so that they do not open for another purpose.

/// Context of a wrapped seed. The node's public key is also bound, but not the node's statement: a statement can be renewed without
/// wrapping the seed again.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct WrapContext {
    /// UUID of the policy.
    pub policy: [u8; 16],
    /// Generation number of the policy's key pair, from 1.
    pub generation: u32,
    /// UUID of the node.
    pub node: [u8; 16],
}

impl WrapContext {
    /// HPKE `info`, for domain separation.
    pub(super) const DOMAIN: &'static [u8] = b"bulla policy seed to node v1";

    /// Returns the HPKE `aad`.
    pub(super) fn bound(&self) -> Vec<u8> {
        join(&[&self.policy, &self.generation.to_be_bytes(), &self.node])
    }
}

/// Context of a sealed private key.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct SealContext {
    /// UUID of the policy.
    pub policy: [u8; 16],
    /// Generation number of the policy's key pair, from 1.
    pub generation: u32,
    /// SHA-256 of the key's SubjectPublicKeyInfo (RFC 5280 section 4.1.2.7).
    pub spki_sha256: [u8; 32],
}

impl SealContext {
    /// HPKE `info`, for domain separation.
    pub(super) const DOMAIN: &'static [u8] = b"bulla private key to policy v1";

    /// Returns the HPKE `aad`.
    pub(super) fn bound(&self) -> Vec<u8> {
        join(&[&self.policy, &self.generation.to_be_bytes(), &self.spki_sha256])
    }
}

/// Joins parts. Each part is preceded by its length, so that different contexts never have equal bytes.
fn join(parts: &[&[u8]]) -> Vec<u8> {
    let mut bound = Vec::with_capacity(128);
    for part in parts {
        bound.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bound.extend_from_slice(part);
    }
    bound
}
