//! Runs of issuance, renewal, deployment and revocation.

use api::jobs::{DueView, JobEventView, JobQuery, JobView, LeaseView, SchedulerView};
use axum::extract::State as With;
use http::StatusCode;
use lifecycle::Lifecycle;
use lifecycle::job::{Job, JobId, JobKind, JobState};
use lifecycle::tables::jobs::JobFilter;
use store::Clock;
use uuid::Uuid;

use crate::access::{Caller, Permission};
use crate::extract::{Json, Path, Query};
use crate::paging::{Listing, PageQuery, Paging, listing};
use crate::problem::Problem;
use crate::routing::{Api, routes};
use crate::state::Component;
use crate::time;

pub(crate) fn routes() -> Api {
    Api::area("jobs")
        .route(Permission::JobRead, routes!(list))
        .route(Permission::JobRead, routes!(get_one))
        .route(Permission::JobRead, routes!(events))
        .route(Permission::JobRead, routes!(scheduler))
        .route(Permission::JobManage, routes!(cancel))
        .route(Permission::JobManage, routes!(retry))
}

pub(crate) fn job_view(job: Job) -> JobView {
    JobView {
        id: job.id.0,
        certificate: job.certificate,
        name: job.name,
        kind: job.kind.name().to_owned(),
        state: if job.planned { "planned".to_owned() } else { job.state.name().to_owned() },
        issuer: job.issuer,
        agent: job.agent,
        reason: job.reason,
        requested_by: job.requested_by,
        attempts: job.attempts,
        next_attempt_at: time::shown(job.next_attempt_at_us),
        last_error: job.last_error,
        created_at: time::shown(job.created_at_us),
        started_at: time::maybe_shown(job.started_at_us),
        finished_at: time::maybe_shown(job.finished_at_us),
    }
}

/// Lists runs, newest first.
#[utoipa::path(get, path = "/api/v1/jobs", operation_id = "listJobs", params(PageQuery, JobQuery),
    responses((status = 200, body = Listing<JobView>)))]
async fn list(
    Component(lifecycle): Component<Lifecycle>,
    With(clock): With<Clock>,
    paging: Paging,
    Query(params): Query<JobQuery>,
) -> Result<Json<Listing<JobView>>, Problem> {
    let wanted = match params.state.as_deref() {
        None => None,
        Some("planned") => Some(JobState::Queued),
        Some(word) => Some(word.parse::<JobState>().map_err(Problem::bad_request)?),
    };
    let kind = params.kind.as_deref().map(str::parse::<JobKind>).transpose().map_err(Problem::bad_request)?;
    let without_planned = params.planned == Some(false) && params.state.as_deref() != Some("planned");
    let filter = JobFilter {
        state: wanted,
        agent: params.agent,
        kind,
        due_by_us: without_planned.then(|| clock.now_us()),
        certificate: None,
    };
    let page = lifecycle.jobs(&filter, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, job_view)))
}

/// Shows a run.
#[utoipa::path(get, path = "/api/v1/jobs/{id}", operation_id = "getJob", params(("id" = Uuid, Path)),
    responses((status = 200, body = JobView)))]
async fn get_one(
    Component(lifecycle): Component<Lifecycle>,
    Path(id): Path<Uuid>,
) -> Result<Json<JobView>, Problem> {
    Ok(Json(job_view(lifecycle.job(JobId(id)).await?)))
}

/// Cancels a run. A run that an issuer is processing cannot be canceled.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/cancel", operation_id = "cancelJob", params(("id" = Uuid, Path)),
    responses((status = 204)))]
async fn cancel(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<StatusCode, Problem> {
    lifecycle.cancel_job(JobId(id), caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Starts a waiting run now, before its scheduled time or its next retry.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/retry", operation_id = "retryJob", params(("id" = Uuid, Path)),
    responses((status = 202, body = JobView)))]
async fn retry(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<(StatusCode, Json<JobView>), Problem> {
    lifecycle.retry_job(JobId(id), caller.actor()).await?;
    Ok((StatusCode::ACCEPTED, Json(job_view(lifecycle.job(JobId(id)).await?))))
}

/// Lists the events of a run, oldest first, as far as the audit log contains them.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/events", operation_id = "listJobEvents", params(("id" = Uuid, Path)),
    responses((status = 200, body = Listing<JobEventView>)))]
async fn events(
    Component(lifecycle): Component<Lifecycle>,
    Path(id): Path<Uuid>,
) -> Result<Json<Listing<JobEventView>>, Problem> {
    let rows = lifecycle.job_events(JobId(id)).await?;
    let view = |row: store::AuditRow| JobEventView {
        at: time::shown(row.at_us),
        action: row.action,
        actor: row.actor,
        details: serde_json::from_str(&row.details).unwrap_or_default(),
    };
    Ok(Json(Listing::whole(rows.into_iter().map(view).collect())))
}

/// Shows the state of the scheduler: open runs, due runs by issuer with their delay, and the holder of each lease.
#[utoipa::path(get, path = "/api/v1/scheduler", operation_id = "getScheduler",
    responses((status = 200, body = SchedulerView)))]
async fn scheduler(
    Component(lifecycle): Component<Lifecycle>,
    With(clock): With<Clock>,
) -> Result<Json<SchedulerView>, Problem> {
    let (status, now_us) = (lifecycle.scheduler_status().await?, clock.now_us());
    let late = |oldest_us: i64| now_us.saturating_sub(oldest_us).max(0) / 1_000_000;
    let due = status.due.into_iter().map(|due| DueView {
        issuer: due.issuer,
        count: due.count,
        late_seconds: due.oldest_us.map_or(0, late),
    });
    let leases = status.leases.into_iter().map(|lease| LeaseView {
        name: lease.name,
        holder: lease.holder,
        until: time::shown(lease.until_us),
    });
    Ok(Json(SchedulerView {
        running: status.running,
        awaiting_approval: status.awaiting_approval,
        awaiting_csr: status.awaiting_csr,
        due: due.collect(),
        counted_to: status.counted_to,
        leases: leases.collect(),
    }))
}
