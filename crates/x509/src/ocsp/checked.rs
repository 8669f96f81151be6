//! A response held to everything that makes it count for one certificate.

use super::basic::{BasicResponse, ResponderError, ResponseError, SingleAnswer};
use crate::{Certificate, UnixTime};

/// Why a response says nothing of a certificate.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NoAnswer {
    /// The bytes are no OCSP response.
    #[error(transparent)]
    Response(#[from] ResponseError),
    /// It is about other certificates.
    #[error("it is about another certificate")]
    OtherCertificate,
    /// Who signed it may not speak of the certificate.
    #[error(transparent)]
    Responder(#[from] ResponderError),
}

/// What a response says of `certificate`, once it is known to be about that and to be signed by `issuer`, or by whom that
/// delegated it to. Whether it is still to be relied on is for the caller to say.
///
/// # Errors
/// [`NoAnswer`].
pub fn checked(
    der: &[u8],
    certificate: &Certificate,
    issuer: &Certificate,
    now: UnixTime,
) -> Result<SingleAnswer, NoAnswer> {
    let response = BasicResponse::parse(der)?;
    let about = response.about(issuer, &certificate.serial).ok_or(NoAnswer::OtherCertificate)?;
    response.authorized_by(issuer, now)?;
    Ok(about.clone())
}
