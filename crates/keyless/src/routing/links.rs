//! Chooses the nodes to which this node sends requests: a few at each site. Each sending node chooses different ones. Rendezvous
//! hashing spreads the load over a site's nodes, and replaces a lost node by the next in the same order.
//!
//! This node connects to all chosen nodes. If there are many, the nodes of its [pod](super::pod) share the connections.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::channel::ConnectionState;
use super::detours::Detours;
use super::holders::Holders;
use super::options::{RouterOptions, TRIES_MAX};
use super::peer::{Peer, RelayPath};
use super::pod::{LEASE, Pod, WANTED_MAX, mates};
use super::rendezvous::rank;
use crate::node::{Member, NodeId};

/// Default number of nodes of one site that a node uses for the same keys: as many as are tried for one signature.
pub const PER_SITE_MAX: usize = TRIES_MAX;

/// A factory of peers and their connections.
pub(super) trait PeerFactory {
    /// Creates a peer without a connection.
    fn peer(&self, member: &Member) -> Arc<Peer>;
    /// Keeps a connection to the peer until the token is cancelled.
    fn connect(&self, peer: &Arc<Peer>) -> CancellationToken;
}

/// The peers of this node. A peer is needed by holders of keys, by other nodes of the pod, or for detours; some peers have a
/// connection.
pub(super) struct Links {
    own: NodeId,
    /// Site of this node, once known.
    site: Option<String>,
    peers: HashMap<NodeId, Link>,
    holders: Vec<Weak<Holders>>,
    shared_from: usize,
    owner_rate: f64,
    reached_within: Duration,
    pod: Pod,
    mates: Vec<NodeId>,
    detours: Detours,
    /// ID for rendezvous hashing: the ID of this node, or of its pod, so that all nodes of the pod choose the same links.
    chooser: NodeId,
    /// The previous chooser, and the time until which the nodes that it chose are used too. Until then, the newly chosen nodes have
    /// time to connect.
    former: Option<(NodeId, Instant)>,
    /// Time at which the sharing of connections last started or stopped.
    grouped: Option<Instant>,
    /// Number of nodes used at a site, if it is more than [`PER_SITE_MAX`].
    widths: HashMap<String, usize>,
    /// The wanted destinations that were last sent to each other node of the pod.
    wanted: HashMap<NodeId, BTreeSet<NodeId>>,
}

struct Link {
    peer: Arc<Peer>,
    /// Number of local holders that want this link.
    wanted: usize,
    /// Whether other nodes of the pod want this link.
    is_for_others: bool,
    /// Token that cancels the direct connection.
    connection: Option<CancellationToken>,
    /// Time at which the connection became unneeded.
    idle_since: Option<Instant>,
}

impl Link {
    fn disconnect(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.cancel();
        }
    }
}

impl Drop for Link {
    /// Closes the link. Requests in progress on it fail and are retried on other nodes.
    fn drop(&mut self) {
        self.disconnect();
        self.peer.set_relays(Vec::new(), 1, false);
    }
}

impl Links {
    pub(super) fn new(own: NodeId, options: &RouterOptions) -> Self {
        Self {
            own,
            site: None,
            peers: HashMap::new(),
            holders: Vec::new(),
            shared_from: options.shared_from,
            owner_rate: f64::from(options.owner_rate.max(1)),
            reached_within: options.reached_within,
            pod: Pod::default(),
            mates: Vec::new(),
            detours: Detours::default(),
            chooser: own,
            former: None,
            grouped: None,
            widths: HashMap::new(),
            wanted: HashMap::new(),
        }
    }

    pub(super) fn peers(&self) -> impl Iterator<Item = &Arc<Peer>> {
        self.peers.values().map(|link| &link.peer)
    }

    pub(super) fn peer(&self, node: NodeId) -> Option<Arc<Peer>> {
        self.peers.get(&node).map(|link| Arc::clone(&link.peer))
    }

