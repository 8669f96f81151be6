//! The router: the current nodes, and the connections to them.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use x509::SpkiHash;

use super::connection;
use super::holders::Holders;
use super::links::{Links, PeerFactory};
use super::metrics::RoutingMetrics;
use super::options::RouterOptions;
use super::peer::Peer;
use super::state::{AssignedPeers, RouterState};
use crate::budget::Budget;
use crate::client::{ClientTls, tls};
use crate::node::{Member, NodeId};
use crate::tenant::Identity;

/// The current nodes and the connections to them. The connections close with the last clone.
#[derive(Clone)]
pub struct Router(pub(super) Arc<RouterState>);

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").field("members", &self.0.members.read().len()).finish_non_exhaustive()
    }
}

impl Router {
    /// Creates the router of the node `own`, which presents this certificate. It has no members yet.
    ///
    /// # Errors
    /// Errors of the TLS library.
    pub fn new(
        own: NodeId,
        tls: &ClientTls,
        options: RouterOptions,
        metrics: RoutingMetrics,
    ) -> Result<Self, rustls::Error> {
        Ok(Self(Arc::new(RouterState {
            own,
            tls: RwLock::new(tls::config(tls)?),
            members: RwLock::default(),
            links: Mutex::new(Links::new(own, &options)),
            assigned_peers: RwLock::default(),
            options,
            budget: Budget::default(),
            metrics,
            changed: Arc::default(),
            assignment_due: Arc::default(),
            is_assigning: AtomicBool::new(false),
            tracker: TaskTracker::new(),
            stopping: CancellationToken::new(),
        })))
    }

    /// Changes certificate and roots for new connections.
    ///
    /// # Errors
    /// The TLS library rejects them; the old ones stay in use.
    pub fn change_tls(&self, tls: &ClientTls) -> Result<(), rustls::Error> {
        let config = tls::config(tls)?;
        *self.0.tls.write() = config;
        Ok(())
    }

    /// Replaces the members, including this node. Connects to new nodes that have a key. Requests that wait for a removed node are
    /// retried on another. Must be called on a runtime.
    pub fn set_members(&self, members: Vec<Member>) {
        let inner = &self.0;
        let mut members: HashMap<NodeId, Member> =
            members.into_iter().map(|member| (member.id, member)).collect();
        let own = members.remove(&inner.own);
        let mut links = inner.links.lock();
        let changed = difference(&inner.members.read(), &members);
        if let Some(own) = own {
            links.set_site(own.site);
        }
        links.renew(&members, &changed, self);
        *inner.members.write() = members;
        drop(links);
        inner.changed.notify_waiters();
        self.schedule_assignment();
    }

    /// Pings these nodes immediately. Each ranks last until it replies.
    pub fn check(&self, nodes: impl Iterator<Item = NodeId>) {
        let links = self.0.links.lock();
        nodes.filter_map(|node| links.peer(node)).for_each(|peer| peer.mark_suspect());
    }

    /// Returns the holders for these nodes. A node that is not a member yet is added once it becomes a member. Must be called on a
    /// runtime.
    #[must_use]
    pub fn holders(&self, nodes: Vec<NodeId>) -> Arc<Holders> {
        let inner = &self.0;
        let holders = Arc::new(Holders::default());
        holders.change(nodes);
        {
            // Under one lock: otherwise the next change of members could drop a new link.
            let mut links = inner.links.lock();
            links.add(&holders, &inner.members.read(), self);
        }
        inner.changed.notify_waiters();
        self.schedule_assignment();
        holders
    }

    /// Replaces the nodes that can use these keys. Must be called on a runtime.
    pub fn change_holders(&self, holders: &Holders, nodes: Vec<NodeId>) {
        let inner = &self.0;
        {
            let mut links = inner.links.lock();
            holders.change(nodes);
            links.choose(holders, &inner.members.read(), self);
        }
        inner.changed.notify_waiters();
        self.schedule_assignment();
    }

    /// Schedules the assignment of connections.
    fn schedule_assignment(&self) {
        let inner = &self.0;
        if !inner.is_assigning.swap(true, Relaxed) {
            inner.tracker.spawn(assign_connections(Arc::downgrade(inner), inner.stopping.clone()));
        }
        inner.assignment_due.notify_one();
    }

