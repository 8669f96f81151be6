//! Validation of OCSP responses: the certificate they are about, and their signer (RFC 6960 section 3.2).

use super::request::{CertificateId, OcspHash};
use super::response::{RESPONSE_MAX, basic_response_fields, status};
use super::status::Status;
use crate::der::{DerError, Element, Reader, tag};
use crate::{
    Certificate, DistinguishedName, SerialNumber, SignatureAlgorithm, SignatureError, UnixTime, extension,
    oid, verify_document,
};

/// Reason why bytes are not a usable OCSP response.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ResponseError {
    /// The bytes are not an OCSPResponse, are longer than [`RESPONSE_MAX`], do not contain a basic response, or have an unknown
    /// critical extension.
    #[error("not an OCSP response: {0}")]
    Malformed(#[from] DerError),
    /// The response is an error status of RFC 6960 section 4.2.1, given by its number.
    #[error("the OCSP responder returned the error status {0}")]
    NoAnswer(i64),
}

/// Reason why the signature of the response is not acceptable.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ResponderError {
    /// The signer is neither the issuer nor a responder that the issuer delegated (RFC 6960 section 4.2.2.2).
    #[error("the OCSP responder is not authorized by the issuer")]
    NotAuthorized,
    /// The response was not signed by the responder that it names.
    #[error("the OCSP response is not signed by the responder")]
    BadSignature,
    /// The signature cannot be verified here; it may be valid.
    #[error("cannot verify the signature: {0}")]
    Unsupported(&'static str),
}

/// Status of one certificate (RFC 6960 section 4.2.1, SingleResponse).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OcspSingleResponse {
    /// The certificate. `None` if it is identified by a hash other than SHA-1 and SHA-256.
    pub id: Option<CertificateId>,
    /// Revocation status of the certificate.
    pub status: Status,
    /// Time from which the status is known to be correct.
    pub this_update: UnixTime,
    /// Time of the next update. `None`: newer information is always available.
    pub next_update: Option<UnixTime>,
}

/// A BasicOCSPResponse whose signature is not verified yet.
#[derive(Clone, Debug)]
pub struct BasicResponse {
    /// Time of the signature.
    pub produced_at: UnixTime,
    /// One entry for each certificate.
    pub answers: Vec<OcspSingleResponse>,
    responder: ResponderId,
    algorithm: SignatureAlgorithm,
    tbs: Vec<u8>,
    signature: Vec<u8>,
    /// DER certificates in the response.
    certificates: Vec<Vec<u8>>,
}

#[derive(Clone, Debug)]
enum ResponderId {
    Name(DistinguishedName),
    KeyHash(Vec<u8>),
}

impl ResponderId {
    fn read(id: Element<'_>) -> Result<Self, DerError> {
        match id.tag {
            0xa1 => DistinguishedName::parse(id.content).map(Self::Name),
            0xa2 => Ok(Self::KeyHash(id.inside().expect(tag::OCTET_STRING)?.content.to_vec())),
            _ => Err(DerError::Malformed("OCSP response: responderID")),
        }
    }

    fn identifies(&self, certificate: &Certificate) -> bool {
        match self {
            Self::Name(name) => name.matches(&certificate.subject),
            Self::KeyHash(hash) => *hash == OcspHash::Sha1.of(certificate.public_key.key_bytes()),
        }
    }
}

impl BasicResponse {
    /// Maximum entries of a response. Responders return one entry, or one for each requested certificate. Bulla permits at most 32
    /// certificates in a request.
    pub const ANSWERS_MAX: usize = 32;
    /// Maximum certificates of a response: the responder's own, and sometimes its issuer.
    pub const CERTIFICATES_MAX: usize = 8;

    /// Parses an OCSPResponse. Does not verify its signature.
    ///
    /// # Errors
    /// [`ResponseError`].
    pub fn parse(der: &[u8]) -> Result<Self, ResponseError> {
        if der.len() > RESPONSE_MAX {
            return Err(DerError::Malformed("OCSP response: too long").into());
        }
        Ok(Self::read(basic_response_fields(der)?.map_err(ResponseError::NoAnswer)?)?)
    }

