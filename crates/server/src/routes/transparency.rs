//! Certificate Transparency: which domains are watched in the logs, what was issued for them, and how the reading goes.

use axum::extract::State as With;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ct::follow::{Alarm, LogPosition};
use ct::monitor::{NewDomain, Review, verdict_name, verdict_named};
use ct::{IssuerRule, Monitor, MonitorError};
use http::StatusCode;
use http::header::{HeaderValue, LOCATION};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::Clock;
use store::ct::{CtDomainRow, CtFilter, CtIssuanceRow, CtLogRow, CtSearchRow};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use x509::Fingerprint;

use crate::access::{Caller, Permission};
use crate::api::{Api, routes};
use crate::conditional::{IfMatch, Revision};
use crate::extract::{Json, Path, Query};
use crate::paging::{Listing, Paging, PagingParams};
use crate::problem::Problem;
use crate::state::Component;
use crate::time::{maybe_shown, parsed, shown};

/// Microseconds of a second.
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
            MonitorError::Unknown(_) => Self::not_found(error),
            MonitorError::Taken(_) | MonitorError::Full | MonitorError::NotNow(_) | MonitorError::Decided => {
                Self::conflict(error)
            }
            MonitorError::Changed => Self::precondition_failed(error),
        }
    }
}

/// A watched domain.
#[derive(Debug, Serialize, ToSchema)]
struct CtDomainView {
    /// Its name: a registered domain. Everything below it is watched too.
    #[schema(example = "example.com")]
    name: String,
    /// Whether it is asked for and matched.
    enabled: bool,
    /// Which services watch it, `logs` among them; empty: all.
    services: Vec<String>,
    /// Words that an issuer's name must contain; empty: any issuer of a known certificate for the domain.
    issuers: Vec<String>,
    /// Whether those issuers may issue for any name below it.
    trust_issuers: bool,
    /// When it was first watched.
    created_at: String,
    /// When it was last changed.
    updated_at: String,
    /// Where each search service was left; absent in listings.
    #[serde(skip_serializing_if = "Option::is_none")]
    searches: Option<Vec<CtSearchView>>,
}

