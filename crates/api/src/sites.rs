//! Sites of the key service, their nodes and enrolment tokens.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A site of the key service, with the attributes that apply to all its nodes.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeySite))]
pub struct SiteView {
    /// UUID of the site, used in `/api/v1/key-sites/{site}`.
    pub id: Uuid,
    /// Name of the site, unique.
    #[cfg_attr(feature = "schemas", schema(example = "frankfurt"))]
    pub name: String,
    /// Attributes that apply to all nodes of the site.
    #[cfg_attr(feature = "schemas", schema(example = json!({"country": "DE", "region": "EU"})))]
    pub attributes: BTreeMap<String, String>,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// Time of the last change, RFC 3339.
    pub updated_at: String,
}

/// A site to create or replace.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schemas", schema(as = KeySiteBody))]
pub struct SiteBody {
    /// Name of the site, unique.
    #[cfg_attr(feature = "schemas", schema(example = "frankfurt", min_length = 1, max_length = 128))]
    pub name: String,
    /// Attributes that apply to all nodes of the site: up to 32, names `[a-z][a-z0-9_-]*`, values `[A-Za-z0-9][A-Za-z0-9._-]*`.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(example = json!({"country": "DE", "region": "EU"})))]
    pub attributes: BTreeMap<String, String>,
}

/// A node of the key service.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeyNode))]
pub struct NodeView {
    /// UUID of the node, used in `/api/v1/key-nodes/{node}`.
    pub id: Uuid,
    /// Name of the node, unique.
    #[cfg_attr(feature = "schemas", schema(example = "frankfurt-1"))]
    pub name: String,
    /// Name of the site of the node.
    #[cfg_attr(feature = "schemas", schema(example = "frankfurt"))]
    pub site: String,
    /// Attributes of the node. Its own attributes override attributes of the site with the same name.
    pub attributes: BTreeMap<String, String>,
    /// Attributes of the node itself, without its site's attributes.
    pub own_attributes: BTreeMap<String, String>,
    /// Address (`HOST:PORT`) to which other nodes send signing requests.
    #[cfg_attr(feature = "schemas", schema(example = "10.1.0.7:2410"))]
    pub address: String,
    /// Whether the server receives heartbeats of the node.
    pub present: bool,
    /// Time until which the node counts as present without another heartbeat.
    pub lease_until: Option<String>,
    /// Round-trip times in milliseconds to the nearest other nodes, as last reported to this server.
    pub measured: BTreeMap<Uuid, u32>,
    /// Enrolment time, RFC 3339.
    pub enrolled_at: String,
    /// Expiry time of the certificate. The node renews the certificate itself.
    pub certificate_expires_at: String,
    /// Time at which the node was retired, RFC 3339.
    pub retired_at: Option<String>,
    /// Whether the node was retired because it is no longer trusted.
    pub hostile: bool,
}

/// Options for retiring a node.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct KeyNodeRetirement {
    /// Whether the node is no longer trusted. All keys that it could decrypt are then no longer trusted either.
    #[serde(default)]
    pub hostile: bool,
}

/// A node token to create.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewKeyNodeToken {
    /// Name or identifier of the site.
    #[cfg_attr(feature = "schemas", schema(example = "frankfurt"))]
    pub site: String,
    /// Attributes of the node. They override attributes of the site with the same name.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(example = json!({"security": "high"})))]
    pub attributes: BTreeMap<String, String>,
    /// Lifetime in seconds: one hour when absent, one month at most.
    #[cfg_attr(feature = "schemas", schema(minimum = 1, maximum = 2_592_000))]
    pub seconds: Option<i64>,
}

/// A node token without its secret.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct KeyNodeTokenView {
    /// UUID of the token, used in `/api/v1/key-node-tokens/{id}`.
    pub id: Uuid,
    /// Name of the site.
    pub site: String,
    /// Attributes of the node. They override attributes of the site with the same name.
    pub attributes: BTreeMap<String, String>,
    /// Actor that created the token.
    pub created_by: String,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// Expiry time. The token enrols no node after this time.
    pub expires_at: String,
    /// Time at which the token was used, RFC 3339.
    pub used_at: Option<String>,
    /// Node that enrolled with the token.
    pub node: Option<Uuid>,
}

/// Response to the creation of a node token: the secret and the metadata of the token.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct CreatedKeyNodeToken {
    /// The secret token. It is shown only in this response.
    pub token: String,
    /// The token without the secret.
    #[serde(flatten)]
    pub view: KeyNodeTokenView,
}

/// Query parameters of `GET /api/v1/key-nodes`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct KeyNodeQuery {
    /// Only nodes of this site, by name or identifier.
    pub site: Option<String>,
    /// Whether to include retired nodes.
    #[serde(default)]
    pub retired: bool,
}
