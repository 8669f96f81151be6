//! The ACME server's clients: external keys, accounts, orders, limits.

use authority::acme::{Acme, BadOverride, ExternalKeyError, NewExternalKey, NewOverride};
use axum::response::{IntoResponse, Response};
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use store::acme::{
    AcmeAccount, AcmeAccountStatus, AcmeExternalKey, AcmeLimitOverride, AcmeOrder, AcmeOrderStatus,
};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::access::{Caller, Permission};
use crate::api::{Api, routes};
use crate::extract::{Json, Path, Query};
use crate::idempotency::HoldsSecret;
use crate::paging::{Listing, Paging, PagingParams};
use crate::problem::Problem;
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

/// A key for external account binding (RFC 8555 section 7.3.4); its secret is never shown again.
#[derive(Debug, Serialize, ToSchema)]
struct ExternalKeyView {
    id: Uuid,
    /// The name clients give.
    kid: String,
    /// What it is for.
    label: String,
    /// Whether it may bind any number of accounts.
    reusable: bool,
    /// Profiles its accounts may use; empty: any.
    profiles: Vec<String>,
    /// Names its accounts may ask for; empty: any.
    names: Vec<String>,
    created_at: String,
    created_by: String,
    /// When it stops binding new accounts.
    expires_at: Option<String>,
    /// Since when neither it nor its accounts may do anything.
    disabled_at: Option<String>,
    /// When it last bound an account.
    used_at: Option<String>,
    /// Accounts bound.
    uses: i64,
}

impl From<AcmeExternalKey> for ExternalKeyView {
    fn from(key: AcmeExternalKey) -> Self {
        Self {
            id: key.id,
            kid: key.kid,
            label: key.label,
            reusable: key.reusable,
            profiles: key.profiles,
            names: key.names,
            created_at: time::shown(key.created_at_us),
            created_by: key.created_by,
            expires_at: time::maybe_shown(key.expires_at_us),
            disabled_at: time::maybe_shown(key.disabled_at_us),
            used_at: time::maybe_shown(key.used_at_us),
            uses: key.uses,
        }
    }
}

/// An external key to make.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewExternalKeyBody {
    /// The name clients give; made unless given.
    #[serde(default)]
    #[schema(example = "web-team", min_length = 1, max_length = 200, nullable = false)]
    kid: Option<String>,
    /// What it is for.
    #[serde(default)]
    #[schema(example = "web team", max_length = 200)]
    label: String,
    /// Whether it may bind any number of accounts; otherwise one.
    #[serde(default)]
    reusable: bool,
    /// Profiles its accounts may use; empty: any.
    #[serde(default)]
    profiles: Vec<String>,
    /// Names its accounts may ask for: `a.example` is that name and all below it, `10.0.0.0/8` are addresses; empty:
    /// any.
    #[serde(default)]
    #[schema(example = json!(["a.example"]))]
    names: Vec<String>,
    /// When it stops binding new accounts.
    #[serde(default)]
    #[schema(format = DateTime, nullable = false)]
    expires_at: Option<String>,
}

/// An external key just made.
#[derive(Debug, Serialize, ToSchema)]
struct MadeExternalKey {
    id: Uuid,
    /// What clients call `--eab-kid`.
    kid: String,
    /// What clients call `--eab-hmac-key`, base64url. It is shown here and nowhere else.
    hmac_key: String,
}

/// An account of an ACME client.
#[derive(Debug, Serialize, ToSchema)]
struct AcmeAccountView {
    id: Uuid,
    /// `valid`, `deactivated` (by its owner) or `revoked` (by an operator).
    #[schema(example = "valid")]
    status: &'static str,
    /// `mailto:` addresses.
    contacts: Vec<String>,
    /// The external key it was bound with.
    external_key: Option<Uuid>,
    /// The profile of the directory it was made at.
    profile: String,
    /// The address it was made from.
    address: String,
    created_at: String,
    updated_at: String,
}

impl From<AcmeAccount> for AcmeAccountView {
    fn from(account: AcmeAccount) -> Self {
        Self {
            id: account.id,
            status: match account.status {
                AcmeAccountStatus::Valid => "valid",
                AcmeAccountStatus::Deactivated => "deactivated",
                AcmeAccountStatus::Revoked => "revoked",
            },
            contacts: account.contacts,
            external_key: account.external_key,
            profile: account.profile,
            address: account.address,
            created_at: time::shown(account.created_at_us),
            updated_at: time::shown(account.updated_at_us),
        }
    }
}

