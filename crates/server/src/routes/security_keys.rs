//! Security keys of users.

use api::security_keys::{NewSecurityKey, SecurityKeyCeremony, SecurityKeyRegistration, SecurityKeyView};
use axum::extract::State as With;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;
use serde_json::json;
use store::IdentityKind;
use uuid::Uuid;

use crate::access::admin::{self, Change, CheckedChange};
use crate::access::site::Site;
use crate::access::{AccessControl, Caller, CallerKind, Permission, forbidden, security_key};
use crate::extract::{Json, Path};
use crate::gates::{Gates, WriteResult};
use crate::idempotency::HoldsSecret;
use crate::paging::Listing;
use crate::problem::Problem;
use crate::routing::{Access, Api, routes};

/// Maximum bytes of the response of a new security key.
const BODY_MAX: usize = 32 << 10;

pub(crate) fn routes() -> Api {
    Api::area("users")
        .route(Access::known(), routes!(list))
        .route(Access::known().dangerous(), routes!(begin))
        .route(Access::known().dangerous().body_max(BODY_MAX), routes!(add))
        .route(Access::known().dangerous(), routes!(remove))
}

fn is_own(caller: &Caller, id: Uuid) -> bool {
    caller.kind() == CallerKind::User && caller.id() == id
}

/// Rejects a registration for another user: only the holder of a key can register it.
fn check_own_account(caller: &Caller, id: Uuid) -> Result<(), Problem> {
    if is_own(caller, id) {
        return Ok(());
    }
    Err(Problem::forbidden("users register their own security keys, in a browser")
        .hint("the user signs in to the console and opens /console/account"))
}

/// Lists a user's security keys, the oldest first: the caller's own keys, or with `access.read` the keys of any user.
#[utoipa::path(get, path = "/api/v1/users/{id}/security-keys", operation_id = "listSecurityKeys",
    params(("id" = Uuid, Path)), responses((status = 200, body = Listing<SecurityKeyView>)))]
async fn list(
    With(access): With<AccessControl>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<Json<Listing<SecurityKeyView>>, Problem> {
    if !is_own(&caller, id) && !caller.has_permission_everywhere(Permission::AccessRead) {
        return Err(forbidden(Permission::AccessRead));
    }
    admin::find(&access, IdentityKind::User, id).await?;
    let keys = store::Access::of(access.store()).security_keys(id).await?;
    Ok(Json(Listing::whole(keys.into_iter().map(security_key::view).collect())))
}

/// Begins the registration of a security key for the caller.
///
/// The browser creates the key with `options`; its response is then sent to `POST /api/v1/users/{id}/security-keys`.
#[utoipa::path(post, path = "/api/v1/users/{id}/security-keys/challenge", operation_id = "beginSecurityKey",
    params(("id" = Uuid, Path)), request_body = NewSecurityKey,
    responses((status = 201, body = SecurityKeyCeremony)))]
async fn begin(
    With(access): With<AccessControl>,
    caller: Caller,
    Path(id): Path<Uuid>,
    parts: Parts,
    Json(new): Json<NewSecurityKey>,
) -> Result<Response, Problem> {
    check_own_account(&caller, id)?;
    let site = Site::of(&parts)?;
    let ceremony = security_key::begin_registration(&access, &caller, &site, &new.name).await?;
    let mut response = (StatusCode::CREATED, Json(ceremony)).into_response();
    response.extensions_mut().insert(HoldsSecret);
    Ok(response)
}

/// Registers a security key for the caller. From then on, the caller's password alone does not sign in.
///
/// The first key ends the caller's other sessions and unused one-time links.
#[utoipa::path(post, path = "/api/v1/users/{id}/security-keys", operation_id = "createSecurityKey",
    params(("id" = Uuid, Path)), request_body = SecurityKeyRegistration,
    responses((status = 201, body = SecurityKeyView)))]
async fn add(
    With(access): With<AccessControl>,
    caller: Caller,
    Path(id): Path<Uuid>,
    Json(given): Json<SecurityKeyRegistration>,
) -> Result<(StatusCode, Json<SecurityKeyView>), Problem> {
    check_own_account(&caller, id)?;
    let key = security_key::finish_registration(&access, &caller, given).await?;
    Ok((StatusCode::CREATED, Json(security_key::view(key))))
}

/// Removes a security key: the caller's own, or with `access.manage` one of a user with no more permissions than the caller.
///
/// A user without security keys signs in with the password alone.
#[utoipa::path(delete, path = "/api/v1/users/{id}/security-keys/{key}", operation_id = "deleteSecurityKey",
    params(("id" = Uuid, Path), ("key" = Uuid, Path)), responses((status = 204)))]
async fn remove(
    With(access): With<AccessControl>,
    With(gates): With<Gates>,
    caller: Caller,
    Path((id, key)): Path<(Uuid, Uuid)>,
) -> Result<WriteResult<StatusCode>, Problem> {
    let own = is_own(&caller, id);
    if !own && !caller.has_permission_everywhere(Permission::AccessManage) {
        return Err(forbidden(Permission::AccessManage));
    }
    let user = admin::find(&access, IdentityKind::User, id).await?;
    if !own {
        admin::check_identity_within_caller(&access, &caller, &user).await?;
    }
    let keys = store::Access::of(access.store()).security_keys(id).await?;
    let found = keys.into_iter().find(|one| one.id == key);
    let found = found.ok_or_else(|| Problem::not_found(format_args!("security key {key} of user {id}")))?;
    let details = json!({ "name": user.name, "security_key": key, "key_name": found.name });
    let change = Change::RemoveSecurityKey { of: id, key };
    Ok(gates.write(&caller, CheckedChange { change, details }.into()).await?.map(|()| StatusCode::NO_CONTENT))
}