    fn assign_connections(&self) {
        let inner = &self.0;
        let mut links = inner.links.lock();
        links.share(&inner.members.read(), self, Instant::now());
        let peers = links.peers().map(|peer| (peer.member().id, Arc::clone(peer))).collect();
        let assigned_peers = AssignedPeers { peers };
        let before = std::mem::replace(&mut *inner.assigned_peers.write(), Arc::new(assigned_peers));
        // Dropped outside of the locks.
        drop(links);
        drop(before);
    }

    /// Returns the round-trip times of all reachable nodes.
    #[must_use]
    pub fn measured(&self) -> Vec<(NodeId, Duration)> {
        let links = self.0.links.lock();
        links.peers().filter_map(|peer| Some((peer.member().id, peer.round_trip()?))).collect()
    }

    /// Samples the requests to every site; call it every [`SAMPLE_EVERY`](crate::flow::SAMPLE_EVERY).
    pub(crate) fn sample(&self, now: Instant) {
        self.0.metrics.sample(now);
    }

    /// Returns whether the certificate belongs to a current member.
    #[must_use]
    pub fn knows(&self, identity: &Identity) -> bool {
        let members = self.0.members.read();
        let is_own = |(node, spki): (NodeId, SpkiHash)| {
            members.get(&node).is_some_and(|member| member.tls_spki_sha256 == spki)
        };
        identity.node().is_some_and(is_own)
    }

    /// Waits until the certificate no longer belongs to a member.
    pub(crate) async fn wait_until_removed(&self, identity: &Identity) {
        loop {
            // Subscribe before the check, so that no change is missed.
            let mut word = std::pin::pin!(self.0.changed.notified());
            word.as_mut().enable();
            if !self.knows(identity) {
                return;
            }
            word.await;
        }
    }

    /// Closes all connections; requests in progress fail.
    #[crate::boxed]
    pub async fn stop(&self) {
        self.0.stopping.cancel();
        self.0.tracker.close();
        self.0.tracker.wait().await;
    }
}

/// Maximum interval between two assignments of connections within the pod.
const ASSIGN_INTERVAL: Duration = Duration::from_secs(1);

/// Delay that combines several changes into one assignment.
const ASSIGN_DELAY: Duration = Duration::from_millis(5);

/// Pause after an assignment, as a multiple of its duration, so that assignments use at most a tenth of a processor.
const ASSIGN_PAUSE_FACTOR: u32 = 9;

/// Assigns connections after each change.
async fn assign_connections(inner: Weak<RouterState>, stopping: CancellationToken) {
    let _live = telemetry::tasks::guard("keyless-router");
    let Some((changed, assignment_due)) = inner.upgrade().map(|inner| inner.change_notifiers()) else {
        return;
    };
    loop {
        let Some(router) = inner.upgrade().map(Router) else { return };
        let began = Instant::now();
        router.assign_connections();
        let took = began.elapsed();
        // Dropped before the wait, because this task must not keep the router alive.
        drop(router);
        let wait = async {
            tokio::select! {
                () = changed.notified() => {}
                () = assignment_due.notified() => {}
                () = tokio::time::sleep(ASSIGN_INTERVAL) => {}
            }
            tokio::time::sleep(ASSIGN_DELAY.max(took * ASSIGN_PAUSE_FACTOR)).await;
        };
        tokio::select! {
            () = stopping.cancelled() => return,
            () = wait => {}
        }
    }
}

impl PeerFactory for Router {
    fn peer(&self, member: &Member) -> Arc<Peer> {
        let inner = &self.0;
        Arc::new(Peer::new(member.clone(), inner.metrics.of(&member.site), Arc::clone(&inner.changed)))
    }

    fn connect(&self, peer: &Arc<Peer>) -> CancellationToken {
        let inner = &self.0;
        let stop = inner.stopping.child_token();
        let generation = peer.begin();
        let (peer, weak) = (Arc::clone(peer), Arc::downgrade(inner));
        let until = (generation, stop.clone());
        inner.tracker.spawn(connection::maintain(peer, weak, inner.options.clone(), until));
        stop
    }
}

/// Returns the members that were added, changed or removed.
fn difference(before: &HashMap<NodeId, Member>, now: &HashMap<NodeId, Member>) -> HashSet<NodeId> {
    let others = |of: &HashMap<NodeId, Member>, than: &HashMap<NodeId, Member>| {
        let others = of.iter().filter(|(id, member)| than.get(id) != Some(member));
        others.map(|(id, _)| *id).collect::<Vec<_>>()
    };
    others(before, now).into_iter().chain(others(now, before)).collect()
}
