//! SHA-256 hashes that identify certificates and keys.

use std::fmt;
use std::str::FromStr;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    let mut out = [0; 32];
    out.copy_from_slice(digest.as_ref());
    out
}

/// Error for text that is not 64 hexadecimal digits. Colons and spaces between digits are allowed.
#[derive(Debug, thiserror::Error, Eq, PartialEq)]
#[error("{0:?} is not a SHA-256: expected 64 hexadecimal digits")]
pub struct InvalidSha256(String);

macro_rules! hash_name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub struct $name([u8; 32]);

        impl $name {
            /// Computes the SHA-256 of `der`.
            #[must_use]
            pub fn of(der: &[u8]) -> Self {
                Self(sha256(der))
            }

            /// Wraps an existing hash, for example one from the database.
            #[must_use]
            pub fn from_bytes(bytes: [u8; 32]) -> Self {
                Self(bytes)
            }

            /// Returns the hash as 32 bytes.
            #[must_use]
            pub fn as_bytes(&self) -> &[u8; 32] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut text = [0; 64];
                f.pad(HEXLOWER.encode_mut_str(&self.0, &mut text))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidSha256;

            fn from_str(text: &str) -> Result<Self, InvalidSha256> {
                let digits = text.replace([':', ' '], "");
                let bytes = HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).ok();
                let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
                bytes.map(Self).ok_or_else(|| InvalidSha256(text.to_owned()))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

hash_name! {
    /// SHA-256 of the DER certificate. It identifies the certificate in logs, URLs and tables.
    Fingerprint
}
hash_name! {
    /// SHA-256 of the DER SubjectPublicKeyInfo. It identifies a public key (RFC 7469 section 2.4).
    SpkiHash
}
