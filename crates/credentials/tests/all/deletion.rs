//! Expiry, deletion, undeletion and destruction.

use credentials::{
    CaVersions, CredentialError, Credentials, CredentialsOptions, Kind, Mode, PermissionPath, Retention,
    SearchFilter, SetRequest, VersionsChange,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::fixture::{Fixture, admin, client, name};

const DAY_S: u64 = 86_400;

async fn text(credentials: &Credentials, at: &str) -> Option<String> {
    let version = credentials.current(&admin(), &name(at)).await.ok()?.remove(0);
    version.value.response(CaVersions::All).parse::<serde_json::Value>().unwrap().as_str().map(str::to_owned)
}

async fn names(credentials: &Credentials) -> Vec<String> {
    let found = credentials.find(&admin(), &SearchFilter::NameLike(String::new()), None).await.unwrap();
    found.into_iter().map(|found| found.name).collect()
}

async fn destroy_past(credentials: &Credentials) {
    credentials.destroy_past(&CancellationToken::new()).await.unwrap();
}

pub(crate) async fn version_expires_at_its_time_to_live(fixture: Fixture) {
    let store = &fixture.credentials;
    let short = |value: &str| SetRequest {
        ttl_s: Some(60),
        ..SetRequest::new(name("/short"), Kind::Value, json!(value))
    };
    let stored = store.set(&admin(), short("one")).await.unwrap();
    assert_eq!(stored.ends_at_us, Some(stored.created_at_us + 60_000_000));
    fixture.advance(59);
    assert_eq!(text(store, "/short").await.as_deref(), Some("one"));
    fixture.advance(1);
    let absent = [
        store.current(&admin(), &name("/short")).await.map(drop),
        store.versions(&admin(), &name("/short"), None).await.map(drop),
        store.version(&admin(), stored.id).await.map(drop),
    ];
    assert!(absent.iter().all(|answer| matches!(answer, Err(CredentialError::NotFound))), "{absent:?}");
    assert_eq!(store.find_exactly(&admin(), &name("/short")).await.unwrap(), None);
    assert_eq!(names(store).await, Vec::<String>::new());
    // An expired credential counts as absent: a write with `expected: None` succeeds.
    let first =
        SetRequest { expected: Some(None), ..SetRequest::new(name("/short"), Kind::Value, json!("two")) };
    assert_eq!(store.set(&admin(), first).await.unwrap().number, 2);
    assert_eq!(text(store, "/short").await.as_deref(), Some("two"));
    for ttl_s in [0, credentials::TTL_S_MAX + 1] {
        let request = SetRequest { ttl_s: Some(ttl_s), ..short("x") };
        let error = store.set(&admin(), request).await.unwrap_err();
        assert!(matches!(error, CredentialError::Bad(_)), "{error}");
    }
    // Expired versions are destroyed after the retention days. A name without versions is deleted.
    store.set(&admin(), SetRequest { name: name("/gone"), ..short("x") }).await.unwrap();
    fixture.advance(60 + 7 * DAY_S);
    store.set_read_only(true);
    destroy_past(store).await;
    assert!(store.list_versions(&admin(), &name("/gone")).await.is_ok(), "nothing is to be changed");
    store.set_read_only(false);
    destroy_past(store).await;
    let left = store.list_versions(&admin(), &name("/short")).await.unwrap().versions;
    assert_eq!(left.iter().map(|version| version.number).collect::<Vec<_>>(), [2]);
    let error = store.list_versions(&admin(), &name("/gone")).await.unwrap_err();
    assert!(matches!(error, CredentialError::NotFound));
    assert_eq!(text(store, "/short").await.as_deref(), Some("two"));
}

pub(crate) async fn expired_credentials_are_listed_and_undeleted(fixture: Fixture) {
    let store = &fixture.credentials;
    let short =
        |at: &str| SetRequest { ttl_s: Some(60), ..SetRequest::new(name(at), Kind::Value, json!("one")) };
    for at in ["/short", "/Other/short"] {
        store.set(&admin(), short(at)).await.unwrap();
        fixture.advance(1);
    }
    assert!(store.deleted(&admin()).await.unwrap().is_empty(), "not ended yet");
    fixture.advance(60);
    let listed = async |requester| {
        let deleted = store.deleted(&requester).await.unwrap();
        deleted.into_iter().map(|one| one.name).collect::<Vec<_>>()
    };
    assert_eq!(listed(admin()).await, ["/Other/short", "/short"], "the last first");
    assert_eq!(listed(client("nobody")).await, [""; 0]);
    let refused = store.undelete(&client("nobody"), &name("/short")).await;
    assert!(matches!(refused, Err(CredentialError::NotFound)), "{refused:?}");
    assert_eq!(store.undelete(&admin(), &name("/Short")).await.unwrap().name, "/short");
    assert_eq!(text(store, "/short").await.as_deref(), Some("one"));
    assert_eq!(listed(admin()).await, ["/Other/short"]);
    fixture.advance(3_600);
    assert_eq!(text(store, "/short").await.as_deref(), Some("one"), "for good");
    // A value written after the expiry takes the name, so nothing can be undeleted.
    fixture.set("/other/short", Kind::Value, json!("two")).await;
    assert_eq!(listed(admin()).await, [""; 0]);
}

pub(crate) async fn deleted_credential_is_undeleted_within_the_retention_period(fixture: Fixture) {
    let store = &fixture.credentials;
    fixture.set("/Team/a", Kind::Value, json!("1")).await;
    fixture.set("/team/A", Kind::Value, json!("2")).await;
    let certificate = crate::certificates::make(&fixture, "/team/b", |wanted| wanted.self_sign = true).await;
    for at in ["/team/a", "/team/b"] {
        store.delete(&admin(), &name(at)).await.unwrap();
    }
    assert_eq!(names(store).await, Vec::<String>::new());
    assert!(store.certificates(&admin()).await.unwrap().is_empty());
    assert!(matches!(store.version(&admin(), certificate.id).await, Err(CredentialError::NotFound)));
    assert!(matches!(
        store.certificate_versions(&admin(), certificate.credential).await,
        Err(CredentialError::NotFound)
    ));
    // A client without write permission sees no deleted credentials and cannot undelete them.
    let path = PermissionPath::parse("/team/*").unwrap();
    let operations = credentials::Operations::parse(&["read", "delete"]).unwrap();
    store.grant(&admin(), "uaa-client:reader", &path, operations).await.unwrap();
    assert!(store.deleted(&client("reader")).await.unwrap().is_empty());
    let refused = store.undelete(&client("reader"), &name("/team/a")).await;
    assert!(matches!(refused, Err(CredentialError::NotFound)), "{refused:?}");
    let deleted = store.deleted(&admin()).await.unwrap();
    let response: Vec<&str> = deleted.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(response, ["/team/b", "/Team/a"]);

    // An existing name is not overwritten. If several credentials were deleted, the last one is restored.
    fixture.set("/team/a", Kind::Password, json!("other")).await;
    assert!(matches!(store.undelete(&admin(), &name("/team/a")).await, Err(CredentialError::Changed)));
    store.delete(&admin(), &name("/team/a")).await.unwrap();
    fixture.advance(1);
    store.undelete(&admin(), &name("/TEAM/A")).await.unwrap();
    assert_eq!(text(store, "/team/a").await.as_deref(), Some("other"));
    store.delete(&admin(), &name("/team/a")).await.unwrap();

    fixture.advance(7 * DAY_S - 1);
    destroy_past(store).await;
    let deleted = store.deleted(&admin()).await.unwrap();
    assert_eq!(deleted.len(), 1, "{deleted:?}");
    store.undelete(&admin(), &name("/team/a")).await.unwrap();
    store.delete(&admin(), &name("/team/a")).await.unwrap();
    fixture.advance(7 * DAY_S);
    let late = store.undelete(&admin(), &name("/team/a")).await;
    assert!(matches!(late, Err(CredentialError::NotFound)), "past its days, and not yet destroyed: {late:?}");
    assert_eq!(store.deleted(&admin()).await.unwrap(), Vec::new());
    destroy_past(store).await;
    assert!(matches!(store.undelete(&admin(), &name("/team/a")).await, Err(CredentialError::NotFound)));
    let log = fixture.log().await;
    assert_eq!(log.iter().filter(|line| line.contains("credential.undelete ")).count(), 2, "{log:?}");
}

pub(crate) async fn versions_are_deleted_undeleted_and_destroyed_by_number(fixture: Fixture) {
    let store = &fixture.credentials;
    for value in ["one", "two", "three"] {
        fixture.set("/v", Kind::Value, json!(value)).await;
    }
    let change = |numbers: Option<Vec<u64>>, change| async move {
        store.change_versions(&admin(), &name("/v"), numbers, change).await.unwrap();
    };
    change(None, VersionsChange::Delete).await;
    assert_eq!(text(store, "/v").await, None, "the newest is deleted, and no older one takes its place");
    assert_eq!(names(store).await, Vec::<String>::new());
    let listed = store.list_versions(&admin(), &name("/v")).await.unwrap().versions;
    let ended: Vec<bool> = listed.iter().map(|version| version.ends_at_us.is_some()).collect();
    assert_eq!(ended, [true, false, false]);
    change(Some(vec![3]), VersionsChange::Undelete).await;
    assert_eq!(text(store, "/v").await.as_deref(), Some("three"));
    change(Some(vec![1, 3, 9]), VersionsChange::Destroy).await;
    assert_eq!(text(store, "/v").await.as_deref(), Some("two"));
    // Version numbers are never reused.
    let after = |number| SetRequest {
        expected_number: Some(number),
        ..SetRequest::new(name("/v"), Kind::Value, json!("four"))
    };
    assert!(matches!(store.set(&admin(), after(2)).await, Err(CredentialError::Changed)));
    assert_eq!(store.set(&admin(), after(3)).await.unwrap().number, 4);
    let never = SetRequest { name: name("/never"), ..after(7) };
    assert!(matches!(store.set(&admin(), never).await, Err(CredentialError::Changed)));
    assert_eq!(names(store).await, ["/v"], "a name that was not made is not there");
    let reader = client("reader");
    let denied = store.change_versions(&reader, &name("/v"), None, VersionsChange::Delete).await;
    assert!(matches!(denied, Err(CredentialError::NotFound)));
    change(Some(vec![2, 4]), VersionsChange::Destroy).await;
    assert!(matches!(store.list_versions(&admin(), &name("/v")).await, Err(CredentialError::NotFound)));
}

pub(crate) async fn old_versions_are_retained_as_the_path_policy_allows(fixture: Fixture) {
    let retention =
        |path: &str, versions, days| Retention { path: PermissionPath::parse(path).unwrap(), versions, days };
    let options = CredentialsOptions {
        retention: vec![
            retention("/*", None, Some(30)),
            retention("/ci/*", Some(3), None),
            retention("/ci/long", Some(5), Some(1)),
        ],
        ..CredentialsOptions::default()
    };
    let store = fixture.with_options(options);
    let numbers = |at: &'static str| {
        let store = store.clone();
        async move {
            let listed = store.list_versions(&admin(), &name(at)).await.unwrap().versions;
            listed.into_iter().map(|version| version.number).collect::<Vec<_>>()
        }
    };
    for value in 0..8 {
        for at in ["/ci/a", "/ci/long", "/else"] {
            let request = SetRequest::new(name(at), Kind::Value, json!(value.to_string()));
            store.set(&admin(), request).await.unwrap();
        }
    }
    assert_eq!(numbers("/ci/a").await, [8, 7, 6]);
    assert_eq!(numbers("/ci/long").await, [8, 7, 6, 5, 4]);
    assert_eq!(numbers("/else").await.len(), 8);
    fixture.advance(2 * DAY_S);
    destroy_past(&store).await;
    assert_eq!(numbers("/ci/long").await, [8], "what is current stays, however old");
    assert_eq!((numbers("/ci/a").await.len(), numbers("/else").await.len()), (3, 8));
    fixture.advance(30 * DAY_S);
    destroy_past(&store).await;
    assert_eq!((numbers("/ci/a").await.len(), numbers("/else").await.len()), (3, 1));
    assert_eq!(text(&store, "/else").await.as_deref(), Some("7"));
}

