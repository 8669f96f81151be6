//! Enrolment tokens.

use agent::tables::AgentTokenRow;
use agent::{Agents, NewToken, labels_of};
use api::agents::{AgentTokenView, CreatedAgentToken, NewAgentToken};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use uuid::Uuid;

use crate::access::{Caller, Permission};
use crate::extract::{Json, Path};
use crate::idempotency::HoldsSecret;
use crate::paging::{Listing, PageQuery, Paging, listing};
use crate::problem::Problem;
use crate::routing::{Api, routes};
use crate::state::Component;
use crate::time;

/// Default lifetime of a token in seconds: an hour.
const SECONDS: i64 = 3_600;

pub(super) fn routes() -> Api {
    Api::area("agents")
        .route(Permission::AgentEnroll, routes!(list))
        .route(Permission::AgentEnroll, routes!(create))
        .route(Permission::AgentEnroll, routes!(delete))
}

fn agent_token_view(row: AgentTokenRow) -> AgentTokenView {
    AgentTokenView {
        id: row.id,
        labels: labels_of(&row.labels),
        created_by: row.created_by,
        created_at: time::shown(row.created_at_us),
        expires_at: time::shown(row.expires_at_us),
        used_at: time::maybe_shown(row.used_at_us),
        agent: row.agent,
    }
}

/// Lists the enrolment tokens, newest first.
#[utoipa::path(get, path = "/api/v1/agent-tokens", operation_id = "listAgentTokens", params(PageQuery),
    responses((status = 200, body = Listing<AgentTokenView>)))]
async fn list(
    Component(agents): Component<Agents>,
    paging: Paging,
) -> Result<Json<Listing<AgentTokenView>>, Problem> {
    let page = agents.tokens(paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, agent_token_view)))
}

/// Creates an enrolment token, which enrols one host as an agent, once.
#[utoipa::path(post, path = "/api/v1/agent-tokens", operation_id = "createAgentToken",
    request_body = NewAgentToken, responses((status = 201, body = CreatedAgentToken)))]
async fn create(
    Component(agents): Component<Agents>,
    caller: Caller,
    Json(new): Json<NewAgentToken>,
) -> Result<Response, Problem> {
    let new = NewToken { labels: new.labels, seconds: new.seconds.unwrap_or(SECONDS) };
    let made = agents.create_token(new, caller.actor()).await?;
    let body = CreatedAgentToken { token: made.token.as_str().to_owned(), view: agent_token_view(made.row) };
    let mut response = (StatusCode::CREATED, Json(body)).into_response();
    response.extensions_mut().insert(HoldsSecret);
    Ok(response)
}

/// Revokes an enrolment token.
#[utoipa::path(delete, path = "/api/v1/agent-tokens/{id}", operation_id = "deleteAgentToken",
    params(("id" = Uuid, Path)), responses((status = 204)))]
async fn delete(
    Component(agents): Component<Agents>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<StatusCode, Problem> {
    agents.delete_token(id, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}
