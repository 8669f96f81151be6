//! Private keys in this process.

mod signing;
mod threads;

use std::fmt;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa;
use aws_lc_rs::signature::{self as lc, KeyPair as _};
use x509::{PublicKey, SpkiHash};
use zeroize::Zeroizing;

use crate::digest::{ecdsa_digest, rsa_digest};
use crate::encoding::{self, Format, Pkcs8Kind};
use crate::error::{DecryptError, KeyError, KeyFileError, SignError};
use crate::{Batches, Hash, KeyType, Scheme, encrypted, lanes};
use threads::STAGE;

/// Hash of RSAES-OAEP (RFC 8017 section 7.1) and of its mask.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OaepHash {
    /// SHA-1, the default of RFC 8017, used by most devices.
    Sha1,
    /// SHA-256
    Sha256,
    /// SHA-384
    Sha384,
    /// SHA-512
    Sha512,
}

/// A private key in memory. Cheap to clone; wiped when the last clone is dropped.
#[derive(Clone)]
pub struct PrivateKey {
    inner: Arc<KeyMaterial>,
}

struct KeyMaterial {
    pair: Pair,
    kind: KeyType,
    spki: Vec<u8>,
    pkcs8: Zeroizing<Vec<u8>>,
    /// Whether the numbers of the key are suitable for batches.
    fits_lanes: bool,
    /// Key material for batches, set from `pkcs8` by [`PrivateKey::prepare`]. Contains `None` if the key does not support batches.
    lanes: OnceLock<Option<lanes::Numbers>>,
}

enum Pair {
    Rsa(rsa::KeyPair),
    Ecdsa(lc::EcdsaKeyPair),
    Ed25519(lc::Ed25519KeyPair),
    MlDsa(lc::PqdsaKeyPair),
}

impl PrivateKey {
    /// Generates a key from the operating system's randomness. RSA takes 0.1 to 3 s, so do not call it on an async thread (see
    /// [`Self::generate_in_background`]).
    ///
    /// # Errors
    /// [`KeyError::Generation`] if the library fails, which happens only if memory is exhausted.
    pub fn generate(kind: KeyType) -> Result<Self, KeyError> {
        Self::from_pair(Pair::generate(kind).ok_or(KeyError::Generation(kind))?)
    }

    /// Generates a key like [`Self::generate`], on a thread for blocking tasks. At most as many keys are generated concurrently
    /// as there are processors.
    ///
    /// # Errors
    /// As [`Self::generate`].
    pub async fn generate_in_background(kind: KeyType) -> Result<Self, KeyError> {
        let _turn = STAGE.acquire().await.map_err(|_| KeyError::Generation(kind))?;
        let made = tokio::task::spawn_blocking(move || Self::generate(kind)).await;
        made.unwrap_or(Err(KeyError::Generation(kind)))
    }

