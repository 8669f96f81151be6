//! Enrolments over EST and SCEP that wait for approval.

use api::enrolments::{DecisionBody, EnrolmentStatus, EnrolmentView};
use api::security_keys::{PlanToSign, SecurityKeyCeremony};
use authority::Authority;
use authority::enrolment::{DecideError, Decision};
use authority::plan::IssuancePlan;
use authority::tables::{EnrolmentRow, EnrolmentState};
use axum::extract::State as With;
use axum::response::Response;
use http::request::Parts;
use serde::Deserialize;
use store::Cursor;
use utoipa::IntoParams;
use uuid::Uuid;
use x509::Fingerprint;
use x509::csr::CertificateRequest;

use crate::access::{AccessControl, Caller, Object, Permission, Reach};
use crate::extract::{Json, Path, Query};
use crate::paging::{Listing, PageQuery, Paging, listing};
use crate::problem::Problem;
use crate::routes::approvals::plan_field_view;
use crate::routes::plan_signature;
use crate::routing::{Access, Api, routes};
use crate::state::{Component, State};
use crate::time;

pub(crate) fn routes() -> Api {
    Api::area("enrolments")
        .route(Access::needs(Permission::ApprovalRead).scoped(), routes!(list))
        .route(Access::needs(Permission::ApprovalRead).scoped(), routes!(get_one))
        .route(Access::needs(Permission::ApprovalDecide).scoped(), routes!(approve))
        .route(Access::needs(Permission::ApprovalDecide).scoped(), routes!(begin_signature))
        .route(Access::needs(Permission::ApprovalDecide).scoped(), routes!(reject))
}

fn enrolment_state(state: EnrolmentStatus) -> EnrolmentState {
    match state {
        EnrolmentStatus::Open => EnrolmentState::Open,
        EnrolmentStatus::Approved => EnrolmentState::Approved,
        EnrolmentStatus::Rejected => EnrolmentState::Rejected,
    }
}

fn enrolment_status(state: EnrolmentState) -> EnrolmentStatus {
    match state {
        EnrolmentState::Open => EnrolmentStatus::Open,
        EnrolmentState::Approved => EnrolmentStatus::Approved,
        EnrolmentState::Rejected => EnrolmentStatus::Rejected,
    }
}

fn enrolment_view(row: EnrolmentRow) -> EnrolmentView {
    let plan: Option<IssuancePlan> = row.plan.as_deref().and_then(|text| serde_json::from_str(text).ok());
    EnrolmentView {
        id: row.id,
        protocol: row.protocol.to_string(),
        profile: row.profile,
        requester: row.requester,
        asks: row.summary,
        state: enrolment_status(row.state),
        requested_at: time::shown(row.requested_at_us),
        expires_at: time::shown(row.expires_at_us),
        decided_by: row.decided_by,
        decided_at: time::maybe_shown(row.decided_at_us),
        note: row.note,
        plan: plan.iter().flat_map(IssuancePlan::fields).map(plan_field_view).collect(),
        plan_sha256: row.plan_sha256.map(|hash| Fingerprint::from_bytes(hash).to_string()),
        approvals_given: row.given,
        approvals_needed: row.needed,
        approvers: Vec::new(),
        signatures: Vec::new(),
    }
}

/// Query parameters that filter the enrolments by state.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Filter {
    /// State of the enrolments; default `open`.
    #[serde(default)]
    state: EnrolmentStatus,
}

impl From<DecideError> for Problem {
    fn from(error: DecideError) -> Self {
        match error {
            DecideError::Unknown(id) => Self::not_found(format_args!("pending enrolment {id}")),
            DecideError::OwnRequest(_) => Self::forbidden(error),
            DecideError::PlanChanged | DecideError::OtherPlan | DecideError::Repeated { .. } => {
                Self::conflict(error)
            }
            DecideError::Note => Self::unprocessable(error),
            DecideError::Store(error) => error.into(),
        }
    }
}

/// Lists enrolments over EST and SCEP in a state, oldest first.
#[utoipa::path(get, path = "/api/v1/enrolments", operation_id = "listEnrolments", params(PageQuery, Filter),
    responses((status = 200, body = Listing<EnrolmentView>)))]
async fn list(
    Component(authority): Component<Authority>,
    caller: Caller,
    paging: Paging,
    Query(filter): Query<Filter>,
) -> Result<Json<Listing<EnrolmentView>>, Problem> {
    let (state, page_request) = (enrolment_state(filter.state), (paging.after.as_ref(), paging.limit));
    let page = match caller.reach(Permission::ApprovalRead) {
        Reach::Everything => authority.enrolments(state, page_request.0, page_request.1).await?,
        Reach::Only(_) => {
            let read = |after: Option<Cursor>, limit| {
                let authority = &authority;
                async move { authority.enrolments(state, after.as_ref(), limit).await }
            };
            let sees = |row: &EnrolmentRow| caller.may(Permission::ApprovalRead, object_of(row)).is_ok();
            // The cursor contains only the number of a row, which reveals nothing.
            store::visible_page(page_request, read, sees).await?.page
        }
    };
    Ok(Json(listing(page, enrolment_view)))
}

