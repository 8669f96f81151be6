//! The bodies about the audit log.

use serde::{Deserialize, Serialize};

/// Verification found a broken chain of the audit log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AuditBroken {
    /// The broken part, for people.
    pub detail: String,
}

/// A witness of the audit log does not take signed heads, or takes them again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AuditWitness {
    /// `file`, `syslog` or `webhook`.
    pub name: String,
    /// Why not.
    pub error: Option<String>,
}
