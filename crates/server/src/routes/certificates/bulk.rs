//! Bulk operations on certificates.

use agent::Agents;
use api::certificates::{
    BatchBody, BatchItem, BatchView, BulkView, NewCertificateBody, ReassignMany, RefusedView, RenewMany,
    RevokeBody, RevokeMany, SelectionBody,
};
use axum::extract::State as With;
use lifecycle::{BulkReport, Lifecycle, Reassign, Selection};

use super::body::new_certificate;
use super::filter::managed_filter;
use super::revocation::revoke_request;
use super::scope::may_create;
use super::view::created_view;
use crate::access::{Caller, Permission};
use crate::extract::Json;
use crate::problem::Problem;
use crate::routing::{Access, Api, routes};
use crate::state::Component;

/// Maximum certificates in one batch.
const BATCH_MAX: usize = 1_000;
/// Maximum bytes of a batch's body: a few kilobytes for each certificate.
const BATCH_BYTES_MAX: usize = 8 << 20;

pub(super) fn routes() -> Api {
    Api::area("certificates")
        .route(
            Access::needs(Permission::CertificateRequest).scoped().body_max(BATCH_BYTES_MAX),
            routes!(create_batch),
        )
        .route(Permission::CertificateRenew, routes!(renew))
        .route(Permission::CertificateRevoke, routes!(revoke))
        .route(Permission::CertificateManage, routes!(reassign))
}

fn selection(body: SelectionBody) -> Result<Selection, Problem> {
    match (body.ids, body.filter) {
        (Some(ids), None) => Ok(Selection::Ids(ids)),
        (None, Some(filter)) => Ok(Selection::Filter(managed_filter(filter, None)?)),
        _ => Err(Problem::unprocessable("a selection must have either ids or a filter")),
    }
}

fn bulk_view(report: BulkReport) -> BulkView {
    let refused = |(id, reason)| RefusedView { id, reason };
    BulkView {
        matched: report.matched,
        done: report.done,
        already: report.already,
        refused: report.refused,
        missing: report.missing,
        reasons: report.reasons.into_iter().map(refused).collect(),
    }
}

/// Creates many managed certificates, with a result for each.
#[utoipa::path(post, path = "/api/v1/certificates/batch", operation_id = "createCertificates", request_body = BatchBody,
    responses((status = 200, body = BatchView)))]
async fn create_batch(
    Component(lifecycle): Component<Lifecycle>,
    With(agents): With<Option<Agents>>,
    caller: Caller,
    Json(body): Json<BatchBody>,
) -> Result<Json<BatchView>, Problem> {
    if body.certificates.is_empty() || body.certificates.len() > BATCH_MAX {
        return Err(Problem::unprocessable(format_args!("a batch must have 1 to {BATCH_MAX} certificates")));
    }
    // Marks the permission as checked by the handler: each certificate is checked below.
    let _ = caller.reach(Permission::CertificateRequest);
    let one = |body: NewCertificateBody| {
        let (lifecycle, caller, agents) = (lifecycle.clone(), caller.clone(), agents.clone());
        async move {
            let new = new_certificate(body)?;
            may_create((lifecycle.store(), agents.as_ref()), &caller, &new).await?;
            Ok::<_, Problem>(lifecycle.create(new, caller.actor()).await?)
        }
    };
    let outcomes = futures_util::future::join_all(body.certificates.into_iter().map(one)).await;
    let items = outcomes.into_iter().map(|outcome| match outcome {
        Ok(created) => BatchItem { created: Some(created_view(created)), problem: None },
        Err(problem) => BatchItem { created: None, problem: Some(problem.document()) },
    });
    Ok(Json(BatchView { items: items.collect() }))
}

/// Renews many certificates now.
#[utoipa::path(post, path = "/api/v1/certificates/renew", operation_id = "renewCertificates", request_body = RenewMany,
    responses((status = 200, body = BulkView)))]
async fn renew(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Json(body): Json<RenewMany>,
) -> Result<Json<BulkView>, Problem> {
    let reason = body.reason.as_deref().unwrap_or("requested");
    let selection = selection(body.select)?;
    if body.limit == Some(0) {
        return Err(Problem::unprocessable("limit is 0: give at least 1, or leave it out to renew all"));
    }
    let report = lifecycle.renew_up_to(body.limit, &selection, reason, caller.actor()).await?;
    Ok(Json(bulk_view(report)))
}

/// Revokes many certificates. A revocation that the issuer does not complete immediately is counted as in progress and retried.
#[utoipa::path(post, path = "/api/v1/certificates/revoke", operation_id = "revokeCertificates",
    request_body = RevokeMany, responses((status = 200, body = BulkView)))]
async fn revoke(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Json(body): Json<RevokeMany>,
) -> Result<Json<BulkView>, Problem> {
    let request = revoke_request(&RevokeBody { reason: body.reason, replace: body.replace })?;
    let selection = selection(body.select)?;
    let report = lifecycle.revoke(&selection, request, caller.actor()).await?;
    Ok(Json(bulk_view(report)))
}

/// Changes the owner, team, environment, policy or tags of many certificates.
#[utoipa::path(post, path = "/api/v1/certificates/reassign", operation_id = "reassignCertificates",
    request_body = ReassignMany, responses((status = 200, body = BulkView)))]
async fn reassign(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Json(body): Json<ReassignMany>,
) -> Result<Json<BulkView>, Problem> {
    let selection = selection(body.select)?;
    let to = Reassign {
        owner: body.owner,
        team: body.team,
        environment: body.environment,
        policy: body.policy,
        tags_set: body.tags_set,
        tags_unset: body.tags_unset,
    };
    let report = lifecycle.reassign(&selection, to, caller.actor()).await?;
    Ok(Json(bulk_view(report)))
}