    /// Returns whether the member belongs to the site of this node.
    fn is_own_site(&self, member: &Member) -> bool {
        self.site.as_ref().is_some_and(|site| *site == member.site)
    }

    /// Sets the site of this node, as stated by the control plane.
    pub(super) fn set_site(&mut self, site: String) {
        self.site = Some(site);
    }

    /// Adds the links that these holders need, now and after each change of members. [`Self::share`] then updates the connections.
    pub(super) fn add(
        &mut self,
        holders: &Arc<Holders>,
        members: &HashMap<NodeId, Member>,
        make: &impl PeerFactory,
    ) {
        self.holders.push(Arc::downgrade(holders));
        self.choose(holders, members, make);
    }

    /// Updates the links after these members were added, changed or removed. Other links keep their connections.
    pub(super) fn renew(
        &mut self,
        members: &HashMap<NodeId, Member>,
        changed: &HashSet<NodeId>,
        make: &impl PeerFactory,
    ) {
        // It is unknown which links a dropped holder needed, so all are counted again.
        let has_dropped_holder = self.holders.iter().any(|holders| holders.strong_count() == 0);
        self.peers.retain(|id, _| !changed.contains(id));
        if has_dropped_holder {
            self.peers.values_mut().for_each(|link| link.wanted = 0);
        }
        let mut living = Vec::new();
        self.holders.retain(|holders| holders.upgrade().map(|holders| living.push(holders)).is_some());
        for holders in living {
            if has_dropped_holder {
                holders.set_linked(Arc::default());
            } else if !holders.has_any(changed) {
                continue;
            }
            self.choose(&holders, members, make);
        }
    }

    /// Chooses the links of these holders, and releases links that they no longer need.
    pub(super) fn choose(
        &mut self,
        holders: &Holders,
        members: &HashMap<NodeId, Member>,
        make: &impl PeerFactory,
    ) {
        let mut linked = Vec::new();
        let mut all = chosen(self.chooser, holders.living(members), &self.widths);
        if let Some((former, _)) = self.former {
            all.extend(chosen(former, holders.living(members), &self.widths));
            all.sort_unstable_by_key(|member| member.id);
            all.dedup_by_key(|member| member.id);
        }
        for member in all {
            let link = self.linked(member, make);
            link.wanted += 1;
            linked.push(Arc::clone(&link.peer));
        }
        let before = holders.linked();
        holders.set_linked(linked.into());
        for peer in before.iter() {
            let id = peer.member().id;
            // A member that changed has a new link already.
            if let Some(link) = self.peers.get_mut(&id).filter(|link| Arc::ptr_eq(&link.peer, peer)) {
                link.wanted -= 1;
            }
        }
    }

    fn linked(&mut self, member: &Member, make: &impl PeerFactory) -> &mut Link {
        let new = || Link {
            peer: make.peer(member),
            wanted: 0,
            is_for_others: false,
            connection: None,
            idle_since: None,
        };
        self.peers.entry(member.id).or_insert_with(new)
    }

    /// Decides which nodes are connected directly, and which are reached through the pod.
    pub(super) fn share(&mut self, members: &HashMap<NodeId, Member>, make: &impl PeerFactory, now: Instant) {
        self.pod.remove_stale(|node| members.contains_key(node), now);
        let is_regrouped = self.group(members, now);
        let widened = self.update_owner_count(now);
        if is_regrouped || !widened.is_empty() {
            let at = |member: &&Member| widened.contains(&member.site);
            let others: HashSet<NodeId> = members.values().filter(at).map(|member| member.id).collect();
            for holders in self.holders.iter().filter_map(Weak::upgrade).collect::<Vec<_>>() {
                if is_regrouped || holders.has_any(&others) {
                    self.choose(&holders, members, make);
                }
            }
        }
        for mate in self.mates.clone().iter().filter_map(|mate| members.get(mate)) {
            self.linked(mate, make);
        }
        self.plan(now);
        self.detour(members, now);
        for helper in self.detours.helpers().iter().filter_map(|helper| members.get(helper)) {
            self.linked(helper, make);
        }
        for member in self.pod.leased().iter().filter_map(|node| members.get(node)) {
            self.linked(member, make).is_for_others = true;
        }
        let (own, pod) = (self.own, &self.pod);
        let helpers = self.detours.helpers();
        let mates: HashSet<&NodeId> = self.mates.iter().chain(&helpers).collect();
        self.peers.retain(|node, link| {
            let is_needed = mates.contains(node)
                || pod.must_connect_to(own, *node)
                || (link.wanted > 0 && !pod.shares(*node));
            keep(link, is_needed, make, now)
        });
        self.peers.keys().for_each(|node| self.update_relays(*node));
        self.notify_pod();
    }

