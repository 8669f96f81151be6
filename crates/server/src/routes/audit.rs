//! Endpoints of the audit log: listing, export, verification, signed heads and sealed segments.

use std::collections::BTreeMap;

use api::audit::{
    AuditKeyView, AuditQuery, AuditView, HeadsQuery, InclusionProof, ProofQuery, SegmentView, SignedHead,
    VerificationView,
};
use audit::tables::{SegmentRow, Segments};
use audit::{AuditError, AuditLog, Verified};
use audit_proof::{head, segment};
use axum::body::{Body, Bytes};
use axum::extract::State as With;
use axum::response::{IntoResponse, Response};
use data_encoding::HEXLOWER;
use futures_util::stream;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use serde_json::Value;
use store::Store;
use store::{AuditFilter, AuditRow, Cursor, StoreError};
use tokio::sync::{Semaphore, SemaphorePermit};
use x509::Fingerprint;

use crate::access::Permission;
use crate::extract::{Json, Path, Query};
use crate::paging::{Listing, PageQuery, Paging, listing, try_listing};
use crate::problem::Problem;
use crate::routing::{Access, Api, routes};
use crate::state::{Component, State};
use crate::time::{maybe_shown, parsed, shown};

/// Maximum concurrent exports and verifications: each reads the whole log.
const WALKS_MAX: usize = 2;

/// `Retry-After` in seconds when too many exports and verifications are running.
const WALK_RETRY_SECONDS: u64 = 30;

/// `Retry-After` in seconds when other nodes sign a head at the same time.
const CROWDED_RETRY_SECONDS: u64 = 1;

/// Maximum events that an export reads at a time: a few hundred KiB.
const EXPORT_PAGE: usize = 1_000;

static WALKS: Semaphore = Semaphore::const_new(WALKS_MAX);

pub(crate) fn routes() -> Api {
    Api::area("audit")
        .route(Permission::AuditRead, routes!(list))
        .route(Access::needs(Permission::AuditRead).streams(), routes!(export))
        .route(Access::needs(Permission::AuditVerify).streams(), routes!(verify))
        .route(Permission::AuditVerify, routes!(sign_head))
        .route(Access::needs(Permission::AuditRead).streams(), routes!(heads))
        .route(Permission::AuditRead, routes!(key))
        .route(Permission::AuditRead, routes!(segments))
        .route(Access::needs(Permission::AuditRead).streams(), routes!(lines))
        .route(Permission::AuditRead, routes!(proof))
}

impl From<AuditError> for Problem {
    fn from(error: AuditError) -> Self {
        match error {
            AuditError::Store(error) => error.into(),
            AuditError::NoSegment(_) | AuditError::NoLine { .. } => Self::missing(error),
            AuditError::Pruned(_) => Self::conflict(error),
            AuditError::Crowded => Self::unavailable(error, CROWDED_RETRY_SECONDS),
            AuditError::Key(_)
            | AuditError::Sign(_)
            | AuditError::Sealed { .. }
            | AuditError::Encryption
            | AuditError::Damaged(_)
            | AuditError::Segment(_) => Self::internal(error),
        }
    }
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

fn verification_view(found: Verified) -> VerificationView {
    let mut notes = Vec::new();
    if found.opened < found.segments {
        let pruned = found.segments - found.opened;
        notes.push(format!("{pruned} segments are pruned: only their heads were checked"));
    }
    VerificationView {
        good: found.chains.faults.is_empty(),
        events: found.chains.events,
        chains: found.chains.chains,
        faults: found.chains.faults,
        heads: found.chains.heads,
        segments: found.segments,
        signed_heads: found.signed_heads,
        notes,
    }
}

fn segment_view(row: SegmentRow) -> Result<SegmentView, Problem> {
    let head = serde_json::from_str(&row.head).map_err(Problem::internal)?;
    Ok(SegmentView { head, bytes: row.bytes, pruned_at: maybe_shown(row.pruned_at_us) })
}

/// Lists audit events, newest first.
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

/// Exports the audit log, newest event first, one JSON object per line. Without a filter the sealed segments follow: the head of
/// each, then its lines.
///
/// The last line of an interrupted export is incomplete; continue with `before`.
#[utoipa::path(get, path = "/api/v1/audit/export", operation_id = "exportAudit", params(AuditQuery),
    responses((status = 200, body = String, content_type = "application/x-ndjson")))]
