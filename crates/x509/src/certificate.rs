//! Parsed certificates.

use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Fingerprint, SerialNumber, SpkiHash, UnixTime};

/// A parsed X.509 certificate (RFC 5280 section 4.1). It owns its data and can be shared in an `Arc`.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The original DER bytes.
    pub der: Arc<[u8]>,
    /// SHA-256 of `der`.
    pub fingerprint: Fingerprint,
    /// Version: 1, 2 or 3.
    pub version: u8,
    /// Serial number as encoded, even if it breaks rules.
    pub serial: SerialNumber,
    /// Distinguished name of the issuer.
    pub issuer: DistinguishedName,
    /// Distinguished name of the subject.
    pub subject: DistinguishedName,
    /// First second of validity.
    pub not_before: UnixTime,
    /// Last second of validity (inclusive, RFC 5280 section 4.1.2.5).
    pub not_after: UnixTime,
    /// Public key of the subject.
    pub public_key: PublicKey,
    /// Algorithm with which the issuer signed the certificate.
    pub signature: SignatureAlgorithm,
    /// Subject alternative names, in order; empty if the extension is absent.
    pub subject_alt_names: Vec<GeneralName>,
    /// basicConstraints (RFC 5280 section 4.2.1.9).
    pub basic_constraints: Option<BasicConstraints>,
    /// keyUsage (RFC 5280 section 4.2.1.3).
    pub key_usage: Option<KeyUsage>,
    /// Extended key usages as dotted object identifiers; `None` if the extension is absent.
    pub extended_key_usage: Option<Vec<String>>,
    /// nameConstraints (RFC 5280 section 4.2.1.10).
    pub name_constraints: Option<NameConstraints>,
    /// subjectKeyIdentifier (RFC 5280 section 4.2.1.2).
    pub subject_key_id: Option<Vec<u8>>,
    /// keyIdentifier of authorityKeyIdentifier (RFC 5280 section 4.2.1.1).
    pub authority_key_id: Option<Vec<u8>>,
    /// URLs of OCSP responders in Authority Information Access.
    pub ocsp_urls: Vec<String>,
    /// URLs of issuer certificates in Authority Information Access.
    pub issuer_urls: Vec<String>,
    /// URLs of CRL distribution points.
    pub crl_urls: Vec<String>,
    /// Certificate policies as dotted object identifiers.
    pub policies: Vec<String>,
    /// Number of embedded signed certificate timestamps (RFC 6962 section 3.3).
    pub embedded_scts: u16,
    /// Whether the TLS feature extension requires a stapled OCSP response (RFC 7633).
    pub must_staple: bool,
    /// Whether the issuer publishes no revocation status for the certificate (noRevAvail, RFC 9608 section 2).
    pub no_revocation: bool,
    /// Whether the CT poison extension is present: a precertificate, which is never served (RFC 6962 section 3.1).
    pub precertificate: bool,
    /// Unknown critical extensions as dotted object identifiers.
    pub unknown_critical: Vec<String>,
    /// Errors in parts that could not be read or violate DER. The other parts are still available.
    pub faults: Vec<String>,
    /// Range of the signed part in `der`.
    pub(crate) tbs_range: Range<usize>,
    /// Range of the signature in `der`.
    pub(crate) signature_range: Range<usize>,
}

/// A distinguished name (X.501).
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct DistinguishedName {
    /// The DER `Name`, which is compared to match issuers and subjects.
    pub der: Arc<[u8]>,
    /// Text for people: `CN=…, O=…, C=…` (RFC 4514 escapes, most specific first).
    pub text: String,
    /// All commonName values, in order.
    pub common_names: Vec<String>,
    /// The first organizationName value.
    pub organization: Option<String>,
}

/// A subject alternative name (RFC 5280 section 4.2.1.6).
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GeneralName {
    /// dNSName as encoded; it may contain a wildcard, capitals or invalid text.
    Dns(String),
    /// iPAddress of 4 or 16 bytes.
    Ip(IpAddr),
    /// iPAddress of any other length, in hexadecimal.
    BadIp(String),
    /// rfc822Name: an email address.
    Email(String),
    /// uniformResourceIdentifier.
    Uri(String),
    /// directoryName, as text.
    Directory(String),
    /// Any other kind of name, by its name in GeneralName or its tag: `registeredID`, `tag 0x8a`.
    Other(String),
}

/// basicConstraints (RFC 5280 section 4.2.1.9).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
pub struct BasicConstraints {
    /// Whether the subject may sign certificates.
    pub ca: bool,
    /// Maximum number of intermediates below this certificate.
    pub path_len: Option<u32>,
}

/// keyUsage (RFC 5280 section 4.2.1.3), with bit 0 (digitalSignature) as the lowest bit.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyUsage(pub u16);

impl KeyUsage {
    /// digitalSignature
    pub const DIGITAL_SIGNATURE: u16 = 1;
    /// contentCommitment, formerly called nonRepudiation
    pub const CONTENT_COMMITMENT: u16 = 1 << 1;
    /// keyEncipherment
    pub const KEY_ENCIPHERMENT: u16 = 1 << 2;
    /// dataEncipherment
    pub const DATA_ENCIPHERMENT: u16 = 1 << 3;
    /// keyAgreement
    pub const KEY_AGREEMENT: u16 = 1 << 4;
    /// keyCertSign
    pub const KEY_CERT_SIGN: u16 = 1 << 5;
    /// cRLSign
    pub const CRL_SIGN: u16 = 1 << 6;
    /// encipherOnly
    pub const ENCIPHER_ONLY: u16 = 1 << 7;
    /// decipherOnly
    pub const DECIPHER_ONLY: u16 = 1 << 8;

