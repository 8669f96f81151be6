//! OCSP requests (RFC 6960 section 4.1).

use aws_lc_rs::digest::{self, digest};
use data_encoding::BASE64;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::build::identifier;
use crate::der::{self, DerError, Reader, Writer, tag};
use crate::{Certificate, SerialNumber, extension, oid};

/// Hash that identifies the issuer in a request.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum OcspHash {
    /// SHA-1, used by nearly all clients (RFC 5019; RFC 9654 section 2.1.1 keeps SHA-1 for old clients).
    Sha1,
    /// SHA-256, preferred by RFC 9654.
    Sha256,
}

impl OcspHash {
    /// Computes the hash of `octets`.
    #[must_use]
    pub fn of(self, octets: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => &digest::SHA256,
        };
        digest(algorithm, octets).as_ref().to_vec()
    }

    /// Returns the length of the hash in bytes.
    #[must_use]
    pub const fn octets(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    fn identifier(self) -> Vec<u8> {
        match self {
            Self::Sha1 => identifier(oid::SHA1, true),
            Self::Sha256 => identifier(&[oid::NIST_HASHES, &[1]].concat(), true),
        }
    }

    fn of_oid(content: &[u8]) -> Option<Self> {
        if content == oid::SHA1 {
            return Some(Self::Sha1);
        }
        (content.strip_prefix(oid::NIST_HASHES) == Some(&[1])).then_some(Self::Sha256)
    }
}

/// Identifier of a certificate in OCSP (RFC 6960 section 4.1.1, CertID).
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct CertificateId {
    /// Algorithm of the two hashes.
    pub hash: OcspHash,
    /// Hash of the issuer's DER `Name`.
    pub issuer_name_hash: Vec<u8>,
    /// Hash of the content of the issuer's subjectPublicKey.
    pub issuer_key_hash: Vec<u8>,
    /// Serial number of the certificate.
    pub serial: SerialNumber,
}

impl CertificateId {
    /// Creates the identifier of the certificate of `issuer` with this serial number.
    #[must_use]
    pub fn of(issuer: &Certificate, serial: SerialNumber, hash: OcspHash) -> Self {
        Self {
            hash,
            issuer_name_hash: hash.of(&issuer.subject.der),
            issuer_key_hash: hash.of(issuer.public_key.key_bytes()),
            serial,
        }
    }

    pub(super) fn write(&self, w: &mut Writer) {
        w.sequence(|w| {
            w.raw(&self.hash.identifier());
            w.octets(&self.issuer_name_hash).octets(&self.issuer_key_hash);
            w.integer_content(self.serial.content());
        });
    }

    pub(super) fn read(mut fields: Reader<'_>) -> Result<Self, DerError> {
        let algorithm = fields.sequence()?.expect(tag::OID)?.content;
        let hash = OcspHash::of_oid(algorithm).ok_or(DerError::Malformed("CertID: hash"))?;
        let issuer_name_hash = fields.expect(tag::OCTET_STRING)?.content.to_vec();
        let issuer_key_hash = fields.expect(tag::OCTET_STRING)?.content.to_vec();
        if issuer_name_hash.len() != hash.octets() || issuer_key_hash.len() != hash.octets() {
            return Err(DerError::Malformed("CertID: hash length"));
        }
        let serial = fields.expect(tag::INTEGER)?.content;
        if serial.is_empty() || serial.len() > SERIAL_MAX {
            return Err(DerError::Malformed("CertID: serialNumber"));
        }
        fields.end()?;
        Ok(Self { hash, issuer_name_hash, issuer_key_hash, serial: SerialNumber::from_content(serial) })
    }
}

/// Maximum bytes of a serial number in a request: RFC 5280 allows 20, and some certificates exceed it.
const SERIAL_MAX: usize = 32;

/// An OCSP request. Its signature and requestor name, if present, are not read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Request {
    /// Requested certificates, in order; at least one.
    pub certificates: Vec<CertificateId>,
    /// Nonce of 1 to [`Self::NONCE_MAX`] bytes that the response must repeat (RFC 9654).
    pub nonce: Option<Vec<u8>>,
}

