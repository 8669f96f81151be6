//! Requests of the proxy in this process: held requests and their approval, recent requests and their replays.

use std::sync::Arc;
use std::time::Duration;

use api::proxy::{ApproveHeldBody, HeldApprovalView, HeldRequestView, RejectHeldBody, ReplayPlanView};
use axum::extract::{FromRef, State as With};
use futures_util::FutureExt;
use serde_json::{Value, json};
use store::{AuditEvent, Clock, Store};

use crate::access::{Caller, Permission};
use crate::extract::{Json, Path, Query};
use crate::paging::Listing;
use crate::problem::Problem;
use crate::proxy_requests::{APPROVAL_MAX, NotHeld, NotReplayed, ProxyRequests, RecentQuery};
use crate::routing::{Access, Api, routes};
use crate::state::{Component, State};

/// Maximum bytes of the reason of a rejection.
const REASON_BYTES_MAX: usize = 1_000;

type Proxy = Component<Arc<dyn ProxyRequests>>;

pub(crate) fn routes() -> Api {
    Api::area("proxy")
        .route(Permission::ProxyRead, routes!(list_held))
        .route(Permission::ProxyRead, routes!(get_held))
        // An approved request is sent with the credentials of its rules.
        .route(Access::needs(Permission::ProxyDecide).dangerous(), routes!(approve))
        .route(Permission::ProxyDecide, routes!(reject))
        .route(Permission::ProxyRead, routes!(list_recent))
        .route(Permission::ProxyRead, routes!(export_recent))
        .route(Permission::ProxyRead, routes!(get_recent))
        .route(Permission::ProxyRead, routes!(plan_replay))
        // A replay is sent with the credentials of its client.
        .route(Access::needs(Permission::ProxyDecide).dangerous(), routes!(replay))
}

impl From<NotHeld> for Problem {
    fn from(error: NotHeld) -> Self {
        Self::missing(error).hint("GET /api/v1/proxy/held lists the requests that are held now")
    }
}

impl From<NotReplayed> for Problem {
    fn from(error: NotReplayed) -> Self {
        Self::conflict(error).hint("ask the client to send the request again")
    }
}

fn find(proxy: &dyn ProxyRequests, id: &str) -> Result<HeldRequestView, Problem> {
    let why = "is held: it was decided, its deadline has passed, or its client has closed the connection";
    Ok(proxy.held_one(id).ok_or_else(|| NotHeld(format!("no request with the id {id} {why}")))?)
}

/// Lists the requests that wait for approval at the proxy in this process, longest wait first.
///
/// A proxy in another process is not listed: `bulla proxy held` lists its requests on its host. Without a proxy in this process:
/// 503.
#[utoipa::path(get, path = "/api/v1/proxy/held", operation_id = "listHeldRequests",
    responses((status = 200, body = Listing<HeldRequestView>)))]
async fn list_held(Component(proxy): Proxy) -> Json<Listing<HeldRequestView>> {
    Json(Listing::whole(proxy.held()))
}

/// Shows a held request, with the names of the credentials that it gets after approval, and a rule that allows such requests.
#[utoipa::path(get, path = "/api/v1/proxy/held/{id}", operation_id = "getHeldRequest", params(("id" = String, Path)),
    responses((status = 200, body = HeldRequestView)))]
async fn get_held(Component(proxy): Proxy, Path(id): Path<String>) -> Result<Json<HeldRequestView>, Problem> {
    Ok(Json(find(&*proxy, &id)?))
}

/// Approves a held request. With `for_s`, equal requests are approved for that time as well. The proxy then sends the request with
/// the credentials of its rules.
///
/// The policy is evaluated again: if a new rule denies the request, the request is denied. A caller with the name of the request's
/// identity or user cannot approve the request.
#[utoipa::path(post, path = "/api/v1/proxy/held/{id}/approve", operation_id = "approveHeldRequest",
    params(("id" = String, Path)), request_body = ApproveHeldBody, responses((status = 200, body = HeldApprovalView)))]