/// An order of an ACME client.
#[derive(Debug, Serialize, ToSchema)]
struct AcmeOrderView {
    id: Uuid,
    account: Uuid,
    profile: String,
    /// `pending`, `processing`, `valid` or `invalid`; a single order also says `ready`.
    #[schema(example = "valid")]
    status: &'static str,
    /// `dns:a.example`, `ip:10.0.0.1`.
    names: Vec<String>,
    created_at: String,
    expires_at: String,
    /// The certificate issued.
    certificate: Option<Uuid>,
    /// The certificate it replaces (RFC 9773).
    replaces: Option<String>,
    /// Why it is invalid, as its client is told.
    #[schema(value_type = Option<Object>)]
    error: Option<serde_json::Value>,
}

impl From<AcmeOrder> for AcmeOrderView {
    fn from(order: AcmeOrder) -> Self {
        Self {
            id: order.id,
            account: order.account,
            profile: order.profile,
            status: match order.status {
                AcmeOrderStatus::Pending => "pending",
                AcmeOrderStatus::Processing => "processing",
                AcmeOrderStatus::Valid => "valid",
                AcmeOrderStatus::Invalid => "invalid",
            },
            names: order.names,
            created_at: time::shown(order.created_at_us),
            expires_at: time::shown(order.expires_at_us),
            certificate: order.certificate,
            replaces: order.replaces,
            error: order.error.and_then(|text| serde_json::from_str(&text).ok()),
        }
    }
}

/// Which orders to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct OrderFilter {
    /// This account's only, without those refused.
    account: Option<Uuid>,
}

/// A limit for one account, network or name in place of the general one.
#[derive(Debug, Serialize, ToSchema)]
struct LimitOverrideView {
    id: Uuid,
    /// `new_accounts`, `orders`, `failed_validations` or `duplicate_certificates`.
    kind: String,
    /// An account's id, a network, a name (`dns:a.example`).
    subject: String,
    /// How many in `seconds`; null: any number.
    allowed: Option<u32>,
    seconds: u32,
    /// Why.
    note: String,
    created_at: String,
    created_by: String,
}

impl From<AcmeLimitOverride> for LimitOverrideView {
    fn from(row: AcmeLimitOverride) -> Self {
        Self {
            id: row.id,
            kind: row.kind,
            subject: row.subject,
            allowed: row.allowed,
            seconds: row.seconds,
            note: row.note,
            created_at: time::shown(row.created_at_us),
            created_by: row.created_by,
        }
    }
}

/// A limit to set.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct LimitOverrideBody {
    /// `new_accounts`, `orders`, `failed_validations` or `duplicate_certificates`.
    #[schema(
        example = "orders",
        pattern = "^(new_accounts|orders|failed_validations|duplicate_certificates)$"
    )]
    kind: String,
    /// An account's id; for `new_accounts` an address or network; for `failed_validations` and
    /// `duplicate_certificates` also a name (`dns:a.example`).
    #[schema(min_length = 1, max_length = 500)]
    subject: String,
    /// How many in `seconds`; absent: any number.
    #[serde(default)]
    #[schema(nullable = false)]
    allowed: Option<u32>,
    /// In how long.
    #[schema(example = 3600, minimum = 1)]
    seconds: u32,
    /// Why.
    #[serde(default)]
    #[schema(max_length = 500)]
    note: String,
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
#[utoipa::path(get, path = "/api/v1/acme/external-keys", operation_id = "listAcmeExternalKeys", params(PagingParams),
    responses((status = 200, body = Listing<ExternalKeyView>)))]
async fn list_keys(
    Component(acme): Component<Acme>,
    paging: Paging,
) -> Result<Json<Listing<ExternalKeyView>>, Problem> {
    let page = acme.external_keys(paging.after.as_ref(), paging.limit).await?;
    Ok(Json(Listing::of(page, ExternalKeyView::from)))
}

/// Makes a key for external account binding.
///
/// Its secret is in the answer and nowhere else.
#[utoipa::path(post, path = "/api/v1/acme/external-keys", operation_id = "createAcmeExternalKey",
    request_body = NewExternalKeyBody, responses((status = 201, body = MadeExternalKey)))]
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
        expires_at_us: body.expires_at.as_deref().map(time::parsed).transpose()?,
    };
    let made = acme.create_external_key(new, caller.actor()).await?;
    let place = HeaderValue::from_str(&format!("/api/v1/acme/external-keys/{}", made.id))
        .map_err(Problem::internal)?;
    let body = MadeExternalKey { id: made.id, kid: made.kid, hmac_key: made.secret.to_string() };
    let mut response = (StatusCode::CREATED, [(LOCATION, place)], Json(body)).into_response();
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
    Ok(Json(key.ok_or_else(|| no_key(id))?.into()))
}

