//! The life cycle of key policies and the keys sealed to them. A node consists of its keys and the state that it reads.

use std::collections::HashMap;

use authority::keystore::KeyStore;
use keys::sealed::{KemPublic, NodeKey, PolicyKey, SealContext, WrapContext, seal_key};
use keys::{KeyType, Keyring, PrivateKey, Signer as _};
use sites::policies::{GENERATIONS_MAX, KeyPolicies, NewSealedKey, PolicyError, PolicyView, ReconcileResult};
use sites::tables::{
    KeyStateChanges, NodeRetirement, NodeRow, SealedKeyRow, SiteRow, insert_node, insert_site, retire_node,
    take_changes, update_site,
};
use store::{AuditFilter, Clock, Store, StoreUrl};
use uuid::Uuid;
use x509::SpkiHash;

const ALICE: &str = "user:alice";

struct World {
    store: Store,
    policies: KeyPolicies,
    _folder: tempfile::TempDir,
}

/// A node, as seen on its own host.
struct Node {
    id: Uuid,
    key: NodeKey,
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&StoreUrl::sqlite(folder.path().join("bulla.db"))).await.unwrap();
        let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), Clock::system());
        let policies = KeyPolicies::new(store.clone(), keystore, Clock::system());
        Self { store, policies, _folder: folder }
    }

    async fn site(&self, name: &str, attributes: &str) -> SiteRow {
        let site = SiteRow {
            id: Uuid::now_v7(),
            name: name.to_owned(),
            attributes: attributes.to_owned(),
            revision: 1,
            created_at_us: 1,
            updated_at_us: 1,
        };
        let new = site.clone();
        assert!(
            self.store
                .write("test", move |tx| Box::pin(async move { insert_site(tx, &new).await }))
                .await
                .unwrap()
        );
        site
    }

    async fn node(&self, name: &str, site: &SiteRow, attributes: &str) -> Node {
        let (id, key) = (Uuid::now_v7(), NodeKey::generate().unwrap());
        let row = NodeRow {
            id,
            name: name.to_owned(),
            site: site.id,
            site_name: site.name.clone(),
            site_attributes: site.attributes.clone(),
            attributes: attributes.to_owned(),
            address: format!("{name}.example:2410"),
            kem: key.public().as_bytes().to_vec(),
            spki_sha256: *SpkiHash::of(name.as_bytes()).as_bytes(),
            not_after_us: i64::MAX,
            statement: "{}".to_owned(),
            sign_at_us: i64::MAX,
            revision: 1,
            changed: 0,
            enrolled_at_us: 1,
            retired_at_us: None,
            hostile: false,
            lease_until_us: 0,
            present: false,
        };
        let entered = self.store.write("test", move |tx| {
            Box::pin(async move {
                let changed = take_changes(tx, 1).await?;
                insert_node(tx, &NodeRow { changed, ..row }).await
            })
        });
        assert!(entered.await.unwrap());
        Node { id, key }
    }

    async fn retire(&self, node: &Node) {
        let id = node.id;
        let retired =
            self.store.write("test", move |tx| Box::pin(retire_node(tx, id, 2, NodeRetirement::Hostile)));
        assert!(retired.await.unwrap());
    }

    async fn reconcile(&self) -> (usize, usize) {
        let ReconcileResult { made, withdrawn, failed } = self.policies.reconcile().await.unwrap();
        assert_eq!(failed, 0);
        (made, withdrawn)
    }

    async fn seal(&self, policy: &PolicyView, key: &PrivateKey) -> Result<SealedKeyRow, PolicyError> {
        let newest = policy.generations.last().unwrap();
        let to = KemPublic::parse(&newest.row.public).unwrap();
        let context = seal_context(policy.row.id, newest.row.generation, key);
        let new = NewSealedKey {
            name: "www".to_owned(),
            spki: key.spki().to_vec(),
            policy: policy.row.id,
            generation: newest.row.generation,
            blob: seal_key(&to, key, &context).unwrap(),
        };
        self.policies.put_key(new, ALICE).await
    }

    async fn state(&self, node: &Node) -> KeyStateChanges {
        let state = self.policies.state_of(node.id, 0).await.unwrap();
        assert!(!state.more);
        state
    }

    /// Returns the sealed keys that a node can open with the state that it reads.
    async fn opens(&self, node: &Node) -> Vec<SpkiHash> {
        let state = self.state(node).await;
        let mut pairs: HashMap<(Uuid, u32), PolicyKey> = HashMap::new();
        for wrap in state.wraps {
            let Some(blob) = wrap.blob else { continue };
            let (policy, id) = (wrap.policy.into_bytes(), node.id.into_bytes());
            let context = WrapContext { policy, generation: wrap.generation, node: id };
            pairs.insert((wrap.policy, wrap.generation), node.key.unwrap_seed(&blob, &context).unwrap());
        }
        let mut open = Vec::new();
        for key in state.keys {
            let Some((pair, blob)) = pairs.get(&(key.policy, key.generation)).zip(key.blob) else { continue };
            let (policy, generation) = (key.policy.into_bytes(), key.generation);
            let context = SealContext { policy, generation, spki_sha256: key.spki_sha256 };
            open.push(pair.open_key(&blob, &context).unwrap().spki_hash());
        }
        open
    }

    async fn actions(&self) -> Vec<String> {
        let page = self.store.audit_page(&AuditFilter::default(), None, 100).await.unwrap();
        page.rows.into_iter().rev().map(|event| event.action).collect()
    }
}

