//! Tests of unfinished work after crashes, and of cleanup over time.

use authority::acme::DirectoryOptions;
use authority::tables::acme::{AcmeFinalizedOrder, AcmeOrderStatus, begin_acme_issuances};
use futures_util::FutureExt;
use serde_json::json;
use uuid::Uuid;

use super::client::{Client, b64, csr};
use super::flow::{download, finalize, issue, prove};
use super::world::{AcmeFixture, eventually};
use crate::fixture::Fixture;

/// The maximum number of statements of one order, including those that read the account again. Concurrent orders share statements.
const ORDER_STATEMENTS_MAX: u64 = 30;

fn id(url: &str) -> Uuid {
    url.rsplit('/').next().unwrap().parse().unwrap()
}

pub(crate) async fn interrupted_validation_completes_after_restart(fixture: Fixture) {
    let mut fixture = AcmeFixture::new(fixture).await;
    fixture.halt().await;
    let mut client = Client::registered(&fixture.acme).await;
    let order = client.order(&["a.test"]).await.ok().json();
    let challenge = client.challenge(&order, 0, "http-01").await;
    fixture.net.challenge(challenge["token"].as_str().unwrap(), &client.key_authorization(&challenge));
    let posted = client.post(challenge["url"].as_str().unwrap(), json!({})).await.ok().json();
    assert_eq!(posted["status"], "processing");
    // The process ended, so no worker has the authorization. On PostgreSQL another node may hold it until its lease expires.
    if fixture.fixture.store.is_postgres() {
        fixture.fixture.advance(120);
    }
    fixture.restart().await;
    client.acme = fixture.acme.clone();
    let _ = client.fetch(client.kid.as_deref().unwrap()).await;
    let found = client.until_not(order["authorizations"][0].as_str().unwrap(), &["pending"]).await;
    assert_eq!(found["status"], "valid");
}

pub(crate) async fn validation_claim_is_released_on_shutdown(fixture: Fixture) {
    let mut fixture =
        AcmeFixture::with(fixture, |options| options.validation.pause_milliseconds = 600_000).await;
    let mut client = Client::registered(&fixture.acme).await;
    let order = client.order(&["a.test"]).await.ok().json();
    let challenge = client.challenge(&order, 0, "http-01").await;
    client.post(challenge["url"].as_str().unwrap(), json!({})).await.ok();
    // The resource is missing at the first attempt. Attempts continue for ten minutes, and the claim lasts longer.
    let acme = fixture.acme.clone();
    eventually("the first try", async || (!fixture.net.requests().is_empty()).then_some(())).await;
    assert_eq!(acme.figures().validations_running, 1);
    fixture.net.challenge(challenge["token"].as_str().unwrap(), &client.key_authorization(&challenge));
    fixture.halt().await;
    let row = authority::tables::Acme::of(&fixture.fixture.store)
        .authorization(id(order["authorizations"][0].as_str().unwrap()));
    let claimed = row.await.unwrap().unwrap().claimed_until_us;
    assert!(claimed.is_some_and(|until| until <= fixture.fixture.clock.now_us()), "{claimed:?}");
    // A challenge that is answered while no worker runs is free to claim immediately.
    let next = client.order(&["b.test"]).await.ok().json();
    let later = client.challenge(&next, 0, "http-01").await;
    fixture.net.challenge(later["token"].as_str().unwrap(), &client.key_authorization(&later));
    client.post(later["url"].as_str().unwrap(), json!({})).await.ok();
    fixture.restart().await;
    client.acme = fixture.acme.clone();
    let _ = client.fetch(client.kid.as_deref().unwrap()).await;
    for order in [order, next] {
        let found = client.until_not(order["authorizations"][0].as_str().unwrap(), &["pending"]).await;
        assert_eq!(found["status"], "valid");
    }
}

/// Creates an order that was finalized by a process which then ended, before or after it issued.
async fn left_processing(fixture: &AcmeFixture, client: &Client, name: &str) -> (String, Vec<u8>) {
    let answer = client.order(&[name]).await.ok();
    prove(fixture, client, &answer.json()).await;
    let (_, csr) = csr(&[name]);
    let url = answer.header("location");
    let claimed_until_us = fixture.fixture.clock.now_us() + 1_000_000;
    let left = AcmeFinalizedOrder { id: id(&url), csr: csr.clone(), claimed_until_us };
    let begun = fixture
        .fixture
        .store
        .write("test", move |tx| async move { begin_acme_issuances(tx, &[left]).await }.boxed())
        .await
        .unwrap();
    assert_eq!(begun, [id(&url)]);
    (url, csr)
}

