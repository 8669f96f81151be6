//! Responses to changes that wait for approval.

use api::approvals::{PlanChangeView, PlanFieldView};
use api::changes::ChangeView;
use authority::change::PendingChange;
use authority::tables::ChangeState;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{HeaderValue, LOCATION};
use x509::Fingerprint;

use crate::extract::Json;
use crate::idempotency::HoldsSecret;
use crate::time;

/// The result of a write that may require approval. As a response, a pending change has status 202.
pub(crate) enum WriteResult<T> {
    /// The write was made.
    Done(T),
    /// The write waits for approval.
    Waits(Box<ChangeView>),
}

impl<T> WriteResult<T> {
    /// Converts the value of a completed write.
    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> WriteResult<U> {
        match self {
            Self::Done(done) => WriteResult::Done(change(done)),
            Self::Waits(waits) => WriteResult::Waits(waits),
        }
    }

    /// Converts the value of a completed write like [`WriteResult::map`], with a function that may fail.
    pub(crate) fn try_map<U, E>(self, change: impl FnOnce(T) -> Result<U, E>) -> Result<WriteResult<U>, E> {
        match self {
            Self::Done(done) => change(done).map(WriteResult::Done),
            Self::Waits(waits) => Ok(WriteResult::Waits(waits)),
        }
    }

    /// Adds the secret of a token to a pending change. The secret becomes valid when the change is applied.
    pub(crate) fn with_token(mut self, token: &str) -> Self {
        if let Self::Waits(waits) = &mut self {
            waits.token = Some(token.to_owned());
        }
        self
    }
}

impl<T: IntoResponse> IntoResponse for WriteResult<T> {
    fn into_response(self) -> Response {
        match self {
            Self::Done(done) => done.into_response(),
            Self::Waits(waits) => {
                let location = HeaderValue::from_str(&format!("/api/v1/changes/{}", waits.id));
                let secret = waits.token.is_some();
                let mut response = (StatusCode::ACCEPTED, Json(waits)).into_response();
                response.headers_mut().extend(location.ok().map(|location| (LOCATION, location)));
                if secret {
                    response.extensions_mut().insert(HoldsSecret);
                }
                response
            }
        }
    }
}

pub(crate) fn change_view(change: PendingChange, now_us: i64) -> ChangeView {
    let lapsed = change.state == ChangeState::Open && change.expires_at_us <= now_us;
    let field =
        |field: authority::change::ChangeField| PlanFieldView { name: field.name, values: field.values };
    let differs = |one: authority::change::ChangeDifference| PlanChangeView {
        name: one.name,
        before: one.before,
        after: one.after,
    };
    ChangeView {
        id: change.id,
        action: change.plan.action.clone(),
        object: change.plan.object.clone(),
        profiles: change.profiles,
        state: if lapsed { "expired".to_owned() } else { change.state.name().to_owned() },
        requested_by: change.requested_by,
        requested_at: time::shown(change.requested_at_us),
        expires_at: time::shown(change.expires_at_us),
        decided_by: change.decided_by,
        decided_at: time::maybe_shown(change.decided_at_us),
        note: change.note,
        plan: change.plan.fields().into_iter().map(field).collect(),
        plan_sha256: Fingerprint::from_bytes(change.plan_sha256).to_string(),
        changes: change.plan.differences().into_iter().map(differs).collect(),
        approvals_given: change.progress.given,
        approvals_needed: change.progress.needed,
        approvers: change.approvers,
        signatures: Vec::new(),
        token: None,
    }
}
