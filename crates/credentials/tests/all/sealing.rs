//! Tests of values encrypted at rest.

use credentials::tables::SEALED_CREDENTIALS;
use credentials::{CaVersions, CredentialError, KeyUsage, Kind, NewCertificateVersion, Refusal, SetRequest};
use serde_json::json;
use store::SealedValue;
use tokio_util::sync::CancellationToken;

use crate::fixture::{Fixture, admin, name};

pub(crate) async fn sealed_values_moved_between_rows_are_rejected(fixture: Fixture) {
    let one = fixture.set("/one", Kind::Value, json!("first")).await;
    let two = fixture.set("/two", Kind::Value, json!("second")).await;
    let sealed = |id| {
        let store = fixture.store.clone();
        async move {
            credentials::tables::Credentials::of(&store)
                .version(&admin(), id, 0)
                .await
                .unwrap()
                .unwrap()
                .sealed
        }
    };
    let (first, second) = (sealed(one.id).await, sealed(two.id).await);
    let moved = vec![(SealedValue { row: one.id.as_bytes().to_vec(), sealed: first }, second)];
    let swap =
        fixture.store.write("move", |tx| Box::pin(store::replace_sealed(tx, &SEALED_CREDENTIALS, moved)));
    swap.await.unwrap();
    let error = fixture.credentials.current(&admin(), &name("/one")).await.unwrap_err();
    assert!(matches!(&error, CredentialError::Sealed { name, .. } if name == "/one"), "{error}");
    assert_eq!(error.refusal(), Refusal::Internal);
    assert!(error.details().unwrap().contains("the value of /one cannot be decrypted"), "named for the log");
    assert!(fixture.credentials.current(&admin(), &name("/two")).await.is_ok());
    let found = fixture.credentials.lookup(&admin(), &[name("/one"), name("/two")]).await.unwrap();
    assert!(found[0].as_ref().unwrap().is_err() && found[1].as_ref().unwrap().is_ok());
}

pub(crate) async fn any_flipped_bit_is_detected_and_other_credentials_stay_readable(fixture: Fixture) {
    let changed = fixture.set("/changed", Kind::Password, json!("first")).await;
    fixture.set("/other", Kind::Password, json!("second")).await;
    let whole = credentials::tables::Credentials::of(&fixture.store)
        .version(&admin(), changed.id, 0)
        .await
        .unwrap()
        .unwrap()
        .sealed;
    let mut stored = whole.clone();
    // Flips one bit of each byte: version, master key, wrapped data key, nonces, value, tags.
    for at in 0..whole.len() {
        let mut next = whole.clone();
        next[at] ^= 1 << (at % 8);
        let old = SealedValue { row: changed.id.as_bytes().to_vec(), sealed: stored };
        let replacement = vec![(old, next.clone())];
        let write = fixture
            .store
            .write("change", |tx| Box::pin(store::replace_sealed(tx, &SEALED_CREDENTIALS, replacement)));
        write.await.unwrap();
        stored = next;
        let found = fixture.credentials.lookup(&admin(), &[name("/changed"), name("/other")]).await.unwrap();
        let error = found[0].as_ref().unwrap().as_ref().unwrap_err();
        let named = error.details().unwrap();
        assert!(named.starts_with("the value of /changed cannot be decrypted: "), "octet {at}: {named}");
        assert_eq!(
            found[1]
                .as_ref()
                .unwrap()
                .as_ref()
                .unwrap()
                .value
                .response(CaVersions::All)
                .parse::<serde_json::Value>()
                .unwrap(),
            json!("second")
        );
    }
    // A master key rotation skips the unreadable value and reports it.
    let (keystore, _) = fixture.with_masters(&["newer", "master"]);
    let rotated = keystore.rewrap_all("user:a", |_| {}).await.unwrap();
    assert_eq!(
        (rotated.rewrapped, rotated.remaining),
        (2, 0),
        "the value's own seal is looked at when it is opened"
    );
}

pub(crate) async fn values_under_a_missing_master_key_are_counted(fixture: Fixture) {
    for number in 0..3 {
        fixture.set(&format!("/n/{number}"), Kind::Value, json!("v")).await;
    }
    let (keystore, newer) = fixture.with_masters(&["newer"]);
    let missing = keystore.master_keys_in_use().await.unwrap();
    let old = fixture.master("master").id().unwrap();
    let of_old = missing.iter().find(|key| key.id == old).unwrap();
    assert_eq!((of_old.configured, of_old.current, of_old.total()), (false, false, 3));
    assert_eq!(of_old.values, [("credential_versions.sealed".to_owned(), 3)]);
    let rotated = keystore.rewrap_all("user:a", |_| {}).await.unwrap();
    assert_eq!((rotated.remaining, rotated.failed.len()), (3, 3));
    assert!(rotated.failed[0].contains(&old.to_string()), "{:?}", rotated.failed);
    let of = rotated.columns.iter().find(|one| one.column == "credential_versions.sealed").unwrap();
    assert_eq!((of.rewrapped, of.remaining), (0, 3));
    newer.current(&admin(), &name("/n/1")).await.unwrap_err();
}

