//! Event bodies about approvals and about changes that wait for them.

use serde::{Deserialize, Serialize};

/// A change waits for approval, or for more approvals.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChangeWaiting {
    /// Action, such as `profile.put`.
    pub action: String,
    /// Object of the change, such as `profile/vip`.
    pub object: String,
    /// Actor that requested the change.
    pub requester: String,
    /// Number of approvals given so far.
    pub given: u32,
    /// Number of approvals that are needed.
    pub needed: u32,
}

/// A change was applied or rejected, or became void.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChangeDecided {
    /// New state of the change: `applied`, `rejected` or `void`.
    pub state: String,
}

/// An approver approved the plan of a certificate or enrolment, and the plan needs more approvals.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ApprovalGiven {
    /// Actor that approved the plan.
    pub approver: String,
    /// Number of people who approved the plan.
    pub given: u32,
    /// Number of approvals that are needed.
    pub needed: u32,
}
