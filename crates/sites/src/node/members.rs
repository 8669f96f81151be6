//! The members: nodes that the control plane's statements name.

use std::collections::{HashMap, HashSet};

use keyless::places::{Formula, SignedStatement, Statement};
use keyless::routing::{Member, NodeId};
use uuid::Uuid;

use super::folder::KnownMembers;
use crate::work::Membership;

/// The statement about a member, and whether the member is absent.
struct Known {
    signed: SignedStatement,
    statement: Statement,
    /// Whether the control plane does not receive the node's heartbeats. The node stays a member until its statement expires.
    is_absent: bool,
}

/// Members by id.
type Nodes = HashMap<Uuid, Known>;

/// Changes from a response of the control plane.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct MemberChanges {
    /// Nodes that were added, changed or removed.
    pub(super) changed: Vec<Uuid>,
    /// Nodes whose heartbeats the control plane no longer receives.
    pub(super) absent: Vec<Uuid>,
}

/// All members, including this node. A statement stays valid until another replaces it or it expires, so no peer is lost while the
/// control plane is unreachable. Nodes whose heartbeats the control plane does not receive stay members too: only a direct
/// connection shows whether a node is reachable from here.
pub(super) struct Members {
    /// Public key that verifies statements, in DER.
    statement_key: Vec<u8>,
    since: i64,
    nodes: Nodes,
    /// The members of a repeated full listing that is not yet complete.
    anew: Option<Nodes>,
}

impl Members {
    /// Restores the last known members.
    pub(super) fn restored(known: KnownMembers, statement_key: Vec<u8>) -> Self {
        let mut nodes = verified(&statement_key, known.nodes, false);
        nodes.extend(verified(&statement_key, known.absent, true));
        Self { statement_key, since: known.since, nodes, anew: None }
    }

    /// Returns the members to store.
    pub(super) fn known(&self) -> KnownMembers {
        let those = |is_absent| {
            let those = self.nodes.values().filter(move |known| known.is_absent == is_absent);
            those.map(|known| known.signed.clone()).collect()
        };
        KnownMembers { since: self.since, nodes: those(false), absent: those(true) }
    }

    /// Returns the change number to send with the next heartbeat.
    pub(super) fn since(&self) -> i64 {
        self.since
    }

    /// Applies a response. `now_s` is the control plane's time, in seconds since 1970-01-01 UTC.
    pub(super) fn take(&mut self, update: Membership, now_s: i64) -> MemberChanges {
        self.since = update.since;
        if update.anew {
            self.anew = Some(Nodes::new());
        }
        let mut absent = verified(&self.statement_key, update.absent, true);
        absent.retain(|_, known| known.statement.holds_at(now_s));
        let was_present = |node: &&Uuid| self.nodes.get(*node).is_some_and(|known| !known.is_absent);
        let newly_absent = absent.keys().filter(was_present).copied().collect();
        let gone: Vec<Uuid> = update.gone.into_iter().filter(|node| !absent.contains_key(node)).collect();
        let mut came = verified(&self.statement_key, update.nodes, false);
        came.extend(absent);
        // A statement that differs only in its time changes nothing.
        let is_other = |(node, update): (&Uuid, &Known)| {
            let known = self.nodes.get(node);
            let is_same = known.is_some_and(|known| is_same(&known.statement, &update.statement));
            (!is_same).then_some(*node)
        };
        let mut changed: Vec<Uuid> = came.iter().filter_map(is_other).chain(gone.iter().copied()).collect();
        let into = self.anew.as_mut().unwrap_or(&mut self.nodes);
        into.extend(came);
        gone.iter().for_each(|gone| drop(into.remove(gone)));
        if update.more && self.anew.is_some() {
            return MemberChanges { changed: Vec::new(), absent: newly_absent };
        }
        if let Some(anew) = self.anew.take() {
            changed = self.nodes.keys().chain(anew.keys()).copied().collect();
            self.nodes = anew;
        }
        changed.extend(self.expire(now_s));
        MemberChanges { changed, absent: newly_absent }
    }

