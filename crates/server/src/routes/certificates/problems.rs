//! Conversion of errors of managed certificates to problem documents.

use http::StatusCode;
use issuers::IssuerError;
use lifecycle::{
    AdmissionError, ApprovalError, BulkError, ClaimError, CreateError, DataError, DismissError, ExportError,
    JobError, LifecycleActionError, PersonChangeError, PolicyChangeError, RemoveError, Stale, UpdateError,
};
use serde_json::json;
use store::StoreError;

use crate::problem::Problem;

/// `Retry-After` in seconds when a dependency was unavailable.
const RETRY_SECONDS: u64 = 2;

impl From<DataError> for Problem {
    fn from(error: DataError) -> Self {
        match error {
            DataError::NotFound { what, id } => Self::not_found(format_args!("{what} {id}")),
            error @ DataError::Profile { .. } => Self::unprocessable(error),
            DataError::Store(error) => match &*error {
                StoreError::BadCursor => Self::bad_request(error),
                error => Self::of_store(error),
            },
            error @ DataError::Unreadable(_) => Self::internal(error),
        }
    }
}

impl From<AdmissionError> for Problem {
    fn from(error: AdmissionError) -> Self {
        match error {
            AdmissionError::Forbidden(violations) => {
                let list: Vec<_> = violations.iter().map(|one| json!(one)).collect();
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "policy-violation", "Forbidden by policy")
                    .detail(AdmissionError::Forbidden(violations))
                    .with("violations", list)
            }
            AdmissionError::Issuer(IssuerError::Storage { reason }) => {
                tracing::warn!(reason, "an issuer's state could not be read");
                Self::unavailable("the database is busy or does not answer", RETRY_SECONDS)
            }
            error @ (AdmissionError::Missing(_) | AdmissionError::Issuer(_)) => Self::unprocessable(error),
            AdmissionError::Data(error) => error.into(),
        }
    }
}

impl From<CreateError> for Problem {
    fn from(error: CreateError) -> Self {
        match error {
            error @ CreateError::Bad(_) => Self::unprocessable(error),
            error @ CreateError::Taken(_) => Self::conflict(error),
            error @ CreateError::Stopping => Self::unavailable(error, RETRY_SECONDS),
            CreateError::Admission(error) => error.into(),
            CreateError::Data(error) => error.into(),
        }
    }
}

impl From<UpdateError> for Problem {
    fn from(error: UpdateError) -> Self {
        match error {
            error @ UpdateError::Bad(_) => Self::unprocessable(error),
            error @ (UpdateError::Taken(_) | UpdateError::UnderWay(_)) => Self::conflict(error),
            UpdateError::Stale(stale) => changed(&stale),
            UpdateError::LiftsApproval(error) => Self::approval_required(error),
            UpdateError::Admission(error) => error.into(),
            UpdateError::Data(error) => error.into(),
        }
    }
}

impl From<LifecycleActionError> for Problem {
    fn from(error: LifecycleActionError) -> Self {
        match error {
            LifecycleActionError::Stale(stale) => changed(&stale),
            error @ (LifecycleActionError::IllegalTransition(_)
            | LifecycleActionError::NothingToDeploy(_)) => Self::conflict(error),
            LifecycleActionError::NotApproved(error) => Self::approval_required(error),
            LifecycleActionError::Data(error) => error.into(),
        }
    }
}

impl From<JobError> for Problem {
    fn from(error: JobError) -> Self {
        match error {
            error @ (JobError::UnderWay(_) | JobError::NotWaiting(_)) => Self::conflict(error),
            JobError::Data(error) => error.into(),
        }
    }
}

impl From<ApprovalError> for Problem {
    fn from(error: ApprovalError) -> Self {
        match error {
            error @ ApprovalError::Note => Self::unprocessable(error),
            error @ ApprovalError::SamePerson(_) => Self::forbidden(error),
            error @ (ApprovalError::Decided(_)
            | ApprovalError::PlanChanged
            | ApprovalError::Repeated { .. }
            | ApprovalError::OtherPlan) => Self::conflict(error),
            ApprovalError::Data(error) => error.into(),
        }
    }
}

impl From<ExportError> for Problem {
    fn from(error: ExportError) -> Self {
        match error {
            error @ ExportError::NotExportable(_) => Self::conflict(error),
            ExportError::NotApproved(error) => Self::approval_required(error),
            error @ ExportError::Keys(_) => Self::internal(error),
            ExportError::Data(error) => error.into(),
        }
    }
}

impl From<ClaimError> for Problem {
    fn from(error: ClaimError) -> Self {
        match error {
            error @ (ClaimError::BadClaim(_) | ClaimError::Bad(_)) => Self::unprocessable(error),
            error @ (ClaimError::NothingFound(_) | ClaimError::Taken(_)) => Self::conflict(error),
            ClaimError::Admission(error) => error.into(),
            ClaimError::Data(error) => error.into(),
        }
    }
}

impl From<DismissError> for Problem {
    fn from(error: DismissError) -> Self {
        match error {
            error @ DismissError::Bad(_) => Self::unprocessable(error),
            DismissError::Data(error) => error.into(),
        }
    }
}

impl From<PolicyChangeError> for Problem {
    fn from(error: PolicyChangeError) -> Self {
        match error {
            error @ (PolicyChangeError::BadName(_) | PolicyChangeError::BadPolicy(_)) => {
                Self::unprocessable(error)
            }
            error @ (PolicyChangeError::TooMany(_) | PolicyChangeError::Taken(_)) => Self::conflict(error),
            PolicyChangeError::Stale(stale) => changed(&stale),
            PolicyChangeError::Data(error) => error.into(),
        }
    }
}

impl From<PersonChangeError> for Problem {
    fn from(error: PersonChangeError) -> Self {
        match error {
            error @ (PersonChangeError::Bad(_) | PersonChangeError::Missing(_)) => Self::unprocessable(error),
            error @ (PersonChangeError::Taken(_) | PersonChangeError::Owned { .. }) => Self::conflict(error),
            PersonChangeError::Stale(stale) => changed(&stale),
            PersonChangeError::Data(error) => error.into(),
        }
    }
}

impl From<RemoveError> for Problem {
    fn from(error: RemoveError) -> Self {
        match error {
            error @ RemoveError::InUse { .. } => Self::conflict(error),
            RemoveError::Data(error) => error.into(),
        }
    }
}

impl From<BulkError> for Problem {
    fn from(error: BulkError) -> Self {
        match error {
            error @ (BulkError::Bad(_) | BulkError::Missing(_)) => Self::unprocessable(error),
            error @ BulkError::TooMany(_) => Self::conflict(error),
            BulkError::Data(error) => error.into(),
        }
    }
}

fn changed(stale: &Stale) -> Problem {
    Problem::precondition_failed("the object changed since you read it").with("revision", stale.revision)
}
