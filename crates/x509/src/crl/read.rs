//! Parsing of CRLs. The parser is strict: it rejects a CRL that it cannot read completely.

use std::ops::Range;
use std::sync::Arc;

use super::{Reason, Revoked, Scope};
use crate::der::{self, DerError, Element, Reader, tag};
use crate::parse::range_in;
use crate::{
    DistinguishedName, PublicKey, SerialNumber, SignatureAlgorithm, SignatureError, UnixTime, extension, oid,
    verify_document,
};

/// Reason why bytes are not a certificate revocation list (CRL).
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ParseError {
    /// The CRL is longer than [`Crl::DER_MAX`] bytes.
    #[error("the CRL has {0} bytes; at most {max} are supported", max = Crl::DER_MAX)]
    TooLong(usize),
    /// The bytes are not the DER of RFC 5280 section 5.1, or a part is malformed.
    #[error("not a certificate revocation list: {0}")]
    NotCrl(String),
}

/// A parsed certificate revocation list. Its signature is not verified yet: see [`Self::signed_by`].
#[derive(Clone, Debug)]
pub struct Crl {
    /// The original DER bytes.
    pub der: Arc<[u8]>,
    /// Distinguished name of the issuer.
    pub issuer: DistinguishedName,
    /// Algorithm with which the issuer signed the CRL.
    pub signature: SignatureAlgorithm,
    /// Time of issuance (thisUpdate).
    pub this_update: UnixTime,
    /// Latest time at which the next CRL is issued.
    pub next_update: Option<UnixTime>,
    /// The CRL number, of up to 20 bytes.
    pub number: Option<SerialNumber>,
    /// For a delta CRL: number of the CRL that it extends.
    pub base: Option<SerialNumber>,
    /// Key identifier of the issuer.
    pub authority_key_id: Option<Vec<u8>>,
    /// URLs in the issuing distribution point.
    pub distribution_points: Vec<String>,
    /// Whether the issuing distribution point has names, but no URL. Such a CRL cannot be matched with a certificate.
    pub unnamed_distribution_point: bool,
    /// Certificates that the CRL covers.
    pub scope: Scope,
    /// Whether the CRL also covers certificates of other issuers. The names of these issuers are not read.
    pub indirect: bool,
    /// Whether the CRL covers some revocation reasons only.
    pub some_reasons: bool,
    /// URLs of the delta CRLs.
    pub freshest: Vec<String>,
    /// Unknown critical extensions as dotted object identifiers. A CRL with any of them must not be used.
    pub unknown_critical: Vec<String>,
    count: usize,
    entries_range: Range<usize>,
    tbs_range: Range<usize>,
    signature_range: Range<usize>,
}

impl Crl {
    /// Maximum bytes of a CRL. A million entries have 40 MB.
    pub const DER_MAX: usize = 64 * 1024 * 1024;

    /// Parses a CRL. Does not verify its signature.
    ///
    /// # Errors
    /// [`ParseError::TooLong`] beyond [`Self::DER_MAX`]; [`ParseError::NotCrl`] if any part or entry cannot be read, or bytes
    /// follow the CRL.
    pub fn parse(der: &[u8]) -> Result<Self, ParseError> {
        if der.len() > Self::DER_MAX {
            return Err(ParseError::TooLong(der.len()));
        }
        Self::read(der).map_err(|(part, error)| ParseError::NotCrl(format!("{part}: {error}")))
    }

    /// Verifies that `issuer` signed the CRL.
    ///
    /// # Errors
    /// As [`crate::verify_signature`].
    pub fn signed_by(&self, issuer: &PublicKey) -> Result<(), SignatureError> {
        verify_document(issuer, &self.signature, self.tbs(), self.signature_value())
    }

    /// Returns the signed part, tbsCertList.
    #[must_use]
    pub fn tbs(&self) -> &[u8] {
        self.der.get(self.tbs_range.clone()).unwrap_or_default()
    }

