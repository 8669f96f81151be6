//! Cryptographic messages (RFC 5652): certificates only, and what SCEP needs (RFC 8894).
//!
//! Structures only. Private keys are not used here: what is to be signed or decrypted is handed out,
//! and what came of it handed back in.

mod ber;
mod enveloped;
mod signed;

pub use enveloped::{ContentCipher, EnvelopedData, KeyTransport, Recipient};
pub use signed::{Attribute, SignedData, SignedSpec, Signer, signed_attributes, signed_data};

use aws_lc_rs::digest;

use crate::build::identifier;
use crate::der::{self, DerError, Element, Reader, Writer, tag};
use crate::{Certificate, SerialNumber, SignatureAlgorithm, oid};

/// Octets of a message that are read: a request has 2,000 to 5,000, a bundle of a root program 200,000.
pub const MESSAGE_MAX: usize = 1024 * 1024;
/// Certificates and lists of each kind read of a message.
pub const ITEMS_MAX: usize = 512;

/// id-data, dotted.
pub const DATA: &str = "1.2.840.113549.1.7.1";
/// id-signedData, dotted.
pub const SIGNED_DATA: &str = "1.2.840.113549.1.7.2";
/// id-envelopedData, dotted.
pub const ENVELOPED_DATA: &str = "1.2.840.113549.1.7.3";

/// Certificates and lists without any signature, the "certs-only" message (RFC 8551 section 3.8) that EST
/// and SCEP hand certificates out in. They stand in the order given, for those who take the first.
#[must_use]
pub fn certs_only(certificates: &[&[u8]], crls: &[&[u8]]) -> Vec<u8> {
    content_info(SIGNED_DATA, |w| {
        w.sequence(|w| {
            w.integer(1).set(|_| {});
            w.sequence(|w| {
                w.oid_text(DATA);
            });
            write_items(w, 0, certificates);
            write_items(w, 1, crls);
            w.set(|_| {});
        });
    })
}

/// The DER certificates in a SignedData, signed or not, as found.
///
/// # Errors
/// As [`SignedData::parse`].
pub fn certificates_of(message: &[u8]) -> Result<Vec<Vec<u8>>, DerError> {
    SignedData::parse(message).map(|signed| signed.certificates)
}

/// By which a message names a signer or recipient.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Identity {
    /// The issuer's DER `Name` and the certificate's serial number.
    IssuerSerial {
        /// DER `Name`.
        issuer: Vec<u8>,
        /// Of the certificate.
        serial: SerialNumber,
    },
    /// The subject key identifier.
    KeyId(Vec<u8>),
}

impl Identity {
    /// The issuer and serial number of `certificate`.
    #[must_use]
    pub fn of(certificate: &Certificate) -> Self {
        Self::IssuerSerial { issuer: certificate.issuer.der.to_vec(), serial: certificate.serial.clone() }
    }

    /// Whether it names `certificate`.
    #[must_use]
    pub fn names(&self, certificate: &Certificate) -> bool {
        match self {
            Self::IssuerSerial { issuer, serial } => {
                certificate.serial == *serial && *certificate.issuer.der == **issuer
            }
            Self::KeyId(id) => certificate.subject_key_id.as_deref() == Some(id),
        }
    }

    fn read(element: Element<'_>) -> Result<Self, DerError> {
        match element.tag {
            tag::SEQUENCE => {
                let mut fields = element.inside();
                let issuer = fields.expect(tag::SEQUENCE)?.whole.to_vec();
                let serial = SerialNumber::from_content(fields.expect(tag::INTEGER)?.content);
                fields.end()?;
                Ok(Self::IssuerSerial { issuer, serial })
            }
            0x80 => Ok(Self::KeyId(element.content.to_vec())),
            found => Err(DerError::Unexpected { expected: tag::SEQUENCE, found }),
        }
    }

