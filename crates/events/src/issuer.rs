//! The body about issuers.

use serde::{Deserialize, Serialize};

/// The circuit breaker of an issuer opened, or the issuer issues again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IssuerCondition {
    /// The issuer's name.
    pub name: String,
    /// Its last error.
    pub detail: Option<String>,
}
