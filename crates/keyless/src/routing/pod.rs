//! Pods (not Kubernetes pods): groups of nodes of one site that share their connections to other sites. One node, the owner,
//! connects to a destination and forwards the others' requests; a busy destination has several owners.
//!
//! There is no coordinator. Every node computes the same owners (rendezvous hashing with an upper bound for each node). Pings tell
//! an owner which destinations are wanted; its replies list the destinations that it reaches.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use super::latency::us;
use super::rank::distance;
use super::rendezvous::rank;
use crate::node::{Member, NodeId};

/// Approximate number of nodes in a pod. The number of pods at a site is a power of two that keeps pods near this size.
pub const POD_NODES: usize = 32;
/// Maximum destinations that one node may want to reach through another node of its pod.
pub const WANTED_MAX: usize = 4_096;
/// Validity of a list of wanted destinations: several pings.
pub(super) const LEASE: Duration = Duration::from_secs(5);
/// Minimum interval between measurements of a destination's load, seconds.
const MEASURE_MIN_S: f64 = 0.5;
/// Maximum additional owners if the first ones do not reach a destination.
const SPILL_MAX: usize = 2;

/// Returns the other nodes of the pod of this node, in order, and the ID that the pod uses for rendezvous hashing.
pub(super) fn mates(own: NodeId, site: &str, members: &HashMap<NodeId, Member>) -> (Vec<NodeId>, NodeId) {
    let local_members = || members.values().filter(|member| member.site == site);
    let pods = (local_members().count() + 1).div_ceil(POD_NODES).next_power_of_two();
    let pod = |node: NodeId| rank(NodeId([0; 16]), node) % pods as u64;
    let mut mates: Vec<NodeId> =
        local_members().map(|member| member.id).filter(|id| pod(*id) == pod(own)).collect();
    mates.sort_unstable();
    let mut hasher = DefaultHasher::new();
    (site, pods, pod(own)).hash(&mut hasher);
    (mates, NodeId(u128::from(hasher.finish()).to_be_bytes()))
}

/// Returns the nodes of the pod for each destination, owner first. No node owns more than an equal share, rounded up. The other
/// nodes follow in rank order.
fn owners(pod: &BTreeSet<NodeId>, destinations: &BTreeSet<NodeId>) -> HashMap<NodeId, Vec<NodeId>> {
    let most = destinations.len().div_ceil(pod.len().max(1));
    let mut owned: HashMap<NodeId, usize> = HashMap::new();
    let mut all = HashMap::with_capacity(destinations.len());
    for destination in destinations {
        let mut order: Vec<NodeId> = pod.iter().copied().collect();
        order.sort_by_cached_key(|node| rank(*node, *destination));
        let has_room = |node: &NodeId| owned.get(node).copied().unwrap_or_default() < most;
        if let Some(at) = order.iter().position(has_room) {
            // Move the owner to the front; the others keep their order.
            order[..=at].rotate_right(1);
            *owned.entry(order[0]).or_default() += 1;
        }
        all.insert(*destination, order);
    }
    all
}

/// Assignment of destinations to owners in the pod, as seen by this node.
#[derive(Default)]
pub(super) struct Pod {
    available: BTreeSet<NodeId>,
    destinations: BTreeSet<NodeId>,
    shared: HashMap<NodeId, SharedDestination>,
    /// Destinations that each other node of the pod reaches, with that node's round-trip times.
    reaches: HashMap<NodeId, HashMap<NodeId, Duration>>,
    /// Nodes of the pod that forward no requests.
    silent: BTreeSet<NodeId>,
    /// Destinations that each other node wants to reach through this node, and the end of the lease.
    leases: HashMap<NodeId, (BTreeSet<NodeId>, Instant)>,
}

/// A destination that the pod shares.
struct SharedDestination {
    /// All nodes of the pod, owner first.
    order: Vec<NodeId>,
    /// Number of owners that the load needs.
    by_load: usize,
    spilled: usize,
    since: Instant,
    /// Number of requests at the last measurement; `None` before the first.
    requests_sent: Option<u64>,
    measured_at: Instant,
    rate: f64,
}

impl SharedDestination {
    fn wanted(&self) -> &[NodeId] {
        &self.order[..(self.by_load + self.spilled.min(SPILL_MAX)).min(self.order.len())]
    }
}