/// Withdraws a key for external account binding: neither it nor the accounts bound with it may do anything more.
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

/// Removes a key for external account binding, which also withdraws it.
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

/// Lists the ACME clients' accounts, newest first.
#[utoipa::path(get, path = "/api/v1/acme/accounts", operation_id = "listAcmeAccounts", params(PagingParams),
    responses((status = 200, body = Listing<AcmeAccountView>)))]
async fn list_accounts(
    Component(acme): Component<Acme>,
    paging: Paging,
) -> Result<Json<Listing<AcmeAccountView>>, Problem> {
    let page = acme.accounts(paging.after.as_ref(), paging.limit).await?;
    Ok(Json(Listing::of(page, AcmeAccountView::from)))
}

/// Shows an ACME client's account.
#[utoipa::path(get, path = "/api/v1/acme/accounts/{id}", operation_id = "getAcmeAccount",
    params(("id" = Uuid, Path)), responses((status = 200, body = AcmeAccountView)))]
async fn get_account(
    Component(acme): Component<Acme>,
    Path(id): Path<Uuid>,
) -> Result<Json<AcmeAccountView>, Problem> {
    let account = acme.find_account(id).await?;
    Ok(Json(account.ok_or_else(|| no_account(id))?.into()))
}

/// Ends an ACME client's account; what was issued to it stays.
#[utoipa::path(post, path = "/api/v1/acme/accounts/{id}/revoke", operation_id = "revokeAcmeAccount",
    params(("id" = Uuid, Path)), responses((status = 200, body = AcmeAccountView)))]
async fn revoke_account(
    Component(acme): Component<Acme>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<Json<AcmeAccountView>, Problem> {
    acme.revoke_account(id, caller.actor()).await?;
    let account = acme.find_account(id).await?;
    Ok(Json(account.ok_or_else(|| no_account(id))?.into()))
}

/// Lists the ACME clients' orders, newest first.
#[utoipa::path(get, path = "/api/v1/acme/orders", operation_id = "listAcmeOrders", params(PagingParams, OrderFilter),
    responses((status = 200, body = Listing<AcmeOrderView>)))]
async fn list_orders(
    Component(acme): Component<Acme>,
    paging: Paging,
    Query(filter): Query<OrderFilter>,
) -> Result<Json<Listing<AcmeOrderView>>, Problem> {
    let page = acme.list_orders(filter.account, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(Listing::of(page, AcmeOrderView::from)))
}

/// Shows an ACME client's order.
#[utoipa::path(get, path = "/api/v1/acme/orders/{id}", operation_id = "getAcmeOrder",
    params(("id" = Uuid, Path)), responses((status = 200, body = AcmeOrderView)))]
async fn get_order(
    Component(acme): Component<Acme>,
    Path(id): Path<Uuid>,
) -> Result<Json<AcmeOrderView>, Problem> {
    let found = acme.find_order(id).await?;
    let (order, authorizations) = found.ok_or_else(|| Problem::not_found(format_args!("ACME order {id}")))?;
    let status = acme.order_status(&order, &authorizations);
    Ok(Json(AcmeOrderView { status, ..order.into() }))
}

/// Lists the limits that hold for single ACME clients.
#[utoipa::path(get, path = "/api/v1/acme/limit-overrides", operation_id = "listAcmeLimitOverrides",
    responses((status = 200, body = Listing<LimitOverrideView>)))]
async fn list_overrides(
    Component(acme): Component<Acme>,
) -> Result<Json<Listing<LimitOverrideView>>, Problem> {
    let rows = acme.limit_overrides().await?;
    Ok(Json(Listing::whole(rows.into_iter().map(LimitOverrideView::from).collect())))
}

/// Sets a limit for an account, network or name, in place of one set before for the same.
#[utoipa::path(post, path = "/api/v1/acme/limit-overrides", operation_id = "putAcmeLimitOverride",
    request_body = LimitOverrideBody, responses((status = 200, body = LimitOverrideView)))]
async fn put_override(
    Component(acme): Component<Acme>,
    caller: Caller,
    Json(body): Json<LimitOverrideBody>,
) -> Result<Json<LimitOverrideView>, Problem> {
    let LimitOverrideBody { kind, subject, allowed, seconds, note } = body;
    let new = NewOverride { kind, subject, allowed, seconds, note };
    Ok(Json(acme.put_limit_override(new, caller.actor()).await?.into()))
}

/// Removes a limit that held for an account, network or name: the general one holds again.
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
