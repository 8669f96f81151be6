//! The tree of authorities.

use std::sync::Arc;

use authority::Authority;
use authority::tree::{Ca, NameLimits, NewCa, PendingCa, Retirement, Urls};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{HeaderValue, LOCATION};
use keys::KeyType;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::access::{Caller, Permission};
use crate::api::{Api, routes};
use crate::extract::{Json, Path};
use crate::paging::Listing;
use crate::problem::Problem;
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
        .route(Permission::CaManage, routes!(retire))
        .route(Permission::CaManage, routes!(cancel))
}

/// An authority to make.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewAuthority {
    /// Its name, unique.
    #[schema(example = "web", min_length = 1, max_length = 64)]
    name: String,
    /// Its distinguished name.
    #[schema(example = "CN=Example Web CA, O=Example, C=DE")]
    subject: String,
    /// Above it, by id or name: an intermediate. Without, and without `external`: a root.
    parent: Option<String>,
    /// An intermediate below an authority elsewhere: the answer has a request for it to sign.
    #[serde(default)]
    external: bool,
    /// The kind of key to make; `p384` for a root and `p256` for others unless given.
    #[schema(value_type = Option<String>, example = "p256")]
    key_type: Option<KeyType>,
    /// What shall hold the key (`pkcs11`); the database, sealed, unless given.
    key_provider: Option<String>,
    /// Its life; ten years for a root and five for others unless given.
    #[schema(minimum = 3600)]
    lifetime_seconds: Option<i64>,
    /// Authorities that may stand below it in a path; 0 for an intermediate, any number for a root unless given.
    path_length: Option<u32>,
    /// Names that certificates below it may have.
    name_limits: Option<NewNameLimits>,
    /// Certificate policies, dotted.
    #[serde(default)]
    policies: Vec<String>,
    /// Extended key usages that certificates below it may have, dotted; any unless given.
    #[serde(default)]
    extended_key_usage: Vec<String>,
}

/// Names permitted and excluded: `dns:example.com`, `ip:10.0.0.0/8`, `email:example.com`, `uri:.example.com`,
/// `dir:O=Example, C=DE`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewNameLimits {
    /// Of each kind of name in here, names must fall under one of these.
    #[serde(default)]
    permitted: Vec<String>,
    /// Names must fall under none of these.
    #[serde(default)]
    excluded: Vec<String>,
}

/// An authority to take in, with its key. It has no `Debug`: the key must not come into a log.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ImportedAuthority {
    /// Its name, unique.
    name: String,
    /// Its certificate in PEM, then those above it; the root may be left out.
    certificates: String,
    /// Its private key in PEM.
    #[schema(format = Password)]
    key: String,
}

/// A certificate for an authority that waits for one.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct InstalledCertificate {
    /// Its certificate in PEM, then those above it.
    certificates: String,
}

/// Who signs across.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CrossSignature {
    /// The authority that signs, by id or name.
    by: String,
}

/// How to renew.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Renewing {
    /// Its life from now; as long as the old certificate was made for unless given.
    #[schema(minimum = 3600)]
    lifetime_seconds: Option<i64>,
}

/// How to retire.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Retiring {
    /// Though certificates live that need its CRL.
    #[serde(default)]
    force: bool,
}

/// What retiring did.
#[derive(Debug, Serialize, ToSchema)]
struct Retired {
    /// `retiring`: it issues no more; `retired`: it signs nothing any more.
    state: &'static str,
}