pub(crate) async fn child_paths_are_listed_by_read_permission(fixture: Fixture) {
    let store = &fixture.credentials;
    for at in ["/a", "/A/b", "/A/b-c", "/A/b/c", "/A/b/d", "/A/z/y/x", "/b/only"] {
        fixture.set(at, Kind::Value, json!("x")).await;
    }
    let children = |requester, path: Option<&'static str>| async move {
        store.children(&requester, path.map(name).as_ref()).await.unwrap()
    };
    assert_eq!(children(admin(), None).await, ["a", "A/", "b/"]);
    assert_eq!(children(admin(), Some("/a")).await, ["b", "b-c", "b/", "z/"]);
    assert_eq!(children(admin(), Some("/A/b")).await, ["c", "d"]);
    assert_eq!(children(admin(), Some("/none")).await, Vec::<String>::new());
    let path = PermissionPath::parse("/a/z/*").unwrap();
    let read = credentials::Operations::parse(&["read"]).unwrap();
    store.grant(&admin(), "uaa-client:reader", &path, read).await.unwrap();
    assert_eq!(children(client("reader"), None).await, ["A/"]);
    assert_eq!(children(client("reader"), Some("/a")).await, ["z/"]);
    let before = fixture.store.statements_sent();
    children(admin(), None).await;
    assert_eq!(fixture.store.statements_sent() - before, 1);
}

