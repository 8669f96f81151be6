//! What people and programs call algorithms and names.

use std::borrow::Cow;

use crate::{Certificate, GeneralName, KeyAlgorithm, PublicKey, SignatureAlgorithm};

impl KeyAlgorithm {
    /// The kind of key, without its size where that may vary: `RSA`, `P-256`, `Ed25519`; dotted when
    /// it has no name.
    #[must_use]
    pub fn name(&self) -> Cow<'static, str> {
        match self {
            Self::Rsa => "RSA".into(),
            Self::RsaPss => "RSA-PSS".into(),
            Self::Dsa => "DSA".into(),
            Self::EcP256 => "P-256".into(),
            Self::EcP384 => "P-384".into(),
            Self::EcP521 => "P-521".into(),
            Self::EcOther(oid) => format!("EC {oid}").into(),
            Self::Ed25519 => "Ed25519".into(),
            Self::Ed448 => "Ed448".into(),
            Self::MlDsa(set) => format!("ML-DSA-{set}").into(),
            Self::Other(oid) => oid.clone().into(),
        }
    }
}

impl PublicKey {
    /// The key in a word: `RSA-2048`, `P-256`, `Ed25519`.
    #[must_use]
    pub fn name(&self) -> Cow<'static, str> {
        match &self.algorithm {
            KeyAlgorithm::Rsa | KeyAlgorithm::RsaPss => format!("RSA-{}", self.bits).into(),
            KeyAlgorithm::Dsa => format!("DSA-{}", self.bits).into(),
            other => other.name(),
        }
    }
}

impl SignatureAlgorithm {
    /// The name that OpenSSL prints; dotted when it has none.
    #[must_use]
    pub fn name(&self) -> Cow<'static, str> {
        match self {
            Self::RsaMd2 => "md2WithRSAEncryption".into(),
            Self::RsaMd5 => "md5WithRSAEncryption".into(),
            Self::RsaSha1 => "sha1WithRSAEncryption".into(),
            Self::RsaSha256 => "sha256WithRSAEncryption".into(),
            Self::RsaSha384 => "sha384WithRSAEncryption".into(),
            Self::RsaSha512 => "sha512WithRSAEncryption".into(),
            Self::RsaPss(bits) => format!("rsassaPss-sha{bits}").into(),
            Self::EcdsaSha1 => "ecdsa-with-SHA1".into(),
            Self::EcdsaSha256 => "ecdsa-with-SHA256".into(),
            Self::EcdsaSha384 => "ecdsa-with-SHA384".into(),
            Self::EcdsaSha512 => "ecdsa-with-SHA512".into(),
            Self::DsaSha1 => "dsaWithSHA1".into(),
            Self::DsaSha256 => "dsa_with_SHA256".into(),
            Self::Ed25519 => "Ed25519".into(),
            Self::Ed448 => "Ed448".into(),
            Self::MlDsa(set) => format!("ML-DSA-{set}").into(),
            Self::Other(oid) => oid.clone().into(),
        }
    }
}

impl GeneralName {
    /// The name without its kind.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Dns(text)
            | Self::BadIp(text)
            | Self::Email(text)
            | Self::Uri(text)
            | Self::Directory(text)
            | Self::Other(text) => text.into(),
            Self::Ip(address) => address.to_string().into(),
        }
    }
}

impl Certificate {
    /// Every subject alternative name without its kind, in order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.subject_alt_names.iter().map(|name| name.text().into_owned()).collect()
    }
}
