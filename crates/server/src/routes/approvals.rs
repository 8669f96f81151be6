//! The second person.

use lifecycle::Lifecycle;
use lifecycle::approval::{Approval, ApprovalState};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::access::{Caller, Permission, Scope};
use crate::api::{Access, Api, routes};
use crate::extract::{Json, Path, Query};
use crate::paging::{Listing, Paging, PagingParams};
use crate::problem::Problem;
use crate::state::Component;
use crate::time;

pub(crate) fn routes() -> Api {
    let decide = || Access::needs(Permission::ApprovalDecide).scoped();
    Api::area("approvals")
        .route(Permission::ApprovalRead, routes!(list))
        .route(Access::needs(Permission::ApprovalRead).scoped(), routes!(get_one))
        .route(decide(), routes!(approve))
        .route(decide(), routes!(reject))
}

/// Consent asked for.
#[derive(Serialize, ToSchema)]
#[schema(as = Approval)]
struct ApprovalView {
    /// Its identity.
    id: Uuid,
    /// The certificate.
    certificate: Uuid,
    /// The certificate's name.
    name: String,
    /// The certificate's profile.
    profile: String,
    /// The run.
    job: Uuid,
    /// `open`, `approved`, `rejected`, `expired` or `withdrawn`.
    state: &'static str,
    /// Why consent is needed.
    reason: String,
    /// Who wants the run.
    requested_by: String,
    /// When it was asked for, RFC 3339.
    requested_at: String,
    /// When it lapses, RFC 3339.
    expires_at: String,
    /// Who decided.
    decided_by: Option<String>,
    /// When, RFC 3339.
    decided_at: Option<String>,
    /// What they said.
    note: Option<String>,
}

impl ApprovalView {
    fn of(approval: Approval) -> Self {
        Self {
            id: approval.id,
            certificate: approval.certificate,
            name: approval.name,
            profile: approval.profile,
            job: approval.job.0,
            state: approval.state.as_str(),
            reason: approval.reason,
            requested_by: approval.requested_by,
            requested_at: time::shown(approval.requested_at_us),
            expires_at: time::shown(approval.expires_at_us),
            decided_by: approval.decided_by,
            decided_at: time::maybe_shown(approval.decided_at_us),
            note: approval.note,
        }
    }
}

/// Which approvals to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ApprovalParams {
    /// `open` (also when absent), `approved`, `rejected`, `expired` or `withdrawn`.
    state: Option<String>,
}

/// Lists approvals, the newest first.
#[utoipa::path(get, path = "/api/v1/approvals", operation_id = "listApprovals", params(PagingParams, ApprovalParams),
    responses((status = 200, body = Listing<ApprovalView>)))]
async fn list(
    Component(lifecycle): Component<Lifecycle>,
    paging: Paging,
    Query(params): Query<ApprovalParams>,
) -> Result<Json<Listing<ApprovalView>>, Problem> {
    let word = params.state.as_deref().unwrap_or(ApprovalState::Open.as_str());
    let wanted = ApprovalState::ALL.into_iter().find(|one| one.as_str() == word);
    let wanted =
        wanted.ok_or_else(|| Problem::bad_request(format_args!("{word:?} is no state of an approval")))?;
    let page = lifecycle.approvals(wanted, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(Listing::of(page, ApprovalView::of)))
}

async fn permitted(
    lifecycle: &Lifecycle,
    caller: &Caller,
    permission: Permission,
    id: Uuid,
) -> Result<Approval, Problem> {
    // Asked first, so that nothing is learnt from the difference between 403 and 404.
    let _ = caller.reach(permission);
    let approval = lifecycle.approval(id).await?;
    caller.may(permission, &[Scope::profile(approval.profile.clone())])?;
    Ok(approval)
}

/// Shows an approval.
#[utoipa::path(get, path = "/api/v1/approvals/{id}", operation_id = "getApproval", params(("id" = Uuid, Path)),
    responses((status = 200, body = ApprovalView)))]
async fn get_one(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<Json<ApprovalView>, Problem> {
    let approval = permitted(&lifecycle, &caller, Permission::ApprovalRead, id).await?;
    Ok(Json(ApprovalView::of(approval)))
}

/// A decision.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
struct DecisionBody {
    /// What you say about it.
    #[schema(max_length = 2000)]
    note: Option<String>,
}

/// Gives consent: the run begins. Whoever asked for the run cannot.
#[utoipa::path(post, path = "/api/v1/approvals/{id}/approve", operation_id = "approve", params(("id" = Uuid, Path)),
    request_body = DecisionBody, responses((status = 200, body = ApprovalView)))]
async fn approve(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Path(id): Path<Uuid>,
    Json(body): Json<DecisionBody>,
) -> Result<Json<ApprovalView>, Problem> {
    permitted(&lifecycle, &caller, Permission::ApprovalDecide, id).await?;
    lifecycle.approve(id, body.note.as_deref(), caller.actor()).await?;
    Ok(Json(ApprovalView::of(lifecycle.approval(id).await?)))
}

/// Refuses consent: the run is over.
#[utoipa::path(post, path = "/api/v1/approvals/{id}/reject", operation_id = "reject", params(("id" = Uuid, Path)),
    request_body = DecisionBody, responses((status = 200, body = ApprovalView)))]
async fn reject(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Path(id): Path<Uuid>,
    Json(body): Json<DecisionBody>,
) -> Result<Json<ApprovalView>, Problem> {
    permitted(&lifecycle, &caller, Permission::ApprovalDecide, id).await?;
    lifecycle.reject(id, body.note.as_deref(), caller.actor()).await?;
    Ok(Json(ApprovalView::of(lifecycle.approval(id).await?)))
}
