//! Tests of a program as issuer: OpenSSL in a shell script.

use std::time::Duration;

use issuers::{IssuerError, IssuerKind, ManageError, NewIssuer, Retry};
use keys::PrivateKey;
use serde_json::{Value, json};
use x509::Certificate;
use x509::crl::Reason;

use super::authority_of_tests::TestCa;
use super::world::{World, order};

/// Creates a script that signs the CSR on standard input with `openssl x509`, and stores its input.
fn script(world: &World, ca: &TestCa) -> [String; 3] {
    let folder = world.folder.path();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    write("ca.pem", &ca.pem());
    write("ca.key", &PrivateKey::from_der(&ca.key.to_pkcs8_der()).unwrap().to_pkcs8_pem());
    let text = format!(
        "set -e; cd {}; printf '%s' \"$BULLA_ORDER\" > order.json; echo \"$BULLA_ACTION $BULLA_REASON\" >> log; \
         if [ \"$BULLA_ACTION\" = revoke ]; then openssl x509 -noout -serial >> log; exit 0; fi; \
         if [ \"$BULLA_ACTION\" = test ]; then echo ready; exit 0; fi; \
         openssl x509 -req -CA ca.pem -CAkey ca.key -days 30 -copy_extensions copy 2>err; cat ca.pem",
        folder.display()
    );
    ["/bin/sh", "-c", &text].map(str::to_owned)
}

/// Creates a world whose host defines that script as `sign`.
async fn signing() -> (World, TestCa) {
    let world = World::new().await;
    let ca = TestCa::root("Script CA", world.now());
    let argv = script(&world, &ca);
    let world = world.with_programs(&[("sign", &argv.each_ref().map(String::as_str))]);
    (world, ca)
}

#[tokio::test]
async fn exec_program_issues_revokes_and_tests() {
    let (world, ca) = signing().await;
    let config = json!({
        "type": "exec", "issue": "sign", "revoke": "sign", "test": "sign", "verify": {"roots": ca.pem()},
    });
    let issuer = world.add("script", config).await;
    let order =
        issuers::Order { lifetime_seconds: Some(86_400), ..order("job-1", &["a.example", "10.0.0.1"]) };
    let delivered = issuer.issue(&order).await.unwrap();
    let leaf = Certificate::parse(&delivered.chain[0]).unwrap();
    assert_eq!(leaf.names(), ["a.example", "10.0.0.1"]);
    assert_eq!(delivered.chain.len(), 1, "the root is left out");
    let received: Value =
        serde_json::from_slice(&std::fs::read(world.folder.path().join("order.json")).unwrap()).unwrap();
    assert_eq!(
        received,
        json!({
            "key": "job-1", "names": ["a.example", "10.0.0.1"], "profile": null, "lifetime_seconds": 86_400,
            "requester": "user:test", "replaces": null,
        })
    );
    issuer.revoke(&leaf, Reason::KeyCompromise).await.unwrap();
    assert_eq!(issuer.test().await.unwrap(), "ready");
    let log = std::fs::read_to_string(world.folder.path().join("log")).unwrap();
    let serial = leaf.serial.to_string().to_uppercase();
    assert_eq!(
        log.lines().collect::<Vec<_>>(),
        ["issue ", "revoke keyCompromise", &format!("serial={serial}"), "test "]
    );
}

#[tokio::test]
async fn repeated_order_is_issued_once_even_after_a_restart() {
    let (world, _ca) = signing().await;
    let issuer = world.add("script", json!({"type": "exec", "issue": "sign"})).await;
    let wish = order("job-1", &["a.example"]);
    let first = issuer.issue(&wish).await.unwrap();
    assert_eq!(issuer.issue(&wish).await.unwrap(), first);
    let other_process = world.other_process().get("script").await.unwrap();
    assert_eq!(other_process.issue(&wish).await.unwrap(), first);
    let runs = || std::fs::read_to_string(world.folder.path().join("log")).unwrap().lines().count();
    assert_eq!(runs(), 1);
    // Another public key in the same order gets another certificate.
    let second = issuer.issue(&order("job-1", &["a.example"])).await.unwrap();
    assert_ne!(second, first);
    assert_eq!(runs(), 2);
}

#[tokio::test]
async fn exit_codes_map_to_the_documented_errors() {
    let table = [
        (1, "unavailable", Retry::Backoff),
        (65, "refused", Retry::Never),
        (69, "unavailable", Retry::Backoff),
        (75, "rate_limited", Retry::Backoff),
        (77, "denied", Retry::Backoff),
        (78, "misconfigured", Retry::Never),
        (127, "misconfigured", Retry::Never),
    ];
    let mut world = World::new().await;
    for (code, word, retry) in table {
        let script = format!("echo because >&2; exit {code}");
        world = world.with_programs(&[("exit", &["/bin/sh", "-c", &script])]);
        let issuer = world.add(&format!("exit-{code}"), json!({"type": "exec", "issue": "exit"})).await;
        let error = issuer.issue(&order("k", &["a.example"])).await.unwrap_err();
        assert_eq!((error.code(), error.retry()), (word, retry), "{code}");
        assert!(error.to_string().contains("because"), "{error}");
        let leaf = Certificate::parse(&TestCa::root("any", world.now()).der).unwrap();
        let error = issuer.revoke(&leaf, Reason::Unspecified).await.unwrap_err();
        assert!(matches!(error, IssuerError::Unsupported { .. }));
    }
}

