//! Certification requests (RFC 2986), PKCS #10.
//!
//! Unlike certificates they are read strictly: anyone who asks can be told to ask properly, and an
//! authority must not sign what it could not read.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::build::{Extension, write_extensions};
use crate::der::{self, DerError, Element, Reader, tag};
use crate::faults::Faults;
use crate::parse::range_in;
use crate::{
    BasicConstraints, DistinguishedName, GeneralName, HostName, KeyUsage, PublicKey, SignatureAlgorithm,
    SignatureError, extension, oid, pem, verify_document,
};

/// Attributes read. Windows sends four, others one or two.
const ATTRIBUTES_MAX: usize = 32;
/// Bytes of a challenge password, RFC 2985's ub-pkcs9-challengePassword-length.
const PASSWORD_MAX: usize = 255;

/// Bytes that are no request an authority could answer.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ParseError {
    /// Longer than [`CertificateRequest::DER_MAX`] bytes.
    #[error("{0} bytes: requests over {max} are not read", max = CertificateRequest::DER_MAX)]
    TooLong(usize),
    /// Not the DER of RFC 2986 section 4, or a part of it is malformed.
    #[error("not a certification request: {0}")]
    NotRequest(String),
    /// Text without a block of that label.
    #[error("no PEM block CERTIFICATE REQUEST, and no DER either")]
    NoPem,
}

/// What someone asks an authority to certify. Read is not verified: see [`Self::verify`].
#[derive(Clone)]
pub struct CertificateRequest {
    /// The bytes as received.
    pub der: Arc<[u8]>,
    /// The requested subject.
    pub subject: DistinguishedName,
    /// The key to certify.
    pub public_key: PublicKey,
    /// The signature algorithm.
    pub signature: SignatureAlgorithm,
    /// The requested alternative names as found, in order.
    pub subject_alt_names: Vec<GeneralName>,
    /// challengePassword (RFC 2985 section 5.4.1), which SCEP authenticates by. A secret.
    pub challenge_password: Option<String>,
    /// The TLS feature status_request is requested (RFC 7633).
    pub must_staple: bool,
    /// Requested extended key usages, dotted.
    pub extended_key_usage: Option<Vec<String>>,
    /// Requested key usage.
    pub key_usage: Option<KeyUsage>,
    /// Requested basic constraints.
    pub basic_constraints: Option<BasicConstraints>,
    /// Every requested extension, those above too, in order.
    pub extensions: Vec<Extension>,
    /// Attributes beside the extension request and the password, dotted, in order.
    pub other_attributes: Vec<String>,
    tbs_range: Range<usize>,
    signature_range: Range<usize>,
}

impl CertificateRequest {
    /// Bytes a request may have; one with 2,000 names has 50,000.
    pub const DER_MAX: usize = 64 * 1024;

    /// Reads a request. Its signature is not checked here.
    ///
    /// # Errors
    /// [`ParseError::TooLong`] beyond [`Self::DER_MAX`]; [`ParseError::NotRequest`] when any part of
    /// it that is known here cannot be read, an attribute or extension is there twice, or bytes
    /// follow it.
    pub fn parse(der: &[u8]) -> Result<Self, ParseError> {
        if der.len() > Self::DER_MAX {
            return Err(ParseError::TooLong(der.len()));
        }
        Self::read(der).map_err(|(part, error)| ParseError::NotRequest(format!("{part}: {error}")))
    }

    /// Reads a request in PEM (`CERTIFICATE REQUEST`, or `NEW CERTIFICATE REQUEST` as old tools have
    /// it) or DER. Of several blocks the first one counts.
    ///
    /// # Errors
    /// As [`Self::parse`]; [`ParseError::NoPem`] for text without such a block.
    pub fn from_pem_or_der(octets: &[u8]) -> Result<Self, ParseError> {
        if octets.first() == Some(&tag::SEQUENCE) {
            return Self::parse(octets);
        }
        // Base64 takes four letters for three bytes, and there may be text around it.
        if octets.len() > 2 * Self::DER_MAX {
            return Err(ParseError::TooLong(octets.len()));
        }
        let labels = ["CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"];
        let found = pem::blocks(octets).find(|(label, _)| labels.contains(&label.as_str()));
        Self::parse(&found.ok_or(ParseError::NoPem)?.1)
    }

    /// Proof of possession: the request is signed with the key it wants certified.
    ///
    /// # Errors
    /// [`SignatureError::Invalid`] when it is not; [`SignatureError::Unsupported`] when that cannot be
    /// told, which is no proof either.
    pub fn verify(&self) -> Result<(), SignatureError> {
        verify_document(&self.public_key, &self.signature, self.tbs(), self.signature_value())
    }

