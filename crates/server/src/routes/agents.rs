//! Agents, their groups and enrolment tokens, and the endpoints for agents themselves.

mod groups;
mod own;
mod tokens;

use agent::tables::AgentRow;
use agent::work::WorkError;
use agent::{AgentError, AgentQuery, Agents, EnrolError, Labels, labels_of};
use api::agents::{AgentPatch, AgentView, AgentsQuery};
use enrollment::CertifyError;
use http::StatusCode;
use uuid::Uuid;

use crate::access::{Caller, Permission};
use crate::conditional::{IfMatch, Revision};
use crate::extract::{Json, Path, Query};
use crate::paging::{Listing, PageQuery, Paging, listing};
use crate::problem::Problem;
use crate::routing::{Api, routes};
use crate::state::Component;
use crate::time;

/// `Retry-After` in seconds for requests of agents that failed temporarily.
const RETRY_SECONDS: u64 = 5;

pub(crate) fn routes() -> Api {
    Api::area("agents")
        .route(Permission::AgentRead, routes!(list))
        .route(Permission::AgentRead, routes!(get_one))
        .route(Permission::AgentManage, routes!(update))
        .route(Permission::AgentManage, routes!(retire))
        .merge(groups::routes())
        .merge(tokens::routes())
        .merge(own::routes())
}

fn agent_view(agents: &Agents, row: AgentRow) -> AgentView {
    AgentView {
        online: agents.is_online(&row),
        id: row.id,
        name: row.name,
        labels: labels_of(&row.labels),
        last_seen_at: time::shown(row.last_seen_at_us),
        hostname: row.facts.hostname,
        os: row.facts.os,
        arch: row.facts.arch,
        version: row.facts.version,
        addresses: serde_json::from_str(&row.facts.addresses).unwrap_or_default(),
        enrolled_at: time::shown(row.enrolled_at_us),
        certificate_expires_at: time::shown(row.not_after_us),
        retired_at: time::maybe_shown(row.retired_at_us),
    }
}

/// Lists the agents, by name.
#[utoipa::path(get, path = "/api/v1/agents", operation_id = "listAgents", params(PageQuery, AgentsQuery),
    responses((status = 200, body = Listing<AgentView>)))]
async fn list(
    Component(agents): Component<Agents>,
    paging: Paging,
    Query(params): Query<AgentsQuery>,
) -> Result<Json<Listing<AgentView>>, Problem> {
    let mut labels = selection(params.labels.as_deref().unwrap_or_default())?;
    if let Some(group) = &params.group {
        labels.extend(labels_of(&agents.group(group).await?.selector));
    }
    let query = AgentQuery { labels, online: params.online, retired: params.retired };
    let page = agents.list(&query, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, |row| agent_view(&agents, row))))
}

/// Parses `name=value` pairs, separated by commas.
fn selection(text: &str) -> Result<Labels, Problem> {
    let pairs = text.split(',').filter(|pair| !pair.trim().is_empty());
    pairs
        .map(|pair| {
            let (label, value) = pair.split_once('=').ok_or_else(|| {
                Problem::bad_request(format_args!(
                    "{pair:?} is not a label: write name=value, separated by commas"
                ))
            })?;
            Ok((label.trim().to_owned(), value.trim().to_owned()))
        })
        .collect()
}

/// Shows an agent.
#[utoipa::path(get, path = "/api/v1/agents/{id}", operation_id = "getAgent", params(("id" = Uuid, Path)),
    responses((status = 200, body = AgentView)))]
async fn get_one(
    Component(agents): Component<Agents>,
    Path(id): Path<Uuid>,
) -> Result<Revision<AgentView>, Problem> {
    let row = agents.agent(id).await?;
    Ok(Revision(row.revision, agent_view(&agents, row)))
}

/// Changes an agent's name or labels.
#[utoipa::path(patch, path = "/api/v1/agents/{id}", operation_id = "updateAgent", params(("id" = Uuid, Path)),
    request_body = AgentPatch, responses((status = 200, body = AgentView)))]