    /// Removes absent members whose statements have expired. Returns their ids.
    fn expire(&mut self, now_s: i64) -> Vec<Uuid> {
        let is_over = |known: &Known| known.is_absent && !known.statement.holds_at(now_s);
        self.nodes.extract_if(|_, known| is_over(known)).map(|(node, _)| node).collect()
    }

    /// Returns the number of members.
    pub(super) fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns whether a node is a member and can open values that are sealed to this formula.
    pub(super) fn satisfies(&self, node: Uuid, formula: &Formula) -> bool {
        self.nodes.get(&node).is_some_and(|known| formula.satisfied_by(&known.statement.attributes))
    }

    /// Returns the members for the router.
    pub(super) fn list(&self) -> Vec<Member> {
        let member = |statement: &Statement| Member {
            id: NodeId(*statement.node.as_bytes()),
            name: statement.name.clone(),
            site: statement.site.clone(),
            address: statement.address.clone(),
            tls_spki_sha256: statement.tls_spki_sha256,
        };
        self.nodes.values().map(|known| member(&known.statement)).collect()
    }

    /// Returns the nodes that satisfy a formula, and can therefore open values that are sealed to it.
    pub(super) fn satisfying(&self, formula: &Formula) -> HashSet<NodeId> {
        let those = self.nodes.keys().filter(|node| self.satisfies(**node, formula));
        those.map(|node| NodeId(*node.as_bytes())).collect()
    }
}

/// Returns whether both statements differ at most in their times.
fn is_same(known: &Statement, update: &Statement) -> bool {
    let (issued_at_s, not_after_s) = (update.issued_at_s, update.not_after_s);
    Statement { issued_at_s, not_after_s, ..known.clone() } == *update
}