    /// Returns the nodes at other sites that receive requests.
    fn destinations(&self) -> BTreeSet<NodeId> {
        let is_far = |link: &&Link| link.wanted > 0 && !self.is_own_site(link.peer.member());
        self.peers.values().filter(is_far).map(|link| link.peer.member().id).collect()
    }

    /// Decides whether the pod shares connections. Returns whether the choice of nodes changed. The decision depends on the number
    /// of destinations, which itself depends on the chooser. To prevent flapping, a decision is kept for [`GROUPED_FOR`], and
    /// sharing ends only at half of the number of destinations at which it began.
    fn group(&mut self, members: &HashMap<NodeId, Member>, now: Instant) -> bool {
        let is_over = self.former.is_some_and(|(_, until)| until <= now);
        if is_over {
            self.former = None;
        }
        let was_shared = self.chooser != self.own;
        let is_recently_grouped =
            self.grouped.is_some_and(|since| now.saturating_duration_since(since) < GROUPED_FOR);
        let most = if was_shared { self.shared_from / 2 } else { self.shared_from };
        let is_shared = if is_recently_grouped { was_shared } else { self.destinations().len() > most };
        let site = self.site.as_deref().filter(|_| is_shared);
        let grouped = site.map(|site| mates(self.own, site, members)).filter(|(mates, _)| !mates.is_empty());
        let (mates, chooser) = grouped.unwrap_or_else(|| (Vec::new(), self.own));
        self.mates = mates;
        if chooser == self.chooser {
            return is_over;
        }
        if was_shared != (chooser != self.own) {
            self.grouped = Some(now);
        }
        self.former = Some((self.chooser, now + LEASE * 2));
        self.chooser = chooser;
        true
    }

    /// Updates the number of nodes used at each site. The number doubles immediately if one owner for each node would be
    /// overloaded. It is halved when half of the nodes would suffice. Returns the sites whose number changed.
    fn update_owner_count(&mut self, now: Instant) -> HashSet<String> {
        let mut owners: HashMap<&str, f64> = HashMap::new();
        for (node, link) in self.peers.iter().filter(|(_, link)| link.wanted > 0) {
            let of_node = self.pod.load(*node, link.peer.requests_sent(), self.owner_rate, now);
            *owners.entry(&link.peer.member().site).or_default() += of_node;
        }
        let mut widths = HashMap::new();
        for (site, owners) in owners {
            let before = self.widths.get(site).copied().unwrap_or(PER_SITE_MAX);
            let width = width(owners).max(width(owners * 2.0).min(before));
            if width > PER_SITE_MAX {
                widths.insert(site.to_owned(), width);
            }
        }
        let sites = widths.keys().chain(self.widths.keys());
        let changed = sites.filter(|site| widths.get(*site) != self.widths.get(*site)).cloned().collect();
        self.widths = widths;
        changed
    }

