//! Targets: where agents deploy certificates to.

use agent::deploy::Target;
use agent::{Agents, NewTarget, TargetView};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{HeaderValue, LOCATION};
use serde::{Deserialize, Serialize};
use store::agents::DeploymentRow;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use x509::Fingerprint;

use crate::access::{Caller, Permission};
use crate::api::{Api, routes};
use crate::conditional::{IfMatch, Revision};
use crate::extract::{Json, Path, Query};
use crate::paging::{Listing, Paging, PagingParams};
use crate::problem::Problem;
use crate::state::Component;
use crate::time;

/// States of a deployment, by their numbers in the database.
const STATES: [&str; 7] =
    ["waiting", "deployed", "unchanged", "failed", "rolled_back", "broken", "cancelled"];

pub(crate) fn routes() -> Api {
    Api::area("targets")
        .route(Permission::TargetRead, routes!(list))
        .route(Permission::TargetManage, routes!(create))
        .route(Permission::TargetRead, routes!(get_one))
        .route(Permission::TargetManage, routes!(replace))
        .route(Permission::TargetManage, routes!(delete))
        .route(Permission::TargetRead, routes!(deployments))
}

/// A target.
#[derive(Debug, Serialize, ToSchema)]
struct DeployTargetView {
    /// Its identity.
    id: Uuid,
    /// Its name, unique.
    #[schema(example = "web-1 nginx")]
    name: String,
    /// Its agent.
    agent: Uuid,
    /// Its kind: `nginx`, `apache`, `haproxy`, `caddy`, `traefik`, `envoy`, `postfix`, `dovecot`, `files`, `pkcs12`,
    /// `jks`, `exec`.
    kind: String,
    /// Where it is, by kind; passwords are replaced.
    #[schema(value_type = Object, example = json!({"type": "nginx", "fullchain": "/etc/nginx/tls/a.pem",
        "key": "/etc/nginx/tls/a.key", "verify": {"port": 443, "server_name": "a.example"}}))]
    target: Target,
    /// When it was made.
    created_at: String,
    /// When it last changed.
    updated_at: String,
}

impl DeployTargetView {
    fn of(view: TargetView) -> Self {
        Self {
            id: view.row.id,
            name: view.row.settings.name,
            agent: view.row.settings.agent,
            kind: view.row.settings.kind,
            target: view.target,
            created_at: time::shown(view.row.created_at_us),
            updated_at: time::shown(view.row.updated_at_us),
        }
    }
}

/// A target to make, or as it is to be.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct DeployTarget {
    /// Its name.
    #[schema(min_length = 1, max_length = 128)]
    name: String,
    /// Its agent.
    agent: Uuid,
    /// Where it is, by kind. A password given as it is shown stays as it was.
    #[schema(value_type = Object, example = json!({"type": "files", "key": {"path": "/etc/ssl/a.key", "mode": "0640"},
        "fullchain": "/etc/ssl/a.pem", "reload": ["systemctl", "reload", "app"]}))]
    target: serde_json::Value,
}

impl DeployTarget {
    fn checked(self) -> Result<NewTarget, Problem> {
        let target = serde_json::from_value(self.target)
            .map_err(|error| Problem::unprocessable(format_args!("target: {error}")))?;
        Ok(NewTarget { name: self.name, agent: self.agent, target })
    }
}

/// Which targets to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct TargetsParams {
    /// Those of an agent.
    agent: Option<Uuid>,
}

/// Lists the targets, by name.
#[utoipa::path(get, path = "/api/v1/targets", operation_id = "listTargets", params(PagingParams, TargetsParams),
    responses((status = 200, body = Listing<DeployTargetView>)))]
async fn list(
    Component(agents): Component<Agents>,
    paging: Paging,
    Query(params): Query<TargetsParams>,
) -> Result<Json<Listing<DeployTargetView>>, Problem> {
    let page = agents.targets(params.agent, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(Listing::of(page, DeployTargetView::of)))
}

/// Makes a target.
#[utoipa::path(post, path = "/api/v1/targets", operation_id = "createTarget", request_body = DeployTarget,
    responses((status = 201, body = DeployTargetView)))]
