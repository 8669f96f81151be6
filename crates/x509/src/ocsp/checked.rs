//! Complete validation of an OCSP response for one certificate.

use super::basic::{BasicResponse, OcspSingleResponse, ResponderError, ResponseError};
use crate::{Certificate, UnixTime};

/// Reason why the response is not valid for the certificate.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NoAnswer {
    /// The bytes are not an OCSP response.
    #[error(transparent)]
    Response(#[from] ResponseError),
    /// The response is about other certificates.
    #[error("the OCSP response is for another certificate")]
    OtherCertificate,
    /// The signer is not authorized for the certificate.
    #[error(transparent)]
    Responder(#[from] ResponderError),
}

/// Returns the status of `certificate` in a response. Checks that the response is about this certificate, and is signed by `issuer`
/// or by a responder that the issuer delegated. The caller must check whether the response is still current.
///
/// # Errors
/// [`NoAnswer`].
pub fn checked(
    der: &[u8],
    certificate: &Certificate,
    issuer: &Certificate,
    now: UnixTime,
) -> Result<OcspSingleResponse, NoAnswer> {
    let response = BasicResponse::parse(der)?;
    let single_response =
        response.single_response(issuer, &certificate.serial).ok_or(NoAnswer::OtherCertificate)?;
    response.verify_authorized_by(issuer, now)?;
    Ok(single_response.clone())
}