async fn approve(
    Component(proxy): Proxy,
    With(decisions): With<Decisions>,
    caller: Caller,
    Path(id): Path<String>,
    Json(body): Json<ApproveHeldBody>,
) -> Result<Json<HeldApprovalView>, Problem> {
    let remember = body.for_s.map(Duration::from_secs);
    if remember.is_some_and(|time| time.is_zero() || time > APPROVAL_MAX) {
        let most = APPROVAL_MAX.as_secs();
        return Err(Problem::unprocessable(format_args!("for_s must be from 1 to {most}"))
            .hint("leave for_s out to approve only this request"));
    }
    let held = find(&*proxy, &id)?;
    check_not_own(&caller, &held)?;
    decisions.audit(&caller, "proxy-request.approve", &held, json!({ "for_s": body.for_s })).await?;
    Ok(Json(proxy.approve(&id, remember, caller.actor())?))
}

/// Rejects a held request. Its client gets 403 and the reason.
#[utoipa::path(post, path = "/api/v1/proxy/held/{id}/reject", operation_id = "rejectHeldRequest",
    params(("id" = String, Path)), request_body = RejectHeldBody, responses((status = 200, body = HeldRequestView)))]
async fn reject(
    Component(proxy): Proxy,
    With(decisions): With<Decisions>,
    caller: Caller,
    Path(id): Path<String>,
    Json(body): Json<RejectHeldBody>,
) -> Result<Json<HeldRequestView>, Problem> {
    if body.reason.as_ref().is_some_and(|reason| reason.len() > REASON_BYTES_MAX) {
        return Err(Problem::unprocessable(format_args!("reason has more than {REASON_BYTES_MAX} bytes")));
    }
    let held = find(&*proxy, &id)?;
    decisions.audit(&caller, "proxy-request.reject", &held, json!({ "reason": body.reason })).await?;
    Ok(Json(proxy.reject(&id, body.reason, caller.actor())?))
}

/// Lists the last requests of the proxy in this process, newest first: at most 1,000, in memory, without query, headers and body.
///
/// A request is listed once its response begins; `duration_ms` is null until it ends. With `server.console = false` no requests are
/// kept, and the response is 404.
#[utoipa::path(get, path = "/api/v1/proxy/requests", operation_id = "listProxyRequests", params(RecentQuery),
    responses((status = 200, body = Object)))]
async fn list_recent(
    Component(proxy): Proxy,
    Query(query): Query<RecentQuery>,
) -> Result<Json<Listing<Value>>, Problem> {
    Ok(Json(Listing::whole(proxy.recent(&query).ok_or_else(no_recent_requests)?)))
}

/// Exports the last requests of the proxy in this process as HAR 1.2, newest first: at most 1,000, and only requests that have
/// ended.
///
/// The log has no queries, headers or bodies, because the proxy does not keep them. Each entry has the members `_identity`,
/// `_decision`, `_policy_rule`, `_reason`, `_rules` and `_credentials` (names).
#[utoipa::path(get, path = "/api/v1/proxy/requests.har", operation_id = "exportProxyRequests", params(RecentQuery),
    responses((status = 200, body = Object)))]
async fn export_recent(
    Component(proxy): Proxy,
    Query(query): Query<RecentQuery>,
) -> Result<Json<Value>, Problem> {
    Ok(Json(proxy.recent_har(&query).ok_or_else(no_recent_requests)?))
}

fn no_recent_requests() -> Problem {
    Problem::missing("this server keeps no requests of its proxy")
        .hint("set server.console = true, and restart the server")
}

/// Shows a recent request of the proxy, with a rule that allows it.
#[utoipa::path(get, path = "/api/v1/proxy/requests/{id}", operation_id = "getProxyRequest",
    params(("id" = String, Path)), responses((status = 200, body = Object)))]
async fn get_recent(Component(proxy): Proxy, Path(id): Path<String>) -> Result<Json<Value>, Problem> {
    Ok(Json(recent(&*proxy, &id)?))
}

fn recent(proxy: &dyn ProxyRequests, id: &str) -> Result<Value, Problem> {
    proxy.recent_one(id).ok_or_else(|| {
        Problem::missing(format_args!("the recent requests of the proxy have no request {id}"))
            .hint("the proxy keeps the last 1,000 requests: GET /api/v1/proxy/requests")
    })
}