    /// The signed part, certificationRequestInfo.
    #[must_use]
    pub fn tbs(&self) -> &[u8] {
        self.der.get(self.tbs_range.clone()).unwrap_or_default()
    }

    /// The signature over [`Self::tbs`].
    #[must_use]
    pub fn signature_value(&self) -> &[u8] {
        self.der.get(self.signature_range.clone()).unwrap_or_default()
    }

    /// The names to certify: see [`names_of`].
    #[must_use]
    pub fn names(&self) -> Vec<GeneralName> {
        names_of(&self.subject, &self.subject_alt_names)
    }

    fn read(der: &[u8]) -> Result<Self, Misshapen> {
        let mut input = Reader::new(der);
        let mut parts = input.sequence().map_err(|e| ("request", e))?;
        input.end().map_err(|e| ("request", e))?;
        let info = parts.expect(tag::SEQUENCE).map_err(|e| ("certificationRequestInfo", e))?;
        let algorithm = parts.sequence().map_err(|e| ("signatureAlgorithm", e))?;
        let signature =
            parts.expect(tag::BIT_STRING).and_then(|s| s.whole_bits()).map_err(|e| ("signature", e))?;
        parts.end().map_err(|e| ("signature", e))?;

        let mut fields = info.inside();
        let version = fields.expect(tag::INTEGER).and_then(|v| v.integer()).map_err(|e| ("version", e))?;
        if version != 0 {
            return Err(("version", DerError::Malformed("INTEGER: only version 1 (0) is defined")));
        }
        let subject = fields.expect(tag::SEQUENCE).map_err(|e| ("subject", e))?;
        let spki = fields.expect(tag::SEQUENCE).map_err(|e| ("subjectPKInfo", e))?;
        let mut request = Self {
            der: der.into(),
            subject: DistinguishedName::parse(subject.whole).map_err(|e| ("subject", e))?,
            public_key: public_key(spki).map_err(|e| ("subjectPKInfo", e))?,
            signature: SignatureAlgorithm::read(algorithm).map_err(|e| ("signatureAlgorithm", e))?,
            subject_alt_names: Vec::new(),
            challenge_password: None,
            must_staple: false,
            extended_key_usage: None,
            key_usage: None,
            basic_constraints: None,
            extensions: Vec::new(),
            other_attributes: Vec::new(),
            tbs_range: range_in(der, info.whole),
            signature_range: range_in(der, signature),
        };
        // The attributes are not optional, yet some tools leave an empty set of them out.
        if let Some(attributes) =
            fields.optional(tag::context_constructed(0)).map_err(|e| ("attributes", e))?
        {
            request.take_attributes(attributes.inside()).map_err(|e| ("attributes", e))?;
        }
        fields.end().map_err(|e| ("attributes", e))?;
        Ok(request)
    }

    fn take_attributes(&mut self, attributes: Reader<'_>) -> Result<(), DerError> {
        let mut seen: Vec<&[u8]> = Vec::new();
        for attribute in attributes {
            let attribute = attribute?;
            if attribute.tag != tag::SEQUENCE {
                return Err(DerError::Unexpected { expected: tag::SEQUENCE, found: attribute.tag });
            }
            let mut parts = attribute.inside();
            let kind = parts.expect(tag::OID)?.content;
            let mut values = parts.set()?;
            parts.end()?;
            if seen.len() == ATTRIBUTES_MAX {
                return Err(DerError::Malformed("attributes: too many"));
            }
            // Two names for one thing: both together would be two extension requests.
            let kind = if kind == oid::MS_EXTENSION_REQUEST { oid::EXTENSION_REQUEST } else { kind };
            if seen.contains(&kind) {
                return Err(DerError::Malformed("attributes: one is repeated"));
            }
            seen.push(kind);
            match kind {
                oid::EXTENSION_REQUEST => {
                    self.take_extensions(values.sequence()?)?;
                    values.end()?;
                }
                oid::CHALLENGE_PASSWORD => {
                    self.challenge_password = Some(password(values.any()?)?);
                    values.end()?;
                }
                other => self.other_attributes.push(der::oid_text(other)),
            }
        }
        Ok(())
    }