    /// Reads the first private key of a PEM text: PKCS#8, PKCS#1 or SEC 1.
    ///
    /// # Errors
    /// [`KeyError`]; [`KeyError::Encrypted`] if the key needs [`Self::from_encrypted_pem`].
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        Self::from_der(&encoding::first_private_key_der(text)?)
    }

    /// Reads the first private key of a PEM text: PKCS#8 encrypted under `passphrase` (PBES2 with AES in CBC mode, RFC 8018 section
    /// 6.2), or an unencrypted key.
    ///
    /// # Errors
    /// [`KeyError`]; [`KeyError::WrongPassphrase`].
    pub fn from_encrypted_pem(text: &str, passphrase: &[u8]) -> Result<Self, KeyError> {
        let der = encoding::first_private_key_der(text)?;
        match encoding::format_of(&der)? {
            Format::Encrypted => Self::from_pkcs8_der(&encrypted::open(&der, passphrase)?),
            _ => Self::from_der(&der),
        }
    }

    /// Reads a private key in DER: PKCS#8, PKCS#1 or SEC 1.
    ///
    /// # Errors
    /// [`KeyError`]
    pub fn from_der(der: &[u8]) -> Result<Self, KeyError> {
        let unsound = |error: aws_lc_rs::error::KeyRejected| KeyError::Unsound(error.to_string());
        let pair = match encoding::format_of(der)? {
            Format::Encrypted => return Err(KeyError::Encrypted),
            Format::Pkcs1 => Pair::Rsa(rsa::KeyPair::from_der(der).map_err(unsound)?),
            Format::Sec1 => Pair::from_sec1(der)?,
            Format::Pkcs8(Pkcs8Kind::Rsa) => Pair::Rsa(rsa::KeyPair::from_pkcs8(der).map_err(unsound)?),
            Format::Pkcs8(Pkcs8Kind::Exact(kind)) => Pair::from_pkcs8(kind, der).map_err(unsound)?,
        };
        // The library ignores bytes after the key, but a file with two keys is a mistake.
        let mut reader = x509::der::Reader::new(der);
        let whole = reader.any().and_then(|_| reader.end());
        whole.map_err(|error| KeyError::Malformed(error.to_string()))?;
        Self::from_parsed_pair(pair, der)
    }

    /// Reads a DER PrivateKeyInfo (PKCS#8, RFC 5958).
    ///
    /// # Errors
    /// [`KeyError`]
    pub fn from_pkcs8_der(der: &[u8]) -> Result<Self, KeyError> {
        match encoding::format_of(der)? {
            Format::Pkcs8(_) => Self::from_der(der),
            Format::Encrypted => Err(KeyError::Encrypted),
            Format::Pkcs1 | Format::Sec1 => Err(KeyError::Malformed("not PKCS#8".to_owned())),
        }
    }

    /// Reads a file, either PEM as [`Self::from_pem`] or DER as [`Self::from_der`].
    ///
    /// # Errors
    /// [`KeyFileError`]
    pub fn from_file(path: &Path) -> Result<Self, KeyFileError> {
        let limit = 2 * encoding::PRIVATE_KEY_BYTES_MAX;
        // Reserves the full capacity first: a vector that grows leaves copies of the secret behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(limit + 1));
        std::fs::File::open(path)?.take(limit as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > limit {
            return Err(KeyError::Malformed("the file is too long for a private key".to_owned()).into());
        }
        // DER starts with a SEQUENCE tag and its length, which are never the start of a PEM text.
        match std::str::from_utf8(&bytes) {
            Ok(text) if text.contains("-----BEGIN") => Ok(Self::from_pem(text)?),
            _ => Ok(Self::from_der(&bytes)?),
        }
    }

    /// Returns unencrypted PKCS#8 in PEM.
    #[must_use]
    pub fn to_pkcs8_pem(&self) -> Zeroizing<String> {
        encoding::pem("PRIVATE KEY", &self.inner.pkcs8)
    }

    /// Returns the unencrypted key in the PEM form that old programs expect: PKCS#1 (`RSA PRIVATE KEY`, RFC 8017 appendix A.1.2)
    /// for RSA, and PKCS#8 for all other types.
    #[must_use]
    pub fn to_traditional_pem(&self) -> Zeroizing<String> {
        match self.inner.kind.rsa_bits().and_then(|_| encoding::private_key_field(&self.inner.pkcs8)) {
            Some(pkcs1) => encoding::pem("RSA PRIVATE KEY", pkcs1),
            None => self.to_pkcs8_pem(),
        }
    }

    /// Returns unencrypted PKCS#8 in DER.
    #[must_use]
    pub fn to_pkcs8_der(&self) -> Zeroizing<Vec<u8>> {
        self.inner.pkcs8.clone()
    }

    /// Returns PKCS#8 in PEM, encrypted under a passphrase: PBES2 with PBKDF2-HMAC-SHA-256 and AES-256-CBC. OpenSSL 1.1 and newer,
    /// and other current tools, can read it.
    ///
    /// # Errors
    /// [`KeyError::Unsound`] if the library fails.
    pub fn to_encrypted_pem(&self, passphrase: &[u8]) -> Result<String, KeyError> {
        let der = encrypted::seal(&self.inner.pkcs8, passphrase)?;
        Ok(encoding::pem("ENCRYPTED PRIVATE KEY", &der).to_string())
    }

    /// Returns the SHA-256 hash of the SubjectPublicKeyInfo.
    #[must_use]
    pub fn spki_hash(&self) -> SpkiHash {
        SpkiHash::of(&self.inner.spki)
    }

    /// Signs on this thread, and otherwise as [`Signer::sign`](crate::Signer::sign).
    ///
    /// # Errors
    /// [`SignError::Failed`] if the library fails.
    pub fn sign_now(&self, message: &[u8]) -> Result<Vec<u8>, SignError> {
        self.inner
            .pair
            .sign(message)
            .ok_or_else(|| SignError::Failed("the cryptographic library failed".to_owned()))
    }

    /// Signs a precomputed digest on this thread; like [`Signer::sign_digest`](crate::Signer::sign_digest), but not async. RSA
    /// signatures with SHA-1, SHA-224, or MD5 and SHA-1 are not supported: the library leaves out weak signatures.
    ///
    /// # Errors
    /// [`SignError::Failed`] if the key does not support the scheme ([`Scheme::check`]), or the library fails.
    pub fn sign_digest_now(&self, scheme: Scheme, input: &[u8]) -> Result<Vec<u8>, SignError> {
        let misfit = scheme.check(self.inner.kind, input.len());
        misfit.map_err(|misfit| SignError::Failed(misfit.to_string()))?;
        let signed = self.inner.pair.sign_digest(self.inner.kind, scheme, input);
        signed.ok_or_else(|| {
            SignError::Failed("the cryptographic library does not support this signature scheme".to_owned())
        })
    }

    /// Decrypts RSAES-PKCS1-v1_5 (RFC 8017 section 7.2), which SCEP uses for CMS key transport. The caller must not let the sender
    /// distinguish this failure from a later one.
    ///
    /// # Errors
    /// [`DecryptError`]
    pub fn rsa_decrypt_pkcs1(&self, ciphertext: &[u8]) -> Result<Zeroizing<Vec<u8>>, DecryptError> {
        let key =
            rsa::Pkcs1PrivateDecryptingKey::new(self.decrypting()?).map_err(|_| DecryptError::Failed)?;
        let mut room = Zeroizing::new(vec![0; key.min_output_size()]);
        let length = key.decrypt(ciphertext, &mut room).map_err(|_| DecryptError::Failed)?.len();
        room.truncate(length);
        Ok(room)
    }

    /// Decrypts RSAES-OAEP (RFC 8017 section 7.1) with an empty label.
    ///
    /// # Errors
    /// [`DecryptError`]
    pub fn rsa_decrypt_oaep(
        &self,
        hash: OaepHash,
        ciphertext: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, DecryptError> {
        let algorithm = match hash {
            OaepHash::Sha1 => &rsa::OAEP_SHA1_MGF1SHA1,
            OaepHash::Sha256 => &rsa::OAEP_SHA256_MGF1SHA256,
            OaepHash::Sha384 => &rsa::OAEP_SHA384_MGF1SHA384,
            OaepHash::Sha512 => &rsa::OAEP_SHA512_MGF1SHA512,
        };
        let key = rsa::OaepPrivateDecryptingKey::new(self.decrypting()?).map_err(|_| DecryptError::Failed)?;
        let mut room = Zeroizing::new(vec![0; key.min_output_size()]);
        let opened = key.decrypt(algorithm, ciphertext, &mut room, None);
        let length = opened.map_err(|_| DecryptError::Failed)?.len();
        room.truncate(length);
        Ok(room)
    }

    /// Returns whether signatures of this key by `scheme` are computed in batches on this machine ([`crate::is_batched`]). False
    /// before [`Self::prepare`]. For RSA also false unless the public exponent is 65,537 and both primes have 1,024 bits.
    #[must_use]
    pub fn is_batched(&self, scheme: Scheme, batches: Batches) -> bool {
        self.lanes().is_some() && lanes::is_batched(self.inner.kind, scheme, batches)
    }

    /// Returns whether a call of [`Self::prepare`] makes this key use batches on this machine.
    #[must_use]
    pub fn needs_preparation(&self, batches: Batches) -> bool {
        let is_unprepared = self.inner.fits_lanes && self.inner.lanes.get().is_none();
        is_unprepared && lanes::are_made(self.inner.kind, batches)
    }

    /// Computes the key material for batches, once. Call it only for keys that sign, and not while a caller waits:
    ///
    /// - RSA: 0.2 ms of work, and 2 KB as long as the key is in memory.
    /// - P-256 and Ed25519: a few µs, and less than 150 bytes. The first key of each type in a process takes 1 ms and 208 or 303 KB
    ///   for tables ([`crate::prepare_tables`] computes them earlier).
    pub fn prepare(&self) {
        if self.needs_preparation(Batches::All) {
            let KeyMaterial { kind, spki, pkcs8, lanes, .. } = &*self.inner;
            lanes.get_or_init(|| lanes::Numbers::of(*kind, pkcs8, spki));
        }
    }

    /// Creates a key whose batches use other numbers, for tests.
    #[cfg(test)]
    pub(crate) fn with_lanes(pkcs8: &[u8], lanes: lanes::Numbers) -> Self {
        let key = Self::from_pkcs8_der(pkcs8).unwrap();
        assert!(key.inner.lanes.set(Some(lanes)).is_ok());
        key
    }

    /// Returns the numbers for batches, if the key is prepared.
    pub(crate) fn lanes(&self) -> Option<&lanes::Numbers> {
        self.inner.lanes.get()?.as_ref()
    }

    /// Returns whether to sign on the calling thread. Such signatures take 20 to 60 µs, less than a handover to another thread.
    /// Outside an async runtime there is no alternative.
    fn signs_inline(&self) -> bool {
        self.inner.kind.rsa_bits().is_none() || tokio::runtime::Handle::try_current().is_err()
    }

    fn decrypting(&self) -> Result<rsa::PrivateDecryptingKey, DecryptError> {
        if self.inner.kind.rsa_bits().is_none() {
            return Err(DecryptError::NotRsa(self.inner.kind));
        }
        rsa::PrivateDecryptingKey::from_pkcs8(&self.inner.pkcs8).map_err(|_| DecryptError::Failed)
    }

    fn from_pair(pair: Pair) -> Result<Self, KeyError> {
        let pkcs8 = pair.pkcs8().ok_or_else(|| KeyError::Unsound("cannot encode the key".to_owned()))?;
        Self::assemble(pair, pkcs8)
    }

    /// Keeps the original bytes of an ML-DSA key without a seed, because the library cannot encode it again.
    fn from_parsed_pair(pair: Pair, der: &[u8]) -> Result<Self, KeyError> {
        let pkcs8 = pair.pkcs8().unwrap_or_else(|| Zeroizing::new(der.to_vec()));
        Self::assemble(pair, pkcs8)
    }

    fn assemble(pair: Pair, pkcs8: Zeroizing<Vec<u8>>) -> Result<Self, KeyError> {
        let spki = pair.spki().ok_or_else(|| KeyError::Unsound("the key has no public key".to_owned()))?;
        let public = PublicKey::parse(&spki).map_err(|error| KeyError::Malformed(error.to_string()))?;
        let kind = KeyType::of(&public)
            .ok_or_else(|| KeyError::Unsupported(format!("{} of {} bits", public.algorithm, public.bits)))?;
        let fits_lanes = lanes::fits(kind, &pkcs8);
        Ok(Self {
            inner: Arc::new(KeyMaterial { pair, kind, spki, pkcs8, fits_lanes, lanes: OnceLock::new() }),
        })
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({}, {})", self.inner.kind, self.spki_hash())
    }
}

impl Pair {
    fn generate(kind: KeyType) -> Option<Self> {
        let rsa = |size| rsa::KeyPair::generate(size).ok().map(Self::Rsa);
        match kind {
            KeyType::Rsa2048 => rsa(rsa::KeySize::Rsa2048),
            KeyType::Rsa3072 => rsa(rsa::KeySize::Rsa3072),
            KeyType::Rsa4096 => rsa(rsa::KeySize::Rsa4096),
            KeyType::P256 | KeyType::P384 | KeyType::P521 => {
                lc::EcdsaKeyPair::generate(ecdsa(kind)?).ok().map(Self::Ecdsa)
            }
            KeyType::Ed25519 => lc::Ed25519KeyPair::generate().ok().map(Self::Ed25519),
            KeyType::MlDsa44 | KeyType::MlDsa65 | KeyType::MlDsa87 => {
                lc::PqdsaKeyPair::generate(ml_dsa(kind)?).ok().map(Self::MlDsa)
            }
        }
    }

    /// Parses a PKCS#8 key. `kind` is the result of [`encoding::format_of`], never RSA.
    fn from_pkcs8(kind: KeyType, der: &[u8]) -> Result<Self, aws_lc_rs::error::KeyRejected> {
        if let Some(algorithm) = ecdsa(kind) {
            return lc::EcdsaKeyPair::from_pkcs8(algorithm, der).map(Self::Ecdsa);
        }
        if let Some(algorithm) = ml_dsa(kind) {
            return lc::PqdsaKeyPair::from_pkcs8(algorithm, der).map(Self::MlDsa);
        }
        lc::Ed25519KeyPair::from_pkcs8(der).map(Self::Ed25519)
    }

    /// Parses an EC private key (RFC 5915). If the optional curve is missing, each supported curve is tried.
    fn from_sec1(der: &[u8]) -> Result<Self, KeyError> {
        let kinds = [KeyType::P256, KeyType::P384, KeyType::P521];
        let read = |kind| lc::EcdsaKeyPair::from_private_key_der(ecdsa(kind)?, der).ok();
        let found = kinds.into_iter().find_map(read).map(Self::Ecdsa);
        found.ok_or_else(|| {
            KeyError::Unsound("not on P-256, P-384 or P-521, or the public key does not match".to_owned())
        })
    }

    fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&lc::RSA_PKCS1_SHA256, &random, message, &mut signature).ok()?;
                Some(signature)
            }
            Self::Ecdsa(pair) => pair.sign(&random, message).ok().map(|s| s.as_ref().to_vec()),
            Self::Ed25519(pair) => pair.try_sign(message).ok().map(|s| s.as_ref().to_vec()),
            Self::MlDsa(pair) => {
                let mut signature = vec![0; pair.algorithm().signature_len()];
                let length = pair.sign(message, &mut signature).ok()?;
                signature.truncate(length);
                Some(signature)
            }
        }
    }

    /// Signs a digest. `None` if [`Scheme::check`] fails or the library does not support the scheme.
    fn sign_digest(&self, kind: KeyType, scheme: Scheme, input: &[u8]) -> Option<Vec<u8>> {
        match (self, scheme) {
            (Self::Rsa(pair), Scheme::RsaPkcs1(hash)) => rsa_signature(pair, rsa_pkcs1(hash)?, hash, input),
            (Self::Rsa(pair), Scheme::RsaPss(hash)) => rsa_signature(pair, rsa_pss(hash)?, hash, input),
            (Self::Ecdsa(pair), Scheme::Ecdsa(_)) => {
                let digest = ecdsa_digest(kind, input)?;
                pair.sign_digest(&digest).ok().map(|s| s.as_ref().to_vec())
            }
            (Self::Ed25519(pair), Scheme::Ed25519) => pair.try_sign(input).ok().map(|s| s.as_ref().to_vec()),
            _ => None,
        }
    }

    fn spki(&self) -> Option<Vec<u8>> {
        let der: PublicKeyX509Der<'_> = match self {
            Self::Rsa(pair) => pair.public_key().as_der(),
            Self::Ecdsa(pair) => pair.public_key().as_der(),
            Self::Ed25519(pair) => pair.public_key().as_der(),
            Self::MlDsa(pair) => pair.public_key().as_der(),
        }
        .ok()?;
        Some(der.as_ref().to_vec())
    }

    fn pkcs8(&self) -> Option<Zeroizing<Vec<u8>>> {
        let owned = |bytes: &[u8]| Zeroizing::new(bytes.to_vec());
        match self {
            Self::Rsa(pair) => AsDer::<Pkcs8V1Der<'_>>::as_der(pair).ok().map(|der| owned(der.as_ref())),
            Self::Ecdsa(pair) => pair.to_pkcs8v1().ok().map(|der| owned(der.as_ref())),
            Self::Ed25519(pair) => pair.to_pkcs8v1().ok().map(|der| owned(der.as_ref())),
            Self::MlDsa(pair) => pair.to_pkcs8v1().ok().map(|der| owned(der.as_ref())),
        }
    }
}

