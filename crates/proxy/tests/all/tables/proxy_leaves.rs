//! Leaves of the proxies, with leases and keys.

use proxy::tables::{
    LeafLeaseRequest, LeafLookup, NewLeaf, OWN_KEY_ENDS_AFTER_US, SEALED_LEAF_KEYS, StoredLeaf,
};
use store::Store;
use uuid::Uuid;

use testbed::tables::{NOW, World};

const SECOND: i64 = 1_000_000;
const KEY: &str = "00000000000000000000000000000000000000000000000000000000000000aa";

fn id(number: u32) -> String {
    format!("{number:064x}")
}

async fn lookup(store: &Store, id: &str, holder: u128, now_us: i64) -> LeafLookup {
    let holder = Uuid::from_u128(holder);
    let lease_request =
        LeafLeaseRequest { id, ends_from_us: now_us, holder, now_us, until_us: now_us + 5 * SECOND };
    proxy::tables::ProxyLeaves::of(store).lookup(&lease_request).await.unwrap()
}

async fn put(store: &Store, id: &str, holder: u128, sealed: &[u8], ends_at_us: i64) -> bool {
    let holder = Uuid::from_u128(holder);
    let leaf = NewLeaf { id, holder, sealed, key_id: KEY, ends_at_us, now_us: ends_at_us - 100 * SECOND };
    proxy::tables::ProxyLeaves::of(store).put(&leaf).await.unwrap()
}

pub(crate) async fn lease_holder_stores_the_leaf_for_all_nodes(world: World) {
    let (store, leaf) = (&world.store, id(1));
    assert_eq!(lookup(store, &leaf, 1, NOW).await, LeafLookup::Leased);
    assert_eq!(lookup(store, &leaf, 2, NOW + SECOND).await, LeafLookup::Awaited);
    assert_eq!(lookup(store, &leaf, 1, NOW + SECOND).await, LeafLookup::Leased, "its own lease, again");
    proxy::tables::ProxyLeaves::of(store).put_key(KEY, b"key", NOW + 1_000 * SECOND).await.unwrap();
    assert!(!put(store, &leaf, 2, b"another's", NOW + 100 * SECOND).await, "without the lease");
    assert!(put(store, &leaf, 1, b"leaf", NOW + 100 * SECOND).await);
    assert!(!put(store, &leaf, 1, b"later", NOW + 200 * SECOND).await, "the lease ended with the leaf");
    let stored = StoredLeaf {
        sealed: b"leaf".to_vec(),
        key: Some(b"key".to_vec()),
        key_id: KEY.to_owned(),
        ends_at_us: NOW + 100 * SECOND,
    };
    assert_eq!(lookup(store, &leaf, 2, NOW + SECOND).await, LeafLookup::Stored(stored));
}

pub(crate) async fn leaf_lease_is_taken_over_after_expiry_or_release(world: World) {
    let (store, leaf) = (&world.store, id(1));
    assert_eq!(lookup(store, &leaf, 1, NOW).await, LeafLookup::Leased);
    assert_eq!(lookup(store, &leaf, 2, NOW + 4 * SECOND).await, LeafLookup::Awaited);
    assert_eq!(lookup(store, &leaf, 2, NOW + 5 * SECOND).await, LeafLookup::Leased);
    assert!(!put(store, &leaf, 1, b"too late", NOW + 100 * SECOND).await);
    proxy::tables::ProxyLeaves::of(store).release(&leaf, Uuid::from_u128(1)).await.unwrap();
    assert_eq!(
        lookup(store, &leaf, 3, NOW + 6 * SECOND).await,
        LeafLookup::Awaited,
        "not the first's to give"
    );
    proxy::tables::ProxyLeaves::of(store).release(&leaf, Uuid::from_u128(2)).await.unwrap();
    assert_eq!(lookup(store, &leaf, 3, NOW + 6 * SECOND).await, LeafLookup::Leased);
}

