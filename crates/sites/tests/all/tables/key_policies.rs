//! Policies, their generations and wraps, and the keys sealed to them.

use sites::tables::{
    GenerationRow, KEM_BYTES, KeyStateChanges, NewWrap, NodeRetirement, NodeRow, PolicyNode, PolicyRemoval,
    PolicyRow, ResealedKey, SealedKeyRow, SealedPut, SiteRow, WrapKey, count_policies, count_sealed_keys,
    insert_policy, is_key_sealed, node_kems, policy_seeds, put_sealed_key, put_wraps, remove_policy,
    reseal_keys, retire_generations, retire_node, rotate_policy, update_site, withdraw_sealed_key,
    withdraw_wraps,
};
use store::Store;
use uuid::Uuid;

use super::places::{enter, enter_site, node};
use testbed::tables::{NOW, World};
use testbed::walk;

/// Runs one call in a transaction.
macro_rules! write {
    ($store:expr, |$tx:ident| $work:expr) => {
        $store.write("test", move |$tx| Box::pin(async move { $work.await })).await.unwrap()
    };
}

fn generation(policy: Uuid, number: u32) -> GenerationRow {
    let public = vec![number as u8; KEM_BYTES];
    GenerationRow { id: Uuid::now_v7(), policy, generation: number, public, created_at_us: NOW }
}

async fn enter_policy(store: &Store, name: &str) -> Option<PolicyRow> {
    let policy = PolicyRow {
        id: Uuid::now_v7(),
        name: name.to_owned(),
        formula: "country: DE".to_owned(),
        generation: 1,
        revision: 1,
        changed: 0,
        created_by: "user:alice".to_owned(),
        created_at_us: NOW,
        updated_at_us: NOW,
    };
    let (new, first) = (policy.clone(), generation(policy.id, 1));
    let entered = write!(store, |tx| insert_policy(tx, &new, &first, b"seed 1"));
    if entered { sites::tables::SiteTables::of(store).policy(policy.id).await.unwrap() } else { None }
}

async fn rotate(store: &Store, policy: Uuid, to: u32) -> bool {
    let next = generation(policy, to);
    write!(store, |tx| rotate_policy(tx, &next, b"seed", NOW + 1))
}

fn sealed_key(number: u8, policy: &PolicyRow, generation: u32) -> SealedKeyRow {
    SealedKeyRow {
        spki_sha256: [number; 32],
        spki: vec![number; 91],
        name: format!("k{number}"),
        kind: "p256".to_owned(),
        policy: policy.id,
        policy_name: policy.name.clone(),
        generation,
        created_by: "user:alice".to_owned(),
        created_at_us: NOW,
        updated_at_us: NOW,
    }
}

async fn seal(store: &Store, key: &SealedKeyRow) -> SealedPut {
    let key = key.clone();
    write!(store, |tx| put_sealed_key(tx, &key, b"sealed"))
}

async fn placed(store: &Store, node: &NodeRow) -> PolicyNode {
    let all = walk_placed(store).await;
    all.into_iter().find(|placed| placed.id == node.id).unwrap()
}

async fn walk_placed(store: &Store) -> Vec<PolicyNode> {
    let (mut all, mut after) = (Vec::new(), Uuid::nil());
    loop {
        let page = sites::tables::SiteTables::of(store).placed_nodes(after, 1).await.unwrap();
        let Some(last) = page.last() else { return all };
        after = last.id;
        all.extend(page);
    }
}

async fn walk_wraps(store: &Store) -> Vec<WrapKey> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = sites::tables::SiteTables::of(store).live_wraps(after, 2).await.unwrap();
        let Some(last) = page.last() else { return all };
        after = Some(*last);
        all.extend(page);
    }
}

fn wrap(policy: &PolicyRow, generation: u32, policy_node: &PolicyNode) -> NewWrap {
    let key = WrapKey { policy: policy.id, generation, node: policy_node.id };
    NewWrap { key, blob: vec![generation as u8; 1_169], policy_node: policy_node.clone() }
}

async fn put(store: &Store, wraps: Vec<NewWrap>) -> Option<usize> {
    write!(store, |tx| put_wraps(tx, &wraps))
}

