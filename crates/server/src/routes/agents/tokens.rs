//! Enrolment tokens.

use agent::{Agents, Labels, NewToken, labels_of};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use store::agents::AgentTokenRow;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::access::{Caller, Permission};
use crate::api::{Api, routes};
use crate::extract::{Json, Path};
use crate::idempotency::HoldsSecret;
use crate::paging::{Listing, Paging, PagingParams};
use crate::problem::Problem;
use crate::state::Component;
use crate::time;

/// Seconds a token is good when nothing is asked: an hour.
const SECONDS: i64 = 3_600;

pub(super) fn routes() -> Api {
    Api::area("agents")
        .route(Permission::AgentEnroll, routes!(list))
        .route(Permission::AgentEnroll, routes!(create))
        .route(Permission::AgentEnroll, routes!(delete))
}

/// A token to make.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewAgentToken {
    /// Labels its agent gets.
    #[serde(default)]
    labels: Labels,
    /// Seconds it is good: an hour when absent, a month at most.
    #[schema(minimum = 1, maximum = 2_592_000)]
    seconds: Option<i64>,
}

/// A token, without itself.
#[derive(Debug, Serialize, ToSchema)]
struct AgentTokenView {
    /// Its identity.
    id: Uuid,
    /// Labels its agent gets.
    labels: Labels,
    /// Who made it.
    created_by: String,
    /// When.
    created_at: String,
    /// After this it enrols nobody.
    expires_at: String,
    /// When it was used.
    used_at: Option<String>,
    /// The agent it has enrolled.
    agent: Option<Uuid>,
}

impl AgentTokenView {
    fn of(row: AgentTokenRow) -> Self {
        Self {
            id: row.id,
            labels: labels_of(&row.labels),
            created_by: row.created_by,
            created_at: time::shown(row.created_at_us),
            expires_at: time::shown(row.expires_at_us),
            used_at: time::maybe_shown(row.used_at_us),
            agent: row.agent,
        }
    }
}

/// A token just made.
#[derive(Serialize, ToSchema)]
struct MadeAgentToken {
    /// The secret. It is shown this once.
    token: String,
    /// What is kept of it.
    #[serde(flatten)]
    view: AgentTokenView,
}

/// Lists the enrolment tokens, newest first.
#[utoipa::path(get, path = "/api/v1/agent-tokens", operation_id = "listAgentTokens", params(PagingParams),
    responses((status = 200, body = Listing<AgentTokenView>)))]
async fn list(
    Component(agents): Component<Agents>,
    paging: Paging,
) -> Result<Json<Listing<AgentTokenView>>, Problem> {
    let page = agents.tokens(paging.after.as_ref(), paging.limit).await?;
    Ok(Json(Listing::of(page, AgentTokenView::of)))
}

/// Makes an enrolment token: it makes one host an agent, once.
#[utoipa::path(post, path = "/api/v1/agent-tokens", operation_id = "createAgentToken",
    request_body = NewAgentToken, responses((status = 201, body = MadeAgentToken)))]
async fn create(
    Component(agents): Component<Agents>,
    caller: Caller,
    Json(new): Json<NewAgentToken>,
) -> Result<Response, Problem> {
    let new = NewToken { labels: new.labels, seconds: new.seconds.unwrap_or(SECONDS) };
    let made = agents.create_token(new, caller.actor()).await?;
    let body = MadeAgentToken { token: made.token.as_str().to_owned(), view: AgentTokenView::of(made.row) };
    let mut response = (StatusCode::CREATED, Json(body)).into_response();
    response.extensions_mut().insert(HoldsSecret);
    Ok(response)
}

/// Takes an enrolment token back.
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
