//! Limits and retention of a server.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A limit or a retention period in effect.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = Limit))]
pub struct LimitView {
    /// Key of the configuration, or the name of a built-in value.
    #[cfg_attr(feature = "schemas", schema(example = "limits.caller_per_s"))]
    pub name: String,
    /// Kind of the value: `limit`, `timeout` or `retention`.
    #[cfg_attr(feature = "schemas", schema(example = "limit"))]
    pub kind: String,
    /// The value: a number, or a list of texts.
    #[cfg_attr(feature = "schemas", schema(example = 100))]
    pub value: Value,
    /// Unit of a number, such as `seconds`; null for a count.
    pub unit: Option<String>,
    /// Source of the value: `default`, `file`, `environment` or `built-in`. A built-in value cannot be changed.
    #[cfg_attr(feature = "schemas", schema(example = "default"))]
    pub source: String,
    /// Path of the file, or name of the environment variable; null for other sources.
    pub origin: Option<String>,
    /// Environment variable that sets the value; null for a built-in value.
    #[cfg_attr(feature = "schemas", schema(example = "BULLA_LIMITS_CALLER_PER_S"))]
    pub variable: Option<String>,
    /// Short description of the value.
    pub meaning: String,
}
