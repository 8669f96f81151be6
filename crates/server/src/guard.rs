//! What stands before every handler: who asks, may they, and not too often.

use std::sync::Arc;

use axum::extract::{Request, State as With};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::request::Parts;

use crate::access::{self, Caller, Permission};
use crate::api::{Access, Need};
use crate::problem::Problem;
use crate::state::State;

/// What one route's guard knows.
pub(crate) struct Guard {
    pub(crate) state: State,
    pub(crate) access: Access,
}

/// Lets a request through to its handler, or answers in the handler's stead.
pub(crate) async fn guarded(With(guard): With<Arc<Guard>>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let caller = match guard.admit(&parts).await {
        Ok(caller) => caller,
        Err(problem) => {
            guard.state.metrics().refused(problem.kind());
            return problem.into_response();
        }
    };
    if let Some(caller) = &caller {
        parts.extensions.insert(caller.clone());
    }
    let response = next.run(Request::from_parts(parts, body)).await;
    match caller {
        Some(caller) if guard.forgot_to_ask(&caller, &response) => {
            Problem::internal("a scoped route did not ask how far its caller reaches").into_response()
        }
        _ => response,
    }
}

impl Guard {
    /// The caller, once they may call this route.
    async fn admit(&self, request: &Parts) -> Result<Option<Caller>, Problem> {
        let permission = match self.access.need {
            Need::Nothing => return Ok(None),
            Need::Caller => None,
            Need::Permission(permission) => Some(permission),
        };
        let caller = access::authenticate(&self.state, request).await?;
        if let Some(permission) = permission {
            self.permitted(&caller, permission)?;
        }
        Ok(Some(caller))
    }

    fn permitted(&self, caller: &Caller, permission: Permission) -> Result<(), Problem> {
        let held =
            if self.access.scoped { caller.holds(permission) } else { caller.holds_everywhere(permission) };
        if held { Ok(()) } else { Err(access::forbidden(permission)) }
    }

    /// A scoped route whose handler succeeded without asking would give one team's things to another.
    fn forgot_to_ask(&self, caller: &Caller, response: &Response) -> bool {
        let Need::Permission(permission) = self.access.need else { return false };
        self.access.scoped
            && response.status().is_success()
            && !caller.holds_everywhere(permission)
            && !caller.was_asked()
    }
}
