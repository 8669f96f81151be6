//! Asking other nodes to sign by keys that cannot be used here: the nearest of those that can, by connections that are kept and
//! measured in the background, so that no request waits for one to be made. Where there are many, nodes of one site share them.
//!
//! - [`Router`]: the nodes there are now, and the connections to them.
//! - [`Holders`]: the nodes that can use some keys.
//! - [`RoutedKey`]: a key held by them, as a [`Signer`](keys::Signer).

mod connection;
mod holders;
mod key;
mod latency;
mod line;
mod links;
mod metrics;
mod peer;
mod pod;
mod relay;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use rustls::ClientConfig;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use x509::SpkiHash;

use crate::budget::Budget;
use crate::client::{ClientTls, tls};
use crate::tenant::Identity;
use links::{Links, Make};
use peer::Peer;

pub use holders::Holders;
pub(crate) use key::Asking;
pub use key::{RouteError, RoutedKey};
pub use links::PER_SITE_MAX;
pub use metrics::RoutingMetrics;
pub use peer::{IN_FLIGHT_MAX, TENANT_IN_FLIGHT_MAX};
pub use pod::{POD_NODES, WANTED_MAX};
pub(crate) use relay::RelayError;

/// What the URIs of nodes' certificates lie under. Their profile alone may issue such names; and a node is let in with its
/// own key only.
pub const NODES_URI: &str = "spiffe://bulla/node";
/// What their DNS names end in: no zone has it, it is looked up nowhere.
pub const NODES_DNS: &str = "node.bulla.internal";
/// Nodes asked for one signature, the nearest first.
pub const TRIES_MAX: usize = 3;

/// Of a node, for good: 16 octets, a UUID's.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct NodeId(pub [u8; 16]);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, octet) in self.0.iter().enumerate() {
            if [4, 6, 8, 10].contains(&at) {
                f.write_str("-")?;
            }
            write!(f, "{octet:02x}")?;
        }
        Ok(())
    }
}

impl NodeId {
    /// The URI of its certificate.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("{NODES_URI}/{self}")
    }

    /// The DNS name of its certificate.
    #[must_use]
    pub fn dns(&self) -> String {
        format!("{self}.{NODES_DNS}")
    }
}

/// A node that lives.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Member {
    /// Which.
    pub id: NodeId,
    /// For people: of logs and errors.
    pub name: String,
    /// Its site, as metrics write it.
    pub site: String,
    /// Where it is asked: host and port.
    pub address: String,
    /// SHA-256 of the public key that its certificate is for: another certificate of its name is not its own.
    pub tls_spki_sha256: SpkiHash,
}

/// How nodes are asked.
#[derive(Clone, Debug)]
pub struct RouterOptions {
    /// For making a connection, handshake included.
    pub connect_timeout: Duration,
    /// Between two measurements of the way to a node.
    pub ping_every: Duration,
    /// For the answer to one; past it the connection is given up.
    pub ping_timeout: Duration,
    /// The pause after a connection could not be made; it doubles up to [`Self::backoff_max`].
    pub backoff: Duration,
    /// The longest pause.
    pub backoff_max: Duration,
    /// What is kept of a request's time for its way back beside what that takes.
    pub margin: Duration,
    /// Nodes at other sites beyond which the connections to them are shared with the others of the own site, 50 KB each. A shared
    /// one costs another hop within the site, a fifth of a millisecond and 20 µs of a processor.
    pub shared_from: usize,
    /// Requests a second to one node that one owner of the connection is to pass on, a tenth of a processor; more owners share
    /// more.
    pub owner_rate: u32,
    /// An owner that has not reached a node by then is joined by the next one of the site.
    pub reached_within: Duration,
}

impl Default for RouterOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(3),
            ping_every: Duration::from_secs(1),
            ping_timeout: Duration::from_secs(2),
            backoff: Duration::from_millis(50),
            backoff_max: Duration::from_secs(2),
            margin: Duration::from_millis(5),
            shared_from: 64,
            owner_rate: 5_000,
            reached_within: Duration::from_secs(5),
        }
    }
}

/// The nodes there are, and the connections to them. Cheap to clone; with the last clone these end.
#[derive(Clone)]
pub struct Router(Arc<Inner>);

struct Inner {
    options: RouterOptions,
    /// Nobody asks itself.
    own: NodeId,
    tls: RwLock<Arc<ClientConfig>>,
    members: RwLock<HashMap<NodeId, Member>>,
    links: Mutex<Links>,
    /// For whoever passes requests on: settling holds the links for some milliseconds where there are many.
    settled: RwLock<Arc<Settled>>,
    budget: Budget,
    metrics: RoutingMetrics,
    /// Some peer can be asked that could not, or the other way round.
    changed: Arc<Notify>,
    /// Connections are to be settled: others are wanted.
    unsettled: Arc<Notify>,
    is_settling: AtomicBool,
    tracker: TaskTracker,
    stopping: CancellationToken,
}

