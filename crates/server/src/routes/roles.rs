//! Built-in and custom roles.

use api::access::{NewRole, RoleView};
use api::changes::ChangeView;
use axum::extract::State as With;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::json;
use store::Store;
use store::{Role, RoleChange};

use crate::access::AccessControl;
use crate::access::admin::{self, Change, CheckedChange};
use crate::access::{
    BUILT_IN_ROLES, Caller, Granted, Permission, Permissions, Scope, built_in_role, permissions_of,
};
use crate::conditional::{IfMatch, Revision};
use crate::extract::{Json, Path};
use crate::gates::{Gates, WriteResult};
use crate::paging::Listing;
use crate::problem::Problem;
use crate::routing::{Api, routes};
use crate::time::shown;

/// Maximum custom roles: all of them are cached in memory.
const ROLES_MAX: usize = 256;

pub(crate) fn routes() -> Api {
    Api::area("roles")
        .route(Permission::AccessRead, routes!(list))
        .route(Permission::AccessRead, routes!(get_one))
        .route(Permission::AccessManage, routes!(put))
        .route(Permission::AccessManage, routes!(delete))
}

fn role_view(role: &Role) -> Result<RoleView, Problem> {
    Ok(RoleView {
        name: role.name.clone(),
        description: role.description.clone(),
        permissions: permissions_of(role)?.iter().map(|permission| permission.to_string()).collect(),
        built_in: false,
        updated_at: Some(shown(role.updated_at_us)),
    })
}

fn built_in_roles() -> impl Iterator<Item = RoleView> {
    BUILT_IN_ROLES.iter().map(|role| RoleView {
        name: role.name.to_owned(),
        description: role.description.to_owned(),
        permissions: role.permissions.iter().map(|permission| permission.to_string()).collect(),
        built_in: true,
        updated_at: None,
    })
}

/// Lists every role.
#[utoipa::path(get, path = "/api/v1/roles", operation_id = "listRoles",
    responses((status = 200, body = Listing<RoleView>)))]
async fn list(With(store): With<Store>) -> Result<Json<Listing<RoleView>>, Problem> {
    let own = store::Access::of(&store).roles().await?;
    let all = built_in_roles().map(Ok).chain(own.iter().map(role_view)).collect::<Result<_, Problem>>()?;
    Ok(Json(Listing::whole(all)))
}

/// Shows a role.
#[utoipa::path(get, path = "/api/v1/roles/{name}", operation_id = "getRole", params(("name" = String, Path)),
    responses((status = 200, body = RoleView)))]
async fn get_one(With(store): With<Store>, Path(name): Path<String>) -> Result<Response, Problem> {
    if let Some(role) = built_in_roles().find(|role| role.name == name) {
        return Ok(Json(role).into_response());
    }
    let role = find(&store, &name).await?.ok_or_else(|| Problem::not_found(format_args!("role {name:?}")))?;
    Ok(Revision(role.revision, role_view(&role)?).into_response())
}

/// Creates or replaces a role.
#[utoipa::path(put, path = "/api/v1/roles/{name}", operation_id = "putRole", params(("name" = String, Path)),
    request_body = NewRole, responses((status = 200, body = RoleView), (status = 201, body = RoleView), (status = 202, body = ChangeView)))]
async fn put(
    With(store): With<Store>,
    With(access): With<AccessControl>,
    With(gates): With<Gates>,
    caller: Caller,
    Path(name): Path<String>,
    if_match: IfMatch,
    Json(new): Json<NewRole>,
) -> Result<Response, Problem> {
    let name = admin::name(&name)?;
    reject_built_in(&name)?;
    let named = new.permissions.iter().map(|name| name.parse());
    let new_permissions = named.collect::<Result<Vec<Permission>, _>>().map_err(Problem::unprocessable)?;
    check_permissions_within_caller(&caller, Permissions::of(&new_permissions))?;
    let before = find(&store, &name).await?;
    match &before {
        Some(role) => {
            if_match.check(role.revision)?;
            check_permissions_within_caller(&caller, required_to_change(role))?;
        }
        None => {
            if_match.check_absent()?;
            if store::Access::of(access.store()).roles().await?.len() >= ROLES_MAX {
                return Err(Problem::conflict(format_args!(
                    "the limit of {ROLES_MAX} roles is reached; delete one first"
                )));
            }
        }
    }
    let description: String = new.description.chars().take(1_024).collect();
    let permissions = serde_json::to_string(&new_permissions).map_err(Problem::internal)?;
    let change = Change::PutRole(RoleChange {
        name: name.clone(),
        description,
        permissions,
        revision: before.as_ref().map(|role| role.revision),
        at_us: access.clock().now_us(),
    });
    let details = json!({ "permissions": new_permissions });
    let written = gates.write(&caller, CheckedChange { change, details }.into()).await?;
    if matches!(written, WriteResult::Waits(_)) {
        return Ok(written.map(|()| StatusCode::OK).into_response());
    }
    let role = find(&store, &name)
        .await?
        .ok_or_else(|| Problem::conflict("the role was deleted by another request"))?;
    let status = if before.is_some() { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Revision(role.revision, role_view(&role)?)).into_response())
}

/// Deletes a role. Grants that name it have no effect from then on.
#[utoipa::path(delete, path = "/api/v1/roles/{name}", operation_id = "deleteRole",
    params(("name" = String, Path)), responses((status = 204)))]
async fn delete(
    With(store): With<Store>,
    With(gates): With<Gates>,
    caller: Caller,
    Path(name): Path<String>,
    if_match: IfMatch,
) -> Result<WriteResult<StatusCode>, Problem> {
    reject_built_in(&name)?;
    let role = find(&store, &name).await?.ok_or_else(|| Problem::not_found(format_args!("role {name:?}")))?;
    if_match.check(role.revision)?;
    check_permissions_within_caller(&caller, required_to_change(&role))?;
    let change = Change::DeleteRole { name: name.clone(), revision: role.revision };
    let written = gates.write(&caller, CheckedChange { change, details: json!({}) }.into()).await?;
    Ok(written.map(|()| StatusCode::NO_CONTENT))
}

async fn find(store: &Store, name: &str) -> Result<Option<Role>, Problem> {
    Ok(store::Access::of(store).roles().await?.into_iter().find(|role| role.name == name))
}

fn reject_built_in(name: &str) -> Result<(), Problem> {
    match built_in_role(name) {
        None => Ok(()),
        Some(_) => Err(Problem::conflict("a built-in role cannot be changed")),
    }
}

/// Returns the permissions that a caller must hold to change a role: the permissions of the role. If this version cannot parse the
/// role, returns all permissions.
fn required_to_change(role: &Role) -> Permissions {
    permissions_of(role).map_or(Permissions::all(), |permissions| Permissions::of(&permissions))
}

/// Checks that the caller holds all permissions of a role in all scopes, because a role can be granted in any scope.
fn check_permissions_within_caller(caller: &Caller, permissions: Permissions) -> Result<(), Problem> {
    if caller.covers(&Granted { permissions, scope: Scope::Any }) {
        return Ok(());
    }
    Err(Problem::forbidden("this role exceeds your own permissions"))
}
