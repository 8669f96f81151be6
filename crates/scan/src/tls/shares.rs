//! The client's side of the key exchange.

use std::sync::OnceLock;

use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::kem::{Ciphertext, DecapsulationKey, ML_KEM_768};

use super::cursor::{put_extension, put_u16, put_vec16};
use super::extension;

/// X25519 combined with ML-KEM-768 (draft-ietf-tls-ecdhe-mlkem).
pub(super) const X25519_MLKEM768: u16 = 0x11ec;
pub(super) const X25519: u16 = 0x001d;
pub(super) const SECP256R1: u16 = 0x0017;
pub(super) const SECP384R1: u16 = 0x0018;
pub(super) const SECP521R1: u16 = 0x0019;

const ML_KEM_768_CIPHERTEXT: usize = 1_088;

/// Key pairs for the key exchange, generated once and used for every handshake of a run.
///
/// Reuse is intentional: it saves most of the cost of a ClientHello. No secret data is sent over these connections, which end once
/// the server has signed, so forward secrecy is not needed. Freshness comes from the random value in each ClientHello, which the
/// server's signature covers, not from the key shares.
pub struct KeyShares {
    x25519: PrivateKey,
    ml_kem: DecapsulationKey,
    /// The encoded key_share extension with both shares.
    hybrid_extension: Vec<u8>,
    /// The encoded key_share extension with X25519 only.
    x25519_extension: Vec<u8>,
    p256: OnceLock<Result<PrivateKey, Unspecified>>,
    p384: OnceLock<Result<PrivateKey, Unspecified>>,
    p521: OnceLock<Result<PrivateKey, Unspecified>>,
}

/// The system returned no random numbers, which every scan needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the system's random number generator failed: check that getrandom(2) is allowed")]
pub struct NoRandomness;

impl From<Unspecified> for NoRandomness {
    fn from(_: Unspecified) -> Self {
        Self
    }
}

impl KeyShares {
    /// Generates the key pairs for every ClientHello. Pairs for the NIST curves are generated when a server first requests them.
    ///
    /// # Errors
    /// [`NoRandomness`].
    pub fn generate() -> Result<Self, NoRandomness> {
        let x25519 = PrivateKey::generate(&agreement::X25519)?;
        let ml_kem = DecapsulationKey::generate(&ML_KEM_768)?;
        let x25519_public = x25519.compute_public_key()?;
        // ML-KEM comes first in the key share and in the secret, contrary to the name.
        let mut hybrid = ml_kem.encapsulation_key()?.key_bytes()?.as_ref().to_vec();
        hybrid.extend_from_slice(x25519_public.as_ref());
        Ok(Self {
            hybrid_extension: key_share(&[(X25519_MLKEM768, &hybrid), (X25519, x25519_public.as_ref())]),
            x25519_extension: key_share(&[(X25519, x25519_public.as_ref())]),
            x25519,
            ml_kem,
            p256: OnceLock::new(),
            p384: OnceLock::new(),
            p521: OnceLock::new(),
        })
    }

    /// Returns the extension for a first ClientHello, with or without ML-KEM.
    pub(super) fn initial_key_share(&self, post_quantum: bool) -> &[u8] {
        if post_quantum { &self.hybrid_extension } else { &self.x25519_extension }
    }

    /// Returns the extension for a second ClientHello, with the group that a HelloRetryRequest names; `None` for groups that were
    /// not offered.
    pub(super) fn retry_key_share(&self, group: u16) -> Option<Vec<u8>> {
        if group == X25519 {
            return Some(self.x25519_extension.clone());
        }
        let public = self.nist_private_key(group)?.compute_public_key().ok()?;
        Some(key_share(&[(group, public.as_ref())]))
    }

    /// Computes the shared secret with a server's share; `None` when the group was not offered or the share is invalid.
    pub(super) fn agree(&self, group: u16, share: &[u8]) -> Option<Secret> {
        match group {
            X25519 => ecdh(&self.x25519, &agreement::X25519, share, Secret::default()),
            X25519_MLKEM768 => {
                let (ciphertext, public) = share.split_at_checked(ML_KEM_768_CIPHERTEXT)?;
                let first = self.ml_kem.decapsulate(Ciphertext::from(ciphertext)).ok()?;
                let mut secret = Secret::default();
                secret.push(first.as_ref())?;
                ecdh(&self.x25519, &agreement::X25519, public, secret)
            }
            SECP256R1 | SECP384R1 | SECP521R1 => {
                ecdh(self.nist_private_key(group)?, nist_algorithm(group)?, share, Secret::default())
            }
            _ => None,
        }
    }

    fn nist_private_key(&self, group: u16) -> Option<&PrivateKey> {
        let slot = match group {
            SECP256R1 => &self.p256,
            SECP384R1 => &self.p384,
            SECP521R1 => &self.p521,
            _ => return None,
        };
        let algorithm = nist_algorithm(group)?;
        slot.get_or_init(|| PrivateKey::generate(algorithm)).as_ref().ok()
    }
}

impl std::fmt::Debug for KeyShares {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyShares").finish_non_exhaustive()
    }
}

/// A shared secret of up to 66 bytes (P-521), without allocation.
#[derive(Clone, Copy)]
pub(super) struct Secret {
    bytes: [u8; 72],
    length: usize,
}

impl Default for Secret {
    fn default() -> Self {
        Self { bytes: [0; 72], length: 0 }
    }
}

impl Secret {
    fn push(&mut self, more: &[u8]) -> Option<()> {
        let end = self.length + more.len();
        self.bytes.get_mut(self.length..end)?.copy_from_slice(more);
        self.length = end;
        Some(())
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

fn nist_algorithm(group: u16) -> Option<&'static agreement::Algorithm> {
    match group {
        SECP256R1 => Some(&agreement::ECDH_P256),
        SECP384R1 => Some(&agreement::ECDH_P384),
        SECP521R1 => Some(&agreement::ECDH_P521),
        _ => None,
    }
}

/// Appends the shared secret of an ECDH exchange to `secret`.
fn ecdh(
    private_key: &PrivateKey,
    algorithm: &'static agreement::Algorithm,
    peer_share: &[u8],
    mut secret: Secret,
) -> Option<Secret> {
    agreement::agree(private_key, UnparsedPublicKey::new(algorithm, peer_share), (), |shared_secret| {
        secret.push(shared_secret).ok_or(())
    })
    .ok()?;
    Some(secret)
}

fn key_share(shares: &[(u16, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    put_extension(&mut out, extension::KEY_SHARE, |out| {
        put_vec16(out, |out| {
            for (group, public) in shares {
                put_u16(out, *group);
                put_vec16(out, |out| out.extend_from_slice(public));
            }
        });
    });
    out
}
