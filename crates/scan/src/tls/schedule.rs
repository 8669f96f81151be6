//! The key schedule of TLS 1.3 (RFC 8446 section 7).

use std::sync::LazyLock;

use aws_lc_rs::aead::{self, LessSafeKey, UnboundKey};
use aws_lc_rs::{digest, hmac};

use super::record::RecordProtection;

/// Hash and cipher of a TLS 1.3 suite.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tls13Suite {
    hash: Hash,
    aead: &'static aead::Algorithm,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Hash {
    Sha256,
    Sha384,
}

/// The output of a hash function; up to the size of SHA-384.
#[derive(Clone, Copy)]
pub(super) struct Output {
    bytes: [u8; 48],
    length: usize,
}

impl Output {
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn copy(source: &[u8]) -> Self {
        let mut bytes = [0; 48];
        let length = source.len().min(bytes.len());
        bytes[..length].copy_from_slice(&source[..length]);
        Self { bytes, length }
    }
}

impl Tls13Suite {
    /// Returns the suite with this code; `None` for suites that are not offered.
    pub(super) fn new(code: u16) -> Option<Self> {
        let (hash, aead) = match code {
            0x1301 => (Hash::Sha256, &aead::AES_128_GCM),
            0x1302 => (Hash::Sha384, &aead::AES_256_GCM),
            0x1303 => (Hash::Sha256, &aead::CHACHA20_POLY1305),
            _ => return None,
        };
        Some(Self { hash, aead })
    }

    pub(super) fn hash(self) -> Hash {
        self.hash
    }

    /// Derives the keys of a traffic secret (RFC 8446 section 7.3).
    pub(super) fn protection(self, secret: &Output) -> Option<RecordProtection> {
        let key = hmac::Key::new(self.hash.hmac(), secret.as_slice());
        let mut iv = [0; 12];
        iv.copy_from_slice(&self.hash.expand(&key, "iv", &[], 12).as_slice()[..12]);
        let traffic_key = self.hash.expand(&key, "key", &[], self.aead.key_len());
        let unbound = UnboundKey::new(self.aead, traffic_key.as_slice()).ok()?;
        Some(RecordProtection::new(LessSafeKey::new(unbound), iv))
    }
}

impl Hash {
    fn hmac(self) -> hmac::Algorithm {
        match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha384 => hmac::HMAC_SHA384,
        }
    }

    pub(super) fn context(self) -> digest::Context {
        digest::Context::new(match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha384 => &digest::SHA384,
        })
    }

    fn length(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
        }
    }

    fn mac(self, key: &[u8], message: &[u8]) -> Output {
        Output::copy(hmac::sign(&hmac::Key::new(self.hmac(), key), message).as_ref())
    }

    /// Computes HKDF-Extract (RFC 5869 section 2.2).
    fn extract(self, salt: &[u8], secret: &[u8]) -> Output {
        self.mac(salt, secret)
    }

    /// Computes HKDF-Expand-Label (RFC 8446 section 7.1) for up to one block of output, which is sufficient here.
    fn expand(self, secret: &hmac::Key, label: &str, context: &[u8], length: usize) -> Output {
        debug_assert!(length <= self.length());
        let byte = |n: usize| u8::try_from(n).unwrap_or(u8::MAX);
        let mut mac = hmac::Context::with_key(secret);
        mac.update(&[0, byte(length), byte(6 + label.len())]);
        mac.update(b"tls13 ");
        mac.update(label.as_bytes());
        mac.update(&[byte(context.len())]);
        mac.update(context);
        mac.update(&[1]);
        Output::copy(&mac.sign().as_ref()[..length])
    }

    /// Computes Derive-Secret (RFC 8446 section 7.1) from the hash of the transcript.
    fn derive(self, secret: &Output, label: &str, transcript: &[u8]) -> Output {
        let key = hmac::Key::new(self.hmac(), secret.as_slice());
        self.expand(&key, label, transcript, self.length())
    }

    /// Returns the "derived" secret between two stages.
    fn derived(self, secret: &Output) -> Output {
        self.derive(secret, "derived", self.context().finish().as_ref())
    }

    /// Returns the input secret of the handshake stage. Without a pre-shared key it is constant.
    fn handshake_input_secret(self) -> &'static Output {
        static SHA256: LazyLock<Output> = LazyLock::new(|| derive_early_secret(Hash::Sha256));
        static SHA384: LazyLock<Output> = LazyLock::new(|| derive_early_secret(Hash::Sha384));
        match self {
            Self::Sha256 => &SHA256,
            Self::Sha384 => &SHA384,
        }
    }
}

fn derive_early_secret(hash: Hash) -> Output {
    let zeros = [0; 48];
    let zeros = &zeros[..hash.length()];
    hash.derived(&hash.extract(zeros, zeros))
}

/// A stage of the key schedule with the secrets of both directions.
pub(super) struct Secrets {
    hash: Hash,
    stage: Output,
    pub(super) client: Output,
    pub(super) server: Output,
}

impl Secrets {
    /// Derives the handshake stage from the shared secret and the transcript up to the ServerHello.
    pub(super) fn handshake(hash: Hash, shared_secret: &[u8], transcript: &[u8]) -> Self {
        let stage = hash.extract(hash.handshake_input_secret().as_slice(), shared_secret);
        Self {
            client: hash.derive(&stage, "c hs traffic", transcript),
            server: hash.derive(&stage, "s hs traffic", transcript),
            stage,
            hash,
        }
    }

    /// Derives the application stage from the handshake stage and the transcript up to the server's Finished.
    pub(super) fn application(&self, transcript: &[u8]) -> Self {
        let zeros = [0; 48];
        let hash = self.hash;
        let stage = hash.extract(hash.derived(&self.stage).as_slice(), &zeros[..hash.length()]);
        Self {
            client: hash.derive(&stage, "c ap traffic", transcript),
            server: hash.derive(&stage, "s ap traffic", transcript),
            stage,
            hash,
        }
    }

    /// Returns the verify_data of a Finished message (RFC 8446 section 4.4.4) for a direction's secret.
    pub(super) fn verify_data(&self, direction: &Output, transcript: &[u8]) -> Output {
        let key = self.hash.derive(direction, "finished", &[]);
        self.hash.mac(key.as_slice(), transcript)
    }
}
