//! Which nodes a node asks: of each site a few, another few for each of those that ask it. So a site's load is spread over all of
//! its nodes, and who goes is replaced by whoever comes next in the same order (rendezvous hashing). And to which of them it is
//! connected itself: to all, or, where these are many, to its part of those of its [pod](super::pod).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::holders::Holders;
use super::line::State;
use super::peer::{Peer, Through};
use super::pod::{LEASE, Pod, WANTED_MAX, mates};
use super::{Member, NodeId, RouterOptions};

/// Nodes of one site that hold the same keys and that a node asks: as many as are asked for one signature.
pub const PER_SITE_MAX: usize = super::TRIES_MAX;

/// Makes what is linked.
pub(super) trait Make {
    /// Nobody is connected to it yet.
    fn peer(&self, member: &Member) -> Arc<Peer>;
    /// Connects to it until the token is cancelled.
    fn connect(&self, peer: &Arc<Peer>) -> CancellationToken;
}

/// The nodes that are asked, for whose sake, and how.
pub(super) struct Links {
    own: NodeId,
    /// The own node's, once that is among the members.
    site: Option<String>,
    peers: HashMap<NodeId, Link>,
    holders: Vec<Weak<Holders>>,
    shared_from: usize,
    owner_rate: f64,
    reached_within: Duration,
    pod: Pod,
    mates: Vec<NodeId>,
    /// As whom nodes are chosen: the own one, or the pod, whose nodes choose alike.
    chooser: NodeId,
    /// How many nodes of a site are asked, where that is more than usual.
    widths: HashMap<String, usize>,
    /// What each of them was told last that is wanted of it.
    wanted: HashMap<NodeId, BTreeSet<NodeId>>,
}

