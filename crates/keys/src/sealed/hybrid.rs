//! HPKE with X-Wing: seals to a public key, and opens with a key pair.

use hpke::aead::AesGcm256;
use hpke::kdf::HkdfSha256;
use hpke::kem::XWing;
use hpke::{Deserializable as _, HpkeError, Kem, OpModeR, OpModeS, Serializable as _};
use hpke::{single_shot_open, single_shot_seal};
use zeroize::Zeroizing;

use super::error::{SEED, SealedError};
use super::public::KemPublic;

type Private = <XWing as Kem>::PrivateKey;
type KemPublicKey = <XWing as Kem>::PublicKey;
type EncapsulatedKey = <XWing as Kem>::EncappedKey;

/// Algorithm number of X-Wing, HKDF-SHA256 and AES-256-GCM.
const ALGORITHM: u8 = 1;
/// Bytes of X-Wing's ciphertext.
const ENCAPPED: usize = 1_120;
/// Bytes of the AES-256-GCM tag.
const TAG: usize = 16;
/// Bytes by which sealed data is longer than its plaintext.
pub(super) const OVERHEAD: usize = 1 + ENCAPPED + TAG;

/// A key pair. The library wipes the private key.
pub(super) struct Pair {
    private: Private,
    pub(super) public: KemPublic,
}

impl Pair {
    pub(super) fn from_seed(seed: &[u8]) -> Result<Self, SealedError> {
        let private = Private::from_bytes(seed).map_err(|_| SealedError::NotSeed(seed.len()))?;
        let public = KemPublic::parse(&XWing::sk_to_pk(&private).to_bytes())?;
        Ok(Self { private, public })
    }

    pub(super) fn seed(&self) -> Zeroizing<[u8; SEED]> {
        let mut seed = Zeroizing::new([0; SEED]);
        self.private.write_exact(&mut *seed);
        seed
    }

    pub(super) fn open(
        &self,
        sealed: &[u8],
        domain: &[u8],
        bound: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, SealedError> {
        check_algorithm(sealed)?;
        if sealed.len() < OVERHEAD {
            return Err(SealedError::Length(sealed.len()));
        }
        let (encapped, text) = sealed[1..].split_at(ENCAPPED);
        let encapped = EncapsulatedKey::from_bytes(encapped).map_err(|_| SealedError::Forged)?;
        let opened = single_shot_open::<AesGcm256, HkdfSha256, XWing>(
            &OpModeR::Base,
            &self.private,
            &encapped,
            domain,
            text,
            bound,
        );
        opened.map(Zeroizing::new).map_err(|error| match error {
            HpkeError::OpenError | HpkeError::DecapError | HpkeError::ValidationError => SealedError::Forged,
            _ => SealedError::Library,
        })
    }
}

pub(super) fn seal(
    to: &KemPublic,
    domain: &[u8],
    bound: &[u8],
    secret: &[u8],
) -> Result<Vec<u8>, SealedError> {
    let to = KemPublicKey::from_bytes(to.as_bytes()).map_err(|_| SealedError::NotPublic)?;
    let sealed = single_shot_seal::<AesGcm256, HkdfSha256, XWing>(&OpModeS::Base, &to, domain, secret, bound);
    let (encapped, text) = sealed.map_err(|_| SealedError::Library)?;
    let mut out = Vec::with_capacity(OVERHEAD + secret.len());
    out.push(ALGORITHM);
    out.extend_from_slice(&encapped.to_bytes());
    out.extend_from_slice(&text);
    Ok(out)
}

pub(super) fn check_algorithm(sealed: &[u8]) -> Result<(), SealedError> {
    match sealed.first() {
        Some(&ALGORITHM) => Ok(()),
        Some(other) => Err(SealedError::Algorithm(*other)),
        None => Err(SealedError::Length(0)),
    }
}
