//! Who is there, as a node believes it: statements that the control plane signed and that still hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use keyless::places::{SignedStatement, Statement};
use uuid::Uuid;

use crate::places::work::Membership;

/// The nodes that are there, by their identities.
#[derive(Clone, Debug, Default)]
pub struct Members {
    since: i64,
    nodes: BTreeMap<Uuid, Arc<Statement>>,
}

impl Members {
    /// What is said of a node that is there.
    #[must_use]
    pub fn get(&self, node: Uuid) -> Option<&Arc<Statement>> {
        self.nodes.get(&node)
    }

    /// All that are there.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Statement>> {
        self.nodes.values()
    }

    /// How many are there.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether nobody is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Up to which change all is known.
    pub(super) fn since(&self) -> i64 {
        self.since
    }

    /// Takes what the control plane told; whether anything is otherwise now. What the key did not sign, or is over at
    /// `now_s`, is not believed.
    pub(super) fn take(&mut self, told: Membership, key: &[u8], now_s: i64) -> bool {
        let mut changed = self.forget_ended(now_s);
        if told.anew {
            changed |= !self.nodes.is_empty();
            self.nodes.clear();
        }
        for signed in &told.nodes {
            match believed(signed, key, now_s) {
                Some(statement) => {
                    self.nodes.insert(statement.node, Arc::new(statement));
                    changed = true;
                }
                None => tracing::warn!("a statement about a node is not to be believed, or over"),
            }
        }
        for node in &told.gone {
            changed |= self.nodes.remove(node).is_some();
        }
        self.since = told.since;
        changed
    }

    /// Lets go of statements that are over; whether there were any.
    pub(super) fn forget_ended(&mut self, now_s: i64) -> bool {
        let before = self.nodes.len();
        self.nodes.retain(|_, statement| statement.holds_at(now_s));
        self.nodes.len() != before
    }
}

fn believed(signed: &SignedStatement, key: &[u8], now_s: i64) -> Option<Statement> {
    signed.verify(key).ok().filter(|statement| statement.holds_at(now_s))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use keyless::places::Attributes;
    use keys::sealed::NodeKey;
    use keys::{KeyType, PrivateKey, Signer};
    use x509::SpkiHash;

    use super::*;

    async fn signed(by: &PrivateKey, node: u128, not_after_s: i64) -> SignedStatement {
        let statement = Statement {
            node: Uuid::from_u128(node),
            name: node.to_string(),
            site: "berlin".to_owned(),
            address: "a:1".to_owned(),
            kem: NodeKey::generate().unwrap().public().clone(),
            tls_spki_sha256: SpkiHash::of(b""),
            attributes: Attributes::new(),
            issued_at_s: 0,
            not_after_s,
        };
        statement.sign(by, Instant::now() + Duration::from_secs(60)).await.unwrap()
    }

    fn names(members: &Members) -> Vec<&str> {
        members.iter().map(|statement| statement.name.as_str()).collect()
    }

    #[tokio::test]
    async fn only_what_is_signed_and_holds_is_believed() {
        let make = || PrivateKey::generate(KeyType::Ed25519).unwrap();
        let (ours, other) = (make(), make());
        let mut members = Members::default();
        let nodes =
            vec![signed(&ours, 1, 100).await, signed(&other, 2, 100).await, signed(&ours, 3, 10).await];
        let told = Membership { since: 7, anew: true, nodes, ..Membership::default() };
        assert!(members.take(told, ours.spki(), 10));
        assert_eq!(
            (names(&members), members.since()),
            (vec!["1"], 7),
            "the second is forged, the third is over"
        );
        let nothing = Membership { since: 7, ..Membership::default() };
        assert!(!members.take(nothing, ours.spki(), 99));
        let over = Membership { since: 7, ..Membership::default() };
        assert!(
            members.take(over, ours.spki(), 100) && members.is_empty(),
            "nobody had to say that it is over"
        );
    }

    #[tokio::test]
    async fn who_goes_is_gone_and_what_begins_anew_forgets_the_rest() {
        let ours = PrivateKey::generate(KeyType::Ed25519).unwrap();
        let mut members = Members::default();
        let nodes = vec![signed(&ours, 1, 100).await, signed(&ours, 2, 100).await];
        members.take(Membership { since: 2, nodes, ..Membership::default() }, ours.spki(), 0);
        let gone = vec![Uuid::from_u128(1), Uuid::from_u128(9)];
        assert!(members.take(Membership { since: 3, gone, ..Membership::default() }, ours.spki(), 0));
        assert_eq!(names(&members), ["2"]);
        let nodes = vec![signed(&ours, 3, 100).await];
        members.take(Membership { since: 1, anew: true, nodes, ..Membership::default() }, ours.spki(), 0);
        assert_eq!((names(&members), members.since(), members.len()), (vec!["3"], 1, 1));
        assert!(members.get(Uuid::from_u128(3)).is_some());
    }
}
