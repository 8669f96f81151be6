//! Tests of stored keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use authority::keystore::{KeyStore, KeyStoreError, MasterKeyCheckError, RotationProgress};
use authority::tree::NewCa;
use db::{Cursor, Value};
use futures_util::future::BoxFuture;
use keys::{
    KeyProvider, KeyRef, KeyType, MasterKeySource, OpenError, PrivateKey, ProvidedKey, SignError, Signer,
};
use store::{SEALED_KEYS, SealedValue};
use uuid::Uuid;
use x509::{PublicKey, verify_signature};

use crate::fixture::Fixture;

async fn signs(key: &KeyRef) {
    let signature = key.sign(b"message", Instant::now() + Duration::from_secs(30)).await.unwrap();
    let public = PublicKey::parse(key.spki()).unwrap();
    assert_eq!(verify_signature(&public, &key.algorithm(), b"message", &signature), Ok(()));
}

fn master(fixture: &Fixture, name: &str) -> MasterKeySource {
    MasterKeySource::File { path: fixture.path(name), create: true }
}

pub(crate) async fn key_signs_after_restart_only_with_its_master_key(fixture: Fixture) {
    for kind in [KeyType::Rsa2048, KeyType::P256, KeyType::Ed25519, KeyType::MlDsa65] {
        let (id, key) = fixture.keystore.generate(kind, "a label", "user:a").await.unwrap();
        signs(&key).await;
        let second = fixture.keystore_with(&["master"]).signer(id).await.unwrap();
        assert_eq!((second.key_type(), second.spki()), (kind, key.spki()));
        signs(&second).await;
        let row = store::Keys::of(&fixture.store).get(id).await.unwrap().unwrap();
        assert_eq!((row.label.as_str(), row.provider.as_str()), ("a label", "sealed"));
        assert!(!format!("{row:?}").contains("sealed: Some"));
        assert_eq!(fixture.keystore.private_key(id).await.unwrap().spki(), key.spki());
        let other = fixture.keystore_with(&["other"]).signer(id).await.unwrap_err();
        assert!(matches!(other, KeyStoreError::Sealed { error: OpenError::UnknownMaster(_), .. }), "{other}");
    }
    let unknown = Uuid::now_v7();
    let error = fixture.keystore.signer(unknown).await.unwrap_err();
    assert!(matches!(error, KeyStoreError::Unknown(id) if id == unknown), "{error}");
    let listed = store::Keys::of(&fixture.store).page(None, 3).await.unwrap();
    assert_eq!(listed.rows.len(), 3);
    let rest = store::Keys::of(&fixture.store).page(listed.next.as_ref(), 3).await.unwrap();
    assert_eq!((rest.rows.len(), rest.next), (1, None));
    assert_eq!(fixture.actions().await, ["key.generate"; 4]);
}

pub(crate) async fn imported_key_is_stored_once(fixture: Fixture) {
    let key = PrivateKey::generate(KeyType::P256).unwrap();
    let (one, _) = fixture.keystore.import(key.clone(), "one", "user:a").await.unwrap();
    let (two, _) = fixture.keystore.import(key, "two", "user:b").await.unwrap();
    assert_eq!(one, two);
    assert_eq!(store::Keys::of(&fixture.store).get(one).await.unwrap().unwrap().label, "one");
    signs(&fixture.keystore_with(&["master"]).signer(one).await.unwrap()).await;
}

pub(crate) async fn blocked_key_cannot_sign(fixture: Fixture) {
    let (id, key) = fixture.keystore.generate(KeyType::P256, "a", "user:a").await.unwrap();
    signs(&fixture.keystore.signer(id).await.unwrap()).await;
    assert!(fixture.keystore.block(id, "stolen", "user:b").await.unwrap());
    assert!(!fixture.keystore.block(id, "again", "user:b").await.unwrap());
    let error = fixture.keystore.signer(id).await.unwrap_err();
    assert!(matches!(&error, KeyStoreError::Blocked { reason, .. } if reason == "stolen"), "{error}");
    assert!(matches!(fixture.keystore.private_key(id).await.unwrap_err(), KeyStoreError::Blocked { .. }));
    assert!(matches!(
        fixture.keystore.block(Uuid::now_v7(), "none", "user:b").await.unwrap_err(),
        KeyStoreError::Unknown(_)
    ));
    drop(key);
    assert_eq!(fixture.actions().await, ["key.generate", "key.block"]);
}

