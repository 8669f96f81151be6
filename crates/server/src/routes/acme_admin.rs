//! Administration of ACME clients: external account keys, accounts, orders, limits.

use api::acme::{
    AcmeAccountView, AcmeOrderQuery, AcmeOrderView, CreatedExternalKey, ExternalKeyView, LimitOverrideBody,
    LimitOverrideView, NewExternalKeyBody,
};
use authority::acme::{Acme, BadOverride, ExternalKeyError, NewExternalKey, NewOverride, OrderWithStatus};
use authority::tables::acme::{AcmeAccount, AcmeExternalKey, AcmeLimitOverride};
use axum::response::{IntoResponse, Response};
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use uuid::Uuid;

use crate::access::{Caller, Permission};
use crate::extract::{Json, Path, Query};
use crate::idempotency::HoldsSecret;
use crate::paging::{Listing, PageQuery, Paging, listing};
use crate::problem::Problem;
use crate::routing::{Api, routes};
use crate::state::Component;
use crate::time;

pub(crate) fn routes() -> Api {
    Api::area("acme")
        .route(Permission::ProtocolRead, routes!(list_keys))
        .route(Permission::ProtocolManage, routes!(create_key))
        .route(Permission::ProtocolRead, routes!(get_key))
        .route(Permission::ProtocolManage, routes!(disable_key))
        .route(Permission::ProtocolManage, routes!(delete_key))
        .route(Permission::ProtocolRead, routes!(list_accounts))
        .route(Permission::ProtocolRead, routes!(get_account))
        .route(Permission::ProtocolManage, routes!(revoke_account))
        .route(Permission::ProtocolRead, routes!(list_orders))
        .route(Permission::ProtocolRead, routes!(get_order))
        .route(Permission::ProtocolRead, routes!(list_overrides))
        .route(Permission::ProtocolManage, routes!(put_override))
        .route(Permission::ProtocolManage, routes!(delete_override))
}

fn external_key_view(key: AcmeExternalKey) -> ExternalKeyView {
    ExternalKeyView {
        id: key.id,
        kid: key.kid,
        label: key.label,
        reusable: key.reusable,
        profiles: key.profiles,
        names: key.names,
        team: key.team,
        created_at: time::shown(key.created_at_us),
        created_by: key.created_by,
        expires_at: time::maybe_shown(key.expires_at_us),
        disabled_at: time::maybe_shown(key.disabled_at_us),
        used_at: time::maybe_shown(key.used_at_us),
        uses: key.uses,
    }
}

fn acme_account_view(account: AcmeAccount) -> AcmeAccountView {
    AcmeAccountView {
        id: account.id,
        status: account.status.to_string(),
        contacts: account.contacts,
        external_key: account.external_key,
        profile: account.profile,
        address: account.address,
        created_at: time::shown(account.created_at_us),
        updated_at: time::shown(account.updated_at_us),
    }
}

fn acme_order_view(OrderWithStatus { order, status, error }: OrderWithStatus) -> AcmeOrderView {
    AcmeOrderView {
        id: order.id,
        account: order.account,
        profile: order.profile,
        status: status.to_owned(),
        names: order.names,
        created_at: time::shown(order.created_at_us),
        expires_at: time::shown(order.expires_at_us),
        certificate: order.certificate,
        replaces: order.replaces,
        error,
    }
}

fn limit_override_view(row: AcmeLimitOverride) -> LimitOverrideView {
    LimitOverrideView {
        id: row.id,
        kind: row.kind.to_string(),
        subject: row.subject,
        allowed: row.allowed,
        seconds: row.seconds,
        note: row.note,
        created_at: time::shown(row.created_at_us),
        created_by: row.created_by,
    }
}

impl From<ExternalKeyError> for Problem {
    fn from(error: ExternalKeyError) -> Self {
        match error {
            ExternalKeyError::Bad { .. } => Self::unprocessable(error),
            ExternalKeyError::NameTaken(_) => Self::conflict(error),
            ExternalKeyError::Random => Self::internal(error),
            ExternalKeyError::Store(error) => error.into(),
        }
    }
}

