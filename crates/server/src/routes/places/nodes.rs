//! Administration of the key service's nodes.

use api::sites::{KeyNodeQuery, KeyNodeRetirement, NodeView};
use http::StatusCode;
use sites::policies::KeyPolicies;
use sites::tables::{NodeRetirement, NodeRow};
use sites::{NodeQuery, Sites, attributes_of};

use super::attributes::{AREA, attribute_pairs, shown_attributes};
use crate::access::{Caller, Permission};
use crate::conditional::{IfMatch, Revision};
use crate::extract::{Json, Path, Query};
use crate::paging::{Listing, PageQuery, Paging, listing};
use crate::problem::Problem;
use crate::routing::{Api, routes};
use crate::state::Component;
use crate::time;

pub(super) fn routes() -> Api {
    Api::area(AREA)
        .route(Permission::NodeRead, routes!(list))
        .route(Permission::NodeRead, routes!(get_one))
        .route(Permission::NodeManage, routes!(retire))
}

fn node_view(sites: &Sites, row: NodeRow) -> NodeView {
    NodeView {
        attributes: attribute_pairs(&attributes_of(&row)),
        own_attributes: shown_attributes(&row.attributes),
        measured: sites.measured(row.id),
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

/// Lists the key service's nodes, by name.
#[utoipa::path(get, path = "/api/v1/key-nodes", operation_id = "listKeyNodes", params(PageQuery, KeyNodeQuery),
    responses((status = 200, body = Listing<NodeView>)))]
async fn list(
    Component(sites): Component<Sites>,
    paging: Paging,
    Query(params): Query<KeyNodeQuery>,
) -> Result<Json<Listing<NodeView>>, Problem> {
    let query = NodeQuery { site: params.site, retired: params.retired };
    let page = sites.nodes(&query, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, |row| node_view(&sites, row))))
}

/// Shows a node, by its name or ID.
#[utoipa::path(get, path = "/api/v1/key-nodes/{node}", operation_id = "getKeyNode",
    params(("node" = String, Path)), responses((status = 200, body = NodeView)))]
async fn get_one(
    Component(sites): Component<Sites>,
    Path(node): Path<String>,
) -> Result<Revision<NodeView>, Problem> {
    let row = sites.node_by_name_or_id(&node).await?;
    Ok(Revision(row.revision, node_view(&sites, row)))
}

/// Retires a node.
///
/// The node can no longer authenticate, and the other nodes are notified. It can only rejoin with a new token. For a hostile node,
/// also rotates every policy whose keys the node could decrypt. The request also works for a node that is already retired, and can
/// be repeated after an interruption.
#[utoipa::path(post, path = "/api/v1/key-nodes/{node}/retire", operation_id = "retireKeyNode",
    params(("node" = String, Path)), request_body = KeyNodeRetirement, responses((status = 204)))]
async fn retire(
    Component(sites): Component<Sites>,
    Component(policies): Component<KeyPolicies>,
    caller: Caller,
    Path(node): Path<String>,
    if_match: IfMatch,
    Json(how): Json<KeyNodeRetirement>,
) -> Result<StatusCode, Problem> {
    let row = sites.node_by_name_or_id(&node).await?;
    if_match.check(row.revision)?;
    // Checked before any change: without policies the server could complete only half of the request.
    let (retirement, policies) = if how.hostile {
        (NodeRetirement::Hostile, Some(&policies))
    } else {
        (NodeRetirement::Ordinary, None)
    };
    sites.retire(row.id, retirement, caller.actor()).await?;
    if let Some(policies) = policies {
        policies.rotate_policies_of_node(row.id, caller.actor()).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}
