//! Tests of source states and of certificates by fingerprint.

use store::{Store, StoreOptions};

use testbed::tables::{DAY, NOW, World, answered, certificate};

pub(crate) async fn latest_state_of_a_source_is_kept(world: World) {
    let store = &world.store;
    assert_eq!(inventory::tables::Sources::of(store).get("aws/1").await.unwrap(), None);
    inventory::tables::Sources::of(store).put("aws/1", "first", NOW).await.unwrap();
    inventory::tables::Sources::of(store).put("gcp/p", "other", NOW).await.unwrap();
    inventory::tables::Sources::of(store).put("aws/1", "second", NOW + 1).await.unwrap();
    // A listing that began earlier and ends later does not overwrite the newer state.
    inventory::tables::Sources::of(store).put("aws/1", "stale", NOW).await.unwrap();
    assert_eq!(inventory::tables::Sources::of(store).get("aws/1").await.unwrap().as_deref(), Some("second"));
    assert_eq!(inventory::tables::Sources::of(store).all().await.unwrap().len(), 2);
    inventory::tables::Sources::of(store).delete("aws/1").await.unwrap();
    assert_eq!(inventory::tables::Sources::of(store).get("aws/1").await.unwrap(), None);
}

pub(crate) async fn certificates_are_read_by_fingerprint_in_bulk(world: World) {
    let scan = world.scan().await;
    // More rows than fit into one statement, and not a multiple of that number.
    let leaves: Vec<_> = (0..150).map(|n| certificate(&format!("c{n}"), "CN=I", NOW + DAY)).collect();
    let rows: Vec<_> = leaves.iter().map(|leaf| answered(&leaf.names[0], leaf, NOW)).collect();
    scan.record(&rows).await;
    let mut wanted: Vec<[u8; 32]> = leaves.iter().map(|leaf| leaf.sha256).collect();
    wanted.push([7; 32]);
    let found = inventory::tables::Sources::of(&world.store).ders(&wanted).await.unwrap();
    assert_eq!(found.len(), leaves.len(), "the one that is not there is left out");
    assert!(leaves.iter().all(|leaf| found[&leaf.sha256] == leaf.der));
    assert!(inventory::tables::Sources::of(&world.store).ders(&[]).await.unwrap().is_empty());
}

pub(crate) async fn connection_counts_and_limits_are_reported(world: World) {
    let connections = world.store.connections().await.unwrap();
    assert!(connections.ours > 1);
    assert_eq!(connections.servers.is_some(), world.url.to_string().starts_with("postgres"));
    assert!(connections.servers.is_none_or(|servers| servers > connections.ours));
    // Reads the connection limits without opening the store, then with other options.
    let options = StoreOptions { connections: 7, ..StoreOptions::default() };
    let expected = Store::connections_at(&world.url, &options).await.unwrap();
    assert_eq!(expected.servers, connections.servers);
    let store = Store::open_with(&world.url, &options).await.unwrap();
    assert_eq!(store.connections().await.unwrap(), expected);
    if store.is_postgres() {
        assert_eq!(expected.ours, 7);
        let sizes: Vec<_> = store.pools().iter().map(|pool| (pool.name, pool.size)).collect();
        assert_eq!(sizes, [("readers", 2), ("writers", 5)]);
    }
}
