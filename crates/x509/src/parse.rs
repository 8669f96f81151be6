//! Parser for certificates, valid and invalid ones alike.
//!
//! Library parsers reject certificates that servers really send (negative serial numbers, invalid times, repeated extensions, text
//! in the wrong alphabet), but a scanner must report them. Only the outer structure of RFC 5280 section 4.1 is required. Other
//! parts that cannot be read become faults of the certificate.

use std::ops::Range;

use crate::der::{self, DerError, Element, Reader, tag};
use crate::faults::Faults;
use crate::{
    Certificate, DistinguishedName, Fingerprint, ParseError, PublicKey, SerialNumber, SignatureAlgorithm,
    UnixTime, extension,
};

impl Certificate {
    /// Parses a certificate. Parts that break rules are read if possible. Optional parts that cannot be read are listed in
    /// [`Certificate::faults`].
    ///
    /// # Errors
    /// [`ParseError::TooLong`] beyond [`Certificate::DER_MAX`]; [`ParseError::NotCertificate`] if the bytes do not have the
    /// structure of RFC 5280 section 4.1.
    pub fn parse(der: &[u8]) -> Result<Self, ParseError> {
        if der.len() > Self::DER_MAX {
            return Err(ParseError::TooLong(der.len()));
        }
        let mut faults = Faults::default();
        let shape = RawCertificate::read(der, &mut faults)
            .map_err(|(part, error)| ParseError::NotCertificate(format!("{part}: {error}")))?;
        shape.into_certificate(der, faults)
    }

    /// Returns the signed part, tbsCertificate.
    #[must_use]
    pub fn tbs(&self) -> &[u8] {
        self.der.get(self.tbs_range.clone()).unwrap_or_default()
    }

    /// Returns the unparsed extensions, for copying. Empty if they cannot be read, one is repeated, or there are more than 64.
    #[must_use]
    pub fn extensions(&self) -> Vec<crate::build::Extension> {
        let read = || -> Result<Vec<_>, DerError> {
            let fields = Reader::new(self.tbs()).sequence()?;
            let last = fields.last().transpose()?;
            let Some(field) = last.filter(|field| field.tag == tag::context_constructed(3)) else {
                return Ok(Vec::new());
            };
            let list = extension::strict(field.inside().sequence()?)?;
            Ok(list.iter().map(extension::Extension::owned).collect())
        };
        read().unwrap_or_default()
    }

    /// Returns the issuer's signature over [`Self::tbs`].
    #[must_use]
    pub fn signature_value(&self) -> &[u8] {
        self.der.get(self.signature_range.clone()).unwrap_or_default()
    }
}

/// The unparsed parts of a certificate by RFC 5280 section 4.1.
struct RawCertificate<'a> {
    tbs: &'a [u8],
    version: Option<Element<'a>>,
    serial: &'a [u8],
    inner_algorithm: Element<'a>,
    issuer: Element<'a>,
    validity: Element<'a>,
    subject: Element<'a>,
    spki: Element<'a>,
    extensions: Option<Element<'a>>,
    outer_algorithm: Element<'a>,
    signature: Element<'a>,
}

