//! Ends open connections when the client loses its access to the proxy, or when the policy no longer admits the connection.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_all;
use http_relay::client::Client;
use http_relay::clock::now;
use http_relay::target::Target;
use tokio::sync::watch;
use x509::HostOrIp;

use super::gateway::{admits, identify};
use super::policy::{Identity, Phase};
use super::proxy::Proxy;
use super::requests::RuleSet;

/// Maximum time between two reads of the clock while the proxy waits for the expiry of an identity. The clock may be set forward
/// during the wait.
const CLOCK_READ_AFTER: Duration = Duration::from_secs(60);

/// A client with an open connection, and its identity when the connection was admitted.
#[derive(Clone, Debug)]
pub(super) struct Served {
    client: Client,
    identity: Option<Arc<str>>,
}

/// The clients of one connection to the proxy, because each request may authenticate as another client. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct ServedClients(watch::Sender<Vec<Served>>);

impl ServedClients {
    /// Adds the client of a request.
    pub(super) fn add(&self, served: Served) {
        self.0.send_if_modified(|all| {
            let is_new = all.iter().all(|one| one.client.user != served.client.user);
            if is_new {
                all.push(served);
            }
            is_new
        });
    }

    /// Waits until one of the clients loses access to the proxy.
    pub(super) async fn stopped(&self, proxy: &Proxy) {
        let mut all = self.0.subscribe();
        loop {
            let now = all.borrow_and_update().clone();
            let stopped = now.iter().map(|served| Box::pin(proxy.stopped(served)));
            let changed = match now.is_empty() {
                true => all.changed().await,
                false => tokio::select! {
                    _ = select_all(stopped) => return,
                    changed = all.changed() => changed,
                },
            };
            if changed.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

impl Proxy {
    /// Returns `client` with its identity under the current policy.
    pub(super) fn served(&self, client: &Client) -> Served {
        let rules = self.rules.now();
        let identity = identify(&rules.policy, client).filter(|identity| !identity.has_expired(now().0));
        Served { client: client.clone(), identity: identity.map(|identity| Arc::clone(&identity.name)) }
    }

    /// Waits until a client loses access: its password or token was removed or changed, or its identity was removed or has expired.
    pub(super) async fn stopped(&self, served: &Served) {
        let client = &served.client;
        let Some(begun) = &served.identity else { return client.ended().await };
        let mut changes = self.rules.changes();
        let has_lost_access = |identity: Option<&Arc<Identity>>| {
            identity.is_none_or(|identity| identity.name != *begun || identity.has_expired(now().0))
        };
        loop {
            let rules = Arc::clone(&changes.borrow_and_update());
            let identity = identify(&rules.policy, client);
            if has_lost_access(identity) {
                return;
            }
            tokio::select! {
                () = client.ended() => return,
                () = wait_for_recheck(&mut changes, identity) => {}
            }
        }
    }

    /// Waits until a connection to `target` as `name` must end: the policy no longer admits it, or its client is
    /// [stopped](Self::stopped).
    pub(super) async fn wait_until_not_admitted(
        &self,
        client: &Client,
        target: &Target,
        name: &HostOrIp,
        phase: Phase<'_>,
    ) {
        let served = self.served(client);
        let mut changes = self.rules.changes();
        let refused = async {
            loop {
                let rules = Arc::clone(&changes.borrow_and_update());
                if !admits(&rules.policy, client, target, name, phase) {
                    return;
                }
                wait_for_recheck(&mut changes, identify(&rules.policy, client)).await;
            }
        };
        tokio::select! {
            () = refused => {}
            () = self.stopped(&served) => {}
        }
    }
}

/// Waits until a client must be checked again: after a change of the rules, at the expiry of `identity`, or at the latest after
/// [`CLOCK_READ_AFTER`] if the identity expires.
async fn wait_for_recheck(changes: &mut watch::Receiver<Arc<RuleSet>>, identity: Option<&Arc<Identity>>) {
    let expires = identity.and_then(|identity| identity.expires);
    let left = expires.and_then(|expires| u64::try_from(expires.saturating_sub(now().0)).ok());
    let wait = left.map(|seconds| Duration::from_secs(seconds.max(1)).min(CLOCK_READ_AFTER));
    let clock = async {
        match wait {
            Some(wait) => tokio::time::sleep(wait).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        changed = changes.changed() => if changed.is_err() { std::future::pending().await },
        () = clock => {}
    }
}