struct Link {
    peer: Arc<Peer>,
    /// Holders that want it.
    wanted: usize,
    /// Whether others of the pod asked for it.
    is_for_others: bool,
    /// Ends the connection of the own node.
    connection: Option<CancellationToken>,
    /// Since when nothing is to go by it any more.
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
    /// It is asked no more; what is under way there is lost, and asked of others.
    fn drop(&mut self) {
        self.disconnect();
        self.peer.set_through(Vec::new(), 1, false);
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
            chooser: own,
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

    /// Whether it is of the own node's site.
    pub(super) fn is_of_site(&self, member: &Member) -> bool {
        self.site.as_ref().is_some_and(|site| *site == member.site)
    }

    /// Where the own node is, as the control plane states it.
    pub(super) fn set_site(&mut self, site: Option<String>) {
        self.site = site;
    }

    /// Links those that these holders want, now and with each change of the members. Connections are settled by [`Self::share`].
    pub(super) fn add(
        &mut self,
        holders: &Arc<Holders>,
        members: &HashMap<NodeId, Member>,
        make: &impl Make,
    ) {
        self.holders.push(Arc::downgrade(holders));
        self.choose(holders, members, make);
    }

    /// Other members, of which these came, changed or went. What they hold is looked at again; all else keeps its connections.
    pub(super) fn renew(
        &mut self,
        members: &HashMap<NodeId, Member>,
        changed: &HashSet<NodeId>,
        make: &impl Make,
    ) {
        // For whose sake there were connections that nobody asks by any more is not known: all are counted anew.
        let is_any_gone = self.holders.iter().any(|holders| holders.strong_count() == 0);
        self.peers.retain(|id, _| !changed.contains(id));
        if is_any_gone {
            self.peers.values_mut().for_each(|link| link.wanted = 0);
        }
        let mut living = Vec::new();
        self.holders.retain(|holders| holders.upgrade().map(|holders| living.push(holders)).is_some());
        for holders in living {
            if is_any_gone {
                holders.set_linked(Arc::default());
            } else if !holders.has_any(changed) {
                continue;
            }
            self.choose(&holders, members, make);
        }
    }

    /// Links those that these holders want now, and nobody else for their sake.
    pub(super) fn choose(&mut self, holders: &Holders, members: &HashMap<NodeId, Member>, make: &impl Make) {
        let mut linked = Vec::new();
        for member in chosen(self.chooser, holders.living(members), &self.widths) {
            let link = self.linked(member, make);
            link.wanted += 1;
            linked.push(Arc::clone(&link.peer));
        }
        let before = holders.linked();
        holders.set_linked(linked.into());
        for peer in before.iter() {
            let id = peer.member().id;
            // A node that changed has another link by now.
            if let Some(link) = self.peers.get_mut(&id).filter(|link| Arc::ptr_eq(&link.peer, peer)) {
                link.wanted -= 1;
            }
        }
    }

    fn linked(&mut self, member: &Member, make: &impl Make) -> &mut Link {
        let new = || Link {
            peer: make.peer(member),
            wanted: 0,
            is_for_others: false,
            connection: None,
            idle_since: None,
        };
        self.peers.entry(member.id).or_insert_with(new)
    }

    /// Settles who is connected to, and who is asked through others of the pod.
    pub(super) fn share(&mut self, members: &HashMap<NodeId, Member>, make: &impl Make, now: Instant) {
        self.pod.tidy(|node| members.contains_key(node), now);
        if self.group(members) | self.widen(now) {
            // Others are chosen now.
            for holders in self.holders.iter().filter_map(Weak::upgrade).collect::<Vec<_>>() {
                self.choose(&holders, members, make);
            }
        }
        for mate in self.mates.clone().iter().filter_map(|mate| members.get(mate)) {
            self.linked(mate, make);
        }
        self.plan(now);
        for member in self.pod.asked_for().iter().filter_map(|node| members.get(node)) {
            self.linked(member, make).is_for_others = true;
        }
        let (own, pod) = (self.own, &self.pod);
        let mates: HashSet<&NodeId> = self.mates.iter().collect();
        self.peers.retain(|node, link| {
            let is_needed = mates.contains(node)
                || pod.is_wanted_of(own, *node)
                || (link.wanted > 0 && !pod.shares(*node));
            keep(link, is_needed, make, now)
        });
        self.peers.keys().for_each(|node| self.find_ways(*node));
        self.tell();
    }

    /// Those at other sites that are asked.
    fn destinations(&self) -> BTreeSet<NodeId> {
        let is_far = |link: &&Link| link.wanted > 0 && !self.is_of_site(link.peer.member());
        self.peers.values().filter(is_far).map(|link| link.peer.member().id).collect()
    }

    /// Whether connections are shared, and with whom. Whether nodes are chosen by another than before for it.
    fn group(&mut self, members: &HashMap<NodeId, Member>) -> bool {
        let is_worth_it = self.destinations().len() > self.shared_from;
        let site = self.site.as_deref().filter(|_| is_worth_it);
        let grouped = site.map(|site| mates(self.own, site, members)).filter(|(mates, _)| !mates.is_empty());
        let (mates, chooser) = grouped.unwrap_or_else(|| (Vec::new(), self.own));
        self.mates = mates;
        std::mem::replace(&mut self.chooser, chooser) != chooser
    }

    /// How many nodes of each site are asked: more where one owner each had too much to do. Whether that is another number than
    /// before; it is changed by half or double only.
    fn widen(&mut self, now: Instant) -> bool {
        let mut owners: HashMap<&str, f64> = HashMap::new();
        for (node, link) in self.peers.iter().filter(|(_, link)| link.wanted > 0) {
            let of_node = self.pod.load(*node, link.peer.begun(), self.owner_rate, now);
            *owners.entry(&link.peer.member().site).or_default() += of_node;
        }
        let is_wide = |owners: f64| owners > PER_SITE_MAX as f64;
        let width =
            |owners: f64| PER_SITE_MAX * (owners.ceil() as usize).div_ceil(PER_SITE_MAX).next_power_of_two();
        let wide = owners.into_iter().filter(|(_, owners)| is_wide(*owners));
        let widths: HashMap<String, usize> =
            wide.map(|(site, owners)| (site.to_owned(), width(owners))).collect();
        let is_other = widths != self.widths;
        self.widths = widths;
        is_other
    }

    /// Who owns what, as far as that is shared.
    fn plan(&mut self, now: Instant) {
        if self.mates.is_empty() {
            return self.pod.clear();
        }
        // Who is being connected to is believed to be there: else all would be connected to at the start.
        let is_there =
            |node: &&NodeId| self.peers.get(node).is_some_and(|link| link.peer.line().state() != State::Down);
        let mut available: BTreeSet<NodeId> = self.mates.iter().filter(is_there).copied().collect();
        available.insert(self.own);
        self.pod.plan(available, self.destinations(), now);
        let is_reached =
            |node: NodeId| self.peers.get(&node).is_some_and(|link| link.peer.own_way().is_some());
        self.pod.spill(self.own, is_reached, self.reached_within, now);
    }

    /// Through whom one is asked.
    fn find_ways(&self, node: NodeId) {
        let Some(link) = self.peers.get(&node) else { return };
        let (ways, owners) = self.pod.through(node);
        let through = ways.into_iter().filter_map(|(mate, way)| {
            let peer = self.peer(mate).filter(|peer| peer.line().state() == State::Up)?;
            Some(Through { peer, way })
        });
        link.peer.set_through(through.collect(), owners, self.pod.may_reach(node));
    }

    /// Has the pod told what is wanted of whom, where that is another than before.
    fn tell(&mut self) {
        let wanted = self.pod.wanted(self.own);
        for mate in &self.mates {
            if wanted.get(mate) != self.wanted.get(mate)
                && let Some(link) = self.peers.get(mate)
            {
                link.peer.poke();
            }
        }
        self.wanted = wanted;
    }

    /// What is wanted of this one of the pod.
    pub(super) fn wanted_of(&self, node: NodeId) -> Vec<NodeId> {
        let wanted = self.wanted.get(&node).into_iter().flatten();
        wanted.copied().take(WANTED_MAX).collect()
    }

    /// One of the pod said what it reaches.
    pub(super) fn told(&mut self, node: NodeId, reached: HashMap<NodeId, Duration>) {
        if self.mates.contains(&node) {
            let new = self.pod.told(node, reached);
            new.into_iter().for_each(|node| self.find_ways(node));
        }
    }

    /// One of the site says what it wants to reach through this node. Whether that is another than before; and what this node
    /// does reach, and how far that is.
    pub(super) fn asked(
        &mut self,
        node: NodeId,
        wanted: BTreeSet<NodeId>,
        now: Instant,
    ) -> (bool, Vec<(NodeId, Duration)>) {
        let is_new = self.pod.asked(node, wanted, now);
        let is_told = |peer: &&Arc<Peer>| !self.is_of_site(peer.member()) && !peer.is_leaving();
        let reached =
            self.peers().filter(is_told).filter_map(|peer| Some((peer.member().id, peer.own_way()?)));
        (is_new, reached.collect())
    }
}

/// A connection that is not needed any more ends once nothing is under way by it; in any case after the longest deadline there is.
const LEAVE_WITHIN: Duration = Duration::from_secs(60);

/// Connects to one that is needed, and leaves one that is not, after some time: what is under way may end, and who asked for it may
/// ask again. False for one that nobody needs at all.
fn keep(link: &mut Link, is_needed: bool, make: &impl Make, now: Instant) -> bool {
    link.peer.set_leaving(!is_needed);
    if is_needed {
        link.idle_since = None;
        link.connection.get_or_insert_with(|| make.connect(&link.peer));
        return true;
    }
    let is_in_use = link.wanted > 0 || link.is_for_others;
    if is_in_use && link.connection.is_some() {
        let idle = now.saturating_duration_since(*link.idle_since.get_or_insert(now));
        if idle > LEAVE_WITHIN || (idle > LEASE && link.peer.line().in_flight() == 0) {
            link.disconnect();
            link.is_for_others = false;
        }
    }
    link.wanted > 0 || (link.is_for_others && link.connection.is_some())
}

/// Of each site those that come first for this chooser: [`PER_SITE_MAX`], or as many as it is wide.
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

/// Where one node comes for another one: in an order that all find alike, of nodes that were built alike.
pub(super) fn rank(own: NodeId, other: NodeId) -> u64 {
    let mut hasher = DefaultHasher::new();
    (own, other).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::RoutingMetrics;
    use super::*;

    /// Connects to nobody.
    struct Nobody;

    impl Make for Nobody {
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

    /// Thirty-two members of one site, two hundred others of ten nodes each.
    #[test]
    fn connections_grow_with_the_sites_and_are_spread_over_their_nodes() {
        let others: Vec<Member> = (0..2_000).map(|number| member(number, number / 10)).collect();
        let mut asked: HashMap<NodeId, usize> = HashMap::new();
        for own in 0..32 {
            let mine = chosen(member(100_000 + own, 999).id, others.iter().collect(), &HashMap::new());
            assert_eq!(mine.len(), 200 * PER_SITE_MAX);
            for id in ids(&mine) {
                *asked.entry(id).or_default() += 1;
            }
        }
        // 32 times three over ten: 9.6 each.
        assert!(asked.len() > 1_990, "{}", asked.len());
        assert!(asked.values().all(|count| *count <= 24), "{:?}", asked.values().max());
    }

    #[test]
    fn who_goes_is_replaced_and_nobody_else_moves() {
        let others: Vec<Member> = (0..100).map(|number| member(number, number / 10)).collect();
        let own = member(1_000, 99).id;
        let before = ids(&chosen(own, others.iter().collect(), &HashMap::new()));
        for gone in &before {
            let rest = others.iter().filter(|member| member.id != *gone).collect();
            let after = ids(&chosen(own, rest, &HashMap::new()));
            assert_eq!(after.len(), before.len());
            assert_eq!(before.difference(&after).collect::<Vec<_>>(), [gone]);
        }
    }

    /// What is connected to is what a look at everything would choose, whatever came, changed and went before.
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

    proptest! {
        #[test]
        fn what_changed_alone_is_looked_at(
            held in proptest::collection::vec(proptest::collection::vec(0..40_u32, 0..30), 1..6),
            steps in proptest::collection::vec((0..40_u32, 0..4_u8), 1..30),
        ) {
            let own = member(1_000, 99).id;
            let (mut links, mut members) = (Links::new(own, &RouterOptions::default()), HashMap::new());
            let now = Instant::now();
            let mut holders = Vec::new();
            for numbers in held {
                let one = Arc::new(Holders::default());
                one.change(numbers.iter().map(|number| member(*number, 0).id).collect());
                links.add(&one, &members, &Nobody);
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
                links.renew(&members, &HashSet::from([other.id]), &Nobody);
                links.share(&members, &Nobody, now);
                is_as_chosen(&links, own, &holders, &members);
            }
        }
    }
}
