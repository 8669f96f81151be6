//! Approvals by a second person.

use api::approvals::{ApprovalQuery, ApprovalView, ApproveBody, DecisionBody, PlanChangeView, PlanFieldView};
use api::security_keys::{PlanToSign, SecurityKeyCeremony};
use authority::plan::{PlanDifference, PlanField};
use axum::extract::State as With;
use axum::response::Response;
use http::request::Parts;
use lifecycle::approval::{Approval, ApprovalState};
use lifecycle::{DataError, Lifecycle};
use uuid::Uuid;
use x509::Fingerprint;

use crate::access::{AccessControl, Caller, Permission};
use crate::extract::{Json, Path, Query};
use crate::paging::{Listing, PageQuery, Paging, listing};
use crate::problem::Problem;
use crate::routes::certificates::check_permission;
use crate::routes::plan_signature;
use crate::routing::{Access, Api, routes};
use crate::state::{Component, State};
use crate::time;

pub(crate) fn routes() -> Api {
    let decide = || Access::needs(Permission::ApprovalDecide).scoped();
    Api::area("approvals")
        .route(Permission::ApprovalRead, routes!(list))
        .route(Access::needs(Permission::ApprovalRead).scoped(), routes!(get_one))
        .route(decide(), routes!(approve))
        .route(decide(), routes!(begin_signature))
        .route(decide(), routes!(reject))
}

pub(crate) fn plan_field_view(field: PlanField) -> PlanFieldView {
    PlanFieldView { name: field.name.to_owned(), values: field.values }
}

fn plan_change_view(change: PlanDifference) -> PlanChangeView {
    PlanChangeView { name: change.name.to_owned(), before: change.before, after: change.after }
}

fn approval_view(approval: Approval) -> ApprovalView {
    ApprovalView {
        id: approval.id,
        certificate: approval.certificate,
        name: approval.name,
        profile: approval.profile,
        job: approval.job.0,
        state: approval.state.name().to_owned(),
        reason: approval.reason,
        requested_by: approval.requested_by,
        requested_at: time::shown(approval.requested_at_us),
        expires_at: time::shown(approval.expires_at_us),
        decided_by: approval.decided_by,
        decided_at: time::maybe_shown(approval.decided_at_us),
        note: approval.note,
        plan: approval.plan.iter().flat_map(|plan| plan.fields()).map(plan_field_view).collect(),
        plan_sha256: approval.plan_sha256.map(|hash| Fingerprint::from_bytes(hash).to_string()),
        previous: approval.previous,
        changes: approval.changes.into_iter().map(plan_change_view).collect(),
        barred: approval.barred,
        approvals_given: approval.progress.given,
        approvals_needed: approval.progress.needed,
        approvers: approval.approvers,
        signatures: Vec::new(),
    }
}

/// Lists approvals, newest first.
#[utoipa::path(get, path = "/api/v1/approvals", operation_id = "listApprovals", params(PageQuery, ApprovalQuery),
    responses((status = 200, body = Listing<ApprovalView>)))]
async fn list(
    Component(lifecycle): Component<Lifecycle>,
    paging: Paging,
    Query(params): Query<ApprovalQuery>,
) -> Result<Json<Listing<ApprovalView>>, Problem> {
    let wanted = params.state.as_deref().map(str::parse::<ApprovalState>).transpose();
    let wanted = wanted.map_err(Problem::bad_request)?.unwrap_or(ApprovalState::Open);
    let page = lifecycle.approvals(wanted, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, approval_view)))
}

async fn permitted(
    lifecycle: &Lifecycle,
    caller: &Caller,
    permission: Permission,
    id: Uuid,
) -> Result<Approval, Problem> {
    let approval = lifecycle.approval(id).await?;
    let missing = || DataError::NotFound { what: "approval", id: id.to_string() }.into();
    let both = (permission, Permission::ApprovalRead);
    check_permission(lifecycle, caller, both, approval.certificate, missing).await?;
    Ok(approval)
}

/// Shows an approval.
#[utoipa::path(get, path = "/api/v1/approvals/{id}", operation_id = "getApproval", params(("id" = Uuid, Path)),
    responses((status = 200, body = ApprovalView)))]
async fn get_one(
    Component(lifecycle): Component<Lifecycle>,
    With(access): With<AccessControl>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<Json<ApprovalView>, Problem> {
    let approval = permitted(&lifecycle, &caller, Permission::ApprovalRead, id).await?;
    Ok(Json(ApprovalView {
        signatures: plan_signature::views(&access, id).await?,
        ..approval_view(approval)
    }))
}

/// Begins the signature of a plan by the caller's security key.
///
/// The response of the security key is then sent as `security_key` to `POST /api/v1/approvals/{id}/approve`.
#[utoipa::path(post, path = "/api/v1/approvals/{id}/challenge", operation_id = "beginApprovalSignature",
    params(("id" = Uuid, Path)), request_body = PlanToSign, responses((status = 201, body = SecurityKeyCeremony)))]
async fn begin_signature(
    Component(lifecycle): Component<Lifecycle>,
    With(access): With<AccessControl>,
    caller: Caller,
    Path(id): Path<Uuid>,
    parts: Parts,
    Json(plan): Json<PlanToSign>,
) -> Result<Response, Problem> {
    permitted(&lifecycle, &caller, Permission::ApprovalDecide, id).await?;
    plan_signature::begin(&access, &caller, &parts, id, &plan).await
}

/// Approves the plan as shown. The run begins once the plan has the number of approvals that the profile requires. The requester,
/// and anyone who changed the plan, cannot approve it. If `plan_sha256` is given, it must be the hash of the plan.
#[utoipa::path(post, path = "/api/v1/approvals/{id}/approve", operation_id = "approve", params(("id" = Uuid, Path)),
    request_body = ApproveBody, responses((status = 200, body = ApprovalView)))]
async fn approve(
    Component(lifecycle): Component<Lifecycle>,
    With(state): With<State>,
    caller: Caller,
    Path(id): Path<Uuid>,
    parts: Parts,
    Json(body): Json<ApproveBody>,
) -> Result<Json<ApprovalView>, Problem> {
    permitted(&lifecycle, &caller, Permission::ApprovalDecide, id).await?;
    let shown = plan_signature::shown(body.plan_sha256.as_deref())?;
    let plan = plan_signature::signed(&state, &caller, &parts, id, shown, body.security_key.as_ref()).await?;
    let before = lifecycle.approval(id).await?;
    let is_open = before.state == ApprovalState::Open;
    if !(is_open && plan.completes(&caller, before.plan_sha256, &before.approvers)) {
        plan_signature::check_earlier(&state, id, plan.sha256, &before.approvers).await?;
        lifecycle.approve(id, plan.sha256, body.note.as_deref(), caller.principal()).await?;
    }
    let signatures = plan_signature::views(state.access(), id).await?;
    Ok(Json(ApprovalView { signatures, ..approval_view(lifecycle.approval(id).await?) }))
}

/// Rejects an approval, which ends the run.
#[utoipa::path(post, path = "/api/v1/approvals/{id}/reject", operation_id = "reject", params(("id" = Uuid, Path)),
    request_body = DecisionBody, responses((status = 200, body = ApprovalView)))]
async fn reject(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Path(id): Path<Uuid>,
    Json(body): Json<DecisionBody>,
) -> Result<Json<ApprovalView>, Problem> {
    permitted(&lifecycle, &caller, Permission::ApprovalDecide, id).await?;
    lifecycle.reject(id, body.note.as_deref(), caller.principal()).await?;
    Ok(Json(approval_view(lifecycle.approval(id).await?)))
}
