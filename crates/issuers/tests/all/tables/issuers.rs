//! Tests of configured issuers, their health, orders and challenges.

use futures_util::FutureExt;
use issuers::tables::{
    IssuerAccount, IssuerChange, IssuerHealth, IssuerOrder, IssuerSettings, delete_configured_issuer,
    insert_configured_issuer, update_configured_issuer,
};
use issuers::{Breaker, IssuerKind};
use store::Store;
use uuid::Uuid;

use testbed::tables::{NOW, World};

fn settings(name: &str) -> IssuerSettings {
    IssuerSettings {
        name: name.to_owned(),
        kind: IssuerKind::Exec,
        config: r#"{"type":"exec"}"#.to_owned(),
        secrets: Some(vec![1, 2, 3]),
        enabled: true,
    }
}

async fn insert(store: &Store, id: Uuid, name: &str) -> IssuerChange {
    let settings = settings(name);
    let work = store.write("test", move |tx| {
        async move { insert_configured_issuer(tx, id, &settings, NOW).await }.boxed()
    });
    work.await.unwrap()
}

async fn update(store: &Store, id: Uuid, revision: i64, name: &str) -> IssuerChange {
    let settings = IssuerSettings { enabled: false, secrets: None, ..settings(name) };
    let work = store.write("test", move |tx| {
        async move { update_configured_issuer(tx, id, revision, &settings, NOW + 1).await }.boxed()
    });
    work.await.unwrap()
}

pub(crate) async fn issuer_names_are_unique_and_updates_require_the_current_revision(world: World) {
    let store = &world.store;
    let (a, b) = (Uuid::now_v7(), Uuid::now_v7());
    assert_eq!(insert(store, a, "B").await, IssuerChange::Done);
    assert_eq!(insert(store, b, "a").await, IssuerChange::Done);
    assert_eq!(insert(store, Uuid::now_v7(), "a").await, IssuerChange::NameTaken);
    let row = issuers::tables::ExternalIssuers::of(store).get(a).await.unwrap().unwrap();
    assert_eq!((row.revision, row.secrets.as_deref(), row.enabled), (1, Some(&[1, 2, 3][..]), true));
    assert_eq!((row.account, row.health), (None, IssuerHealth::default()));
    assert_eq!(update(store, a, 1, "a").await, IssuerChange::NameTaken);
    assert_eq!(update(store, a, 2, "c").await, IssuerChange::Stale);
    assert_eq!(update(store, Uuid::now_v7(), 1, "d").await, IssuerChange::Stale);
    assert_eq!(update(store, a, 1, "c").await, IssuerChange::Done);
    let row = issuers::tables::ExternalIssuers::of(store).named("c").await.unwrap().unwrap();
    assert_eq!((row.id, row.revision, row.enabled, row.updated_at_us), (a, 2, false, NOW + 1));
    // Sorted by bytes, not by locale.
    assert_eq!(insert(store, Uuid::now_v7(), "B").await, IssuerChange::Done);
    let first = issuers::tables::ExternalIssuers::of(store).page(None, 2).await.unwrap();
    let rest = issuers::tables::ExternalIssuers::of(store).page(first.next.as_ref(), 2).await.unwrap();
    let names: Vec<_> = first.rows.iter().chain(&rest.rows).map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["B", "a", "c"]);
}

pub(crate) async fn issuer_deletion_removes_account_health_and_orders(world: World) {
    let store = &world.store;
    let (id, other) = (Uuid::now_v7(), Uuid::now_v7());
    insert(store, id, "a").await;
    insert(store, other, "b").await;
    let account = IssuerAccount { key: Uuid::now_v7(), url: None, directory: "https://ca/dir".to_owned() };
    issuers::tables::ExternalIssuers::of(store).set_account(id, account.clone()).await.unwrap();
    assert_eq!(
        issuers::tables::ExternalIssuers::of(store).get(id).await.unwrap().unwrap().account,
        Some(account)
    );
    let well = IssuerHealth { last_success_at_us: Some(1), ..IssuerHealth::default() };
    let ill = IssuerHealth {
        breaker: Breaker::Open { until_us: 3, rests: 1 },
        last_error_at_us: Some(2),
        last_error_code: Some("unavailable".to_owned()),
        last_error: Some("it is down".to_owned()),
        ..IssuerHealth::default()
    };
    issuers::tables::ExternalIssuers::of(store).set_health(id, well).await.unwrap();
    issuers::tables::ExternalIssuers::of(store).set_health(id, ill.clone()).await.unwrap();
    let health = issuers::tables::ExternalIssuers::of(store).get(id).await.unwrap().unwrap().health;
    assert_eq!(health, IssuerHealth { last_success_at_us: Some(1), ..ill }, "what is not told stays");
    let order =
        IssuerOrder { spki_sha256: [7; 32], url: Some("u".to_owned()), chain: None, created_at_us: NOW };
    issuers::tables::ExternalIssuers::of(store).put_order(id, "k", order.clone()).await.unwrap();
    issuers::tables::ExternalIssuers::of(store).put_order(other, "k", order.clone()).await.unwrap();
    let deleted =
        store.write("test", move |tx| async move { delete_configured_issuer(tx, id).await }.boxed());
    assert!(deleted.await.unwrap());
    assert_eq!(issuers::tables::ExternalIssuers::of(store).get(id).await.unwrap(), None);
    assert_eq!(issuers::tables::ExternalIssuers::of(store).order(id, "k").await.unwrap(), None);
    assert_eq!(issuers::tables::ExternalIssuers::of(store).order(other, "k").await.unwrap(), Some(order));
}