/// A certification authority.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AuthorityView {
    /// Its id: it stands in the addresses that certificates carry.
    id: Uuid,
    /// Its name.
    name: String,
    /// `pending` (its request waits for a certificate), `active`, `retiring` (issues no more) or `retired`.
    state: &'static str,
    /// The credential that it is, for one that the credential store keeps.
    credential: Option<String>,
    /// The authority here above it.
    parent: Option<Uuid>,
    /// Whether it is a root.
    root: bool,
    /// Its distinguished name.
    subject: Option<String>,
    /// The kind of its key.
    key_type: Option<String>,
    /// SHA-256 of its certificate.
    fingerprint: Option<String>,
    /// Its serial number, hexadecimal.
    serial: Option<String>,
    /// First moment of validity.
    not_before: Option<String>,
    /// Last second of validity.
    not_after: Option<String>,
    /// Its certificate in PEM.
    certificate: Option<String>,
    /// What a server sends above a certificate issued here, in PEM: this authority's certificate, then upwards without
    /// the root.
    chain: Option<String>,
    /// The root's certificate in PEM, where it is known.
    anchor: Option<String>,
    /// The certification request in PEM of one that is pending.
    request: Option<String>,
    /// Where what it publishes is.
    urls: Option<AuthorityUrls>,
    /// When it was made or taken in.
    created_at: String,
    /// Since when it issues no more.
    retiring_at: Option<String>,
    /// Since when it signs nothing any more.
    retired_at: Option<String>,
}

/// Where what an authority publishes is.
#[derive(Debug, Serialize, ToSchema)]
struct AuthorityUrls {
    /// Its certificate.
    certificate: String,
    /// Its full CRL.
    crl: String,
    /// Its delta CRL.
    delta_crl: String,
    /// Its OCSP responder.
    ocsp: String,
}

fn pem(der: &[u8]) -> String {
    x509::pem::encode("CERTIFICATE", der)
}

impl AuthorityView {
    fn of(ca: &Ca, base_url: &str) -> Self {
        let certificate = &ca.certificate;
        let moment = |time: x509::UnixTime| Some(time::shown(time.0.saturating_mul(1_000_000)));
        let urls = Urls::new(base_url, ca.id);
        Self {
            id: ca.id,
            name: ca.name.clone(),
            state: ca.state.as_str(),
            credential: ca.credential.as_deref().map(str::to_owned),
            parent: ca.parent,
            root: ca.is_root(),
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

    fn pending(ca: &PendingCa) -> Self {
        Self {
            id: ca.id,
            name: ca.name.clone(),
            state: "pending",
            credential: None,
            parent: None,
            root: false,
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
}

fn view(authority: &Authority, ca: &Ca) -> AuthorityView {
    AuthorityView::of(ca, &authority.options().base_url)
}

fn created(authority: &Authority, ca: &Arc<Ca>) -> Result<Response, Problem> {
    Ok((StatusCode::CREATED, [(LOCATION, place(ca.id)?)], Json(view(authority, ca))).into_response())
}

fn place(id: Uuid) -> Result<HeaderValue, Problem> {
    HeaderValue::from_str(&format!("/api/v1/authorities/{id}")).map_err(Problem::internal)
}

/// Lists the authorities, oldest first; those whose request waits for a certificate come last.
#[utoipa::path(get, path = "/api/v1/authorities", operation_id = "listAuthorities",
    responses((status = 200, body = Listing<AuthorityView>)))]
async fn list(Component(authority): Component<Authority>) -> Result<Json<Listing<AuthorityView>>, Problem> {
    let mut all: Vec<AuthorityView> =
        authority.all_cas().await?.iter().map(|ca| view(&authority, ca)).collect();
    all.extend(authority.pending_cas().await?.iter().map(|ca| AuthorityView::pending(ca)));
    Ok(Json(Listing::whole(all)))
}

/// Makes an authority: a root, an intermediate, or a request for one below an authority elsewhere.
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
            "parent is an authority here, external one elsewhere: give one of them",
        ));
    }
    let base = if below {
        NewCa::intermediate(&body.name, &body.subject)
    } else {
        NewCa::root(&body.name, &body.subject)
    };
    let limits =
        body.name_limits.map(|limits| NameLimits { permitted: limits.permitted, excluded: limits.excluded });
    let new = NewCa {
        key_type: body.key_type.unwrap_or(base.key_type),
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
        let place = place(request.pending.id)?;
        let view = AuthorityView::pending(&request.pending);
        return Ok((StatusCode::CREATED, [(LOCATION, place)], Json(view)).into_response());
    }
    let made = match &body.parent {
        Some(parent) => authority.create_intermediate(parent, &new, caller.actor()).await?,
        None => authority.create_root(&new, caller.actor()).await?,
    };
    created(&authority, &made)
}