    fn write(&self, w: &mut Writer) {
        match self {
            Self::IssuerSerial { issuer, serial } => w.sequence(|w| {
                w.raw(issuer).integer_content(serial.content());
            }),
            Self::KeyId(id) => w.context_primitive(0, id),
        };
    }

    /// The version of the structure it stands in: `plain` with issuer and serial (RFC 5652 sections 5.3
    /// and 6.2.1).
    fn version(&self, plain: i64, with_key_id: i64) -> i64 {
        match self {
            Self::IssuerSerial { .. } => plain,
            Self::KeyId(_) => with_key_id,
        }
    }
}

/// Hashes messages are signed with. MD5 is not among them.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Digest {
    /// Old clients'.
    Sha1,
    /// What RFC 8894 section 2.9 makes mandatory.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl Digest {
    /// The hash of `octets`.
    #[must_use]
    pub fn of(self, octets: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => &digest::SHA256,
            Self::Sha384 => &digest::SHA384,
            Self::Sha512 => &digest::SHA512,
        };
        digest::digest(algorithm, octets).as_ref().to_vec()
    }

    /// RSASSA-PKCS1-v1_5 with this hash.
    #[must_use]
    pub fn with_rsa(self) -> SignatureAlgorithm {
        match self {
            Self::Sha1 => SignatureAlgorithm::RsaSha1,
            Self::Sha256 => SignatureAlgorithm::RsaSha256,
            Self::Sha384 => SignatureAlgorithm::RsaSha384,
            Self::Sha512 => SignatureAlgorithm::RsaSha512,
        }
    }

    fn read(mut identifier: Reader<'_>) -> Result<Self, DerError> {
        let hash = identifier.expect(tag::OID)?.content;
        if hash == oid::SHA1 {
            return Ok(Self::Sha1);
        }
        match hash.strip_prefix(oid::NIST_HASHES) {
            Some([1]) => Ok(Self::Sha256),
            Some([2]) => Ok(Self::Sha384),
            Some([3]) => Ok(Self::Sha512),
            _ => Err(DerError::Malformed("digest algorithm: SHA-1 and SHA-2 are known")),
        }
    }

    fn to_der(self) -> Vec<u8> {
        match self {
            Self::Sha1 => identifier(oid::SHA1, true),
            Self::Sha256 => identifier(&[oid::NIST_HASHES, &[1]].concat(), true),
            Self::Sha384 => identifier(&[oid::NIST_HASHES, &[2]].concat(), true),
            Self::Sha512 => identifier(&[oid::NIST_HASHES, &[3]].concat(), true),
        }
    }
}

fn content_info(kind: &str, fill: impl FnOnce(&mut Writer)) -> Vec<u8> {
    der::write(|w| {
        w.sequence(|w| {
            w.oid_text(kind);
            w.context(0, fill);
        });
    })
}

/// The content of a ContentInfo of that type; octets may not follow it.
fn content_of<'a>(message: &'a [u8], kind: &str) -> Result<Reader<'a>, DerError> {
    let mut input = Reader::new(message);
    let mut info = input.sequence()?;
    input.end()?;
    if der::oid_text(info.expect(tag::OID)?.content) != kind {
        return Err(DerError::Malformed("content type: another kind of message"));
    }
    let mut content = info.expect(tag::context_constructed(0))?.inside();
    info.end()?;
    let fields = content.sequence()?;
    content.end()?;
    Ok(fields)
}

/// Reads a message, which may be BER as CMS allows: what is not DER is turned into it first.
fn parse<T>(message: &[u8], read: impl Fn(&[u8]) -> Result<T, DerError>) -> Result<T, DerError> {
    if message.len() > MESSAGE_MAX {
        return Err(DerError::Malformed("message: too long"));
    }
    read(message).or_else(|error| read(&ber::definite(message).map_err(|_| error)?))
}

/// The implicitly tagged SET of certificates or lists; left out when there are none.
fn write_items(w: &mut Writer, number: u8, items: &[&[u8]]) {
    if !items.is_empty() {
        w.element(tag::context_constructed(number), &items.concat());
    }
}
