//! Tests of the access report: who can read a credential, and why.

use credentials::{AccessSource, CredentialError, Kind, Operation, Operations, PermissionPath};
use serde_json::json;
use store::{IdentityKind, IdentitySettings, NewIdentity, insert_identity};
use uuid::Uuid;

use crate::fixture::{Fixture, NOW, admin, client, name};

fn path(text: &str) -> PermissionPath {
    PermissionPath::parse(text).unwrap()
}

fn what(text: &str) -> (PermissionPath, Operation) {
    (path(text), Operation::Read)
}

async fn grant(fixture: &Fixture, actor: &str, at: &str, operations: &[&str]) -> Uuid {
    let operations = Operations::parse(operations).unwrap();
    fixture.credentials.grant(&admin(), actor, &path(at), operations).await.unwrap().id
}

async fn identity(
    fixture: &Fixture,
    kind: IdentityKind,
    name: &str,
    grants: serde_json::Value,
    enabled: bool,
) {
    let identity = NewIdentity {
        id: Uuid::now_v7(),
        kind,
        key_hash: [Uuid::new_v4().into_bytes(), [0; 16]].concat().try_into().unwrap(),
        label: String::new(),
        settings: IdentitySettings {
            name: name.to_owned(),
            email: None,
            grants: grants.to_string(),
            enabled,
            expires_at_us: None,
        },
        created_at_us: NOW * 1_000_000,
        created_by: "system".to_owned(),
    };
    let insert =
        fixture.store.write("test", move |tx| Box::pin(async move { insert_identity(tx, &identity).await }));
    insert.await.unwrap();
}

pub(crate) async fn readers_are_listed_with_the_reason_of_their_access(fixture: Fixture) {
    fixture.set("/team/deep/x", Kind::Value, json!("x")).await;
    grant(&fixture, "uaa-client:a", "/team/*", &["read", "write"]).await;
    grant(&fixture, "uaa-client:a", "/Team/Deep/X", &["read"]).await;
    grant(&fixture, "uaa-client:b", "/team/*", &["write"]).await;
    grant(&fixture, "uaa-client:c", "/*", &["read"]).await;
    grant(&fixture, "uaa-client:d", "/team/deeper/*", &["read"]).await;
    let admin_role = json!([{ "role": "admin", "scope": "any" }]);
    identity(&fixture, IdentityKind::Token, "root", admin_role.clone(), true).await;
    identity(&fixture, IdentityKind::User, "alice", json!([{ "role": "keeper" }]), true).await;
    identity(&fixture, IdentityKind::Token, "off", admin_role, false).await;
    identity(&fixture, IdentityKind::Token, "team", json!([{ "role": "admin", "scope": "team:x" }]), true)
        .await;
    identity(&fixture, IdentityKind::Token, "viewer", json!([{ "role": "viewer" }]), true).await;
    identity(&fixture, IdentityKind::Token, "robot", json!([{ "role": "admin" }]), true).await;
    // An identity of a kind that only a newer version knows: its permissions cannot be resolved.
    let change = "UPDATE access_identities SET kind = 'robot' WHERE name = 'robot'";
    let change = fixture.store.write("test", move |tx| Box::pin(tx.execute(change, Vec::new())));
    assert_eq!(change.await.unwrap(), 1);
    let roles = ["admin".to_owned(), "keeper".to_owned()];
    let (at, operation) = what("/team/deep/x");
    let mut rows = Vec::new();
    let mut after = None;
    loop {
        let page = fixture
            .credentials
            .access(&admin(), (&at, operation), (&roles, "uaa-client:"), after.as_ref(), 2)
            .await
            .unwrap();
        assert!(page.rows.len() <= 2);
        rows.extend(page.rows);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let listed: Vec<(String, String)> = rows
        .iter()
        .map(|row| match &row.source {
            AccessSource::Permission { path, .. } => (row.actor.clone(), path.clone()),
            AccessSource::Role { role } => (row.actor.clone(), format!("role {role}")),
        })
        .collect();
    let expected = [
        ("uaa-client:a", "/team/*"),
        ("uaa-client:a", "/Team/Deep/X"),
        ("uaa-client:c", "/*"),
        ("uaa-client:root", "role admin"),
        ("user:alice", "role keeper"),
    ];
    assert_eq!(listed, expected.map(|(actor, why)| (actor.to_owned(), why.to_owned())));
    assert_eq!(rows[0].given_by.as_deref(), Some("uaa-client:admin"));
    assert_eq!(rows[0].since_us, NOW * 1_000_000);
    let refused =
        fixture.credentials.access(&client("a"), (&at, operation), (&roles, "uaa-client:"), None, 10).await;
    assert!(matches!(refused.unwrap_err(), CredentialError::NotFound), "only who may see permissions");
    assert!(fixture.credentials.current(&client("a"), &name("/team/deep/x")).await.is_ok());
}

pub(crate) async fn access_difference_lists_actors_with_access_to_one_name_only(fixture: Fixture) {
    grant(&fixture, "uaa-client:both", "/*", &["read"]).await;
    grant(&fixture, "uaa-client:here", "/a/*", &["read"]).await;
    grant(&fixture, "uaa-client:there", "/b/x", &["read"]).await;
    grant(&fixture, "uaa-client:there", "/a/x", &["write"]).await;
    let (here, there) = (path("/a/x"), path("/b/x"));
    let boss = admin();
    let page = fixture.credentials.access_difference(&boss, (&here, &there), Operation::Read, None, 10);
    let listed: Vec<_> =
        page.await.unwrap().rows.into_iter().map(|one| (one.actor, one.here, one.there)).collect();
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        listed,
        [
            ("uaa-client:here".to_owned(), some("/a/*"), None),
            ("uaa-client:there".to_owned(), None, some("/b/x"))
        ]
    );
    fixture.advance(60);
    let since = fixture.clock.now_us();
    fixture.advance(60);
    let revoked = grant(&fixture, "uaa-client:gone", "/a/*", &["read"]).await;
    let retained = grant(&fixture, "uaa-client:kept", "/A/*", &["write"]).await;
    grant(&fixture, "uaa-client:elsewhere", "/c/*", &["read"]).await;
    fixture.advance(60);
    fixture.credentials.revoke_permission(&admin(), revoked).await.unwrap();
    let both = Operations::parse(&["read", "write"]).unwrap();
    let boss = credentials::Requester::manager("uaa-user:boss");
    let changed = fixture.credentials.change_permission(&boss, retained, None, both).await.unwrap();
    fixture
        .credentials
        .change_permission(&boss, changed.id, None, Operations::of(Operation::Read))
        .await
        .unwrap();
    let (at, operation) = what("/a/x");
    let page = fixture.credentials.access_since(&admin(), (&at, operation), since, None, 10).await.unwrap();
    let listed: Vec<_> =
        page.rows.iter().map(|one| (one.actor.as_str(), one.gained, one.by.as_str())).collect();
    assert_eq!(
        listed,
        [
            ("uaa-client:gone", true, "uaa-client:admin"),
            ("uaa-client:gone", false, "uaa-client:admin"),
            ("uaa-client:kept", true, "uaa-user:boss"),
        ]
    );
    let page = fixture.credentials.access_since(&admin(), (&at, operation), since, None, 1).await.unwrap();
    assert!(page.rows.len() <= 1 && page.next.is_some());
}
