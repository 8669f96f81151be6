//! Certificate Transparency: watched domains, certificates issued for them, and the progress of reading the logs.

use api::transparency::{
    CtDomainBody, CtDomainSettingsBody, CtDomainView, CtIssuanceQuery, CtIssuanceView, CtLogView,
    CtReasonBody, CtSearchView,
};
use axum::extract::State as With;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coded::UnknownName;
use ct::follow::{Alarm, LogPosition};
use ct::monitor::{NewDomain, Review};
use ct::tables::{CtDomainRow, CtFilter, CtIssuanceRow, CtLogRow, CtSearchRow};
use ct::{IssuerRule, Monitor, MonitorError};
use http::StatusCode;
use http::header::{HeaderValue, LOCATION};
use store::Clock;
use uuid::Uuid;
use x509::Fingerprint;

use crate::access::{Caller, Permission};
use crate::conditional::{IfMatch, Revision};
use crate::extract::{Json, Path, Query};
use crate::paging::{Listing, PageQuery, Paging, listing};
use crate::problem::Problem;
use crate::routing::{Api, routes};
use crate::state::Component;
use crate::time::{maybe_shown, parsed, shown};

const SECOND_US: i64 = 1_000_000;

pub(crate) fn routes() -> Api {
    Api::area("ct")
        .route(Permission::InventoryRead, routes!(list))
        .route(Permission::InventoryManage, routes!(watch))
        .route(Permission::InventoryRead, routes!(get_one))
        .route(Permission::InventoryManage, routes!(replace))
        .route(Permission::InventoryManage, routes!(unwatch))
        .route(Permission::InventoryManage, routes!(run))
        .route(Permission::InventoryManage, routes!(pause))
        .route(Permission::InventoryManage, routes!(resume))
        .route(Permission::InventoryRead, routes!(searches))
        .route(Permission::InventoryRead, routes!(logs))
        .route(Permission::InventoryManage, routes!(forget_log))
        .route(Permission::InventoryRead, routes!(issuances))
        .route(Permission::InventoryRead, routes!(issuance))
        .route(Permission::InventoryManage, routes!(expect))
        .route(Permission::InventoryManage, routes!(acknowledge))
}

impl From<MonitorError> for Problem {
    fn from(error: MonitorError) -> Self {
        match error {
            MonitorError::Store(error) => error.into(),
            MonitorError::Invalid(why) => Self::unprocessable(why),
            MonitorError::Unknown(_) => Self::missing(error),
            MonitorError::Taken(_) | MonitorError::Full | MonitorError::NotNow(_) | MonitorError::Decided => {
                Self::conflict(error)
            }
            MonitorError::Changed => Self::precondition_failed(error),
        }
    }
}

fn ct_domain_view(row: CtDomainRow) -> CtDomainView {
    let rule: IssuerRule = serde_json::from_str(&row.rule).unwrap_or_default();
    CtDomainView {
        name: row.name,
        enabled: row.enabled,
        services: row.services,
        issuers: rule.allowed,
        trust_issuers: rule.trust_allowed,
        created_at: shown(row.created_at_us),
        updated_at: shown(row.updated_at_us),
        searches: None,
    }
}

fn ct_search_view(row: CtSearchRow, now_us: i64) -> CtSearchView {
    let asking = row.until_us.is_some_and(|until| until > now_us);
    let state = match (asking, row.failures > 0, row.due_at_us <= now_us) {
        (true, _, _) => "asking",
        (false, true, _) => "failing",
        (false, false, true) => "due",
        (false, false, false) => "planned",
    };
    let overdue = (row.due_at_us < now_us && !asking).then_some(row.due_at_us);
    let since = [overdue, row.failing_since_us].into_iter().flatten().min();
    CtSearchView {
        domain: row.domain,
        service: row.service,
        state: state.to_owned(),
        cursor: serde_json::from_str(&row.cursor).unwrap_or_default(),
        baseline_at: maybe_shown(row.baseline_at_us),
        answered_at: maybe_shown(row.answered_at_us),
        next_at: shown(row.due_at_us),
        lag_s: since.map_or(0, |since| now_us.saturating_sub(since) / SECOND_US),
        failures: row.failures,
        last_error: row.last_error,
    }
}

