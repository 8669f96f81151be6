//! Which nodes a node is connected to: of each site a few, another few for each of those that ask it. So a node has some
//! connections to each site however many nodes are there, a site's load is spread over all of its nodes, and who goes is
//! replaced by whoever comes next in the same order (rendezvous hashing).

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Weak};

use super::holders::Holders;
use super::peer::Peer;
use super::{Member, NodeId};

/// Nodes of one site that hold the same keys and that a node is connected to: as many as are asked for one signature.
pub const PER_SITE_MAX: usize = super::TRIES_MAX;

/// The connections that are kept, and for whose sake.
#[derive(Default)]
pub(super) struct Links {
    peers: HashMap<NodeId, Link>,
    holders: Vec<Weak<Holders>>,
}

struct Link {
    peer: Arc<Peer>,
    /// Holders that want it.
    wanted: usize,
}

impl Drop for Link {
    /// It is asked no more; what is under way there is lost, and asked of others.
    fn drop(&mut self) {
        self.peer.leave();
    }
}

impl Links {
    pub(super) fn peers(&self) -> impl Iterator<Item = &Arc<Peer>> {
        self.peers.values().map(|link| &link.peer)
    }

    /// Connects to those that these holders want, now and with each change of the members.
    pub(super) fn add(
        &mut self,
        own: NodeId,
        holders: &Arc<Holders>,
        members: &HashMap<NodeId, Member>,
        begin: impl FnMut(&Member) -> Arc<Peer>,
    ) {
        self.holders.push(Arc::downgrade(holders));
        self.link(own, holders, members, begin);
    }

    /// Other members, of which these came, changed or went. What they hold is looked at again; all else keeps its connections.
    pub(super) fn renew(
        &mut self,
        own: NodeId,
        members: &HashMap<NodeId, Member>,
        changed: &HashSet<NodeId>,
        mut begin: impl FnMut(&Member) -> Arc<Peer>,
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
            self.link(own, &holders, members, &mut begin);
        }
        self.peers.retain(|_, link| link.wanted > 0);
    }

    /// Connects to those that these holders want now, and to nobody else for their sake.
    pub(super) fn link(
        &mut self,
        own: NodeId,
        holders: &Holders,
        members: &HashMap<NodeId, Member>,
        mut begin: impl FnMut(&Member) -> Arc<Peer>,
    ) {
        let mut linked = Vec::new();
        for member in chosen(own, holders.living(members)) {
            let new = || Link { peer: begin(member), wanted: 0 };
            let link = self.peers.entry(member.id).or_insert_with(new);
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
                if link.wanted == 0 {
                    self.peers.remove(&id);
                }
            }
        }
    }
}

/// Of each site those that come first for this node.
fn chosen(own: NodeId, living: Vec<&Member>) -> Vec<&Member> {
    let mut by_site: HashMap<&str, Vec<(u64, &Member)>> = HashMap::new();
    for member in living {
        let first = by_site.entry(&member.site).or_default();
        let rank = (rank(own, member.id), member);
        let at = first.partition_point(|other| other.0 <= rank.0);
        if at < PER_SITE_MAX {
            first.insert(at, rank);
            first.truncate(PER_SITE_MAX);
        }
    }
    by_site.into_values().flatten().map(|(_, member)| member).collect()
}

fn rank(own: NodeId, other: NodeId) -> u64 {
    let mut hasher = DefaultHasher::new();
    (own, other).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio_util::sync::CancellationToken;

    use super::super::RoutingMetrics;
    use super::*;

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
            let mine = chosen(member(100_000 + own, 999).id, others.iter().collect());
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
        let before = ids(&chosen(own, others.iter().collect()));
        for gone in &before {
            let rest = others.iter().filter(|member| member.id != *gone).collect();
            let after = ids(&chosen(own, rest));
            assert_eq!(after.len(), before.len());
            assert_eq!(before.difference(&after).collect::<Vec<_>>(), [gone]);
        }
    }

    /// What is connected to is what a look at everything would choose, whatever came, changed and went before.
    fn is_as_chosen(links: &Links, own: NodeId, holders: &[Arc<Holders>], members: &HashMap<NodeId, Member>) {
        let mut all = HashSet::new();
        for holders in holders {
            let linked: HashSet<NodeId> = holders.linked().iter().map(|peer| peer.member().id).collect();
            assert_eq!(linked, ids(&chosen(own, holders.living(members))));
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
            let (mut links, mut members) = (Links::default(), HashMap::new());
            let own = member(1_000, 99).id;
            let begin = |member: &Member| {
                let metrics = RoutingMetrics::default().of(&member.site);
                Arc::new(Peer::new(member.clone(), metrics, CancellationToken::new(), Arc::default()))
            };
            let mut holders = Vec::new();
            for numbers in held {
                let one = Arc::new(Holders::default());
                one.change(numbers.iter().map(|number| member(*number, 0).id).collect());
                links.add(own, &one, &members, begin);
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
                links.renew(own, &members, &HashSet::from([other.id]), begin);
                is_as_chosen(&links, own, &holders, &members);
            }
        }
    }
}
