//! The audit trail.

use api::audit::{AuditQuery, AuditView, VerificationView};
use axum::body::{Body, Bytes};
use axum::extract::State as With;
use axum::response::{IntoResponse, Response};
use data_encoding::HEXLOWER;
use futures_util::stream;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use serde_json::Value;
use store::Store;
use store::{AuditFilter, AuditRow, AuditVerification, Cursor, StoreError};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::access::Permission;
use crate::extract::{Json, Query};
use crate::paging::{Listing, PageQuery, Paging, listing};
use crate::problem::Problem;
use crate::routing::{Access, Api, routes};
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

fn filter(query: AuditQuery) -> Result<AuditFilter, Problem> {
    Ok(AuditFilter {
        actor: query.actor,
        action: query.action,
        resource: query.resource,
        from_us: query.from.as_deref().map(parsed).transpose()?,
        before_us: query.before.as_deref().map(parsed).transpose()?,
    })
}

fn audit_view(row: AuditRow) -> AuditView {
    AuditView {
        at: shown(row.at_us),
        actor: row.actor,
        action: row.action,
        resource: row.resource,
        details: serde_json::from_str(&row.details).unwrap_or(Value::String(row.details)),
        shard: row.shard,
        sequence: row.sequence,
        hash: HEXLOWER.encode(&row.hash),
    }
}

fn verification_view(found: AuditVerification) -> VerificationView {
    VerificationView {
        good: found.faults.is_empty(),
        events: found.events,
        chains: found.chains,
        faults: found.faults,
        heads: found.heads,
    }
}

/// Lists what was done, newest first.
#[utoipa::path(get, path = "/api/v1/audit", operation_id = "listAudit", params(AuditQuery, PageQuery),
    responses((status = 200, body = Listing<AuditView>)))]
async fn list(
    With(store): With<Store>,
    Query(params): Query<AuditQuery>,
    paging: Paging,
) -> Result<Json<Listing<AuditView>>, Problem> {
    let page = store.audit_page(&filter(params)?, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, audit_view)))
}

/// Exports what was done, newest first, as a JSON object a line.
///
/// An export that breaks off ends without its last line end; begin again with `before`.
#[utoipa::path(get, path = "/api/v1/audit/export", operation_id = "exportAudit", params(AuditQuery),
    responses((status = 200, body = String, content_type = "application/x-ndjson")))]
async fn export(With(store): With<Store>, Query(params): Query<AuditQuery>) -> Result<Response, Problem> {
    let walk = Walk { store, filter: filter(params)?, next: Some(None), _permit: walk()? };
    let pages = stream::try_unfold(walk, |mut walk| async move {
        let Some(after) = walk.next.take() else { return Ok(None) };
        let page = walk.store.audit_page(&walk.filter, after.as_ref(), EXPORT_PAGE).await?;
        walk.next = page.next.map(Some);
        let mut lines = Vec::new();
        for row in page.rows {
            // A view always has JSON.
            let _ = serde_json::to_writer(&mut lines, &audit_view(row));
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
    Ok(Json(verification_view(store.audit_verify().await?)))
}