pub(crate) async fn current_leaf_is_served_while_one_node_renews_it(world: World) {
    let (store, leaf) = (&world.store, id(1));
    assert_eq!(lookup(store, &leaf, 1, NOW).await, LeafLookup::Leased);
    assert!(put(store, &leaf, 1, b"first", NOW + 100 * SECOND).await);
    let newer = |holder| LeafLeaseRequest {
        id: &leaf,
        ends_from_us: NOW + 101 * SECOND,
        holder: Uuid::from_u128(holder),
        now_us: NOW,
        until_us: NOW + 5 * SECOND,
    };
    assert_eq!(proxy::tables::ProxyLeaves::of(store).lookup(&newer(1)).await.unwrap(), LeafLookup::Leased);
    assert_eq!(proxy::tables::ProxyLeaves::of(store).lookup(&newer(2)).await.unwrap(), LeafLookup::Awaited);
    assert!(
        matches!(lookup(store, &leaf, 2, NOW).await, LeafLookup::Stored(stored) if stored.sealed == b"first")
    );
    assert!(put(store, &leaf, 1, b"second", NOW + 200 * SECOND).await);
    let found = proxy::tables::ProxyLeaves::of(store).lookup(&newer(2)).await.unwrap();
    assert!(matches!(found, LeafLookup::Stored(stored) if stored.sealed == b"second"));
}

/// Of many concurrent lookups for a leaf, one mints it.
pub(crate) async fn concurrent_lookups_grant_one_lease_per_leaf(world: World) {
    let mut all = Vec::new();
    for holder in 1..=8_u128 {
        for number in 0..20 {
            let store = world.store.clone();
            all.push(tokio::spawn(async move { lookup(&store, &id(number), holder, NOW).await }));
        }
    }
    let mut leased = 0;
    for one in all {
        leased += u32::from(one.await.unwrap() == LeafLookup::Leased);
    }
    assert_eq!(leased, 20);
}

pub(crate) async fn expired_leaves_and_the_oldest_above_the_limit_are_deleted(world: World) {
    let store = &world.store;
    for number in 0..10 {
        let leaf = id(number);
        assert_eq!(lookup(store, &leaf, 1, NOW).await, LeafLookup::Leased);
        assert!(put(store, &leaf, 1, b"leaf", NOW + (100 + i64::from(number)) * SECOND).await);
    }
    assert_eq!(lookup(store, &id(10), 1, NOW + 101 * SECOND).await, LeafLookup::Leased);
    proxy::tables::ProxyLeaves::of(store).put_key(KEY, b"key", NOW + 102 * SECOND).await.unwrap();
    proxy::tables::ProxyLeaves::of(store).put_key(KEY, b"key", NOW + 50 * SECOND).await.unwrap();
    assert_eq!(
        proxy::tables::ProxyLeaves::of(store).tidy(NOW + 101 * SECOND, 100).await.unwrap().deleted,
        2,
        "0 and 1 have ended"
    );
    assert_eq!(proxy::tables::ProxyLeaves::of(store).counts().await.unwrap(), 9);
    let stored = lookup(store, &id(2), 1, NOW).await;
    assert!(matches!(stored, LeafLookup::Stored(leaf) if leaf.key.is_some()), "the longer end counts");
    proxy::tables::ProxyLeaves::of(store).tidy(NOW + 101 * SECOND, 4).await.unwrap();
    assert_eq!(proxy::tables::ProxyLeaves::of(store).counts().await.unwrap(), 4, "one of them being minted");
    assert!(matches!(lookup(store, &id(9), 1, NOW).await, LeafLookup::Stored(_)), "the newest stay");
    assert_eq!(lookup(store, &id(2), 1, NOW).await, LeafLookup::Leased, "the oldest went");
    proxy::tables::ProxyLeaves::of(store).tidy(NOW + 102 * SECOND, 100).await.unwrap();
    let stored = lookup(store, &id(9), 1, NOW).await;
    assert!(matches!(stored, LeafLookup::Stored(leaf) if leaf.key.is_none()), "its key has ended");
}