impl CtDomainView {
    fn of(row: CtDomainRow) -> Self {
        let rule: IssuerRule = serde_json::from_str(&row.rule).unwrap_or_default();
        Self {
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
}

/// Where a search service was left for a domain.
#[derive(Debug, Serialize, ToSchema)]
struct CtSearchView {
    /// Which domain.
    domain: String,
    /// Which service.
    service: String,
    /// `asking`, `due`, `failing` or `planned`.
    state: &'static str,
    /// The service's own mark of where to go on.
    #[schema(value_type = Object)]
    cursor: Value,
    /// When it had told all it knew for the first time: what it told until then is the baseline.
    baseline_at: Option<String>,
    /// When it last answered.
    answered_at: Option<String>,
    /// When it is to be asked again.
    next_at: String,
    /// Seconds that a due question has waited, or since when it fails.
    lag_s: i64,
    /// Failures in a row.
    failures: i64,
    /// The last of them.
    last_error: Option<String>,
}

impl CtSearchView {
    fn of(row: CtSearchRow, now_us: i64) -> Self {
        let asking = row.until_us.is_some_and(|until| until > now_us);
        let state = match (asking, row.failures > 0, row.due_at_us <= now_us) {
            (true, _, _) => "asking",
            (false, true, _) => "failing",
            (false, false, true) => "due",
            (false, false, false) => "planned",
        };
        let overdue = (row.due_at_us < now_us && !asking).then_some(row.due_at_us);
        let since = [overdue, row.failing_since_us].into_iter().flatten().min();
        Self {
            domain: row.domain,
            service: row.service,
            state,
            cursor: serde_json::from_str(&row.cursor).unwrap_or_default(),
            baseline_at: maybe_shown(row.baseline_at_us),
            answered_at: maybe_shown(row.answered_at_us),
            next_at: shown(row.due_at_us),
            lag_s: since.map_or(0, |since| now_us.saturating_sub(since) / SECOND_US),
            failures: row.failures,
            last_error: row.last_error,
        }
    }
}

/// A log that is followed, or was.
#[derive(Debug, Serialize, ToSchema)]
struct CtLogView {
    /// SHA-256 of its key (RFC 6962 section 3.2), hexadecimal.
    id: String,
    /// Its name on the list.
    name: String,
    /// `followed`, `failing`, `inconsistent`, or `new` when it was never read.
    state: &'static str,
    /// Entries of the last checkpoint that was verified to go on from all before it.
    tree_size: Option<u64>,
    /// The first entry that has not been read.
    next_entry: Option<u64>,
    /// Entries that have not been read.
    behind: i64,
    /// Since when there is more to be read than one step reads.
    behind_since: Option<String>,
    /// The hash of that checkpoint's tree, hexadecimal.
    root: Option<String>,
    /// When the log signed it.
    checkpoint_at: Option<String>,
    /// The last step.
    stepped_at: Option<String>,
    /// Since when it cannot be read, or stands still.
    failing_since: Option<String>,
    /// Why.
    last_error: Option<String>,
    /// What is wrong with it: `forked`, `rolled-back`, `wrong-tile`, `bad-checkpoint`. It is not read past that.
    alarm: Option<String>,
    /// Since when.
    alarmed_at: Option<String>,
    /// The proof: signed notes of the log that cannot both be true, where there are two.
    #[schema(value_type = Object)]
    evidence: Option<Value>,
}

impl CtLogView {
    fn of(row: CtLogRow) -> Self {
        let place: Option<LogPosition> = serde_json::from_str(&row.place).ok();
        let alarm: Option<Alarm> = row.alarm.as_deref().and_then(|text| serde_json::from_str(text).ok());
        let state = match (&row.alarm, row.failing_since_us, &place) {
            (Some(_), _, _) => "inconsistent",
            (None, Some(_), _) => "failing",
            (None, None, None) => "new",
            (None, None, Some(_)) => "followed",
        };
        let signed =
            place.as_ref().and_then(|place| i64::try_from(place.timestamp_ms).ok()?.checked_mul(1_000));
        Self {
            id: Fingerprint::from_bytes(row.log_id).to_string(),
            name: row.name,
            state,
            tree_size: place.as_ref().map(|place| place.size),
            next_entry: place.as_ref().map(|place| place.next),
            behind: row.behind,
            behind_since: maybe_shown(row.behind_since_us),
            root: place.as_ref().map(|place| Fingerprint::from_bytes(place.root).to_string()),
            checkpoint_at: maybe_shown(signed),
            stepped_at: maybe_shown((row.stepped_at_us > 0).then_some(row.stepped_at_us)),
            failing_since: maybe_shown(row.failing_since_us),
            last_error: row.last_error,
            alarm: alarm.map(|alarm| alarm.code().to_owned()),
            alarmed_at: maybe_shown(row.alarmed_at_us),
            evidence: row.alarm.as_deref().and_then(|text| serde_json::from_str(text).ok()),
        }
    }
}

/// What was issued for a watched domain: one however often it was logged, precertificate and certificate together.
#[derive(Debug, Serialize, ToSchema)]
struct CtIssuanceView {
    /// Its identity.
    id: Uuid,
    /// `pending` (it waits for its verdict), `expected`, `unexpected` or `acknowledged`.
    verdict: &'static str,
    /// Why: `{"known":"managed"}`, `{"renewal":…}`, `"allowed_issuer"`, `"baseline"`, `{"accepted":…}`,
    /// `{"acknowledged":…}`, `{"unasked":[…]}`; null while pending.
    #[schema(value_type = Object)]
    reason: Value,
    /// The issuer's name.
    issuer: String,
    /// Hexadecimal; empty when it cannot be read.
    serial: String,
    /// The names it is for.
    names: Vec<String>,
    /// First second of validity.
    not_before: String,
    /// Last second of validity.
    not_after: String,
    /// SHA-256 of the public key (SubjectPublicKeyInfo), where the source tells it.
    spki_sha256: Option<String>,
    /// SHA-256 of the certificate or precertificate, where the source tells it.
    sha256: Option<String>,
    /// Which log or service told first.
    source: String,
    /// When it was logged, where the source tells it.
    logged_at: Option<String>,
    /// When it was found.
    found_at: String,
    /// The watched domains it was found for; absent in listings.
    #[serde(skip_serializing_if = "Option::is_none")]
    domains: Option<Vec<String>>,
    /// The certificate or precertificate (base64 of DER), where it is kept; absent in listings.
    #[serde(skip_serializing_if = "Option::is_none")]
    der: Option<String>,
}

impl CtIssuanceView {
    fn of(row: CtIssuanceRow) -> Self {
        let hash = |hash: Option<[u8; 32]>| hash.map(|hash| Fingerprint::from_bytes(hash).to_string());
        Self {
            id: row.id,
            verdict: verdict_name(row.verdict),
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
}

/// How a domain shall be watched.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CtDomainSettingsBody {
    /// Which services watch it, `logs` among them; empty: all.
    #[serde(default)]
    services: Vec<String>,
    /// Words that an issuer's name must contain, in any case; empty: any issuer of a known certificate for the domain.
    #[serde(default)]
    #[schema(example = json!(["Let's Encrypt"]), max_items = 64)]
    issuers: Vec<String>,
    /// Whether those issuers may issue for any name below it, known or not.
    #[serde(default)]
    trust_issuers: bool,
    /// Whether it is asked for and matched.
    #[serde(default = "yes")]
    enabled: bool,
}

/// A domain to watch.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CtDomainBody {
    /// A registered domain: what stands directly below a public suffix.
    #[schema(example = "example.com")]
    name: String,
    /// Which services watch it, `logs` among them; empty: all.
    #[serde(default)]
    services: Vec<String>,
    /// Words that an issuer's name must contain, in any case; empty: any issuer of a known certificate for the domain.
    #[serde(default)]
    #[schema(example = json!(["Let's Encrypt"]), max_items = 64)]
    issuers: Vec<String>,
    /// Whether those issuers may issue for any name below it, known or not.
    #[serde(default)]
    trust_issuers: bool,
    /// Whether it is asked for and matched.
    #[serde(default = "yes")]
    enabled: bool,
}

fn yes() -> bool {
    true
}

impl CtDomainSettingsBody {
    fn taken(self, name: String) -> NewDomain {
        NewDomain {
            name,
            rule: IssuerRule { allowed: self.issuers, trust_allowed: self.trust_issuers },
            services: self.services,
            enabled: self.enabled,
        }
    }
}

impl CtDomainBody {
    fn taken(self) -> NewDomain {
        let Self { name, services, issuers, trust_issuers, enabled } = self;
        CtDomainSettingsBody { services, issuers, trust_issuers, enabled }.taken(name)
    }
}

/// Why an issuance is expected, or has been seen to.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CtReasonBody {
    /// For whoever reads it later.
    #[schema(example = "bought by marketing", min_length = 1, max_length = 1024)]
    reason: String,
}

/// Which issuances.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct CtIssuanceQuery {
    /// Those of this watched domain.
    domain: Option<String>,
    /// Those with this verdict: `pending`, `expected`, `unexpected`, `acknowledged`.
    verdict: Option<String>,
    /// Those found at this time or later, RFC 3339.
    since: Option<String>,
}