fn ct_log_view(row: CtLogRow) -> CtLogView {
    let position: Option<LogPosition> = serde_json::from_str(&row.position).ok();
    let alarm: Option<Alarm> = row.alarm.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let state = match (&row.alarm, row.failing_since_us, &position) {
        (Some(_), _, _) => "inconsistent",
        (None, Some(_), _) => "failing",
        (None, None, None) => "new",
        (None, None, Some(_)) => "followed",
    };
    let signed =
        position.as_ref().and_then(|position| i64::try_from(position.timestamp_ms).ok()?.checked_mul(1_000));
    CtLogView {
        id: Fingerprint::from_bytes(row.log_id).to_string(),
        name: row.name,
        state: state.to_owned(),
        tree_size: position.as_ref().map(|position| position.size),
        next_entry: position.as_ref().map(|position| position.next),
        behind: row.behind,
        behind_since: maybe_shown(row.behind_since_us),
        root: position.as_ref().map(|position| Fingerprint::from_bytes(position.root).to_string()),
        checkpoint_at: maybe_shown(signed),
        stepped_at: maybe_shown((row.stepped_at_us > 0).then_some(row.stepped_at_us)),
        failing_since: maybe_shown(row.failing_since_us),
        last_error: row.last_error,
        alarm: alarm.map(|alarm| alarm.code().to_owned()),
        alarmed_at: maybe_shown(row.alarmed_at_us),
        evidence: row.alarm.as_deref().and_then(|text| serde_json::from_str(text).ok()),
    }
}

fn ct_issuance_view(row: CtIssuanceRow) -> CtIssuanceView {
    let hash = |hash: Option<[u8; 32]>| hash.map(|hash| Fingerprint::from_bytes(hash).to_string());
    CtIssuanceView {
        id: row.id,
        verdict: row.verdict.to_string(),
        reason: serde_json::from_str(&row.reason).unwrap_or_default(),
        issuer: row.issuer,
        serial: row.serial,
        names: row.names,
        not_before: shown(row.not_before_us),
        not_after: shown(row.not_after_us),
        spki_sha256: hash(row.spki_sha256),
        sha256: hash(row.sha256),
        source: row.source,
        logged_at: maybe_shown(row.logged_at_us),
        found_at: shown(row.found_at_us),
        domains: None,
        der: None,
    }
}

fn domain_from_settings(body: CtDomainSettingsBody, name: String) -> NewDomain {
    NewDomain {
        name,
        rule: IssuerRule { allowed: body.issuers, trust_allowed: body.trust_issuers },
        services: body.services,
        enabled: body.enabled,
    }
}

fn new_domain(body: CtDomainBody) -> NewDomain {
    let CtDomainBody { name, services, issuers, trust_issuers, enabled } = body;
    domain_from_settings(CtDomainSettingsBody { services, issuers, trust_issuers, enabled }, name)
}

fn filter(query: CtIssuanceQuery) -> Result<CtFilter, Problem> {
    let verdict =
        query.verdict.map(|word| word.parse().map_err(|error: UnknownName| Problem::bad_request(error)));
    Ok(CtFilter {
        domain: query.domain.map(|domain| domain.to_ascii_lowercase()),
        verdict: verdict.transpose()?,
        found_from_us: query.since.map(|since| parsed(&since)).transpose()?,
    })
}

/// Lists the watched domains, by name.
#[utoipa::path(get, path = "/api/v1/ct/domains", operation_id = "listCtDomains", params(PageQuery),
    responses((status = 200, body = Listing<CtDomainView>)))]
async fn list(
    Component(monitor): Component<Monitor>,
    paging: Paging,
) -> Result<Json<Listing<CtDomainView>>, Problem> {
    let page = monitor.domains(paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, ct_domain_view)))
}

/// Watches a domain; the first searches start immediately. Existing certificates become the baseline and raise no alerts.
#[utoipa::path(post, path = "/api/v1/ct/domains", operation_id = "watchCtDomain", request_body = CtDomainBody,
    responses((status = 201, body = CtDomainView)))]
async fn watch(
    Component(monitor): Component<Monitor>,
    caller: Caller,
    Json(body): Json<CtDomainBody>,
) -> Result<Response, Problem> {
    let row = monitor.watch(&new_domain(body), caller.actor()).await?;
    let position =
        HeaderValue::from_str(&format!("/api/v1/ct/domains/{}", row.name)).map_err(Problem::internal)?;
    let answer = Revision(row.revision, ct_domain_view(row));
    Ok((StatusCode::CREATED, [(LOCATION, position)], answer).into_response())
}

