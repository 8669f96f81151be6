//! The nodes there are, as the control plane states it.

use std::collections::{HashMap, HashSet};

use keyless::places::{Formula, SignedStatement, Statement};
use keyless::routing::{Member, NodeId};
use uuid::Uuid;

use super::folder::KnownMembers;
use crate::work::Membership;

/// Who is there, by its identity.
type Nodes = HashMap<Uuid, (SignedStatement, Statement)>;

/// All nodes, this one among them. What is stated of one that no longer answers stays while nobody says otherwise: a
/// control plane that is away takes nobody's peers.
pub(super) struct Members {
    /// Signs statements: DER.
    statement_key: Vec<u8>,
    since: i64,
    nodes: Nodes,
    /// What is being told anew, and is not whole yet.
    anew: Option<Nodes>,
}

impl Members {
    /// As they were known last.
    pub(super) fn restored(known: KnownMembers, statement_key: Vec<u8>) -> Self {
        let nodes = verified(&statement_key, known.nodes);
        Self { statement_key, since: known.since, nodes, anew: None }
    }

    /// To be kept.
    pub(super) fn known(&self) -> KnownMembers {
        let nodes = self.nodes.values().map(|(signed, _)| signed.clone()).collect();
        KnownMembers { since: self.since, nodes }
    }

    /// To be sent with the next beat.
    pub(super) fn since(&self) -> i64 {
        self.since
    }

    /// Takes an answer; who came, changed or went.
    pub(super) fn take(&mut self, told: Membership) -> Vec<Uuid> {
        self.since = told.since;
        if told.anew {
            self.anew = Some(Nodes::new());
        }
        let came = verified(&self.statement_key, told.nodes);
        // A statement that is only newer says nothing new.
        let is_other = |(node, told): (&Uuid, &(SignedStatement, Statement))| {
            let is_same = self.nodes.get(node).is_some_and(|known| is_same(&known.1, &told.1));
            (!is_same).then_some(*node)
        };
        let mut changed: Vec<Uuid> =
            came.iter().filter_map(is_other).chain(told.gone.iter().copied()).collect();
        let into = self.anew.as_mut().unwrap_or(&mut self.nodes);
        into.extend(came);
        told.gone.iter().for_each(|gone| drop(into.remove(gone)));
        if told.more && self.anew.is_some() {
            return Vec::new();
        }
        if let Some(anew) = self.anew.take() {
            changed = self.nodes.keys().chain(anew.keys()).copied().collect();
            self.nodes = anew;
        }
        changed
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Whether a node is there and can open what is sealed to this.
    pub(super) fn satisfies(&self, node: Uuid, formula: &Formula) -> bool {
        self.nodes.get(&node).is_some_and(|(_, statement)| formula.satisfied_by(&statement.attributes))
    }

    /// As a router wants them.
    pub(super) fn list(&self) -> Vec<Member> {
        let member = |statement: &Statement| Member {
            id: NodeId(*statement.node.as_bytes()),
            name: statement.name.clone(),
            site: statement.site.clone(),
            address: statement.address.clone(),
            tls_spki_sha256: statement.tls_spki_sha256,
        };
        self.nodes.values().map(|(_, statement)| member(statement)).collect()
    }

    /// Who can open what is sealed to this.
    pub(super) fn satisfying(&self, formula: &Formula) -> HashSet<NodeId> {
        let those = self.nodes.keys().filter(|node| self.satisfies(**node, formula));
        those.map(|node| NodeId(*node.as_bytes())).collect()
    }
}

/// Whether both say the same of a node, but for when.
fn is_same(known: &Statement, told: &Statement) -> bool {
    let (issued_at_s, not_after_s) = (told.issued_at_s, told.not_after_s);
    Statement { issued_at_s, not_after_s, ..known.clone() } == *told
}

/// Those that the control plane has signed.
fn verified(key: &[u8], statements: Vec<SignedStatement>) -> Nodes {
    let mut nodes = Nodes::new();
    for signed in statements {
        match signed.verify(key) {
            Ok(statement) => drop(nodes.insert(statement.node, (signed, statement))),
            Err(error) => tracing::warn!(%error, "a statement about a node is not believed"),
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
    async fn who_is_told_of_is_there_and_what_is_forged_is_not() {
        let key = PrivateKey::generate(KeyType::Ed25519).unwrap();
        let stranger = PrivateKey::generate(KeyType::Ed25519).unwrap();
        let mut members = Members::restored(KnownMembers::default(), key.spki().to_vec());
        let nodes =
            vec![stated(&key, 1, "DE").await, stated(&key, 2, "US").await, stated(&stranger, 3, "DE").await];
        let told = Membership { since: 3, anew: true, nodes, ..Membership::default() };
        assert_eq!(members.take(told).len(), 2);
        assert_eq!(names(&members), ["node-1", "node-2"]);
        let german: Formula = "country: DE".parse().unwrap();
        assert_eq!(members.satisfying(&german), HashSet::from([NodeId(1_u128.to_be_bytes())]));
        let told = Membership { since: 4, gone: vec![Uuid::from_u128(1)], ..Membership::default() };
        assert_eq!(members.take(told), [Uuid::from_u128(1)]);
        assert!(members.take(Membership { since: 4, ..Membership::default() }).is_empty());
        assert_eq!((names(&members), members.since()), (vec!["node-2".to_owned()], 4));
        let again = Members::restored(members.known(), key.spki().to_vec());
        assert_eq!((names(&again), again.since()), (names(&members), 4));
        let other = Members::restored(members.known(), stranger.spki().to_vec());
        assert!(names(&other).is_empty(), "of another control plane");
    }

    #[tokio::test]
    async fn what_is_told_anew_counts_once_it_is_whole() {
        let key = PrivateKey::generate(KeyType::Ed25519).unwrap();
        let mut members = Members::restored(KnownMembers::default(), key.spki().to_vec());
        let anew = |nodes| Membership { since: 9, anew: true, nodes, ..Membership::default() };
        members.take(anew(vec![stated(&key, 1, "DE").await]));
        let half = Membership { more: true, ..anew(vec![stated(&key, 2, "DE").await]) };
        assert!(members.take(half).is_empty());
        assert_eq!(names(&members), ["node-1"]);
        let rest =
            Membership { since: 10, nodes: vec![stated(&key, 3, "DE").await], ..Membership::default() };
        assert_eq!(members.take(rest).len(), 3, "one that went, two that came");
        assert_eq!(names(&members), ["node-2", "node-3"]);
    }
}