pub(crate) async fn interrupted_order_is_finished_by_the_next_poll(fixture: Fixture) {
    let mut fixture = AcmeFixture::new(fixture).await;
    let client = Client::registered(&fixture.acme).await;
    let (url, csr) = left_processing(&fixture, &client, "a.test").await;
    fixture.halt().await;
    let waiting = client.fetch(&url).await.ok();
    assert_eq!(
        (&waiting.json()["status"], waiting.header("retry-after").is_empty()),
        (&json!("processing"), false)
    );
    // Finalizing again with any CSR changes nothing.
    let repeated = client.post(&format!("{url}/finalize"), json!({"csr": b64(&csr)})).await;
    assert_eq!(repeated.problem(), "orderNotReady");
    fixture.fixture.advance(2);
    let done = client.fetch(&url).await.ok().json();
    assert_eq!(done["status"], "valid");
    download(&client, &done).await;
}

pub(crate) async fn interrupted_order_is_finished_at_startup(fixture: Fixture) {
    let mut fixture = AcmeFixture::new(fixture).await;
    let client = Client::registered(&fixture.acme).await;
    let (url, _) = left_processing(&fixture, &client, "a.test").await;
    fixture.halt().await;
    fixture.fixture.advance(2);
    fixture.restart().await;
    let store = fixture.fixture.store.clone();
    let order = eventually("the certificate", async || {
        authority::tables::Acme::of(&store)
            .order(id(&url))
            .await
            .unwrap()
            .filter(|order| order.status == AcmeOrderStatus::Valid)
    })
    .await;
    assert!(order.certificate.is_some());
}

pub(crate) async fn concurrent_polls_of_an_interrupted_order_issue_one_certificate(fixture: Fixture) {
    let mut fixture = AcmeFixture::new(fixture).await;
    let client = Client::registered(&fixture.acme).await;
    let (url, _) = left_processing(&fixture, &client, "a.test").await;
    fixture.halt().await;
    fixture.fixture.advance(2);
    let other_client = client.at(&fixture.another());
    let polls =
        (0..4).map(|turn| if turn % 2 == 0 { &client } else { &other_client }).map(|one| one.fetch(&url));
    for answer in futures_util::future::join_all(polls).await {
        answer.ok();
    }
    let store = &fixture.fixture.store;
    let order = authority::tables::Acme::of(store).order(id(&url)).await.unwrap().unwrap();
    assert_eq!(order.status, AcmeOrderStatus::Valid);
    let requester = format!("acme:{}", id(client.kid.as_deref().unwrap()));
    let filter = authority::tables::IssuedFilter {
        requester: Some(requester),
        ..authority::tables::IssuedFilter::default()
    };
    let page = authority::tables::Issued::of(store).page(&filter, None, 10).await.unwrap();
    assert_eq!(page.rows.len(), 1);
}

pub(crate) async fn order_rejected_at_finalization_stays_invalid_with_its_error(fixture: Fixture) {
    let fixture = AcmeFixture::new(fixture).await;
    let client = Client::registered(&fixture.acme).await;
    let answer = client.order(&["a.test"]).await.ok();
    prove(&fixture, &client, &answer.json()).await;
    // Between newOrder and finalize the profile stopped allowing the name.
    let mut profile = super::world::profile("default");
    profile.names = serde_json::from_value(json!({"dns_allowed": ["b.test"]})).unwrap();
    fixture.fixture.authority.put_profile(profile, None, "user:a").await.unwrap();
    let (refused, _) = finalize(&client, &answer.json(), &["a.test"]).await;
    let order = refused.ok().json();
    assert_eq!(order["status"], "invalid");
    assert_eq!(order["error"]["type"], "urn:ietf:params:acme:error:rejectedIdentifier");
    assert_eq!(client.fetch(&answer.header("location")).await.ok().json()["status"], "invalid");
}

