//! A certificate, read.

use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Fingerprint, SerialNumber, SpkiHash, UnixTime};

/// Everything an X.509 certificate says (RFC 5280 section 4.1), owned, cheap to share in an `Arc`.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The bytes as found.
    pub der: Arc<[u8]>,
    /// SHA-256 of `der`.
    pub fingerprint: Fingerprint,
    /// 1, 2 or 3.
    pub version: u8,
    /// As on the wire, rules broken or not.
    pub serial: SerialNumber,
    /// The issuer.
    pub issuer: DistinguishedName,
    /// The subject.
    pub subject: DistinguishedName,
    /// First second of validity.
    pub not_before: UnixTime,
    /// Last second of validity (inclusive, RFC 5280 section 4.1.2.5).
    pub not_after: UnixTime,
    /// The subject's key.
    pub public_key: PublicKey,
    /// How the issuer signed.
    pub signature: SignatureAlgorithm,
    /// Subject alternative names, in order; empty when the extension is absent.
    pub subject_alt_names: Vec<GeneralName>,
    /// RFC 5280 section 4.2.1.9.
    pub basic_constraints: Option<BasicConstraints>,
    /// RFC 5280 section 4.2.1.3.
    pub key_usage: Option<KeyUsage>,
    /// Extended key usages as dotted object identifiers; `None` when the extension is absent.
    pub extended_key_usage: Option<Vec<String>>,
    /// RFC 5280 section 4.2.1.10.
    pub name_constraints: Option<NameConstraints>,
    /// RFC 5280 section 4.2.1.2.
    pub subject_key_id: Option<Vec<u8>>,
    /// The keyIdentifier of RFC 5280 section 4.2.1.1.
    pub authority_key_id: Option<Vec<u8>>,
    /// OCSP responders named by Authority Information Access.
    pub ocsp_urls: Vec<String>,
    /// Issuer certificates named by Authority Information Access.
    pub issuer_urls: Vec<String>,
    /// CRL distribution points.
    pub crl_urls: Vec<String>,
    /// Certificate policies, dotted.
    pub policies: Vec<String>,
    /// Signed certificate timestamps embedded (RFC 6962 section 3.3): how many.
    pub embedded_scts: u16,
    /// The TLS feature extension asks for a stapled OCSP response (RFC 7633).
    pub must_staple: bool,
    /// The issuer publishes nothing on whether it is revoked (noRevAvail, RFC 9608 section 2).
    pub no_revocation: bool,
    /// The CT poison extension is there: a precertificate, never to be served (RFC 6962 section 3.1).
    pub precertificate: bool,
    /// Unknown critical extensions, dotted.
    pub unknown_critical: Vec<String>,
    /// Parts that could not be read or break DER, tolerated so that the rest is known.
    pub faults: Vec<String>,
    /// Where in `der` the signed part lies.
    pub(crate) tbs_range: Range<usize>,
    /// Where in `der` the signature lies.
    pub(crate) signature_range: Range<usize>,
}

/// A name as an X.501 sequence.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct DistinguishedName {
    /// The DER `Name`, by which issuers and subjects are matched.
    pub der: Arc<[u8]>,
    /// For people, `CN=…, O=…, C=…` (RFC 4514 escapes, most specific first).
    pub text: String,
    /// Every commonName, in order.
    pub common_names: Vec<String>,
    /// The first organizationName.
    pub organization: Option<String>,
}

/// A subject alternative name (RFC 5280 section 4.2.1.6).
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GeneralName {
    /// As found; may hold a wildcard, capitals or nonsense.
    Dns(String),
    /// 4 or 16 bytes.
    Ip(IpAddr),
    /// An address of any other length, in hexadecimal.
    BadIp(String),
    /// rfc822Name.
    Email(String),
    /// uniformResourceIdentifier.
    Uri(String),
    /// directoryName, as text.
    Directory(String),
    /// Anything else, by its tag.
    Other(String),
}