async fn create(
    Component(agents): Component<Agents>,
    caller: Caller,
    Json(new): Json<DeployTarget>,
) -> Result<Response, Problem> {
    let view = agents.create_target(new.checked()?, caller.actor()).await?;
    let place = format!("/api/v1/targets/{}", view.row.id);
    let place = HeaderValue::from_str(&place).map_err(Problem::internal)?;
    let revision = Revision(view.row.revision, DeployTargetView::of(view));
    Ok((StatusCode::CREATED, [(LOCATION, place)], revision).into_response())
}

/// Shows a target.
#[utoipa::path(get, path = "/api/v1/targets/{id}", operation_id = "getTarget", params(("id" = Uuid, Path)),
    responses((status = 200, body = DeployTargetView)))]
async fn get_one(
    Component(agents): Component<Agents>,
    Path(id): Path<Uuid>,
) -> Result<Revision<DeployTargetView>, Problem> {
    let view = agents.target(id).await?;
    Ok(Revision(view.row.revision, DeployTargetView::of(view)))
}

/// Changes a target.
///
/// What is deployed there stays until the next deployment.
#[utoipa::path(put, path = "/api/v1/targets/{id}", operation_id = "replaceTarget", params(("id" = Uuid, Path)),
    request_body = DeployTarget, responses((status = 200, body = DeployTargetView)))]
async fn replace(
    Component(agents): Component<Agents>,
    caller: Caller,
    Path(id): Path<Uuid>,
    if_match: IfMatch,
    Json(new): Json<DeployTarget>,
) -> Result<Revision<DeployTargetView>, Problem> {
    let revision = agents.target(id).await?.row.revision;
    if_match.check(revision)?;
    let view = agents.update_target(id, revision, new.checked()?, caller.actor()).await?;
    Ok(Revision(view.row.revision, DeployTargetView::of(view)))
}

/// Removes a target; the files on its host stay.
#[utoipa::path(delete, path = "/api/v1/targets/{id}", operation_id = "deleteTarget", params(("id" = Uuid, Path)),
    responses((status = 204)))]
async fn delete(
    Component(agents): Component<Agents>,
    caller: Caller,
    Path(id): Path<Uuid>,
    if_match: IfMatch,
) -> Result<StatusCode, Problem> {
    if_match.check(agents.target(id).await?.row.revision)?;
    agents.delete_target(id, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A deployment: one run to one target.
#[derive(Debug, Serialize, ToSchema)]
struct DeploymentView {
    /// The managed certificate.
    certificate: Uuid,
    /// The target.
    target: Uuid,
    /// Its agent.
    agent: Uuid,
    /// SHA-256 of the leaf that was to be deployed.
    fingerprint: String,
    /// `waiting`, `deployed`, `unchanged`, `failed`, `rolled_back`, `broken` or `cancelled`.
    state: &'static str,
    /// How often it was tried.
    attempts: i64,
    /// What the last try said.
    error: Option<String>,
    /// SHA-256 of the leaf that the endpoint showed after it.
    served: Option<String>,
    /// When it was asked for.
    created_at: String,
    /// When it was last tried.
    updated_at: String,
}

impl DeploymentView {
    fn of(row: DeploymentRow) -> Self {
        let hex = |hash: [u8; 32]| Fingerprint::from_bytes(hash).to_string();
        let state = usize::try_from(row.state).ok().and_then(|at| STATES.get(at)).copied();
        Self {
            certificate: row.asked.certificate,
            target: row.asked.target,
            agent: row.asked.agent,
            fingerprint: hex(row.asked.fingerprint),
            state: state.unwrap_or("unknown"),
            attempts: row.attempts,
            error: row.error,
            served: row.served.map(hex),
            created_at: time::shown(row.asked.created_at_us),
            updated_at: time::shown(row.updated_at_us),
        }
    }
}

/// Lists the deployments to a target, newest first.
#[utoipa::path(get, path = "/api/v1/targets/{id}/deployments", operation_id = "listDeployments",
    params(("id" = Uuid, Path), PagingParams), responses((status = 200, body = Listing<DeploymentView>)))]
async fn deployments(
    Component(agents): Component<Agents>,
    Path(id): Path<Uuid>,
    paging: Paging,
) -> Result<Json<Listing<DeploymentView>>, Problem> {
    agents.target(id).await?;
    let page = agents.deployments_of_target(id, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(Listing::of(page, DeploymentView::of)))
}