/// Shows a watched domain, with its position in each search service.
#[utoipa::path(get, path = "/api/v1/ct/domains/{name}", operation_id = "getCtDomain", params(("name" = String, Path)),
    responses((status = 200, body = CtDomainView)))]
async fn get_one(
    Component(monitor): Component<Monitor>,
    With(clock): With<Clock>,
    Path(name): Path<String>,
) -> Result<Revision<CtDomainView>, Problem> {
    let row = monitor.domain(&name).await?;
    let now_us = clock.now_us();
    let searches = monitor.searches_of(&row.name).await?;
    let searches = searches.into_iter().map(|row| ct_search_view(row, now_us)).collect();
    Ok(Revision(row.revision, CtDomainView { searches: Some(searches), ..ct_domain_view(row) }))
}

/// Changes the settings of a watched domain.
#[utoipa::path(put, path = "/api/v1/ct/domains/{name}", operation_id = "replaceCtDomain",
    params(("name" = String, Path)), request_body = CtDomainSettingsBody,
    responses((status = 200, body = CtDomainView)))]
async fn replace(
    Component(monitor): Component<Monitor>,
    caller: Caller,
    Path(name): Path<String>,
    if_match: IfMatch,
    Json(body): Json<CtDomainSettingsBody>,
) -> Result<Revision<CtDomainView>, Problem> {
    let row = monitor.domain(&name).await?;
    if_match.check(row.revision)?;
    let row = monitor.change(&row, &domain_from_settings(body, row.name.clone()), caller.actor()).await?;
    Ok(Revision(row.revision, ct_domain_view(row)))
}

/// Stops watching a domain; found certificates remain.
#[utoipa::path(delete, path = "/api/v1/ct/domains/{name}", operation_id = "unwatchCtDomain",
    params(("name" = String, Path)), responses((status = 204)))]
async fn unwatch(
    Component(monitor): Component<Monitor>,
    caller: Caller,
    Path(name): Path<String>,
    if_match: IfMatch,
) -> Result<StatusCode, Problem> {
    let row = monitor.domain(&name).await?;
    if_match.check(row.revision)?;
    monitor.unwatch(&row, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Searches all services for a domain now.
#[utoipa::path(post, path = "/api/v1/ct/domains/{name}/run", operation_id = "runCtDomain",
    params(("name" = String, Path)), responses((status = 204)))]
async fn run(
    Component(monitor): Component<Monitor>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    let row = monitor.domain(&name).await?;
    monitor.run_searches_now(&row, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Pauses a domain: it is neither searched nor matched in logs.
#[utoipa::path(post, path = "/api/v1/ct/domains/{name}/pause", operation_id = "pauseCtDomain",
    params(("name" = String, Path)), responses((status = 200, body = CtDomainView)))]
async fn pause(
    Component(monitor): Component<Monitor>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Revision<CtDomainView>, Problem> {
    enable(&monitor, &caller, &name, false).await
}

/// Resumes a domain. Search services return certificates issued during the pause; logs do not.
#[utoipa::path(post, path = "/api/v1/ct/domains/{name}/resume", operation_id = "resumeCtDomain",
    params(("name" = String, Path)), responses((status = 200, body = CtDomainView)))]
async fn resume(
    Component(monitor): Component<Monitor>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Revision<CtDomainView>, Problem> {
    enable(&monitor, &caller, &name, true).await
}

async fn enable(
    monitor: &Monitor,
    caller: &Caller,
    name: &str,
    enabled: bool,
) -> Result<Revision<CtDomainView>, Problem> {
    let row = monitor.domain(name).await?;
    let row = match enabled {
        true => monitor.resume(&row, caller.actor()).await?,
        false => monitor.pause(&row, caller.actor()).await?,
    };
    Ok(Revision(row.revision, ct_domain_view(row)))
}

/// Lists the positions in search services, by domain and service.
#[utoipa::path(get, path = "/api/v1/ct/searches", operation_id = "listCtSearches", params(PageQuery),
    responses((status = 200, body = Listing<CtSearchView>)))]