pub(crate) async fn sealed_keys_moved_between_rows_are_rejected(fixture: Fixture) {
    let (one, _) = fixture.keystore.generate(KeyType::P256, "one", "user:a").await.unwrap();
    let (two, _) = fixture.keystore.generate(KeyType::P256, "two", "user:a").await.unwrap();
    let sealed = |id| {
        let store = fixture.store.clone();
        async move { store::Keys::of(&store).get(id).await.unwrap().unwrap().sealed.unwrap() }
    };
    let (first, second) = (sealed(one).await, sealed(two).await);
    let moved = vec![(SealedValue { row: one.as_bytes().to_vec(), sealed: first }, second)];
    fixture.store.write("move", |tx| Box::pin(store::replace_sealed(tx, &SEALED_KEYS, moved))).await.unwrap();
    let error = fixture.keystore.signer(one).await.unwrap_err();
    assert!(matches!(error, KeyStoreError::Sealed { error: OpenError::Forged, .. }), "{error}");
    signs(&fixture.keystore.signer(two).await.unwrap()).await;
    // A rotation reports the key and leaves it unchanged.
    let rotated = fixture.keystore.rotate_master(&master(&fixture, "new"), "user:a", |_| {}).await.unwrap();
    assert_eq!((rotated.rewrapped, rotated.remaining, rotated.failed.len()), (1, 1, 1));
    assert!(rotated.failed[0].starts_with(&format!("keys.sealed {one}")), "{:?}", rotated.failed);
}

/// Creates a few hundred keys: more than one or two pages of a rotation.
async fn many(keystore: &KeyStore, fixture: &Fixture, count: usize) -> Vec<Uuid> {
    let mut rows = Vec::with_capacity(count);
    for _ in 0..count {
        rows.push(keystore.prepare(KeyType::Ed25519, "one of many").await.unwrap().row);
    }
    let ids = rows.iter().map(|row| row.id).collect();
    let stored = fixture.store.write("many", move |tx| {
        Box::pin(async move {
            for row in &rows {
                store::insert_key(tx, row).await?;
            }
            Ok(())
        })
    });
    stored.await.unwrap();
    ids
}

pub(crate) async fn master_key_rotates_in_pages_while_keys_are_used(fixture: Fixture) {
    let ids = many(&fixture.keystore, &fixture, 1_100).await;
    let before = fixture.store.statements_sent();
    let mut seen: Vec<RotationProgress> = Vec::new();
    let new = master(&fixture, "new");
    let rotation = fixture.keystore.rotate_master(&new, "user:a", |at| seen.push(at.clone()));
    let reader = async {
        for id in ids.iter().step_by(100) {
            signs(&fixture.keystore_with(&["master", "new"]).signer(*id).await.unwrap()).await;
        }
    };
    let (rotated, ()) = tokio::join!(rotation, reader);
    let rotated = rotated.unwrap();
    assert_eq!((rotated.rewrapped, rotated.remaining, rotated.failed.len()), (1_100, 0, 0));
    assert_eq!(rotated.master, master(&fixture, "new").id().unwrap());
    let done: Vec<u64> = seen.iter().map(|at| at.done).collect();
    assert_eq!(done, [0, 500, 1_000, 1_100]);
    assert!(seen.iter().all(|at| at.total == 1_100 && at.column == "keys.sealed"));
    // The number of statements depends on pages, not rows: three to read and three to write, two counts, the audit row, and about
    // twelve of the reader.
    let sent = fixture.store.statements_sent() - before;
    assert!(sent < 50, "{sent} statements");
    // The old master key is no longer needed.
    let fresh = fixture.keystore_with(&["new"]);
    for id in &ids[1_080..] {
        signs(&fresh.signer(*id).await.unwrap()).await;
    }
    assert_eq!(fixture.actions().await, ["master_key.rotate"]);
    let second = fixture.keystore.rotate_master(&master(&fixture, "new"), "user:a", |_| {}).await.unwrap();
    assert_eq!((second.rewrapped, second.remaining), (0, 0));
}