/// Shows the request that a replay of a recent request would send under the current rules, or why the replay is refused. Sends
/// nothing.
#[utoipa::path(get, path = "/api/v1/proxy/requests/{id}/replay", operation_id = "planProxyReplay",
    params(("id" = String, Path)), responses((status = 200, body = ReplayPlanView)))]
async fn plan_replay(
    Component(proxy): Proxy,
    Path(id): Path<String>,
) -> Result<Json<ReplayPlanView>, Problem> {
    recent(&*proxy, &id)?;
    Ok(Json(proxy.replay_plan(&id).await))
}

/// Sends a recent request again with the identity of its client, under the current policy and with the current values of the
/// credentials.
///
/// Returns the new request when its response has ended, or after 30 seconds. The body of the response is discarded. The proxy keeps
/// no query, headers or body: a replay has only the headers `Host`, `Accept` and `User-Agent`. The replay is refused with 409 and
/// the reason, for example in these cases:
///
/// - The request has a query or a body.
/// - Its client may no longer use the proxy, or has another identity.
/// - The policy denies or holds the request.
#[utoipa::path(post, path = "/api/v1/proxy/requests/{id}/replay", operation_id = "replayProxyRequest",
    params(("id" = String, Path)), responses((status = 200, body = Object)))]
async fn replay(
    Component(proxy): Proxy,
    With(decisions): With<Decisions>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    recent(&*proxy, &id)?;
    let plan = proxy.replay_plan(&id).await;
    if let Some(refused) = plan.refused {
        return Err(NotReplayed(refused).into());
    }
    let details = json!({
        "credentials": plan.credentials,
        "identity": plan.identity,
        "method": plan.method,
        "rule": plan.policy_rule,
        "url": plan.url,
    });
    decisions.write(&caller, "proxy-request.replay", &id, details).await?;
    Ok(Json(proxy.replay(&id, caller.actor()).await?))
}

/// Rejects an approval by the person who sent the request. Only names are compared, because the proxy and the server have separate
/// users.
fn check_not_own(caller: &Caller, held: &HeldRequestView) -> Result<(), Problem> {
    let is_own = |actor: &str| {
        let name = actor.split_once(':').map_or(actor, |(_, name)| name);
        [&held.identity, &held.user].into_iter().flatten().any(|one| one.eq_ignore_ascii_case(name))
    };
    if ![caller.actor(), caller.owner()].into_iter().any(is_own) {
        return Ok(());
    }
    Err(Problem::forbidden("you cannot approve this request: its identity or user has your name")
        .hint("ask another person with the permission proxy.decide"))
}

/// Writes decisions on the proxy's requests to the audit log.
#[derive(Clone)]
struct Decisions {
    store: Store,
    clock: Clock,
}

impl FromRef<State> for Decisions {
    fn from_ref(state: &State) -> Self {
        Self { store: Store::from_ref(state), clock: Clock::from_ref(state) }
    }
}

impl Decisions {
    /// Writes a decision to the audit log, before it takes effect.
    async fn audit(
        &self,
        caller: &Caller,
        action: &'static str,
        held: &HeldRequestView,
        mut details: Value,
    ) -> Result<(), Problem> {
        details["client"] = held.client.as_str().into();
        details["credentials"] = held.credentials.as_slice().into();
        details["method"] = held.method.as_str().into();
        details["rule"] = held.rule.as_str().into();
        details["url"] = held.url.as_str().into();
        self.write(caller, action, &held.id, details).await
    }

    /// Writes an action on the request `id` to the audit log.
    async fn write(
        &self,
        caller: &Caller,
        action: &'static str,
        id: &str,
        details: Value,
    ) -> Result<(), Problem> {
        let event = AuditEvent {
            at_us: self.clock.now_us(),
            actor: caller.actor().to_owned(),
            action,
            resource: format!("proxy-request/{id}"),
            details,
        };
        let write = self.store.write("proxy_decision", move |tx| {
            async move { store::audit(tx, vec![event]).await.map(drop) }.boxed()
        });
        Ok(write.await?)
    }
}