async fn searches(
    Component(monitor): Component<Monitor>,
    With(clock): With<Clock>,
    paging: Paging,
) -> Result<Json<Listing<CtSearchView>>, Problem> {
    let page = monitor.searches(paging.after.as_ref(), paging.limit).await?;
    let now_us = clock.now_us();
    Ok(Json(listing(page, |row| ct_search_view(row, now_us))))
}

/// Lists the logs that are followed, by name.
#[utoipa::path(get, path = "/api/v1/ct/logs", operation_id = "listCtLogs",
    responses((status = 200, body = Listing<CtLogView>)))]
async fn logs(Component(monitor): Component<Monitor>) -> Result<Json<Listing<CtLogView>>, Problem> {
    let rows = monitor.logs().await?;
    Ok(Json(Listing::whole(rows.into_iter().map(ct_log_view).collect())))
}

/// Resets the position in a log: reading continues at its current end.
#[utoipa::path(delete, path = "/api/v1/ct/logs/{id}", operation_id = "forgetCtLog", params(("id" = String, Path)),
    responses((status = 204)))]
async fn forget_log(
    Component(monitor): Component<Monitor>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let id: Fingerprint = id
        .parse()
        .map_err(|_| Problem::bad_request("the ID of a log is the SHA-256 of its key, hexadecimal"))?;
    monitor.forget_log(*id.as_bytes(), caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists the certificates issued for watched domains, most recently found first.
#[utoipa::path(get, path = "/api/v1/ct/issuances", operation_id = "listCtIssuances",
    params(CtIssuanceQuery, PageQuery), responses((status = 200, body = Listing<CtIssuanceView>)))]
async fn issuances(
    Component(monitor): Component<Monitor>,
    Query(query): Query<CtIssuanceQuery>,
    paging: Paging,
) -> Result<Json<Listing<CtIssuanceView>>, Problem> {
    let filter = filter(query)?;
    let page = monitor.issuances(&filter, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, ct_issuance_view)))
}

/// Shows an issuance, with its certificate or precertificate if stored.
#[utoipa::path(get, path = "/api/v1/ct/issuances/{id}", operation_id = "getCtIssuance", params(("id" = Uuid, Path)),
    responses((status = 200, body = CtIssuanceView)))]
async fn issuance(
    Component(monitor): Component<Monitor>,
    Path(id): Path<Uuid>,
) -> Result<Json<CtIssuanceView>, Problem> {
    let (row, domains, der) = monitor.issuance(id).await?;
    let der = der.map(|der| STANDARD.encode(der));
    Ok(Json(CtIssuanceView { domains: Some(domains), der, ..ct_issuance_view(row) }))
}

/// Acknowledges an issuance as legitimate, including its renewals, which resolves its alert.
#[utoipa::path(post, path = "/api/v1/ct/issuances/{id}/expect", operation_id = "expectCtIssuance",
    params(("id" = Uuid, Path)), request_body = CtReasonBody, responses((status = 200, body = CtIssuanceView)))]
async fn expect(
    Component(monitor): Component<Monitor>,
    caller: Caller,
    Path(id): Path<Uuid>,
    Json(body): Json<CtReasonBody>,
) -> Result<Json<CtIssuanceView>, Problem> {
    decide(&monitor, &caller, id, Review::Expected, &body.reason).await
}

/// Marks an unauthorized issuance as handled (revoked or reported), which resolves its alert. Its renewal raises a new alert.
#[utoipa::path(post, path = "/api/v1/ct/issuances/{id}/acknowledge", operation_id = "acknowledgeCtIssuance",
    params(("id" = Uuid, Path)), request_body = CtReasonBody, responses((status = 200, body = CtIssuanceView)))]
async fn acknowledge(
    Component(monitor): Component<Monitor>,
    caller: Caller,
    Path(id): Path<Uuid>,
    Json(body): Json<CtReasonBody>,
) -> Result<Json<CtIssuanceView>, Problem> {
    decide(&monitor, &caller, id, Review::Acknowledged, &body.reason).await
}

async fn decide(
    monitor: &Monitor,
    caller: &Caller,
    id: Uuid,
    saying: Review,
    reason: &str,
) -> Result<Json<CtIssuanceView>, Problem> {
    let row = monitor.decide(id, saying, reason, caller.actor()).await?;
    Ok(Json(ct_issuance_view(row)))
}
