//! Evaluates OCSP responses, stapled or fetched (RFC 6960 section 3.2).

use x509::ocsp::{NoAnswer, ResponderError, ResponseError, Status, checked};
use x509::{Certificate, UnixTime};

use super::list::SKEW;
use super::verdict::{Cause, Source, Verdict};

/// A valid OCSP response.
#[derive(Clone, Copy, Debug)]
pub(super) struct OcspAnswer {
    status: Status,
    this_update: UnixTime,
    /// End of validity. A response without nextUpdate means that newer information is always available (RFC 6960 section 4.2.2.1);
    /// it is then valid for the tolerated clock difference.
    pub(super) until: UnixTime,
}

impl OcspAnswer {
    /// Parses a response about `certificate` and verifies its signer.
    pub(super) fn read(
        der: &[u8],
        certificate: &Certificate,
        issuer: &Certificate,
        now: UnixTime,
    ) -> Result<Self, Cause> {
        let about = checked(der, certificate, issuer, now).map_err(|error| match error {
            NoAnswer::Response(ResponseError::Malformed(_)) => Cause::Malformed(error.to_string()),
            NoAnswer::Response(ResponseError::NoAnswer(code)) => Cause::NoAnswer(code),
            NoAnswer::OtherCertificate => Cause::OtherCertificate,
            NoAnswer::Responder(ResponderError::NotAuthorized) => Cause::NotAuthorized,
            NoAnswer::Responder(ResponderError::BadSignature) => Cause::BadSignature,
            NoAnswer::Responder(ResponderError::Unsupported(why)) => Cause::Unverifiable(why),
        })?;
        let until = about.next_update.unwrap_or_else(|| about.this_update.plus(SKEW));
        let answer = Self { status: about.status, this_update: about.this_update, until };
        answer.check_validity(now)?;
        Ok(answer)
    }

    fn check_validity(&self, now: UnixTime) -> Result<(), Cause> {
        if self.this_update > now.plus(SKEW) {
            return Err(Cause::FromTheFuture { this_update: self.this_update });
        }
        if now > self.until {
            return Err(Cause::Stale { next_update: Some(self.until) });
        }
        Ok(())
    }

    /// Returns the verdict if the response is still valid at `now`.
    pub(super) fn verdict(&self, source: Source, now: UnixTime) -> Result<Verdict, Cause> {
        self.check_validity(now)?;
        match self.status {
            Status::Good => Ok(Verdict::Good { source, until: self.until }),
            Status::Revoked { at, reason } => Ok(Verdict::Revoked { at, reason, source }),
            Status::Unknown => Err(Cause::UnknownToResponder),
        }
    }
}