fn rsa_signature(
    pair: &rsa::KeyPair,
    encoding: &'static dyn lc::RsaEncoding,
    hash: Hash,
    input: &[u8],
) -> Option<Vec<u8>> {
    let digest = rsa_digest(hash, input)?;
    let mut signature = vec![0; pair.public_modulus_len()];
    pair.sign_digest(encoding, &digest, &mut signature).ok()?;
    Some(signature)
}

fn rsa_pkcs1(hash: Hash) -> Option<&'static dyn lc::RsaEncoding> {
    match hash {
        Hash::Sha256 => Some(&lc::RSA_PKCS1_SHA256),
        Hash::Sha384 => Some(&lc::RSA_PKCS1_SHA384),
        Hash::Sha512 => Some(&lc::RSA_PKCS1_SHA512),
        Hash::Md5Sha1 | Hash::Sha1 | Hash::Sha224 => None,
    }
}

fn rsa_pss(hash: Hash) -> Option<&'static dyn lc::RsaEncoding> {
    match hash {
        Hash::Sha256 => Some(&lc::RSA_PSS_SHA256),
        Hash::Sha384 => Some(&lc::RSA_PSS_SHA384),
        Hash::Sha512 => Some(&lc::RSA_PSS_SHA512),
        Hash::Md5Sha1 | Hash::Sha1 | Hash::Sha224 => None,
    }
}

fn ecdsa(kind: KeyType) -> Option<&'static lc::EcdsaSigningAlgorithm> {
    match kind {
        KeyType::P256 => Some(&lc::ECDSA_P256_SHA256_ASN1_SIGNING),
        KeyType::P384 => Some(&lc::ECDSA_P384_SHA384_ASN1_SIGNING),
        KeyType::P521 => Some(&lc::ECDSA_P521_SHA512_ASN1_SIGNING),
        _ => None,
    }
}

fn ml_dsa(kind: KeyType) -> Option<&'static lc::PqdsaSigningAlgorithm> {
    match kind {
        KeyType::MlDsa44 => Some(&lc::ML_DSA_44_SIGNING),
        KeyType::MlDsa65 => Some(&lc::ML_DSA_65_SIGNING),
        KeyType::MlDsa87 => Some(&lc::ML_DSA_87_SIGNING),
        _ => None,
    }
}

/// Compares two byte strings in a time that depends only on their lengths.
#[must_use]
pub fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(a, b).is_ok()
}