pub(crate) async fn generation_succeeds_while_the_name_is_deleted_concurrently(fixture: Fixture) {
    let (store, deleted, who) = (&fixture.credentials, name("/racing"), admin());
    for _ in 0..40 {
        let request = crate::values::password("/racing", 20, Mode::Overwrite);
        let (made, _) = tokio::join!(store.generate(&who, request), store.delete(&who, &deleted));
        assert_eq!(made.unwrap().name, "/racing");
    }
}

pub(crate) async fn expired_version_is_not_replaced_by_an_older_one(fixture: Fixture) {
    let store = &fixture.credentials;
    let ending = |at: &str| SetRequest {
        ttl_s: Some(60),
        ..SetRequest::new(name(at), Kind::Value, json!("for a minute"))
    };
    fixture.set("/x", Kind::Value, json!("old")).await;
    store.set(&admin(), ending("/x")).await.unwrap();
    fixture.advance(60 + 7 * DAY_S);
    destroy_past(store).await;
    assert_eq!(text(store, "/x").await, None, "the old secret is not live again");
    assert_eq!(names(store).await, Vec::<String>::new());
    // The version can be undeleted for the same number of days.
    store.change_versions(&admin(), &name("/x"), Some(vec![1]), VersionsChange::Undelete).await.unwrap();
    assert_eq!(text(store, "/x").await.as_deref(), Some("old"));
    store.set(&admin(), ending("/x")).await.unwrap();
    fixture.advance(60 + 7 * DAY_S);
    destroy_past(store).await;
    fixture.advance(7 * DAY_S);
    destroy_past(store).await;
    let deleted = store.list_versions(&admin(), &name("/x")).await;
    assert!(matches!(deleted, Err(CredentialError::NotFound)), "{deleted:?}");
    // The same if deletion destroys immediately.
    let without_undelete =
        fixture.with_options(CredentialsOptions { undelete_days: 0, ..CredentialsOptions::default() });
    for value in ["old", "new"] {
        fixture.set("/y", Kind::Value, json!(value)).await;
    }
    without_undelete.change_versions(&admin(), &name("/y"), None, VersionsChange::Delete).await.unwrap();
    assert_eq!(text(&without_undelete, "/y").await, None);
    destroy_past(&without_undelete).await;
    let deleted = without_undelete.list_versions(&admin(), &name("/y")).await;
    assert!(matches!(deleted, Err(CredentialError::NotFound)), "{deleted:?}");
}