impl Request {
    /// Maximum bytes of a request. A request for one certificate has 80 to 130 bytes, a signed one 2,000.
    pub const DER_MAX: usize = 16 * 1024;
    /// Maximum certificates of a request. Most clients send one, some a chain.
    pub const CERTIFICATES_MAX: usize = 32;
    /// Maximum bytes of a nonce (RFC 9654 section 2.1).
    pub const NONCE_MAX: usize = 128;

    /// Parses an OCSPRequest.
    ///
    /// # Errors
    /// If the bytes are not an OCSPRequest, exceed a limit above, identify an issuer by a hash other than SHA-1 and SHA-256, or
    /// have a critical extension other than the nonce.
    pub fn parse(der: &[u8]) -> Result<Self, DerError> {
        if der.len() > Self::DER_MAX {
            return Err(DerError::Malformed("OCSP request: too long"));
        }
        let mut input = Reader::new(der);
        let mut request = input.sequence()?;
        input.end()?;
        let mut tbs = request.sequence()?;
        request.optional(tag::context_constructed(0))?; // optionalSignature
        request.end()?;
        if let Some(version) = tbs.optional(tag::context_constructed(0))?
            && version.inside().expect(tag::INTEGER)?.integer()? != 0
        {
            return Err(DerError::Malformed("OCSP request: version"));
        }
        tbs.optional(tag::context_constructed(1))?; // requestorName
        let mut certificates = Vec::new();
        for single in tbs.sequence()? {
            if certificates.len() == Self::CERTIFICATES_MAX {
                return Err(DerError::Malformed("OCSP request: too many certificates"));
            }
            let mut single = Reader::new(single?.whole).sequence()?;
            certificates.push(CertificateId::read(single.sequence()?)?);
            if let Some(extensions) = single.optional(tag::context_constructed(0))? {
                nonce_in(extensions.inside().sequence()?)?;
            }
            single.end()?;
        }
        if certificates.is_empty() {
            return Err(DerError::Malformed("OCSP request: no certificate"));
        }
        let nonce = match tbs.optional(tag::context_constructed(2))? {
            Some(extensions) => nonce_in(extensions.inside().sequence()?)?,
            None => None,
        };
        tbs.end()?;
        Ok(Self { certificates, nonce })
    }

    /// Returns the URL that sends this request by GET to the responder at `url` (RFC 6960 appendix A.1).
    #[must_use]
    pub fn url_for_get(&self, url: &str) -> String {
        let text = BASE64.encode(&self.encode());
        let text = utf8_percent_encode(&text, NON_ALPHANUMERIC);
        format!("{}/{text}", url.trim_end_matches('/'))
    }

    /// Encodes the unsigned DER OCSPRequest.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        der::write(|w| {
            w.sequence(|w| {
                w.sequence(|w| {
                    w.sequence(|w| {
                        for id in &self.certificates {
                            w.sequence(|w| id.write(w));
                        }
                    });
                    if let Some(nonce) = &self.nonce {
                        w.context(2, |w| write_nonce(w, nonce));
                    }
                });
            });
        })
    }
}

/// Writes `Extensions` with a nonce.
pub(super) fn write_nonce(w: &mut Writer, nonce: &[u8]) {
    w.sequence(|w| {
        w.sequence(|w| {
            w.element(tag::OID, oid::OCSP_NONCE);
            w.octets_of(|w| {
                w.octets(nonce);
            });
        });
    });
}

fn nonce_in(list: Reader<'_>) -> Result<Option<Vec<u8>>, DerError> {
    let mut nonce = None;
    for extension in extension::strict(list)? {
        if extension.id != oid::OCSP_NONCE {
            if extension.critical {
                return Err(DerError::Malformed("OCSP request: unknown critical extension"));
            }
            continue;
        }
        let mut value = Reader::new(extension.value);
        let octets = value.expect(tag::OCTET_STRING)?.content;
        value.end()?;
        if octets.is_empty() || octets.len() > Request::NONCE_MAX {
            return Err(DerError::Malformed("OCSP request: nonce"));
        }
        nonce = Some(octets.to_vec());
    }
    Ok(nonce)
}