async fn update(
    Component(agents): Component<Agents>,
    caller: Caller,
    Path(id): Path<Uuid>,
    if_match: IfMatch,
    Json(patch): Json<AgentPatch>,
) -> Result<Revision<AgentView>, Problem> {
    let before = agents.agent(id).await?;
    if_match.check(before.revision)?;
    let row = agents.update(id, before.revision, patch.name, patch.labels, caller.actor()).await?;
    Ok(Revision(row.revision, agent_view(&agents, row)))
}

/// Retires an agent.
///
/// The agent gets no more work and can no longer authenticate. Certificates that it deployed stay in place.
#[utoipa::path(post, path = "/api/v1/agents/{id}/retire", operation_id = "retireAgent",
    params(("id" = Uuid, Path)), responses((status = 204)))]
async fn retire(
    Component(agents): Component<Agents>,
    caller: Caller,
    Path(id): Path<Uuid>,
    if_match: IfMatch,
) -> Result<StatusCode, Problem> {
    if_match.check(agents.agent(id).await?.revision)?;
    agents.retire(id, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

impl From<AgentError> for Problem {
    fn from(error: AgentError) -> Self {
        match error {
            AgentError::NotFound(what) => Self::not_found(format_args!("{what} with that name")),
            AgentError::Invalid(_) => Self::unprocessable(error),
            AgentError::NameTaken(_) => Self::conflict(error).hint("choose another name"),
            AgentError::Changed => Self::precondition_failed(error),
            AgentError::Retired => Self::conflict(error),
            AgentError::OtherKey => Self::forbidden(error),
            AgentError::Sealed(_) => Self::internal(error),
            AgentError::Certify(error) => error.into(),
            AgentError::Work(WorkError::NotFound) => Self::not_found("job with that ID for this agent"),
            AgentError::Work(WorkError::Refused(_)) => Self::unprocessable(error),
            AgentError::Work(WorkError::Unavailable(_)) => Self::unavailable(error, RETRY_SECONDS),
            AgentError::Work(WorkError::Store(error)) | AgentError::Store(error) => error.into(),
        }
    }
}

impl From<CertifyError> for Problem {
    fn from(error: CertifyError) -> Self {
        match error {
            CertifyError::Refused(_) => Self::unprocessable(error),
            CertifyError::Unavailable(_) => Self::unavailable(error, RETRY_SECONDS),
        }
    }
}

impl From<EnrolError> for Problem {
    fn from(error: EnrolError) -> Self {
        match error {
            EnrolError::Token => {
                Self::unauthenticated(error).hint("create a new one: POST /api/v1/agent-tokens")
            }
            EnrolError::Csr(_) => Self::unprocessable(error),
            EnrolError::Agent(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_selectors_are_parsed() {
        let read = |text: &str| selection(text).map(|labels| serde_json::json!(labels).to_string()).ok();
        assert_eq!(read("").as_deref(), Some("{}"));
        assert_eq!(read("env=prod, role=web").as_deref(), Some(r#"{"env":"prod","role":"web"}"#));
        assert_eq!(read("a=").as_deref(), Some(r#"{"a":""}"#));
        assert_eq!(read("env"), None);
    }

    #[test]
    fn agent_errors_map_to_retryable_and_permanent_status_codes() {
        let status = |error: AgentError| Problem::from(error).status().as_u16();
        assert_eq!(status(WorkError::NotFound.into()), 404);
        assert_eq!(status(WorkError::Unavailable("x".to_owned()).into()), 503);
        assert_eq!(status(CertifyError::Unavailable("x".to_owned()).into()), 503);
        assert_eq!(status(CertifyError::Refused("x".to_owned()).into()), 422);
        assert_eq!(status(AgentError::OtherKey), 403);
        assert_eq!(Problem::from(EnrolError::Token).status().as_u16(), 401);
    }
}