#[test]
fn issuer_type_names_match_those_stored_in_databases() {
    let names = ["internal", "acme", "vault", "step_ca", "exec", "webhook"];
    assert_eq!(IssuerKind::ALL.map(IssuerKind::name), names);
}

pub(crate) async fn unreadable_rows_are_errors(world: World) {
    let store = &world.store;
    let id = Uuid::now_v7();
    insert(store, id, "a").await;
    let change = async |text: &'static str| {
        let work = store.write("test", move |tx| async move { tx.execute(text, Vec::new()).await }.boxed());
        assert_eq!(work.await.unwrap(), 1);
    };
    let get = async || issuers::tables::ExternalIssuers::of(store).get(id).await.map(Option::unwrap);
    change("INSERT INTO issuer_health (issuer, breaker) SELECT uuid, '' FROM configured_issuers").await;
    // The format in which databases have stored it since the first version.
    change(r#"UPDATE issuer_health SET breaker = '{"half_open":{"until_us":5,"rests":2}}'"#).await;
    assert_eq!(get().await.unwrap().health.breaker, Breaker::HalfOpen { until_us: 5, rests: 2 });
    change(r#"UPDATE issuer_health SET breaker = '{"ajar":{}}'"#).await;
    let error = get().await.unwrap_err().to_string();
    assert!(error.contains("issuer_health.breaker: unknown variant `ajar`"), "{error}");
    change(r#"UPDATE issuer_health SET breaker = '{"closed":{"failures":2}}'"#).await;
    assert_eq!(get().await.unwrap().health.breaker, Breaker::Closed { failures: 2 });
    change("UPDATE configured_issuers SET kind = 'est'").await;
    let error = get().await.unwrap_err().to_string();
    assert!(error.ends_with("configured_issuers.kind: unknown issuer type \"est\""), "{error}");
}

pub(crate) async fn orders_and_challenges_are_replaced_expired_and_deleted(world: World) {
    let store = &world.store;
    let issuer = Uuid::now_v7();
    let order = |url: Option<&str>, chain: Option<Vec<u8>>, at| IssuerOrder {
        spki_sha256: [1; 32],
        url: url.map(str::to_owned),
        chain,
        created_at_us: at,
    };
    issuers::tables::ExternalIssuers::of(store)
        .put_order(issuer, "k", order(Some("u"), None, NOW))
        .await
        .unwrap();
    let done = order(None, Some(vec![0, 255]), NOW + 1);
    issuers::tables::ExternalIssuers::of(store).put_order(issuer, "k", done.clone()).await.unwrap();
    assert_eq!(issuers::tables::ExternalIssuers::of(store).order(issuer, "k").await.unwrap(), Some(done));
    issuers::tables::ExternalIssuers::of(store)
        .put_order(issuer, "old", order(None, None, NOW - 5))
        .await
        .unwrap();
    let answers: Vec<_> = (0..3).map(|n| (format!("t{n}"), format!("answer {n}"))).collect();
    issuers::tables::ExternalIssuers::of(store).put_challenges(answers, NOW + 10).await.unwrap();
    issuers::tables::ExternalIssuers::of(store)
        .put_challenges(vec![("t0".to_owned(), "other".to_owned())], NOW + 20)
        .await
        .unwrap();
    let answer = |token: &'static str, at| async move {
        issuers::tables::ExternalIssuers::of(store).challenge(token, at).await.unwrap()
    };
    assert_eq!(answer("t0", NOW + 19).await.as_deref(), Some("other"));
    assert_eq!((answer("t0", NOW + 20).await, answer("t1", NOW + 10).await), (None, None));
    issuers::tables::ExternalIssuers::of(store)
        .delete_challenges(vec!["t1".to_owned(), "none".to_owned()])
        .await
        .unwrap();
    assert_eq!((answer("t1", NOW).await, answer("t2", NOW).await.as_deref()), (None, Some("answer 2")));
    issuers::tables::ExternalIssuers::of(store).expire_orders(NOW, NOW + 10).await.unwrap();
    assert_eq!(issuers::tables::ExternalIssuers::of(store).order(issuer, "old").await.unwrap(), None);
    assert!(issuers::tables::ExternalIssuers::of(store).order(issuer, "k").await.unwrap().is_some());
    assert_eq!((answer("t2", NOW).await, answer("t0", NOW).await.as_deref()), (None, Some("other")));
    issuers::tables::ExternalIssuers::of(store).delete_order(issuer, "k").await.unwrap();
    assert_eq!(issuers::tables::ExternalIssuers::of(store).order(issuer, "k").await.unwrap(), None);
}