impl From<BadOverride> for Problem {
    fn from(error: BadOverride) -> Self {
        match error {
            BadOverride::Bad { .. } => Self::unprocessable(error),
            BadOverride::Store(error) => error.into(),
        }
    }
}

/// Lists the keys for external account binding, newest first.
#[utoipa::path(get, path = "/api/v1/acme/external-keys", operation_id = "listAcmeExternalKeys", params(PageQuery),
    responses((status = 200, body = Listing<ExternalKeyView>)))]
async fn list_keys(
    Component(acme): Component<Acme>,
    paging: Paging,
) -> Result<Json<Listing<ExternalKeyView>>, Problem> {
    let page = acme.external_keys(paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, external_key_view)))
}

/// Creates a key for external account binding.
///
/// The response is the only place that contains its secret.
#[utoipa::path(post, path = "/api/v1/acme/external-keys", operation_id = "createAcmeExternalKey",
    request_body = NewExternalKeyBody, responses((status = 201, body = CreatedExternalKey)))]
async fn create_key(
    Component(acme): Component<Acme>,
    caller: Caller,
    Json(body): Json<NewExternalKeyBody>,
) -> Result<Response, Problem> {
    let new = NewExternalKey {
        kid: body.kid,
        label: body.label,
        reusable: body.reusable,
        profiles: body.profiles,
        names: body.names,
        team: body.team,
        expires_at_us: body.expires_at.as_deref().map(time::parsed).transpose()?,
    };
    let made = acme.create_external_key(new, caller.actor()).await?;
    let location = HeaderValue::from_str(&format!("/api/v1/acme/external-keys/{}", made.id))
        .map_err(Problem::internal)?;
    let body = CreatedExternalKey { id: made.id, kid: made.kid, hmac_key: made.secret.to_string() };
    let mut response = (StatusCode::CREATED, [(LOCATION, location)], Json(body)).into_response();
    response.extensions_mut().insert(HoldsSecret);
    Ok(response)
}

/// Shows a key for external account binding.
#[utoipa::path(get, path = "/api/v1/acme/external-keys/{id}", operation_id = "getAcmeExternalKey",
    params(("id" = Uuid, Path)), responses((status = 200, body = ExternalKeyView)))]
async fn get_key(
    Component(acme): Component<Acme>,
    Path(id): Path<Uuid>,
) -> Result<Json<ExternalKeyView>, Problem> {
    let key = acme.external_key(id).await?;
    Ok(Json(external_key_view(key.ok_or_else(|| no_key(id))?)))
}

/// Revokes a key for external account binding. The key and the accounts bound with it can no longer be used.
#[utoipa::path(post, path = "/api/v1/acme/external-keys/{id}/disable", operation_id = "disableAcmeExternalKey",
    params(("id" = Uuid, Path)), responses((status = 204)))]
async fn disable_key(
    Component(acme): Component<Acme>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<StatusCode, Problem> {
    match acme.disable_external_key(id, caller.actor()).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(no_key(id)),
    }
}

/// Deletes a key for external account binding, which also revokes it.
#[utoipa::path(delete, path = "/api/v1/acme/external-keys/{id}", operation_id = "deleteAcmeExternalKey",
    params(("id" = Uuid, Path)), responses((status = 204)))]
async fn delete_key(
    Component(acme): Component<Acme>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<StatusCode, Problem> {
    match acme.delete_external_key(id, caller.actor()).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(no_key(id)),
    }
}

/// Lists the accounts of ACME clients, newest first.
#[utoipa::path(get, path = "/api/v1/acme/accounts", operation_id = "listAcmeAccounts", params(PageQuery),
    responses((status = 200, body = Listing<AcmeAccountView>)))]
async fn list_accounts(
    Component(acme): Component<Acme>,
    paging: Paging,
) -> Result<Json<Listing<AcmeAccountView>>, Problem> {
    let page = acme.accounts(paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, acme_account_view)))
}

/// Shows the account of an ACME client.
#[utoipa::path(get, path = "/api/v1/acme/accounts/{id}", operation_id = "getAcmeAccount",
    params(("id" = Uuid, Path)), responses((status = 200, body = AcmeAccountView)))]