/// What was settled last.
#[derive(Default)]
struct Settled {
    site: Option<String>,
    peers: HashMap<NodeId, Arc<Peer>>,
}

impl Inner {
    fn news(&self) -> (Arc<Notify>, Arc<Notify>) {
        (Arc::clone(&self.changed), Arc::clone(&self.unsettled))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stopping.cancel();
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").field("members", &self.0.members.read().len()).finish_non_exhaustive()
    }
}

impl Router {
    /// Of the node `own`, which presents this certificate to the others. There are none yet.
    ///
    /// # Errors
    /// Those of the TLS library.
    pub fn new(
        own: NodeId,
        tls: &ClientTls,
        options: RouterOptions,
        metrics: RoutingMetrics,
    ) -> Result<Self, rustls::Error> {
        Ok(Self(Arc::new(Inner {
            own,
            tls: RwLock::new(tls::config(tls)?),
            members: RwLock::default(),
            links: Mutex::new(Links::new(own, &options)),
            settled: RwLock::default(),
            options,
            budget: Budget::default(),
            metrics,
            changed: Arc::default(),
            unsettled: Arc::default(),
            is_settling: AtomicBool::new(false),
            tracker: TaskTracker::new(),
            stopping: CancellationToken::new(),
        })))
    }

    /// Presents another certificate, and believes other roots, from the next connection on.
    ///
    /// # Errors
    /// Those of the TLS library; all stays as it was then.
    pub fn change_tls(&self, tls: &ClientTls) -> Result<(), rustls::Error> {
        let config = tls::config(tls)?;
        *self.0.tls.write() = config;
        Ok(())
    }

    /// Makes these all nodes there are, this one among them. Who is new and holds something is connected to, as
    /// [`links`](self) says; who is gone is asked no more, and what was asked of it is asked of others. Must be called on a runtime.
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
        self.settle_soon();
    }

    /// These nodes, as far as they are there, now and later. Must be called on a runtime.
    #[must_use]
    pub fn holders(&self, nodes: Vec<NodeId>) -> Arc<Holders> {
        let inner = &self.0;
        let holders = Arc::new(Holders::default());
        holders.change(nodes);
        {
            // In one go: who is linked and not known to be would lose its connections with the next change of members.
            let mut links = inner.links.lock();
            links.add(&holders, &inner.members.read(), self);
        }
        inner.changed.notify_waiters();
        self.settle_soon();
        holders
    }

    /// Makes these all nodes that can use some keys. Must be called on a runtime.
    pub fn change_holders(&self, holders: &Holders, nodes: Vec<NodeId>) {
        let inner = &self.0;
        {
            let mut links = inner.links.lock();
            holders.change(nodes);
            links.choose(holders, &inner.members.read(), self);
        }
        inner.changed.notify_waiters();
        self.settle_soon();
    }

    /// Has connections made and left as is wanted now.
    fn settle_soon(&self) {
        let inner = &self.0;
        if !inner.is_settling.swap(true, Relaxed) {
            inner.tracker.spawn(settle(Arc::downgrade(inner), inner.stopping.clone()));
        }
        inner.unsettled.notify_one();
    }

    fn settle(&self) {
        let inner = &self.0;
        let mut links = inner.links.lock();
        links.share(&inner.members.read(), self, Instant::now());
        let peers = links.peers().map(|peer| (peer.member().id, Arc::clone(peer))).collect();
        let settled = Settled { site: links.site().map(str::to_owned), peers };
        let before = std::mem::replace(&mut *inner.settled.write(), Arc::new(settled));
        // Taken apart outside of the locks.
        drop(links);
        drop(before);
    }

    /// A key held by these, by its public half (DER SubjectPublicKeyInfo). `None` for a kind that signs for nobody.
    #[must_use]
    pub fn key(&self, holders: &Arc<Holders>, spki: &[u8]) -> Option<RoutedKey> {
        RoutedKey::new(self.clone(), Arc::clone(holders), spki)
    }

    /// How far away each node is that can be asked: there and back.
    #[must_use]
    pub fn measured(&self) -> Vec<(NodeId, Duration)> {
        let links = self.0.links.lock();
        links.peers().filter_map(|peer| Some((peer.member().id, peer.round_trip()?))).collect()
    }

    /// What is wanted to be reached through this one of the pod.
    fn wanted_of(&self, node: NodeId) -> Vec<NodeId> {
        self.0.links.lock().wanted_of(node)
    }

    /// A node said what it reaches, and how far that is, if it passes requests on.
    fn told(&self, node: NodeId, reached: Option<HashMap<NodeId, Duration>>) {
        if self.0.links.lock().told(node, reached) {
            self.0.unsettled.notify_one();
        }
    }

    /// One of the pod has no way to a node any more.
    fn lost_way(&self, through: NodeId, to: NodeId) {
        self.0.links.lock().lost_way(through, to);
    }

    /// Looks at the requests to every site; every [`LOOK_EVERY`](crate::flow::LOOK_EVERY).
    pub(crate) fn look(&self, now: Instant) {
        self.0.metrics.look(now);
    }

    /// Whether who presented this certificate is a node that lives.
    #[must_use]
    pub fn knows(&self, identity: &Identity) -> bool {
        let members = self.0.members.read();
        let is_own = |(node, spki): (NodeId, SpkiHash)| {
            members.get(&node).is_some_and(|member| member.tls_spki_sha256 == spki)
        };
        identity.node().is_some_and(is_own)
    }

    /// Until who presented this certificate is no node any more.
    pub(crate) async fn gone(&self, identity: &Identity) {
        loop {
            // Listens before it looks, so that no change is missed.
            let mut word = std::pin::pin!(self.0.changed.notified());
            word.as_mut().enable();
            if !self.knows(identity) {
                return;
            }
            word.await;
        }
    }

    /// Closes all connections; what is under way fails.
    pub async fn stop(&self) {
        self.0.stopping.cancel();
        self.0.tracker.close();
        self.0.tracker.wait().await;
    }
}