impl CtIssuanceQuery {
    fn filter(self) -> Result<CtFilter, Problem> {
        let verdict = self.verdict.map(|word| {
            verdict_named(&word).ok_or_else(|| {
                Problem::bad_request(format_args!(
                    "{word:?} is no verdict: give pending, expected, unexpected or acknowledged"
                ))
            })
        });
        Ok(CtFilter {
            domain: self.domain.map(|domain| domain.to_ascii_lowercase()),
            verdict: verdict.transpose()?,
            found_from_us: self.since.map(|since| parsed(&since)).transpose()?,
        })
    }
}

/// Lists the watched domains, by name.
#[utoipa::path(get, path = "/api/v1/ct/domains", operation_id = "listCtDomains", params(PagingParams),
    responses((status = 200, body = Listing<CtDomainView>)))]
async fn list(
    Component(monitor): Component<Monitor>,
    paging: Paging,
) -> Result<Json<Listing<CtDomainView>>, Problem> {
    let page = monitor.domains(paging.after.as_ref(), paging.limit).await?;
    Ok(Json(Listing::of(page, CtDomainView::of)))
}

/// Watches a domain; its first questions are due at once. What is there already is the baseline, not news.
#[utoipa::path(post, path = "/api/v1/ct/domains", operation_id = "watchCtDomain", request_body = CtDomainBody,
    responses((status = 201, body = CtDomainView)))]
async fn watch(
    Component(monitor): Component<Monitor>,
    caller: Caller,
    Json(body): Json<CtDomainBody>,
) -> Result<Response, Problem> {
    let row = monitor.watch(&body.taken(), caller.actor()).await?;
    let place =
        HeaderValue::from_str(&format!("/api/v1/ct/domains/{}", row.name)).map_err(Problem::internal)?;
    let answer = Revision(row.revision, CtDomainView::of(row));
    Ok((StatusCode::CREATED, [(LOCATION, place)], answer).into_response())
}

/// Shows a watched domain, with where each search service was left.
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
    let searches = searches.into_iter().map(|row| CtSearchView::of(row, now_us)).collect();
    Ok(Revision(row.revision, CtDomainView { searches: Some(searches), ..CtDomainView::of(row) }))
}