impl Pod {
    /// Assigns `destinations` to the available nodes of the pod, including this one.
    pub(super) fn plan(&mut self, available: BTreeSet<NodeId>, destinations: BTreeSet<NodeId>, now: Instant) {
        if (&available, &destinations) == (&self.available, &self.destinations) {
            return;
        }
        let mut orders = owners(&available, &destinations);
        self.shared.retain(|destination, _| destinations.contains(destination));
        for destination in &destinations {
            let order = orders.remove(destination).unwrap_or_default();
            let new = || SharedDestination {
                order: Vec::new(),
                by_load: 1,
                spilled: 0,
                since: now,
                requests_sent: None,
                measured_at: now,
                rate: 0.0,
            };
            let shared = self.shared.entry(*destination).or_insert_with(new);
            if shared.order != order {
                (shared.order, shared.spilled, shared.since) = (order, 0, now);
            }
        }
        (self.available, self.destinations) = (available, destinations);
    }

    /// Removes all shared destinations.
    pub(super) fn clear(&mut self) {
        self.available.clear();
        self.destinations.clear();
        self.shared.clear();
    }

    /// Measures the load of a destination, and updates its number of owners. `requests_sent` counts the requests of this node so far;
    /// every node of the pod is assumed to send about as many. `most` is the rate per second for one owner. Returns the number of
    /// owners that the load needs, as a fraction.
    pub(super) fn load(&mut self, destination: NodeId, requests_sent: u64, most: f64, now: Instant) -> f64 {
        let nodes = self.available.len();
        let Some(shared) = self.shared.get_mut(&destination) else { return 0.0 };
        let past = now.saturating_duration_since(shared.measured_at).as_secs_f64();
        if past >= MEASURE_MIN_S || shared.requests_sent.is_none() {
            let new = shared.requests_sent.map_or(0, |before| requests_sent.saturating_sub(before));
            let rate = new as f64 / past.max(MEASURE_MIN_S);
            // The rate rises immediately and falls slowly: changing owners costs connections.
            shared.rate = rate.max(shared.rate * 0.9);
            (shared.requests_sent, shared.measured_at) = (Some(requests_sent), now);
        }
        let owners = shared.rate * nodes as f64 / most;
        shared.by_load = (owners.ceil() as usize).clamp(1, nodes.max(1));
        owners
    }

    /// Adds a node to the owners of a destination, if none of the owners reaches the destination in time.
    pub(super) fn spill(
        &mut self,
        own: NodeId,
        reached_directly: impl Fn(NodeId) -> bool,
        within: Duration,
        now: Instant,
    ) {
        for (destination, shared) in &mut self.shared {
            let reaches = |node: &NodeId| {
                if *node == own {
                    return reached_directly(*destination);
                }
                self.reaches.get(node).is_some_and(|reached| reached.contains_key(destination))
            };
            if shared.order.iter().take(shared.by_load).any(reaches) {
                (shared.spilled, shared.since) = (0, now);
            } else if shared.wanted().iter().any(reaches) {
                shared.since = now;
            } else if shared.spilled <= SPILL_MAX && now.saturating_duration_since(shared.since) > within {
                shared.spilled += 1;
                shared.since = now;
            }
        }
    }

    /// Returns whether this node must connect to the destination, for its pod or for nodes with a lease.
    pub(super) fn must_connect_to(&self, own: NodeId, destination: NodeId) -> bool {
        let shared = self.shared.get(&destination);
        // If no node of the pod reaches a destination, each node tries it directly.
        shared.is_some_and(|shared| shared.wanted().contains(&own) || shared.spilled > SPILL_MAX)
            || self.leases.values().any(|(wanted, _)| wanted.contains(&destination))
    }

    /// Returns whether the pod shares the destination.
    pub(super) fn shares(&self, destination: NodeId) -> bool {
        self.shared.contains_key(&destination)
    }

    /// Returns, for each other node of the pod, the destinations that this node wants to reach through it.
    pub(super) fn wanted(&self, own: NodeId) -> HashMap<NodeId, BTreeSet<NodeId>> {
        let mut wanted: HashMap<NodeId, BTreeSet<NodeId>> = HashMap::new();
        for (destination, shared) in &self.shared {
            for node in shared.wanted().iter().filter(|node| **node != own) {
                wanted.entry(*node).or_default().insert(*destination);
            }
        }
        wanted
    }

    /// Returns the relays that reach the destination, owner first, helpers last, with their round-trip times, and the number of
    /// owners.
    pub(super) fn through(
        &self,
        destination: NodeId,
        helpers: &[NodeId],
    ) -> (Vec<(NodeId, Duration)>, usize) {
        let shared = self.shared.get(&destination);
        let order = shared.map(|shared| &shared.order[..]).unwrap_or_default();
        let others = helpers.iter().filter(|helper| !order.contains(helper));
        let round_trip = |node: &NodeId| Some((*node, *self.reaches.get(node)?.get(&destination)?));
        let owners = shared.map_or(1, |shared| shared.by_load);
        (order.iter().chain(others).filter_map(round_trip).collect(), owners)
    }