async fn get_account(
    Component(acme): Component<Acme>,
    Path(id): Path<Uuid>,
) -> Result<Json<AcmeAccountView>, Problem> {
    let account = acme.find_account(id).await?;
    Ok(Json(acme_account_view(account.ok_or_else(|| no_account(id))?)))
}

/// Deactivates the account of an ACME client. Certificates issued to it remain valid.
#[utoipa::path(post, path = "/api/v1/acme/accounts/{id}/revoke", operation_id = "revokeAcmeAccount",
    params(("id" = Uuid, Path)), responses((status = 200, body = AcmeAccountView)))]
async fn revoke_account(
    Component(acme): Component<Acme>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<Json<AcmeAccountView>, Problem> {
    acme.revoke_account(id, caller.actor()).await?;
    let account = acme.find_account(id).await?;
    Ok(Json(acme_account_view(account.ok_or_else(|| no_account(id))?)))
}

/// Lists the orders of ACME clients, newest first.
#[utoipa::path(get, path = "/api/v1/acme/orders", operation_id = "listAcmeOrders", params(PageQuery, AcmeOrderQuery),
    responses((status = 200, body = Listing<AcmeOrderView>)))]
async fn list_orders(
    Component(acme): Component<Acme>,
    paging: Paging,
    Query(filter): Query<AcmeOrderQuery>,
) -> Result<Json<Listing<AcmeOrderView>>, Problem> {
    let page = acme.list_orders(filter.account, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, acme_order_view)))
}

/// Shows the order of an ACME client.
#[utoipa::path(get, path = "/api/v1/acme/orders/{id}", operation_id = "getAcmeOrder",
    params(("id" = Uuid, Path)), responses((status = 200, body = AcmeOrderView)))]
async fn get_order(
    Component(acme): Component<Acme>,
    Path(id): Path<Uuid>,
) -> Result<Json<AcmeOrderView>, Problem> {
    let found = acme.find_order(id).await?;
    let order = found.ok_or_else(|| Problem::not_found(format_args!("ACME order {id}")))?;
    Ok(Json(acme_order_view(order)))
}

/// Lists the limit overrides for individual ACME clients.
#[utoipa::path(get, path = "/api/v1/acme/limit-overrides", operation_id = "listAcmeLimitOverrides",
    responses((status = 200, body = Listing<LimitOverrideView>)))]
async fn list_overrides(
    Component(acme): Component<Acme>,
) -> Result<Json<Listing<LimitOverrideView>>, Problem> {
    let rows = acme.limit_overrides().await?;
    Ok(Json(Listing::whole(rows.into_iter().map(limit_override_view).collect())))
}

/// Sets a limit for an account, network or name, and replaces an earlier one.
#[utoipa::path(post, path = "/api/v1/acme/limit-overrides", operation_id = "putAcmeLimitOverride",
    request_body = LimitOverrideBody, responses((status = 200, body = LimitOverrideView)))]
async fn put_override(
    Component(acme): Component<Acme>,
    caller: Caller,
    Json(body): Json<LimitOverrideBody>,
) -> Result<Json<LimitOverrideView>, Problem> {
    let LimitOverrideBody { kind, subject, allowed, seconds, note } = body;
    let kind = kind.parse().map_err(Problem::unprocessable)?;
    let new = NewOverride { kind, subject, allowed, seconds, note };
    Ok(Json(limit_override_view(acme.put_limit_override(new, caller.actor()).await?)))
}

/// Removes the limit of an account, network or name, so that the general limit applies again.
#[utoipa::path(delete, path = "/api/v1/acme/limit-overrides/{id}", operation_id = "deleteAcmeLimitOverride",
    params(("id" = Uuid, Path)), responses((status = 204)))]
async fn delete_override(
    Component(acme): Component<Acme>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<StatusCode, Problem> {
    match acme.delete_limit_override(id, caller.actor()).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::not_found(format_args!("ACME limit override {id}"))),
    }
}

fn no_key(id: Uuid) -> Problem {
    Problem::not_found(format_args!("ACME external key {id}"))
}

fn no_account(id: Uuid) -> Problem {
    Problem::not_found(format_args!("ACME account {id}"))
}
