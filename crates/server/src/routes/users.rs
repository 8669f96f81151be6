//! Users: people who have logged in, or may log in.

use api::access::{IdentityPatch, IdentityView, NewUser, SessionView};
use api::changes::ChangeView;
use axum::extract::State as With;
use axum::response::Response;
use http::StatusCode;
use serde_json::json;
use store::Store;
use store::{IdentityKind, IdentitySettings, NewPassword};
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::access::AccessControl;
use crate::access::admin::{self, Change, CheckedChange, NewIdentityValues};
use crate::access::managers::LOCAL;
use crate::access::oidc::Oidc;
use crate::access::{Caller, CallerKind, Permission, forbidden, password, subject_hash};
use crate::conditional::{IfMatch, Revision};
use crate::extract::{Json, Path};
use crate::gates::{Gates, WriteResult};
use crate::paging::{Listing, PageQuery, Paging, try_listing};
use crate::problem::Problem;
use crate::routes::identity::{created, identity_change, identity_view, revised, session_view};
use crate::routing::{Access, Api, routes};

const KIND: IdentityKind = IdentityKind::User;

/// Maximum length of a subject or issuer, in bytes.
const SUBJECT_MAX: usize = 255;

/// Maximum bytes of a body with a password.
const BODY_MAX: usize = 4 << 10;

pub(crate) fn routes() -> Api {
    Api::area("users")
        .route(Permission::AccessRead, routes!(list))
        .route(Permission::AccessManage, routes!(create))
        .route(Permission::AccessRead, routes!(get_one))
        .route(Permission::AccessManage, routes!(update))
        .route(Permission::AccessManage, routes!(delete))
        .route(Permission::AccessRead, routes!(sessions))
        .route(Permission::AccessManage, routes!(end_sessions))
        .route(Access::known().dangerous().body_max(BODY_MAX), routes!(set_password))
}

/// Lists the users, by name.
#[utoipa::path(get, path = "/api/v1/users", operation_id = "listUsers", params(PageQuery),
    responses((status = 200, body = Listing<IdentityView>)))]
async fn list(With(store): With<Store>, paging: Paging) -> Result<Json<Listing<IdentityView>>, Problem> {
    let page = store::Access::of(&store).identities(KIND, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(try_listing(page, identity_view)?))
}

/// Creates a user who later logs in at the OIDC issuer, or who uses only a password and one-time links.
#[utoipa::path(post, path = "/api/v1/users", operation_id = "createUser", request_body = NewUser,
    responses((status = 201, body = IdentityView), (status = 202, body = ChangeView)))]
async fn create(
    With(access): With<AccessControl>,
    With(gates): With<Gates>,
    With(oidc): With<Option<Oidc>>,
    caller: Caller,
    Json(new): Json<NewUser>,
) -> Result<Response, Problem> {
    let configured = oidc.map(|oidc| oidc.options().issuer.clone());
    let (key_hash, label) = user_lookup_key(new.subject, new.issuer, configured)?;
    let settings = IdentitySettings {
        name: admin::name(&new.name)?,
        email: new.email,
        grants: admin::checked_grants(&access, &caller, &new.grants).await?,
        enabled: true,
        expires_at_us: None,
    };
    let new = NewIdentityValues { kind: KIND, key_hash, label, settings };
    created("/api/v1/users", gates.identity(&caller, admin::create(&access, &caller, new).await?).await?)
}

/// Returns the lookup key and label of a user: from issuer and subject, or for a local user from a random UUID.
fn user_lookup_key(
    subject: Option<String>,
    issuer: Option<String>,
    configured: Option<String>,
) -> Result<([u8; 32], String), Problem> {
    let Some(subject) = subject else {
        if issuer.is_some() {
            return Err(Problem::unprocessable(
                "an `issuer` without a `subject` does not identify a person: give both, or neither",
            ));
        }
        return Ok((subject_hash(LOCAL, &Uuid::new_v4().to_string()), LOCAL.to_owned()));
    };
    let issuer = issuer.or(configured).ok_or_else(|| {
        Problem::unprocessable(
            "no OIDC issuer is configured: give the `issuer` that the person logs in with, or omit `subject` for a person \
             with a password",
        )
    })?;
    if subject.is_empty() || subject.len() > SUBJECT_MAX || issuer.is_empty() || issuer.len() > SUBJECT_MAX {
        let detail = format!("a subject and an issuer must have 1 to {SUBJECT_MAX} bytes");
        return Err(Problem::unprocessable(detail));
    }
    if subject == LOCAL {
        return Err(Problem::unprocessable(format_args!(
            "the subject `{LOCAL}` is reserved for users without an issuer: give the person another subject at the issuer"
        )));
    }
    Ok((subject_hash(&issuer, &subject), subject))
}

