//! Watches: scans that the server makes by itself.

use axum::extract::State as With;
use std::time::Duration;
use store::Clock;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{HeaderValue, LOCATION};
use inventory::watch::{NewWatch, Progress, WatchError, WatchSpec, Watches};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::watches::{WatchLast, WatchRow};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::access::{Caller, Permission};
use crate::api::{Api, routes};
use crate::conditional::{IfMatch, Revision};
use crate::extract::{Json, Path};
use crate::paging::{Listing, Paging, PagingParams};
use crate::problem::Problem;
use crate::state::Component;
use crate::time::{maybe_shown, shown};

/// Microseconds of a second.
const SECOND_US: i64 = 1_000_000;

pub(crate) fn routes() -> Api {
    Api::area("watches")
        .route(Permission::InventoryRead, routes!(list))
        .route(Permission::InventoryManage, routes!(create))
        .route(Permission::InventoryRead, routes!(get_one))
        .route(Permission::InventoryManage, routes!(replace))
        .route(Permission::InventoryManage, routes!(delete))
        .route(Permission::InventoryManage, routes!(run))
        .route(Permission::InventoryManage, routes!(pause))
        .route(Permission::InventoryManage, routes!(resume))
}

impl From<WatchError> for Problem {
    fn from(error: WatchError) -> Self {
        match error {
            WatchError::Store(error) => error.into(),
            WatchError::Invalid(why) => Self::unprocessable(why),
            WatchError::Unknown(_) => Self::not_found(error),
            WatchError::Taken(_) | WatchError::Full | WatchError::NotNow => Self::conflict(error),
            WatchError::Changed => Self::precondition_failed(error),
        }
    }
}

/// A watch.
#[derive(Debug, Serialize, ToSchema)]
struct WatchView {
    /// Its identity.
    id: Uuid,
    /// Its name, unique.
    #[schema(example = "edge")]
    name: String,
    /// What it belongs to, for people; may be empty.
    group: String,
    /// `running`, `waiting` (for a node to take its run up), `due`, `planned` or `paused`.
    state: &'static str,
    /// Targets as `bulla scan` takes them, of the network only.
    targets: Vec<String>,
    /// Clouds and clusters, by name, by provider, or `all`.
    sources: Vec<String>,
    /// Ports for targets that name none.
    ports: Option<String>,
    /// Server names to ask for at targets that name none.
    server_names: Vec<String>,
    /// Protocol spoken before TLS at targets without a scheme.
    starttls: Option<String>,
    /// Whether every address of a name is an endpoint of its own.
    all_addresses: bool,
    /// Seconds from one planned time to the next.
    interval_s: i64,
    /// Seconds a run may begin later than planned.
    jitter_s: i64,
    /// Whether runs begin.
    enabled: bool,
    /// When the next run is due.
    next_run_at: String,
    /// Seconds that a due run has waited for a node.
    lag_s: i64,
    /// The scan of the run under way.
    running_scan: Option<Uuid>,
    /// Since when it runs.
    running_since: Option<String>,
    /// How far the run under way has come.
    progress: Option<ProgressView>,
    /// The last run that ended.
    last_run: Option<LastRun>,
    /// When it was made.
    created_at: String,
    /// When it was last changed.
    updated_at: String,
}

/// How far a run has come.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WatchProgress)]
struct ProgressView {
    /// Parts that it is cut into for nodes to share; 0 when it is not cut.
    parts: u64,
    /// Parts that have ended.
    parts_done: u64,
    /// Parts that some node is at.
    parts_under_way: u64,
    /// Endpoints looked at, and certificates listed, that are stored.
    endpoints_done: u64,
    /// Endpoints in all; null where clouds are listed, of which nobody knows how much they keep.
    endpoints: Option<u64>,
}

impl From<Progress> for ProgressView {
    fn from(Progress { done, expected }: Progress) -> Self {
        Self {
            parts: done.parts,
            parts_done: done.parts_ended,
            parts_under_way: done.parts_held,
            endpoints_done: done.observations,
            endpoints: expected,
        }
    }
}

/// A run that ended.
#[derive(Debug, Serialize, ToSchema)]
struct LastRun {
    /// Its scan in the inventory; none when it failed before.
    scan: Option<Uuid>,
    /// When it began.
    began_at: String,
    /// When it ended.
    ended_at: String,
    /// `finished` or `failed`.
    outcome: String,
    /// Why it failed.
    error: Option<String>,
    /// `endpoints`, `answered`, `changed`, `new_certificates`; `worst_findings`: endpoints by severity; `not_listed`: parts
    /// of sources that could not be listed, with `not_listed_first` saying why; `not_read_first`: what could not be read
    /// beside, such as tags.
    #[schema(value_type = Object)]
    counts: Value,
}

