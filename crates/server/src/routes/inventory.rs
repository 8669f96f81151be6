//! What scans found, and what becomes of it: claimed into management, dismissed, or left.

use std::collections::BTreeMap;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{HeaderValue, LOCATION};
use inventory::ownership::Assignment;
use lifecycle::claim::{Claim, ClaimSubject, FoundState};
use lifecycle::managed::KeyLocation;
use lifecycle::{FoundEndpoint, Lifecycle, OwnerFilter};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::people::Dismissal;
use store::{EndpointKey, InventoryFilter, InventoryOrder};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use x509::Fingerprint;

use crate::access::{Caller, Permission};
use crate::api::{Api, routes};
use crate::extract::{Json, Query};
use crate::paging::{Listing, Paging, PagingParams};
use crate::problem::Problem;
use crate::routes::certificates::{KeyLocationBody, TargetBody, options_of};
use crate::state::Component;
use crate::time;

pub(crate) fn routes() -> Api {
    Api::area("inventory")
        .route(Permission::InventoryRead, routes!(list))
        .route(Permission::CertificateManage, routes!(claim))
        .route(Permission::InventoryManage, routes!(dismiss))
        .route(Permission::InventoryManage, routes!(undismiss))
}

/// An endpoint, as it tells one from another.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = InventoryEndpoint)]
pub(crate) struct EndpointBody {
    /// Name, address or path.
    host: String,
    /// Port; 0 for files.
    port: u16,
    /// `tls`, `smtp`, …; `file` for files.
    protocol: String,
    /// The SNI sent; empty when none was.
    server_name: String,
    /// The address probed, when each address is an endpoint of its own; otherwise empty.
    #[serde(default)]
    address: String,
}

impl From<EndpointKey> for EndpointBody {
    fn from(key: EndpointKey) -> Self {
        let EndpointKey { host, port, protocol, server_name, address } = key;
        Self { host, port, protocol, server_name, address }
    }
}

/// What was found at an endpoint.
#[derive(Serialize, ToSchema)]
struct FoundView {
    /// Where.
    endpoint: EndpointBody,
    /// What the last look came to.
    outcome: String,
    /// Whether the last look saw a certificate.
    answering: bool,
    /// The severity of the worst finding, higher is worse.
    severity: Option<u8>,
    /// The last certificate seen.
    leaf: Option<LeafView>,
    /// `unmanaged`, `managed`, `ignored` (for a time) or `dismissed` (for good); null when no certificate was ever seen.
    state: Option<&'static str>,
    /// The certificate under management that it is a version of.
    certificate: Option<Uuid>,
    /// Why it is ignored or dismissed.
    note: Option<String>,
    /// Until when it is ignored, RFC 3339.
    ignored_until: Option<String>,
    /// The team that answers for it, by the rules of ownership as they stand; of a managed certificate its own team counts.
    team: Option<String>,
    /// Who answers for it, by the same rule.
    owner: Option<String>,
    /// Where it is used, by the same rule.
    environment: Option<String>,
    /// Labels, by the same rule.
    tags: BTreeMap<String, String>,
    /// First look, RFC 3339.
    first_seen_at: String,
    /// Last look, RFC 3339.
    last_seen_at: String,
}

/// A certificate that was seen.
#[derive(Serialize, ToSchema)]
#[schema(as = FoundLeaf)]
struct LeafView {
    /// SHA-256 of it.
    fingerprint: String,
    /// Its subject.
    subject: String,
    /// Its issuer.
    issuer: String,
    /// Its serial number, hexadecimal.
    serial: String,
    /// Start of validity, RFC 3339.
    not_before: String,
    /// End of validity, RFC 3339.
    not_after: String,
    /// The key's algorithm.
    key_algorithm: String,
    /// The key's size in bits.
    key_bits: u32,
}

impl FoundView {
    fn of(found: FoundEndpoint) -> Self {
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
        Self {
            endpoint: row.endpoint.into(),
            outcome: row.outcome,
            answering: row.answering,
            severity: row.severity,
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
            state: word,
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
}

/// What to list of what was found.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct FoundParams {
    /// Whose host holds this text.
    host: Option<String>,
    /// Whose certificate's issuer holds this text.
    issuer: Option<String>,
    /// Whose certificate ends before this time, RFC 3339.
    expires_before: Option<String>,
    /// Whose certificate ends at this time or later, RFC 3339.
    expires_after: Option<String>,
    /// Whether the last look saw a certificate.
    answering: Option<bool>,
    /// Of this team, by the rules of ownership. With this, `owner` or `nobody` a page looks at 5,000 endpoints at most: it may
    /// have fewer items than asked for, or none, and still a `next`.
    team: Option<String>,
    /// Of this owner, by the rules of ownership.
    owner: Option<String>,
    /// Only those for which no rule names a team or an owner.
    nobody: Option<bool>,
    /// `expiry` (also when absent) or `host`.
    sort: Option<String>,
}

/// Lists what scans found, and whether it is managed.
#[utoipa::path(get, path = "/api/v1/inventory", operation_id = "listInventory", params(PagingParams, FoundParams),
    responses((status = 200, body = Listing<FoundView>)))]
