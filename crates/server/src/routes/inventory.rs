//! Results of scans: claim a found certificate into management, or dismiss it.

use api::endpoints::EndpointBody;
use api::inventory::{
    ClaimBody, ClaimedView, DismissBody, FoundView, InventoryQuery, LeafView, UndismissBody,
};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{HeaderValue, LOCATION};
use inventory::ownership::Assignment;
use lifecycle::claim::{Claim, ClaimSubject, FoundState};
use lifecycle::managed::KeyLocation;
use lifecycle::tables::people::Dismissal;
use lifecycle::{FoundEndpoint, Lifecycle, OwnerFilter};
use store::{EndpointKey, InventoryFilter, InventoryOrder};
use x509::Fingerprint;

use crate::access::{Caller, Permission};
use crate::extract::{Json, Query};
use crate::paging::{Listing, PageQuery, Paging, listing};
use crate::problem::Problem;
use crate::routes::certificates::{key_location, options_of, target_ref};
use crate::routing::{Api, routes};
use crate::state::Component;
use crate::time;

pub(crate) fn routes() -> Api {
    Api::area("inventory")
        .route(Permission::InventoryRead, routes!(list))
        .route(Permission::CertificateManage, routes!(claim))
        .route(Permission::InventoryManage, routes!(dismiss))
        .route(Permission::InventoryManage, routes!(undismiss))
}

pub(crate) fn endpoint_body(key: EndpointKey) -> EndpointBody {
    let EndpointKey { host, port, protocol, server_name, address } = key;
    EndpointBody { host, port, protocol, server_name, address }
}

fn found_view(found: FoundEndpoint) -> FoundView {
    let FoundEndpoint { row, state, ownership } = found;
    let Assignment { team, owner, environment, tags } = ownership.unwrap_or_default();
    let (word, certificate, dismissal) = match state {
        None => (None, None, None),
        Some(FoundState::Unmanaged) => (Some("unmanaged"), None, None),
        Some(FoundState::Managed(id)) => (Some("managed"), Some(id), None),
        Some(FoundState::Dismissed(dismissal)) if dismissal.until_us.is_some() => {
            (Some("ignored"), None, Some(dismissal))
        }
        Some(FoundState::Dismissed(dismissal)) => (Some("dismissed"), None, Some(dismissal)),
    };
    FoundView {
        endpoint: endpoint_body(row.endpoint),
        outcome: row.outcome.to_string(),
        answering: row.answering,
        severity: row.severity.map(|severity| severity as u8),
        leaf: row.leaf.map(|leaf| LeafView {
            fingerprint: Fingerprint::from_bytes(leaf.sha256).to_string(),
            subject: leaf.subject,
            issuer: leaf.issuer,
            serial: leaf.serial,
            not_before: time::shown(leaf.not_before_us),
            not_after: time::shown(leaf.not_after_us),
            key_algorithm: leaf.key_algorithm,
            key_bits: leaf.key_bits,
        }),
        state: word.map(str::to_owned),
        certificate,
        ignored_until: dismissal.as_ref().and_then(|one| one.until_us).map(time::shown),
        note: dismissal.map(|one| one.note),
        team,
        owner,
        environment,
        tags,
        first_seen_at: time::shown(row.first_seen_us),
        last_seen_at: time::shown(row.last_observed_us),
    }
}

/// Lists the scan results by endpoint, and whether each found certificate is managed.
#[utoipa::path(get, path = "/api/v1/inventory", operation_id = "listInventory", params(PageQuery, InventoryQuery),
    responses((status = 200, body = Listing<FoundView>)))]
