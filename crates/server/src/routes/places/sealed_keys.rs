//! Private keys that are encrypted under policies.

use api::sealed_keys::{KeyBody, KeyView};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use http::header::{HeaderValue, LOCATION};
use sites::policies::{KeyPolicies, NewSealedKey};
use sites::tables::SealedKeyRow;
use x509::SpkiHash;

use super::attributes::AREA;
use crate::access::{Caller, Permission};
use crate::extract::{Json, Path};
use crate::paging::{Listing, PageQuery, Paging, listing};
use crate::problem::Problem;
use crate::routing::{Access, Api, routes};
use crate::state::Component;
use crate::time::shown;

/// Maximum bytes of a request: the largest accepted key has 32 KiB, in base64.
const BODY_MAX: usize = 64 * 1_024;

pub(super) fn routes() -> Api {
    Api::area(AREA)
        .route(Permission::KeyPolicyRead, routes!(list))
        .route(Access::needs(Permission::KeySeal).body_max(BODY_MAX), routes!(put))
        .route(Permission::KeyPolicyRead, routes!(get_one))
        .route(Permission::KeySeal, routes!(withdraw))
}

fn key_view(row: SealedKeyRow) -> KeyView {
    KeyView {
        spki_sha256: SpkiHash::from_bytes(row.spki_sha256).to_string(),
        name: row.name,
        kind: row.kind,
        policy: row.policy,
        policy_name: row.policy_name,
        generation: row.generation,
        created_by: row.created_by,
        created_at: shown(row.created_at_us),
        updated_at: shown(row.updated_at_us),
    }
}

/// Lists the keys that are encrypted under policies, by name.
#[utoipa::path(get, path = "/api/v1/sealed-keys", operation_id = "listSealedKeys", params(PageQuery),
    responses((status = 200, body = Listing<KeyView>)))]
async fn list(
    Component(policies): Component<KeyPolicies>,
    paging: Paging,
) -> Result<Json<Listing<KeyView>>, Problem> {
    let page = policies.keys(paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, key_view)))
}

/// Stores a private key that was encrypted under a policy, and replaces its earlier version.
///
/// The server cannot decrypt the uploaded key: encrypt it with `bulla key seal`.
#[utoipa::path(post, path = "/api/v1/sealed-keys", operation_id = "putSealedKey", request_body = KeyBody,
    responses((status = 201, body = KeyView)))]
async fn put(
    Component(policies): Component<KeyPolicies>,
    caller: Caller,
    Json(body): Json<KeyBody>,
) -> Result<Response, Problem> {
    let policy = policies.policy(&body.policy).await?;
    let decode = |text: &str, what: &str| {
        STANDARD.decode(text).map_err(|_| Problem::unprocessable(format_args!("{what} is not base64")))
    };
    let new = NewSealedKey {
        name: body.name,
        spki: decode(&body.spki, "spki")?,
        policy: policy.id,
        generation: body.generation,
        blob: decode(&body.sealed, "sealed")?,
    };
    let view = key_view(policies.put_key(new, caller.actor()).await?);
    let at = HeaderValue::from_str(&format!("/api/v1/sealed-keys/{}", view.spki_sha256));
    let mut response = (StatusCode::CREATED, Json(view)).into_response();
    response.headers_mut().extend(at.ok().map(|at| (LOCATION, at)));
    Ok(response)
}

/// Shows an encrypted key, by the SHA-256 of its SubjectPublicKeyInfo.
#[utoipa::path(get, path = "/api/v1/sealed-keys/{key}", operation_id = "getSealedKey",
    params(("key" = String, Path)), responses((status = 200, body = KeyView)))]
async fn get_one(
    Component(policies): Component<KeyPolicies>,
    Path(key): Path<String>,
) -> Result<Json<KeyView>, Problem> {
    Ok(Json(key_view(policies.key(&hash(&key)?).await?)))
}

/// Withdraws an encrypted key: it is deleted, and nodes no longer sign with it.
#[utoipa::path(delete, path = "/api/v1/sealed-keys/{key}", operation_id = "withdrawSealedKey",
    params(("key" = String, Path)), responses((status = 204)))]
async fn withdraw(
    Component(policies): Component<KeyPolicies>,
    caller: Caller,
    Path(key): Path<String>,
) -> Result<StatusCode, Problem> {
    policies.withdraw(&hash(&key)?, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn hash(text: &str) -> Result<SpkiHash, Problem> {
    text.parse().map_err(|_| Problem::not_found("sealed key with that SHA-256"))
}
