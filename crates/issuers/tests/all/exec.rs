//! A program as issuer: OpenSSL behind a shell script.

use std::time::Duration;

use issuers::{IssuerError, Retry};
use keys::PrivateKey;
use serde_json::{Value, json};
use x509::Certificate;
use x509::crl::Reason;

use super::authority_of_tests::TestCa;
use super::world::{World, order};

/// A script that signs what comes on standard input with `openssl x509`, and keeps what it was told.
fn script(world: &World, ca: &TestCa) -> Vec<String> {
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
    ["/bin/sh", "-c", &text].map(str::to_owned).to_vec()
}

#[tokio::test]
async fn a_program_issues_revokes_and_tests() {
    let world = World::new().await;
    let ca = TestCa::root("Script CA", world.now());
    let argv = script(&world, &ca);
    let config = json!({
        "type": "exec", "issue": argv, "revoke": argv, "test": argv, "verify": {"roots": ca.pem()},
    });
    let issuer = world.add("script", config).await;
    let order =
        issuers::Order { lifetime_seconds: Some(86_400), ..order("job-1", &["a.example", "10.0.0.1"]) };
    let delivered = issuer.issue(&order).await.unwrap();
    let leaf = Certificate::parse(&delivered.chain[0]).unwrap();
    assert_eq!(leaf.names(), ["a.example", "10.0.0.1"]);
    assert_eq!(delivered.chain.len(), 1, "the root is left out");
    let told: Value =
        serde_json::from_slice(&std::fs::read(world.folder.path().join("order.json")).unwrap()).unwrap();
    assert_eq!(
        told,
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
async fn the_same_order_is_issued_once_also_after_a_restart() {
    let world = World::new().await;
    let ca = TestCa::root("Script CA", world.now());
    let issuer = world.add("script", json!({"type": "exec", "issue": script(&world, &ca)})).await;
    let wish = order("job-1", &["a.example"]);
    let first = issuer.issue(&wish).await.unwrap();
    assert_eq!(issuer.issue(&wish).await.unwrap(), first);
    let other_process = world.again().get("script").await.unwrap();
    assert_eq!(other_process.issue(&wish).await.unwrap(), first);
    let runs = || std::fs::read_to_string(world.folder.path().join("log")).unwrap().lines().count();
    assert_eq!(runs(), 1);
    // Another public key under the same order is another certificate.
    let second = issuer.issue(&order("job-1", &["a.example"])).await.unwrap();
    assert_ne!(second, first);
    assert_eq!(runs(), 2);
}

#[tokio::test]
async fn exit_codes_mean_what_the_documentation_says() {
    let table = [
        (1, "unavailable", Retry::Backoff),
        (65, "refused", Retry::Never),
        (69, "unavailable", Retry::Backoff),
        (75, "rate_limited", Retry::Backoff),
        (77, "denied", Retry::Backoff),
        (78, "misconfigured", Retry::Never),
        (127, "misconfigured", Retry::Never),
    ];
    let world = World::new().await;
    for (code, word, retry) in table {
        let argv = ["/bin/sh", "-c", &format!("echo because >&2; exit {code}")].map(str::to_owned);
        let issuer = world.add(&format!("exit-{code}"), json!({"type": "exec", "issue": argv})).await;
        let error = issuer.issue(&order("k", &["a.example"])).await.unwrap_err();
        assert_eq!((error.code(), error.retry()), (word, retry), "{code}");
        assert!(error.to_string().contains("because"), "{error}");
        let leaf = Certificate::parse(&TestCa::root("any", world.now()).der).unwrap();
        let error = issuer.revoke(&leaf, Reason::Unspecified).await.unwrap_err();
        assert!(matches!(error, IssuerError::Unsupported { .. }));
    }
}

#[tokio::test]
async fn a_program_that_hangs_or_babbles_is_given_up() {
    let world = World::new().await;
    let sleeping = ["/bin/sleep", "600"];
    let issuer = world.add("slow", json!({"type": "exec", "issue": sleeping, "seconds": 1})).await;
    let error = issuer.issue(&order("k", &["a.example"])).await.unwrap_err();
    assert!(matches!(error, IssuerError::TimedOut { .. }), "{error}");
    let issuer = world.add("soon", json!({"type": "exec", "issue": sleeping})).await;
    let hurried = issuers::Order {
        deadline: std::time::Instant::now() + Duration::from_millis(200),
        ..order("k", &["a.example"])
    };
    assert!(matches!(issuer.issue(&hurried).await, Err(IssuerError::TimedOut { .. })));
    let issuer = world.add("empty", json!({"type": "exec", "issue": ["/bin/true"]})).await;
    let error = issuer.issue(&order("k", &["a.example"])).await.unwrap_err();
    assert!(matches!(error, IssuerError::Unavailable { .. }), "{error}");
}
