//! The key service's nodes, for people.

use std::collections::BTreeMap;

use http::StatusCode;
use serde::{Deserialize, Serialize};
use sites::policies::KeyPolicies;
use sites::{NodeQuery, Sites, attributes_of};
use store::places::NodeRow;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::attributes::{AREA, AttributesBody, shown_attributes, shown_pairs};
use crate::access::{Caller, Permission};
use crate::api::{Api, routes};
use crate::conditional::{IfMatch, Revision};
use crate::extract::{Json, Path, Query};
use crate::paging::{Listing, Paging, PagingParams};
use crate::problem::Problem;
use crate::state::Component;
use crate::time;

pub(super) fn routes() -> Api {
    Api::area(AREA)
        .route(Permission::NodeRead, routes!(list))
        .route(Permission::NodeRead, routes!(get_one))
        .route(Permission::NodeManage, routes!(retire))
}

/// A node of the key service.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = KeyNode)]
struct NodeView {
    /// Its identity.
    id: Uuid,
    /// Its name, unique.
    #[schema(example = "frankfurt-1")]
    name: String,
    /// Its site's name.
    #[schema(example = "frankfurt")]
    site: String,
    /// What is stated of it: its site's attributes, and its own over them.
    attributes: AttributesBody,
    /// Its own attributes.
    own_attributes: AttributesBody,
    /// Where the other nodes ask it to sign.
    #[schema(example = "10.1.0.7:2410")]
    address: String,
    /// Whether it is there: the others are told of it.
    present: bool,
    /// Until when it is believed to be there without another word of it.
    lease_until: Option<String>,
    /// Milliseconds to the nearest others and back, as it last told this server.
    measured: BTreeMap<Uuid, u32>,
    /// When it was enrolled.
    enrolled_at: String,
    /// When its certificate ends; it renews it by itself.
    certificate_expires_at: String,
    /// When it was retired.
    retired_at: Option<String>,
    /// Whether it was retired because it is not trusted any more.
    hostile: bool,
}

impl NodeView {
    fn of(places: &Sites, row: NodeRow) -> Self {
        Self {
            attributes: shown_pairs(&attributes_of(&row)),
            own_attributes: shown_attributes(&row.attributes),
            measured: places.measured(row.id),
            id: row.id,
            name: row.name,
            site: row.site_name,
            address: row.address,
            present: row.present,
            lease_until: (row.lease_until_us > 0).then(|| time::shown(row.lease_until_us)),
            enrolled_at: time::shown(row.enrolled_at_us),
            certificate_expires_at: time::shown(row.not_after_us),
            retired_at: time::maybe_shown(row.retired_at_us),
            hostile: row.hostile,
        }
    }
}

/// Which nodes to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct NodesParams {
    /// Name or identity of their site.
    site: Option<String>,
    /// Retired ones too.
    #[serde(default)]
    retired: bool,
}

/// Lists the key service's nodes, by name.
#[utoipa::path(get, path = "/api/v1/key-nodes", operation_id = "listKeyNodes", params(PagingParams, NodesParams),
    responses((status = 200, body = Listing<NodeView>)))]
async fn list(
    Component(places): Component<Sites>,
    paging: Paging,
    Query(params): Query<NodesParams>,
) -> Result<Json<Listing<NodeView>>, Problem> {
    let query = NodeQuery { site: params.site, retired: params.retired };
    let page = places.nodes(&query, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(Listing::of(page, |row| NodeView::of(&places, row))))
}

/// Shows a node, by its name or its identity.
#[utoipa::path(get, path = "/api/v1/key-nodes/{node}", operation_id = "getKeyNode",
    params(("node" = String, Path)), responses((status = 200, body = NodeView)))]
async fn get_one(
    Component(places): Component<Sites>,
    Path(node): Path<String>,
) -> Result<Revision<NodeView>, Problem> {
    let row = places.node_called(&node).await?;
    Ok(Revision(row.revision, NodeView::of(&places, row)))
}

/// How to retire a node.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct KeyNodeRetirement {
    /// It is not trusted any more, and neither is what was open to it.
    #[serde(default)]
    hostile: bool,
}

/// Retires a node.
///
/// It is not let in any more, and the others are told that it is gone. It comes back by a new token only. For a hostile one
/// every policy is rotated of which it could open keys; for one that is retired already too, and repeated it does what is
/// left.
#[utoipa::path(post, path = "/api/v1/key-nodes/{node}/retire", operation_id = "retireKeyNode",
    params(("node" = String, Path)), request_body = KeyNodeRetirement, responses((status = 204)))]
async fn retire(
    Component(places): Component<Sites>,
    Component(policies): Component<KeyPolicies>,
    caller: Caller,
    Path(node): Path<String>,
    if_match: IfMatch,
    Json(how): Json<KeyNodeRetirement>,
) -> Result<StatusCode, Problem> {
    let row = places.node_called(&node).await?;
    if_match.check(row.revision)?;
    // Before anything is done: a server without policies cannot do the half of it.
    let policies = if how.hostile { Some(&policies) } else { None };
    places.retire(row.id, how.hostile, caller.actor()).await?;
    if let Some(policies) = policies {
        policies.rotate_of_node(row.id, caller.actor()).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}