pub(crate) async fn credentials_are_unreadable_without_their_master_key(fixture: Fixture) {
    for number in 0..30 {
        fixture.set(&format!("/n/{number}"), Kind::Value, json!(number.to_string())).await;
    }
    let (_, stranger) = fixture.with_masters(&["other"]);
    let error = stranger.current(&admin(), &name("/n/1")).await.unwrap_err();
    assert!(error.to_string().contains("could not be accessed with the provided encryption keys"), "{error}");
    assert_eq!(stranger.key_usage().await.unwrap(), KeyUsage { active: 0, inactive: 0, unknown: 30 });
    // With both keys the old one decrypts, the new one encrypts, and a rotation re-wraps all values.
    let (keystore, both) = fixture.with_masters(&["other", "master"]);
    assert_eq!(both.key_usage().await.unwrap(), KeyUsage { active: 0, inactive: 30, unknown: 0 });
    assert!(both.current(&admin(), &name("/n/1")).await.is_ok());
    let rotated = keystore.rewrap_all("user:a", |_| {}).await.unwrap();
    assert_eq!((rotated.rewrapped, rotated.remaining), (30, 0));
    assert_eq!(both.key_usage().await.unwrap(), KeyUsage { active: 30, inactive: 0, unknown: 0 });
    let value = stranger
        .current(&admin(), &name("/n/7"))
        .await
        .unwrap()
        .remove(0)
        .value
        .response(CaVersions::All)
        .parse::<serde_json::Value>()
        .unwrap();
    assert_eq!(value, json!("7"), "the old key is not needed any more");
    assert!(fixture.master("master").id().is_ok());
}

/// Returns the ID of the newest version. Logs no read.
async fn newest(fixture: &Fixture, at: &str) -> uuid::Uuid {
    fixture.credentials.list_versions(&admin(), &name(at)).await.unwrap().versions[0].id
}

pub(crate) async fn secrets_are_absent_from_logs_events_and_debug_output(fixture: Fixture) {
    const CANARY: &str = "canary-7f3a";
    let stop = CancellationToken::new();
    let running = tokio::spawn(fixture.credentials.clone().run(stop.clone()));
    fixture.set("/c/value", Kind::Value, json!(CANARY)).await;
    fixture.set("/c/user", Kind::User, json!({ "username": "u", "password": CANARY })).await;
    fixture.set("/c/json", Kind::Json, json!({ "inner": CANARY })).await;
    fixture.credentials.current(&admin(), &name("/c/value")).await.unwrap();
    for at in ["/c/value", "/c/user", "/c/json"] {
        let read = fixture.credentials.version(&admin(), newest(&fixture, at).await).await.unwrap();
        assert!(!format!("{read:?}").contains(CANARY), "{read:?}");
    }
    let hash = fixture.credentials.current(&admin(), &name("/c/user")).await.unwrap().remove(0).value;
    let credentials::Value::User(user) = hash else { panic!("{hash:?}") };
    assert!(!format!("{user:?}").contains(&user.password_hash), "{user:?}");
    let request = SetRequest::new(name("/c/x"), Kind::Json, json!({ "inner": CANARY }));
    assert!(!format!("{request:?}").contains(CANARY), "{request:?}");
    let request = NewCertificateVersion { value: json!({ "private_key": CANARY }), transitional: false };
    assert!(!format!("{request:?}").contains(CANARY), "{request:?}");
    fixture.credentials.delete(&admin(), &name("/c/json")).await.unwrap();
    stop.cancel();
    running.await.unwrap();
    let log = fixture.log().await;
    assert!(log.iter().any(|line| line.contains("credential.read credential/c/user")), "{log:?}");
    let value_reads: Vec<&String> =
        log.iter().filter(|line| line.contains("credential.read credential/c/value")).collect();
    let times: u64 = value_reads.iter().map(|line| if line.contains("\"times\":2") { 2 } else { 1 }).sum();
    assert_eq!(times, 2, "one event with its count, or two when a batch ended between: {value_reads:?}");
    assert_eq!(log.iter().filter(|line| line.contains("credential.set")).count(), 3, "{log:?}");
    assert!(log.iter().all(|line| !line.contains(CANARY)), "{log:?}");
    // PostgreSQL returns an event only after all earlier transactions of the cluster have ended, including those of other tests.
    let all = async {
        loop {
            let events = fixture.store.outbox_after(store::OutboxPosition::default(), 100).await.unwrap();
            if events.len() >= 4 {
                break events;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let events = tokio::time::timeout(std::time::Duration::from_secs(60), all).await.unwrap();
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(
        kinds,
        ["credential.changed", "credential.changed", "credential.changed", "credential.deleted"]
    );
    assert!(events.iter().all(|event| !event.body.contains(CANARY)));
}
