//! Pending changes of gates: objects that decide whether issuance requires approval.

use api::approvals::{ApproveBody, DecisionBody};
use api::changes::{ChangeQuery, ChangeView};
use api::security_keys::{PlanToSign, SecurityKeyCeremony};
use authority::Authority;
use authority::change::{ChangeError, PendingChange};
use authority::tables::ChangeState;
use axum::extract::State as With;
use axum::response::Response;
use http::request::Parts;
use serde_json::Value;
use store::{Clock, Cursor};
use uuid::Uuid;

use crate::access::{AccessControl, Caller, Object, Permission, Reach, Scope};
use crate::extract::{Json, Path, Query};
use crate::gates::{Gates, change_view};
use crate::paging::{Listing, PageQuery, Paging, listing};
use crate::problem::Problem;
use crate::routes::plan_signature;
use crate::routing::{Access, Api, routes};
use crate::state::{Component, State};

pub(crate) fn routes() -> Api {
    Api::area("changes")
        .route(Access::needs(Permission::ApprovalRead).scoped(), routes!(list))
        .route(Access::needs(Permission::ApprovalRead).scoped(), routes!(get_one))
        .route(Access::needs(Permission::ApprovalDecide).scoped(), routes!(approve))
        .route(Access::needs(Permission::ApprovalDecide).scoped(), routes!(begin_signature))
        .route(Access::needs(Permission::ApprovalDecide).scoped(), routes!(reject))
}

/// Checks the caller's permission on a change. The permission is needed:
///
/// - in all scopes, if the change affects all profiles
/// - else for the certificate, if the change is of a certificate
/// - else for each affected profile
fn permitted(caller: &Caller, permission: Permission, change: &PendingChange) -> Result<(), Problem> {
    if change.profiles.is_empty() {
        return caller.may(permission, &[]);
    }
    if let Some(certificate) = certificate_of(change) {
        return caller.may(permission, certificate);
    }
    change.profiles.iter().try_for_each(|name| caller.may(permission, &[Scope::profile(name.clone())]))
}

/// Returns the managed certificate that a change affects, in its state before the change.
fn certificate_of(change: &PendingChange) -> Option<Object> {
    let before = change.plan.before.as_ref().filter(|_| change.plan.object.starts_with("certificate/"))?;
    let text = |name: &str| before[name].as_str().map(str::to_owned);
    let names = before["names"].as_array().into_iter().flatten().filter_map(Value::as_str);
    Some(Object {
        issuer: text("issuer"),
        team: text("team"),
        ..Object::profile(text("profile").unwrap_or_default()).with_names(names)
    })
}

/// Lists the changes of gates that wait for approval, newest first.
#[utoipa::path(get, path = "/api/v1/changes", operation_id = "listChanges", params(PageQuery, ChangeQuery),
    responses((status = 200, body = Listing<ChangeView>)))]
async fn list(
    Component(authority): Component<Authority>,
    With(clock): With<Clock>,
    caller: Caller,
    paging: Paging,
    Query(params): Query<ChangeQuery>,
) -> Result<Json<Listing<ChangeView>>, Problem> {
    let wanted = params.state.as_deref().map(str::parse::<ChangeState>).transpose();
    let wanted = wanted.map_err(Problem::bad_request)?.unwrap_or(ChangeState::Open);
    let page_request = (paging.after.as_ref(), paging.limit);
    let page = match caller.reach(Permission::ApprovalRead) {
        Reach::Everything => authority.pending_changes(wanted, page_request.0, page_request.1).await?,
        Reach::Only(_) => {
            let read = |after: Option<Cursor>, limit| {
                let authority = &authority;
                async move { authority.pending_changes(wanted, after.as_ref(), limit).await }
            };
            let sees = |change: &PendingChange| permitted(&caller, Permission::ApprovalRead, change).is_ok();
            // The cursor contains only the ID of a change, which reveals nothing.
            store::visible_page(page_request, read, sees).await?.page
        }
    };
    let now_us = clock.now_us();
    Ok(Json(listing(page, |change| change_view(change, now_us))))
}