async fn list(
    Component(lifecycle): Component<Lifecycle>,
    paging: Paging,
    Query(params): Query<InventoryQuery>,
) -> Result<Json<Listing<FoundView>>, Problem> {
    let order = match params.sort.as_deref() {
        None | Some("expiry") => InventoryOrder::Expiry,
        Some("host") => InventoryOrder::Host,
        Some(other) => {
            return Err(Problem::bad_request(format_args!("sort must be expiry or host, not {other:?}")));
        }
    };
    let time = |text: Option<String>| text.map(|text| time::parsed(&text)).transpose();
    let filter = InventoryFilter {
        expiring_before_us: time(params.expires_before)?,
        expiring_from_us: time(params.expires_after)?,
        issuer_contains: params.issuer,
        host_contains: params.host,
        answering: params.answering,
        order,
        ..InventoryFilter::default()
    };
    let owner_filter =
        OwnerFilter { team: params.team, owner: params.owner, nobody: params.nobody == Some(true) };
    let after = paging.after.as_ref();
    let page = if owner_filter.is_unfiltered() {
        lifecycle.found(&filter, after, paging.limit).await?
    } else {
        lifecycle.found_of(&filter, &owner_filter, after, paging.limit).await?
    };
    Ok(Json(listing(page, found_view)))
}

/// Claims found certificates, so that they are managed.
#[utoipa::path(post, path = "/api/v1/inventory/claim", operation_id = "claimFound", request_body = ClaimBody,
    responses((status = 201, body = ClaimedView)))]
async fn claim(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Json(body): Json<ClaimBody>,
) -> Result<Response, Problem> {
    let what = match (body.endpoint, body.fingerprint) {
        (Some(endpoint), None) => ClaimSubject::Endpoint(EndpointKey {
            host: endpoint.host,
            port: endpoint.port,
            protocol: endpoint.protocol,
            server_name: endpoint.server_name,
            address: endpoint.address,
        }),
        (None, Some(text)) => ClaimSubject::Fingerprint(fingerprint(&text)?),
        _ => return Err(Problem::unprocessable("a claim must have either an endpoint or a fingerprint")),
    };
    let claim = Claim {
        what,
        name: body.name,
        profile: body.profile,
        issuer: body.issuer,
        owner: body.owner,
        team: body.team,
        environment: body.environment,
        policy: body.policy,
        key_location: body.key_location.map_or(KeyLocation::Server, key_location),
        targets: body.targets.into_iter().map(target_ref).collect(),
        options: options_of(body.auto_renew, body.renewal.as_ref(), body.notes)?,
    };
    let created = lifecycle.claim(claim, caller.actor()).await?;
    let location = HeaderValue::from_str(&format!("/api/v1/certificates/{}", created.certificate));
    let location = location.map_err(Problem::internal)?;
    let view = ClaimedView { id: created.certificate, name: created.name };
    Ok((StatusCode::CREATED, [(LOCATION, location)], Json(view)).into_response())
}

fn fingerprint(text: &str) -> Result<Fingerprint, Problem> {
    text.parse().map_err(|_| Problem::unprocessable(format_args!("{text:?} is not a SHA-256 fingerprint")))
}

/// Dismisses a found certificate, temporarily or permanently: no alert is raised about it.
#[utoipa::path(post, path = "/api/v1/inventory/dismiss", operation_id = "dismissFound", request_body = DismissBody,
    responses((status = 204)))]
async fn dismiss(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Json(body): Json<DismissBody>,
) -> Result<StatusCode, Problem> {
    let fingerprint = fingerprint(&body.fingerprint)?;
    let until_us = body.until.as_deref().map(time::parsed).transpose()?;
    let dismissal = Dismissal { note: body.note, until_us };
    lifecycle.dismiss(fingerprint, dismissal, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Cancels a dismissal.
#[utoipa::path(post, path = "/api/v1/inventory/undismiss", operation_id = "undismissFound",
    request_body = UndismissBody, responses((status = 204)))]
async fn undismiss(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Json(body): Json<UndismissBody>,
) -> Result<StatusCode, Problem> {
    let fingerprint = fingerprint(&body.fingerprint)?;
    if lifecycle.undismiss(fingerprint, caller.actor()).await? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Problem::not_found(format_args!("dismissal of {fingerprint}")))
    }
}
