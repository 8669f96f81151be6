//! Detours: if a node has lost its path to a destination, it asks other nodes (helpers) to forward its requests. Helpers are nodes
//! of its own site, of the destination's site, and some of other sites. Requests use the same connection as the pings.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use super::rendezvous::rank;
use crate::node::{Member, NodeId};

/// Maximum helpers for one destination: at this node's site, at the destination's site, and at all other sites.
const HELPERS: [usize; 3] = [2, 2, 4];
/// Maximum destinations with detours. If more destinations are lost, this node itself has lost its network, and opens no
/// connections for detours.
const DETOURS_MAX: usize = 64;

/// Destinations without a path, and the helpers of each.
#[derive(Debug, Default)]
pub(super) struct Detours(BTreeMap<NodeId, Detour>);

#[derive(Debug)]
struct Detour {
    helpers: Vec<NodeId>,
    /// Number of times that the helpers were replaced because none reached the destination.
    round: u64,
    since: Instant,
}

impl Detours {
    /// Plans detours to the destinations without a direct path; `own` is this node and its site. Helpers that do not reach their
    /// destination in time are replaced.
    pub(super) fn plan(
        &mut self,
        own: (NodeId, Option<&str>),
        lost: &BTreeSet<NodeId>,
        members: &HashMap<NodeId, Member>,
        is_reached: impl Fn(NodeId) -> bool,
        (within, now): (Duration, Instant),
    ) {
        self.0.retain(|node, _| lost.contains(node));
        for node in lost {
            let Some(destination) = members.get(node) else { continue };
            if let Some(detour) = self.0.get_mut(node) {
                if is_reached(*node) {
                    detour.since = now;
                } else if now.saturating_duration_since(detour.since) > within {
                    detour.round += 1;
                    detour.since = now;
                    detour.helpers = helpers(own, destination, members, detour.round);
                }
            } else if self.0.len() < DETOURS_MAX {
                let helpers = helpers(own, destination, members, 0);
                self.0.insert(*node, Detour { helpers, round: 0, since: now });
            }
        }
    }

    /// Returns whether a detour to this destination exists or is planned.
    pub(super) fn has(&self, node: NodeId) -> bool {
        self.0.contains_key(&node)
    }

    /// Returns the helpers for this destination.
    pub(super) fn of(&self, node: NodeId) -> &[NodeId] {
        self.0.get(&node).map(|detour| &detour.helpers[..]).unwrap_or_default()
    }

    /// Returns whether the first helpers may reach the destination soon. Requests do not wait for later helpers.
    pub(super) fn may_reach(&self, node: NodeId) -> bool {
        self.0.get(&node).is_some_and(|detour| detour.round == 0 && !detour.helpers.is_empty())
    }

    /// Returns the helpers of all detours.
    pub(super) fn helpers(&self) -> BTreeSet<NodeId> {
        self.0.values().flat_map(|detour| detour.helpers.iter().copied()).collect()
    }

    /// Adds to `wanted` the destinations that this node wants to reach through each helper.
    pub(super) fn add_wanted(&self, wanted: &mut HashMap<NodeId, BTreeSet<NodeId>>) {
        for (node, detour) in &self.0 {
            for helper in &detour.helpers {
                wanted.entry(*helper).or_default().insert(*node);
            }
        }
    }
}

/// Returns the helpers of this round; nodes of this node's site come first.
fn helpers(
    (own, site): (NodeId, Option<&str>),
    destination: &Member,
    members: &HashMap<NodeId, Member>,
    round: u64,
) -> Vec<NodeId> {
    let mut groups: [Vec<(u64, NodeId)>; 3] = Default::default();
    for member in members.values().filter(|member| member.id != own && member.id != destination.id) {
        let group_index = match &member.site {
            of if Some(of.as_str()) == site => 0,
            of if *of == destination.site => 1,
            _ => 2,
        };
        groups[group_index].push((rank(own, member.id), member.id));
    }
    let mut chosen = Vec::new();
    for (mut group, most) in groups.into_iter().zip(HELPERS) {
        group.sort_unstable();
        let count = group.len();
        // Each round uses the next nodes in the same order, and wraps around at the end.
        let skipped = usize::try_from(round).unwrap_or_default().wrapping_mul(most) % count.max(1);
        let next = group.iter().cycle().skip(skipped).take(most.min(count));
        chosen.extend(next.map(|(_, node)| *node));
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: NodeId = NodeId([0; 16]);
    const WITHIN: Duration = Duration::from_secs(5);

    fn member(number: u8, site: &str) -> (NodeId, Member) {
        let id = NodeId([number; 16]);
        let (name, address) = (number.to_string(), "127.0.0.1:1".to_owned());
        let tls_spki_sha256 = x509::SpkiHash::of(&[number]);
        (id, Member { id, name, site: site.to_owned(), address, tls_spki_sha256 })
    }

    #[test]
    fn detour_helpers_span_sites_and_are_replaced_when_none_connects() {
        let local = (1..=3).map(|number| member(number, "here"));
        let remote = (10..=13).map(|number| member(number, "there"));
        let elsewhere = (20..=39).map(|number| member(number, "elsewhere"));
        let members: HashMap<_, _> = local.chain(remote).chain(elsewhere).collect();
        let destination = NodeId([10; 16]);
        let lost = BTreeSet::from([destination]);
        let mut detours = Detours::default();
        let now = Instant::now();
        let mut plan = |is_reached: bool, after: u32| {
            detours.plan(
                (OWN, Some("here")),
                &lost,
                &members,
                |_| is_reached,
                (WITHIN, now + WITHIN * after),
            );
            (detours.of(destination).to_vec(), detours.may_reach(destination))
        };
        let (first, may_come) = plan(false, 0);
        let of = |site: &str| first.iter().filter(|node| members[*node].site == site).count();
        assert_eq!([of("here"), of("there"), of("elsewhere")], HELPERS);
        assert!(may_come && !first.contains(&destination));
        assert_eq!(plan(true, 2), (first.clone(), true), "one of them reaches it");
        assert_eq!(plan(false, 3), (first.clone(), true), "for less than the time that they have");
        let (next, may_come) = plan(false, 4);
        assert!(!may_come, "nobody waits for the next ones");
        let is_new = |node: &&NodeId| members[*node].site == "elsewhere" && !first.contains(node);
        assert_eq!(next.iter().filter(is_new).count(), HELPERS[2]);
        detours.plan((OWN, Some("here")), &BTreeSet::new(), &members, |_| false, (WITHIN, now));
        assert!(!detours.has(destination) && detours.helpers().is_empty());
    }

    #[test]
    fn single_node_without_helpers_does_not_wait_for_a_detour() {
        let members = HashMap::from([member(1, "there")]);
        let destination = NodeId([1; 16]);
        let mut detours = Detours::default();
        let lost = BTreeSet::from([destination]);
        detours.plan((OWN, Some("here")), &lost, &members, |_| false, (WITHIN, Instant::now()));
        assert!(detours.has(destination) && !detours.may_reach(destination));
    }
}
