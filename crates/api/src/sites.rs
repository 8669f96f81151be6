//! Sites of the key service, their nodes and enrollment tokens.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A site.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeySite))]
pub struct SiteView {
    /// Its identity.
    pub id: Uuid,
    /// Its name, unique.
    #[cfg_attr(feature = "schemas", schema(example = "frankfurt"))]
    pub name: String,
    /// What is so at all its nodes.
    #[cfg_attr(feature = "schemas", schema(example = json!({"country": "DE", "region": "EU"})))]
    pub attributes: BTreeMap<String, String>,
    /// Creation time.
    pub created_at: String,
    /// Time of the last change.
    pub updated_at: String,
}

/// A site to make, or what one shall be.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schemas", schema(as = KeySiteBody))]
pub struct SiteBody {
    /// Its name, unique.
    #[cfg_attr(feature = "schemas", schema(example = "frankfurt", min_length = 1, max_length = 128))]
    pub name: String,
    /// What is so at all its nodes: up to 32, names `[a-z][a-z0-9_-]*`, values `[A-Za-z0-9][A-Za-z0-9._-]*`.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(example = json!({"country": "DE", "region": "EU"})))]
    pub attributes: BTreeMap<String, String>,
}

/// A node of the key service.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeyNode))]
pub struct NodeView {
    /// Its identity.
    pub id: Uuid,
    /// Its name, unique.
    #[cfg_attr(feature = "schemas", schema(example = "frankfurt-1"))]
    pub name: String,
    /// Its site's name.
    #[cfg_attr(feature = "schemas", schema(example = "frankfurt"))]
    pub site: String,
    /// What is stated of it: its site's attributes, and its own over them.
    pub attributes: BTreeMap<String, String>,
    /// Its own attributes.
    pub own_attributes: BTreeMap<String, String>,
    /// Address for signing requests of other nodes.
    #[cfg_attr(feature = "schemas", schema(example = "10.1.0.7:2410"))]
    pub address: String,
    /// Whether the node is present: its heartbeats arrive.
    pub present: bool,
    /// Until when it is believed to be there without another word of it.
    pub lease_until: Option<String>,
    /// Milliseconds to the nearest others and back, as it last told this server.
    pub measured: BTreeMap<Uuid, u32>,
    /// When it was enrolled.
    pub enrolled_at: String,
    /// When its certificate ends; it renews it by itself.
    pub certificate_expires_at: String,
    /// When it was retired.
    pub retired_at: Option<String>,
    /// Whether it was retired because it is not trusted any more.
    pub hostile: bool,
}

/// How to retire a node.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct KeyNodeRetirement {
    /// It is not trusted any more, and neither is what was open to it.
    #[serde(default)]
    pub hostile: bool,
}

/// A token to make.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewKeyNodeToken {
    /// Name or identity of the site.
    #[cfg_attr(feature = "schemas", schema(example = "frankfurt"))]
    pub site: String,
    /// The node's own attributes, over its site's.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(example = json!({"security": "high"})))]
    pub attributes: BTreeMap<String, String>,
    /// Seconds it is good: an hour when absent, a month at most.
    #[cfg_attr(feature = "schemas", schema(minimum = 1, maximum = 2_592_000))]
    pub seconds: Option<i64>,
}

/// A token, without itself.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct KeyNodeTokenView {
    /// Its identity.
    pub id: Uuid,
    /// The site's name.
    pub site: String,
    /// The node's own attributes, over its site's.
    pub attributes: BTreeMap<String, String>,
    /// Actor that created it.
    pub created_by: String,
    /// When.
    pub created_at: String,
    /// After this it makes no node.
    pub expires_at: String,
    /// When it was used.
    pub used_at: Option<String>,
    /// The node it has made.
    pub node: Option<Uuid>,
}

/// A token just made.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct CreatedKeyNodeToken {
    /// The secret. It is shown this once.
    pub token: String,
    /// The stored part, without the secret.
    #[serde(flatten)]
    pub view: KeyNodeTokenView,
}

/// Which nodes to list.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct KeyNodeQuery {
    /// Name or identity of their site.
    pub site: Option<String>,
    /// Retired ones too.
    #[serde(default)]
    pub retired: bool,
}
