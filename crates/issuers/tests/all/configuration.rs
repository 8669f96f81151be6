//! Tests of issuer configurations: stored without secrets, changed by one user at a time, recorded in the audit log.

use issuers::{IssuerError, IssuerKind, ManageError, NewIssuer};
use outbound::guard::{Guard, Networks};
use serde_json::{Value, json};
use store::AuditFilter;

use super::fake::{Fake, Response};
use super::world::{World, order};

fn webhook(name: &str, secret: Option<&str>) -> NewIssuer {
    let mut config = json!({"type": "webhook", "url": "http://127.0.0.1:1/"});
    if let Some(secret) = secret {
        config["secret"] = json!(secret);
    }
    NewIssuer { name: name.to_owned(), config, enabled: true }
}

const SECRET: &str = "a secret nobody may see";

#[tokio::test]
async fn issuer_secrets_are_sealed_kept_and_replaced() {
    let world = World::new().await;
    let made = world.issuers.create(webhook("a", Some(SECRET)), "user:alice").await.unwrap();
    assert_eq!((made.secrets_set, made.row.revision), (vec!["/secret".to_owned()], 1));
    assert!(!made.config.to_string().contains("secret"));
    let row = issuers::tables::ExternalIssuers::of(&world.store).get(made.row.id).await.unwrap().unwrap();
    let sealed = row.secrets.unwrap();
    assert!(!sealed.windows(SECRET.len()).any(|part| part == SECRET.as_bytes()));
    // A secret that is left out is kept.
    let changed = world.issuers.update(made.row.id, 1, webhook("b", None), "user:bob").await.unwrap();
    assert_eq!((changed.row.name.as_str(), changed.row.revision, changed.secrets_set.len()), ("b", 2, 1));
    // Another issuer type has other secrets.
    let exec =
        NewIssuer { name: "b".to_owned(), config: json!({"type": "exec", "issue": "true"}), enabled: true };
    let changed = world.issuers.update(made.row.id, 2, exec, "user:bob").await.unwrap();
    assert_eq!((changed.row.kind, changed.secrets_set.len()), (IssuerKind::Exec, 0));
    assert!(world.issuers.delete(made.row.id, "user:bob").await.unwrap());
    assert!(!world.issuers.delete(made.row.id, "user:bob").await.unwrap());
    let log = world.store.audit_page(&AuditFilter::default(), None, 100).await.unwrap();
    let logged: Vec<_> = log.rows.iter().rev().map(|row| (row.action.as_str(), row.actor.as_str())).collect();
    assert_eq!(
        logged,
        [
            ("issuer.create", "user:alice"),
            ("issuer.update", "user:bob"),
            ("issuer.update", "user:bob"),
            ("issuer.delete", "user:bob"),
        ]
    );
    assert!(log.rows.iter().all(|row| !row.details.contains(SECRET)));
}

#[tokio::test]
async fn issuer_names_are_unique_and_stale_updates_are_rejected() {
    let world = World::new().await;
    let first = world.issuers.create(webhook("a", Some(SECRET)), "x").await.unwrap();
    let second = world.issuers.create(webhook("b", Some(SECRET)), "x").await.unwrap();
    let error = |result: Result<_, ManageError>| result.map(drop).unwrap_err().to_string();
    let taken = ManageError::NameTaken.to_string();
    assert_eq!(error(world.issuers.create(webhook("a", Some(SECRET)), "x").await), taken);
    assert_eq!(error(world.issuers.update(second.row.id, 1, webhook("a", None), "x").await), taken);
    world.issuers.update(first.row.id, 1, webhook("a", None), "x").await.unwrap();
    let stale = world.issuers.update(first.row.id, 1, webhook("a", None), "x").await;
    assert_eq!(error(stale), ManageError::Stale.to_string());
    let unknown = world.issuers.update(uuid::Uuid::new_v4(), 1, webhook("c", None), "x").await;
    assert_eq!(error(unknown), ManageError::Unknown.to_string());
    let page = world.issuers.page(None, 1).await.unwrap();
    let rest = world.issuers.page(page.next.as_ref(), 10).await.unwrap();
    let names: Vec<_> = page.rows.iter().chain(&rest.rows).map(|view| view.row.name.clone()).collect();
    assert_eq!(names, ["a", "b"]);
}

