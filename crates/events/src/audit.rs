//! The body about the audit log.

use serde::{Deserialize, Serialize};

/// Verification found a broken chain of the audit log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AuditBroken {
    /// What is broken, for people.
    pub detail: String,
}
