//! The audit trail.

use axum::body::{Body, Bytes};
use axum::extract::State as With;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::Store;
use store::{AuditFilter, AuditRow, AuditVerification, Cursor, StoreError};
use tokio::sync::{Semaphore, SemaphorePermit};
use utoipa::{IntoParams, ToSchema};

use crate::access::Permission;
use crate::api::{Access, Api, routes};
use crate::extract::{Json, Query};
use crate::paging::{Listing, Paging, PagingParams};
use crate::problem::Problem;
use crate::time::{parsed, shown};

/// Exports and verifications at once: each reads the whole trail.
const WALKS_MAX: usize = 2;

/// Seconds after which to ask again for one.
const WALK_RETRY_SECONDS: u64 = 30;

/// Events an export reads at a time: some hundred KiB.
const EXPORT_PAGE: usize = 1_000;

static WALKS: Semaphore = Semaphore::const_new(WALKS_MAX);

pub(crate) fn routes() -> Api {
    Api::area("audit")
        .route(Permission::AuditRead, routes!(list))
        .route(Access::needs(Permission::AuditRead).streams(), routes!(export))
        .route(Access::needs(Permission::AuditVerify).streams(), routes!(verify))
}

/// Which events.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct AuditParams {
    /// Only of this actor: `token:ci`.
    actor: Option<String>,
    /// Only this action: `certificate.issue`.
    action: Option<String>,
    /// Only on this resource: `certificate/UUID`.
    resource: Option<String>,
    /// From this time on, RFC 3339.
    from: Option<String>,
    /// Before this time, RFC 3339.
    before: Option<String>,
}

impl AuditParams {
    fn filter(self) -> Result<AuditFilter, Problem> {
        Ok(AuditFilter {
            actor: self.actor,
            action: self.action,
            resource: self.resource,
            from_us: self.from.as_deref().map(parsed).transpose()?,
            before_us: self.before.as_deref().map(parsed).transpose()?,
        })
    }
}

/// Something that was done.
#[derive(Serialize, ToSchema)]
struct AuditView {
    /// When.
    at: String,
    /// Who.
    #[schema(example = "user:alice")]
    actor: String,
    /// What.
    #[schema(example = "certificate.revoke")]
    action: String,
    /// To what.
    resource: String,
    /// The rest.
    #[schema(value_type = Object)]
    details: Value,
    /// Its chain.
    shard: i64,
    /// Its place in the chain, from 1.
    sequence: i64,
    /// SHA-256 over the hash before it and its fields, in hexadecimal.
    hash: String,
}

impl AuditView {
    fn of(row: AuditRow) -> Self {
        Self {
            at: shown(row.at_us),
            actor: row.actor,
            action: row.action,
            resource: row.resource,
            details: serde_json::from_str(&row.details).unwrap_or(Value::String(row.details)),
            shard: row.shard,
            sequence: row.sequence,
            hash: row.hash.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }
}

/// What a walk over every chain found.
#[derive(Serialize, ToSchema)]
struct VerificationView {
    /// Whether every chain is whole.
    good: bool,
    /// Events whose hash was recomputed.
    events: u64,
    /// Chains walked.
    chains: u64,
    /// The first fault of each broken chain, in words.
    faults: Vec<String>,
    /// The end of each chain, `shard:sequence:hash`: kept elsewhere, it shows an end cut off.
    heads: Vec<String>,
}

impl From<AuditVerification> for VerificationView {
    fn from(found: AuditVerification) -> Self {
        Self {
            good: found.faults.is_empty(),
            events: found.events,
            chains: found.chains,
            faults: found.faults,
            heads: found.heads,
        }
    }
}

/// Lists what was done, newest first.
#[utoipa::path(get, path = "/api/v1/audit", operation_id = "listAudit", params(AuditParams, PagingParams),
    responses((status = 200, body = Listing<AuditView>)))]
async fn list(
    With(store): With<Store>,
    Query(params): Query<AuditParams>,
    paging: Paging,
) -> Result<Json<Listing<AuditView>>, Problem> {
    let page = store.audit_page(&params.filter()?, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(Listing::of(page, AuditView::of)))
}

/// Exports what was done, newest first, as a JSON object a line.
///
/// An export that breaks off ends without its last line end; begin again with `before`.
#[utoipa::path(get, path = "/api/v1/audit/export", operation_id = "exportAudit", params(AuditParams),
    responses((status = 200, body = String, content_type = "application/x-ndjson")))]
async fn export(With(store): With<Store>, Query(params): Query<AuditParams>) -> Result<Response, Problem> {
    let walk = Walk { store, filter: params.filter()?, next: Some(None), _permit: walk()? };
    let pages = stream::try_unfold(walk, |mut walk| async move {
        let Some(after) = walk.next.take() else { return Ok(None) };
        let page = walk.store.audit_page(&walk.filter, after.as_ref(), EXPORT_PAGE).await?;
        walk.next = page.next.map(Some);
        let mut lines = Vec::new();
        for row in page.rows {
            // A view always has JSON.
            let _ = serde_json::to_writer(&mut lines, &AuditView::of(row));
            lines.push(b'\n');
        }
        Ok::<_, StoreError>(Some((Bytes::from(lines), walk)))
    });
    let headers = [
        (CONTENT_TYPE, "application/x-ndjson"),
        (CONTENT_DISPOSITION, "attachment; filename=\"bulla-audit.ndjson\""),
    ];
    Ok((headers, Body::from_stream(pages)).into_response())
}

/// An export under way.
struct Walk {
    store: Store,
    filter: AuditFilter,
    /// The page after this cursor; `None` when there is none left.
    next: Option<Option<Cursor>>,
    _permit: SemaphorePermit<'static>,
}

fn walk() -> Result<SemaphorePermit<'static>, Problem> {
    let busy =
        |_| Problem::unavailable("the audit trail is being read as a whole already", WALK_RETRY_SECONDS);
    WALKS.try_acquire().map_err(busy)
}

/// Recomputes every hash of the trail.
#[utoipa::path(post, path = "/api/v1/audit/verify", operation_id = "verifyAudit",
    responses((status = 200, body = VerificationView)))]
async fn verify(With(store): With<Store>) -> Result<Json<VerificationView>, Problem> {
    let _permit = walk()?;
    Ok(Json(store.audit_verify().await?.into()))
}
