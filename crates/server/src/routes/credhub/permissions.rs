//! Permissions, in both versions of CredHub's API.

use api::credhub::{
    NamePermissions, OperationsChange, PermissionEntry, PermissionRequest, PermissionView, PermissionsQuery,
};
use axum::Json;
use axum::extract::{Path, Query};
use axum::response::{IntoResponse, Response};
use credentials::{CredentialError, Operations, Permission, PermissionPath};
use http::StatusCode;
use uuid::Uuid;

use super::body::{self, Body, Members};
use super::context::Context;
use super::principal::Principal;
use crate::credhub::Refused;

const NO_ENTRY: &str =
    "At least one access control entry must be provided. Please validate your input and retry your request.";
const BAD_OPERATION: &str = "The provided operation is not supported. Valid values include read, write, delete, read_acl, and write_acl.";

fn needed(value: Option<String>, name: &str) -> Result<String, Refused> {
    let value = value.filter(|value| !value.is_empty());
    value.ok_or_else(|| Refused::bad(format!("The query parameter {name} is required for this request.")))
}

fn id_of(text: &str) -> Result<Uuid, CredentialError> {
    Uuid::parse_str(text).map_err(|_| CredentialError::NoPermission)
}

fn parse_operations(names: &[String]) -> Result<Operations, Refused> {
    Operations::parse(names).map_err(|error| {
        let text = error.to_string();
        if text == BAD_OPERATION {
            Refused::new(StatusCode::UNPROCESSABLE_ENTITY, text)
        } else {
            Refused::bad(text)
        }
    })
}

fn names(operations: Operations) -> Vec<String> {
    operations.names().into_iter().map(str::to_owned).collect()
}

fn permission_view(permission: Permission) -> PermissionView {
    PermissionView {
        uuid: permission.id,
        path: permission.path,
        actor: permission.actor,
        operations: names(permission.operations),
    }
}

/// Version 1: lists all permissions for exactly this path.
pub(super) async fn list(
    context: Context,
    Principal(requester): Principal,
    Query(query): Query<PermissionsQuery>,
) -> Result<Json<NamePermissions>, Refused> {
    let path = PermissionPath::parse(&needed(query.credential_name, "credential_name")?)?;
    let all = context.hub().credentials().permissions_at(&requester, &path).await?;
    let all = all.into_iter().map(|one| PermissionEntry {
        actor: one.actor,
        path: Some(one.path),
        operations: names(one.operations),
    });
    Ok(Json(NamePermissions { credential_name: path.as_str().to_owned(), permissions: Some(all.collect()) }))
}

/// Version 1: adds permissions of several actors for one path. Operations are added to existing permissions.
pub(super) async fn add(
    context: Context,
    Principal(requester): Principal,
    Body(body): Body,
) -> Result<Response, Refused> {
    let request: NamePermissions = body::read(&body)?;
    let path = PermissionPath::parse(&request.credential_name)?;
    let entries = request.permissions.filter(|entries| !entries.is_empty());
    let entries = entries.ok_or_else(|| Refused::bad(NO_ENTRY))?;
    let store = context.hub().credentials();
    for entry in entries {
        let PermissionEntry { actor, operations, .. } = entry;
        let operations = parse_operations(&operations)?;
        match store.grant(&requester, &actor, &path, operations).await {
            Err(CredentialError::PermissionExists) => {
                let existing = store.permission_of(&requester, &actor, &path).await?;
                let names = [existing.operations.names(), operations.names()].concat();
                store.change_permission(&requester, existing.id, None, Operations::parse(&names)?).await?;
            }
            other => drop(other?),
        }
    }
    Ok(StatusCode::CREATED.into_response())
}

/// Version 1: removes the permission of an actor for a path.
pub(super) async fn remove(
    context: Context,
    Principal(requester): Principal,
    Query(query): Query<PermissionsQuery>,
) -> Result<Response, Refused> {
    let path = PermissionPath::parse(&needed(query.credential_name, "credential_name")?)?;
    let actor = needed(query.actor, "actor")?;
    let store = context.hub().credentials();
    let existing =
        store.permission_of(&requester, &actor, &path).await.map_err(|_| CredentialError::NotFound)?;
    store.revoke_permission(&requester, existing.id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) async fn find(
    context: Context,
    Principal(requester): Principal,
    Query(query): Query<PermissionsQuery>,
) -> Result<Json<PermissionView>, Refused> {
    let path = PermissionPath::parse(&needed(query.path, "path")?)?;
    let actor = needed(query.actor, "actor")?;
    let existing = context.hub().credentials().permission_of(&requester, &actor, &path).await?;
    Ok(Json(permission_view(existing)))
}

/// Parses a body of version 2 of the API: actor, path and operations.
fn parse_permission(body: &Members) -> Result<(String, PermissionPath, Operations), Refused> {
    let request: PermissionRequest =
        body::read(body).map_err(|unreadable| unreadable.refused(StatusCode::UNPROCESSABLE_ENTITY))?;
    let path = PermissionPath::parse(&request.path)?;
    Ok((request.actor, path, parse_operations(&request.operations)?))
}

pub(super) async fn create(
    context: Context,
    Principal(requester): Principal,
    Body(body): Body,
) -> Result<Response, Refused> {
    let (actor, path, operations) = parse_permission(&body)?;
    let made = context.hub().credentials().grant(&requester, &actor, &path, operations).await?;
    Ok((StatusCode::CREATED, Json(permission_view(made))).into_response())
}

pub(super) async fn one(
    context: Context,
    Principal(requester): Principal,
    Path(id): Path<String>,
) -> Result<Json<PermissionView>, Refused> {
    Ok(Json(permission_view(context.hub().credentials().permission(&requester, id_of(&id)?).await?)))
}

pub(super) async fn replace(
    context: Context,
    Principal(requester): Principal,
    Path(id): Path<String>,
    Body(body): Body,
) -> Result<Json<PermissionView>, Refused> {
    let (actor, path, operations) = parse_permission(&body)?;
    let store = context.hub().credentials();
    let changed = store.change_permission(&requester, id_of(&id)?, Some((&actor, &path)), operations).await?;
    Ok(Json(permission_view(changed)))
}

pub(super) async fn change(
    context: Context,
    Principal(requester): Principal,
    Path(id): Path<String>,
    Body(body): Body,
) -> Result<Json<PermissionView>, Refused> {
    let request: OperationsChange = body::read(&body)?;
    let operations = parse_operations(&request.operations)?;
    let changed =
        context.hub().credentials().change_permission(&requester, id_of(&id)?, None, operations).await?;
    Ok(Json(permission_view(changed)))
}

pub(super) async fn delete_one(
    context: Context,
    Principal(requester): Principal,
    Path(id): Path<String>,
) -> Result<Json<PermissionView>, Refused> {
    Ok(Json(permission_view(context.hub().credentials().revoke_permission(&requester, id_of(&id)?).await?)))
}