    /// Returns the signature over [`Self::tbs`].
    #[must_use]
    pub fn signature_value(&self) -> &[u8] {
        self.der.get(self.signature_range.clone()).unwrap_or_default()
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether the CRL has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns an iterator over the entries, in order. Each entry is parsed when it is reached.
    pub fn entries(&self) -> impl Iterator<Item = Revoked> {
        let list = self.der.get(self.entries_range.clone()).unwrap_or_default();
        // All entries were parsed successfully before, so none is skipped.
        Reader::new(list).flatten().filter_map(|element| entry(element).ok())
    }

    /// Returns the entry with this serial number, compared as a number. If there are several, returns the last one. Searches the
    /// whole CRL.
    #[must_use]
    pub fn find(&self, serial: &SerialNumber) -> Option<Revoked> {
        self.entries().filter(|entry| entry.serial.is_number(serial)).last()
    }

    fn read(der: &[u8]) -> Result<Self, FieldError> {
        let mut input = Reader::new(der);
        let mut parts = input.sequence().map_err(|e| ("list", e))?;
        input.end().map_err(|e| ("list", e))?;
        let tbs = parts.expect(tag::SEQUENCE).map_err(|e| ("tbsCertList", e))?;
        let outer = parts.expect(tag::SEQUENCE).map_err(|e| ("signatureAlgorithm", e))?;
        let signature = parts.expect(tag::BIT_STRING).and_then(|s| s.whole_bits());
        let signature = signature.map_err(|e| ("signature", e))?;
        parts.end().map_err(|e| ("signature", e))?;

        let mut fields = tbs.inside();
        let version = fields.optional(tag::INTEGER).map_err(|e| ("version", e))?;
        if version.is_some_and(|version| version.content != [1]) {
            return Err(("version", DerError::Malformed("INTEGER: only version 2 (1) is defined")));
        }
        let inner = fields.expect(tag::SEQUENCE).map_err(|e| ("signature", e))?;
        if inner.content != outer.content {
            return Err((
                "signature",
                DerError::Malformed("AlgorithmIdentifier: the inner and outer algorithms differ"),
            ));
        }
        let issuer = fields.expect(tag::SEQUENCE).map_err(|e| ("issuer", e))?;
        let this_update = fields.any().and_then(|t| t.time()).map_err(|e| ("thisUpdate", e))?;
        let next_update = match fields.peek() {
            Some(tag::UTC_TIME | tag::GENERALIZED_TIME) => {
                Some(fields.any().and_then(|t| t.time()).map_err(|e| ("nextUpdate", e))?)
            }
            _ => None,
        };
        let list = fields.optional(tag::SEQUENCE).map_err(|e| ("revokedCertificates", e))?;
        let list = list.map_or(&[][..], |list| list.content);
        let mut count = 0;
        for element in Reader::new(list) {
            element.and_then(entry).map_err(|e| ("revokedCertificates", e))?;
            count += 1;
        }
        let mut crl = Self {
            der: der.into(),
            issuer: DistinguishedName::parse(issuer.whole).map_err(|e| ("issuer", e))?,
            signature: SignatureAlgorithm::read(outer.inside()).map_err(|e| ("signature", e))?,
            this_update,
            next_update,
            number: None,
            base: None,
            authority_key_id: None,
            distribution_points: Vec::new(),
            unnamed_distribution_point: false,
            scope: Scope::All,
            indirect: false,
            some_reasons: false,
            freshest: Vec::new(),
            unknown_critical: Vec::new(),
            count,
            entries_range: range_in(der, list),
            tbs_range: range_in(der, tbs.whole),
            signature_range: range_in(der, signature),
        };
        let extensions = fields.optional(tag::context_constructed(0)).map_err(|e| ("crlExtensions", e))?;
        if let Some(extensions) = extensions {
            let list = extensions.inside().sequence().map_err(|e| ("crlExtensions", e))?;
            crl.take_extensions(list).map_err(|e| ("crlExtensions", e))?;
        }
        fields.end().map_err(|e| ("tbsCertList", e))?;
        Ok(crl)
    }

    fn take_extensions(&mut self, list: Reader<'_>) -> Result<(), DerError> {
        for extension in extension::strict(list)? {
            let mut value = Reader::new(extension.value);
            let mut number = || Ok(SerialNumber::from_content(value.expect(tag::INTEGER)?.content));
            match extension.id {
                oid::CRL_NUMBER => self.number = Some(number()?),
                oid::DELTA_CRL_INDICATOR => self.base = Some(number()?),
                oid::AUTHORITY_KEY_ID => {
                    let key_id = value.sequence()?.optional(tag::context(0))?;
                    self.authority_key_id = key_id.map(|id| id.content.to_vec());
                }
                oid::ISSUING_DISTRIBUTION_POINT => self.take_distribution_point(value.sequence()?)?,
                oid::FRESHEST_CRL => self.freshest = extension::crl_urls(value.sequence()?)?,
                other if extension.critical => {
                    self.unknown_critical.push(der::oid_text(other));
                    continue;
                }
                _ => continue,
            }
            value.end()?;
        }
        Ok(())
    }

    fn take_distribution_point(&mut self, fields: Reader<'_>) -> Result<(), DerError> {
        for field in fields {
            let field = field?;
            match field.tag {
                0xa0 => {
                    self.distribution_points = extension::point_urls(field)?;
                    self.unnamed_distribution_point = self.distribution_points.is_empty();
                }
                0x81 if field.boolean()? => self.scope = Scope::EndEntities,
                0x82 if field.boolean()? => self.scope = Scope::Authorities,
                0x83 => self.some_reasons = true,
                0x84 => self.indirect = field.boolean()?,
                0x85 if field.boolean()? => self.scope = Scope::Attributes,
                0x81 | 0x82 | 0x85 => {}
                _ => return Err(DerError::Malformed("issuingDistributionPoint")),
            }
        }
        Ok(())
    }
}

/// Name of the malformed part, and the parsing error.
type FieldError = (&'static str, DerError);

fn entry(element: Element<'_>) -> Result<Revoked, DerError> {
    let mut fields = Reader::new(element.whole).sequence()?;
    let serial = SerialNumber::from_content(fields.expect(tag::INTEGER)?.content);
    let at = fields.any()?.time()?;
    let mut revoked = Revoked { serial, at, reason: None, invalidity_date: None };
    if let Some(list) = fields.optional(tag::SEQUENCE)? {
        for extension in list.inside() {
            let extension = extension::Extension::read(extension?)?;
            let mut value = Reader::new(extension.value);
            match extension.id {
                oid::CRL_REASON => {
                    let code = value.expect(tag::ENUMERATED)?.integer()?;
                    revoked.reason = Some(Reason::from_code(code).ok_or(DerError::Malformed("reasonCode"))?);
                }
                oid::INVALIDITY_DATE => {
                    revoked.invalidity_date = Some(value.expect(tag::GENERALIZED_TIME)?.time()?);
                }
                // certificateIssuer, a critical extension of entries in indirect CRLs, is known but not stored: `indirect` is set
                // for such CRLs.
                oid::CERTIFICATE_ISSUER => {}
                _ if extension.critical => {
                    return Err(DerError::Malformed("entry: unknown critical extension"));
                }
                _ => {}
            }
        }
    }
    fields.end()?;
    Ok(revoked)
}