pub(crate) async fn policy_names_are_unique_and_generations_advance_by_one(world: World) {
    let store = &world.store;
    let policy = enter_policy(store, "eu").await.unwrap();
    let other = enter_policy(store, "us").await.unwrap();
    assert!(other.changed > policy.changed && policy.changed > 0);
    assert_eq!(enter_policy(store, "eu").await, None, "the name is taken");
    assert_eq!(sites::tables::SiteTables::of(store).policy_named("eu").await.unwrap(), Some(policy.clone()));
    let listed = walk!(1, |after, limit| sites::tables::SiteTables::of(store).policies(after, limit));
    assert_eq!(listed, [policy.clone(), other.clone()]);
    assert_eq!(write!(store, |tx| count_policies(tx)), 2);

    assert!(!rotate(store, policy.id, 3).await, "one after the other");
    assert!(rotate(store, policy.id, 2).await);
    assert!(!rotate(store, policy.id, 2).await, "once");
    let rotated = sites::tables::SiteTables::of(store).policy(policy.id).await.unwrap().unwrap();
    assert_eq!((rotated.generation, rotated.revision), (2, 2));
    assert!(rotated.changed > other.changed);
    let generations = sites::tables::SiteTables::of(store).policy_generations(policy.id).await.unwrap();
    assert_eq!(generations.iter().map(|one| one.generation).collect::<Vec<_>>(), [1, 2]);
    let ids: Vec<_> = generations.iter().map(|one| one.id).collect();
    let seeds = write!(store, |tx| policy_seeds(tx, ids));
    assert_eq!((seeds.len(), seeds[&generations[0].id].as_slice()), (2, &b"seed 1"[..]));
    assert_eq!(
        sites::tables::SiteTables::of(store).policies_behind(Uuid::nil(), 10).await.unwrap(),
        [policy.id]
    );
    let all = sites::tables::SiteTables::of(store).all_policy_generations(Uuid::nil(), 10).await.unwrap();
    assert_eq!(all.len(), 3);

    let id = policy.id;
    assert_eq!(write!(store, |tx| retire_generations(tx, id, 2)), 1, "nothing is sealed to the first");
    let last = sites::tables::SiteTables::of(store).last_change().await.unwrap();
    assert_eq!(write!(store, |tx| retire_generations(tx, id, 2)), 0);
    assert_eq!(sites::tables::SiteTables::of(store).last_change().await.unwrap(), last, "nothing changed");
    assert_eq!(
        sites::tables::SiteTables::of(store).policies_behind(Uuid::nil(), 10).await.unwrap(),
        Vec::<Uuid>::new()
    );
    assert!(
        sites::tables::SiteTables::of(store).policy(id).await.unwrap().unwrap().changed > rotated.changed,
        "nodes are told"
    );

    assert_eq!(write!(store, |tx| remove_policy(tx, id, NOW)), PolicyRemoval::Done);
    assert_eq!(write!(store, |tx| remove_policy(tx, id, NOW)), PolicyRemoval::NotFound);
    assert_eq!(sites::tables::SiteTables::of(store).policy(id).await.unwrap(), None);
    assert_eq!(sites::tables::SiteTables::of(store).policy_generations(id).await.unwrap(), []);
    assert!(!rotate(store, id, 3).await, "the key is missing");
    assert!(enter_policy(store, "eu").await.is_some(), "the name is free again");
}

pub(crate) async fn keys_are_sealed_only_to_the_newest_generation(world: World) {
    let store = &world.store;
    let policy = enter_policy(store, "eu").await.unwrap();
    let (one, two) = (sealed_key(1, &policy, 1), sealed_key(2, &policy, 1));
    assert_eq!(seal(store, &one).await, SealedPut::Stored);
    assert_eq!(seal(store, &two).await, SealedPut::Stored);
    assert_eq!(seal(store, &sealed_key(3, &policy, 2)).await, SealedPut::Behind(1));
    assert!(rotate(store, policy.id, 2).await);
    assert_eq!(seal(store, &one).await, SealedPut::Behind(2));
    let nobody = SealedKeyRow { policy: Uuid::now_v7(), ..one.clone() };
    assert_eq!(seal(store, &nobody).await, SealedPut::NoPolicy);
    assert_eq!(sites::tables::SiteTables::of(store).sealed_key(&[1; 32]).await.unwrap(), Some(one.clone()));
    assert_eq!(
        walk!(1, |after, limit| sites::tables::SiteTables::of(store).sealed_keys(after, limit)),
        [one.clone(), two]
    );

    let id = policy.id;
    assert_eq!(write!(store, |tx| retire_generations(tx, id, 2)), 0, "keys are sealed to the first");
    assert_eq!(write!(store, |tx| remove_policy(tx, id, NOW)), PolicyRemoval::HasKeys(2));
    // Sealed again, with another name.
    let repeated = SealedKeyRow { name: "a".to_owned(), generation: 2, updated_at_us: NOW + 9, ..one };
    assert_eq!(seal(store, &repeated).await, SealedPut::Stored);
    assert_eq!(
        sites::tables::SiteTables::of(store).sealed_key(&[1; 32]).await.unwrap().unwrap(),
        repeated,
        "it came first when it came first"
    );
    assert_eq!(
        sites::tables::SiteTables::of(store).sealed_keys_by_generation(id).await.unwrap(),
        [(1, 1), (2, 1)].into()
    );
    assert_eq!(write!(store, |tx| count_sealed_keys(tx)), 2);
    for (number, there) in [(1, true), (9, false)] {
        assert_eq!(write!(store, |tx| is_key_sealed(tx, &[number; 32])), there);
    }
    for (number, there) in [(1, true), (1, false), (9, false)] {
        assert_eq!(write!(store, |tx| withdraw_sealed_key(tx, &[number; 32], NOW)), there);
    }
    assert_eq!(sites::tables::SiteTables::of(store).sealed_key(&[1; 32]).await.unwrap(), None);
    assert!(write!(store, |tx| withdraw_sealed_key(tx, &[2; 32], NOW)));
    assert_eq!(write!(store, |tx| remove_policy(tx, id, NOW)), PolicyRemoval::Done);
    assert_eq!(seal(store, &repeated).await, SealedPut::NoPolicy);
}

