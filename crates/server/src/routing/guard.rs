//! The guard of every handler: rate limits, authentication, authorization, and common response headers.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State as With};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::Method;
use http::request::Parts;
use inbound::KeyedPermit;
use uuid::Uuid;

use super::need::{Access, Need};
use super::query::QueryParameters;
use crate::access::{self, Caller, Permission};
use crate::conditional::ReadConditions;
use crate::extract::BODY_MAX;
use crate::idempotency::{self, Replayed};
use crate::limit::{ProtocolGroup, RemainingQuota};
use crate::peer::address;
use crate::problem::Problem;
use crate::state::State;

/// Timeout of a handler: an external issuer may take a minute to respond, but no handler needs two minutes.
const HANDLER_MAX: Duration = Duration::from_secs(120);

/// `Retry-After` in seconds after a timeout.
const TIMEOUT_RETRY_SECONDS: u64 = 10;

/// The settings of one route's guard.
pub(crate) struct Guard {
    pub(crate) state: State,
    pub(crate) access: Access,
    pub(super) query: QueryParameters,
}

/// The result of the checks before a handler: the caller, and the limits of the request.
struct AuthorizedCaller {
    caller: Option<Caller>,
    /// Permit of the concurrent request, held until the response head is complete. `None` for a stream, and for a route without
    /// authentication.
    under_way: Option<KeyedPermit<Uuid>>,
    quota: Option<RemainingQuota>,
    conditions: Option<ReadConditions>,
}

/// Passes a request to its handler, or responds with an error.
pub(crate) async fn enforce(With(guard): With<Arc<Guard>>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let admitted = match guard.admit(&parts).await.and_then(|admitted| guard.check_query(&parts, admitted)) {
        Ok(admitted) => admitted,
        Err(problem) => {
            guard.state.metrics().refused(problem.kind());
            return problem.into_response();
        }
    };
    if let Some(caller) = &admitted.caller {
        parts.extensions.insert(caller.clone());
    }
    let request = Request::from_parts(parts, body);
    let mut response = guard.handle(admitted.caller.as_ref(), request, next).await;
    if let Some(caller) = &admitted.caller
        && guard.missed_permission_check(caller, &response)
    {
        response = Problem::internal("a scoped route did not check the scope of its caller").into_response();
    }
    if let Some(conditions) = admitted.conditions {
        response = conditions.answer(response).await;
    }
    drop(admitted.under_way);
    if let Some(quota) = admitted.quota {
        quota.write_headers(response.headers_mut());
    }
    response
}

impl Guard {
    async fn admit(&self, parts: &Parts) -> Result<AuthorizedCaller, Problem> {
        let limits = self.state.limits();
        let address = address(parts);
        limits.address(ProtocolGroup::Api, address)?;
        let reads = matches!(parts.method, Method::GET | Method::HEAD);
        let conditions = (reads && !self.access.streams).then(|| ReadConditions::of(parts)).transpose()?;
        let permission = match self.access.need {
            Need::Nothing => {
                access::check_site(&parts.method, &parts.uri, &parts.headers)?;
                return Ok(AuthorizedCaller { caller: None, under_way: None, quota: None, conditions });
            }
            Need::Caller => None,
            Need::Permission(permission) => Some(permission),
        };
        let caller = match self.state.authentication().caller(parts).await {
            Ok(caller) => caller,
            Err(problem) => {
                // Limits the rate of guesses. Authenticated callers, and failures because of an unavailable database, do not count.
                if !problem.status().is_server_error() {
                    limits.failure(address, None)?;
                }
                return Err(problem);
            }
        };
        let quota = limits.caller(&caller)?;
        limits.teams(&caller)?;
        // A stream runs for hours and is limited by its connection instead.
        let under_way = if self.access.streams { None } else { Some(limits.begin(&caller)?) };
        if let Some(permission) = permission {
            self.permitted(&caller, permission)?;
        }
        if self.access.needs_recent_proof(&parts.method) {
            caller.require_recent_proof(self.state.clock().now_us())?;
        }
        Ok(AuthorizedCaller { caller: Some(caller), under_way, quota, conditions })
    }

    fn check_query(&self, parts: &Parts, admitted: AuthorizedCaller) -> Result<AuthorizedCaller, Problem> {
        if !self.access.foreign_query {
            self.query.check(&parts.method, parts.uri.query())?;
        }
        Ok(admitted)
    }

    async fn handle(&self, caller: Option<&Caller>, request: Request, next: Next) -> Response {
        if self.access.streams {
            return next.run(request).await;
        }
        let run = async {
            match caller {
                Some(caller) => {
                    let body_max = self.access.body_max.unwrap_or(BODY_MAX);
                    idempotency::run_idempotent(&self.state, caller, request, body_max, next).await
                }
                None => next.run(request).await,
            }
        };
        tokio::time::timeout(HANDLER_MAX, run).await.unwrap_or_else(|_| {
            Problem::unavailable("the request took too long and was cancelled", TIMEOUT_RETRY_SECONDS)
                .into_response()
        })
    }

    fn permitted(&self, caller: &Caller, permission: Permission) -> Result<(), Problem> {
        let is_permitted = if self.access.scoped {
            caller.has_permission(permission)
        } else {
            caller.has_permission_everywhere(permission)
        };
        if is_permitted { Ok(()) } else { Err(access::forbidden(permission)) }
    }

    /// Returns whether the handler of a scoped route succeeded without a permission check. Its response could reveal objects of
    /// another team.
    fn missed_permission_check(&self, caller: &Caller, response: &Response) -> bool {
        let Need::Permission(permission) = self.access.need else { return false };
        self.access.scoped
            && response.status().is_success()
            && !caller.has_permission_everywhere(permission)
            && !caller.was_permission_checked()
            // The caller has already received this response.
            && response.extensions().get::<Replayed>().is_none()
    }
}
