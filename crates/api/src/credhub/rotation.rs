//! Rotation of credentials: policies, planned rotations, hooks. Not in CredHub.

use serde::{Deserialize, Serialize};

use super::lenient;

/// The query of planned rotations, and of the policy to remove.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct RotationQuery {
    /// A name, or all below a path: `/team/*`.
    pub path: Option<String>,
}

/// The query of the hook to remove.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct HookQuery {
    /// The hook's name.
    pub name: Option<String>,
}

/// A policy to set: `PUT /api/v1/rotation-policies`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RotationPolicyRequest {
    /// A name, or all below a path: `/team/*`.
    #[serde(default, deserialize_with = "lenient::text")]
    pub path: String,
    /// Rotate this long after the version was made, s.
    #[serde(default, deserialize_with = "lenient::number")]
    pub every_s: Option<u32>,
    /// Rotate a certificate this long before it expires, s.
    #[serde(default, deserialize_with = "lenient::number")]
    pub before_expiry_s: Option<u32>,
    /// Rotate a certificate when this much of its lifetime is left, %.
    #[serde(default, deserialize_with = "lenient::number")]
    pub before_expiry_percent: Option<u32>,
    /// How long both certificates of an authority are trusted before each further step, s.
    #[serde(default, deserialize_with = "lenient::number")]
    pub overlap_s: Option<u32>,
    /// The hook that is called.
    pub hook: Option<String>,
}

/// A policy.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RotationPolicyView {
    /// A name, or all below a path: `/team/*`.
    pub path: String,
    /// Rotate this long after the version was made, s.
    pub every_s: Option<i64>,
    /// Rotate a certificate this long before it expires, s.
    pub before_expiry_s: Option<i64>,
    /// Rotate a certificate when this much of its lifetime is left, %.
    pub before_expiry_percent: Option<i64>,
    /// How long both certificates of an authority are trusted before each further step, s.
    pub overlap_s: i64,
    /// The hook that is called.
    pub hook: Option<String>,
    /// When it was set, RFC 3339.
    pub set_at: String,
    /// Actor that set it.
    pub set_by: String,
}

/// A planned rotation.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct PlannedView {
    /// The credential's name.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The path of the policy.
    pub policy: String,
    /// When it is due, RFC 3339.
    pub due_at: String,
    /// The step that is next.
    pub step: String,
    /// Failures in a row.
    pub failures: i64,
    /// The last error.
    pub error: Option<String>,
    /// Whether the current version was set and not generated, so that it is not rotated.
    pub set_by_hand: bool,
}

/// What to rotate now: `POST /api/v1/rotations/now`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RotateRequest {
    /// A name, or all that is planned below a path: `/team/*`.
    #[serde(default, deserialize_with = "lenient::text")]
    pub path: String,
}

/// Names whose rotation begins now.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RotateView {
    /// The name or path.
    pub path: String,
    /// How many credentials are due now.
    pub due: u64,
}

/// All hooks.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Hooks {
    /// The hooks.
    pub items: Vec<HookView>,
}

/// A hook to set: `PUT /api/v1/rotation-hooks`. `S` is the type of secrets.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HookRequest<S = String> {
    /// Its name.
    #[serde(default, deserialize_with = "lenient::text")]
    pub name: String,
    /// Its address.
    #[serde(default, deserialize_with = "lenient::text")]
    pub url: String,
    /// The secret that signs each request to it.
    pub secret: Option<S>,
    /// Whether it is asked before a value becomes current; false when absent.
    #[serde(default, deserialize_with = "lenient::flag")]
    pub before: Option<bool>,
    /// Whether it is notified after; true when absent.
    #[serde(default, deserialize_with = "lenient::flag")]
    pub after: Option<bool>,
    /// Certificates to trust there in place of the system's, PEM.
    pub roots: Option<String>,
}

/// A hook, without its secret.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct HookView {
    /// Its name.
    pub name: String,
    /// Its address.
    pub url: String,
    /// Whether it is asked before a value becomes current.
    pub before: bool,
    /// Whether it is notified after.
    pub after: bool,
    /// When it was set, RFC 3339.
    pub set_at: String,
    /// Actor that set it.
    pub set_by: String,
}
