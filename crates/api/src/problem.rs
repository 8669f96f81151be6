//! Problem documents (RFC 9457).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The document, for the API's description.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = Problem))]
pub struct ProblemDocument {
    /// Which kind of problem, as a URI that never changes its meaning.
    #[serde(rename = "type")]
    #[cfg_attr(feature = "schemas", schema(example = "https://bulla.dev/problems/not-found"))]
    pub kind: String,
    /// The kind in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong with this request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// A hint: what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// This occurrence, as a URI to look for in the server's log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Members of this kind of problem.
    #[serde(flatten)]
    #[cfg_attr(feature = "schemas", schema(additional_properties))]
    pub members: Map<String, Value>,
}
