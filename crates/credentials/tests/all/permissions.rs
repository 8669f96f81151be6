//! Tests of permissions.

use credentials::{
    CredentialError, GenerateRequest, Kind, Mode, Operations, Parameters, PermissionPath, SearchFilter,
    SetRequest,
};
use serde_json::json;

use crate::fixture::{Fixture, admin, client, name};

fn path(text: &str) -> PermissionPath {
    PermissionPath::parse(text).unwrap()
}

fn operations(names: &[&str]) -> Operations {
    Operations::parse(names).unwrap()
}

async fn grant(fixture: &Fixture, actor: &str, at: &str, what: &[&str]) -> uuid::Uuid {
    let made = fixture.credentials.grant(&admin(), actor, &path(at), operations(what)).await;
    made.unwrap().id
}

pub(crate) async fn credential_names_and_permission_paths_ignore_case(fixture: Fixture) {
    fixture.set("/TeamA/key", Kind::Value, json!("x")).await;
    grant(&fixture, "uaa-client:a", "/teama/*", &["read"]).await;
    let a = client("a");
    for at in ["/teama/key", "/TeamA/key", "/TEAMA/KEY"] {
        assert!(fixture.credentials.current(&a, &name(at)).await.is_ok(), "{at}");
    }
    let found = fixture.credentials.find(&a, &SearchFilter::Path("/".to_owned()), None).await.unwrap();
    assert_eq!(found.len(), 1);
    let twice =
        fixture.credentials.grant(&admin(), "uaa-client:a", &path("/TeamA/*"), operations(&["write"])).await;
    assert!(matches!(twice.unwrap_err(), CredentialError::PermissionExists));
    assert_eq!(fixture.credentials.permissions_at(&admin(), &path("/TEAMA/*")).await.unwrap().len(), 1);
}

pub(crate) async fn each_operation_requires_its_permission(fixture: Fixture) {
    fixture.set("/t/x", Kind::Value, json!("x")).await;
    let b = client("b");
    let set = || {
        let request = SetRequest {
            name: name("/t/x"),
            kind: Kind::Value,
            value: json!("y").into(),
            metadata: None,
            expected: None,
            expected_number: None,
            ttl_s: None,
        };
        fixture.credentials.set(&b, request)
    };
    assert!(matches!(
        fixture.credentials.current(&b, &name("/t/x")).await.unwrap_err(),
        CredentialError::NotFound
    ));
    assert!(matches!(set().await.unwrap_err(), CredentialError::Forbidden));
    assert!(matches!(
        fixture.credentials.delete(&b, &name("/t/x")).await.unwrap_err(),
        CredentialError::NotFound
    ));
    let id = grant(&fixture, "uaa-client:b", "/t/x", &["write"]).await;
    set().await.unwrap();
    assert!(fixture.credentials.current(&b, &name("/t/x")).await.is_err(), "writing is not reading");
    // A value that is kept is returned only to clients with read permission.
    let keep = GenerateRequest {
        name: name("/t/x"),
        parameters: Parameters::Password(Default::default()),
        mode: Mode::NoOverwrite,
        metadata: None,
        ttl_s: None,
    };
    assert!(matches!(fixture.credentials.generate(&b, keep).await.unwrap_err(), CredentialError::OtherType));
    let all = admin();
    let change = |what: &'static [&'static str]| {
        fixture.credentials.change_permission(&all, id, None, operations(what))
    };
    change(&["read"]).await.unwrap();
    assert!(fixture.credentials.current(&b, &name("/t/x")).await.is_ok());
    assert!(matches!(set().await.unwrap_err(), CredentialError::Forbidden), "taken away at once");
    change(&["delete"]).await.unwrap();
    fixture.credentials.delete(&b, &name("/t/x")).await.unwrap();
    fixture.credentials.revoke_permission(&admin(), id).await.unwrap();
    assert!(
        matches!(set().await.unwrap_err(), CredentialError::Forbidden),
        "no new name without a permission"
    );
    assert!(fixture.credentials.current(&admin(), &name("/t/x")).await.is_err());
}

pub(crate) async fn own_permissions_cannot_be_changed(fixture: Fixture) {
    grant(&fixture, "uaa-client:c", "/c/*", &["read_acl", "write_acl"]).await;
    let c = client("c");
    let own = fixture.credentials.grant(&c, "uaa-client:c", &path("/c/x"), operations(&["read"])).await;
    assert!(matches!(own.unwrap_err(), CredentialError::OwnPermission));
    let other = fixture.credentials.grant(&c, "uaa-client:d", &path("/c/x"), operations(&["read"])).await;
    let other = other.unwrap();
    assert_eq!(fixture.credentials.permission(&c, other.id).await.unwrap(), other);
    let beyond = fixture.credentials.grant(&c, "uaa-client:d", &path("/d/x"), operations(&["read"])).await;
    assert!(matches!(beyond.unwrap_err(), CredentialError::NoPermission));
    let above = fixture.credentials.grant(&c, "uaa-client:d", &path("/*"), operations(&["read"])).await;
    assert!(
        matches!(above.unwrap_err(), CredentialError::NoPermission),
        "nobody gives what lies above theirs"
    );
}

pub(crate) async fn unreadable_credentials_are_reported_as_not_found(fixture: Fixture) {
    let hidden = fixture.set("/hidden/x", Kind::Json, json!({ "a": 1 })).await;
    fixture.set("/shown/x", Kind::Json, json!({ "b": 1 })).await;
    grant(&fixture, "uaa-client:e", "/shown/*", &["read"]).await;
    let e = client("e");
    assert!(fixture.credentials.version(&e, hidden.id).await.is_err());
    assert!(fixture.credentials.versions(&e, &name("/hidden/x"), None).await.is_err());
    let names = [name("/hidden/x"), name("/shown/x")];
    let found = fixture.credentials.lookup(&e, &names).await.unwrap();
    assert!(found[0].is_none() && found[1].is_some());
    for what in [SearchFilter::Path("/".to_owned()), SearchFilter::NameLike("x".to_owned())] {
        let found = fixture.credentials.find(&e, &what, None).await.unwrap();
        assert_eq!(found.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["/shown/x"]);
    }
    // A path does not match a longer name with the same prefix.
    fixture.set("/shownx/y", Kind::Value, json!("z")).await;
    assert!(fixture.credentials.current(&e, &name("/shownx/y")).await.is_err());
}
