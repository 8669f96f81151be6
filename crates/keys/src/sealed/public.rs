//! Public keys of sealed values.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use data_encoding::HEXLOWER;
use hpke::kem::XWing;
use hpke::{Deserializable as _, Kem};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::error::{KEM_PUBLIC, SealedError};

/// An X-Wing public key (draft-connolly-cfrg-xwing-kem section 5.2). Its text and JSON form is base64. Cheap to clone.
#[derive(Clone, Eq, Hash, PartialEq)]
pub struct KemPublic(Arc<[u8]>);

impl KemPublic {
    /// Parses a public key. Checks its length, and that its numbers are below ML-KEM's modulus (FIPS 203 section 7.2).
    ///
    /// # Errors
    /// [`SealedError::NotPublic`]
    pub fn parse(bytes: &[u8]) -> Result<Self, SealedError> {
        check_public(bytes)?;
        Ok(Self(bytes.into()))
    }

    /// Parses the output of [`Self::to_text`].
    ///
    /// # Errors
    /// [`SealedError::NotPublic`]
    pub fn from_text(text: &str) -> Result<Self, SealedError> {
        Self::parse(&STANDARD.decode(text.trim()).map_err(|_| SealedError::NotPublic)?)
    }

    /// Returns the key in base64 (RFC 4648 section 4).
    #[must_use]
    pub fn to_text(&self) -> String {
        STANDARD.encode(&self.0)
    }

    /// Returns the bytes of the key.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for KemPublic {
    /// Shows the first bytes of the X25519 part, which are enough to distinguish keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KemPublic({}…)", HEXLOWER.encode(&self.0[KEM_PUBLIC - 32..][..6]))
    }
}

impl Serialize for KemPublic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_text())
    }
}

impl<'de> Deserialize<'de> for KemPublic {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_text(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

fn check_public(bytes: &[u8]) -> Result<(), SealedError> {
    <XWing as Kem>::PublicKey::from_bytes(bytes).map(drop).map_err(|_| SealedError::NotPublic)
}