async fn list(
    Component(lifecycle): Component<Lifecycle>,
    paging: Paging,
    Query(params): Query<FoundParams>,
) -> Result<Json<Listing<FoundView>>, Problem> {
    let order = match params.sort.as_deref() {
        None | Some("expiry") => InventoryOrder::Expiry,
        Some("host") => InventoryOrder::Host,
        Some(other) => {
            return Err(Problem::bad_request(format_args!("sort is expiry or host, not {other:?}")));
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
    let whose = OwnerFilter { team: params.team, owner: params.owner, nobody: params.nobody == Some(true) };
    let after = paging.after.as_ref();
    let page = if whose.is_anybody() {
        lifecycle.found(&filter, after, paging.limit).await?
    } else {
        lifecycle.found_of(&filter, &whose, after, paging.limit).await?
    };
    Ok(Json(Listing::of(page, FoundView::of)))
}

/// What was found, to be managed from now on. Either `endpoint` or `fingerprint`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ClaimBody {
    /// What this endpoint shows; the endpoint becomes a target.
    endpoint: Option<EndpointBody>,
    /// The certificate with this SHA-256.
    fingerprint: Option<String>,
    /// Its name, unique; its first name when absent.
    name: Option<String>,
    /// The profile its next version is issued by.
    profile: String,
    /// The issuer of its next version; `internal` when absent.
    issuer: Option<String>,
    /// Who answers for it; when neither this nor `team` is given, both are as the rules of ownership say.
    owner: Option<String>,
    /// The team that does.
    team: Option<String>,
    /// Where it is used; as the rules of ownership say when absent.
    environment: Option<String>,
    /// The policy that says when it is renewed.
    policy: Option<String>,
    /// Where its next key is made and kept; in this server when absent.
    key_location: Option<KeyLocationBody>,
    /// Targets beside the endpoint.
    #[serde(default)]
    targets: Vec<TargetBody>,
    /// Whether the scheduler renews it; true when absent.
    auto_renew: Option<bool>,
    /// When it is renewed, in place of its policy's rule.
    #[schema(value_type = Option<Object>)]
    renewal: Option<Value>,
    /// For people.
    #[serde(default)]
    notes: String,
}

/// A certificate that was claimed.
#[derive(Serialize, ToSchema)]
struct ClaimedView {
    /// Its identity.
    id: Uuid,
    /// Its name.
    name: String,
}

/// Brings what was found under management.
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
        _ => return Err(Problem::unprocessable("a claim has either an endpoint or a fingerprint")),
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
        key_location: body.key_location.map_or(KeyLocation::Server, Into::into),
        targets: body.targets.into_iter().map(Into::into).collect(),
        options: options_of(body.auto_renew, body.renewal.as_ref(), body.notes)?,
    };
    let created = lifecycle.claim(claim, caller.actor()).await?;
    let place = HeaderValue::from_str(&format!("/api/v1/certificates/{}", created.certificate));
    let place = place.map_err(Problem::internal)?;
    let view = ClaimedView { id: created.certificate, name: created.name };
    Ok((StatusCode::CREATED, [(LOCATION, place)], Json(view)).into_response())
}

fn fingerprint(text: &str) -> Result<Fingerprint, Problem> {
    text.parse().map_err(|_| Problem::unprocessable(format_args!("{text:?} is no SHA-256 fingerprint")))
}

/// A certificate that is not to be managed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct DismissBody {
    /// Its SHA-256.
    fingerprint: String,
    /// Why.
    #[serde(default)]
    #[schema(max_length = 8192)]
    note: String,
    /// Until when, RFC 3339: it is ignored for a time. For good without.
    until: Option<String>,
}

/// Notes that a certificate that was found is not to be managed, for a time or for good: nobody is told of it.
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

/// A dismissal to take back.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct UndismissBody {
    /// The certificate's SHA-256.
    fingerprint: String,
}

/// Takes a dismissal back.
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
