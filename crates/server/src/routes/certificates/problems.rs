//! How a lifecycle's refusals are told.

use http::StatusCode;
use lifecycle::issuers::IssuerError;
use lifecycle::lifecycle::LifecycleError;
use serde_json::json;
use store::StoreError;

use crate::problem::Problem;

/// Seconds after which to ask again when something underneath was away.
const RETRY_SECONDS: u64 = 2;

impl From<LifecycleError> for Problem {
    fn from(error: LifecycleError) -> Self {
        match error {
            LifecycleError::NotFound { what, id } => Self::not_found(format_args!("{what} {id}")),
            LifecycleError::Forbidden(violations) => {
                let list: Vec<_> = violations.iter().map(|one| json!(one)).collect();
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "policy-violation", "Forbidden by policy")
                    .detail(LifecycleError::Forbidden(violations))
                    .with("violations", list)
            }
            LifecycleError::Stale { revision } => {
                Self::precondition_failed("it is not as it was when you read it").with("revision", revision)
            }
            error @ (LifecycleError::Bad(_)
            | LifecycleError::BadPolicy(_)
            | LifecycleError::BadPerson(_)
            | LifecycleError::BadCsr(_)
            | LifecycleError::BadClaim(_)
            | LifecycleError::Missing { .. }
            | LifecycleError::Profile { .. }) => Self::unprocessable(error),
            error @ (LifecycleError::Taken { .. }
            | LifecycleError::InUse { .. }
            | LifecycleError::Illegal(_)
            | LifecycleError::UnderWay { .. }
            | LifecycleError::Decided(_)
            | LifecycleError::NotExportable(_)
            | LifecycleError::NotWaiting { .. }) => Self::conflict(error),
            error @ LifecycleError::SamePerson(_) => Self::forbidden(error),
            LifecycleError::Issuer(IssuerError::Storage { reason }) => {
                tracing::warn!(reason, "an issuer's state could not be read");
                Self::unavailable("the database is busy or does not answer", RETRY_SECONDS)
            }
            LifecycleError::Issuer(error) => Self::unprocessable(error),
            LifecycleError::Store(error) => match &*error {
                StoreError::BadCursor => Self::bad_request(error),
                error if error.is_transient() => {
                    tracing::warn!(%error, "the database did not answer a request");
                    Self::unavailable("the database is busy or does not answer", RETRY_SECONDS)
                }
                error => Self::internal(error),
            },
            error @ LifecycleError::Stopping => Self::unavailable(error, RETRY_SECONDS),
            error => Self::internal(error),
        }
    }
}