async fn export(With(state): With<State>, Query(params): Query<AuditQuery>) -> Result<Response, Problem> {
    let store = state.store().clone();
    let is_whole = [&params.actor, &params.action, &params.resource, &params.from, &params.before]
        .iter()
        .all(|condition| condition.is_none());
    let log = state.components().audit.clone().filter(|_| is_whole);
    let sealed = match &log {
        Some(_) => last_sealed_positions(&store).await?,
        None => BTreeMap::new(),
    };
    let walk =
        Walk { store, filter: filter(params)?, sealed, log, next: Next::Events(None), _permit: walk()? };
    let pages = stream::try_unfold(walk, |mut walk| async move {
        Ok::<_, AuditError>(walk.page().await?.map(|lines| (lines, walk)))
    });
    Ok(ndjson_download(Body::from_stream(pages), "bulla-audit.ndjson"))
}

/// Returns the position of the last sealed event of each chain.
async fn last_sealed_positions(store: &Store) -> Result<BTreeMap<i64, i64>, StoreError> {
    let mut ends = BTreeMap::new();
    for head in store.audit_heads().await? {
        ends.insert(head.shard, Segments::of(store).end(head.shard).await?.0);
    }
    Ok(ends)
}

fn ndjson_download(body: Body, name: &str) -> Response {
    let attachment = format!("attachment; filename=\"{name}\"");
    let headers = [(CONTENT_TYPE, "application/x-ndjson".to_owned()), (CONTENT_DISPOSITION, attachment)];
    (headers, body).into_response()
}

/// An export in progress.
struct Walk {
    store: Store,
    filter: AuditFilter,
    /// Events up to these positions are exported with their segments.
    sealed: BTreeMap<i64, i64>,
    /// The log, if segments are exported too.
    log: Option<AuditLog>,
    next: Next,
    _permit: SemaphorePermit<'static>,
}

/// The next part of an export.
enum Next {
    /// The page of events after this cursor.
    Events(Option<Cursor>),
    /// The segment after this number.
    Segment(i64),
    /// The export is complete.
    End,
}

impl Walk {
    async fn page(&mut self) -> Result<Option<Bytes>, AuditError> {
        match std::mem::replace(&mut self.next, Next::End) {
            Next::Events(after) => {
                let page = self.store.audit_page(&self.filter, after.as_ref(), EXPORT_PAGE).await?;
                self.next = match (page.next, &self.log) {
                    (Some(cursor), _) => Next::Events(Some(cursor)),
                    (None, Some(_)) => Next::Segment(0),
                    (None, None) => Next::End,
                };
                let mut lines = Vec::new();
                let is_sealed =
                    |row: &AuditRow| self.sealed.get(&row.shard).is_some_and(|end| row.sequence <= *end);
                for row in page.rows.into_iter().filter(|row| !is_sealed(row)) {
                    // Serializing a view to JSON cannot fail.
                    let _ = serde_json::to_writer(&mut lines, &audit_view(row));
                    lines.push(b'\n');
                }
                Ok(Some(Bytes::from(lines)))
            }
            Next::Segment(after) => {
                let Some(log) = &self.log else { return Ok(None) };
                let Some(row) = Segments::of(&self.store).after(after, 1).await?.into_iter().next() else {
                    return Ok(None);
                };
                self.next = Next::Segment(row.number);
                let mut text = format!("{}\n", row.head);
                match log.segment(row.number.unsigned_abs()).await {
                    Ok((_, lines)) => text.push_str(&lines),
                    Err(AuditError::Pruned(_)) => {}
                    Err(error) => return Err(error),
                }
                Ok(Some(Bytes::from(text)))
            }
            Next::End => Ok(None),
        }
    }
}

fn walk() -> Result<SemaphorePermit<'static>, Problem> {
    let busy =
        |_| Problem::unavailable("another full read of the audit log is in progress", WALK_RETRY_SECONDS);
    WALKS.try_acquire().map_err(busy)
}