    /// Returns whether some node of the pod may soon reach a destination that none reaches now.
    pub(super) fn may_reach(&self, destination: NodeId) -> bool {
        self.shared.get(&destination).is_some_and(|shared| shared.spilled <= SPILL_MAX)
    }

    /// Records that `node` forwards no requests: its version is too old, or it does not know this node as a member. Returns false
    /// if this was known.
    pub(super) fn record_unresponsive(&mut self, node: NodeId) -> bool {
        self.reaches.remove(&node);
        self.silent.insert(node)
    }

    /// Returns whether `node` forwards no requests.
    pub(super) fn is_silent(&self, node: NodeId) -> bool {
        self.silent.contains(&node)
    }

    /// Records that another node of the pod has lost its path to a destination. Returns false if this was known.
    pub(super) fn lost(&mut self, through: NodeId, to: NodeId) -> bool {
        self.reaches.get_mut(&through).is_some_and(|reached| reached.remove(&to).is_some())
    }

    /// Records which destinations another node of the pod reaches. Returns the destinations whose distance changed.
    pub(super) fn record_reachable(
        &mut self,
        node: NodeId,
        reached: HashMap<NodeId, Duration>,
    ) -> Vec<NodeId> {
        self.silent.remove(&node);
        let before = self.reaches.insert(node, reached).unwrap_or_default();
        let now = &self.reaches[&node];
        let class = |round_trip: &Duration| distance(us(*round_trip));
        let is_new = |at: &&NodeId| before.get(*at).map(class) != now.get(*at).map(class);
        now.keys().chain(before.keys().filter(|at| !now.contains_key(*at))).filter(is_new).copied().collect()
    }

    /// Records which destinations `node` wants to reach through this node. Returns whether the list changed.
    pub(super) fn renew_lease(&mut self, node: NodeId, wanted: BTreeSet<NodeId>, now: Instant) -> bool {
        let until = now + LEASE;
        match self.leases.insert(node, (wanted, until)) {
            Some((before, _)) => self.leases.get(&node).is_some_and(|(wanted, _)| *wanted != before),
            None => true,
        }
    }

    /// Returns all destinations that other nodes want.
    pub(super) fn leased(&self) -> BTreeSet<NodeId> {
        self.leases.values().flat_map(|(wanted, _)| wanted.iter().copied()).collect()
    }

