//! What a revocation of managed certificates is asked with.

use lifecycle::RevokeRequest;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::problem::Problem;

/// Why a certificate is revoked.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RevokeBody {
    /// `unspecified`, `keyCompromise`, `affiliationChanged`, `superseded`, `cessationOfOperation` or
    /// `privilegeWithdrawn` (RFC 5280 section 5.3.1); unspecified when absent.
    #[schema(example = "superseded")]
    pub(super) reason: Option<String>,
    /// Whether a new version, with a new key, is asked for at once.
    #[serde(default)]
    pub(super) replace: bool,
}

impl RevokeBody {
    pub(crate) fn read(&self) -> Result<RevokeRequest, Problem> {
        let word = self.reason.as_deref().unwrap_or("unspecified");
        let reason = match word {
            "unspecified" => 0,
            "keyCompromise" => 1,
            "affiliationChanged" => 3,
            "superseded" => 4,
            "cessationOfOperation" => 5,
            "privilegeWithdrawn" => 9,
            _ => {
                return Err(Problem::unprocessable(format_args!("{word:?} is no reason to revoke a certificate"))
                    .hint("unspecified, keyCompromise, affiliationChanged, superseded, cessationOfOperation or privilegeWithdrawn"));
            }
        };
        Ok(RevokeRequest { reason, replace: self.replace })
    }
}