/// Changes how a domain is watched.
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
    let row = monitor.change(&row, &body.taken(row.name.clone()), caller.actor()).await?;
    Ok(Revision(row.revision, CtDomainView::of(row)))
}

/// Watches a domain no more; what was found stays.
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

/// Has all services asked for a domain now.
#[utoipa::path(post, path = "/api/v1/ct/domains/{name}/run", operation_id = "runCtDomain",
    params(("name" = String, Path)), responses((status = 204)))]
async fn run(
    Component(monitor): Component<Monitor>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    let row = monitor.domain(&name).await?;
    monitor.ask_now(&row, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Pauses a domain: it is neither asked for nor matched.
#[utoipa::path(post, path = "/api/v1/ct/domains/{name}/pause", operation_id = "pauseCtDomain",
    params(("name" = String, Path)), responses((status = 200, body = CtDomainView)))]
async fn pause(
    Component(monitor): Component<Monitor>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Revision<CtDomainView>, Problem> {
    enable(&monitor, &caller, &name, false).await
}

/// Resumes a domain. Search services tell what came meanwhile; logs do not.
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
    let row = monitor.enable(&row, enabled, caller.actor()).await?;
    Ok(Revision(row.revision, CtDomainView::of(row)))
}

/// Lists where search services were left, by domain and service.
#[utoipa::path(get, path = "/api/v1/ct/searches", operation_id = "listCtSearches", params(PagingParams),
    responses((status = 200, body = Listing<CtSearchView>)))]
async fn searches(
    Component(monitor): Component<Monitor>,
    With(clock): With<Clock>,
    paging: Paging,
) -> Result<Json<Listing<CtSearchView>>, Problem> {
    let page = monitor.searches(paging.after.as_ref(), paging.limit).await?;
    let now_us = clock.now_us();
    Ok(Json(Listing::of(page, |row| CtSearchView::of(row, now_us))))
}

/// Lists the logs that are followed, by name.
#[utoipa::path(get, path = "/api/v1/ct/logs", operation_id = "listCtLogs",
    responses((status = 200, body = Listing<CtLogView>)))]
async fn logs(Component(monitor): Component<Monitor>) -> Result<Json<Listing<CtLogView>>, Problem> {
    let rows = monitor.logs().await?;
    Ok(Json(Listing::whole(rows.into_iter().map(CtLogView::of).collect())))
}

/// Forgets a log's place: it is followed from its present end, whatever it was before.
#[utoipa::path(delete, path = "/api/v1/ct/logs/{id}", operation_id = "forgetCtLog", params(("id" = String, Path)),
    responses((status = 204)))]
async fn forget_log(
    Component(monitor): Component<Monitor>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let id: Fingerprint =
        id.parse().map_err(|_| Problem::bad_request("a log's id is the SHA-256 of its key, hexadecimal"))?;
    monitor.forget_log(*id.as_bytes(), caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists what was issued for watched domains, the newest found first.
#[utoipa::path(get, path = "/api/v1/ct/issuances", operation_id = "listCtIssuances",
    params(CtIssuanceQuery, PagingParams), responses((status = 200, body = Listing<CtIssuanceView>)))]
async fn issuances(
    Component(monitor): Component<Monitor>,
    Query(query): Query<CtIssuanceQuery>,
    paging: Paging,
) -> Result<Json<Listing<CtIssuanceView>>, Problem> {
    let filter = query.filter()?;
    let page = monitor.issuances(&filter, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(Listing::of(page, CtIssuanceView::of)))
}

/// Shows an issuance, with its certificate or precertificate where that is kept.
#[utoipa::path(get, path = "/api/v1/ct/issuances/{id}", operation_id = "getCtIssuance", params(("id" = Uuid, Path)),
    responses((status = 200, body = CtIssuanceView)))]
async fn issuance(
    Component(monitor): Component<Monitor>,
    Path(id): Path<Uuid>,
) -> Result<Json<CtIssuanceView>, Problem> {
    let (row, domains, der) = monitor.issuance(id).await?;
    let der = der.map(|der| STANDARD.encode(der));
    Ok(Json(CtIssuanceView { domains: Some(domains), der, ..CtIssuanceView::of(row) }))
}

/// Says that an issuance is ours, and so are its renewals. Its alert ends.
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

/// Says that an issuance nobody asked for has been seen to: revoked, reported. Its alert ends; its renewal is news.
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
    Ok(Json(CtIssuanceView::of(row)))
}