type FieldError = (&'static str, DerError);

impl<'a> RawCertificate<'a> {
    fn read(der: &'a [u8], faults: &mut Faults) -> Result<Self, FieldError> {
        let mut input = Reader::new(der);
        let certificate = input.expect(tag::SEQUENCE).map_err(|e| ("certificate", e))?;
        if !input.is_empty() {
            faults.add(format!("{} extra bytes after the certificate", input.rest().len()));
        }
        if let Some(at) = der::first_sloppy_length(certificate.whole) {
            faults.add(format!("the length at byte {at} is longer than DER allows"));
        }
        let mut parts = certificate.inside();
        let tbs = parts.expect(tag::SEQUENCE).map_err(|e| ("tbsCertificate", e))?;
        let outer_algorithm = parts.expect(tag::SEQUENCE).map_err(|e| ("signatureAlgorithm", e))?;
        let signature = parts.expect(tag::BIT_STRING).map_err(|e| ("signature", e))?;
        if !parts.is_empty() {
            faults.add("extra bytes after the signature");
        }
        let mut fields = tbs.inside();
        let version = tag::context_constructed(0);
        let version = fields.optional(version).map_err(|e| ("version", e))?;
        let serial = fields.expect(tag::INTEGER).map_err(|e| ("serialNumber", e))?.content;
        let mut sequence = |part| fields.expect(tag::SEQUENCE).map_err(|e| (part, e));
        Ok(Self {
            tbs: tbs.whole,
            version,
            serial,
            inner_algorithm: sequence("signature algorithm")?,
            issuer: sequence("issuer")?,
            validity: sequence("validity")?,
            subject: sequence("subject")?,
            spki: sequence("subjectPublicKeyInfo")?,
            extensions: Self::extensions(fields, faults),
            outer_algorithm,
            signature,
        })
    }

    /// Returns the extensions from the optional fields at the end. Unique identifiers are skipped.
    fn extensions(fields: Reader<'a>, faults: &mut Faults) -> Option<Element<'a>> {
        const ISSUER_UNIQUE_ID: u8 = tag::context(1);
        const SUBJECT_UNIQUE_ID: u8 = tag::context(2);
        const EXTENSIONS: u8 = tag::context_constructed(3);
        let mut extensions = None;
        for field in fields {
            match field {
                Ok(Element { tag: ISSUER_UNIQUE_ID | SUBJECT_UNIQUE_ID, .. }) => {}
                Ok(field @ Element { tag: EXTENSIONS, .. }) if extensions.is_none() => {
                    extensions = Some(field);
                }
                Ok(field) => faults.add(format!("unknown field with tag {:#04x}", field.tag)),
                Err(error) => faults.add(format!("tbsCertificate: {error}")),
            }
        }
        extensions
    }

    fn into_certificate(self, der: &[u8], mut faults: Faults) -> Result<Certificate, ParseError> {
        let (not_before, not_after) = self.validity(&mut faults);
        let signature_value = self.signature.whole_bits().unwrap_or_else(|error| {
            faults.add(format!("signature: {error}"));
            &[]
        });
        if self.inner_algorithm.content != self.outer_algorithm.content {
            // RFC 5280 section 4.1.1.2 requires equal algorithms.
            faults.add("the two signature algorithms differ");
        }
        if !is_minimal_integer(self.serial) {
            faults.add("the serial number has redundant bytes");
        }
        let public_key = PublicKey::parse(self.spki.whole)
            .map_err(|e| ParseError::NotCertificate(format!("subjectPublicKeyInfo: {e}")))?;
        if public_key.bits == 0 && public_key.has_size() {
            faults.add("the public key cannot be parsed");
        }
        let mut certificate = Certificate {
            der: der.into(),
            fingerprint: Fingerprint::of(der),
            version: self.version(&mut faults),
            serial: SerialNumber::from_content(self.serial),
            issuer: name("issuer", self.issuer, &mut faults),
            subject: name("subject", self.subject, &mut faults),
            not_before,
            not_after,
            public_key,
            signature: algorithm(self.outer_algorithm, &mut faults),
            subject_alt_names: Vec::new(),
            basic_constraints: None,
            key_usage: None,
            extended_key_usage: None,
            name_constraints: None,
            subject_key_id: None,
            authority_key_id: None,
            ocsp_urls: Vec::new(),
            issuer_urls: Vec::new(),
            crl_urls: Vec::new(),
            policies: Vec::new(),
            embedded_scts: 0,
            must_staple: false,
            no_revocation: false,
            precertificate: false,
            unknown_critical: Vec::new(),
            faults: Vec::new(),
            tbs_range: range_in(der, self.tbs),
            signature_range: range_in(der, signature_value),
        };
        if let Some(extensions) = self.extensions {
            if certificate.version < 3 {
                faults.add(format!("extensions in a version {} certificate", certificate.version));
            }
            extension::read_all(extensions, &mut certificate, &mut faults);
        }
        certificate.faults = faults.into_vec();
        Ok(certificate)
    }

    fn version(&self, faults: &mut Faults) -> u8 {
        let Some(version) = self.version else {
            return 1;
        };
        match version.inside().expect(tag::INTEGER).and_then(|v| v.integer()) {
            Ok(number @ 0..=2) => number as u8 + 1,
            Ok(number) => {
                faults.add(format!("version field {number}: only 0 to 2 are defined"));
                3
            }
            Err(error) => {
                faults.add(format!("version: {error}"));
                3
            }
        }
    }

    fn validity(&self, faults: &mut Faults) -> (UnixTime, UnixTime) {
        let mut times = self.validity.inside();
        let mut next = |which| match times.any() {
            Ok(element) => time(which, element, faults),
            Err(error) => {
                faults.add(format!("{which}: {error}"));
                UnixTime::default()
            }
        };
        (next("notBefore"), next("notAfter"))
    }
}

/// Reads a time. An invalid time becomes 1970: clients reject such a certificate, as they reject expired ones.
fn time(which: &str, element: Element<'_>, faults: &mut Faults) -> UnixTime {
    let generalized = Element { tag: tag::GENERALIZED_TIME, ..element };
    match element.time() {
        Ok(time) => {
            let length = if element.tag == tag::UTC_TIME { "YYMMDDHHMMSSZ" } else { "YYYYMMDDHHMMSSZ" };
            if element.content.len() != length.len() || !element.content.ends_with(b"Z") {
                faults.add(format!("{which} is not of the form {length}"));
            }
            time
        }
        // A common mistake is a UTCTime with a four-digit year. Its meaning is clear.
        Err(_) if generalized.time().is_ok() => {
            faults.add(format!("{which} is a UTCTime with a four-digit year"));
            generalized.time().unwrap_or_default()
        }
        Err(error) => {
            let shown = String::from_utf8_lossy(element.content);
            faults.add(format!("{which}: {error} {shown:.32?}"));
            UnixTime::default()
        }
    }
}

fn name(which: &str, element: Element<'_>, faults: &mut Faults) -> DistinguishedName {
    DistinguishedName::parse(element.whole).unwrap_or_else(|error| {
        faults.add(format!("{which}: {error}"));
        DistinguishedName { der: element.whole.into(), ..DistinguishedName::default() }
    })
}

fn algorithm(identifier: Element<'_>, faults: &mut Faults) -> SignatureAlgorithm {
    SignatureAlgorithm::read(identifier.inside()).unwrap_or_else(|error| {
        faults.add(format!("signature algorithm: {error}"));
        SignatureAlgorithm::Other("unreadable".to_owned())
    })
}

fn is_minimal_integer(integer: &[u8]) -> bool {
    match integer {
        [] => false,
        [first, second, ..] => !(*first == 0 && second & 0x80 == 0 || *first == 0xff && second & 0x80 != 0),
        [_] => true,
    }
}

/// Returns the position of `part`, a slice of `whole`, in `whole`.
pub(crate) fn range_in(whole: &[u8], part: &[u8]) -> Range<usize> {
    let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
    if start <= whole.len() && part.len() <= whole.len() - start { start..start + part.len() } else { 0..0 }
}