async fn found(
    authority: &Authority,
    caller: &Caller,
    permission: Permission,
    id: Uuid,
) -> Result<PendingChange, Problem> {
    let change = authority.pending_change(id).await?;
    let Err(refused) = permitted(caller, permission, &change) else { return Ok(change) };
    let reads = permitted(caller, Permission::ApprovalRead, &change).is_ok();
    Err(if reads { refused } else { ChangeError::Unknown(id).into() })
}

/// Shows a change of a gate: the object before and after, and its approvals.
#[utoipa::path(get, path = "/api/v1/changes/{id}", operation_id = "getChange", params(("id" = Uuid, Path)),
    responses((status = 200, body = ChangeView)))]
async fn get_one(
    Component(authority): Component<Authority>,
    With(access): With<AccessControl>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<Json<ChangeView>, Problem> {
    let change = found(&authority, &caller, Permission::ApprovalRead, id).await?;
    shown(&access, change).await
}

/// Returns the view of a change with the signatures of its approvers.
async fn shown(access: &AccessControl, change: PendingChange) -> Result<Json<ChangeView>, Problem> {
    let signatures = plan_signature::views(access, change.id).await?;
    Ok(Json(ChangeView { signatures, ..change_view(change, access.clock().now_us()) }))
}

/// Begins the signature of a change's plan by the caller's security key.
///
/// The response of the security key is then sent as `security_key` to `POST /api/v1/changes/{id}/approve`.
#[utoipa::path(post, path = "/api/v1/changes/{id}/challenge", operation_id = "beginChangeSignature",
    params(("id" = Uuid, Path)), request_body = PlanToSign, responses((status = 201, body = SecurityKeyCeremony)))]
async fn begin_signature(
    Component(authority): Component<Authority>,
    With(access): With<AccessControl>,
    caller: Caller,
    Path(id): Path<Uuid>,
    parts: Parts,
    Json(plan): Json<PlanToSign>,
) -> Result<Response, Problem> {
    found(&authority, &caller, Permission::ApprovalDecide, id).await?;
    plan_signature::begin(&access, &caller, &parts, id, &plan).await
}

/// Approves a change of a gate. The change is applied exactly as shown, once it has the number of approvals that the profile
/// requires. The requester cannot approve it. If the object changed meanwhile, the change is void and the response is 409.
#[utoipa::path(post, path = "/api/v1/changes/{id}/approve", operation_id = "approveChange",
    params(("id" = Uuid, Path)), request_body = ApproveBody, responses((status = 200, body = ChangeView)))]
async fn approve(
    Component(authority): Component<Authority>,
    With(gates): With<Gates>,
    With(state): With<State>,
    caller: Caller,
    Path(id): Path<Uuid>,
    parts: Parts,
    Json(body): Json<ApproveBody>,
) -> Result<Json<ChangeView>, Problem> {
    found(&authority, &caller, Permission::ApprovalDecide, id).await?;
    let plan = plan_signature::shown(body.plan_sha256.as_deref())?;
    let plan = plan_signature::signed(&state, &caller, &parts, id, plan, body.security_key.as_ref()).await?;
    let before = authority.pending_change(id).await?;
    let is_open = before.state == ChangeState::Open;
    if !(is_open && plan.completes(&caller, Some(before.plan_sha256), &before.approvers)) {
        plan_signature::check_earlier(&state, id, plan.sha256, &before.approvers).await?;
        gates.approve(&authority, id, plan.sha256, body.note.as_deref(), caller.principal()).await?;
    }
    shown(state.access(), authority.pending_change(id).await?).await
}

/// Rejects a change of a gate. The requester can withdraw the change this way.
#[utoipa::path(post, path = "/api/v1/changes/{id}/reject", operation_id = "rejectChange",
    params(("id" = Uuid, Path)), request_body = DecisionBody, responses((status = 200, body = ChangeView)))]
async fn reject(
    Component(authority): Component<Authority>,
    With(clock): With<Clock>,
    caller: Caller,
    Path(id): Path<Uuid>,
    Json(body): Json<DecisionBody>,
) -> Result<Json<ChangeView>, Problem> {
    found(&authority, &caller, Permission::ApprovalDecide, id).await?;
    authority.reject_change(id, body.note.as_deref(), caller.principal()).await?;
    Ok(Json(change_view(authority.pending_change(id).await?, clock.now_us())))
}