#[tokio::test]
async fn exec_program_timeout_or_empty_output_is_an_error() {
    let world =
        World::new().await.with_programs(&[("sleep", &["/bin/sleep", "600"]), ("true", &["/bin/true"])]);
    let issuer = world.add("slow", json!({"type": "exec", "issue": "sleep", "seconds": 1})).await;
    let error = issuer.issue(&order("k", &["a.example"])).await.unwrap_err();
    assert!(matches!(error, IssuerError::TimedOut { .. }), "{error}");
    let issuer = world.add("soon", json!({"type": "exec", "issue": "sleep"})).await;
    let hurried = issuers::Order {
        deadline: std::time::Instant::now() + Duration::from_millis(200),
        ..order("k", &["a.example"])
    };
    assert!(matches!(issuer.issue(&hurried).await, Err(IssuerError::TimedOut { .. })));
    let issuer = world.add("empty", json!({"type": "exec", "issue": "true"})).await;
    let error = issuer.issue(&order("k", &["a.example"])).await.unwrap_err();
    assert!(matches!(error, IssuerError::Unavailable { .. }), "{error}");
}

/// Returns a marker file and the arguments of a program that would create it, as an attacker's program.
fn marking(world: &World) -> (std::path::PathBuf, Value) {
    let mark = world.folder.path().join("mark");
    let argv = json!(["/bin/sh", "-c", format!("touch {}", mark.display())]);
    (mark, argv)
}

#[tokio::test]
async fn request_can_only_name_a_program_and_never_its_arguments() {
    let world = World::new().await;
    let (mark, argv) = marking(&world);
    let hook = |publisher: Value| {
        json!({
            "type": "acme", "directory": "https://ca.example/dir", "challenges": ["dns-01"],
            "dns01": {"publisher": publisher},
        })
    };
    let table = [
        (json!({"type": "exec", "issue": argv}), "give the name of a program instead of its"),
        (
            json!({"type": "exec", "issue": "true", "revoke": argv}),
            "give the name of a program instead of its",
        ),
        (json!({"type": "exec", "issue": "true", "test": argv}), "give the name of a program instead of its"),
        (json!({"type": "exec", "issue": {"argv": argv}}), "give the name of a program instead of its"),
        (hook(json!({"type": "exec", "argv": argv})), "give the name of a program instead of its"),
        (
            hook(json!({"type": "exec", "program": "true", "argv": argv})),
            "give the name of a program instead of its",
        ),
        (hook(json!({"type": "exec", "program": argv})), "give the name of a program instead of its"),
        (json!({"type": "exec", "issue": "/bin/sh"}), "[programs./bin/sh]"),
        (json!({"type": "exec", "issue": "true", "test": "other"}), "[programs.other]"),
        (hook(json!({"type": "exec", "program": "other"})), "[programs.other]"),
    ];
    let known =
        world.issuers.create(new("known", json!({"type": "exec", "issue": "true"})), "x").await.unwrap();
    for (config, words) in table {
        for error in [
            world.issuers.create(new("made", config.clone()), "user:operator").await.unwrap_err(),
            world
                .issuers
                .update(known.row.id, 1, new("known", config.clone()), "user:operator")
                .await
                .unwrap_err(),
        ] {
            let ManageError::BadConfig(reason) = error else { panic!("{config}: {error}") };
            assert!(reason.contains(words) && reason.contains("configuration file"), "{config}: {reason}");
        }
    }
    assert!(world.issuers.test(known.row.id).await.unwrap().is_some());
    assert!(!mark.exists());
}

fn new(name: &str, config: Value) -> NewIssuer {
    NewIssuer { name: name.to_owned(), config, enabled: true }
}

#[tokio::test]
async fn stored_inline_program_is_not_run_and_the_error_explains_migration() {
    let world = World::new().await;
    let (mark, argv) = marking(&world);
    let settings = issuers::tables::IssuerSettings {
        name: "old".to_owned(),
        kind: IssuerKind::Exec,
        config: json!({"type": "exec", "issue": argv, "test": argv, "seconds": 120}).to_string(),
        secrets: None,
        enabled: true,
    };
    let id = uuid::Uuid::now_v7();
    let stored = world.store.write("insert", move |tx| {
        Box::pin(async move { issuers::tables::insert_configured_issuer(tx, id, &settings, 1).await })
    });
    stored.await.unwrap();
    let other = world.add("other", json!({"type": "exec", "issue": "true"})).await;
    for error in [world.issuers.get("old").await.unwrap_err(), world.issuers.test(id).await.unwrap_err()] {
        assert!(matches!(error, IssuerError::Misconfigured { .. }), "{error}");
        assert!(error.to_string().contains("[programs.NAME]"), "{error}");
    }
    world.issuers.upkeep().await.unwrap();
    assert!(other.test().await.is_ok(), "nothing else stops");
    let shown = world.issuers.find(id).await.unwrap().unwrap();
    assert!(shown.problem.unwrap().to_string().contains("[programs.NAME]"));
    assert_eq!(shown.config["issue"], argv, "nothing is lost");
    assert!(world.issuers.find_named("other").await.unwrap().unwrap().problem.is_none());
    assert!(!mark.exists());
    // When it is defined by name, the program runs.
    let named = new("old", json!({"type": "exec", "issue": "true"}));
    assert!(world.issuers.update(id, 1, named, "x").await.unwrap().problem.is_none());
    assert!(world.issuers.get("old").await.is_ok());
}