/// Takes in an authority with its key.
#[utoipa::path(post, path = "/api/v1/authorities/import", operation_id = "importAuthority",
    request_body = ImportedAuthority, responses((status = 201, body = AuthorityView)))]
async fn import(
    Component(authority): Component<Authority>,
    caller: Caller,
    Json(body): Json<ImportedAuthority>,
) -> Result<Response, Problem> {
    let key = zeroize::Zeroizing::new(body.key);
    let ca = authority.import_ca(&body.name, &body.certificates, &key, caller.actor()).await?;
    created(&authority, &ca)
}

/// Shows an authority, by id or name.
#[utoipa::path(get, path = "/api/v1/authorities/{ca}", operation_id = "getAuthority", params(("ca" = String, Path)),
    responses((status = 200, body = AuthorityView)))]
async fn get_one(
    Component(authority): Component<Authority>,
    Path(ca): Path<String>,
) -> Result<Json<AuthorityView>, Problem> {
    let waiting = authority.pending_cas().await?;
    if let Some(pending) = waiting.iter().find(|pending| pending.name == ca || pending.id.to_string() == ca) {
        return Ok(Json(AuthorityView::pending(pending)));
    }
    Ok(Json(view(&authority, &*authority.ca(&ca).await?)))
}

/// Gives an authority that waits for it its certificate.
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
    Ok(Json(view(&authority, &ca)))
}

/// Signs an authority across: clients that trust the root of the signer then trust it too.
#[utoipa::path(post, path = "/api/v1/authorities/{ca}/cross-signatures", operation_id = "crossSignAuthority",
    params(("ca" = String, Path)), request_body = CrossSignature, responses((status = 201, body = AuthorityView)))]
async fn cross_sign(
    Component(authority): Component<Authority>,
    caller: Caller,
    Path(ca): Path<String>,
    Json(body): Json<CrossSignature>,
) -> Result<Response, Problem> {
    let ca = authority.cross_sign(&ca, &body.by, caller.actor()).await?;
    created(&authority, &ca)
}

/// Gives an authority another certificate under the same key: what it issued holds under both. The old one stays in an
/// alternate chain while it is valid.
#[utoipa::path(post, path = "/api/v1/authorities/{ca}/renew", operation_id = "renewAuthority",
    params(("ca" = String, Path)), request_body = Renewing, responses((status = 200, body = AuthorityView)))]
async fn renew(
    Component(authority): Component<Authority>,
    caller: Caller,
    Path(ca): Path<String>,
    Json(body): Json<Renewing>,
) -> Result<Json<AuthorityView>, Problem> {
    let ca = authority.renew_ca(&ca, body.lifetime_seconds, caller.actor()).await?;
    Ok(Json(view(&authority, &ca)))
}

/// Retires an authority one step further: an active one issues no more, a retiring one signs nothing any more.
#[utoipa::path(post, path = "/api/v1/authorities/{ca}/retire", operation_id = "retireAuthority",
    params(("ca" = String, Path)), request_body = Retiring, responses((status = 200, body = Retired)))]
async fn retire(
    Component(authority): Component<Authority>,
    caller: Caller,
    Path(ca): Path<String>,
    Json(body): Json<Retiring>,
) -> Result<Json<Retired>, Problem> {
    let done = authority.retire(&ca, body.force, caller.actor()).await?;
    let state = match done {
        Retirement::Begun => "retiring",
        Retirement::Done => "retired",
    };
    Ok(Json(Retired { state }))
}

/// Gives up the request of an authority that waits for a certificate.
#[utoipa::path(delete, path = "/api/v1/authorities/{id}/request", operation_id = "cancelAuthorityRequest",
    params(("id" = Uuid, Path)), responses((status = 204)))]
async fn cancel(
    Component(authority): Component<Authority>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<StatusCode, Problem> {
    match authority.cancel_request(id, caller.actor()).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::not_found(format_args!("authority {id} that waits for a certificate"))),
    }
}