pub(crate) async fn interrupted_master_key_rotation_is_finished_by_the_next(fixture: Fixture) {
    let ids = many(&fixture.keystore, &fixture, 1_100).await;
    let reached = Arc::new(AtomicU64::new(0));
    let (notify, notified) = tokio::sync::oneshot::channel();
    let mut notify = Some(notify);
    let count = Arc::clone(&reached);
    let new = master(&fixture, "new");
    let rotation = fixture.keystore.rotate_master(&new, "user:a", move |at| {
        count.store(at.done, Ordering::SeqCst);
        if at.done >= 500
            && let Some(notify) = notify.take()
        {
            notify.send(()).unwrap();
        }
    });
    // The process ends after the first page.
    tokio::select! {
        biased;
        _ = notified => {}
        done = rotation => panic!("finished: {done:?}"),
    }
    assert_eq!(reached.load(Ordering::SeqCst), 500);
    // The next process has both master keys, as the configuration requires, and can open every key.
    let next = fixture.keystore_with(&["new", "master"]);
    for id in ids.iter().step_by(50) {
        signs(&next.signer(*id).await.unwrap()).await;
    }
    let rotated = next.rotate_master(&master(&fixture, "new"), "user:a", |_| {}).await.unwrap();
    assert_eq!(rotated.remaining, 0);
    // At most the page in progress was rewrapped twice or not at all.
    assert!((100..=600).contains(&rotated.rewrapped), "{}", rotated.rewrapped);
    let fresh = fixture.keystore_with(&["new"]);
    for id in ids.iter().step_by(50) {
        signs(&fresh.signer(*id).await.unwrap()).await;
    }
}

/// A simulated hardware module that keeps its keys in a map.
#[derive(Debug, Default)]
struct Module(std::sync::Mutex<std::collections::HashMap<String, PrivateKey>>);

impl KeyProvider for Module {
    fn name(&self) -> &str {
        "module"
    }

    fn generate<'a>(
        &'a self,
        kind: KeyType,
        label: &'a str,
    ) -> BoxFuture<'a, Result<ProvidedKey, SignError>> {
        Box::pin(async move {
            let key = PrivateKey::generate(kind).map_err(|error| SignError::Failed(error.to_string()))?;
            self.0.lock().unwrap().insert(label.to_owned(), key.clone());
            Ok(ProvidedKey { locator: label.to_owned(), signer: Arc::new(key) })
        })
    }

    fn open<'a>(&'a self, locator: &'a str) -> BoxFuture<'a, Result<KeyRef, SignError>> {
        let found = self.0.lock().unwrap().get(locator).cloned();
        Box::pin(async move {
            let key: KeyRef = Arc::new(found.ok_or_else(|| SignError::Failed("no such key".to_owned()))?);
            Ok(key)
        })
    }
}

pub(crate) async fn provider_key_stays_with_the_provider_and_swapped_keys_are_rejected(fixture: Fixture) {
    let module = Arc::new(Module::default());
    fixture.keystore.add_provider(module.clone());
    let new = NewCa { key_provider: Some("module".to_owned()), ..NewCa::root("root", "CN=Root") };
    let ca = fixture.authority.create_root(&new, "user:a").await.unwrap();
    let row = store::Keys::of(&fixture.store).get(ca.key_id).await.unwrap().unwrap();
    assert_eq!(
        (row.provider.as_str(), row.sealed, row.locator.as_deref()),
        ("module", None, Some("CA root"))
    );
    signs(&ca.signer).await;
    let error = fixture.keystore.private_key(ca.key_id).await.unwrap_err();
    assert!(
        matches!(&error, KeyStoreError::NotExportable { provider, .. } if provider == "module"),
        "{error}"
    );
    // A node without the module loads the CA but cannot sign.
    let other = fixture.keystore_with(&["master"]);
    assert!(matches!(other.signer(ca.key_id).await.unwrap_err(), KeyStoreError::NoProvider(_)));
    // Another key replaces ours in the module.
    module.0.lock().unwrap().insert("CA root".to_owned(), PrivateKey::generate(KeyType::P384).unwrap());
    let fresh = fixture.keystore_with(&["master"]);
    fresh.add_provider(module);
    assert!(matches!(fresh.signer(ca.key_id).await.unwrap_err(), KeyStoreError::Swapped(_)));
}

