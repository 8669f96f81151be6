//! The event body about issuers.

use serde::{Deserialize, Serialize};

/// The circuit breaker of an issuer opened, or the issuer issues again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IssuerCondition {
    /// Name of the external issuer whose circuit breaker changed.
    pub name: String,
    /// Last error of the issuer.
    pub detail: Option<String>,
}