impl LastRun {
    fn of(last: WatchLast) -> Self {
        Self {
            scan: last.scan,
            began_at: shown(last.began_at_us),
            ended_at: shown(last.ended_at_us),
            outcome: last.outcome,
            error: last.error,
            counts: last.counts.and_then(|counts| serde_json::from_str(&counts).ok()).unwrap_or_default(),
        }
    }
}

impl WatchView {
    fn of(row: WatchRow, progress: Option<Progress>, now_us: i64) -> Self {
        let spec: WatchSpec = serde_json::from_str(&row.settings.spec).unwrap_or_default();
        let state = state_of(&row, now_us);
        let late_us = if state == "due" { now_us.saturating_sub(row.times.next_run_at_us) } else { 0 };
        Self {
            id: row.id,
            name: row.settings.name,
            group: row.settings.group,
            state,
            targets: spec.targets,
            sources: spec.sources,
            ports: spec.ports,
            server_names: spec.server_names,
            starttls: spec.starttls,
            all_addresses: spec.all_addresses,
            interval_s: row.settings.interval_us / SECOND_US,
            jitter_s: row.settings.jitter_us / SECOND_US,
            enabled: row.settings.enabled,
            next_run_at: shown(row.times.next_run_at_us),
            lag_s: late_us / SECOND_US,
            running_scan: row.run.as_ref().and_then(|run| run.scan),
            running_since: maybe_shown(row.run.as_ref().map(|run| run.began_at_us)),
            progress: progress.map(ProgressView::from),
            last_run: row.last.map(LastRun::of),
            created_at: shown(row.created_at_us),
            updated_at: shown(row.updated_at_us),
        }
    }
}

fn state_of(row: &WatchRow, now_us: i64) -> &'static str {
    match &row.run {
        Some(run) if run.until_us.is_some_and(|until| until > now_us) => "running",
        _ if !row.settings.enabled => "paused",
        Some(_) => "waiting",
        None if row.times.next_run_at_us <= now_us => "due",
        None => "planned",
    }
}

/// A watch to make, or what one shall be.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct WatchBody {
    /// Unique: letters, digits, `.`, `_` and `-`.
    #[schema(example = "edge", min_length = 1, max_length = 64)]
    name: String,
    /// What it belongs to, for people.
    #[serde(default)]
    #[schema(max_length = 64)]
    group: String,
    /// Hosts, addresses, networks, URLs, as `bulla scan` takes them; no files. May be empty where there are sources.
    #[serde(default)]
    #[schema(example = json!(["www.example.com", "10.0.0.0/24:8443", "smtp://mail.example.com"]), max_items = 10_000)]
    targets: Vec<String>,
    /// Clouds and clusters that the server is configured for, by name (`aws/123456789012`), by provider (`aws`), or `all`.
    #[serde(default)]
    #[schema(example = json!(["aws", "kubernetes/prod"]), max_items = 1_000)]
    sources: Vec<String>,
    /// Ports for targets that name none: `443,8443,9000-9010`.
    #[serde(default)]
    ports: Option<String>,
    /// Server names to ask for at targets that name none.
    #[serde(default)]
    server_names: Vec<String>,
    /// Protocol spoken before TLS at targets without a scheme.
    #[serde(default)]
    starttls: Option<String>,
    /// Whether every address of a name is an endpoint of its own.
    #[serde(default)]
    all_addresses: bool,
    /// Seconds from one planned time to the next.
    #[schema(example = 21_600, minimum = 60, maximum = 31_622_400)]
    interval_s: u64,
    /// Seconds a run may begin later than planned; at most the interval.
    #[serde(default)]
    jitter_s: u64,
    /// Whether runs begin.
    #[serde(default = "yes")]
    enabled: bool,
}

fn yes() -> bool {
    true
}

impl WatchBody {
    fn taken(self) -> NewWatch {
        NewWatch {
            name: self.name,
            group: self.group,
            spec: WatchSpec {
                targets: self.targets,
                sources: self.sources,
                ports: self.ports,
                server_names: self.server_names,
                starttls: self.starttls,
                all_addresses: self.all_addresses,
            },
            interval: Duration::from_secs(self.interval_s),
            jitter: Duration::from_secs(self.jitter_s),
            enabled: self.enabled,
        }
    }
}

async fn answer(watches: &Watches, clock: &Clock, row: WatchRow) -> Result<Revision<WatchView>, Problem> {
    let progress = watches.progress(std::slice::from_ref(&row)).await?.remove(&row.id);
    Ok(Revision(row.revision, WatchView::of(row, progress, clock.now_us())))
}