/// The stored token as sent to Vault.
const TOKEN: &str = "s.the-token-of-the-old-vault";

#[tokio::test]
async fn stored_secret_is_never_sent_to_another_destination() {
    let world = World::new().await;
    let elsewhere = Fake::start(|_| Response::new(200, "{}")).await;
    let vault = |url: &str, auth: Value| {
        let config = json!({"type": "vault", "url": url, "role": "web", "auth": auth});
        NewIssuer { name: "vault".to_owned(), config, enabled: true }
    };
    let token = || json!({"method": "token", "token": TOKEN});
    let made = world.issuers.create(vault("http://127.0.0.1:1", token()), "x").await.unwrap();
    let moved = vault(&elsewhere.url(""), json!({"method": "token"}));
    let error = world.issuers.update(made.row.id, 1, moved.clone(), "user:operator").await.unwrap_err();
    let ManageError::MissingSecrets(rebound) = &error else { panic!("{error}") };
    assert_eq!(rebound.secrets, ["/auth/token"]);
    assert!(
        error.to_string().contains("/url changed") && error.to_string().contains("/auth/token"),
        "{error}"
    );
    // The secret is not sent when the issuer is tested, nor after a change to another type and back.
    assert!(world.issuers.test(made.row.id).await.is_err());
    let hook = NewIssuer { name: "vault".to_owned(), ..webhook("vault", Some(SECRET)) };
    world.issuers.update(made.row.id, 1, hook, "x").await.unwrap();
    let error = world.issuers.update(made.row.id, 2, moved, "x").await.unwrap_err();
    assert!(matches!(error, ManageError::BadConfig(_)), "{error}");
    assert!(elsewhere.seen().is_empty());
    // A caller who knows the token can send it there.
    let moved = vault(&elsewhere.url(""), token());
    assert!(world.issuers.update(made.row.id, 2, moved, "x").await.is_ok());
    let _ = world.issuers.test(made.row.id).await;
    assert_eq!(elsewhere.seen()[0].header("x-vault-token"), Some(TOKEN));
}

#[tokio::test]
async fn invalid_issuer_configurations_are_not_stored() {
    let world = World::new().await;
    let acme = |more: Value| {
        let mut config = json!({"type": "acme", "directory": "https://ca.example/dir"});
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        config
    };
    let dns = |server: &str, propagation: Value| {
        let publisher =
            json!({"type": "rfc2136", "server": server, "tsig_name": "n", "tsig_secret": "c2VjcmV0"});
        acme(json!({"challenges": ["dns-01"], "dns01": {"publisher": publisher, "propagation": propagation}}))
    };
    let vault = |mount: &str| json!({"type": "vault", "url": "https://v", "mount": mount, "role": "r", "auth": {"method": "token", "token": "t"}});
    let bad = [
        json!({"type": "nothing"}),
        json!({"type": "webhook", "url": "http://127.0.0.1:1/"}),
        json!({"type": "webhook", "url": "http://127.0.0.1:1/", "secret": "short"}),
        json!({"type": "webhook", "url": "http://127.0.0.1:1/", "secret": SECRET, "unknown": 1}),
        json!({"type": "webhook", "url": "http://169.254.169.254/", "secret": SECRET}),
        json!({"type": "webhook", "url": "ftp://a/", "secret": SECRET}),
        json!({"type": "webhook", "url": "http://127.0.0.1:1/", "secret": SECRET, "http": {"allow_link_local": true}}),
        dns("169.254.169.254:53", json!({})),
        dns("192.0.2.1:53", json!({"resolvers": ["169.254.169.253:53"]})),
        dns("192.0.2.1:53", json!({"servers": ["[fe80::1]:53"]})),
        json!({"type": "exec", "issue": []}),
        acme(json!({"challenges": []})),
        acme(json!({"challenges": ["dns-01"]})),
        acme(json!({"http": {"roots": "none"}})),
        acme(json!({"http": {"client_certificate": "x"}})),
        acme(json!({"verify": {"roots": "none"}})),
        vault("../sys"),
        json!({"type": "step_ca", "url": "https://ca", "root_fingerprint": "12", "provisioner": {"name": "n", "key": "k"}}),
    ];
    for config in bad {
        let new = NewIssuer { name: "x".to_owned(), config: config.clone(), enabled: true };
        let result = world.issuers.create(new, "x").await;
        assert!(matches!(result, Err(ManageError::BadConfig(_))), "{config}");
    }
    for name in ["", "A", "a b", "ä", "internal", &"a".repeat(101)] {
        let result = world.issuers.create(webhook(name, Some(SECRET)), "x").await;
        assert!(matches!(result, Err(ManageError::BadName)), "{name}");
    }
    assert!(world.issuers.page(None, 10).await.unwrap().rows.is_empty());
}

