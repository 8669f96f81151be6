//! Rotation of the master key over the API.

use authority::keystore::KeyStore;
use http::Method;
use keys::{KeyType, Keyring, KeyringConfig, MasterKeySource};
use serde_json::json;
use server::Components;
use store::Clock;

use crate::world::{Plan, World, send, store};

#[tokio::test]
async fn keys_open_without_the_old_master_key_after_rotation() {
    let (folder, store) = store().await;
    let clock = Clock::system();
    let file = |name: &str| MasterKeySource::File { path: folder.path().join(name), create: true };
    let ring = |current: &str, older: &[&str]| {
        let older = older.iter().map(|name| file(name)).collect();
        Keyring::open(&KeyringConfig { current: file(current), older }).unwrap()
    };
    let before = KeyStore::new(store.clone(), ring("old", &[]), clock.clone());
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(before.generate(KeyType::P256, "a", "user:a").await.unwrap().0);
    }
    let alone = || KeyStore::new(store.clone(), ring("new", &[]), clock.clone());
    alone().signer(ids[0]).await.unwrap_err();

    // As after a restart: the new key is current, and the old one can still decrypt.
    let keystore = KeyStore::new(store.clone(), ring("new", &["old"]), clock.clone());
    let master = file("new").id().unwrap().to_string();
    let components = Components { keystore: Some(keystore), ..Components::default() };
    let world = World::start_with(Plan { components, ..Plan::default() }).await;
    let rotate = || async {
        let call = world.bare(Method::POST, "/api/v1/master-key/rotate");
        send(call.bearer_auth(&world.admin)).await.expect(200).json()
    };
    let status = || async {
        let call = world.bare(Method::GET, "/api/v1/master-key");
        send(call.bearer_auth(&world.admin)).await.expect(200).json()
    };
    let before = status().await;
    assert_eq!((&before["current"], &before["remaining"]), (&json!(master), &json!(3)));
    let old = file("old").id().unwrap().to_string();
    let of_old = json!({
        "id": old, "current": false, "configured": true, "values": 3,
        "columns": [{ "column": "keys.sealed", "values": 3 }],
    });
    assert_eq!(before["keys"][1], of_old, "{before}");
    let done = rotate().await;
    let columns = json!([{ "column": "keys.sealed", "rewrapped": 3, "remaining": 0 }]);
    let all = json!({
        "master": master, "rewrapped": 3, "failed": [], "remaining": 0, "columns": columns,
    });
    assert_eq!(done, all);
    let after = status().await;
    assert_eq!((&after["remaining"], &after["keys"][0]["values"]), (&json!(0), &json!(3)), "{after}");
    for id in &ids {
        alone().signer(*id).await.unwrap();
    }
    assert_eq!(rotate().await["rewrapped"], 0, "what was done is not done twice");
}

#[tokio::test]
async fn rotation_reports_and_counts_values_it_cannot_decrypt() {
    let (folder, store) = store().await;
    let clock = Clock::system();
    let lost = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone());
    let (id, _) = lost.generate(KeyType::P256, "a", "user:a").await.unwrap();
    let keystore = KeyStore::new(store, Keyring::ephemeral(), clock);
    let components = Components { keystore: Some(keystore), ..Components::default() };
    let world = World::start_with(Plan { components, ..Plan::default() }).await;
    let call = world.bare(Method::POST, "/api/v1/master-key/rotate");
    let done = send(call.bearer_auth(&world.admin)).await.expect(200).json();
    assert_eq!((&done["rewrapped"], &done["remaining"]), (&json!(0), &json!(1)));
    assert!(done["failed"][0].as_str().unwrap().contains(&id.to_string()), "{done}");
    drop(folder);
}