/// Sets a user's password: the caller's own, or with `access.manage` the password of a user with no more permissions than the
/// caller.
///
/// The user's sessions end, except the session in which users set their own password. Setting another user's password may require
/// approval, like a new token.
#[utoipa::path(put, path = "/api/v1/users/{id}/password", operation_id = "setPassword", params(("id" = Uuid, Path)),
    request_body = api::access::NewPassword, responses((status = 204), (status = 202, body = ChangeView)))]
async fn set_password(
    With(access): With<AccessControl>,
    With(gates): With<Gates>,
    caller: Caller,
    Path(id): Path<Uuid>,
    Json(given): Json<api::access::NewPassword>,
) -> Result<WriteResult<StatusCode>, Problem> {
    let own = caller.kind() == CallerKind::User && caller.id() == id;
    if !own && !caller.has_permission_everywhere(Permission::AccessManage) {
        return Err(forbidden(Permission::AccessManage));
    }
    let given = Zeroizing::new(given.password);
    password::check(&given)?;
    let user = admin::find(&access, KIND, id).await?;
    if !own {
        admin::check_identity_within_caller(&access, &caller, &user).await?;
    }
    let new = NewPassword {
        identity: id,
        hash: password::hash(given).await?,
        set_at_us: access.clock().now_us(),
        set_by: caller.actor().to_owned(),
        keep: caller.session().filter(|_| own).map(|session| session.hash),
    };
    let details = json!({ "name": user.name });
    let change = Change::SetPassword(Box::new(new));
    Ok(gates.write(&caller, CheckedChange { change, details }.into()).await?.map(|()| StatusCode::NO_CONTENT))
}

/// Shows a user.
#[utoipa::path(get, path = "/api/v1/users/{id}", operation_id = "getUser", params(("id" = Uuid, Path)),
    responses((status = 200, body = IdentityView)))]
async fn get_one(
    With(access): With<AccessControl>,
    Path(id): Path<Uuid>,
) -> Result<Revision<IdentityView>, Problem> {
    revised(admin::find(&access, KIND, id).await?)
}

/// Changes a user's name, address or grants, or disables the user.
#[utoipa::path(patch, path = "/api/v1/users/{id}", operation_id = "updateUser", params(("id" = Uuid, Path)),
    request_body = IdentityPatch,
    responses((status = 200, body = IdentityView), (status = 202, body = ChangeView)))]
async fn update(
    With(access): With<AccessControl>,
    With(gates): With<Gates>,
    caller: Caller,
    Path(id): Path<Uuid>,
    if_match: IfMatch,
    Json(patch): Json<IdentityPatch>,
) -> Result<WriteResult<Revision<IdentityView>>, Problem> {
    let patch = identity_change(patch, &access)?;
    let change = admin::update(&access, &caller, KIND, id, &if_match, patch).await?;
    gates.identity(&caller, change).await?.try_map(revised)
}

/// Deletes a user and ends the user's sessions.
///
/// A user whose groups are mapped to roles can log in again. To prevent that, disable the user instead.
#[utoipa::path(delete, path = "/api/v1/users/{id}", operation_id = "deleteUser", params(("id" = Uuid, Path)),
    responses((status = 204)))]
async fn delete(
    With(access): With<AccessControl>,
    With(gates): With<Gates>,
    caller: Caller,
    Path(id): Path<Uuid>,
    if_match: IfMatch,
) -> Result<WriteResult<StatusCode>, Problem> {
    let change = admin::delete(&access, &caller, KIND, id, &if_match).await?;
    Ok(gates.write(&caller, change.into()).await?.map(|()| StatusCode::NO_CONTENT))
}

/// Lists a user's sessions, newest first, at most a hundred.
#[utoipa::path(get, path = "/api/v1/users/{id}/sessions", operation_id = "listSessions",
    params(("id" = Uuid, Path)), responses((status = 200, body = Listing<SessionView>)))]
async fn sessions(
    With(access): With<AccessControl>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<Json<Listing<SessionView>>, Problem> {
    admin::find(&access, KIND, id).await?;
    let sessions = store::Access::of(access.store()).sessions_of(id).await?.into_iter();
    Ok(Json(Listing::whole(sessions.map(|row| session_view(row, &caller)).collect::<Result<_, _>>()?)))
}

/// Ends a user's sessions.
#[utoipa::path(delete, path = "/api/v1/users/{id}/sessions", operation_id = "endSessions",
    params(("id" = Uuid, Path)), responses((status = 204)))]
async fn end_sessions(
    With(access): With<AccessControl>,
    With(gates): With<Gates>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<WriteResult<StatusCode>, Problem> {
    let user = admin::find(&access, KIND, id).await?;
    let details = json!({ "name": user.name });
    let change = Change::EndSessions { of: id };
    let written = gates.write(&caller, CheckedChange { change, details }.into()).await?;
    Ok(written.map(|()| StatusCode::NO_CONTENT))
}