#[tokio::test]
async fn missing_or_disabled_issuer_issues_nothing() {
    let world = World::new().await;
    let disabled = NewIssuer { enabled: false, ..webhook("off", Some(SECRET)) };
    world.issuers.create(disabled, "x").await.unwrap();
    for name in ["off", "nobody"] {
        let error = world.issuers.get(name).await.unwrap_err();
        assert!(matches!(error, IssuerError::Misconfigured { .. }), "{name}");
    }
    assert_eq!(world.issuers.get("internal").await.unwrap().kind(), IssuerKind::Internal);
    // The next request uses the changed settings.
    let made = world.issuers.create(webhook("a", Some(SECRET)), "x").await.unwrap();
    let exec =
        NewIssuer { name: "a".to_owned(), config: json!({"type": "exec", "issue": "false"}), enabled: true };
    let other = world.other_process();
    assert_eq!(other.get("a").await.unwrap().kind(), IssuerKind::Webhook);
    world.issuers.update(made.row.id, 1, exec, "x").await.unwrap();
    assert_eq!(other.get("a").await.unwrap().kind(), IssuerKind::Exec);
    let error = other.get("a").await.unwrap().issue(&order("k", &["a.example"])).await.unwrap_err();
    assert_eq!(error.code(), "unavailable");
}

#[tokio::test]
async fn only_the_host_config_can_allow_link_local_addresses() {
    let mut world = World::new().await;
    let metadata = json!({"type": "webhook", "url": "http://169.254.169.254/", "secret": SECRET});
    let new = |http: Value| {
        let mut config = metadata.clone();
        config["http"] = http;
        NewIssuer { name: "metadata".to_owned(), config, enabled: true }
    };
    let error =
        world.issuers.create(new(json!({"allow_link_local": true})), "user:operator").await.unwrap_err();
    assert!(error.to_string().contains("outbound.allow_link_local"), "{error}");
    let error =
        world.issuers.create(new(json!({"allow_link_local": false})), "user:operator").await.unwrap_err();
    assert!(error.to_string().contains("link-local"), "{error}");
    world.context.host.guard = Guard { allow_link_local: true, ..Guard::default() };
    assert!(world.other_process().create(new(json!({})), "user:operator").await.is_ok());
    let closed = Networks::new(Vec::new(), Vec::new()).deny_private().into_static();
    world.context.host.guard = Guard { networks: Some(closed), ..Guard::default() };
    let loopback = NewIssuer { name: "loopback".to_owned(), ..webhook("loopback", Some(SECRET)) };
    let error = world.other_process().create(loopback, "user:operator").await.unwrap_err();
    assert!(error.to_string().contains("outbound.allow_private"), "{error}");
}