pub(crate) async fn ended_orders_are_deleted_after_the_retention_period(fixture: Fixture) {
    let mut fixture = AcmeFixture::with(fixture, |options| options.keep_ended_seconds = 3_600).await;
    let client = Client::registered(&fixture.acme).await;
    let (earlier, _) = issue(&fixture, &client, &["earlier.test"]).await;
    fixture.fixture.advance(300);
    let (url, _) = issue(&fixture, &client, &["a.test"]).await;
    let retained = client.fetch(&url).await.ok().json();
    let authorization = id(retained["authorizations"][0].as_str().unwrap());
    fixture.fixture.advance(86_400 + 3_500);
    fixture.restart().await;
    let store = fixture.fixture.store.clone();
    let deleted = async || {
        authority::tables::Acme::of(&store).order(id(&earlier)).await.unwrap().is_none().then_some(())
    };
    eventually("the deletion of the earlier one", deleted).await;
    assert!(
        authority::tables::Acme::of(&store).order(id(&url)).await.unwrap().is_some(),
        "its time is not over"
    );
    fixture.fixture.advance(200);
    fixture.restart().await;
    eventually("the deletion", async || {
        let order = authority::tables::Acme::of(&store).order(id(&url)).await.unwrap();
        let proof = authority::tables::Acme::of(&store).authorization(authorization).await.unwrap();
        (order.is_none() && proof.is_none()).then_some(())
    })
    .await;
    // The CA keeps its record of the certificate.
    let filter = authority::tables::IssuedFilter {
        profile: Some("default".to_owned()),
        ..authority::tables::IssuedFilter::default()
    };
    let page = authority::tables::Issued::of(&store).page(&filter, None, 10).await.unwrap();
    assert_eq!(page.rows.len(), 2);
}

pub(crate) async fn account_orders_are_listed_in_pages(fixture: Fixture) {
    let fixture = AcmeFixture::new(fixture).await;
    let client = Client::registered(&fixture.acme).await;
    let mut made = Vec::new();
    for number in 0..103 {
        made.push(client.order(&[&format!("n{number}.test")]).await.ok().header("location"));
    }
    let mut listed: Vec<String> = Vec::new();
    let mut next = Some(format!("{}/orders", client.kid.as_deref().unwrap()));
    while let Some(url) = next {
        let page = client.fetch(&url).await.ok();
        listed.extend(
            page.json()["orders"].as_array().unwrap().iter().map(|url| url.as_str().unwrap().to_owned()),
        );
        next = page.links("next").pop();
    }
    made.sort();
    listed.sort();
    assert_eq!(listed, made);
    let bad = client.fetch(&format!("{}/orders?cursor=x", client.kid.as_deref().unwrap())).await;
    assert_eq!(bad.problem(), "malformed");
}

pub(crate) async fn new_order_statement_count_is_independent_of_the_number_of_names(fixture: Fixture) {
    let mut fixture = AcmeFixture::new(fixture).await;
    fixture.halt().await;
    let client = Client::registered(&fixture.acme).await;
    // This order loads the account and its limits into the cache.
    client.order(&["warm.test"]).await.ok();
    let store = &fixture.fixture.store;
    let count = async |names: usize| {
        let names: Vec<String> = (0..names).map(|number| format!("n{number}.test")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let before = store.statements_sent();
        client.order(&names).await.ok();
        store.statements_sent() - before
    };
    // Profile, possibly account and limits, authorizations and order need the same number of statements for one name and for fifty.
    let (few, many) = (count(1).await, count(50).await);
    assert!(few <= 8 && many <= 8, "{few} {many}");
}

/// Counts every statement of a complete order to its certificate, without validation.
pub(crate) async fn order_statement_count_is_independent_of_the_number_of_names(fixture: Fixture) {
    let mut fixture = AcmeFixture::with(fixture, |options| {
        let trusting = DirectoryOptions { trust_authenticated: true, ..DirectoryOptions::default() };
        options.directories.insert("default".to_owned(), trusting);
    })
    .await;
    fixture.halt().await;
    let client = Client::registered(&fixture.acme).await;
    let store = fixture.fixture.store.clone();
    let cost = async |names: usize, from: usize| {
        let names: Vec<String> = (from..from + names).map(|number| format!("n{number}.test")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let before = store.statements_sent();
        let order = client.order(&names).await.ok().json();
        let (answer, _) = finalize(&client, &order, &names).await;
        let order = answer.ok().json();
        assert_eq!(order["status"], "valid", "{order}");
        client.fetch(order["certificate"].as_str().unwrap()).await.ok();
        store.statements_sent() - before
    };
    // The account, the profile and the CAs are cached after the first order.
    cost(1, 0).await;
    let (few, many) = (cost(1, 100).await, cost(50, 200).await);
    assert!(few <= ORDER_STATEMENTS_MAX && many <= ORDER_STATEMENTS_MAX, "{few} {many}");
}
