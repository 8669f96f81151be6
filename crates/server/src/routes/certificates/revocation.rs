//! Requests to revoke managed certificates.

use api::certificates::RevokeBody;
use lifecycle::{REVOCATION_REASONS, RevokeRequest};
use x509::crl::Reason;

use crate::problem::Problem;

pub(crate) fn revoke_request(body: &RevokeBody) -> Result<RevokeRequest, Problem> {
    let word = body.reason.as_deref().unwrap_or(Reason::Unspecified.name());
    let reason = REVOCATION_REASONS.into_iter().find(|reason| reason.name() == word).ok_or_else(|| {
        let [names @ .., last] = &REVOCATION_REASONS.map(Reason::name);
        Problem::unprocessable(format_args!("{word:?} is not a revocation reason"))
            .hint(format_args!("{} or {last}", names.join(", ")))
    })?;
    Ok(RevokeRequest { reason, replace: body.replace })
}
