//! Stapled OCSP responses, parsed as far as a scanner reports them. Signatures are not verified here.

use std::fmt;

use super::status::Status;
use crate::crl::Reason;
use crate::der::{DerError, Element, Reader, tag};
use crate::{DistinguishedName, SerialNumber, UnixTime, oid};

/// Maximum bytes of a response. Real ones have 500 to 3,000.
pub const RESPONSE_MAX: usize = 64 * 1024;

/// Outcome of an OCSP request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// The status of the certificate.
    Status(Status),
    /// An error status, given by its number in RFC 6960 section 4.2.1 (1 malformed, 2 internal, 3 try later, 5 signature required,
    /// 6 unauthorized).
    NoAnswer(i64),
}

/// Responder that signed the response.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Responder {
    /// Identified by name.
    Name(String),
    /// Identified by the SHA-1 of its key.
    KeyHash(Vec<u8>),
}

/// An OCSP response, with only its first entry.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Response {
    /// The outcome of the request.
    pub status: Outcome,
    /// Time of the signature.
    pub produced_at: Option<UnixTime>,
    /// Time from which the status is known to be correct.
    pub this_update: Option<UnixTime>,
    /// Time by which newer information is available (nextUpdate).
    pub next_update: Option<UnixTime>,
    /// Responder that signed the response.
    pub responder: Option<Responder>,
    /// Serial number of the certificate.
    pub serial: Option<SerialNumber>,
}

impl Response {
    /// Returns whether the status is revoked.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        matches!(self.status, Outcome::Status(Status::Revoked { .. }))
    }
}

impl fmt::Display for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Outcome::Status(Status::Good) => f.write_str("good")?,
            Outcome::Status(Status::Revoked { at, reason: None }) => write!(f, "revoked at {at}")?,
            Outcome::Status(Status::Revoked { at, reason: Some(reason) }) => {
                write!(f, "revoked at {at} ({reason})")?;
            }
            Outcome::Status(Status::Unknown) => f.write_str("unknown to the responder")?,
            Outcome::NoAnswer(code) => write!(f, "no response (OCSP error {code})")?,
        }
        if let Some(this_update) = self.this_update {
            write!(f, ", as of {this_update}")?;
        }
        if let Some(next_update) = self.next_update {
            write!(f, ", next update by {next_update}")?;
        }
        Ok(())
    }
}

/// Parses an OCSPResponse (RFC 6960 section 4.2.1).
///
/// # Errors
/// If the bytes are not an OCSPResponse, are longer than [`RESPONSE_MAX`], or contain another kind of response than a basic one.
pub fn parse_response(der: &[u8]) -> Result<Response, DerError> {
    if der.len() > RESPONSE_MAX {
        return Err(DerError::Malformed("OCSP response: too long"));
    }
    match basic_response_fields(der)? {
        Ok(mut basic) => response_data(basic.sequence()?),
        Err(code) => Ok(Response {
            status: Outcome::NoAnswer(code),
            produced_at: None,
            this_update: None,
            next_update: None,
            responder: None,
            serial: None,
        }),
    }
}

/// Returns the fields of the BasicOCSPResponse in an OCSPResponse, or the number of its error status.
pub(super) fn basic_response_fields(der: &[u8]) -> Result<Result<Reader<'_>, i64>, DerError> {
    let mut response = Reader::new(der).sequence()?;
    let code = response.expect(tag::ENUMERATED)?.integer()?;
    if code != 0 {
        return Ok(Err(code));
    }
    let mut bytes = response.expect(tag::context_constructed(0))?.inside().sequence()?;
    if bytes.expect(tag::OID)?.content != oid::OCSP_BASIC {
        return Err(DerError::Malformed("OCSP response: not a basic response"));
    }
    bytes.expect(tag::OCTET_STRING)?.inside().sequence().map(Ok)
}

fn response_data(mut data: Reader<'_>) -> Result<Response, DerError> {
    data.optional(tag::context_constructed(0))?; // version
    let responder = responder(data.any()?)?;
    let produced_at = data.expect(tag::GENERALIZED_TIME)?.time()?;
    let mut single = data.sequence()?.sequence()?;
    let mut id = single.sequence()?;
    id.sequence()?; // hashAlgorithm
    id.expect(tag::OCTET_STRING)?; // issuerNameHash
    id.expect(tag::OCTET_STRING)?; // issuerKeyHash
    let serial = SerialNumber::from_content(id.expect(tag::INTEGER)?.content);
    let (status, this_update, next_update) = status(&mut single)?;
    Ok(Response {
        status: Outcome::Status(status),
        produced_at: Some(produced_at),
        this_update: Some(this_update),
        next_update,
        responder: Some(responder),
        serial: Some(serial),
    })
}

/// Reads a SingleResponse after its CertID: status, thisUpdate and nextUpdate.
pub(super) fn status(single: &mut Reader<'_>) -> Result<(Status, UnixTime, Option<UnixTime>), DerError> {
    let status = single.any()?;
    let status = match status.tag {
        0x80 => Status::Good,
        0xa1 => revoked(status.inside())?,
        0x82 => Status::Unknown,
        _ => return Err(DerError::Malformed("OCSP response: certStatus")),
    };
    let this_update = single.expect(tag::GENERALIZED_TIME)?.time()?;
    let next_update = match single.optional(tag::context_constructed(0))? {
        Some(next) => Some(next.inside().expect(tag::GENERALIZED_TIME)?.time()?),
        None => None,
    };
    Ok((status, this_update, next_update))
}

fn revoked(mut info: Reader<'_>) -> Result<Status, DerError> {
    let at = info.expect(tag::GENERALIZED_TIME)?.time()?;
    let reason = match info.optional(tag::context_constructed(0))? {
        Some(reason) => Reason::from_code(reason.inside().expect(tag::ENUMERATED)?.integer()?),
        None => None,
    };
    Ok(Status::Revoked { at, reason })
}

fn responder(id: Element<'_>) -> Result<Responder, DerError> {
    match id.tag {
        0xa1 => Ok(Responder::Name(DistinguishedName::parse(id.content)?.text)),
        0xa2 => Ok(Responder::KeyHash(id.inside().expect(tag::OCTET_STRING)?.content.to_vec())),
        _ => Err(DerError::Malformed("OCSP response: responderID")),
    }
}