/// Returns the IDs of the canaries.
async fn canaries(fixture: &Fixture) -> Vec<[u8; 8]> {
    store::Keys::of(&fixture.store).master().await.unwrap().into_iter().map(|row| row.id).collect()
}

pub(crate) async fn startup_rejects_master_keys_unknown_to_the_database(fixture: Fixture) {
    let id = |name: &str| *master(&fixture, name).id().unwrap().as_bytes();
    // A database without canaries, as earlier versions left it: the sealed keys identify their master key.
    fixture.keystore.generate(KeyType::P256, "a", "user:a").await.unwrap();
    let wrong = |error: MasterKeyCheckError| match error {
        MasterKeyCheckError::Wrong { expected, given } => (expected, given),
        other => panic!("{other}"),
    };
    let (expected, given) = wrong(fixture.keystore_with(&["other"]).verify_master_keys().await.unwrap_err());
    assert_eq!(expected, master(&fixture, "master").id().unwrap().to_string());
    assert_eq!(given, master(&fixture, "other").id().unwrap());
    assert_eq!(canaries(&fixture).await, Vec::<[u8; 8]>::new(), "nothing was written");
    fixture.keystore_with(&["master"]).verify_master_keys().await.unwrap();
    assert_eq!(canaries(&fixture).await, [id("master")]);
    // From now on the canary decides, whatever keys are sealed.
    wrong(fixture.keystore_with(&["other"]).verify_master_keys().await.unwrap_err());
    wrong(fixture.keystore_with(&["other", "third"]).verify_master_keys().await.unwrap_err());
    assert_eq!(canaries(&fixture).await, [id("master")]);
    // A second canary exists next to the old one until all keys are rotated.
    let next = fixture.keystore_with(&["new", "master"]);
    next.verify_master_keys().await.unwrap();
    next.verify_master_keys().await.unwrap();
    assert_eq!(canaries(&fixture).await.len(), 2);
    fixture.keystore_with(&["master"]).verify_master_keys().await.unwrap();
    assert_eq!(next.rewrap_all("user:a", |_| {}).await.unwrap().remaining, 0);
    assert_eq!(canaries(&fixture).await, [id("new")], "nothing is under the old one");
    let (expected, _) = wrong(fixture.keystore_with(&["master"]).verify_master_keys().await.unwrap_err());
    assert_eq!(expected, master(&fixture, "new").id().unwrap().to_string());
    fixture.keystore_with(&["new"]).verify_master_keys().await.unwrap();
    // A truncated id is damage, not a change by another request.
    let truncated = fixture.store.write("truncate", |tx| {
        Box::pin(tx.execute("-- truncate\nUPDATE master_keys SET id = ?1", vec![[1_u8].as_slice().into()]))
    });
    assert_eq!(truncated.await.unwrap(), 1);
    let damaged = store::Keys::of(&fixture.store).master().await;
    assert!(matches!(damaged, Err(store::StoreError::Corrupt(_))), "{damaged:?}");
}

pub(crate) async fn concurrent_first_starts_with_different_master_keys_admit_one(fixture: Fixture) {
    let (one, two) = (fixture.keystore_with(&["one"]), fixture.keystore_with(&["two"]));
    let (first, second) = tokio::join!(one.verify_master_keys(), two.verify_master_keys());
    assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
    assert_eq!(canaries(&fixture).await.len(), 1);
}

#[tokio::test]
async fn hidden_cursor_is_revealed_only_with_the_master_key() {
    let fixture = Fixture::sqlite().await;
    let cursor = Cursor::new("managed-name", &[Value::Text("secret.example".to_owned())]);
    let hidden: Cursor = fixture.keystore.hide_cursor(&cursor).to_string().parse().unwrap();
    let key = hidden.key("hidden", &[Value::Text(String::new())]).unwrap();
    assert!(!format!("{key:?}").contains(cursor.to_string().as_str()));
    assert_eq!(fixture.keystore_with(&["master"]).reveal_cursor(&hidden).unwrap(), cursor);
    fixture.keystore_with(&["other"]).reveal_cursor(&hidden).unwrap_err();
    let forged = Cursor::new("hidden", &[Value::Text("AAAA".to_owned())]);
    fixture.keystore.reveal_cursor(&forged).unwrap_err();
    assert_eq!(fixture.keystore.reveal_cursor(&cursor).unwrap(), cursor);
}
