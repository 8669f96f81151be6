//! Liveness, readiness and metrics.

use api::health::{Health, SandboxView};
use authority::Authority;
use axum::extract::State as With;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use store::{Store, StoreError};

use crate::access::Permission;
use crate::extract::Json;
use crate::metrics;
use crate::metrics::Metrics;
use crate::problem::Problem;
use crate::routing::{Access, Api, routes};

/// `Retry-After` in seconds while the signer is unavailable.
const SIGNER_RETRY_SECONDS: u64 = 5;

pub(crate) fn routes() -> Api {
    Api::area("server")
        .route(Access::open().foreign_query(), routes!(healthz))
        .route(Access::open().foreign_query(), routes!(readyz))
        .route(Access::needs(Permission::MetricsRead).foreign_query(), routes!(scrape))
}

/// Reports that the process is alive.
///
/// The check has no dependencies, so that an unavailable database does not cause a restart of the server.
#[utoipa::path(get, path = "/healthz", operation_id = "healthz", responses((status = 200, body = Health)))]
async fn healthz() -> Json<Health> {
    Json(Health { status: "ok".to_owned(), sandbox: None })
}

/// Reports whether the server is ready: the database responds, its disk has space, and the signer process responds if it holds the
/// CA keys. 503 with the kind `disk-full` names the disk.
#[utoipa::path(get, path = "/readyz", operation_id = "readyz", responses((status = 200, body = Health)))]
async fn readyz(
    With(store): With<Store>,
    With(authority): With<Option<Authority>>,
) -> Result<Json<Health>, Problem> {
    store.outbox_position("readiness").await?;
    match store.check_space().await {
        Err(error @ StoreError::Full { .. }) => {
            return Err(Problem::disk_full(StatusCode::SERVICE_UNAVAILABLE, &error));
        }
        other => other?,
    }
    if let Some(authority) = authority {
        authority.ca_keys().ready().await.map_err(|error| {
            tracing::warn!(%error, "the signer is not ready");
            Problem::unavailable(
                "the signer cannot be reached: no certificate can be issued",
                SIGNER_RETRY_SECONDS,
            )
        })?;
    }
    Ok(Json(Health { status: "ok".to_owned(), sandbox: sandbox::report().map(sandbox_view) }))
}

fn sandbox_view(report: &sandbox::Report) -> SandboxView {
    SandboxView {
        capabilities: report.capabilities.to_string(),
        no_new_privileges: report.no_new_privileges.to_string(),
        seccomp: report.system_calls.to_string(),
        landlock: report.files.to_string(),
    }
}

/// Returns the metrics in the OpenMetrics text format.
#[utoipa::path(get, path = "/metrics", operation_id = "metrics",
    responses((status = 200, body = String, content_type = "application/openmetrics-text")))]
async fn scrape(With(metrics): With<Metrics>) -> Response {
    ([(CONTENT_TYPE, metrics::MEDIA_TYPE)], metrics.encode()).into_response()
}
