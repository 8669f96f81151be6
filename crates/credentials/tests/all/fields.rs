//! Credentials by version number and as fields.

use credentials::{
    CaVersions, CredentialError, Kind, Numbered, Operation, Operations, PermissionPath, Regeneration,
    VersionsChange,
};
use serde_json::{Map, Value as Json, json};

use crate::fixture::{Fixture, admin, client, name};

fn fields(value: Json) -> Map<String, Json> {
    value.as_object().unwrap().clone()
}

/// Returns the version number, and its state as text.
fn describe(found: Numbered) -> (u64, &'static str) {
    match found {
        Numbered::Readable(version) => (version.number, "readable"),
        Numbered::Ended(version) => (version.number, "ended"),
        Numbered::Destroyed(number) => (number, "destroyed"),
    }
}

pub(crate) async fn numbered_lookup_reports_readable_expired_and_destroyed_versions(fixture: Fixture) {
    let store = &fixture.credentials;
    for value in ["one", "two", "three", "four"] {
        fixture.set("/n", Kind::Value, json!(value)).await;
    }
    let at = name("/N");
    store.change_versions(&admin(), &at, Some(vec![2]), VersionsChange::Destroy).await.unwrap();
    store.change_versions(&admin(), &at, Some(vec![3]), VersionsChange::Delete).await.unwrap();
    let find = async |number| store.numbered(&admin(), &at, number).await.map(describe);
    for (number, what) in [(1, "readable"), (2, "destroyed"), (3, "ended"), (4, "readable")] {
        assert_eq!(find(Some(number)).await.unwrap(), (number, what));
    }
    assert_eq!(find(None).await.unwrap(), (4, "readable"));
    assert!(matches!(find(Some(5)).await, Err(CredentialError::NotFound)));
    store.change_versions(&admin(), &at, Some(vec![4]), VersionsChange::Destroy).await.unwrap();
    assert_eq!(find(None).await.unwrap(), (4, "destroyed"), "no older one in its stead");
    let other = store.numbered(&client("other"), &at, None).await;
    assert!(matches!(other, Err(CredentialError::NotFound)), "{other:?}");
    // During a CA rotation the active version is returned, not the newest.
    let ca = crate::certificates::make(&fixture, "/ca", |wanted| wanted.is_ca = true).await;
    let change = Regeneration { set_as_transitional: true, ..Regeneration::default() };
    store.regenerate_certificate(&admin(), ca.credential, change).await.unwrap();
    let find = async |number| store.numbered(&admin(), &name("/ca"), number).await.map(describe);
    assert_eq!((find(None).await.unwrap().0, find(Some(2)).await.unwrap().0), (1, 2));
}

pub(crate) async fn concurrent_patches_are_all_applied(fixture: Fixture) {
    let store = &fixture.credentials;
    store.set_fields(&admin(), name("/p"), json!({ "kept": 1 }).into(), Some(0)).await.unwrap();
    store.set_metadata(&admin(), &name("/p"), Some(json!({ "owner": "a" }))).await.unwrap();
    let patch = async |field: &str| {
        let patch = json!({ field: "x" }).into();
        store.patch_fields(&admin(), &name("/p"), &patch, None).await
    };
    // In each round one patch succeeds and the others are retried, at most three times.
    let (a, b, c) = tokio::join!(patch("a"), patch("b"), patch("c"));
    for done in [a, b, c] {
        done.unwrap();
    }
    let Numbered::Readable(newest) = store.numbered(&admin(), &name("/p"), None).await.unwrap() else {
        panic!("it is there");
    };
    assert_eq!(
        newest.value.fields(CaVersions::All).unwrap().parse::<Json>().unwrap(),
        json!({ "kept": 1, "a": "x", "b": "x", "c": "x" })
    );
    assert_eq!((newest.number, newest.metadata), (4, Some(json!({ "owner": "a" }))), "notes go along");
    let log = fixture.log().await;
    assert_eq!(log.iter().filter(|line| line.contains("credential.metadata")).count(), 1, "{log:?}");
    // Concurrent metadata patches are all applied, and none of them runs out of retries.
    let notes = (0..8).map(|number| {
        let patch = fields(json!({ "owner": null, format!("n{number}"): "x" }));
        async move { store.patch_metadata(&admin(), &name("/p"), patch).await }
    });
    for done in futures_util::future::join_all(notes).await {
        done.unwrap();
    }
    let noted = store.current(&admin(), &name("/p")).await.unwrap().remove(0).metadata;
    let all: Map<String, Json> = (0..8).map(|number| (format!("n{number}"), json!("x"))).collect();
    assert_eq!(noted, Some(Json::Object(all)));
    let long = fields(json!({ "n0": "x".repeat(1 << 16) }));
    let refused = store.patch_metadata(&admin(), &name("/p"), long).await;
    assert!(matches!(refused, Err(CredentialError::Bad(_))), "{refused:?}");
}

pub(crate) async fn credential_type_is_hidden_without_write_permission(fixture: Fixture) {
    let store = &fixture.credentials;
    fixture.set("/secret", Kind::Password, json!("p")).await;
    let misfit = || json!({ "user": "u" }).into();
    let stranger = client("stranger");
    let refused = store.set_fields(&stranger, name("/secret"), misfit(), None).await;
    assert!(matches!(refused, Err(CredentialError::Forbidden)), "{refused:?}");
    let refused = store.set_metadata(&stranger, &name("/secret"), None).await;
    assert!(matches!(refused, Err(CredentialError::NotFound)), "{refused:?}");
    let (path, write) = (PermissionPath::parse("/secret").unwrap(), Operations::parse(&["write"]).unwrap());
    store.grant(&admin(), &stranger.actor, &path, write).await.unwrap();
    assert!(store.may(&stranger, &name("/secret"), Operation::Write).await.unwrap());
    assert!(!store.may(&stranger, &name("/secret"), Operation::Read).await.unwrap());
    let refused = store.set_fields(&stranger, name("/secret"), misfit(), None).await;
    assert!(matches!(refused, Err(CredentialError::Bad(_))), "{refused:?}");
    let written =
        store.set_fields(&stranger, name("/secret"), json!({ "password": "q" }).into(), Some(1)).await;
    assert_eq!(written.unwrap().kind(), Kind::Password);
}
