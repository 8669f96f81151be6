//! Teams as owners of names, profiles, issuers, targets and credential paths.
//!
//! Only [`Ownership`] decides whether the objects of a request belong together. [`Ownership::admits`] decides whether a caller's
//! grant gives access to an object. [`Ownership::check_issue`] checks every certificate before it is issued, over any protocol.

mod directory;
mod ownership;
pub(crate) mod owns;
mod rights;

pub use directory::{OverQuota, QuotaError, TeamDirectory};
pub use ownership::{Ownership, OwnershipMismatch};
pub use owns::{InvalidOwnedObjects, OBJECTS_MAX, OwnedKind, Owns, Quota};
pub use rights::OwnershipRights;
