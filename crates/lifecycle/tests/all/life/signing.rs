//! Tests of the keys with which the key service signs for managed certificates.

use std::time::Duration;

use authority::keystore::KeyStore;
use keys::{Hash, Keyring, Scheme};
use lifecycle::signing_keys::{SigningKeys, SigningKeysUpdate};
use lifecycle::{RevokeRequest, Selection};
use x509::Certificate;
use x509::crl::Reason;

use super::world::{DAY, LIFE, World};

fn keys(world: &World) -> SigningKeys {
    SigningKeys::new(world.store.clone(), world.keystore.clone(), world.clock.clone())
}

/// Returns the names of the certificates that are signed for, once for each key.
fn names(update: &SigningKeysUpdate) -> Vec<&str> {
    assert!(update.broken.is_empty(), "{:?}", update.broken);
    let mut names: Vec<&str> = update.keys.iter().flatten().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names
}

pub(super) async fn every_valid_version_has_a_signing_key(world: World) {
    let (mut keys, mut walking) = (keys(&world), keys(&world).with_walk_interval(Duration::ZERO));
    assert_eq!(names(&keys.refresh().await.unwrap()), [""; 0]);
    let a = world.issued("a.example.org").await;
    let update = keys.refresh().await.unwrap();
    assert_eq!(names(&update), ["a.example.org"]);
    let leaf =
        Certificate::parse(&world.life.versions(a.id, None, 1).await.unwrap().rows[0].chain[0]).unwrap();
    let key = &update.keys.unwrap()[0].1;
    assert_eq!(key.spki(), &*leaf.public_key.spki);
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    let signed = key.sign_digest(Scheme::Ecdsa(Hash::Sha256), &[7; 32], deadline).await;
    assert!(signed.is_ok(), "{signed:?}");
    assert!(keys.refresh().await.unwrap().keys.is_none(), "nothing is new");

    world.clock.set(a.renew_at_us().unwrap());
    world.life.tick().await.unwrap();
    world.issued("b.example.org").await;
    let all = ["a.example.org", "a.example.org", "b.example.org"];
    assert_eq!(names(&keys.refresh().await.unwrap()), all);
    assert_eq!(names(&walking.refresh().await.unwrap()), all);
    assert!(walking.refresh().await.unwrap().keys.is_none(), "nothing is other");

    // The first certificate expires.
    world.clock.set(super::world::NOW + LIFE + DAY);
    assert_eq!(names(&walking.refresh().await.unwrap()), ["a.example.org", "b.example.org"]);
    // Keys of blocked or revoked certificates no longer sign.
    let b = world.life.named("b.example.org").await.unwrap();
    let version = world.life.versions(b.id, None, 1).await.unwrap().rows.remove(0);
    let leaf = Certificate::parse(&version.chain[0]).unwrap();
    let row =
        store::Keys::of(&world.store).by_spki(leaf.public_key.spki_sha256.as_bytes()).await.unwrap().unwrap();
    assert!(world.keystore.block(row.id, "lost", "user:ann").await.unwrap());
    assert_eq!(names(&walking.refresh().await.unwrap()), ["a.example.org"]);
    let request = RevokeRequest { reason: Reason::Superseded, replace: false };
    world.life.revoke(&Selection::Ids(vec![a.id]), request, "user:ann").await.unwrap();
    assert_eq!(names(&walking.refresh().await.unwrap()), [""; 0]);
}

pub(super) async fn undecryptable_key_is_reported_once(world: World) {
    world.many(3).await;
    let elsewhere = Keyring::ephemeral();
    let stranger = KeyStore::new(world.store.clone(), elsewhere, world.clock.clone());
    let keys = SigningKeys::new(world.store.clone(), stranger, world.clock.clone());
    let mut keys = keys.with_walk_interval(Duration::ZERO);
    let update = keys.refresh().await.unwrap();
    assert_eq!((update.broken.len(), keys.broken()), (3, 3));
    let second = keys.refresh().await.unwrap();
    assert_eq!((second.broken.len(), keys.broken()), (0, 3), "told once");
}

pub(super) async fn signing_keys_are_loaded_in_few_statements(world: World) {
    world.many(60).await;
    let mut keys = keys(&world);
    let before = world.store.statements_sent();
    assert_eq!(keys.refresh().await.unwrap().keys.unwrap().len(), 60);
    let walked = world.store.statements_sent() - before;
    let before = world.store.statements_sent();
    assert!(keys.refresh().await.unwrap().keys.is_none());
    let check_statements = world.store.statements_sent() - before;
    assert!(walked <= 4 && check_statements == 1, "{walked} to walk, {check_statements} to look");
}