/// Returns the statements with a valid signature of the control plane.
fn verified(key: &[u8], statements: Vec<SignedStatement>, is_absent: bool) -> Nodes {
    let mut nodes = Nodes::new();
    for signed in statements {
        match signed.verify(key) {
            Ok(statement) => drop(nodes.insert(statement.node, Known { signed, statement, is_absent })),
            Err(error) => tracing::warn!(%error, "an invalid statement about a node was rejected"),
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use keys::sealed::NodeKey;
    use keys::{KeyType, PrivateKey, Signer};
    use x509::SpkiHash;

    use super::*;

    async fn stated(by: &PrivateKey, id: u128, country: &str) -> SignedStatement {
        let statement = Statement {
            node: Uuid::from_u128(id),
            name: format!("node-{id}"),
            site: "fra".to_owned(),
            address: "127.0.0.1:1".to_owned(),
            kem: NodeKey::generate().unwrap().public().clone(),
            tls_spki_sha256: SpkiHash::of(b"x"),
            attributes: serde_json::from_value(serde_json::json!({"country": country})).unwrap(),
            issued_at_s: 0,
            not_after_s: 1,
        };
        statement.sign(by, Instant::now() + Duration::from_secs(60)).await.unwrap()
    }

    fn names(members: &Members) -> Vec<String> {
        let mut names: Vec<_> = members.list().into_iter().map(|member| member.name).collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn valid_statements_make_members_and_forged_ones_do_not() {
        let key = PrivateKey::generate(KeyType::Ed25519).unwrap();
        let stranger = PrivateKey::generate(KeyType::Ed25519).unwrap();
        let mut members = Members::restored(KnownMembers::default(), key.spki().to_vec());
        let nodes =
            vec![stated(&key, 1, "DE").await, stated(&key, 2, "US").await, stated(&stranger, 3, "DE").await];
        let update = Membership { since: 3, anew: true, nodes, ..Membership::default() };
        assert_eq!(members.take(update, 0).changed.len(), 2);
        assert_eq!(names(&members), ["node-1", "node-2"]);
        let german: Formula = "country: DE".parse().unwrap();
        assert_eq!(members.satisfying(&german), HashSet::from([NodeId(1_u128.to_be_bytes())]));
        let update = Membership { since: 4, gone: vec![Uuid::from_u128(1)], ..Membership::default() };
        assert_eq!(members.take(update, 0).changed, [Uuid::from_u128(1)]);
        let nothing = members.take(Membership { since: 4, ..Membership::default() }, 0);
        assert_eq!(nothing, MemberChanges::default());
        assert_eq!((names(&members), members.since()), (vec!["node-2".to_owned()], 4));
        let restored = Members::restored(members.known(), key.spki().to_vec());
        assert_eq!((names(&restored), restored.since()), (names(&members), 4));
        let other = Members::restored(members.known(), stranger.spki().to_vec());
        assert!(names(&other).is_empty(), "of another control plane");
    }

    /// A report that a node is absent does not remove the node. The expiry of its statement or its retirement does.
    #[tokio::test]
    async fn absent_node_stays_a_member_until_its_statement_expires() {
        let key = PrivateKey::generate(KeyType::Ed25519).unwrap();
        let (one, other) = (stated(&key, 1, "DE").await, stated(&key, 2, "DE").await);
        let (first, second) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut members = Members::restored(KnownMembers::default(), key.spki().to_vec());
        let nodes = vec![one.clone(), other.clone()];
        members.take(Membership { since: 1, anew: true, nodes, ..Membership::default() }, 0);
        let absent = |since, absent: Vec<SignedStatement>, gone: &[Uuid]| Membership {
            since,
            absent,
            gone: gone.to_vec(),
            ..Membership::default()
        };
        let changes = members.take(absent(2, vec![one.clone()], &[first]), 0);
        assert_eq!((changes.changed, changes.absent), (vec![], vec![first]));
        assert_eq!(names(&members), ["node-1", "node-2"]);
        assert_eq!(
            members.take(absent(2, vec![one.clone()], &[first]), 0),
            MemberChanges::default(),
            "told twice"
        );

        // The absent node also stays a member after a restart, and after a full listing.
        let restored = Members::restored(members.known(), key.spki().to_vec());
        assert_eq!(names(&restored), ["node-1", "node-2"]);
        members.take(Membership { anew: true, nodes: vec![other], ..absent(3, vec![one.clone()], &[]) }, 0);
        assert_eq!(names(&members), ["node-1", "node-2"]);

        // The node sends heartbeats again, and then none until its statement expires at 1 s.
        members.take(Membership { since: 4, nodes: vec![one.clone()], ..Membership::default() }, 5);
        assert_eq!(names(&members), ["node-1", "node-2"]);
        members.take(absent(5, vec![one.clone()], &[first]), 0);
        let changes = members.take(Membership { since: 5, ..Membership::default() }, 1);
        assert_eq!((changes.changed, names(&members)), (vec![first], vec!["node-2".to_owned()]));

        // An older server that reports no absent nodes, and a retirement: both remove a node immediately.
        members.take(absent(6, vec![], &[second]), 0);
        assert!(names(&members).is_empty());
        // An expired statement makes no node a member.
        members.take(absent(7, vec![one], &[first]), 1);
        assert!(names(&members).is_empty());
    }

    #[tokio::test]
    async fn full_member_listing_takes_effect_when_complete() {
        let key = PrivateKey::generate(KeyType::Ed25519).unwrap();
        let mut members = Members::restored(KnownMembers::default(), key.spki().to_vec());
        let anew = |nodes| Membership { since: 9, anew: true, nodes, ..Membership::default() };
        members.take(anew(vec![stated(&key, 1, "DE").await]), 0);
        let half = Membership { more: true, ..anew(vec![stated(&key, 2, "DE").await]) };
        assert_eq!(members.take(half, 0), MemberChanges::default());
        assert_eq!(names(&members), ["node-1"]);
        let rest =
            Membership { since: 10, nodes: vec![stated(&key, 3, "DE").await], ..Membership::default() };
        assert_eq!(members.take(rest, 0).changed.len(), 3, "one that went, two that came");
        assert_eq!(names(&members), ["node-2", "node-3"]);
    }
}
