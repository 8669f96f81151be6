//! Permissions, in both of CredHub's versions.

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use credentials::{CredentialError, Operations, Permission, PermissionPath};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use uuid::Uuid;

use super::asking::Asking;
use super::body::{self, Body};
use super::context::Context;
use crate::credhub::Refused;

const NO_ENTRY: &str =
    "At least one access control entry must be provided. Please validate your input and retry your request.";
const BAD_OPERATION: &str = "The provided operation is not supported. Valid values include read, write, delete, read_acl, and write_acl.";

/// What stands behind the question mark.
#[derive(Deserialize)]
pub(super) struct Query {
    credential_name: Option<String>,
    path: Option<String>,
    actor: Option<String>,
}

fn needed(value: Option<String>, name: &str) -> Result<String, Refused> {
    let value = value.filter(|value| !value.is_empty());
    value.ok_or_else(|| Refused::bad(format!("The query parameter {name} is required for this request.")))
}

fn id_of(text: &str) -> Result<Uuid, CredentialError> {
    Uuid::parse_str(text).map_err(|_| CredentialError::NoPermission)
}

fn operations_of(body: &Map<String, Json>) -> Result<Operations, Refused> {
    let unprocessable = |text: &str| Refused::new(StatusCode::UNPROCESSABLE_ENTITY, text);
    let names: Vec<String> = match body.get("operations") {
        None | Some(Json::Null) => Vec::new(),
        Some(list) => serde_json::from_value(list.clone()).map_err(|_| unprocessable(BAD_OPERATION))?,
    };
    Operations::parse(&names).map_err(|error| {
        let text = error.to_string();
        if text == BAD_OPERATION { unprocessable(&text) } else { Refused::bad(text) }
    })
}

fn shown(permission: &Permission) -> Json {
    json!({
        "uuid": permission.id,
        "path": permission.path,
        "actor": permission.actor,
        "operations": permission.operations.names(),
    })
}

/// Version 1: all for exactly this path.
pub(super) async fn list(
    context: Context,
    Asking(asker): Asking,
    axum::extract::Query(query): axum::extract::Query<Query>,
) -> Result<axum::Json<Json>, Refused> {
    let path = PermissionPath::parse(&needed(query.credential_name, "credential_name")?)?;
    let all = context.hub().credentials().permissions_at(&asker, &path).await?;
    let all: Vec<Json> = all
        .iter()
        .map(|one| json!({ "actor": one.actor, "path": one.path, "operations": one.operations.names() }))
        .collect();
    Ok(axum::Json(json!({ "credential_name": path.as_str(), "permissions": all })))
}

/// Version 1: several for one path. What an actor has already is added to.
pub(super) async fn add(
    context: Context,
    Asking(asker): Asking,
    Body(body): Body,
) -> Result<Response, Refused> {
    body::only(&body, &["credential_name", "permissions"])?;
    let path = PermissionPath::parse(&body::text(&body, "credential_name")?.unwrap_or_default())?;
    let entries = body.get("permissions").and_then(Json::as_array).filter(|entries| !entries.is_empty());
    let entries = entries.ok_or_else(|| Refused::bad(NO_ENTRY))?;
    let store = context.hub().credentials();
    for entry in entries {
        let entry = entry.as_object().ok_or_else(Refused::bad_request)?;
        let actor = body::text(entry, "actor")?.unwrap_or_default();
        let operations = operations_of(entry)?;
        match store.grant(&asker, &actor, &path, operations).await {
            Err(CredentialError::PermissionExists) => {
                let there = store.permission_of(&asker, &actor, &path).await?;
                let names = [there.operations.names(), operations.names()].concat();
                store.change_permission(&asker, there.id, None, Operations::parse(&names)?).await?;
            }
            other => drop(other?),
        }
    }
    Ok(StatusCode::CREATED.into_response())
}

/// Version 1: that of an actor for a path.
pub(super) async fn remove(
    context: Context,
    Asking(asker): Asking,
    axum::extract::Query(query): axum::extract::Query<Query>,
) -> Result<Response, Refused> {
    let path = PermissionPath::parse(&needed(query.credential_name, "credential_name")?)?;
    let actor = needed(query.actor, "actor")?;
    let store = context.hub().credentials();
    let there = store.permission_of(&asker, &actor, &path).await.map_err(|_| CredentialError::NotFound)?;
    store.revoke_permission(&asker, there.id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) async fn find(
    context: Context,
    Asking(asker): Asking,
    axum::extract::Query(query): axum::extract::Query<Query>,
) -> Result<axum::Json<Json>, Refused> {
    let path = PermissionPath::parse(&needed(query.path, "path")?)?;
    let actor = needed(query.actor, "actor")?;
    let there = context.hub().credentials().permission_of(&asker, &actor, &path).await?;
    Ok(axum::Json(shown(&there)))
}

/// What a body of version 2 says: actor, path and operations.
fn whole(body: &Map<String, Json>) -> Result<(String, PermissionPath, Operations), Refused> {
    body::only(body, &["path", "actor", "operations", "uuid"])
        .map_err(|refused| refused.with_status(StatusCode::UNPROCESSABLE_ENTITY))?;
    let path = PermissionPath::parse(&body::text(body, "path")?.unwrap_or_default())?;
    let actor = body::text(body, "actor")?.unwrap_or_default();
    Ok((actor, path, operations_of(body)?))
}

pub(super) async fn create(
    context: Context,
    Asking(asker): Asking,
    Body(body): Body,
) -> Result<Response, Refused> {
    let (actor, path, operations) = whole(&body)?;
    let made = context.hub().credentials().grant(&asker, &actor, &path, operations).await?;
    Ok((StatusCode::CREATED, axum::Json(shown(&made))).into_response())
}

pub(super) async fn one(
    context: Context,
    Asking(asker): Asking,
    Path(id): Path<String>,
) -> Result<axum::Json<Json>, Refused> {
    Ok(axum::Json(shown(&context.hub().credentials().permission(&asker, id_of(&id)?).await?)))
}

pub(super) async fn replace(
    context: Context,
    Asking(asker): Asking,
    Path(id): Path<String>,
    Body(body): Body,
) -> Result<axum::Json<Json>, Refused> {
    let (actor, path, operations) = whole(&body)?;
    let store = context.hub().credentials();
    let changed = store.change_permission(&asker, id_of(&id)?, Some((&actor, &path)), operations).await?;
    Ok(axum::Json(shown(&changed)))
}

pub(super) async fn change(
    context: Context,
    Asking(asker): Asking,
    Path(id): Path<String>,
    Body(body): Body,
) -> Result<axum::Json<Json>, Refused> {
    body::only(&body, &["operations"])?;
    let operations = operations_of(&body)?;
    let changed =
        context.hub().credentials().change_permission(&asker, id_of(&id)?, None, operations).await?;
    Ok(axum::Json(shown(&changed)))
}

pub(super) async fn delete_one(
    context: Context,
    Asking(asker): Asking,
    Path(id): Path<String>,
) -> Result<axum::Json<Json>, Refused> {
    Ok(axum::Json(shown(&context.hub().credentials().revoke_permission(&asker, id_of(&id)?).await?)))
}
