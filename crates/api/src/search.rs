//! One search over everything.

use serde::{Deserialize, Serialize};

/// Parameters of a search.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct SearchQuery {
    /// A name or a part of it, the beginning of a serial number or fingerprint, a host, an owner, the path of a credential.
    /// Two characters at least, 253 at most.
    #[cfg_attr(feature = "schemas", param(example = "shop.example", min_length = 2, max_length = 253))]
    pub q: String,
    /// Most hits of each kind; 10 when absent.
    #[cfg_attr(feature = "schemas", param(minimum = 1, maximum = 50))]
    pub limit: Option<u32>,
}

/// What was found, the best hits first.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SearchView {
    /// The hits.
    pub hits: Vec<HitView>,
    /// True when a kind has more hits than are shown, or when looking stopped at a bound.
    pub more: bool,
}

/// A hit.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct HitView {
    /// `certificate` (under management), `issued` (by the own CA), `endpoint`, `owner`, `team`, `authority`, `credential`.
    #[cfg_attr(feature = "schemas", schema(example = "certificate"))]
    pub kind: String,
    /// Which: an id, or the name of what has no id.
    pub id: String,
    /// The display name.
    #[cfg_attr(feature = "schemas", schema(example = "shop.example.org"))]
    pub name: String,
    /// What matched: `name`, `serial`, `fingerprint` or `key`.
    #[cfg_attr(feature = "schemas", schema(example = "name"))]
    pub matched: String,
    /// How: `exact`, `prefix` or `part`.
    #[cfg_attr(feature = "schemas", schema(example = "prefix"))]
    pub how: String,
    /// The state, for objects that have one.
    #[cfg_attr(feature = "schemas", schema(example = "active"))]
    pub status: Option<String>,
    /// When its certificate ends, RFC 3339.
    pub not_after: Option<String>,
    /// Path of the object in the API.
    #[cfg_attr(
        feature = "schemas",
        schema(example = "/api/v1/certificates/01a1fd45-801d-7c3e-b6a1-5d0c0f6f1f10")
    )]
    pub href: String,
}