fn seal_context(policy: Uuid, generation: u32, key: &PrivateKey) -> SealContext {
    SealContext { policy: policy.into_bytes(), generation, spki_sha256: *key.spki_hash().as_bytes() }
}

fn key() -> PrivateKey {
    PrivateKey::generate(KeyType::P256).unwrap()
}

#[tokio::test]
async fn policy_formula_is_checked_against_enrolled_nodes() {
    let world = World::new().await;
    let nobody = world.policies.create("eu", "region: EU", ALICE).await.unwrap_err();
    assert!(nobody.to_string().contains("no node is enrolled"), "{nobody}");
    let berlin = world.site("berlin", r#"{"country":"DE","region":"EU"}"#).await;
    let tokyo = world.site("tokyo", r#"{"country":"JP"}"#).await;
    world.node("b1", &berlin, "{}").await;
    world.node("b2", &berlin, r#"{"security":"high"}"#).await;
    world.node("t1", &tokyo, "{}").await;
    let resolved = world.policies.check("country: JP or security: high").await.unwrap();
    let names: Vec<_> = resolved.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["b2", "t1"]);
    assert_eq!(resolved.nodes[0].attributes.to_string(), "country=DE region=EU security=high");
    let sites: Vec<_> =
        resolved.sites.iter().map(|site| (site.name.as_str(), site.satisfying, site.nodes)).collect();
    assert_eq!((sites, resolved.enrolled), (vec![("berlin", 1, 2), ("tokyo", 1, 1)], 3));
    // `not region: EU` is satisfied only by nodes that have the attribute.
    assert_eq!(world.policies.check("not region: EU").await.unwrap().nodes, []);
    let error = world.policies.create("us", "country: US", ALICE).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "no enrolled node satisfies `country: US`; the nodes have country: DE, JP; region: EU; security: high"
    );
    let error = world.policies.create("us", "country US", ALICE).await.unwrap_err().to_string();
    assert!(error.contains("column 9"), "{error}");
    for name in ["", "a b", "-a", "a/b", &Uuid::now_v7().to_string(), &"a".repeat(65)] {
        let error = world.policies.create(name, "country: JP", ALICE).await;
        assert!(matches!(error, Err(PolicyError::Invalid(_))), "{name:?}");
    }
    assert_eq!(world.actions().await, [""; 0], "nothing was done");
}

#[tokio::test]
async fn sealed_key_opens_only_on_nodes_that_satisfy_the_policy() {
    let world = World::new().await;
    let berlin = world.site("berlin", r#"{"country":"DE"}"#).await;
    let tokyo = world.site("tokyo", r#"{"country":"JP"}"#).await;
    let (b1, t1) = (world.node("b1", &berlin, "{}").await, world.node("t1", &tokyo, "{}").await);
    let policy = world.policies.create("de", "country: DE", ALICE).await.unwrap();
    assert_eq!(
        (policy.nodes, policy.generations[0].wrapped, &policy.generations[0].lagging),
        (1, 1, &vec![])
    );
    let taken = world.policies.create("de", "country: JP", ALICE).await;
    assert!(matches!(taken, Err(PolicyError::NameTaken(_))));
    let key = key();
    let sealed = world.seal(&policy, &key).await.unwrap();
    assert_eq!(
        (sealed.kind.as_str(), sealed.name.as_str(), sealed.created_by.as_str()),
        ("p256", "www", ALICE)
    );
    assert_eq!(world.opens(&b1).await, [key.spki_hash()]);
    // The other node has the encrypted key, but no wrapped seed that opens it.
    let state = world.state(&t1).await;
    assert_eq!((state.keys.len(), state.wraps.len(), state.policies.len()), (1, 0, 1));
    assert_eq!(world.opens(&t1).await, []);

    // A new node gets the wrapped seed that it needs. No key is resealed.
    let b2 = world.node("b2", &berlin, "{}").await;
    let before = world.policies.view(policy.row.id).await.unwrap();
    assert_eq!(before.generations[0].lagging, ["b2"]);
    assert_eq!(world.reconcile().await, (1, 0));
    assert_eq!(world.reconcile().await, (0, 0));
    assert_eq!(world.opens(&b2).await, [key.spki_hash()]);
    assert_eq!(world.state(&b2).await.keys, state.keys);

    // The site's attributes change: its nodes lose their wrapped seeds.
    let SiteRow { id, revision, .. } = berlin;
    let change = world
        .store
        .write("test", move |tx| Box::pin(update_site(tx, id, revision, "berlin", r#"{"country":"FR"}"#, 5)));
    assert!(change.await.unwrap());
    assert_eq!(world.reconcile().await, (0, 2));
    assert_eq!(world.opens(&b1).await, []);
    let view = world.policies.view(policy.row.id).await.unwrap();
    assert_eq!((view.nodes, view.generations[0].wrapped), (0, 0));
    let back = world.store.write("test", move |tx| {
        Box::pin(update_site(tx, id, revision + 1, "berlin", r#"{"country":"DE"}"#, 6))
    });
    assert!(back.await.unwrap());
    assert_eq!(world.reconcile().await, (2, 0));
    assert_eq!(world.opens(&b1).await, [key.spki_hash()]);

    world.retire(&b2).await;
    assert_eq!(world.reconcile().await, (0, 1));
    assert_eq!(world.actions().await, ["key_policy.create", "sealed_key.put"]);
}

#[tokio::test]
async fn rotation_reseals_keys_and_removes_the_old_generation() {
    let world = World::new().await;
    let berlin = world.site("berlin", r#"{"country":"DE"}"#).await;
    let (b1, b2) = (world.node("b1", &berlin, "{}").await, world.node("b2", &berlin, "{}").await);
    let policy = world.policies.create("de", "country: DE", ALICE).await.unwrap();
    let keys: Vec<_> = (0..5).map(|_| key()).collect();
    for key in &keys {
        world.seal(&policy, key).await.unwrap();
    }
    // The second node keeps the state that it has already read.
    let known = world.state(&b2).await;
    world.retire(&b2).await;
    assert_eq!(world.policies.rotate_policies_of_node(b2.id, ALICE).await.unwrap(), [policy.row.id]);
    assert_eq!(
        world.policies.rotate_policies_of_node(b2.id, ALICE).await.unwrap(),
        Vec::<Uuid>::new(),
        "nothing is left"
    );
    let rotated = world.policies.view(policy.row.id).await.unwrap();
    let figures: Vec<_> =
        rotated.generations.iter().map(|one| (one.row.generation, one.wrapped, one.keys)).collect();
    assert_eq!(figures, [(1, 1, 5), (2, 1, 0)]);
    assert_eq!(world.opens(&b1).await.len(), 5, "both open");
    let late = world.seal(&policy, &keys[0]).await;
    assert!(matches!(late, Err(PolicyError::Behind { given: 1, newest: 2 })), "{late:?}");

    assert_eq!(world.policies.reseal().await.unwrap(), 5);
    assert_eq!(world.reconcile().await, (0, 1), "what wraps the former pair is withdrawn");
    assert_eq!(world.policies.reseal().await.unwrap(), 0);
    let after = world.policies.view(policy.row.id).await.unwrap();
    let figures: Vec<_> =
        after.generations.iter().map(|one| (one.row.generation, one.wrapped, one.keys)).collect();
    assert_eq!(figures, [(2, 1, 5)]);
    let mut open = world.opens(&b1).await;
    let mut wanted: Vec<_> = keys.iter().map(PrivateKey::spki_hash).collect();
    open.sort();
    wanted.sort();
    assert_eq!(open, wanted);

    // The seed that the retired node knows opens no current key.
    let wrap = known.wraps[0].blob.as_ref().unwrap();
    let id = policy.row.id.into_bytes();
    let context = WrapContext { policy: id, generation: 1, node: b2.id.into_bytes() };
    let former = b2.key.unwrap_seed(wrap, &context).unwrap();
    for key in world.state(&b1).await.keys {
        for generation in [1, 2] {
            let context = SealContext { policy: id, generation, spki_sha256: key.spki_sha256 };
            assert!(former.open_key(key.blob.as_ref().unwrap(), &context).is_err());
        }
    }
    let actions = world.actions().await;
    assert_eq!(actions[6..], ["key_policy.rotate", "key_policy.retire_generations"]);
}

#[tokio::test]
async fn keys_are_resealed_after_every_node_has_the_new_generation() {
    let world = World::new().await;
    let berlin = world.site("berlin", r#"{"country":"DE"}"#).await;
    let b1 = world.node("b1", &berlin, "{}").await;
    let policy = world.policies.create("de", "country: DE", ALICE).await.unwrap();
    let key = key();
    world.seal(&policy, &key).await.unwrap();
    world.policies.rotate(policy.row.id, ALICE).await.unwrap();
    let b2 = world.node("b2", &berlin, "{}").await;
    assert_eq!(world.policies.reseal().await.unwrap(), 0, "one node has no pair yet");
    assert_eq!(world.reconcile().await, (2, 0));
    assert_eq!(world.policies.reseal().await.unwrap(), 1);
    for node in [&b1, &b2] {
        assert_eq!(world.opens(node).await, [key.spki_hash()]);
    }
    let error = loop {
        match world.policies.rotate(policy.row.id, ALICE).await {
            Ok(view) => assert!(view.generations.len() <= GENERATIONS_MAX),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, PolicyError::Rotating), "{error}");
    assert_eq!(world.policies.reseal().await.unwrap(), 1);
    assert!(world.policies.rotate(policy.row.id, ALICE).await.is_ok());
}

#[tokio::test]
async fn unopenable_key_keeps_its_generation_and_blocks_no_other_key() {
    let world = World::new().await;
    let berlin = world.site("berlin", r#"{"country":"DE"}"#).await;
    world.node("b1", &berlin, "{}").await;
    let policy = world.policies.create("de", "country: DE", ALICE).await.unwrap();
    let (good, bad) = (key(), key());
    let sealed = world.seal(&policy, &good).await.unwrap();
    let new = NewSealedKey {
        name: "bad".to_owned(),
        spki: bad.spki().to_vec(),
        policy: policy.row.id,
        generation: 1,
        blob: [&[1][..], &[0; 1_300]].concat(),
    };
    world.policies.put_key(new.clone(), ALICE).await.unwrap();
    world.policies.rotate(policy.row.id, ALICE).await.unwrap();
    assert_eq!(world.policies.reseal().await.unwrap(), 1);
    let view = world.policies.view(policy.row.id).await.unwrap();
    let figures: Vec<_> = view.generations.iter().map(|one| (one.row.generation, one.keys)).collect();
    assert_eq!(figures, [(1, 1), (2, 1)]);
    assert_eq!(world.policies.failures(), (0, 1));
    assert_eq!(world.policies.key(&SpkiHash::from_bytes(sealed.spki_sha256)).await.unwrap().generation, 2);
    // Once the key is sealed correctly, the old generation is removed.
    world.seal(&view, &bad).await.unwrap();
    world.policies.reseal().await.unwrap();
    assert_eq!(world.policies.view(policy.row.id).await.unwrap().generations.len(), 1);
    world.policies.reseal().await.unwrap();
    assert_eq!(world.policies.failures(), (0, 0));

    for (change, part) in [
        (NewSealedKey { blob: vec![1; 50], ..new.clone() }, "50 bytes"),
        (NewSealedKey { blob: vec![9; 1_400], ..new.clone() }, "algorithm 9"),
        (NewSealedKey { blob: [&[1][..], &[0; 1_400]].concat(), ..new.clone() }, "at most"),
        (NewSealedKey { spki: b"no key".to_vec(), ..new.clone() }, "the public key cannot be parsed"),
        (NewSealedKey { name: " a".to_owned(), ..new.clone() }, "name"),
        (NewSealedKey { policy: Uuid::now_v7(), ..new.clone() }, "no key policy"),
    ] {
        let error = world.policies.put_key(change, ALICE).await.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[tokio::test]
async fn unopenable_policy_seed_does_not_block_other_policies() {
    let world = World::new().await;
    let berlin = world.site("berlin", r#"{"country":"DE"}"#).await;
    world.node("b1", &berlin, "{}").await;
    // Created by a server with another master key.
    let strange = KeyStore::new(world.store.clone(), Keyring::ephemeral(), Clock::system());
    let strange = KeyPolicies::new(world.store.clone(), strange, Clock::system());
    let first = strange.create("a", "country: DE", ALICE).await.unwrap();
    let second = world.policies.create("b", "country: DE", ALICE).await.unwrap();
    for policy in [&first, &second] {
        world.seal(policy, &key()).await.unwrap();
    }
    strange.rotate(first.row.id, ALICE).await.unwrap();
    world.policies.rotate(second.row.id, ALICE).await.unwrap();
    assert_eq!(world.policies.reseal().await.unwrap(), 1);
    assert_eq!(world.policies.failures().1, 1);
    assert_eq!(world.policies.view(second.row.id).await.unwrap().generations.len(), 1);
    assert_eq!(strange.reseal().await.unwrap(), 1);
    assert_eq!(world.policies.reseal().await.unwrap(), 0);
    assert_eq!(world.policies.failures().1, 0);
}

#[tokio::test]
async fn policy_can_be_deleted_only_after_its_keys() {
    let world = World::new().await;
    let berlin = world.site("berlin", r#"{"country":"DE"}"#).await;
    let b1 = world.node("b1", &berlin, "{}").await;
    let policy = world.policies.create("de", "country: DE", ALICE).await.unwrap();
    let key = key();
    world.seal(&policy, &key).await.unwrap();
    let id = policy.row.id;
    assert!(matches!(world.policies.delete(id, ALICE).await, Err(PolicyError::HasKeys(1))));
    world.policies.withdraw(&key.spki_hash(), ALICE).await.unwrap();
    let second = world.policies.withdraw(&key.spki_hash(), ALICE).await;
    assert!(matches!(second, Err(PolicyError::NotFound(_))));
    assert_eq!(world.opens(&b1).await, []);
    world.policies.delete(id, ALICE).await.unwrap();
    assert!(matches!(world.policies.delete(id, ALICE).await, Err(PolicyError::NotFound(_))));
    assert!(matches!(world.policies.policy("de").await, Err(PolicyError::NotFound(_))));
    let state = world.state(&b1).await;
    assert!(state.policies[0].removed && state.wraps[0].blob.is_none() && state.keys[0].blob.is_none());
    let actions = world.actions().await;
    assert_eq!(actions, ["key_policy.create", "sealed_key.put", "sealed_key.withdraw", "key_policy.delete"]);
}

#[tokio::test]
async fn wraps_are_stored_in_few_statements() {
    let world = World::new().await;
    let berlin = world.site("berlin", r#"{"country":"DE"}"#).await;
    let first = world.node("n", &berlin, "{}").await;
    for number in 0..10 {
        world.policies.create(&format!("p{number}"), "country: DE", ALICE).await.unwrap();
    }
    for number in 0..50 {
        world.node(&format!("n{number}"), &berlin, "{}").await;
    }
    let before = world.store.statements_sent();
    assert_eq!(world.reconcile().await, (500, 0));
    let sent = world.store.statements_sent() - before;
    assert!(sent <= 20, "{sent} statements");
    assert_eq!(world.state(&first).await.wraps.len(), 10);
}

#[tokio::test]
async fn policy_seeds_are_sealed_and_included_in_master_key_rotation() {
    let world = World::new().await;
    let berlin = world.site("berlin", r#"{"country":"DE"}"#).await;
    world.node("b1", &berlin, "{}").await;
    world.policies.create("de", "country: DE", ALICE).await.unwrap();
    let heads = store::Keys::of(&world.store).sealed_heads(&sites::tables::SEALED_SEEDS).await.unwrap();
    assert_eq!(heads.iter().map(|(_, count)| count).sum::<u64>(), 1);
    // A server without that master key wraps nothing, reports the failure, and continues.
    let strange = KeyStore::new(world.store.clone(), Keyring::ephemeral(), Clock::system());
    let strange = KeyPolicies::new(world.store.clone(), strange, Clock::system());
    world.node("b2", &berlin, "{}").await;
    assert_eq!(strange.reconcile().await.unwrap(), ReconcileResult { made: 0, withdrawn: 0, failed: 1 });
    assert_eq!(strange.failures(), (1, 0));
    assert_eq!(world.reconcile().await, (1, 0));
}
