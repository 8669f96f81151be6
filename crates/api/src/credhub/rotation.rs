//! Rotation of credentials: policies, planned rotations, hooks. CredHub has no such endpoints.

use serde::{Deserialize, Serialize};

use super::lenient;

/// Query parameter that selects planned rotations, or the rotation policy to delete.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct RotationQuery {
    /// Name of a credential, or all credentials below a path: `/team/*`.
    pub path: Option<String>,
}

/// Query parameter that selects the hook to delete.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct HookQuery {
    /// Name of the hook to delete.
    pub name: Option<String>,
}

/// A rotation policy to set: `PUT /api/v1/rotation-policies`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RotationPolicyRequest {
    /// Name of a credential, or all credentials below a path: `/team/*`.
    #[serde(default, deserialize_with = "lenient::text")]
    pub path: String,
    /// Age of a version in seconds at which the credential is rotated.
    #[serde(default, deserialize_with = "lenient::number")]
    pub every_s: Option<u32>,
    /// Remaining lifetime of a certificate in seconds at which the certificate is rotated.
    #[serde(default, deserialize_with = "lenient::number")]
    pub before_expiry_s: Option<u32>,
    /// Remaining lifetime of a certificate in percent of its whole lifetime at which the certificate is rotated.
    #[serde(default, deserialize_with = "lenient::number")]
    pub before_expiry_percent: Option<u32>,
    /// Time in seconds for which the rotation of a CA waits before each further step, while both certificates of the CA are
    /// trusted.
    #[serde(default, deserialize_with = "lenient::number")]
    pub overlap_s: Option<u32>,
    /// Name of the hook to call.
    pub hook: Option<String>,
}

/// A rotation policy of a credential, or of all credentials below a path.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RotationPolicyView {
    /// Name of a credential, or all credentials below a path: `/team/*`.
    pub path: String,
    /// Age of a version in seconds at which the credential is rotated.
    pub every_s: Option<i64>,
    /// Remaining lifetime of a certificate in seconds at which the certificate is rotated.
    pub before_expiry_s: Option<i64>,
    /// Remaining lifetime of a certificate in percent of its whole lifetime at which the certificate is rotated.
    pub before_expiry_percent: Option<i64>,
    /// Time in seconds for which the rotation of a CA waits before each further step, while both certificates of the CA are
    /// trusted.
    pub overlap_s: i64,
    /// Name of the hook to call.
    pub hook: Option<String>,
    /// Time at which the policy was set, RFC 3339.
    pub set_at: String,
    /// Actor that set the policy.
    pub set_by: String,
}

/// A planned rotation of a credential.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct PlannedView {
    /// Name of the credential.
    pub name: String,
    /// Type of the credential.
    #[serde(rename = "type")]
    pub kind: String,
    /// Path of the rotation policy that applies.
    pub policy: String,
    /// Due time, RFC 3339.
    pub due_at: String,
    /// Next step of the rotation.
    pub step: String,
    /// Number of consecutive failures.
    pub failures: i64,
    /// Error of the last failed attempt.
    pub error: Option<String>,
    /// Whether the current version was set by a user and not generated. Such a version is not rotated.
    pub set_by_hand: bool,
}

/// Credentials to rotate immediately: `POST /api/v1/rotations/now`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RotateRequest {
    /// Name of a credential, or all credentials with a planned rotation below a path: `/team/*`.
    #[serde(default, deserialize_with = "lenient::text")]
    pub path: String,
}

/// The response to a request to rotate credentials immediately.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RotateView {
    /// Name or path of the request.
    pub path: String,
    /// Number of credentials that are now due.
    pub due: u64,
}

/// All hooks of the credential store.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Hooks {
    /// Hooks, without their secrets.
    pub items: Vec<HookView>,
}

/// A hook to set: `PUT /api/v1/rotation-hooks`. `S` is the type of secret values.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HookRequest<S = String> {
    /// Name of the hook, unique.
    #[serde(default, deserialize_with = "lenient::text")]
    pub name: String,
    /// URL that the hook calls.
    #[serde(default, deserialize_with = "lenient::text")]
    pub url: String,
    /// Secret that signs each request to the URL.
    pub secret: Option<S>,
    /// Whether the hook is called before a value becomes current; false when absent.
    #[serde(default, deserialize_with = "lenient::flag")]
    pub before: Option<bool>,
    /// Whether the hook is called after a value became current; true when absent.
    #[serde(default, deserialize_with = "lenient::flag")]
    pub after: Option<bool>,
    /// CA certificates that replace the trust store of the system for this URL, PEM.
    pub roots: Option<String>,
}

/// A hook without its secret.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct HookView {
    /// Name of the hook, unique.
    pub name: String,
    /// URL that the hook calls.
    pub url: String,
    /// Whether the hook is called before a value becomes current.
    pub before: bool,
    /// Whether the hook is called after a value became current.
    pub after: bool,
    /// Time at which the hook was set, RFC 3339.
    pub set_at: String,
    /// Actor that set the hook.
    pub set_by: String,
}
