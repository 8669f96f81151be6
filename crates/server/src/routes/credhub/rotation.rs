//! Rotation: policies, what is planned by them, and hooks. Not in CredHub.

use axum::extract::Query;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use credentials::{Hook, PermissionPath, PlacedPolicy, Planned, RotationPolicy, ShownHook};
use http::StatusCode;
use keys::Secret;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::answer::time;
use super::asking::Asking;
use super::body::{self, Body};
use super::context::Context;
use super::paging::Pages;
use crate::api::endpoint;
use crate::credhub::Refused;

/// The routes of this module.
pub(super) fn routes() -> Vec<(&'static str, MethodRouter<Context>)> {
    vec![
        (
            "/api/v1/rotation-policies",
            get(endpoint(policies)).put(endpoint(set_policy)).delete(endpoint(remove_policy)),
        ),
        ("/api/v1/rotations", get(endpoint(planned))),
        ("/api/v1/rotations/now", post(endpoint(now))),
        (
            "/api/v1/rotation-hooks",
            get(endpoint(hooks)).put(endpoint(set_hook)).delete(endpoint(remove_hook)),
        ),
    ]
}

fn shown(policy: &PlacedPolicy) -> Json {
    json!({
        "path": policy.path,
        "every_s": policy.every_s,
        "before_expiry_s": policy.before_s,
        "before_expiry_percent": policy.before_percent,
        "overlap_s": policy.overlap_s,
        "hook": policy.hook,
        "set_at": time(policy.set_at_us),
        "set_by": policy.set_by,
    })
}

async fn policies(
    context: Context,
    Asking(asker): Asking,
    pages: Pages,
) -> Result<axum::Json<Json>, Refused> {
    let store = context.hub().credentials();
    let page = store.rotation_policies(&asker, pages.after.as_ref(), pages.limit).await?;
    Ok(pages.answer(page, shown))
}

async fn set_policy(
    context: Context,
    Asking(asker): Asking,
    Body(body): Body,
) -> Result<axum::Json<Json>, Refused> {
    let known = ["path", "every_s", "before_expiry_s", "before_expiry_percent", "overlap_s", "hook"];
    body::only(&body, &known)?;
    let path = PermissionPath::parse(&body::text(&body, "path")?.unwrap_or_default())?;
    let policy = RotationPolicy {
        every_s: body::number(&body, "every_s")?,
        before_expiry_s: body::number(&body, "before_expiry_s")?,
        before_expiry_percent: body::number(&body, "before_expiry_percent")?,
        overlap_s: body::number(&body, "overlap_s")?,
        hook: body::text(&body, "hook")?,
    };
    let set = context.hub().credentials().set_rotation_policy(&asker, &path, policy).await?;
    Ok(axum::Json(shown(&set)))
}

/// What stands behind the question mark.
#[derive(Deserialize)]
struct Which {
    path: Option<String>,
    name: Option<String>,
}

async fn remove_policy(
    context: Context,
    Asking(asker): Asking,
    Query(which): Query<Which>,
) -> Result<Response, Refused> {
    let path = PermissionPath::parse(&which.path.unwrap_or_default())?;
    context.hub().credentials().remove_rotation_policy(&asker, &path).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn shown_plan(planned: &Planned) -> Json {
    let row = &planned.row;
    json!({
        "name": row.name,
        "type": row.kind,
        "policy": row.path_key,
        "due_at": time(row.due_at_us),
        "step": planned.step,
        "failures": row.failures,
        "error": row.error,
        "set_by_hand": row.set_by_hand,
    })
}

async fn planned(
    context: Context,
    Asking(asker): Asking,
    Query(which): Query<Which>,
    pages: Pages,
) -> Result<axum::Json<Json>, Refused> {
    let path = PermissionPath::parse(which.path.as_deref().unwrap_or("/*"))?;
    let store = context.hub().credentials();
    let page = store.rotations(&asker, &path, pages.after.as_ref(), pages.limit).await?;
    Ok(pages.answer(page, shown_plan))
}

async fn now(context: Context, Asking(asker): Asking, Body(body): Body) -> Result<axum::Json<Json>, Refused> {
    body::only(&body, &["path"])?;
    let path = PermissionPath::parse(&body::text(&body, "path")?.unwrap_or_default())?;
    let due = context.hub().credentials().rotate_now(&asker, &path).await?;
    Ok(axum::Json(json!({ "path": path.as_str(), "due": due })))
}

fn shown_hook(hook: &ShownHook) -> Json {
    json!({
        "name": hook.name,
        "url": hook.url,
        "before": hook.before,
        "after": hook.after,
        "set_at": time(hook.set_at_us),
        "set_by": hook.set_by,
    })
}

async fn hooks(context: Context, Asking(asker): Asking) -> Result<axum::Json<Json>, Refused> {
    let all = context.hub().credentials().hooks(&asker).await?;
    Ok(axum::Json(json!({ "items": all.iter().map(shown_hook).collect::<Vec<_>>() })))
}

async fn set_hook(
    context: Context,
    Asking(asker): Asking,
    Body(body): Body,
) -> Result<axum::Json<Json>, Refused> {
    body::only(&body, &["name", "url", "secret", "before", "after", "roots"])?;
    let hook = Hook {
        name: body::text(&body, "name")?.unwrap_or_default(),
        url: body::text(&body, "url")?.unwrap_or_default(),
        secret: Secret::new(body::text(&body, "secret")?.unwrap_or_default()),
        before: body::flag(&body, "before")?.unwrap_or(false),
        after: body::flag(&body, "after")?.unwrap_or(true),
        roots: body::text(&body, "roots")?,
    };
    Ok(axum::Json(shown_hook(&context.hub().credentials().set_hook(&asker, hook).await?)))
}

async fn remove_hook(
    context: Context,
    Asking(asker): Asking,
    Query(which): Query<Which>,
) -> Result<Response, Refused> {
    context.hub().credentials().delete_hook(&asker, &which.name.unwrap_or_default()).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
