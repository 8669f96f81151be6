//! The handles of a proxy for the control plane in the same process. The control plane's API and console list and decide held
//! requests, and list recent requests.

use std::sync::Arc;
use std::time::Duration;

use api::proxy::{HeldApprovalView, HeldRequestView, ReplayPlanView};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use proxy::holds::{HeldRequest, Holds};
use proxy::recent::{RECENT_MAX, RecentFilter, RecentRequest, RecentRequests, har_of};
use proxy::replay::{ReplayError, ReplayPlan, Replays};
use serde_json::Value;
use server::{NotHeld, NotReplayed, ProxyRequests, RecentQuery};

use super::held;

/// Default number of recent requests in a listing.
const RECENT_DEFAULT: usize = 100;

/// Handles through which the control plane lists, approves, rejects and replays requests of a proxy in the same process. Clones
/// share the same state.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProxyHandles {
    pub(super) holds: Holds,
    /// The most recent requests; `None` if recording them is disabled.
    pub(super) recent: Option<RecentRequests>,
    /// Whether people decide held requests by the API, so that the proxy needs no control socket.
    pub(super) decides: bool,
    /// Replays recent requests; empty until the proxy has started.
    pub(super) replays: Replays,
}

impl ProxyHandles {
    /// Creates the handles of a proxy whose held requests are approved or rejected through the API. `keep_recent`: whether to
    /// record the most recent requests.
    pub(crate) fn new(keep_recent: bool) -> Self {
        let recent = keep_recent.then(RecentRequests::default);
        Self { recent, decides: true, ..Self::default() }
    }

    /// Returns recent requests, newest first; `None` if recording them is disabled.
    fn listed(&self, query: &RecentQuery) -> Option<Vec<RecentRequest>> {
        let filter = RecentFilter {
            identity: query.identity.clone().unwrap_or_default(),
            host: query.host.clone().unwrap_or_default(),
            denied: query.denied.unwrap_or_default(),
        };
        let limit = query.limit.map_or(RECENT_DEFAULT, |limit| limit as usize).clamp(1, RECENT_MAX);
        Some(self.recent.as_ref()?.list(&filter, limit))
    }
}

impl ProxyRequests for ProxyHandles {
    fn held(&self) -> Vec<HeldRequestView> {
        self.holds.list().into_iter().map(view).collect()
    }

    fn held_one(&self, id: &str) -> Option<HeldRequestView> {
        let request = self.holds.list().into_iter().find(|one| one.id == id)?;
        let allowing_rule = held::rule_text(&request).ok();
        Some(HeldRequestView { allowing_rule, ..view(request) })
    }

    fn approve(&self, id: &str, remember: Option<Duration>, by: &str) -> Result<HeldApprovalView, NotHeld> {
        let (request, sent) =
            self.holds.approve(id, remember, by).map_err(|error| NotHeld(error.to_string()))?;
        Ok(HeldApprovalView { request: view(request), sent })
    }

    fn reject(&self, id: &str, reason: Option<String>, by: &str) -> Result<HeldRequestView, NotHeld> {
        self.holds.reject(id, reason, by).map(view).map_err(|error| NotHeld(error.to_string()))
    }

    fn recent(&self, query: &RecentQuery) -> Option<Vec<Value>> {
        Some(self.listed(query)?.iter().map(recent_view).collect())
    }

    fn recent_har(&self, query: &RecentQuery) -> Option<Value> {
        self.listed(query).as_deref().map(har_of)
    }

    fn recent_one(&self, id: &str) -> Option<Value> {
        let request = self.recent.as_ref()?.get(id.parse().ok()?)?;
        let mut found = recent_view(&request);
        if let Some(Ok(rule)) = request.allowing_rule() {
            let text = held::rule_file(rule, request.policy_rule.as_deref(), request.identity.as_deref());
            found["allowing_rule"] = text.ok().into();
        }
        Some(found)
    }

    fn replay_plan<'a>(&'a self, id: &'a str) -> BoxFuture<'a, ReplayPlanView> {
        async move {
            let planned = match id.parse() {
                Ok(id) => self.replays.plan(id).await,
                Err(_) => Err(ReplayError::NotFound(id.to_owned())),
            };
            planned.map_or_else(refused, plan_view)
        }
        .boxed()
    }

    fn replay<'a>(&'a self, id: &'a str, by: &'a str) -> BoxFuture<'a, Result<Value, NotReplayed>> {
        async move {
            let sent = match id.parse() {
                Ok(id) => self.replays.replay(id, by).await,
                Err(_) => Err(ReplayError::NotFound(id.to_owned())),
            };
            sent.map(|request| recent_view(&request)).map_err(|error| NotReplayed(error.to_string()))
        }
        .boxed()
    }
}

fn refused(error: ReplayError) -> ReplayPlanView {
    ReplayPlanView { refused: Some(error.to_string()), ..ReplayPlanView::default() }
}

fn plan_view(plan: ReplayPlan) -> ReplayPlanView {
    let text = |name: Option<Arc<str>>| name.map(|name| name.to_string());
    ReplayPlanView {
        refused: None,
        method: Some(plan.method),
        url: Some(plan.url),
        identity: text(plan.identity),
        decision: plan.decision.map(str::to_owned),
        policy_rule: text(plan.policy_rule),
        credentials: plan.credentials,
    }
}

fn recent_view(request: &RecentRequest) -> Value {
    let mut value = serde_json::to_value(request).unwrap_or_default();
    // Return the ID as a string, like the IDs of other objects.
    value["id"] = request.id.to_string().into();
    value["replay_of"] = request.replay_of.map(|id| id.to_string()).into();
    value
}

fn view(request: HeldRequest) -> HeldRequestView {
    HeldRequestView {
        id: request.id,
        client: request.client,
        identity: request.identity,
        user: request.user,
        method: request.method,
        url: request.url,
        rule: request.rule,
        credentials: request.credentials,
        since: request.since.to_string(),
        deadline: request.deadline.to_string(),
        allowing_rule: None,
    }
}