/// Between two looks at how connections are shared, at most: at what is asked for, at what is asked for no more.
const SETTLE_EVERY: Duration = Duration::from_secs(1);
/// What changes at once is settled at once.
const SETTLE_AFTER: Duration = Duration::from_millis(5);
/// Times what it took last are let pass before the next: a tenth of a processor at most.
const SETTLE_PAUSES: u32 = 9;

/// Settles connections whenever something changed.
async fn settle(inner: Weak<Inner>, stopping: CancellationToken) {
    let _live = telemetry::tasks::guard("keyless-router");
    let Some((changed, unsettled)) = inner.upgrade().map(|inner| inner.news()) else { return };
    loop {
        let Some(router) = inner.upgrade().map(Router) else { return };
        let began = Instant::now();
        router.settle();
        let took = began.elapsed();
        // Who asks no more ends this.
        drop(router);
        let wait = async {
            tokio::select! {
                () = changed.notified() => {}
                () = unsettled.notified() => {}
                () = tokio::time::sleep(SETTLE_EVERY) => {}
            }
            tokio::time::sleep(SETTLE_AFTER.max(took * SETTLE_PAUSES)).await;
        };
        tokio::select! {
            () = stopping.cancelled() => return,
            () = wait => {}
        }
    }
}

impl Make for Router {
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
        inner.tracker.spawn(connection::keep(peer, weak, inner.options.clone(), until));
        stop
    }
}

/// Who came, changed or went.
fn difference(before: &HashMap<NodeId, Member>, now: &HashMap<NodeId, Member>) -> HashSet<NodeId> {
    let others = |of: &HashMap<NodeId, Member>, than: &HashMap<NodeId, Member>| {
        let others = of.iter().filter(|(id, member)| than.get(id) != Some(member));
        others.map(|(id, _)| *id).collect::<Vec<_>>()
    };
    others(before, now).into_iter().chain(others(now, before)).collect()
}

/// What a URI of a certificate says of a node.
pub(crate) fn node_of_uri(uri: &str) -> Option<NodeId> {
    let text = uri.strip_prefix(NODES_URI)?.strip_prefix('/')?;
    let digits: String = text.split('-').collect();
    if digits.len() != 32 || !digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let id = NodeId(u128::from_str_radix(&digits, 16).ok()?.to_be_bytes());
    // No other way to write it.
    (id.to_string() == text).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_named_in_one_way() {
        let id = NodeId([0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(id.uri(), "spiffe://bulla/node/01234567-89ab-cdef-0102-030405060708");
        assert_eq!(id.dns(), "01234567-89ab-cdef-0102-030405060708.node.bulla.internal");
        assert_eq!(node_of_uri(&id.uri()), Some(id));
        for other in [
            "spiffe://bulla/agent/01234567-89ab-cdef-0102-030405060708",
            "spiffe://bulla/node01234567-89ab-cdef-0102-030405060708",
            "spiffe://bulla/node/01234567-89ab-cdef-0102-03040506070",
            "spiffe://bulla/node/01234567-89AB-cdef-0102-030405060708",
            "spiffe://bulla/node/0123456789abcdef0102030405060708",
            "spiffe://bulla/node/01234567-89ab-cdef-0102-030405060708/x",
            "spiffe://bulla/node/é1234567-89ab-cdef-0102-03040506070",
        ] {
            assert_eq!(node_of_uri(other), None, "{other}");
        }
    }
}