    /// Assigns shared destinations to owners.
    fn plan(&mut self, now: Instant) {
        if self.mates.is_empty() {
            return self.pod.clear();
        }
        // A node that is being connected to counts as available: otherwise every node would connect to all destinations at startup.
        let is_usable = |node: &&NodeId| {
            !self.pod.is_silent(**node) && self.peers.get(node).is_some_and(|link| link.peer.is_available())
        };
        let mut available: BTreeSet<NodeId> = self.mates.iter().filter(is_usable).copied().collect();
        available.insert(self.own);
        self.pod.plan(available, self.destinations(), now);
        let is_reached =
            |node: NodeId| self.peers.get(&node).is_some_and(|link| link.peer.direct_round_trip().is_some());
        self.pod.spill(self.own, is_reached, self.reached_within, now);
    }

    /// Plans detours to destinations without a path.
    fn detour(&mut self, members: &HashMap<NodeId, Member>, now: Instant) {
        let mut lost = BTreeSet::new();
        // A pod needs no detours: it adds owners to a destination instead.
        let is_own = |link: &Link| link.wanted > 0 && self.mates.is_empty();
        for (node, link) in self.peers.iter().filter(|(_, link)| is_own(link)) {
            let is_cut_off = !link.peer.is_available() && link.peer.round_trip().is_none();
            // A detour stays until a direct connection exists, or is no longer needed.
            let has_detour = self.detours.has(*node) && link.peer.direct_round_trip().is_none();
            if link.connection.is_some() && (is_cut_off || has_detour) {
                lost.insert(*node);
            }
        }
        let is_reached = |node: NodeId| self.peers.get(&node).is_some_and(|link| link.peer.is_relayed());
        let own = (self.own, self.site.as_deref());
        self.detours.plan(own, &lost, members, is_reached, (self.reached_within, now));
    }

    /// Updates the relays through which a node is reached.
    fn update_relays(&self, node: NodeId) {
        let Some(link) = self.peers.get(&node) else { return };
        let (ways, owners) = self.pod.through(node, self.detours.of(node));
        let through = ways.into_iter().filter_map(|(mate, way)| {
            let peer = self.peer(mate).filter(|peer| peer.channel().state() == ConnectionState::Up)?;
            Some(RelayPath { peer, way })
        });
        let may_come = self.pod.may_reach(node) || self.detours.may_reach(node);
        link.peer.set_relays(through.collect(), owners, may_come);
    }

    /// Notifies the pod of the wanted destinations, if they changed.
    fn notify_pod(&mut self) {
        let mut wanted = self.pod.wanted(self.own);
        self.detours.add_wanted(&mut wanted);
        for mate in self.mates.iter().chain(&self.detours.helpers()) {
            if wanted.get(mate) != self.wanted.get(mate)
                && let Some(link) = self.peers.get(mate)
            {
                link.peer.wake();
            }
        }
        self.wanted = wanted;
    }

    /// Returns the destinations that this node wants to reach through `node`: another node of the pod, or the helper of a detour.
    pub(super) fn wanted_of(&self, node: NodeId) -> Vec<NodeId> {
        let wanted = self.wanted.get(&node).into_iter().flatten();
        wanted.copied().take(WANTED_MAX).collect()
    }

    /// Records which nodes a relay reaches, if it forwards requests. Returns whether connections must be assigned again.
    pub(super) fn record_reachable(
        &mut self,
        node: NodeId,
        reached: Option<HashMap<NodeId, Duration>>,
    ) -> bool {
        if !self.mates.contains(&node) && !self.detours.helpers().contains(&node) {
            return false;
        }
        let Some(reached) = reached else { return self.pod.record_unresponsive(node) };
        let was_silent = self.pod.is_silent(node);
        // The relay pings the nodes that it is connected to, so they are alive.
        let relayed = reached.keys().filter_map(|node| self.peers.get(node));
        relayed
            .filter(|link| link.peer.direct_round_trip().is_none())
            .for_each(|link| link.peer.record_received());
        let new = self.pod.record_reachable(node, reached);
        new.into_iter().for_each(|node| self.update_relays(node));
        was_silent
    }