pub(crate) async fn key_of_a_single_leaf_is_deleted_with_it_and_shared_keys_are_kept(world: World) {
    let store = &world.store;
    proxy::tables::ProxyLeaves::of(store).put_key(KEY, b"key", NOW + 1_000 * SECOND).await.unwrap();
    let holder = Uuid::from_u128(1);
    for number in 0..12 {
        let (leaf, own) = (id(number), format!("{number:064x}"));
        let ends_at_us = NOW + (100 + i64::from(number)) * SECOND;
        assert_eq!(lookup(store, &leaf, 1, NOW).await, LeafLookup::Leased);
        // The first two leaves use the shared key.
        let key_id = if number < 2 { KEY } else { &own };
        if number >= 2 {
            proxy::tables::ProxyLeaves::of(store)
                .put_key(key_id, b"own", ends_at_us + OWN_KEY_ENDS_AFTER_US)
                .await
                .unwrap();
        }
        let made_at = NOW + i64::from(number);
        let new = NewLeaf { id: &leaf, holder, sealed: b"leaf", key_id, ends_at_us, now_us: made_at };
        assert!(proxy::tables::ProxyLeaves::of(store).put(&new).await.unwrap());
    }
    let keys = async || store::Keys::of(store).sealed_count(&SEALED_LEAF_KEYS, &[0; 9]).await.unwrap();
    assert_eq!(keys().await, 11);
    proxy::tables::ProxyLeaves::of(store).tidy(NOW + SECOND, 3).await.unwrap();
    assert_eq!(
        (proxy::tables::ProxyLeaves::of(store).counts().await.unwrap(), keys().await),
        (3, 4),
        "those of leaves, and the shared one"
    );
    for number in 9..12 {
        let stored = lookup(store, &id(number), 1, NOW).await;
        assert!(matches!(stored, LeafLookup::Stored(leaf) if leaf.key.is_some()), "{number}");
    }
    // After an hour of renewals, more keys than leaves have expired.
    assert_eq!(proxy::tables::ProxyLeaves::of(store).tidy(NOW + 113 * SECOND, 100).await.unwrap().deleted, 3);
    assert_eq!((proxy::tables::ProxyLeaves::of(store).counts().await.unwrap(), keys().await), (0, 1));
}

pub(crate) async fn shared_key_is_kept_while_one_of_its_leaves_exists(world: World) {
    let store = &world.store;
    let (holder, ends_at_us) = (Uuid::from_u128(1), NOW + 100 * SECOND);
    proxy::tables::ProxyLeaves::of(store)
        .put_key(KEY, b"a user's", ends_at_us + OWN_KEY_ENDS_AFTER_US)
        .await
        .unwrap();
    for number in 0..2 {
        let leaf = id(number);
        assert_eq!(lookup(store, &leaf, 1, NOW).await, LeafLookup::Leased);
        let now_us = NOW + i64::from(number);
        let new = NewLeaf { id: &leaf, holder, sealed: b"leaf", key_id: KEY, ends_at_us, now_us };
        assert!(proxy::tables::ProxyLeaves::of(store).put(&new).await.unwrap());
    }
    let evicted =
        async |most| proxy::tables::ProxyLeaves::of(store).tidy(NOW + SECOND, most).await.unwrap().evicted;
    assert_eq!(evicted(2).await, 0);
    assert_eq!(evicted(1).await, 1);
    let stored = lookup(store, &id(1), 2, NOW).await;
    assert!(matches!(stored, LeafLookup::Stored(leaf) if leaf.key.is_some()), "the other's end is the same");
    assert_eq!(evicted(0).await, 1);
    assert_eq!(
        store::Keys::of(store).sealed_count(&SEALED_LEAF_KEYS, &[0; 9]).await.unwrap(),
        0,
        "with the last"
    );
}

pub(crate) async fn cold_leaf_lookup_uses_few_statements(world: World) {
    let (store, leaf) = (&world.store, id(1));
    let before = store.statements_sent();
    assert_eq!(lookup(store, &leaf, 1, NOW).await, LeafLookup::Leased);
    assert!(put(store, &leaf, 1, b"leaf", NOW + 100 * SECOND).await);
    let most = if store.is_postgres() { 2 } else { 3 };
    assert_eq!(store.statements_sent() - before, most);
    let before = store.statements_sent();
    assert!(matches!(lookup(store, &leaf, 2, NOW).await, LeafLookup::Stored(_)));
    assert_eq!(store.statements_sent() - before, 1);
}
