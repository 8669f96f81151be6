//! Errors of EST and SCEP enrolments.

use store::StoreError;

use crate::issue::IssueError;
use crate::profile::ProfileError;
use crate::teams::OverQuota;

/// Reason why an enrolment fails.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum EnrolmentError {
    /// The request is rejected. Only a different request can succeed.
    #[error("{0}")]
    Refused(String),
    /// The approver rejected the enrolment.
    #[error("the request was rejected{}", if .0.is_empty() { String::new() } else { format!(": {}", .0) })]
    Rejected(String),
    /// The team has used its daily quota of certificates.
    #[error(transparent)]
    Limited(#[from] OverQuota),
    /// A temporary error. The same request may succeed later.
    #[error("{0}")]
    Unavailable(String),
}

impl From<StoreError> for EnrolmentError {
    fn from(error: StoreError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

impl From<IssueError> for EnrolmentError {
    fn from(error: IssueError) -> Self {
        if let IssueError::Quota(over) = error {
            Self::Limited(over)
        } else if error.is_refusal() {
            Self::Refused(error.to_string())
        } else {
            Self::Unavailable(error.to_string())
        }
    }
}

impl From<ProfileError> for EnrolmentError {
    fn from(error: ProfileError) -> Self {
        match error {
            ProfileError::Unknown(_) => Self::Refused(error.to_string()),
            other => Self::Unavailable(other.to_string()),
        }
    }
}