    /// Returns whether any bit of `bits` is set.
    #[must_use]
    pub fn allows(self, bits: u16) -> bool {
        self.0 & bits != 0
    }
}

/// nameConstraints (RFC 5280 section 4.2.1.10).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NameConstraints {
    /// A name must be in one of the subtrees of its kind, if there are any.
    pub permitted: Vec<Subtree>,
    /// Names must not be in any of these subtrees.
    pub excluded: Vec<Subtree>,
}

/// Base of a name constraint (RFC 5280 section 4.2.1.10), by kind of name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Subtree {
    /// A host and all its subdomains.
    Dns(String),
    /// IP address and mask, 4 or 16 bytes each.
    Ip(IpAddr, IpAddr),
    /// A mailbox, a host or, with a leading dot, a domain.
    Email(String),
    /// A host or, with a leading dot, a domain.
    Uri(String),
    /// Prefix of a DER name.
    Directory(Arc<[u8]>),
    /// A kind of name that is not supported: certificates with such names are rejected.
    Other,
}

/// A public key with its algorithm, size and SubjectPublicKeyInfo.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PublicKey {
    /// Algorithm of the key, such as RSA or P-256.
    pub algorithm: KeyAlgorithm,
    /// Size in bits: of the modulus for RSA and DSA, of the field for elliptic curves. 0 if unknown.
    pub bits: u32,
    /// RSA: the public exponent, if it fits into 64 bits.
    pub rsa_exponent: Option<u64>,
    /// The DER SubjectPublicKeyInfo.
    pub spki: Arc<[u8]>,
    /// SHA-256 of `spki`.
    pub spki_sha256: SpkiHash,
}

/// Algorithm of a public key, with the curve or parameter set, such as RSA or P-256.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum KeyAlgorithm {
    /// rsaEncryption
    Rsa,
    /// id-RSASSA-PSS
    RsaPss,
    /// id-dsa
    Dsa,
    /// NIST P-256
    EcP256,
    /// NIST P-384
    EcP384,
    /// NIST P-521
    EcP521,
    /// Any other curve, as a dotted object identifier
    EcOther(String),
    /// Ed25519 (RFC 8410)
    Ed25519,
    /// Ed448 (RFC 8410)
    Ed448,
    /// ML-DSA (FIPS 204), by its parameter set: 44, 65 or 87
    MlDsa(u8),
    /// Any other algorithm, as a dotted object identifier
    Other(String),
}

/// Signature algorithm with its hash, such as ECDSA with SHA-256.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum SignatureAlgorithm {
    /// PKCS #1 v1.5 with MD2
    RsaMd2,
    /// PKCS #1 v1.5 with MD5
    RsaMd5,
    /// PKCS #1 v1.5 with SHA-1
    RsaSha1,
    /// PKCS #1 v1.5 with SHA-256
    RsaSha256,
    /// PKCS #1 v1.5 with SHA-384
    RsaSha384,
    /// PKCS #1 v1.5 with SHA-512
    RsaSha512,
    /// RSASSA-PSS with a hash of this many bits (160, 256, 384, 512)
    RsaPss(u16),
    /// ECDSA with SHA-1
    EcdsaSha1,
    /// ECDSA with SHA-256
    EcdsaSha256,
    /// ECDSA with SHA-384
    EcdsaSha384,
    /// ECDSA with SHA-512
    EcdsaSha512,
    /// DSA with SHA-1
    DsaSha1,
    /// DSA with SHA-256
    DsaSha256,
    /// Ed25519 (RFC 8410)
    Ed25519,
    /// Ed448 (RFC 8410)
    Ed448,
    /// ML-DSA (FIPS 204), by its parameter set: 44, 65 or 87
    MlDsa(u8),
    /// Any other algorithm, as a dotted object identifier
    Other(String),
}

/// Reason why bytes are not a certificate. A certificate that only violates rules can be parsed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ParseError {
    /// The bytes are longer than [`Certificate::DER_MAX`].
    #[error("the certificate has {0} bytes; at most {max} are supported", max = Certificate::DER_MAX)]
    TooLong(usize),
    /// The bytes are not the DER of RFC 5280 section 4.1.
    #[error("not an X.509 certificate: {0}")]
    NotCertificate(String),
}

impl PublicKey {
    /// Returns whether keys with this algorithm have a size, so that a size of 0 means an unreadable key.
    pub(crate) fn has_size(&self) -> bool {
        !matches!(self.algorithm, KeyAlgorithm::MlDsa(_) | KeyAlgorithm::Other(_))
    }
}

impl Certificate {
    /// Returns whether issuer and subject are the same name (self-issued, RFC 5280 section 3.2).
    #[must_use]
    pub fn is_self_issued(&self) -> bool {
        self.issuer.matches(&self.subject)
    }

    /// Returns whether the certificate is marked as a CA. Certificates of version 1 and 2 cannot be marked.
    #[must_use]
    pub fn is_ca(&self) -> bool {
        self.basic_constraints.is_some_and(|constraints| constraints.ca)
    }

    /// Returns the hosts of the certificate as text: the DNS names and IP addresses of the subject alternative name, or else the
    /// common names.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let hosts = self.subject_alt_names.iter().filter_map(|name| match name {
            GeneralName::Dns(name) => Some(name.clone()),
            GeneralName::Ip(address) => Some(address.to_string()),
            _ => None,
        });
        let hosts: Vec<String> = hosts.collect();
        if hosts.is_empty() { self.subject.common_names.clone() } else { hosts }
    }

    /// Maximum bytes of a certificate. Real ones have less than 10 KB; a few with hundreds of names have 50 KB.
    pub const DER_MAX: usize = 64 * 1024;
}
