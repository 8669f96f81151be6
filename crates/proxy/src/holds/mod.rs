//! Held requests: requests that wait until a person approves or rejects them, and approvals that are remembered.
//!
//! - `request`: a held request as approvers see it, and the rule that would allow it.
//! - `registry`: all held requests of a proxy, their limits, and the remembered approvals.

mod registry;
mod request;

pub use registry::{
    APPROVAL_FOR_MAX, APPROVALS_MAX, ApprovalError, HELD_MAX, HELD_PER_CLIENT_MAX, Holds, NoSuchHold,
};
pub(crate) use registry::{Answer, Approval, Hold, HoldRecord, TooManyHeld};
pub(crate) use request::{AllowedRequest, HoldKey};
pub use request::{HeldRequest, NoRule};