/// RFC 5280 section 4.2.1.9.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
pub struct BasicConstraints {
    /// May sign certificates.
    pub ca: bool,
    /// How many intermediates may follow.
    pub path_len: Option<u32>,
}

/// RFC 5280 section 4.2.1.3, bit 0 (digitalSignature) as the lowest bit.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyUsage(pub u16);

impl KeyUsage {
    /// digitalSignature
    pub const DIGITAL_SIGNATURE: u16 = 1;
    /// contentCommitment, nonRepudiation before
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

    /// Whether any bit of `bits` is set.
    #[must_use]
    pub fn allows(self, bits: u16) -> bool {
        self.0 & bits != 0
    }
}

/// RFC 5280 section 4.2.1.10.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NameConstraints {
    /// Names must fall under one of these, per kind of name.
    pub permitted: Vec<Subtree>,
    /// Names must fall under none of these.
    pub excluded: Vec<Subtree>,
}

/// The base of a name constraint.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Subtree {
    /// A host and everything under it.
    Dns(String),
    /// Address and mask, 4 or 16 bytes each.
    Ip(IpAddr, IpAddr),
    /// A mailbox, a host or, with a leading dot, a domain.
    Email(String),
    /// A host or, with a leading dot, a domain.
    Uri(String),
    /// A DER name prefix.
    Directory(Arc<[u8]>),
    /// A kind of name we do not judge: a certificate bearing such names is refused.
    Other,
}

/// The subject's public key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PublicKey {
    /// Algorithm of the key.
    pub algorithm: KeyAlgorithm,
    /// RSA and DSA: bits of the modulus; elliptic curves: bits of the field. 0 when unknown.
    pub bits: u32,
    /// RSA: the public exponent, if it fits.
    pub rsa_exponent: Option<u64>,
    /// The DER SubjectPublicKeyInfo.
    pub spki: Arc<[u8]>,
    /// SHA-256 of `spki`.
    pub spki_sha256: SpkiHash,
}

/// Kinds of public key.
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
    /// Any other curve, dotted
    EcOther(String),
    /// RFC 8410
    Ed25519,
    /// RFC 8410
    Ed448,
    /// FIPS 204, by its parameter set: 44, 65 or 87
    MlDsa(u8),
    /// Anything else, dotted
    Other(String),
}

/// How a certificate was signed.
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
    /// RSASSA-PSS with the hash of that many bits (160, 256, 384, 512)
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
    /// RFC 8410
    Ed25519,
    /// RFC 8410
    Ed448,
    /// FIPS 204, by its parameter set
    MlDsa(u8),
    /// Anything else, dotted
    Other(String),
}

/// Bytes that are no certificate at all. A certificate that merely breaks rules parses.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ParseError {
    /// Longer than [`Certificate::DER_MAX`] bytes.
    #[error("{0} bytes: certificates over {max} are not read", max = Certificate::DER_MAX)]
    TooLong(usize),
    /// Not the DER of RFC 5280 section 4.1.
    #[error("not an X.509 certificate: {0}")]
    NotCertificate(String),
}

impl PublicKey {
    /// Whether keys of this kind come in sizes, so that a size of 0 means an unreadable key.
    pub(crate) fn has_size(&self) -> bool {
        !matches!(self.algorithm, KeyAlgorithm::MlDsa(_) | KeyAlgorithm::Other(_))
    }
}

impl Certificate {
    /// Issuer and subject are the same name (RFC 5280 section 3.2 calls it self-issued).
    #[must_use]
    pub fn is_self_issued(&self) -> bool {
        self.issuer.matches(&self.subject)
    }

    /// Marked as a certification authority. Version 1 and 2 certificates have no way to say so.
    #[must_use]
    pub fn is_ca(&self) -> bool {
        self.basic_constraints.is_some_and(|constraints| constraints.ca)
    }

    /// The hosts it is for, as text: DNS names and addresses of the subject alternative name, or,
    /// when there are none, the common names.
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

    /// Bytes a certificate may have: real ones stay under 10 KB, a few with hundreds of names
    /// reach 50.
    pub const DER_MAX: usize = 64 * 1024;
}