    /// Records that a relay has lost its path to a node, until it reports otherwise.
    pub(super) fn record_lost_path(&mut self, through: NodeId, to: NodeId) {
        if self.pod.lost(through, to) {
            self.update_relays(to);
            if let Some(link) = self.peers.get(&through) {
                link.peer.wake();
            }
        }
    }

    /// Stores the list of nodes that `node` wants to reach through this node. Returns whether the list changed, and the nodes
    /// that this node reaches, with round-trip times.
    pub(super) fn renew_lease(
        &mut self,
        node: NodeId,
        wanted: BTreeSet<NodeId>,
        now: Instant,
    ) -> (bool, Vec<(NodeId, Duration)>) {
        // Nodes of the same site are reported only if wanted: the other node usually has its own connections to them.
        let is_reported =
            |peer: &&Arc<Peer>| !self.is_own_site(peer.member()) || wanted.contains(&peer.member().id);
        let reached = self
            .peers()
            .filter(is_reported)
            .filter_map(|peer| Some((peer.member().id, peer.direct_round_trip()?)));
        let reached = reached.collect();
        (self.pod.renew_lease(node, wanted, now), reached)
    }
}

/// Minimum time between changes of connection sharing.
const GROUPED_FOR: Duration = Duration::from_secs(30);
/// Maximum time that an unneeded connection stays open for its pending requests: the longest deadline.
const LEAVE_WITHIN: Duration = Duration::from_secs(60);

/// Connects a needed link. Disconnects an unneeded link after some time, so that pending requests can end and other nodes can renew
/// their leases. Returns false if the link can be removed.
fn keep(link: &mut Link, is_needed: bool, make: &impl PeerFactory, now: Instant) -> bool {
    link.peer.set_leaving(!is_needed);
    if is_needed {
        link.idle_since = None;
        link.connection.get_or_insert_with(|| make.connect(&link.peer));
        return true;
    }
    if link.connection.is_none() {
        return link.wanted > 0;
    }
    let idle = now.saturating_duration_since(*link.idle_since.get_or_insert(now));
    let is_busy = link.peer.channel().in_flight() > 0 && idle <= LEAVE_WITHIN;
    if link.wanted == 0 && !link.is_for_others {
        return is_busy;
    }
    // The last path to a node that receives requests stays open.
    let has_another = link.wanted == 0 || link.peer.is_relayed();
    if idle > LEASE && !is_busy && has_another {
        link.disconnect();
        link.is_for_others = false;
    }
    link.wanted > 0 || link.is_for_others
}

/// Returns the number of nodes to use at a site whose load needs `owners` owners, one owner for each node.
fn width(owners: f64) -> usize {
    PER_SITE_MAX * (owners.ceil() as usize).div_ceil(PER_SITE_MAX).next_power_of_two()
}

