//! Tests of revocation and of renewal information.

use authority::acme::DirectoryOptions;
use authority::issue::IssuedRef;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use serde_json::{Value, json};
use x509::Certificate;
use x509::crl::Reason;

use super::client::{AccountKey, BASE, Client, b64, csr_of, identifier};
use super::flow::{download, finalize, issue, prove};
use super::world::AcmeFixture;
use crate::fixture::Fixture;

fn url(path: &str) -> String {
    format!("{BASE}/acme/{path}")
}

fn revoke(certificate: &Certificate) -> Value {
    json!({"certificate": b64(&certificate.der)})
}

async fn is_revoked(fixture: &AcmeFixture, certificate: &Certificate) -> Option<Reason> {
    let which = IssuedRef::Fingerprint(certificate.fingerprint);
    let record = fixture.fixture.authority.issued(&which).await.unwrap().unwrap();
    record.revocation.map(|facts| facts.reason)
}

pub(crate) async fn issuing_account_revokes_with_a_permitted_reason(fixture: Fixture) {
    let fixture = AcmeFixture::new(fixture).await;
    let (owner, other) = (Client::registered(&fixture.acme).await, Client::registered(&fixture.acme).await);
    let (_, chain) = issue(&fixture, &owner, &["a.test"]).await;
    let path = url("revoke-cert");
    let refused = other.post(&path, revoke(&chain[0])).await;
    assert_eq!((refused.status, refused.problem().as_str()), (StatusCode::FORBIDDEN, "unauthorized"));
    let mut wanted = revoke(&chain[0]);
    for reason in [2, 6, 7, 8, 9, 10, 11, -1] {
        wanted["reason"] = json!(reason);
        assert_eq!(owner.post(&path, wanted.clone()).await.problem(), "badRevocationReason", "{reason}");
    }
    wanted["reason"] = json!(4);
    assert!(owner.post(&path, wanted.clone()).await.ok().body.is_empty());
    assert_eq!(is_revoked(&fixture, &chain[0]).await, Some(Reason::Superseded));
    assert_eq!(owner.post(&path, wanted).await.problem(), "alreadyRevoked");
    // The CA's own certificate, and one that was not issued here.
    assert_eq!(owner.post(&path, revoke(&chain[1])).await.problem(), "unauthorized");
    let (stranger, _) = super::net::AlpnCertificate::of("a.test", "").make();
    let answer = owner.post(&path, json!({"certificate": b64(stranger)})).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert_eq!(owner.post(&path, json!({"certificate": b64([0x30, 0])})).await.problem(), "malformed");
}

pub(crate) async fn account_authorized_for_all_names_revokes_the_certificate(fixture: Fixture) {
    let fixture = AcmeFixture::new(fixture).await;
    let (owner, other) = (Client::registered(&fixture.acme).await, Client::registered(&fixture.acme).await);
    let (_, chain) = issue(&fixture, &owner, &["a.test", "b.test"]).await;
    let order = other.order(&["a.test"]).await.ok().json();
    prove(&fixture, &other, &order).await;
    assert_eq!(other.post(&url("revoke-cert"), revoke(&chain[0])).await.problem(), "unauthorized");
    let order = other.order(&["b.test"]).await.ok().json();
    prove(&fixture, &other, &order).await;
    other.post(&url("revoke-cert"), revoke(&chain[0])).await.ok();
    assert_eq!(is_revoked(&fixture, &chain[0]).await, Some(Reason::Unspecified));
}

pub(crate) async fn trusted_authorization_does_not_permit_revocation_by_other_accounts(fixture: Fixture) {
    let fixture = AcmeFixture::with(fixture, |options| {
        let trusting = DirectoryOptions { trust_authenticated: true, ..DirectoryOptions::default() };
        options.directories.insert("web".to_owned(), trusting);
    })
    .await;
    let (owner, other) = (Client::registered(&fixture.acme).await, Client::registered(&fixture.acme).await);
    let (_, chain) = issue(&fixture, &owner, &["a.test"]).await;
    let order = json!({"identifiers": [{"type": "dns", "value": "a.test"}]});
    let order = other.post(&url("web/new-order"), order).await.ok().json();
    assert_eq!(order["status"], "ready");
    let refused = other.post(&url("revoke-cert"), revoke(&chain[0])).await;
    assert_eq!((refused.status, refused.problem().as_str()), (StatusCode::FORBIDDEN, "unauthorized"));
    // An account can revoke its own certificate, even if it was issued without a proof.
    let (answer, _) = finalize(&other, &order, &["a.test"]).await;
    let own = download(&other, &answer.ok().json()).await;
    other.post(&url("revoke-cert"), revoke(&own[0])).await.ok();
    assert_eq!(is_revoked(&fixture, &own[0]).await, Some(Reason::Unspecified));
    assert_eq!(is_revoked(&fixture, &chain[0]).await, None);
}

