//! API tokens.

use api::access::{CreatedToken, IdentityPatch, IdentityView, NewToken};
use api::changes::ChangeView;
use axum::extract::State as With;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{HeaderValue, LOCATION};
use serde_json::json;
use store::Store;
use store::{Identity, IdentityKind, IdentitySettings};
use uuid::Uuid;

use crate::access::AccessControl;
use crate::access::admin::{self, Change, CheckedChange, IdentityUpdate, NewIdentityValues};
use crate::access::{Caller, Permission, grants_of, label_of, new_token, token_hash};
use crate::conditional::{IfMatch, Revision};
use crate::extract::{Json, Path};
use crate::gates::{Gates, WriteResult};
use crate::idempotency::HoldsSecret;
use crate::paging::{Listing, PageQuery, Paging, try_listing};
use crate::problem::Problem;
use crate::routes::identity::{identity_change, identity_view, revised};
use crate::routing::{Api, routes};

const KIND: IdentityKind = IdentityKind::Token;

pub(crate) fn routes() -> Api {
    Api::area("tokens")
        .route(Permission::AccessRead, routes!(list))
        .route(Permission::AccessManage, routes!(create))
        .route(Permission::AccessRead, routes!(get_one))
        .route(Permission::AccessManage, routes!(update))
        .route(Permission::AccessManage, routes!(rotate))
        .route(Permission::AccessManage, routes!(delete))
}

/// Lists the tokens, by name.
#[utoipa::path(get, path = "/api/v1/tokens", operation_id = "listTokens", params(PageQuery),
    responses((status = 200, body = Listing<IdentityView>)))]
async fn list(With(store): With<Store>, paging: Paging) -> Result<Json<Listing<IdentityView>>, Problem> {
    let page = store::Access::of(&store).identities(KIND, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(try_listing(page, identity_view)?))
}

/// Creates a token.
///
/// The response is the only place that contains its secret.
#[utoipa::path(post, path = "/api/v1/tokens", operation_id = "createToken", request_body = NewToken,
    responses((status = 201, body = CreatedToken), (status = 202, body = ChangeView)))]
async fn create(
    With(access): With<AccessControl>,
    With(gates): With<Gates>,
    caller: Caller,
    Json(new): Json<NewToken>,
) -> Result<Response, Problem> {
    let settings = IdentitySettings {
        name: admin::name(&new.name)?,
        email: None,
        grants: admin::checked_grants(&access, &caller, &new.grants).await?,
        enabled: true,
        expires_at_us: admin::end(&access, new.expires_at.as_deref())?,
    };
    let token = new_token()?;
    let new =
        NewIdentityValues { kind: KIND, key_hash: token_hash(&token), label: label_of(&token), settings };
    let written = gates.identity(&caller, admin::create(&access, &caller, new).await?).await?;
    token_secret_response(written, token.as_str(), StatusCode::CREATED)
}

/// Shows a token.
#[utoipa::path(get, path = "/api/v1/tokens/{id}", operation_id = "getToken", params(("id" = Uuid, Path)),
    responses((status = 200, body = IdentityView)))]
async fn get_one(
    With(access): With<AccessControl>,
    Path(id): Path<Uuid>,
) -> Result<Revision<IdentityView>, Problem> {
    revised(admin::find(&access, KIND, id).await?)
}

/// Changes a token's name, grants or expiry, or disables the token.
#[utoipa::path(patch, path = "/api/v1/tokens/{id}", operation_id = "updateToken", params(("id" = Uuid, Path)),
    request_body = IdentityPatch, responses((status = 200, body = IdentityView), (status = 202, body = ChangeView)))]
async fn update(
    With(access): With<AccessControl>,
    With(gates): With<Gates>,
    caller: Caller,
    Path(id): Path<Uuid>,
    if_match: IfMatch,
    Json(patch): Json<IdentityPatch>,
) -> Result<WriteResult<Revision<IdentityView>>, Problem> {
    let patch = IdentityUpdate { email: None, ..identity_change(patch, &access)? };
    let change = admin::update(&access, &caller, KIND, id, &if_match, patch).await?;
    gates.identity(&caller, change).await?.try_map(revised)
}

/// Replaces the secret of a token; the previous secret becomes invalid immediately.
#[utoipa::path(post, path = "/api/v1/tokens/{id}/rotate", operation_id = "rotateToken",
    params(("id" = Uuid, Path)), responses((status = 200, body = CreatedToken), (status = 202, body = ChangeView)))]
async fn rotate(
    With(access): With<AccessControl>,
    With(gates): With<Gates>,
    caller: Caller,
    Path(id): Path<Uuid>,
    if_match: IfMatch,
) -> Result<Response, Problem> {
    let before = admin::find(&access, KIND, id).await?;
    if_match.check(before.revision)?;
    admin::check_grants_within_caller(&access, &caller, &grants_of(&before)?).await?;
    let token = new_token()?;
    let label = label_of(&token);
    let details = json!({ "name": before.name, "label": label });
    let change = Change::Rekey { id, revision: before.revision, key_hash: token_hash(&token), label };
    let written = gates.identity(&caller, CheckedChange { change, details }).await?;
    token_secret_response(written, token.as_str(), StatusCode::OK)
}

/// Returns the only response that contains this secret of a token.
fn token_secret_response(
    written: WriteResult<Identity>,
    token: &str,
    status: StatusCode,
) -> Result<Response, Problem> {
    let made = match written.with_token(token) {
        WriteResult::Done(made) => made,
        waits @ WriteResult::Waits(_) => return Ok(waits.map(|_| status).into_response()),
    };
    let location =
        HeaderValue::from_str(&format!("/api/v1/tokens/{}", made.id)).map_err(Problem::internal)?;
    let revision = made.revision;
    let body = CreatedToken { token: token.to_owned(), view: identity_view(made)? };
    let mut response = (status, Revision(revision, body)).into_response();
    if status == StatusCode::CREATED {
        response.headers_mut().insert(LOCATION, location);
    }
    response.extensions_mut().insert(HoldsSecret);
    Ok(response)
}

/// Deletes a token, which becomes invalid immediately.
#[utoipa::path(delete, path = "/api/v1/tokens/{id}", operation_id = "deleteToken", params(("id" = Uuid, Path)),
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
