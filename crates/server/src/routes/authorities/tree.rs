//! The hierarchy of CAs.

use std::sync::Arc;

use api::authorities::{
    AuthorityUrls, AuthorityView, CrossSignature, ImportedAuthority, InstalledCertificate, NewAuthority,
    Renewing, Retired, Retiring,
};
use authority::Authority;
use authority::tree::{Ca, NameLimits, NewCa, PendingCa, Retirement, Urls};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{HeaderValue, LOCATION};
use keys::KeyType;
use uuid::Uuid;

use crate::access::{Caller, Permission};
use crate::extract::{Json, Path};
use crate::paging::Listing;
use crate::problem::Problem;
use crate::routing::{Api, routes};
use crate::state::Component;
use crate::time;

pub(super) fn routes() -> Api {
    Api::area("authorities")
        .route(Permission::CaRead, routes!(list))
        .route(Permission::CaManage, routes!(create))
        .route(Permission::CaManage, routes!(import))
        .route(Permission::CaRead, routes!(get_one))
        .route(Permission::CaManage, routes!(install))
        .route(Permission::CaManage, routes!(cross_sign))
        .route(Permission::CaManage, routes!(renew))
        .route(Permission::CaManage, routes!(make_default))
        .route(Permission::CaManage, routes!(retire))
        .route(Permission::CaManage, routes!(cancel))
}

fn pem(der: &[u8]) -> String {
    x509::pem::encode("CERTIFICATE", der)
}

fn authority_view(ca: &Ca, default: Option<Uuid>, base_url: &str) -> AuthorityView {
    let certificate = &ca.certificate;
    let moment = |time: x509::UnixTime| Some(time::shown(time.0.saturating_mul(1_000_000)));
    let urls = Urls::new(base_url, ca.id);
    AuthorityView {
        id: ca.id,
        name: ca.name.clone(),
        state: ca.state.to_string(),
        credential: ca.credential.as_deref().map(str::to_owned),
        parent: ca.parent,
        root: ca.is_root(),
        default: default == Some(ca.id),
        subject: Some(certificate.subject.text.clone()),
        key_type: Some(ca.signer.key_type().to_string()),
        fingerprint: Some(certificate.fingerprint.to_string()),
        serial: Some(certificate.serial.to_string()),
        not_before: moment(certificate.not_before),
        not_after: moment(certificate.not_after),
        certificate: Some(pem(&certificate.der)),
        chain: Some(ca.chain.iter().map(|der| pem(der)).collect()),
        anchor: ca.anchor.as_ref().map(|der| pem(der)),
        request: None,
        urls: Some(AuthorityUrls {
            certificate: urls.certificate(),
            crl: urls.crl(),
            delta_crl: urls.delta_crl(),
            ocsp: urls.ocsp(),
        }),
        created_at: time::shown(ca.created_at_us),
        retiring_at: time::maybe_shown(ca.retiring_at_us),
        retired_at: time::maybe_shown(ca.retired_at_us),
    }
}

fn authority_view_pending(ca: &PendingCa) -> AuthorityView {
    AuthorityView {
        id: ca.id,
        name: ca.name.clone(),
        state: "pending".to_owned(),
        credential: None,
        parent: None,
        root: false,
        default: false,
        subject: None,
        key_type: None,
        fingerprint: None,
        serial: None,
        not_before: None,
        not_after: None,
        certificate: None,
        chain: None,
        anchor: None,
        request: Some(x509::pem::encode("CERTIFICATE REQUEST", &ca.request)),
        urls: None,
        created_at: time::shown(ca.created_at_us),
        retiring_at: None,
        retired_at: None,
    }
}

async fn view(authority: &Authority, ca: &Ca) -> Result<AuthorityView, Problem> {
    let default = authority.default_ca().await?.map(|ca| ca.id);
    Ok(authority_view(ca, default, &authority.options().base_url))
}

async fn created(authority: &Authority, ca: &Arc<Ca>) -> Result<Response, Problem> {
    let view = view(authority, ca).await?;
    Ok((StatusCode::CREATED, [(LOCATION, location(ca.id)?)], Json(view)).into_response())
}