/// Shows an enrolment.
#[utoipa::path(get, path = "/api/v1/enrolments/{id}", operation_id = "getEnrolment", params(("id" = Uuid, Path)),
    responses((status = 200, body = EnrolmentView)))]
async fn get_one(
    Component(authority): Component<Authority>,
    With(access): With<AccessControl>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<Json<EnrolmentView>, Problem> {
    let row = found(&authority, &caller, Permission::ApprovalRead, id).await?;
    shown(&authority, &access, row).await
}

/// Begins the signature of an enrolment's plan by the caller's security key.
///
/// The response of the security key is then sent as `security_key` to `POST /api/v1/enrolments/{id}/approve`.
#[utoipa::path(post, path = "/api/v1/enrolments/{id}/challenge", operation_id = "beginEnrolmentSignature",
    params(("id" = Uuid, Path)), request_body = PlanToSign, responses((status = 201, body = SecurityKeyCeremony)))]
async fn begin_signature(
    Component(authority): Component<Authority>,
    With(access): With<AccessControl>,
    caller: Caller,
    Path(id): Path<Uuid>,
    parts: Parts,
    Json(plan): Json<PlanToSign>,
) -> Result<Response, Problem> {
    found(&authority, &caller, Permission::ApprovalDecide, id).await?;
    plan_signature::begin(&access, &caller, &parts, id, &plan).await
}

/// Approves an enrolment. Once the enrolment has the number of approvals that the profile requires, the client gets the certificate
/// at its next poll, and only once. If `plan_sha256` is given, it must be the hash of the plan.
#[utoipa::path(post, path = "/api/v1/enrolments/{id}/approve", operation_id = "approveEnrolment",
    params(("id" = Uuid, Path)), request_body = DecisionBody, responses((status = 200, body = EnrolmentView)))]
async fn approve(
    Component(authority): Component<Authority>,
    With(state): With<State>,
    caller: Caller,
    Path(id): Path<Uuid>,
    parts: Parts,
    Json(body): Json<DecisionBody>,
) -> Result<Json<EnrolmentView>, Problem> {
    let row = found(&authority, &caller, Permission::ApprovalDecide, id).await?;
    let plan = plan_signature::shown(body.plan_sha256.as_deref())?;
    let plan = plan_signature::signed(&state, &caller, &parts, id, plan, body.security_key.as_ref()).await?;
    let approvers = authority.enrolment_approvers(&row).await?;
    if row.state == EnrolmentState::Open && plan.completes(&caller, row.plan_sha256, &approvers) {
        return shown(&authority, state.access(), row).await;
    }
    plan_signature::check_earlier(&state, id, plan.sha256, &approvers).await?;
    let by = caller.principal();
    let row = authority.decide_enrolment(id, Decision::Approve, plan.sha256, &body.note, by).await?;
    shown(&authority, state.access(), row).await
}

/// Rejects an enrolment. Its client receives the rejection with the note at its next poll.
#[utoipa::path(post, path = "/api/v1/enrolments/{id}/reject", operation_id = "rejectEnrolment",
    params(("id" = Uuid, Path)), request_body = DecisionBody, responses((status = 200, body = EnrolmentView)))]
async fn reject(
    Component(authority): Component<Authority>,
    With(access): With<AccessControl>,
    caller: Caller,
    Path(id): Path<Uuid>,
    Json(body): Json<DecisionBody>,
) -> Result<Json<EnrolmentView>, Problem> {
    found(&authority, &caller, Permission::ApprovalDecide, id).await?;
    let plan = plan_signature::shown(body.plan_sha256.as_deref())?;
    let row = authority.decide_enrolment(id, Decision::Reject, plan, &body.note, caller.principal()).await?;
    shown(&authority, &access, row).await
}

/// Returns the view of an enrolment, with the people who approved its plan and their signatures.
async fn shown(
    authority: &Authority,
    access: &AccessControl,
    row: EnrolmentRow,
) -> Result<Json<EnrolmentView>, Problem> {
    let approvers = authority.enrolment_approvers(&row).await?;
    let signatures = plan_signature::views(access, row.id).await?;
    Ok(Json(EnrolmentView { approvers, signatures, ..enrolment_view(row) }))
}

/// Returns the object of an enrolment for permission checks: its profile and its names.
fn object_of(row: &EnrolmentRow) -> Object {
    let object = Object::profile(row.profile.clone());
    match CertificateRequest::parse(&row.request) {
        Ok(request) => object.with_names(request.names()),
        Err(_) => object,
    }
}

/// Returns the enrolment, if the caller has this permission on its profile and its names.
async fn found(
    authority: &Authority,
    caller: &Caller,
    permission: Permission,
    id: Uuid,
) -> Result<EnrolmentRow, Problem> {
    let missing = || Problem::not_found(format_args!("enrolment {id}"));
    let row = authority.enrolment(id).await?.ok_or_else(missing)?;
    caller.may_or_missing((permission, Permission::ApprovalRead), object_of(&row), missing)?;
    Ok(row)
}