/// Lists the watches, by name.
#[utoipa::path(get, path = "/api/v1/watches", operation_id = "listWatches", params(PagingParams),
    responses((status = 200, body = Listing<WatchView>)))]
async fn list(
    Component(watches): Component<Watches>,
    With(clock): With<Clock>,
    paging: Paging,
) -> Result<Json<Listing<WatchView>>, Problem> {
    let page = watches.list(paging.after.as_ref(), paging.limit).await?;
    let progress = watches.progress(&page.rows).await?;
    let now_us = clock.now_us();
    let view = |row: WatchRow| {
        let progress = progress.get(&row.id).copied();
        WatchView::of(row, progress, now_us)
    };
    Ok(Json(Listing::of(page, view)))
}

/// Makes a watch; its first run is due at once.
#[utoipa::path(post, path = "/api/v1/watches", operation_id = "createWatch", request_body = WatchBody,
    responses((status = 201, body = WatchView)))]
async fn create(
    Component(watches): Component<Watches>,
    With(clock): With<Clock>,
    caller: Caller,
    Json(body): Json<WatchBody>,
) -> Result<Response, Problem> {
    let row = watches.create(&body.taken(), caller.actor()).await?;
    let place = HeaderValue::from_str(&format!("/api/v1/watches/{}", row.id)).map_err(Problem::internal)?;
    Ok((StatusCode::CREATED, [(LOCATION, place)], answer(&watches, &clock, row).await?).into_response())
}

/// Shows a watch, by its identity or name.
#[utoipa::path(get, path = "/api/v1/watches/{id}", operation_id = "getWatch", params(("id" = String, Path)),
    responses((status = 200, body = WatchView)))]
async fn get_one(
    Component(watches): Component<Watches>,
    With(clock): With<Clock>,
    Path(id): Path<String>,
) -> Result<Revision<WatchView>, Problem> {
    let row = watches.get(&id).await?;
    answer(&watches, &clock, row).await
}

/// Changes a watch. A run under way ends as it began.
#[utoipa::path(put, path = "/api/v1/watches/{id}", operation_id = "replaceWatch", params(("id" = String, Path)),
    request_body = WatchBody, responses((status = 200, body = WatchView)))]
async fn replace(
    Component(watches): Component<Watches>,
    With(clock): With<Clock>,
    caller: Caller,
    Path(id): Path<String>,
    if_match: IfMatch,
    Json(body): Json<WatchBody>,
) -> Result<Revision<WatchView>, Problem> {
    let row = watches.get(&id).await?;
    if_match.check(row.revision)?;
    let row = watches.update(&row, &body.taken(), caller.actor()).await?;
    answer(&watches, &clock, row).await
}

/// Removes a watch; what its scans found stays.
#[utoipa::path(delete, path = "/api/v1/watches/{id}", operation_id = "deleteWatch", params(("id" = String, Path)),
    responses((status = 204)))]
async fn delete(
    Component(watches): Component<Watches>,
    caller: Caller,
    Path(id): Path<String>,
    if_match: IfMatch,
) -> Result<StatusCode, Problem> {
    let row = watches.get(&id).await?;
    if_match.check(row.revision)?;
    watches.delete(&row, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Makes a watch due now.
#[utoipa::path(post, path = "/api/v1/watches/{id}/run", operation_id = "runWatch", params(("id" = String, Path)),
    responses((status = 204)))]
async fn run(
    Component(watches): Component<Watches>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let row = watches.get(&id).await?;
    watches.run_now(&row, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Pauses a watch; a run under way goes on to its end.
#[utoipa::path(post, path = "/api/v1/watches/{id}/pause", operation_id = "pauseWatch",
    params(("id" = String, Path)), responses((status = 200, body = WatchView)))]
async fn pause(
    Component(watches): Component<Watches>,
    With(clock): With<Clock>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Revision<WatchView>, Problem> {
    enable(&watches, &clock, &caller, &id, false).await
}

/// Resumes a watch; a run it missed meanwhile is made once.
#[utoipa::path(post, path = "/api/v1/watches/{id}/resume", operation_id = "resumeWatch",
    params(("id" = String, Path)), responses((status = 200, body = WatchView)))]
async fn resume(
    Component(watches): Component<Watches>,
    With(clock): With<Clock>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Revision<WatchView>, Problem> {
    enable(&watches, &clock, &caller, &id, true).await
}

async fn enable(
    watches: &Watches,
    clock: &Clock,
    caller: &Caller,
    id: &str,
    enabled: bool,
) -> Result<Revision<WatchView>, Problem> {
    let row = watches.get(id).await?;
    let row = watches.enable(&row, enabled, caller.actor()).await?;
    answer(watches, clock, row).await
}
