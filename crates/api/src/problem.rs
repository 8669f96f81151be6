//! Problem documents (RFC 9457).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A problem document, as described in the OpenAPI document.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = Problem))]
pub struct ProblemDocument {
    /// Kind of problem, as a URI whose meaning never changes.
    #[serde(rename = "type")]
    #[cfg_attr(feature = "schemas", schema(example = "https://bulla.dev/problems/not-found"))]
    pub kind: String,
    /// Short description of the kind of problem.
    pub title: String,
    /// HTTP status code.
    pub status: u16,
    /// Error description for this request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Suggested action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// URI of this occurrence, which the server log contains too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Further members of this kind of problem.
    #[serde(flatten)]
    #[cfg_attr(feature = "schemas", schema(additional_properties))]
    pub members: Map<String, Value>,
}
