//! Runs of issuance, renewal, deployment and revocation.

use axum::extract::State as With;
use http::StatusCode;
use lifecycle::Lifecycle;
use lifecycle::job::{Job, JobId, JobKind, JobState};
use serde::{Deserialize, Serialize};
use store::Clock;
use store::jobs::JobFilter;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::access::{Caller, Permission};
use crate::api::{Api, routes};
use crate::extract::{Json, Path, Query};
use crate::paging::{Listing, Paging, PagingParams};
use crate::problem::Problem;
use crate::state::Component;
use crate::time;

pub(crate) fn routes() -> Api {
    Api::area("jobs")
        .route(Permission::JobRead, routes!(list))
        .route(Permission::JobRead, routes!(get_one))
        .route(Permission::JobManage, routes!(cancel))
        .route(Permission::JobManage, routes!(retry))
}

/// A run.
#[derive(Serialize, ToSchema)]
#[schema(as = Job)]
pub(crate) struct JobView {
    /// Its identity.
    id: Uuid,
    /// The certificate.
    certificate: Uuid,
    /// The certificate's name.
    name: String,
    /// `issuance`, `renewal`, `deployment` or `revocation`.
    kind: &'static str,
    /// `planned`, `queued`, `running`, `awaiting_approval`, `awaiting_csr`, `done`, `failed` or `cancelled`.
    state: &'static str,
    /// The issuer asked.
    issuer: String,
    /// The agent that takes part.
    agent: Option<Uuid>,
    /// Why there is such a run.
    reason: String,
    /// Who wanted it.
    requested_by: String,
    /// How often it was tried.
    attempts: u32,
    /// When it begins, or tries again, RFC 3339.
    next_attempt_at: String,
    /// What the last try said.
    last_error: Option<String>,
    /// When it was made, RFC 3339.
    created_at: String,
    /// When it was first tried, RFC 3339.
    started_at: Option<String>,
    /// When it ended, RFC 3339.
    finished_at: Option<String>,
}

impl JobView {
    pub(crate) fn of(job: Job) -> Self {
        Self {
            id: job.id.0,
            certificate: job.certificate,
            name: job.name,
            kind: job.kind.as_str(),
            state: if job.planned { "planned" } else { job.state.as_str() },
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
}

/// Which runs to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct JobParams {
    /// In this state: `planned` (queued for a time to come), `queued`, `running`, `awaiting_approval`, `awaiting_csr`,
    /// `done`, `failed` or `cancelled`.
    state: Option<String>,
    /// Of this kind: `issuance`, `renewal`, `deployment` or `revocation`.
    kind: Option<String>,
    /// Open ones of this agent.
    agent: Option<Uuid>,
    /// Whether queued runs whose time is to come are listed; true when absent.
    planned: Option<bool>,
}

/// Lists runs, the newest first.
#[utoipa::path(get, path = "/api/v1/jobs", operation_id = "listJobs", params(PagingParams, JobParams),
    responses((status = 200, body = Listing<JobView>)))]
async fn list(
    Component(lifecycle): Component<Lifecycle>,
    With(clock): With<Clock>,
    paging: Paging,
    Query(params): Query<JobParams>,
) -> Result<Json<Listing<JobView>>, Problem> {
    let wanted = match params.state.as_deref() {
        None => None,
        Some("planned") => Some(JobState::Queued),
        Some(word) => Some(word.parse::<JobState>().map_err(Problem::bad_request)?),
    };
    let kind = params.kind.as_deref().map(str::parse::<JobKind>).transpose().map_err(Problem::bad_request)?;
    let without_planned = params.planned == Some(false) && params.state.as_deref() != Some("planned");
    let filter = JobFilter {
        state: wanted.map(JobState::code),
        agent: params.agent,
        kind: kind.map(JobKind::code),
        due_by_us: without_planned.then(|| clock.now_us()),
        certificate: None,
    };
    let page = lifecycle.jobs(&filter, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(Listing::of(page, JobView::of)))
}

/// Shows a run.
#[utoipa::path(get, path = "/api/v1/jobs/{id}", operation_id = "getJob", params(("id" = Uuid, Path)),
    responses((status = 200, body = JobView)))]
async fn get_one(
    Component(lifecycle): Component<Lifecycle>,
    Path(id): Path<Uuid>,
) -> Result<Json<JobView>, Problem> {
    Ok(Json(JobView::of(lifecycle.job(JobId(id)).await?)))
}

/// Takes a run back. One that an issuer is at cannot be.
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

/// Lets a run that waits for its time, or for another try, begin now.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/retry", operation_id = "retryJob", params(("id" = Uuid, Path)),
    responses((status = 202, body = JobView)))]
async fn retry(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<(StatusCode, Json<JobView>), Problem> {
    lifecycle.retry_job(JobId(id), caller.actor()).await?;
    Ok((StatusCode::ACCEPTED, Json(JobView::of(lifecycle.job(JobId(id)).await?))))
}
