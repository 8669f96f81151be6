//! Deployment targets of agents.

use agent::tables::{DeploymentFilter, DeploymentRow};
use agent::{Agents, NewTarget, TargetView};
use api::changes::ChangeView;
use api::targets::{DeployTarget, DeployTargetView, DeploymentQuery, DeploymentView, TargetQuery};
use axum::extract::State as With;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{HeaderValue, LOCATION};
use uuid::Uuid;
use x509::Fingerprint;

use crate::access::{Caller, Permission};
use crate::conditional::{IfMatch, Revision};
use crate::extract::{Json, Path, Query};
use crate::gates::{GateChange, Gates, WriteResult};
use crate::paging::{Listing, PageQuery, Paging, listing};
use crate::problem::Problem;
use crate::routing::{Api, routes};
use crate::state::Component;
use crate::time;

pub(crate) fn routes() -> Api {
    Api::area("targets")
        .route(Permission::TargetRead, routes!(list))
        .route(Permission::TargetManage, routes!(create))
        .route(Permission::TargetRead, routes!(get_one))
        .route(Permission::TargetManage, routes!(replace))
        .route(Permission::TargetManage, routes!(delete))
        .route(Permission::TargetRead, routes!(deployments))
        .route(Permission::TargetRead, routes!(all_deployments))
}

fn deploy_target_view(view: TargetView) -> DeployTargetView {
    DeployTargetView {
        id: view.row.id,
        name: view.row.settings.name,
        agent: view.row.settings.agent,
        kind: view.row.settings.kind,
        target: serde_json::to_value(view.target).unwrap_or_default(),
        created_at: time::shown(view.row.created_at_us),
        updated_at: time::shown(view.row.updated_at_us),
    }
}

fn new_target(body: DeployTarget) -> Result<NewTarget, Problem> {
    let target = serde_json::from_value(body.target)
        .map_err(|error| Problem::unprocessable(format_args!("target: {error}")))?;
    Ok(NewTarget { name: body.name, agent: body.agent, target })
}

/// Lists the targets, by name.
#[utoipa::path(get, path = "/api/v1/targets", operation_id = "listTargets", params(PageQuery, TargetQuery),
    responses((status = 200, body = Listing<DeployTargetView>)))]
async fn list(
    Component(agents): Component<Agents>,
    paging: Paging,
    Query(params): Query<TargetQuery>,
) -> Result<Json<Listing<DeployTargetView>>, Problem> {
    let page = agents.targets(params.agent, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, deploy_target_view)))
}

/// Creates a target.
#[utoipa::path(post, path = "/api/v1/targets", operation_id = "createTarget", request_body = DeployTarget,
    responses((status = 201, body = DeployTargetView)))]
async fn create(
    Component(agents): Component<Agents>,
    caller: Caller,
    Json(new): Json<DeployTarget>,
) -> Result<Response, Problem> {
    let view = agents.create_target(new_target(new)?, caller.actor()).await?;
    let location = format!("/api/v1/targets/{}", view.row.id);
    let location = HeaderValue::from_str(&location).map_err(Problem::internal)?;
    let revision = Revision(view.row.revision, deploy_target_view(view));
    Ok((StatusCode::CREATED, [(LOCATION, location)], revision).into_response())
}

/// Shows a target.
#[utoipa::path(get, path = "/api/v1/targets/{id}", operation_id = "getTarget", params(("id" = Uuid, Path)),
    responses((status = 200, body = DeployTargetView)))]
async fn get_one(
    Component(agents): Component<Agents>,
    Path(id): Path<Uuid>,
) -> Result<Revision<DeployTargetView>, Problem> {
    let view = agents.target(id).await?;
    Ok(Revision(view.row.revision, deploy_target_view(view)))
}

/// Changes a target.
///
/// The deployed certificate stays in place until the next deployment.
#[utoipa::path(put, path = "/api/v1/targets/{id}", operation_id = "replaceTarget", params(("id" = Uuid, Path)),
    request_body = DeployTarget,
    responses((status = 200, body = DeployTargetView), (status = 202, body = ChangeView)))]
async fn replace(
    Component(agents): Component<Agents>,
    With(gates): With<Gates>,
    caller: Caller,
    Path(id): Path<Uuid>,
    if_match: IfMatch,
    Json(new): Json<DeployTarget>,
) -> Result<WriteResult<Revision<DeployTargetView>>, Problem> {
    let revision = agents.target(id).await?.row.revision;
    if_match.check(revision)?;
    let DeployTarget { name, agent, target } = new;
    let change = GateChange::UpdateTarget { id, revision, name, agent, target };
    let written = gates.write(&caller, change).await?;
    let view = agents.target(id).await?;
    Ok(written.map(|()| Revision(view.row.revision, deploy_target_view(view))))
}

/// Deletes a target; the files on its host remain.
#[utoipa::path(delete, path = "/api/v1/targets/{id}", operation_id = "deleteTarget", params(("id" = Uuid, Path)),
    responses((status = 204), (status = 202, body = ChangeView)))]
async fn delete(
    Component(agents): Component<Agents>,
    With(gates): With<Gates>,
    caller: Caller,
    Path(id): Path<Uuid>,
    if_match: IfMatch,
) -> Result<WriteResult<StatusCode>, Problem> {
    if_match.check(agents.target(id).await?.row.revision)?;
    let written = gates.write(&caller, GateChange::DeleteTarget { id }).await?;
    Ok(written.map(|()| StatusCode::NO_CONTENT))
}

fn deployment_view(row: DeploymentRow) -> DeploymentView {
    let hex = |hash: [u8; 32]| Fingerprint::from_bytes(hash).to_string();
    DeploymentView {
        certificate: row.requested.certificate,
        target: row.requested.target,
        agent: row.requested.agent,
        fingerprint: hex(row.requested.fingerprint),
        state: row.state.name().to_owned(),
        attempts: row.attempts,
        error: row.error,
        served: row.served.map(hex),
        created_at: time::shown(row.requested.created_at_us),
        updated_at: time::shown(row.updated_at_us),
    }
}

/// Lists the deployments to a target, newest first.
#[utoipa::path(get, path = "/api/v1/targets/{id}/deployments", operation_id = "listDeployments",
    params(("id" = Uuid, Path), PageQuery), responses((status = 200, body = Listing<DeploymentView>)))]
async fn deployments(
    Component(agents): Component<Agents>,
    Path(id): Path<Uuid>,
    paging: Paging,
) -> Result<Json<Listing<DeploymentView>>, Problem> {
    agents.target(id).await?;
    let page = agents.deployments_of_target(id, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, deployment_view)))
}

/// Lists deployments to all targets, newest first.
#[utoipa::path(get, path = "/api/v1/deployments", operation_id = "listAllDeployments",
    params(PageQuery, DeploymentQuery), responses((status = 200, body = Listing<DeploymentView>)))]
async fn all_deployments(
    Component(agents): Component<Agents>,
    paging: Paging,
    Query(params): Query<DeploymentQuery>,
) -> Result<Json<Listing<DeploymentView>>, Problem> {
    let state = params.state.as_deref().map(str::parse).transpose().map_err(Problem::bad_request)?;
    let DeploymentQuery { certificate, target, agent, .. } = params;
    let filter = DeploymentFilter { certificate, target, agent, state };
    let page = agents.deployments(&filter, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, deployment_view)))
}
