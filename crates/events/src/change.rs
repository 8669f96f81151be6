//! Bodies about approvals, and about changes that wait for them.

use serde::{Deserialize, Serialize};

/// A change waits for approval, or for more approvals.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChangeWaiting {
    /// The action: `profile.put`.
    pub action: String,
    /// The object of the change: `profile/vip`.
    pub object: String,
    /// Actor that requested it.
    pub requester: String,
    /// Number of approvals.
    pub given: u32,
    /// Number of approvals that are needed.
    pub needed: u32,
}

/// A change was applied or rejected, or is void.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChangeDecided {
    /// Its state now: `applied`, `rejected` or `void`.
    pub state: String,
}

/// Somebody approved the plan of a certificate or enrolment, and more people must.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ApprovalGiven {
    /// The approver.
    pub approver: String,
    /// People who approved the plan.
    pub given: u32,
    /// Number of approvals that are needed.
    pub needed: u32,
}