pub(crate) async fn certificate_key_revokes_its_own_certificate(fixture: Fixture) {
    let fixture = AcmeFixture::new(fixture).await;
    let owner = Client::registered(&fixture.acme).await;
    // One key signs both the CSR and the revocation request.
    let pair = AccountKey::p256();
    let key = pair.as_private_key();
    let mut chains = Vec::new();
    for name in ["a.test", "b.test"] {
        let order = owner.order(&[name]).await.ok().json();
        prove(&fixture, &owner, &order).await;
        let answer =
            owner.post(order["finalize"].as_str().unwrap(), json!({"csr": b64(csr_of(&key, &[name]))})).await;
        chains.push(download(&owner, &answer.ok().json()).await);
    }
    let path = url("revoke-cert");
    let stranger = Client::new(&fixture.acme);
    let refused = stranger.post_with_key(&path, &revoke(&chains[0][0]).to_string()).await;
    assert_eq!((refused.status, refused.problem().as_str()), (StatusCode::FORBIDDEN, "unauthorized"));
    let holder = Client::with_key(&fixture.acme, pair);
    let mut wanted = revoke(&chains[0][0]);
    wanted["reason"] = json!(1);
    holder.post_with_key(&path, &wanted.to_string()).await.ok();
    // A revocation with the certificate's own key proves that the key is compromised. All certificates with the key are revoked,
    // and the key is rejected from then on.
    for chain in &chains {
        assert_eq!(is_revoked(&fixture, &chain[0]).await, Some(Reason::KeyCompromise));
    }
    let order = owner.order(&["c.test"]).await.ok().json();
    prove(&fixture, &owner, &order).await;
    let rejected =
        owner.post(order["finalize"].as_str().unwrap(), json!({"csr": b64(csr_of(&key, &["c.test"]))})).await;
    let rejected = rejected.ok().json();
    assert_eq!(rejected["status"], "invalid");
    assert_eq!(rejected["error"]["type"], "urn:ietf:params:acme:error:badCSR");
    let mut account = holder;
    assert_eq!(account.register(&url("new-account"), json!({})).await.problem(), "badPublicKey");
}

/// Returns the certificate identifier of RFC 9773 section 4.1.
fn certificate_id(certificate: &Certificate) -> String {
    format!("{}.{}", b64(certificate.authority_key_id.as_ref().unwrap()), b64(certificate.serial.content()))
}

pub(crate) async fn renewal_info_suggests_a_window_and_past_dates_after_revocation(fixture: Fixture) {
    let fixture = AcmeFixture::new(fixture).await;
    let client = Client::registered(&fixture.acme).await;
    let (_, chain) = issue(&fixture, &client, &["a.test"]).await;
    let leaf = &chain[0];
    let id = certificate_id(leaf);
    let answer = client.get(&url(&format!("renewal-info/{id}"))).await.ok();
    let window = |answer: &Value| {
        let at = |name: &str| {
            let text = answer["suggestedWindow"][name].as_str().unwrap();
            text.parse::<jiff::Timestamp>().unwrap().as_second()
        };
        (at("start"), at("end"))
    };
    let (start, end) = window(&answer.json());
    assert!(leaf.not_before.0 < start && start < end && end < leaf.not_after.0);
    assert!(answer.header("retry-after").parse::<u64>().unwrap() >= 60);
    for (unknown, status) in [
        ("AAAA.AAAA".to_owned(), StatusCode::NOT_FOUND),
        (format!("{}.AAAA", id.split('.').next().unwrap()), StatusCode::NOT_FOUND),
        ("x".to_owned(), StatusCode::BAD_REQUEST),
        ("+.+".to_owned(), StatusCode::BAD_REQUEST),
    ] {
        assert_eq!(client.get(&url(&format!("renewal-info/{unknown}"))).await.status, status, "{unknown}");
    }
    // For a revoked certificate the window is in the past.
    client.post(&url("revoke-cert"), revoke(leaf)).await.ok();
    let (_, end) = window(&client.get(&url(&format!("renewal-info/{id}"))).await.ok().json());
    assert!(end <= fixture.fixture.clock.now_seconds());
}

pub(crate) async fn certificate_is_replaced_by_one_order_only(fixture: Fixture) {
    let fixture = AcmeFixture::new(fixture).await;
    let (client, other) = (Client::registered(&fixture.acme).await, Client::registered(&fixture.acme).await);
    let (_, chain) = issue(&fixture, &client, &["a.test", "b.test"]).await;
    let id = certificate_id(&chain[0]);
    let replaces = json!({"replaces": id});
    assert_eq!(other.order_with(&["a.test"], replaces.clone()).await.problem(), "unauthorized");
    assert_eq!(client.order_with(&["c.test"], replaces.clone()).await.problem(), "malformed");
    assert_eq!(client.order_with(&["a.test"], json!({"replaces": "AAAA.AAAA"})).await.problem(), "malformed");
    let order = client.order_with(&["a.test"], replaces.clone()).await.ok().json();
    assert_eq!(order["replaces"], json!(id));
    prove(&fixture, &client, &order).await;
    // Until the replacement is finalized, another one can be ordered.
    client.order_with(&["a.test"], replaces.clone()).await.ok();
    let (answer, _) = finalize(&client, &order, &["a.test"]).await;
    answer.ok();
    let twice = client.order_with(&["a.test"], replaces).await;
    assert_eq!((twice.status, twice.problem().as_str()), (StatusCode::CONFLICT, "alreadyReplaced"));
    assert!(URL_SAFE_NO_PAD.decode(id.split('.').next().unwrap()).is_ok());
    assert_eq!(identifier("a.test")["type"], "dns");
}
