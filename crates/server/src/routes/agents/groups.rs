//! Groups of agents, by labels.

use agent::tables::AgentGroupRow;
use agent::{Agents, labels_of};
use api::agents::{AgentGroupChange, AgentGroupView, NewAgentGroup};
use axum::response::{IntoResponse, Response};
use http::StatusCode;

use crate::access::{Caller, Permission};
use crate::conditional::{IfMatch, Revision};
use crate::extract::{Json, Path};
use crate::paging::{Listing, PageQuery, Paging, listing};
use crate::problem::Problem;
use crate::routing::{Api, routes};
use crate::state::Component;
use crate::time;

pub(super) fn routes() -> Api {
    Api::area("agents")
        .route(Permission::AgentRead, routes!(list))
        .route(Permission::AgentManage, routes!(create))
        .route(Permission::AgentRead, routes!(get_one))
        .route(Permission::AgentManage, routes!(replace))
        .route(Permission::AgentManage, routes!(delete))
}

fn agent_group_view(row: AgentGroupRow) -> AgentGroupView {
    AgentGroupView {
        name: row.name,
        selector: labels_of(&row.selector),
        description: row.description,
        created_at: time::shown(row.created_at_us),
        updated_at: time::shown(row.updated_at_us),
    }
}

/// Lists the groups of agents, by name. `GET /api/v1/agents?group=NAME` lists a group's agents.
#[utoipa::path(get, path = "/api/v1/agent-groups", operation_id = "listAgentGroups", params(PageQuery),
    responses((status = 200, body = Listing<AgentGroupView>)))]
async fn list(
    Component(agents): Component<Agents>,
    paging: Paging,
) -> Result<Json<Listing<AgentGroupView>>, Problem> {
    let page = agents.groups(paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, agent_group_view)))
}

/// Creates a group of agents.
#[utoipa::path(post, path = "/api/v1/agent-groups", operation_id = "createAgentGroup",
    request_body = NewAgentGroup, responses((status = 201, body = AgentGroupView)))]
async fn create(
    Component(agents): Component<Agents>,
    caller: Caller,
    Json(new): Json<NewAgentGroup>,
) -> Result<Response, Problem> {
    let row = agents.put_group(&new.name, &new.selector, &new.description, None, caller.actor()).await?;
    Ok((StatusCode::CREATED, Revision(row.revision, agent_group_view(row))).into_response())
}

/// Shows a group of agents.
#[utoipa::path(get, path = "/api/v1/agent-groups/{name}", operation_id = "getAgentGroup",
    params(("name" = String, Path)), responses((status = 200, body = AgentGroupView)))]
async fn get_one(
    Component(agents): Component<Agents>,
    Path(name): Path<String>,
) -> Result<Revision<AgentGroupView>, Problem> {
    let row = agents.group(&name).await?;
    Ok(Revision(row.revision, agent_group_view(row)))
}

/// Changes a group of agents.
#[utoipa::path(put, path = "/api/v1/agent-groups/{name}", operation_id = "replaceAgentGroup",
    params(("name" = String, Path)), request_body = AgentGroupChange,
    responses((status = 200, body = AgentGroupView)))]
async fn replace(
    Component(agents): Component<Agents>,
    caller: Caller,
    Path(name): Path<String>,
    if_match: IfMatch,
    Json(change): Json<AgentGroupChange>,
) -> Result<Revision<AgentGroupView>, Problem> {
    let revision = agents.group(&name).await?.revision;
    if_match.check(revision)?;
    let row = agents
        .put_group(&name, &change.selector, &change.description, Some(revision), caller.actor())
        .await?;
    Ok(Revision(row.revision, agent_group_view(row)))
}

/// Deletes a group of agents; its agents remain.
#[utoipa::path(delete, path = "/api/v1/agent-groups/{name}", operation_id = "deleteAgentGroup",
    params(("name" = String, Path)), responses((status = 204)))]
async fn delete(
    Component(agents): Component<Agents>,
    caller: Caller,
    Path(name): Path<String>,
    if_match: IfMatch,
) -> Result<StatusCode, Problem> {
    if_match.check(agents.group(&name).await?.revision)?;
    agents.delete_group(&name, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}
