//! Event bodies about the audit log.

use serde::{Deserialize, Serialize};

/// Verification found a broken chain of the audit log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AuditBroken {
    /// Human-readable description of the broken part.
    pub detail: String,
}

/// A witness of the audit log rejects signed heads, or accepts them again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AuditWitness {
    /// Name of the witness: `file`, `syslog`, `webhook` or `s3`.
    pub name: String,
    /// Error of the witness. `None` when it accepts heads again.
    pub error: Option<String>,
}
