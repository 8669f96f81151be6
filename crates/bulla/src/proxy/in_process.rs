//! The handles of a proxy for the control plane in the same process, whose API and console list and decide the held requests.

use std::time::Duration;

use api::proxy::{HeldApprovalView, HeldRequestView};
use proxy::holds::{HeldRequest, Holds};
use server::{NotHeld, ProxyRequests};

use super::held;

/// The handles of a proxy. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProxyHandles {
    pub(super) holds: Holds,
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

    fn approve(
        &self,
        id: &str,
        remember: Option<Duration>,
        by: &str,
    ) -> Result<HeldApprovalView, NotHeld> {
        let (request, sent) =
            self.holds.approve(id, remember, by).map_err(|error| NotHeld(error.to_string()))?;
        Ok(HeldApprovalView { request: view(request), sent })
    }

    fn reject(&self, id: &str, reason: Option<String>, by: &str) -> Result<HeldRequestView, NotHeld> {
        self.holds.reject(id, reason, by).map(view).map_err(|error| NotHeld(error.to_string()))
    }
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
