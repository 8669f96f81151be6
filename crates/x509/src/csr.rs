//! Certification requests (RFC 2986), PKCS #10.
//!
//! Unlike certificates they are parsed strictly: the requester can correct a request, and a CA must not sign a request that it
//! cannot read completely.

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

/// Maximum number of attributes in a CSR. Windows sends four, other clients one or two.
const ATTRIBUTES_MAX: usize = 32;
/// Maximum bytes of a challenge password: ub-pkcs9-challengePassword-length of RFC 2985.
const PASSWORD_MAX: usize = 255;

/// Reason why bytes are not a valid certification request.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ParseError {
    /// The request is longer than [`CertificateRequest::DER_MAX`] bytes.
    #[error("the certification request has {0} bytes; at most {max} are supported", max = CertificateRequest::DER_MAX)]
    TooLong(usize),
    /// The bytes are not the DER of RFC 2986 section 4, or a part is malformed.
    #[error("not a certification request: {0}")]
    NotRequest(String),
    /// The text has no PEM block of a request.
    #[error("neither a PEM block CERTIFICATE REQUEST nor DER")]
    NoPem,
}

/// A parsed certification request. Its signature is not verified yet: see [`Self::verify`].
#[derive(Clone)]
pub struct CertificateRequest {
    /// The original DER bytes.
    pub der: Arc<[u8]>,
    /// The requested subject.
    pub subject: DistinguishedName,
    /// The public key to certify.
    pub public_key: PublicKey,
    /// Algorithm with which the request is signed.
    pub signature: SignatureAlgorithm,
    /// Requested subject alternative names, unchanged and in order.
    pub subject_alt_names: Vec<GeneralName>,
    /// challengePassword (RFC 2985 section 5.4.1), which authenticates SCEP clients. A secret.
    pub challenge_password: Option<String>,
    /// Whether the TLS feature status_request is requested (RFC 7633).
    pub must_staple: bool,
    /// Requested extended key usages as dotted object identifiers.
    pub extended_key_usage: Option<Vec<String>>,
    /// Requested key usage.
    pub key_usage: Option<KeyUsage>,
    /// Requested basic constraints.
    pub basic_constraints: Option<BasicConstraints>,
    /// All requested extensions in order, including the ones parsed above.
    pub extensions: Vec<Extension>,
    /// Other attributes than the extension request and the password, as dotted object identifiers in order.
    pub other_attributes: Vec<String>,
    tbs_range: Range<usize>,
    signature_range: Range<usize>,
}

impl CertificateRequest {
    /// Maximum bytes of a request. A request with 2,000 names has 50,000.
    pub const DER_MAX: usize = 64 * 1024;

    /// Parses a request. Does not verify its signature.
    ///
    /// # Errors
    /// [`ParseError::TooLong`] beyond [`Self::DER_MAX`]; [`ParseError::NotRequest`] if a known part cannot be read, an attribute or
    /// extension occurs twice, or bytes follow the request.
    pub fn parse(der: &[u8]) -> Result<Self, ParseError> {
        if der.len() > Self::DER_MAX {
            return Err(ParseError::TooLong(der.len()));
        }
        Self::read(der).map_err(|(part, error)| ParseError::NotRequest(format!("{part}: {error}")))
    }

    /// Parses a request in DER or in PEM (`CERTIFICATE REQUEST`, or `NEW CERTIFICATE REQUEST` of old tools). Uses the first of
    /// several blocks.
    ///
    /// # Errors
    /// As [`Self::parse`]; [`ParseError::NoPem`] for text without such a block.
    pub fn from_pem_or_der(bytes: &[u8]) -> Result<Self, ParseError> {
        if bytes.first() == Some(&tag::SEQUENCE) {
            return Self::parse(bytes);
        }
        // Base64 needs four characters for three bytes, and other text may surround it.
        if bytes.len() > 2 * Self::DER_MAX {
            return Err(ParseError::TooLong(bytes.len()));
        }
        let labels = ["CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"];
        let found = pem::blocks(bytes).find(|(label, _)| labels.contains(&label.as_str()));
        Self::parse(&found.ok_or(ParseError::NoPem)?.1)
    }

    /// Verifies proof of possession: the request is signed with the key to be certified.
    ///
    /// # Errors
    /// [`SignatureError::Invalid`] if the signature is wrong; [`SignatureError::Unsupported`] if the signature cannot be verified,
    /// so that possession is not proven.
    pub fn verify(&self) -> Result<(), SignatureError> {
        verify_document(&self.public_key, &self.signature, self.tbs(), self.signature_value())
    }

    /// Returns the signed part, certificationRequestInfo.
    #[must_use]
    pub fn tbs(&self) -> &[u8] {
        self.der.get(self.tbs_range.clone()).unwrap_or_default()
    }

    /// Returns the signature over [`Self::tbs`].
    #[must_use]
    pub fn signature_value(&self) -> &[u8] {
        self.der.get(self.signature_range.clone()).unwrap_or_default()
    }

    /// Returns the names to certify: see [`names_of`].
    #[must_use]
    pub fn names(&self) -> Vec<GeneralName> {
        names_of(&self.subject, &self.subject_alt_names)
    }

    fn read(der: &[u8]) -> Result<Self, FieldError> {
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
        // The attributes are mandatory, but some tools leave out an empty set.
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
            // Treats Microsoft's identifier as the standard one, so that a request with both counts as a repeated extension
            // request.
            let kind = if kind == oid::MS_EXTENSION_REQUEST { oid::EXTENSION_REQUEST } else { kind };
            if seen.contains(&kind) {
                return Err(DerError::Malformed("attributes: an attribute is repeated"));
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
                oid::TLS_FEATURE => self.must_staple = extension::has_status_request(value.sequence()?),
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
    /// Leaves out the DER bytes and the password in them.
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

/// Returns the names of a request or certificate without duplicates: the alternative names, and those common names that are a DNS
/// name of at least two labels, a wildcard or an IP address. DNS names have the form of [`GeneralName::parse`], or are unchanged if
/// it cannot parse them.
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

/// Name of the malformed part, and the parsing error.
type FieldError = (&'static str, DerError);

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

/// Returns the common name if it is a host name with a dot, or an IP address. `None` for other text, such as the name of a person
/// or device.
fn common_name(text: &str) -> Option<GeneralName> {
    let name = GeneralName::parse(text).ok()?;
    match &name {
        GeneralName::Dns(host) if host.contains('.') && host.len() <= HostName::LENGTH_MAX => Some(name),
        GeneralName::Ip(_) => Some(name),
        _ => None,
    }
}

/// Encodes the certificationRequestInfo for the key `spki` (a complete SubjectPublicKeyInfo) and the DER `Name` `subject`. The
/// caller signs the result with the private key of `spki`, then calls [`crate::build::signed`]. The challenge password is written
/// as a PrintableString if possible, otherwise as a UTF8String.
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
