//! What sealed bytes are bound to, so that they open for nothing else.

/// What a wrap is for. The node's public key is bound beside it, so a statement may be renewed without a new wrap.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct WrapContext {
    /// The policy's UUID.
    pub policy: [u8; 16],
    /// Which of its pairs, from 1.
    pub generation: u32,
    /// The node's UUID.
    pub node: [u8; 16],
}

impl WrapContext {
    /// Domain separation: HPKE's `info`.
    pub(super) const DOMAIN: &'static [u8] = b"bulla policy seed to node v1";

    /// HPKE's `aad`.
    pub(super) fn bound(&self) -> Vec<u8> {
        join(&[&self.policy, &self.generation.to_be_bytes(), &self.node])
    }
}

/// What a sealed key is for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct SealContext {
    /// The policy's UUID.
    pub policy: [u8; 16],
    /// Which of its pairs, from 1.
    pub generation: u32,
    /// SHA-256 of the key's SubjectPublicKeyInfo (RFC 5280 section 4.1.2.7).
    pub spki_sha256: [u8; 32],
}

impl SealContext {
    /// Domain separation: HPKE's `info`.
    pub(super) const DOMAIN: &'static [u8] = b"bulla private key to policy v1";

    /// HPKE's `aad`.
    pub(super) fn bound(&self) -> Vec<u8> {
        join(&[&self.policy, &self.generation.to_be_bytes(), &self.spki_sha256])
    }
}

/// Lengths stand before the parts, so no two contexts look alike.
fn join(parts: &[&[u8]]) -> Vec<u8> {
    let mut bound = Vec::with_capacity(128);
    for part in parts {
        bound.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bound.extend_from_slice(part);
    }
    bound
}
