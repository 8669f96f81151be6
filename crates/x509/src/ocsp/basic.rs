//! OCSP responses held to the rules: about what, and signed by whom (RFC 6960 section 3.2).

use super::request::{CertificateId, OcspHash};
use super::response::{RESPONSE_MAX, opened, status};
use super::status::Status;
use crate::der::{DerError, Element, Reader, tag};
use crate::{
    Certificate, DistinguishedName, SerialNumber, SignatureAlgorithm, SignatureError, UnixTime, extension,
    oid, verify_document,
};

/// Bytes that are no answer.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ResponseError {
    /// Not an OCSPResponse, over [`RESPONSE_MAX`], not a basic one, or with a critical extension nobody here knows.
    #[error("not an OCSP response: {0}")]
    Malformed(#[from] DerError),
    /// An error of RFC 6960 section 4.2.1 instead of an answer, by its number.
    #[error("the responder gives no answer (OCSP error {0})")]
    NoAnswer(i64),
}

/// Why an answer does not count.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ResponderError {
    /// Signed by neither the issuer nor somebody it delegated this to (RFC 6960 section 4.2.2.2).
    #[error("the responder may not speak for the issuer")]
    NotAuthorized,
    /// The named responder did not sign the response.
    #[error("the signature is not by the responder")]
    BadSignature,
    /// Cannot be checked here: says nothing about the signature.
    #[error("the signature cannot be checked: {0}")]
    Unsupported(&'static str),
}

/// What is said of one certificate (RFC 6960 section 4.2.1, SingleResponse).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SingleAnswer {
    /// Of which; `None` when it is named by a hash other than SHA-1 and SHA-256.
    pub id: Option<CertificateId>,
    /// The status.
    pub status: Status,
    /// From when it is known to be right.
    pub this_update: UnixTime,
    /// When newer news is due; without, they are to be had at any time.
    pub next_update: Option<UnixTime>,
}

/// A BasicOCSPResponse, its signature not yet checked.
#[derive(Clone, Debug)]
pub struct BasicResponse {
    /// When it was signed.
    pub produced_at: UnixTime,
    /// The answers, one for each certificate.
    pub answers: Vec<SingleAnswer>,
    responder: ResponderId,
    algorithm: SignatureAlgorithm,
    tbs: Vec<u8>,
    signature: Vec<u8>,
    /// DER, as sent along.
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

    fn means(&self, certificate: &Certificate) -> bool {
        match self {
            Self::Name(name) => name.matches(&certificate.subject),
            Self::KeyHash(hash) => *hash == OcspHash::Sha1.of(certificate.public_key.key_octets()),
        }
    }
}

impl BasicResponse {
    /// Answers read of one response. Responders answer about one; some repeat what a request asked, 32 at most here.
    pub const ANSWERS_MAX: usize = 32;
    /// Certificates read of one response: the responder's own, and some send its issuer too.
    pub const CERTIFICATES_MAX: usize = 8;

    /// Reads an OCSPResponse. Its signature is not checked here.
    ///
    /// # Errors
    /// [`ResponseError`].
    pub fn parse(der: &[u8]) -> Result<Self, ResponseError> {
        if der.len() > RESPONSE_MAX {
            return Err(DerError::Malformed("OCSP response: too long").into());
        }
        Ok(Self::read(opened(der)?.map_err(ResponseError::NoAnswer)?)?)
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
                return Err(DerError::Malformed("OCSP response: too many answers"));
            }
            answers.push(SingleAnswer::read(single?)?);
        }
        refuse_critical(&mut data)?;
        let tbs = tbs.whole.to_vec();
        Ok(Self { produced_at, answers, responder, algorithm, tbs, signature, certificates })
    }

    /// What is said of the certificate with that serial number by `issuer`.
    #[must_use]
    pub fn about(&self, issuer: &Certificate, serial: &SerialNumber) -> Option<&SingleAnswer> {
        self.answers.iter().find(|answer| {
            answer.id.as_ref().is_some_and(|id| {
                let wanted = CertificateId::of(issuer, serial.clone(), id.hash);
                id.issuer_name_hash == wanted.issuer_name_hash
                    && id.issuer_key_hash == wanted.issuer_key_hash
                    && id.serial.is_number(serial)
            })
        })
    }

    /// Checks that `issuer` signed it, or somebody with a certificate by the issuer for this purpose (RFC 6960
    /// section 4.2.2.2) that is valid at `now`. Whether that certificate was revoked is not asked.
    ///
    /// # Errors
    /// [`ResponderError`].
    pub fn authorized_by(&self, issuer: &Certificate, now: UnixTime) -> Result<(), ResponderError> {
        if self.responder.means(issuer) {
            return self.signed_by(issuer);
        }
        let delegates = self.certificates.iter().filter_map(|der| Certificate::parse(der).ok());
        for delegate in delegates.filter(|certificate| self.responder.means(certificate)) {
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

impl SingleAnswer {
    fn read(single: Element<'_>) -> Result<Self, DerError> {
        let mut fields = Reader::new(single.whole).sequence()?;
        let id = CertificateId::read(fields.sequence()?).ok();
        let (status, this_update, next_update) = status(&mut fields)?;
        refuse_critical(&mut fields)?;
        Ok(Self { id, status, this_update, next_update })
    }
}

/// The extensions at the end, `[1]`: a critical one that is not known here must not be passed over (RFC 6960
/// section 4.4). A nonce is only ever sent back to who asked with one.
fn refuse_critical(fields: &mut Reader<'_>) -> Result<(), DerError> {
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
