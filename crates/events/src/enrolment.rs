//! Event bodies about enrolments over EST and SCEP.

use serde::{Deserialize, Serialize};

/// An EST or SCEP request waits for approval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EnrolmentWaiting {
    /// Name of the profile of the request.
    pub profile: String,
    /// Actor that requested the enrolment.
    pub requester: String,
}

/// An EST or SCEP request was approved or rejected.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EnrolmentDecided {
    /// Whether the request was approved.
    pub approved: bool,
}