fn location(id: Uuid) -> Result<HeaderValue, Problem> {
    HeaderValue::from_str(&format!("/api/v1/authorities/{id}")).map_err(Problem::internal)
}

/// Lists the CAs, oldest first. CAs whose CSR waits for a certificate come last.
#[utoipa::path(get, path = "/api/v1/authorities", operation_id = "listAuthorities",
    responses((status = 200, body = Listing<AuthorityView>)))]
async fn list(Component(authority): Component<Authority>) -> Result<Json<Listing<AuthorityView>>, Problem> {
    let default = authority.default_ca().await?.map(|ca| ca.id);
    let base_url = &authority.options().base_url;
    let cas = authority.all_cas().await?;
    let mut all: Vec<AuthorityView> = cas.iter().map(|ca| authority_view(ca, default, base_url)).collect();
    all.extend(authority.pending_cas().await?.iter().map(|ca| authority_view_pending(ca)));
    Ok(Json(Listing::whole(all)))
}

/// Creates a CA: a root, an intermediate, or a CSR to be signed by an external CA.
#[utoipa::path(post, path = "/api/v1/authorities", operation_id = "createAuthority", request_body = NewAuthority,
    responses((status = 201, body = AuthorityView)))]
async fn create(
    Component(authority): Component<Authority>,
    caller: Caller,
    Json(body): Json<NewAuthority>,
) -> Result<Response, Problem> {
    let below = body.parent.is_some() || body.external;
    if body.parent.is_some() && body.external {
        return Err(Problem::unprocessable(
            "parent names a CA of this server, external means a CA elsewhere: give only one of them",
        ));
    }
    let key_type = body.key_type.as_deref().map(str::parse::<KeyType>).transpose();
    let key_type = key_type.map_err(|error| Problem::unprocessable(format_args!("key_type: {error}")))?;
    let base = if below {
        NewCa::intermediate(&body.name, &body.subject)
    } else {
        NewCa::root(&body.name, &body.subject)
    };
    let limits =
        body.name_limits.map(|limits| NameLimits { permitted: limits.permitted, excluded: limits.excluded });
    let new = NewCa {
        key_type: key_type.unwrap_or(base.key_type),
        key_provider: body.key_provider,
        lifetime_seconds: body.lifetime_seconds.unwrap_or(base.lifetime_seconds),
        path_length: body.path_length.or(base.path_length),
        name_limits: limits.unwrap_or_default(),
        policies: body.policies,
        extended_key_usage: body.extended_key_usage,
        ..base
    };
    if body.external {
        let request = authority.intermediate_csr(&new, caller.actor()).await?;
        let location = location(request.pending.id)?;
        let view = authority_view_pending(&request.pending);
        return Ok((StatusCode::CREATED, [(LOCATION, location)], Json(view)).into_response());
    }
    let made = match &body.parent {
        Some(parent) => authority.create_intermediate(parent, &new, caller.actor()).await?,
        None => authority.create_root(&new, caller.actor()).await?,
    };
    created(&authority, &made).await
}

/// Imports a CA with its key.
#[utoipa::path(post, path = "/api/v1/authorities/import", operation_id = "importAuthority",
    request_body = ImportedAuthority, responses((status = 201, body = AuthorityView)))]
async fn import(
    Component(authority): Component<Authority>,
    caller: Caller,
    Json(body): Json<ImportedAuthority>,
) -> Result<Response, Problem> {
    let key = zeroize::Zeroizing::new(body.key);
    let ca = authority.import_ca(&body.name, &body.certificates, &key, caller.actor()).await?;
    created(&authority, &ca).await
}

/// Shows a CA, by ID or name.
#[utoipa::path(get, path = "/api/v1/authorities/{ca}", operation_id = "getAuthority", params(("ca" = String, Path)),
    responses((status = 200, body = AuthorityView)))]
async fn get_one(
    Component(authority): Component<Authority>,
    Path(ca): Path<String>,
) -> Result<Json<AuthorityView>, Problem> {
    let waiting = authority.pending_cas().await?;
    if let Some(pending) = waiting.iter().find(|pending| pending.name == ca || pending.id.to_string() == ca) {
        return Ok(Json(authority_view_pending(pending)));
    }
    Ok(Json(view(&authority, &*authority.ca(&ca).await?).await?))
}

