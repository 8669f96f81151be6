//! Policies, and violations of policies by certificates.

use api::changes::ChangeView;
use api::policies::{NewPolicy, PolicyBody, PolicyView, ViolationQuery, ViolationView};
use axum::extract::State as With;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{HeaderValue, LOCATION};
use lifecycle::policy::{Policy, Severity};
use lifecycle::tables::policies::ViolationFilter;
use lifecycle::{Lifecycle, PolicyRecord, ViolationRecord};
use serde_json::{Map, Value};

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
    Api::area("policies")
        .route(Permission::PolicyRead, routes!(list))
        .route(Permission::PolicyManage, routes!(create))
        .route(Permission::PolicyRead, routes!(get_one))
        .route(Permission::PolicyManage, routes!(replace))
        .route(Permission::PolicyManage, routes!(delete))
        .route(Permission::PolicyRead, routes!(violations))
}

fn policy_view(record: PolicyRecord) -> PolicyView {
    PolicyView {
        name: record.name,
        policy: serde_json::to_value(record.policy).unwrap_or_default(),
        revision: record.revision,
        created_at: time::shown(record.created_at_us),
        updated_at: time::shown(record.updated_at_us),
    }
}

fn read(policy: Map<String, Value>) -> Result<Policy, Problem> {
    serde_json::from_value(Value::Object(policy))
        .map_err(|error| Problem::unprocessable(format_args!("the policy is not valid: {error}")))
}

/// Lists policies, by name.
#[utoipa::path(get, path = "/api/v1/policies", operation_id = "listPolicies", params(PageQuery),
    responses((status = 200, body = Listing<PolicyView>)))]
async fn list(
    Component(lifecycle): Component<Lifecycle>,
    paging: Paging,
) -> Result<Json<Listing<PolicyView>>, Problem> {
    let page = lifecycle.policies(paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, policy_view)))
}

/// Creates a policy. All managed certificates are checked against it in the background.
#[utoipa::path(post, path = "/api/v1/policies", operation_id = "createPolicy", request_body = NewPolicy,
    responses((status = 201, body = PolicyView), (status = 202, body = ChangeView)))]
async fn create(
    Component(lifecycle): Component<Lifecycle>,
    With(gates): With<Gates>,
    caller: Caller,
    Json(body): Json<NewPolicy>,
) -> Result<Response, Problem> {
    let policy = Box::new(read(body.policy)?);
    let change = GateChange::PutPolicy { name: body.name.clone(), policy, revision: None };
    let written = gates.write(&caller, change).await?;
    if matches!(written, WriteResult::Waits(_)) {
        return Ok(written.map(|()| StatusCode::CREATED).into_response());
    }
    let made = lifecycle.policy(&body.name).await?;
    let location = format!("/api/v1/policies/{}", api::path::segment(&made.name));
    let location = HeaderValue::from_str(&location).map_err(Problem::internal)?;
    Ok((StatusCode::CREATED, [(LOCATION, location)], Revision(made.revision, policy_view(made)))
        .into_response())
}

/// Shows a policy.
#[utoipa::path(get, path = "/api/v1/policies/{name}", operation_id = "getPolicy", params(("name" = String, Path)),
    responses((status = 200, body = PolicyView)))]
async fn get_one(
    Component(lifecycle): Component<Lifecycle>,
    Path(name): Path<String>,
) -> Result<Revision<PolicyView>, Problem> {
    let record = lifecycle.policy(&name).await?;
    Ok(Revision(record.revision, policy_view(record)))
}

/// Replaces a policy.
#[utoipa::path(put, path = "/api/v1/policies/{name}", operation_id = "replacePolicy",
    params(("name" = String, Path)), request_body = PolicyBody,
    responses((status = 200, body = PolicyView), (status = 202, body = ChangeView)))]
async fn replace(
    Component(lifecycle): Component<Lifecycle>,
    With(gates): With<Gates>,
    caller: Caller,
    Path(name): Path<String>,
    if_match: IfMatch,
    Json(body): Json<PolicyBody>,
) -> Result<WriteResult<Revision<PolicyView>>, Problem> {
    let revision = lifecycle.policy(&name).await?.revision;
    if_match.check(revision)?;
    let policy = Box::new(read(body.policy)?);
    let change = GateChange::PutPolicy { name: name.clone(), policy, revision: Some(revision) };
    let written = gates.write(&caller, change).await?;
    let record = lifecycle.policy(&name).await?;
    Ok(written.map(|()| Revision(record.revision, policy_view(record))))
}

/// Deletes a policy that no certificate refers to.
#[utoipa::path(delete, path = "/api/v1/policies/{name}", operation_id = "deletePolicy",
    params(("name" = String, Path)), responses((status = 204), (status = 202, body = ChangeView)))]
async fn delete(
    Component(lifecycle): Component<Lifecycle>,
    With(gates): With<Gates>,
    caller: Caller,
    Path(name): Path<String>,
    if_match: IfMatch,
) -> Result<WriteResult<StatusCode>, Problem> {
    if_match.check(lifecycle.policy(&name).await?.revision)?;
    let written = gates.write(&caller, GateChange::DeletePolicy { name }).await?;
    Ok(written.map(|()| StatusCode::NO_CONTENT))
}

fn violation_view(record: ViolationRecord) -> ViolationView {
    ViolationView {
        certificate: record.certificate,
        name: record.name,
        policy: record.policy,
        rule: record.rule,
        severity: record.severity.name().to_owned(),
        message: record.message,
        found_at: time::shown(record.found_at_us),
    }
}

/// Lists policy violations: the most severe first, or by certificate within one policy.
#[utoipa::path(get, path = "/api/v1/violations", operation_id = "listViolations",
    params(PageQuery, ViolationQuery), responses((status = 200, body = Listing<ViolationView>)))]
async fn violations(
    Component(lifecycle): Component<Lifecycle>,
    paging: Paging,
    Query(params): Query<ViolationQuery>,
) -> Result<Json<Listing<ViolationView>>, Problem> {
    let severity = params.severity.as_deref().map(str::parse::<Severity>).transpose();
    let page = lifecycle
        .violations_of(
            params.certificate,
            ViolationFilter {
                policy: params.policy.filter(|name| !name.contains('\0')),
                certificate: None,
                severity_from: severity.map_err(Problem::bad_request)?,
            },
            paging.after.as_ref(),
            paging.limit,
        )
        .await?;
    Ok(Json(listing(page, violation_view)))
}
