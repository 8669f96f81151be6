//! The task that renews the leases of identities, and revokes leases whose identities have lost their right to them.

use std::sync::Arc;
use std::time::Duration;

use http_relay::clock::now;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::leases::IdentityLeases;
use crate::policy::Grantee;
use crate::requests::{LiveRules, RuleSet};

/// Maximum wait for the revocation of all leases when the proxy stops.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// The leases of a running proxy, and the task that renews and revokes them.
pub(crate) struct LeaseKeeper {
    leases: IdentityLeases,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl LeaseKeeper {
    /// Starts the task. The current rules decide which identity may have a lease.
    pub(crate) fn start(leases: IdentityLeases, rules: LiveRules) -> Self {
        let stop = CancellationToken::new();
        let is_entitled = move |identity: &str, role: &str| is_entitled(&rules.now(), identity, role);
        let task = tokio::spawn(leases.clone().keep(Box::new(is_entitled), stop.clone()));
        Self { leases, stop, task }
    }

    /// Stops the task, and revokes all leases of the proxy.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        // A round in progress ends first: its leases also need to be revoked.
        let Self { leases, task, .. } = self;
        if tokio::time::timeout(CLOSE_WITHIN, task).await.is_err() {
            tracing::warn!("the store of dynamic credentials does not answer: leases end at their expiry");
        }
        leases.close(CLOSE_WITHIN).await;
    }
}

/// Returns whether the current rules grant an identity leases of a role.
fn is_entitled(rules: &RuleSet, identity: &str, role: &str) -> bool {
    let found = rules.policy.identity(identity).filter(|identity| !identity.has_expired(now().0));
    found.is_some_and(|identity| {
        let identity = Some(Arc::clone(identity));
        rules.requests.grant_lease(role, &Grantee { identity, needs_grant: true, ended: None })
    })
}