/// Installs the certificate of a CA whose CSR was signed externally.
#[utoipa::path(put, path = "/api/v1/authorities/{id}/certificate", operation_id = "installAuthorityCertificate",
    params(("id" = Uuid, Path)), request_body = InstalledCertificate,
    responses((status = 200, body = AuthorityView)))]
async fn install(
    Component(authority): Component<Authority>,
    caller: Caller,
    Path(id): Path<Uuid>,
    Json(body): Json<InstalledCertificate>,
) -> Result<Json<AuthorityView>, Problem> {
    let ca = authority.install_intermediate(id, &body.certificates, caller.actor()).await?;
    Ok(Json(view(&authority, &ca).await?))
}

/// Cross-signs a CA, so that clients that trust the root of the signer also trust this CA.
#[utoipa::path(post, path = "/api/v1/authorities/{ca}/cross-signatures", operation_id = "crossSignAuthority",
    params(("ca" = String, Path)), request_body = CrossSignature, responses((status = 201, body = AuthorityView)))]
async fn cross_sign(
    Component(authority): Component<Authority>,
    caller: Caller,
    Path(ca): Path<String>,
    Json(body): Json<CrossSignature>,
) -> Result<Response, Problem> {
    let ca = authority.cross_sign(&ca, &body.by, caller.actor()).await?;
    created(&authority, &ca).await
}

/// Renews the certificate of a CA under the same key. Certificates that the CA issued are valid under the old and the new CA
/// certificate. The old CA certificate is offered in an alternate chain while it is valid.
#[utoipa::path(post, path = "/api/v1/authorities/{ca}/renew", operation_id = "renewAuthority",
    params(("ca" = String, Path)), request_body = Renewing, responses((status = 200, body = AuthorityView)))]
async fn renew(
    Component(authority): Component<Authority>,
    caller: Caller,
    Path(ca): Path<String>,
    Json(body): Json<Renewing>,
) -> Result<Json<AuthorityView>, Problem> {
    let ca = authority.renew_ca(&ca, body.lifetime_seconds, caller.actor()).await?;
    Ok(Json(view(&authority, &ca).await?))
}

/// Makes a CA the default, which issues the certificates of profiles that name no CA.
#[utoipa::path(post, path = "/api/v1/authorities/{ca}/default", operation_id = "makeDefaultAuthority",
    params(("ca" = String, Path)), responses((status = 200, body = AuthorityView)))]
async fn make_default(
    Component(authority): Component<Authority>,
    caller: Caller,
    Path(ca): Path<String>,
) -> Result<Json<AuthorityView>, Problem> {
    let ca = authority.make_default(&ca, caller.actor()).await?;
    Ok(Json(view(&authority, &ca).await?))
}

/// Retires a CA by one step: an active CA no longer issues certificates, a retiring CA no longer signs anything.
#[utoipa::path(post, path = "/api/v1/authorities/{ca}/retire", operation_id = "retireAuthority",
    params(("ca" = String, Path)), request_body = Retiring, responses((status = 200, body = Retired)))]
async fn retire(
    Component(authority): Component<Authority>,
    caller: Caller,
    Path(ca): Path<String>,
    Json(body): Json<Retiring>,
) -> Result<Json<Retired>, Problem> {
    let done = if body.force {
        authority.force_retire(&ca, caller.actor()).await?
    } else {
        authority.retire(&ca, caller.actor()).await?
    };
    let state = match done {
        Retirement::Begun => "retiring",
        Retirement::Done => "retired",
    };
    Ok(Json(Retired { state: state.to_owned() }))
}

/// Discards the CSR of a CA that waits for a certificate.
#[utoipa::path(delete, path = "/api/v1/authorities/{id}/request", operation_id = "cancelAuthorityRequest",
    params(("id" = Uuid, Path)), responses((status = 204)))]
async fn cancel(
    Component(authority): Component<Authority>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<StatusCode, Problem> {
    match authority.cancel_request(id, caller.actor()).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::not_found(format_args!("CA {id} that waits for a certificate"))),
    }
}