    /// Removes nodes that left, and expired leases.
    pub(super) fn remove_stale(&mut self, is_member: impl Fn(&NodeId) -> bool, now: Instant) {
        self.reaches.retain(|node, _| is_member(node));
        self.silent.retain(|node| is_member(node));
        self.leases.retain(|node, (_, until)| is_member(node) && *until > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u32) -> NodeId {
        let mut id = [7; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        NodeId(id)
    }

    fn nodes(numbers: std::ops::Range<u32>) -> BTreeSet<NodeId> {
        numbers.map(node).collect()
    }

    fn owned(owners: &HashMap<NodeId, Vec<NodeId>>) -> HashMap<NodeId, usize> {
        let mut owned = HashMap::new();
        owners.values().for_each(|order| *owned.entry(order[0]).or_default() += 1);
        owned
    }

    #[test]
    fn destinations_are_divided_evenly_among_pod_members() {
        for (members, destinations, most) in [(32, 200, 7), (31, 200, 7), (4, 65, 17), (32, 5, 1), (1, 9, 9)]
        {
            let found = owners(&nodes(0..members), &nodes(1_000..1_000 + destinations));
            assert_eq!(found.len(), destinations as usize);
            assert!(owned(&found).values().all(|count| *count <= most), "{members} {destinations}");
            for order in found.values() {
                assert_eq!(order.iter().copied().collect::<BTreeSet<_>>(), nodes(0..members), "all of them");
            }
        }
    }

    #[test]
    fn losing_a_pod_member_moves_few_other_destinations() {
        let (all, destinations) = (nodes(0..32), nodes(1_000..1_200));
        let before = owners(&all, &destinations);
        let removed = node(5);
        let after = owners(&all.iter().copied().filter(|node| *node != removed).collect(), &destinations);
        let moved =
            destinations.iter().filter(|at| before[at][0] != removed && before[at][0] != after[at][0]);
        assert!(moved.count() <= 20, "a tenth");
    }

    fn member(number: u32, site: &str) -> Member {
        Member {
            id: node(number),
            name: number.to_string(),
            site: site.to_owned(),
            address: "127.0.0.1:1".to_owned(),
            tls_spki_sha256: x509::SpkiHash::of(&number.to_be_bytes()),
        }
    }

    #[test]
    fn site_is_partitioned_into_pods_of_about_thirty_nodes() {
        let sized = |count: u32| {
            let all: Vec<NodeId> = (0..count).map(node).collect();
            let pod = |own: NodeId| -> BTreeSet<NodeId> {
                let others =
                    (0..count).map(|number| member(number, "here")).filter(|member| member.id != own);
                let far = (5_000..5_100).map(|number| member(number, "there"));
                let members = others.chain(far).map(|member| (member.id, member)).collect();
                let mut pod: BTreeSet<NodeId> = mates(own, "here", &members).0.into_iter().collect();
                assert!(pod.insert(own), "nobody is its own mate");
                pod
            };
            let pods: BTreeSet<Vec<NodeId>> = all.iter().map(|own| pod(*own).into_iter().collect()).collect();
            assert_eq!(pods.iter().map(Vec::len).sum::<usize>(), all.len(), "each in one");
            pods.iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(sized(1), [1]);
        assert_eq!(sized(32), [32]);
        assert_eq!(sized(40).len(), 2);
        let hundred = sized(100);
        assert!(hundred.len() == 4 && hundred.iter().all(|count| (12..=40).contains(count)), "{hundred:?}");
    }

    #[test]
    fn busy_destination_gains_owners_and_loses_them_later() {
        let (mut pod, at) = (Pod::default(), node(1_000));
        let mut now = Instant::now();
        pod.plan(nodes(0..8), nodes(1_000..1_004), now);
        // Requests before sharing began do not count.
        let mut requests_sent = 10_000_000;
        let mut second = |pod: &mut Pod, requests: u64| {
            now += Duration::from_secs(1);
            requests_sent += requests;
            pod.load(at, requests_sent, 5_000.0, now);
            pod.through(at, &[]).1
        };
        assert_eq!(second(&mut pod, 0), 1);
        // Eight nodes with 2,500 requests per second each: 20,000.
        assert_eq!(second(&mut pod, 2_500), 4);
        assert_eq!(second(&mut pod, 1_000_000), 8, "no more than there are");
        assert_eq!(second(&mut pod, 0), 8, "not at once");
        assert_eq!((0..80).map(|_| second(&mut pod, 10)).last(), Some(1));
    }

    #[test]
    fn next_owner_is_added_when_the_first_does_not_connect_in_time() {
        let (mut pod, at, own) = (Pod::default(), node(1_000), node(0));
        let mut now = Instant::now();
        pod.plan(nodes(0..8), nodes(1_000..1_001), now);
        let nobody = |_| false;
        let wanted = |pod: &Pod| pod.wanted(own).len() + usize::from(pod.must_connect_to(own, at));
        pod.spill(own, nobody, LEASE, now);
        assert_eq!(wanted(&pod), 1);
        let itself = pod.shared[&at].order[..3].contains(&own);
        for more in [2, 3, if itself { 3 } else { 4 }] {
            now += LEASE * 2;
            assert!(pod.may_reach(at));
            pod.spill(own, nobody, LEASE, now);
            assert_eq!(wanted(&pod), more, "at last the own node itself");
        }
        assert!(!pod.may_reach(at) && pod.must_connect_to(own, at));
        // The first node in the order that reaches the destination.
        let order = pod.shared[&at].order.clone();
        for reaching in [2, 1] {
            pod.record_reachable(order[reaching], HashMap::from([(at, Duration::from_millis(3))]));
            assert_eq!(pod.through(at, &[]).0[0], (order[reaching], Duration::from_millis(3)));
        }
        pod.remove_stale(|node| *node != order[1], now);
        assert_eq!(pod.through(at, &[]).0.len(), 1);
        pod.spill(own, nobody, LEASE, now);
        assert!(pod.must_connect_to(own, at), "the owner does not");
        pod.record_reachable(order[0], HashMap::from([(at, Duration::from_millis(3))]));
        pod.spill(own, |_| order[0] == own, LEASE, now);
        assert_eq!(wanted(&pod), 1);
    }

    #[test]
    fn lease_expires_unless_renewed() {
        let (mut pod, own, now) = (Pod::default(), node(0), Instant::now());
        assert!(pod.renew_lease(node(1), nodes(10..12), now));
        assert!(!pod.renew_lease(node(1), nodes(10..12), now), "the same");
        assert!(pod.must_connect_to(own, node(11)) && !pod.must_connect_to(own, node(12)));
        pod.remove_stale(|_| true, now + LEASE / 2);
        assert_eq!(pod.leased(), nodes(10..12));
        pod.remove_stale(|_| true, now + LEASE);
        assert!(pod.leased().is_empty());
    }
}
