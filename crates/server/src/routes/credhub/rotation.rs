//! Rotation: policies, planned rotations, and hooks. An extension to CredHub.

use api::credhub::{
    HookQuery, HookRequest, HookView, Hooks, PlannedView, RotateRequest, RotateView, RotationPolicyRequest,
    RotationPolicyView, RotationQuery,
};
use axum::Json;
use axum::extract::Query;
use axum::response::{IntoResponse, Response};
use credentials::{Hook, HookInfo, PermissionPath, PlannedRotation, RotationPolicy, RotationPolicyRow};
use http::StatusCode;
use keys::Secret;

use super::answer::time;
use super::body::{self, Body};
use super::context::Context;
use super::paging::Pages;
use super::principal::Principal;
use crate::credhub::Refused;
use crate::routing::{NonApiAccess, OperationTable, PathOperations};

pub(super) fn routes() -> OperationTable<Context> {
    use NonApiAccess::{AtPath, Manager};
    let on = PathOperations::new;
    let policies = on().get(AtPath, policies).put(AtPath, set_policy).delete(AtPath, remove_policy);
    let hooks = on().get(Manager, hooks).put(Manager, set_hook).delete(Manager, remove_hook);
    OperationTable::new()
        .route("/api/v1/rotation-policies", policies)
        .route("/api/v1/rotations", on().get(AtPath, planned))
        .route("/api/v1/rotations/now", on().post(AtPath, now))
        .route("/api/v1/rotation-hooks", hooks)
}

fn policy_view(policy: &RotationPolicyRow) -> RotationPolicyView {
    RotationPolicyView {
        path: policy.path.clone(),
        every_s: policy.every_s,
        before_expiry_s: policy.before_expiry_s,
        before_expiry_percent: policy.before_expiry_percent,
        overlap_s: policy.overlap_s,
        hook: policy.hook.clone(),
        set_at: time(policy.set_at_us),
        set_by: policy.set_by.clone(),
    }
}

async fn policies(
    context: Context,
    Principal(requester): Principal,
    pages: Pages,
) -> Result<Response, Refused> {
    let store = context.hub().credentials();
    let page = store.rotation_policies(&requester, pages.after.as_ref(), pages.limit).await?;
    Ok(pages.answer(page, policy_view))
}

async fn set_policy(
    context: Context,
    Principal(requester): Principal,
    Body(body): Body,
) -> Result<Json<RotationPolicyView>, Refused> {
    let request: RotationPolicyRequest = body::read(&body)?;
    let path = PermissionPath::parse(&request.path)?;
    let policy = RotationPolicy {
        every_s: request.every_s,
        before_expiry_s: request.before_expiry_s,
        before_expiry_percent: request.before_expiry_percent,
        overlap_s: request.overlap_s,
        hook: request.hook,
    };
    let set = context.hub().credentials().set_rotation_policy(&requester, &path, policy).await?;
    Ok(Json(policy_view(&set)))
}

async fn remove_policy(
    context: Context,
    Principal(requester): Principal,
    Query(query): Query<RotationQuery>,
) -> Result<Response, Refused> {
    let path = PermissionPath::parse(&query.path.unwrap_or_default())?;
    context.hub().credentials().remove_rotation_policy(&requester, &path).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn planned_rotation_view(row: &PlannedRotation) -> PlannedView {
    PlannedView {
        name: row.name.clone(),
        kind: row.kind.to_string(),
        policy: row.path_key.clone(),
        due_at: time(row.due_at_us),
        step: row.step.to_string(),
        failures: row.failures,
        error: row.error.clone(),
        set_by_hand: row.set_by_hand,
    }
}

async fn planned(
    context: Context,
    Principal(requester): Principal,
    Query(query): Query<RotationQuery>,
    pages: Pages,
) -> Result<Response, Refused> {
    let path = PermissionPath::parse(query.path.as_deref().unwrap_or("/*"))?;
    let store = context.hub().credentials();
    let page = store.rotations(&requester, &path, pages.after.as_ref(), pages.limit).await?;
    Ok(pages.answer(page, planned_rotation_view))
}

async fn now(
    context: Context,
    Principal(requester): Principal,
    Body(body): Body,
) -> Result<Json<RotateView>, Refused> {
    let request: RotateRequest = body::read(&body)?;
    let path = PermissionPath::parse(&request.path)?;
    let due = context.hub().credentials().rotate_now(&requester, &path).await?;
    Ok(Json(RotateView { path: path.as_str().to_owned(), due }))
}

fn hook_view(hook: HookInfo) -> HookView {
    HookView {
        name: hook.name,
        url: hook.url,
        before: hook.before,
        after: hook.after,
        set_at: time(hook.set_at_us),
        set_by: hook.set_by,
    }
}

async fn hooks(context: Context, Principal(requester): Principal) -> Result<Json<Hooks>, Refused> {
    let all = context.hub().credentials().hooks(&requester).await?;
    Ok(Json(Hooks { items: all.into_iter().map(hook_view).collect() }))
}

async fn set_hook(
    context: Context,
    Principal(requester): Principal,
    Body(body): Body,
) -> Result<Json<HookView>, Refused> {
    let request: HookRequest<Secret> = body::read(&body)?;
    let hook = Hook {
        name: request.name,
        url: request.url,
        secret: request.secret.unwrap_or_default(),
        before: request.before.unwrap_or(false),
        after: request.after.unwrap_or(true),
        roots: request.roots,
    };
    Ok(Json(hook_view(context.hub().credentials().set_hook(&requester, hook).await?)))
}

async fn remove_hook(
    context: Context,
    Principal(requester): Principal,
    Query(query): Query<HookQuery>,
) -> Result<Response, Refused> {
    context.hub().credentials().delete_hook(&requester, &query.name.unwrap_or_default()).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
