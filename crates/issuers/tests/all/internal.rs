//! Tests of our own CA as issuer.

use authority::names::{DnsRule, NameRules, SuffixRule};
use authority::profile::Profile;
use authority::tree::NewCa;
use issuers::{INTERNAL, Order};
use serde_json::json;
use x509::Certificate;
use x509::crl::Reason;

use super::world::{World, order};

/// Creates a root with an issuing CA below it, and the profile `web` for all names below `example`.
async fn world() -> World {
    let world = World::new().await;
    let authority = &world.context.authority;
    authority.create_root(&NewCa::root("root", "CN=Root"), "user:test").await.unwrap();
    let issuing = NewCa::intermediate("issuing", "CN=Issuing");
    authority.create_intermediate("root", &issuing, "user:test").await.unwrap();
    let below = SuffixRule {
        suffix: "example".to_owned(),
        itself: true,
        depth_max: u8::MAX,
        wildcards: true,
        wildcard_depth_min: 1,
        wildcard_depth_max: u8::MAX,
    };
    let rules = NameRules { dns_allowed: vec![DnsRule::Suffix(below)], ..NameRules::default() };
    authority.put_profile(Profile::for_servers("web", rules), None, "user:test").await.unwrap();
    world
}

fn wish(key: &str, name: &str) -> Order {
    Order { profile: Some("web".to_owned()), ..order(key, &[name]) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn internal_issuer_issues_once_per_key_and_revokes() {
    let world = world().await;
    let issuer = world.issuers.get(INTERNAL).await.unwrap();
    let first = wish("job", "a.example");
    let delivered = issuer.issue(&first).await.unwrap();
    assert_eq!(delivered.chain.len(), 2, "leaf and issuing CA");
    assert_eq!(issuer.issue(&first).await.unwrap(), delivered, "repeated");
    let other_process = world.other_process().get(INTERNAL).await.unwrap();
    assert_eq!(other_process.issue(&first).await.unwrap(), delivered, "repeated by another process");
    assert_ne!(
        issuer.issue(&wish("job", "a.example")).await.unwrap(),
        delivered,
        "the public key of the certificate is not"
    );
    let leaf = Certificate::parse(&delivered.chain[0]).unwrap();
    issuer.revoke(&leaf, Reason::Superseded).await.unwrap();
    issuer.revoke(&leaf, Reason::Superseded).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn root_can_issue_and_is_left_out_of_the_chain() {
    let world = world().await;
    let issuer = world.add("direct", json!({"type": "internal", "profile": "web", "ca": "root"})).await;
    let delivered = issuer.issue(&order("job", &["a.example"])).await.unwrap();
    assert_eq!(delivered.chain.len(), 1);
    assert!(issuer.test().await.unwrap().contains("root"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn internal_issuer_reports_the_refusals_of_the_ca() {
    let world = world().await;
    let issuer = world.issuers.get(INTERNAL).await.unwrap();
    let error = issuer.issue(&wish("job", "a.elsewhere")).await.unwrap_err();
    assert_eq!(error.code(), "refused", "{error}");
    assert!(error.to_string().contains("a.elsewhere"), "{error}");
    let error = issuer.issue(&order("job", &["a.example"])).await.unwrap_err();
    assert_eq!(error.code(), "misconfigured", "no profile: {error}");
    let stranger = world.add("lost", json!({"type": "internal", "profile": "web", "ca": "nowhere"})).await;
    assert_eq!(stranger.issue(&order("job", &["a.example"])).await.unwrap_err().code(), "misconfigured");
    // A CSR signed with another key proves nothing.
    let mut forged = wish("forged", "a.example");
    let last = forged.csr_der.len() - 1;
    forged.csr_der[last] ^= 1;
    assert_eq!(issuer.issue(&forged).await.unwrap_err().code(), "refused");
}
