//! Search over all kinds of objects.

use serde::{Deserialize, Serialize};

/// Query parameters of `GET /api/v1/search`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct SearchQuery {
    /// Search text, 2 to 253 characters: a part of a name, the beginning of a serial number or fingerprint, a host, an owner, or
    /// the path of a credential.
    #[cfg_attr(feature = "schemas", param(example = "shop.example", min_length = 2, max_length = 253))]
    pub q: String,
    /// Maximum number of results of each kind; 10 when absent.
    #[cfg_attr(feature = "schemas", param(minimum = 1, maximum = 50))]
    pub limit: Option<u32>,
}

/// Search results, the best matches first.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SearchView {
    /// Results of all kinds, at most `limit` of each kind.
    pub hits: Vec<HitView>,
    /// Whether there are more results: true if results of a kind were omitted or if the search stopped at a limit.
    pub more: bool,
}

/// An object that a search found.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct HitView {
    /// Kind of object: `certificate` (managed), `issued` (issued by a CA of this server), `endpoint`, `owner`, `team`, `authority`,
    /// `credential`.
    #[cfg_attr(feature = "schemas", schema(example = "certificate"))]
    pub kind: String,
    /// Identifier of the object, or its name if it has no identifier.
    pub id: String,
    /// Display name of the object.
    #[cfg_attr(feature = "schemas", schema(example = "shop.example.org"))]
    pub name: String,
    /// Property that matched: `name`, `serial`, `fingerprint` or `key`.
    #[cfg_attr(feature = "schemas", schema(example = "name"))]
    pub matched: String,
    /// Kind of match: `exact`, `prefix` or `part`.
    #[cfg_attr(feature = "schemas", schema(example = "prefix"))]
    pub how: String,
    /// State of the object, if it has one.
    #[cfg_attr(feature = "schemas", schema(example = "active"))]
    pub status: Option<String>,
    /// Expiry time of the certificate, RFC 3339.
    pub not_after: Option<String>,
    /// Path of the object in the API.
    #[cfg_attr(
        feature = "schemas",
        schema(example = "/api/v1/certificates/01a1fd45-801d-7c3e-b6a1-5d0c0f6f1f10")
    )]
    pub href: String,
}