pub(crate) async fn outdated_wraps_and_wraps_for_retired_nodes_are_not_stored(world: World) {
    let store = &world.store;
    let (berlin, tokyo) = (enter_site(store, "berlin").await, enter_site(store, "tokyo").await);
    let a = enter(store, node("a", 1, &berlin)).await;
    let b = enter(store, node("b", 2, &tokyo)).await;
    let policy = enter_policy(store, "eu").await.unwrap();
    let all = walk_placed(store).await;
    assert_eq!(all.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!((all[0].site_name.as_str(), &all[0].site_attributes), ("berlin", &berlin.attributes));
    let ids = vec![a.id, b.id];
    let kems = write!(store, |tx| node_kems(tx, ids));
    assert_eq!((kems.len(), &kems[&a.id]), (2, &a.kem));

    let (here, there) = (placed(store, &a).await, placed(store, &b).await);
    let last = sites::tables::SiteTables::of(store).last_state_change().await.unwrap();
    assert_eq!(last, policy.changed);
    let before = store.statements_sent();
    assert_eq!(put(store, vec![wrap(&policy, 1, &here), wrap(&policy, 1, &there)]).await, Some(2));
    assert_eq!(store.statements_sent() - before, 3, "the sites, the numbers, the rows");
    assert_eq!(
        sites::tables::SiteTables::of(store).last_state_change().await.unwrap(),
        last,
        "wraps are their nodes' affair"
    );
    let mut changed = sites::tables::SiteTables::of(store).wraps_changed(last, 10).await.unwrap();
    changed.sort_by_key(|(_, number)| *number);
    assert_eq!(changed, [(a.id, last + 1), (b.id, last + 2)]);
    assert_eq!(
        sites::tables::SiteTables::of(store).wraps_changed(last, 1).await.unwrap(),
        [(a.id, last + 1)]
    );
    assert_eq!(
        sites::tables::SiteTables::of(store).wraps_changed(last + 1, 1).await.unwrap(),
        [(b.id, last + 2)]
    );
    assert_eq!(put(store, vec![wrap(&policy, 1, &here)]).await, Some(0), "it has it");
    assert_eq!(put(store, vec![wrap(&policy, 2, &here)]).await, Some(0), "no such generation");
    assert_eq!(
        sites::tables::SiteTables::of(store).wraps_of_policy(policy.id).await.unwrap(),
        [(1, 2)].into()
    );
    assert_eq!(sites::tables::SiteTables::of(store).policies_of_node(a.id).await.unwrap(), [policy.id]);
    assert_eq!(
        sites::tables::SiteTables::of(store).policies_of_node(Uuid::now_v7()).await.unwrap(),
        Vec::<Uuid>::new()
    );
    let mut nodes = sites::tables::SiteTables::of(store).wrapped_nodes(policy.id, 1).await.unwrap();
    nodes.sort();
    assert_eq!(nodes, [a.id, b.id]);

    let keys = walk_wraps(store).await;
    assert_eq!(keys.len(), 2);
    let (withdrawn, seen) = (keys.clone(), sites::tables::SiteTables::of(store).last_change().await.unwrap());
    let early = seen - 4;
    assert_eq!(write!(store, |tx| withdraw_wraps(tx, &withdrawn, early, NOW)), 0, "made since");
    assert_eq!(walk_wraps(store).await, keys);
    let withdrawn = keys.clone();
    assert_eq!(write!(store, |tx| withdraw_wraps(tx, &withdrawn, seen, NOW)), 2);
    let withdrawn = keys.clone();
    assert_eq!(write!(store, |tx| withdraw_wraps(tx, &withdrawn, i64::MAX, NOW)), 0);
    assert_eq!(
        sites::tables::SiteTables::of(store).purge_deletion_records(NOW + 1).await.unwrap(),
        0,
        "who had the generation stays known"
    );
    assert_eq!(sites::tables::SiteTables::of(store).policies_of_node(b.id).await.unwrap(), [policy.id]);
    assert_eq!(walk_wraps(store).await, []);
    assert_eq!(put(store, vec![wrap(&policy, 1, &here)]).await, Some(1), "given back");

    // The site's attributes changed: a wrap made for the old attributes is not stored.
    let SiteRow { id, revision, .. } = tokyo;
    assert!(write!(store, |tx| update_site(tx, id, revision, "tokyo", "{}", NOW)));
    assert_eq!(put(store, vec![wrap(&policy, 1, &there)]).await, None);
    let there = placed(store, &b).await;
    assert_eq!(there.site_attributes, "{}");
    // A wrap for a node that was retired meanwhile is not stored either.
    let id = b.id;
    assert!(write!(store, |tx| retire_node(tx, id, NOW, NodeRetirement::Hostile)));
    assert_eq!(put(store, vec![wrap(&policy, 1, &there)]).await, Some(0));
    assert_eq!(walk_placed(store).await.len(), 1);
}

pub(crate) async fn resealing_skips_withdrawn_moved_and_already_resealed_keys(world: World) {
    let store = &world.store;
    let (policy, other) =
        (enter_policy(store, "eu").await.unwrap(), enter_policy(store, "us").await.unwrap());
    for number in 1..=4 {
        assert_eq!(seal(store, &sealed_key(number, &policy, 1)).await, SealedPut::Stored);
    }
    assert!(rotate(store, policy.id, 2).await);
    let behind =
        sites::tables::SiteTables::of(store).sealed_keys_behind(policy.id, 2, &[0; 32], 10).await.unwrap();
    assert_eq!(behind.len(), 4);
    assert_eq!((behind[0].from, behind[0].blob.as_slice()), (1, &b"sealed"[..]));
    // Meanwhile one key is withdrawn, one sealed again, and one sealed to another policy.
    assert!(write!(store, |tx| withdraw_sealed_key(tx, &[1; 32], NOW)));
    assert_eq!(seal(store, &sealed_key(2, &policy, 2)).await, SealedPut::Stored);
    assert_eq!(seal(store, &sealed_key(3, &other, 1)).await, SealedPut::Stored);
    let (id, since) = (policy.id, sites::tables::SiteTables::of(store).last_change().await.unwrap());
    let new: Vec<_> = behind.into_iter().map(|key| ResealedKey { blob: b"anew".to_vec(), ..key }).collect();
    let before = store.statements_sent();
    assert_eq!(write!(store, |tx| reseal_keys(tx, id, 2, new, NOW + 5)), 1);
    assert_eq!(store.statements_sent() - before, 2);
    let state = sites::tables::SiteTables::of(store).state(Uuid::nil(), since, 10).await.unwrap();
    let [key] = state.keys.as_slice() else { panic!("{state:?}") };
    assert_eq!((key.spki_sha256, key.generation, key.blob.as_deref()), ([4; 32], 2, Some(&b"anew"[..])));
    assert_eq!(
        sites::tables::SiteTables::of(store).sealed_key(&[4; 32]).await.unwrap().unwrap().updated_at_us,
        NOW + 5
    );
    assert_eq!(
        sites::tables::SiteTables::of(store).sealed_key(&[3; 32]).await.unwrap().unwrap().policy,
        other.id
    );
    assert_eq!(
        sites::tables::SiteTables::of(store).sealed_keys_behind(policy.id, 2, &[0; 32], 10).await.unwrap(),
        []
    );
    assert_eq!(write!(store, |tx| retire_generations(tx, id, 2)), 1);
}

pub(crate) async fn node_reads_each_change_once_and_in_order(world: World) {
    let store = &world.store;
    let berlin = enter_site(store, "berlin").await;
    let a = enter(store, node("a", 1, &berlin)).await;
    let b = enter(store, node("b", 2, &berlin)).await;
    let mut policies = Vec::new();
    for number in 0..5 {
        let policy = enter_policy(store, &format!("p{number}")).await.unwrap();
        for node in [&a, &b] {
            let policy_node = placed(store, node).await;
            assert_eq!(put(store, vec![wrap(&policy, 1, &policy_node)]).await, Some(1));
        }
        seal(store, &sealed_key(number, &policy, 1)).await;
        policies.push(policy);
    }
    for limit in 1..7 {
        let (mut after, mut seen) = (0, [0, 0, 0]);
        loop {
            let page = sites::tables::SiteTables::of(store).state(a.id, after, limit).await.unwrap();
            assert!(page.next > after || !page.more, "it goes on");
            let numbers = page.keys.iter().map(|key| key.changed);
            let numbers = numbers.chain(page.wraps.iter().map(|wrap| wrap.changed));
            let mut numbers = numbers.chain(page.policies.iter().map(|policy| policy.changed));
            assert!(numbers.all(|number| number > after && number <= page.next));
            seen[0] += page.policies.len();
            seen[1] += page.wraps.len();
            seen[2] += page.keys.len();
            // A node that has received a key has also received the wrap that opens it.
            assert!(seen[2] <= seen[1] && seen[1] <= seen[0], "{seen:?}");
            after = page.next;
            if !page.more {
                break;
            }
        }
        assert_eq!(seen, [5, 5, 5], "pages of {limit}; the other's wraps are not seen");
    }
    // Removals are reported.
    let since = sites::tables::SiteTables::of(store).last_change().await.unwrap();
    let withdrawn = vec![WrapKey { policy: policies[0].id, generation: 1, node: a.id }];
    write!(store, |tx| withdraw_wraps(tx, &withdrawn, since, NOW));
    write!(store, |tx| withdraw_sealed_key(tx, &[0; 32], NOW));
    let id = policies[0].id;
    assert_eq!(write!(store, |tx| remove_policy(tx, id, NOW)), PolicyRemoval::Done);
    let state = sites::tables::SiteTables::of(store).state(a.id, since, 10).await.unwrap();
    assert_eq!((state.keys.len(), state.keys[0].blob.as_ref()), (1, None));
    assert_eq!((state.wraps.len(), state.wraps[0].blob.as_ref()), (1, None));
    assert_eq!((state.policies.len(), state.policies[0].removed), (1, true));
    assert_eq!(sites::tables::SiteTables::of(store).state(b.id, since, 10).await.unwrap().wraps, []);
    assert_eq!(sites::tables::SiteTables::of(store).purge_deletion_records(NOW).await.unwrap(), 0);
    assert_eq!(sites::tables::SiteTables::of(store).purge_deletion_records(NOW + 1).await.unwrap(), 3);
    let repeated = sites::tables::SiteTables::of(store).state(a.id, 0, 100).await.unwrap();
    assert_eq!((repeated.policies.len(), repeated.wraps.len(), repeated.keys.len()), (4, 4, 4));
    assert!(
        !repeated.more
            && !repeated.anew
            && repeated.next == sites::tables::SiteTables::of(store).last_change().await.unwrap()
    );
    // A change number that this database never issued.
    let anew = sites::tables::SiteTables::of(store).state(a.id, repeated.next + 1, 100).await.unwrap();
    assert_eq!(anew, KeyStateChanges { anew: true, ..repeated });
}

pub(crate) async fn state_pages_for_a_node_are_limited_in_bytes(world: World) {
    const BYTES: usize = 1 << 20;
    const PAGE: usize = 3 << 20;
    let store = &world.store;
    let policy = enter_policy(store, "eu").await.unwrap();
    for (number, bytes) in [(1, BYTES), (2, BYTES), (3, BYTES), (4, 4 * BYTES), (5, 10)] {
        let key = sealed_key(number, &policy, 1);
        let blob = vec![number; bytes];
        assert_eq!(write!(store, |tx| put_sealed_key(tx, &key, &blob)), SealedPut::Stored);
    }
    let (mut after, mut pages) = (0, Vec::new());
    loop {
        let page = sites::tables::SiteTables::of(store).state(Uuid::nil(), after, 100).await.unwrap();
        let bytes: usize = page.keys.iter().filter_map(|key| key.blob.as_ref()).map(Vec::len).sum();
        assert!(bytes <= PAGE || page.keys.len() == 1, "{bytes} octets");
        assert!(page.next > after);
        pages.push(page.keys.iter().map(|key| key.spki_sha256[0]).collect::<Vec<_>>());
        after = page.next;
        if !page.more {
            break;
        }
    }
    assert_eq!(pages, [vec![1, 2], vec![3], vec![4], vec![5]]);
}
