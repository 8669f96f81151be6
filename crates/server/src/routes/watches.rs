//! Watches: scans that the server runs on a schedule.

use api::watches::{LastRun, ProgressView, WatchBody, WatchView};
use axum::extract::State as With;
use std::time::Duration;
use store::Clock;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{HeaderValue, LOCATION};
use inventory::tables::watches::{WatchLast, WatchRow};
use inventory::watch::{NewWatch, Progress, WatchError, WatchSpec, Watches};

use crate::access::{Caller, Permission};
use crate::conditional::{IfMatch, Revision};
use crate::extract::{Json, Path};
use crate::paging::{Listing, PageQuery, Paging, listing};
use crate::problem::Problem;
use crate::routing::{Api, routes};
use crate::state::Component;
use crate::time::{maybe_shown, shown};

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
            WatchError::Unknown(_) => Self::missing(error),
            WatchError::Taken(_) | WatchError::Full | WatchError::NotNow => Self::conflict(error),
            WatchError::Changed => Self::precondition_failed(error),
        }
    }
}

fn progress_view(Progress { done, expected }: Progress) -> ProgressView {
    ProgressView {
        parts: done.parts,
        parts_done: done.parts_ended,
        parts_under_way: done.parts_leased,
        endpoints_done: done.observations,
        endpoints: expected,
    }
}

fn last_run(last: WatchLast) -> LastRun {
    LastRun {
        scan: last.scan,
        began_at: shown(last.began_at_us),
        ended_at: shown(last.ended_at_us),
        outcome: last.outcome.to_string(),
        error: last.error,
        counts: last.counts.and_then(|counts| serde_json::from_str(&counts).ok()).unwrap_or_default(),
    }
}

fn watch_view(row: WatchRow, progress: Option<Progress>, now_us: i64) -> WatchView {
    let spec: WatchSpec = serde_json::from_str(&row.settings.spec).unwrap_or_default();
    let state = state_of(&row, now_us);
    let late_us = if state == "due" { now_us.saturating_sub(row.times.next_run_at_us) } else { 0 };
    WatchView {
        id: row.id,
        name: row.settings.name,
        group: row.settings.group,
        state: state.to_owned(),
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
        progress: progress.map(progress_view),
        last_run: row.last.map(last_run),
        created_at: shown(row.created_at_us),
        updated_at: shown(row.updated_at_us),
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

fn new_watch(body: WatchBody) -> NewWatch {
    NewWatch {
        name: body.name,
        group: body.group,
        spec: WatchSpec {
            targets: body.targets,
            sources: body.sources,
            ports: body.ports,
            server_names: body.server_names,
            starttls: body.starttls,
            all_addresses: body.all_addresses,
        },
        interval: Duration::from_secs(body.interval_s),
        jitter: Duration::from_secs(body.jitter_s),
        enabled: body.enabled,
    }
}

async fn answer(watches: &Watches, clock: &Clock, row: WatchRow) -> Result<Revision<WatchView>, Problem> {
    let progress = watches.progress(std::slice::from_ref(&row)).await?.remove(&row.id);
    Ok(Revision(row.revision, watch_view(row, progress, clock.now_us())))
}

/// Lists the watches, by name.
#[utoipa::path(get, path = "/api/v1/watches", operation_id = "listWatches", params(PageQuery),
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
        watch_view(row, progress, now_us)
    };
    Ok(Json(listing(page, view)))
}

/// Creates a watch; its first run is due immediately.
#[utoipa::path(post, path = "/api/v1/watches", operation_id = "createWatch", request_body = WatchBody,
    responses((status = 201, body = WatchView)))]
async fn create(
    Component(watches): Component<Watches>,
    With(clock): With<Clock>,
    caller: Caller,
    Json(body): Json<WatchBody>,
) -> Result<Response, Problem> {
    let row = watches.create(&new_watch(body), caller.actor()).await?;
    let location =
        HeaderValue::from_str(&format!("/api/v1/watches/{}", row.id)).map_err(Problem::internal)?;
    Ok((StatusCode::CREATED, [(LOCATION, location)], answer(&watches, &clock, row).await?).into_response())
}

/// Shows a watch, by its ID or name.
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

/// Changes a watch. A run in progress keeps its old settings.
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
    let row = watches.update(&row, &new_watch(body), caller.actor()).await?;
    answer(&watches, &clock, row).await
}

/// Deletes a watch; the results of its scans remain.
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

/// Pauses a watch; a run in progress continues to its end.
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

/// Resumes a watch. If it missed runs, one run starts now.
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
    let row = match enabled {
        true => watches.resume(&row, caller.actor()).await?,
        false => watches.pause(&row, caller.actor()).await?,
    };
    answer(watches, clock, row).await
}