/// Returns the members that rank first for this chooser at each site: [`PER_SITE_MAX`], or the number in `widths`.
fn chosen<'m>(chooser: NodeId, living: Vec<&'m Member>, widths: &HashMap<String, usize>) -> Vec<&'m Member> {
    let mut by_site: HashMap<&str, Vec<(u64, &Member)>> = HashMap::new();
    for member in living {
        let first = by_site.entry(&member.site).or_default();
        let rank = (rank(chooser, member.id), member);
        let at = first.partition_point(|other| other.0 <= rank.0);
        let most = widths.get(&member.site).copied().unwrap_or(PER_SITE_MAX);
        if at < most {
            first.insert(at, rank);
            first.truncate(most);
        }
    }
    by_site.into_values().flatten().map(|(_, member)| member).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::RoutingMetrics;
    use super::super::error::PeerError;
    use super::super::peer::{PeerRequest, PendingRequest};
    use super::*;

    /// A connector that never connects.
    struct NoPeer;

    impl PeerFactory for NoPeer {
        fn peer(&self, member: &Member) -> Arc<Peer> {
            let metrics = RoutingMetrics::default().of(&member.site);
            Arc::new(Peer::new(member.clone(), metrics, Arc::default()))
        }

        fn connect(&self, _: &Arc<Peer>) -> CancellationToken {
            CancellationToken::new()
        }
    }

    fn member(number: u32, site: u32) -> Member {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        Member {
            id: NodeId(id),
            name: number.to_string(),
            site: site.to_string(),
            address: "127.0.0.1:1".to_owned(),
            tls_spki_sha256: x509::SpkiHash::of(&id),
        }
    }

    fn ids(chosen: &[&Member]) -> HashSet<NodeId> {
        chosen.iter().map(|member| member.id).collect()
    }

    /// Thirty-two members of one site, and two hundred other sites of ten nodes each.
    #[test]
    fn connections_scale_with_sites_and_spread_over_their_nodes() {
        let others: Vec<Member> = (0..2_000).map(|number| member(number, number / 10)).collect();
        let mut counts: HashMap<NodeId, usize> = HashMap::new();
        for own in 0..32 {
            let mine = chosen(member(100_000 + own, 999).id, others.iter().collect(), &HashMap::new());
            assert_eq!(mine.len(), 200 * PER_SITE_MAX);
            for id in ids(&mine) {
                *counts.entry(id).or_default() += 1;
            }
        }
        // 32 nodes times three choices over ten nodes: 9.6 each.
        assert!(counts.len() > 1_990, "{}", counts.len());
        assert!(counts.values().all(|count| *count <= 24), "{:?}", counts.values().max());
    }

    #[test]
    fn lost_node_is_replaced_without_moving_other_connections() {
        let others: Vec<Member> = (0..100).map(|number| member(number, number / 10)).collect();
        let own = member(1_000, 99).id;
        let before = ids(&chosen(own, others.iter().collect(), &HashMap::new()));
        for lost_node in &before {
            let rest = others.iter().filter(|member| member.id != *lost_node).collect();
            let after = ids(&chosen(own, rest, &HashMap::new()));
            assert_eq!(after.len(), before.len());
            assert_eq!(before.difference(&after).collect::<Vec<_>>(), [lost_node]);
        }
    }

    /// Asserts that the links equal a fresh choice, independent of earlier changes.
    fn is_as_chosen(links: &Links, own: NodeId, holders: &[Arc<Holders>], members: &HashMap<NodeId, Member>) {
        let mut all = HashSet::new();
        for holders in holders {
            let linked: HashSet<NodeId> = holders.linked().iter().map(|peer| peer.member().id).collect();
            assert_eq!(linked, ids(&chosen(own, holders.living(members), &HashMap::new())));
            for peer in holders.linked().iter() {
                assert_eq!(Some(peer.member()), members.get(&peer.member().id), "as it is stated now");
                assert!(links.peers.get(&peer.member().id).is_some_and(|link| Arc::ptr_eq(&link.peer, peer)));
            }
            all.extend(linked);
        }
        assert_eq!(links.peers.keys().copied().collect::<HashSet<_>>(), all, "and nobody for no one's sake");
    }

    /// A node at the site `local` with other nodes in its pod, and wanted destinations at sites of one node each.
    struct TestPod {
        links: Links,
        members: HashMap<NodeId, Member>,
        holders: Arc<Holders>,
        now: Instant,
    }

    impl TestPod {
        fn new(mates: u32, destinations: u32, shared_from: usize) -> Self {
            let local = (1..=mates).map(|number| Member { site: "here".to_owned(), ..member(number, 0) });
            let far = (1_000..1_000 + destinations).map(|number| member(number, number));
            let members: HashMap<_, _> = local.chain(far).map(|member| (member.id, member)).collect();
            let options = RouterOptions { shared_from, ..RouterOptions::default() };
            let mut links = Links::new(member(0, 0).id, &options);
            links.set_site("here".to_owned());
            let holders = Arc::new(Holders::default());
            let mut test_pod = Self { links, members, holders, now: Instant::now() };
            test_pod.hold(destinations);
            test_pod.links.add(&test_pod.holders, &test_pod.members, &NoPeer);
            test_pod.share();
            test_pod
        }

        fn hold(&mut self, destinations: u32) {
            self.holders.change((1_000..1_000 + destinations).map(|number| member(number, 0).id).collect());
        }

        fn share(&mut self) {
            self.links.share(&self.members, &NoPeer, self.now);
        }

        /// Returns the number of destinations with a direct connection.
        fn connected(&self) -> usize {
            let is_far = |link: &&Link| link.connection.is_some() && link.peer.member().site != "here";
            self.links.peers.values().filter(is_far).count()
        }

        fn at(&self, number: u32) -> Arc<Peer> {
            self.links.peer(member(number, 0).id).unwrap()
        }
    }

    /// Marks the peer as connected.
    fn connected(peer: &Arc<Peer>) -> tokio::sync::mpsc::Receiver<crate::native::proto::SignRequest> {
        let (way, requests) = tokio::sync::mpsc::channel(8);
        peer.open(peer.begin(), way);
        requests
    }

    fn send(peer: &Arc<Peer>) -> Result<PendingRequest, PeerError> {
        peer.send(PeerRequest {
            message: crate::native::proto::SignRequest::default(),
            tenant: "t",
            most: 8,
            time_left: Duration::from_secs(1),
            margin: Duration::ZERO,
        })
    }

    #[test]
    fn connection_sharing_starts_and_stops_at_different_thresholds() {
        let mut test_pod = TestPod::new(3, 40, 40);
        assert_eq!(test_pod.connected(), 40);
        test_pod.hold(41);
        test_pod.members.extend((1_040..1_041).map(|number| (member(number, 0).id, member(number, number))));
        for (wanted_count, shared) in
            [(41, true), (30, true), (21, true), (20, false), (40, false), (41, true)]
        {
            test_pod.hold(wanted_count);
            test_pod.links.choose(&Arc::clone(&test_pod.holders), &test_pod.members, &NoPeer);
            // Decisions are held for some time, and connections are not closed immediately.
            for _ in 0..4 {
                test_pod.now += GROUPED_FOR;
                test_pod.share();
            }
            let most = if shared { (wanted_count as usize).div_ceil(4) } else { wanted_count as usize };
            let connected = test_pod.connected();
            // If the owners reach nothing, this node's connections stay open.
            assert!(connected >= most, "{wanted_count}: {connected}");
            assert_eq!(test_pod.links.chooser != test_pod.links.own, shared, "{wanted_count}");
        }
    }

    #[test]
    fn pod_members_that_do_not_relay_own_no_destinations() {
        let mut test_pod = TestPod::new(3, 40, 0);
        assert_eq!(test_pod.connected(), 10);
        for mate in 1..=3 {
            let mate = member(mate, 0).id;
            assert!(test_pod.links.record_reachable(mate, None));
            assert!(!test_pod.links.record_reachable(mate, None), "the same again");
        }
        test_pod.share();
        assert_eq!(test_pod.connected(), 40);
        test_pod.links.record_reachable(member(1, 0).id, Some(HashMap::new()));
        test_pod.share();
        assert!(test_pod.links.wanted_of(member(1, 0).id).len() == 20, "it does now");
    }

    #[test]
    fn lost_relay_route_is_used_again_after_a_new_announcement() {
        let mut test_pod = TestPod::new(1, 1, 0);
        let (mate, at) = (test_pod.at(1), test_pod.at(1_000));
        let far = at.member().id;
        let _requests = connected(&mate);
        let announce = |test_pod: &mut TestPod| {
            test_pod
                .links
                .record_reachable(mate.member().id, Some(HashMap::from([(far, Duration::from_millis(7))])));
        };
        assert!(at.rank().is_none() && send(&at).is_err());
        announce(&mut test_pod);
        assert!(at.rank().is_some() && at.is_relayed());
        assert_eq!(send(&at).unwrap().relay(), Some(mate.member()));
        test_pod.links.record_lost_path(mate.member().id, far);
        test_pod.share();
        assert!(at.rank().is_none(), "what was told before does not count");
        announce(&mut test_pod);
        assert!(at.rank().is_some());
        // This change does not require a new assignment.
        mate.close(1, ConnectionState::Down);
        assert!(send(&at).is_err() && at.rank().is_none(), "it is waited for, not asked again at once");
    }

    #[test]
    fn unanswered_request_makes_a_route_suspect_until_announced_again() {
        let mut test_pod = TestPod::new(1, 1, 0);
        let (mate, at) = (test_pod.at(1), test_pod.at(1_000));
        let _requests = connected(&mate);
        let reached = HashMap::from([(at.member().id, Duration::from_millis(7))]);
        test_pod.links.record_reachable(mate.member().id, Some(reached.clone()));
        drop(send(&at).unwrap());
        std::thread::sleep(Duration::from_millis(300));
        assert!(at.rank().unwrap().is_suspect);
        test_pod.links.record_reachable(mate.member().id, Some(reached));
        assert!(!at.rank().unwrap().is_suspect);
    }

    #[test]
    fn unwanted_connection_closes_once_requests_finish_or_time_out() {
        let peer = NoPeer.peer(&member(1, 1));
        let _requests = connected(&peer);
        let under_way = send(&peer).unwrap();
        let connection = Some(CancellationToken::new());
        let mut link = Link { peer, wanted: 0, is_for_others: false, connection, idle_since: None };
        let now = Instant::now();
        assert!(keep(&mut link, false, &NoPeer, now));
        assert!(!keep(&mut link, false, &NoPeer, now + LEAVE_WITHIN * 2), "it is not waited for for ever");
        drop(under_way);
        assert!(!keep(&mut link, false, &NoPeer, now));
    }

    #[test]
    fn closing_an_old_connection_does_not_affect_the_new_one() {
        let peer = NoPeer.peer(&member(1, 1));
        let (way, _requests) = tokio::sync::mpsc::channel(8);
        let (first, second) = (peer.begin(), peer.begin());
        peer.open(first, way.clone());
        assert!(peer.rank().is_none());
        peer.open(second, way);
        peer.close(first, ConnectionState::Unwanted);
        assert!(peer.rank().is_some() && send(&peer).is_ok());
        peer.close(second, ConnectionState::Down);
        assert!(peer.rank().is_none() && send(&peer).is_err());
    }

    proptest! {
        #[test]
        fn incremental_link_updates_equal_a_full_computation(
            wanted_count in proptest::collection::vec(proptest::collection::vec(0..40_u32, 0..30), 1..6),
            steps in proptest::collection::vec((0..40_u32, 0..4_u8), 1..30),
        ) {
            let own = member(1_000, 99).id;
            let (mut links, mut members) = (Links::new(own, &RouterOptions::default()), HashMap::new());
            let now = Instant::now();
            let mut holders = Vec::new();
            for numbers in wanted_count {
                let one = Arc::new(Holders::default());
                one.change(numbers.iter().map(|number| member(*number, 0).id).collect());
                links.add(&one, &members, &NoPeer);
                holders.push(one);
            }
            for (number, what) in steps {
                let other = member(number, number / 10);
                match what {
                    0 => drop(members.remove(&other.id)),
                    1 if holders.len() > 1 => drop(holders.pop()),
                    2 => drop(members.insert(other.id, Member { address: "127.0.0.2:1".to_owned(), ..other.clone() })),
                    _ => drop(members.insert(other.id, other.clone())),
                }
                links.renew(&members, &HashSet::from([other.id]), &NoPeer);
                links.share(&members, &NoPeer, now);
                is_as_chosen(&links, own, &holders, &members);
            }
        }
    }
}