    fn take_extensions(&mut self, list: Reader<'_>) -> Result<(), DerError> {
        for extension in extension::strict(list)? {
            self.extensions.push(extension.owned());
            let mut value = Reader::new(extension.value);
            match extension.id {
                oid::SUBJECT_ALT_NAME => {
                    let mut faults = Faults::default();
                    self.subject_alt_names = extension::alt_names(value.sequence()?, &mut faults)?;
                    if faults.first().is_some() {
                        return Err(DerError::Malformed("subjectAltName"));
                    }
                }
                oid::TLS_FEATURE => self.must_staple = extension::features_status(value.sequence()?),
                oid::EXTENDED_KEY_USAGE => {
                    self.extended_key_usage = Some(extension::oids(value.sequence()?)?);
                }
                oid::KEY_USAGE => {
                    self.key_usage = Some(extension::key_usage(value.expect(tag::BIT_STRING)?)?);
                }
                oid::BASIC_CONSTRAINTS => {
                    self.basic_constraints = Some(extension::basic_constraints(value.sequence()?)?);
                }
                _ => continue,
            }
            value.end()?;
        }
        Ok(())
    }
}

impl fmt::Debug for CertificateRequest {
    /// Without the bytes and the password in them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateRequest")
            .field("subject", &self.subject.text)
            .field("public_key", &self.public_key.spki_sha256)
            .field("signature", &self.signature)
            .field("subject_alt_names", &self.subject_alt_names)
            .field("challenge_password", &self.challenge_password.as_ref().map(|_| "…"))
            .finish_non_exhaustive()
    }
}

/// The names of a request or certificate: the alternative names, and the common names that are a DNS name of
/// two labels or more, a wildcard or an address and are not among them. DNS names come in the form of
/// [`GeneralName::parse`] where it reads them, else as found; none comes twice.
#[must_use]
pub fn names_of(subject: &DistinguishedName, alternative: &[GeneralName]) -> Vec<GeneralName> {
    let tidy = |name: &GeneralName| match name {
        GeneralName::Dns(text) => match GeneralName::parse(text) {
            Ok(tidied @ GeneralName::Dns(_)) => tidied,
            _ => name.clone(),
        },
        other => other.clone(),
    };
    let common = subject.common_names.iter().filter_map(|name| common_name(name));
    let mut seen = std::collections::HashSet::new();
    alternative.iter().map(tidy).chain(common).filter(|name| seen.insert(name.clone())).collect()
}

/// The part that is wrong, and how.
type Misshapen = (&'static str, DerError);

fn public_key(spki: Element<'_>) -> Result<PublicKey, DerError> {
    let key = PublicKey::parse(spki.whole)?;
    if key.bits == 0 && key.has_size() {
        return Err(DerError::Malformed("key"));
    }
    Ok(key)
}

fn password(value: Element<'_>) -> Result<String, DerError> {
    let text = value.text();
    if text.len() > PASSWORD_MAX || text.contains('\0') {
        return Err(DerError::Malformed("challengePassword"));
    }
    Ok(text)
}

/// A common name that names a host: people's and devices' names do not.
fn common_name(text: &str) -> Option<GeneralName> {
    let name = GeneralName::parse(text).ok()?;
    match &name {
        GeneralName::Dns(host) if host.contains('.') && host.len() <= HostName::LENGTH_MAX => Some(name),
        GeneralName::Ip(_) => Some(name),
        _ => None,
    }
}

/// The certificationRequestInfo of a request for `spki` (whole SubjectPublicKeyInfo) under the DER
/// `Name` `subject`: sign it with that key, then see [`crate::build::signed`]. The password goes into a
/// UTF8String, or a PrintableString where its letters allow.
#[must_use]
pub fn tbs(
    subject: &[u8],
    spki: &[u8],
    extensions: &[Extension],
    challenge_password: Option<&str>,
) -> Vec<u8> {
    let attribute = |kind: &[u8], value: &[u8]| {
        der::write(|w| {
            w.sequence(|w| {
                w.element(tag::OID, kind).element(tag::SET, value);
            });
        })
    };
    let mut attributes = Vec::new();
    if let Some(password) = challenge_password {
        attributes.push(attribute(oid::CHALLENGE_PASSWORD, &der::write(|w| w.directory_string(password))));
    }
    if !extensions.is_empty() {
        attributes.push(attribute(oid::EXTENSION_REQUEST, &der::write(|w| write_extensions(w, extensions))));
    }
    attributes.sort();
    der::write(|w| {
        w.sequence(|w| {
            w.integer(0).raw(subject).raw(spki);
            w.element(tag::context_constructed(0), &attributes.concat());
        });
    })
}