pub(crate) async fn undeleted_version_keeps_its_time_to_live(fixture: Fixture) {
    let store = &fixture.credentials;
    let hour =
        SetRequest { ttl_s: Some(3_600), ..SetRequest::new(name("/x"), Kind::Value, json!("for an hour")) };
    let ends_at_us = store.set(&admin(), hour).await.unwrap().ends_at_us;
    let change = async |change| store.change_versions(&admin(), &name("/x"), None, change).await.unwrap();
    let ends = async || store.current(&admin(), &name("/x")).await.unwrap()[0].ends_at_us;
    change(VersionsChange::Undelete).await;
    assert_eq!(ends().await, ends_at_us, "it was not deleted");
    change(VersionsChange::Delete).await;
    assert_eq!(text(store, "/x").await, None);
    fixture.advance(60);
    change(VersionsChange::Undelete).await;
    assert_eq!(ends().await, ends_at_us);
    // An expired version that is undeleted no longer expires.
    fixture.advance(3_600);
    assert_eq!(text(store, "/x").await, None);
    change(VersionsChange::Undelete).await;
    assert_eq!(ends().await, None);
}

pub(crate) async fn deleted_versions_are_destroyed_in_batches_of_five_hundred(fixture: Fixture) {
    let store = &fixture.credentials;
    let requester = admin();
    let set = |number: u32| store.set(&requester, SetRequest::new(name("/many"), Kind::Value, json!(number)));
    let stored = futures_util::future::join_all((0..600).map(set)).await;
    assert!(stored.iter().all(Result::is_ok));
    store.delete(&admin(), &name("/many")).await.unwrap();
    fixture.advance(7 * DAY_S);
    let by_us = fixture.clock.now_us() - 7 * DAY_S as i64 * 1_000_000;
    let mut deleted = Vec::new();
    for _ in 0..3 {
        deleted
            .push(credentials::tables::Credentials::of(&fixture.store).destroy_deleted(by_us).await.unwrap());
        // A partly destroyed credential cannot be undeleted.
        let late = store.undelete(&admin(), &name("/many")).await;
        assert!(matches!(late, Err(CredentialError::NotFound)), "{late:?}");
    }
    assert_eq!(deleted, [500, 101, 0], "versions, and the name with the last of them");
    assert!(store.deleted(&admin()).await.unwrap().is_empty());
}