    fn read(mut basic: Reader<'_>) -> Result<Self, DerError> {
        let tbs = basic.expect(tag::SEQUENCE)?;
        let algorithm = SignatureAlgorithm::read(basic.sequence()?)?;
        let signature = basic.expect(tag::BIT_STRING)?.whole_bits()?.to_vec();
        let mut certificates = Vec::new();
        if let Some(list) = basic.optional(tag::context_constructed(0))? {
            for certificate in list.inside().sequence()?.take(Self::CERTIFICATES_MAX) {
                certificates.push(certificate?.whole.to_vec());
            }
        }
        basic.end()?;
        let mut data = tbs.inside();
        data.optional(tag::context_constructed(0))?; // version
        let responder = ResponderId::read(data.any()?)?;
        let produced_at = data.expect(tag::GENERALIZED_TIME)?.time()?;
        let mut answers = Vec::new();
        for single in data.sequence()? {
            if answers.len() == Self::ANSWERS_MAX {
                return Err(DerError::Malformed("OCSP response: too many responses"));
            }
            answers.push(OcspSingleResponse::read(single?)?);
        }
        reject_unknown_critical(&mut data)?;
        let tbs = tbs.whole.to_vec();
        Ok(Self { produced_at, answers, responder, algorithm, tbs, signature, certificates })
    }

    /// Returns the entry for the certificate of `issuer` with this serial number.
    #[must_use]
    pub fn single_response(
        &self,
        issuer: &Certificate,
        serial: &SerialNumber,
    ) -> Option<&OcspSingleResponse> {
        self.answers.iter().find(|answer| {
            answer.id.as_ref().is_some_and(|id| {
                let wanted = CertificateId::of(issuer, serial.clone(), id.hash);
                id.issuer_name_hash == wanted.issuer_name_hash
                    && id.issuer_key_hash == wanted.issuer_key_hash
                    && id.serial.is_number(serial)
            })
        })
    }

    /// Verifies that the signer is `issuer`, or a responder with a delegation certificate of the issuer (RFC 6960 section 4.2.2.2)
    /// that is valid at `now`. Does not check whether the delegation certificate is revoked.
    ///
    /// # Errors
    /// [`ResponderError`].
    pub fn verify_authorized_by(&self, issuer: &Certificate, now: UnixTime) -> Result<(), ResponderError> {
        if self.responder.identifies(issuer) {
            return self.signed_by(issuer);
        }
        let delegates = self.certificates.iter().filter_map(|der| Certificate::parse(der).ok());
        for delegate in delegates.filter(|certificate| self.responder.identifies(certificate)) {
            if is_delegate(&delegate, issuer, now) {
                return self.signed_by(&delegate);
            }
        }
        Err(ResponderError::NotAuthorized)
    }

    fn signed_by(&self, responder: &Certificate) -> Result<(), ResponderError> {
        verify_document(&responder.public_key, &self.algorithm, &self.tbs, &self.signature).map_err(|error| {
            match error {
                SignatureError::Invalid => ResponderError::BadSignature,
                SignatureError::Unsupported(why) => ResponderError::Unsupported(why),
            }
        })
    }
}

impl OcspSingleResponse {
    fn read(single: Element<'_>) -> Result<Self, DerError> {
        let mut fields = Reader::new(single.whole).sequence()?;
        let id = CertificateId::read(fields.sequence()?).ok();
        let (status, this_update, next_update) = status(&mut fields)?;
        reject_unknown_critical(&mut fields)?;
        Ok(Self { id, status, this_update, next_update })
    }
}

/// Rejects unknown critical extensions in `[1]`, as RFC 6960 section 4.4 requires. A nonce needs no check here: it is only returned
/// to clients that sent one.
fn reject_unknown_critical(fields: &mut Reader<'_>) -> Result<(), DerError> {
    if let Some(list) = fields.optional(tag::context_constructed(1))? {
        let list = extension::strict(list.inside().sequence()?)?;
        if list.iter().any(|extension| extension.critical && extension.id != oid::OCSP_NONCE) {
            return Err(DerError::Malformed("OCSP response: unknown critical extension"));
        }
    }
    fields.end()
}

fn is_delegate(delegate: &Certificate, issuer: &Certificate, now: UnixTime) -> bool {
    let may_answer = delegate
        .extended_key_usage
        .as_ref()
        .is_some_and(|usages| usages.iter().any(|usage| usage == oid::EKU_OCSP_SIGNING));
    may_answer
        && delegate.issuer.matches(&issuer.subject)
        && (delegate.not_before..=delegate.not_after).contains(&now)
        && delegate.signed_by(&issuer.public_key).is_ok()
}