/// Verifies the audit log: recomputes every hash, decrypts every segment, checks every signed head, and compares them.
#[utoipa::path(post, path = "/api/v1/audit/verify", operation_id = "verifyAudit",
    responses((status = 200, body = VerificationView)))]
async fn verify(With(state): With<State>) -> Result<Json<VerificationView>, Problem> {
    let _permit = walk()?;
    let found = match &state.components().audit {
        Some(log) => log.verify().await?,
        None => Verified { chains: state.store().audit_verify().await?, ..Verified::default() },
    };
    Ok(Json(verification_view(found)))
}

/// Signs the current heads of all hash chains with the audit key. Store the response where the administrators of the database
/// cannot write.
#[utoipa::path(post, path = "/api/v1/audit/heads", operation_id = "signAuditHead",
    responses((status = 200, body = SignedHead)))]
async fn sign_head(Component(log): Component<AuditLog>) -> Result<Json<SignedHead>, Problem> {
    Ok(Json(log.sign().await?))
}

/// Exports the signed heads, oldest first, one JSON object per line.
#[utoipa::path(get, path = "/api/v1/audit/heads", operation_id = "listAuditHeads", params(HeadsQuery),
    responses((status = 200, body = String, content_type = "application/x-ndjson")))]
async fn heads(
    Component(log): Component<AuditLog>,
    Query(params): Query<HeadsQuery>,
) -> Result<Response, Problem> {
    let first = (log, params.after.unwrap_or(0));
    let pages = stream::try_unfold(first, |(log, after)| async move {
        let heads = log.heads_after(after).await?;
        let Some(last) = heads.last().map(|head| head.sequence) else { return Ok(None) };
        let lines: String = heads.iter().map(|signed| head::line(signed) + "\n").collect();
        Ok::<_, AuditError>(Some((Bytes::from(lines), (log, last))))
    });
    Ok(ndjson_download(Body::from_stream(pages), "bulla-audit-heads.ndjson"))
}

/// Returns the public key that signs heads.
#[utoipa::path(get, path = "/api/v1/audit/key", operation_id = "getAuditKey",
    responses((status = 200, body = AuditKeyView)))]
async fn key(Component(log): Component<AuditLog>) -> Result<Json<AuditKeyView>, Problem> {
    let (server, spki) = log.public_key().await?;
    Ok(Json(AuditKeyView {
        server: server.to_string(),
        sha256: Fingerprint::of(&spki).to_string(),
        public_key_pem: x509::pem::encode("PUBLIC KEY", &spki),
    }))
}

/// Lists the sealed segments, oldest first.
#[utoipa::path(get, path = "/api/v1/audit/segments", operation_id = "listAuditSegments", params(PageQuery),
    responses((status = 200, body = Listing<SegmentView>)))]
async fn segments(With(store): With<Store>, paging: Paging) -> Result<Json<Listing<SegmentView>>, Problem> {
    let page = Segments::of(&store).page(paging.after.as_ref(), paging.limit).await?;
    Ok(Json(try_listing(page, segment_view)?))
}

/// Exports a segment as JSON lines: its head, then its lines.
#[utoipa::path(get, path = "/api/v1/audit/segments/{number}", operation_id = "getAuditSegment",
    params(("number" = u64, Path)), responses((status = 200, body = String, content_type = "application/x-ndjson")))]
async fn lines(Component(log): Component<AuditLog>, Path(number): Path<u64>) -> Result<Response, Problem> {
    let _permit = walk()?;
    let (head, text) = log.segment(number).await?;
    let body = format!("{}\n{text}", segment::line(&head));
    Ok(ndjson_download(Body::from(body), &format!("bulla-audit-segment-{number}.ndjson")))
}

/// Returns a proof that a line is in a segment, and that the segment is in the log.
#[utoipa::path(get, path = "/api/v1/audit/segments/{number}/proof", operation_id = "proveAuditLine",
    params(("number" = u64, Path), ProofQuery), responses((status = 200, body = InclusionProof)))]
async fn proof(
    Component(log): Component<AuditLog>,
    Path(number): Path<u64>,
    Query(params): Query<ProofQuery>,
) -> Result<Json<InclusionProof>, Problem> {
    let _permit = walk()?;
    Ok(Json(log.prove(number, params.line).await?))
}
