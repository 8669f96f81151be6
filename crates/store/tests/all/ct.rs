//! Watched domains, places in services and logs, and what was found.

use futures_util::FutureExt;
use store::ct::{
    CtFilter, CtSearchRow, CtVerdict, NewCtIssuance, alarm_ct_log, ct_known, delete_ct_domain, delete_ct_log,
    fail_ct_log, insert_ct_domains, judge_ct_issuances, put_ct_searches, record_ct_issuances, step_ct_log,
    update_ct_domain,
};
use store::{Store, insert_known_certificates};
use uuid::Uuid;

use crate::world::{DAY, NOW, World, certificate, walk};

fn issuance(serial: u8, tbs: Option<u8>, source: &str, domain: &str) -> NewCtIssuance {
    NewCtIssuance {
        id: Uuid::now_v7(),
        issuer_serial: [serial; 32],
        tbs: tbs.map(|tbs| [tbs; 32]),
        issuer: "CN=R3".to_owned(),
        serial: format!("{serial:02x}"),
        names: vec![format!("host-{serial}.{domain}"), "nul\0.example".to_owned()],
        not_before_us: NOW,
        not_after_us: NOW + i64::from(serial) * DAY,
        spki_sha256: tbs.map(|tbs| [tbs; 32]),
        sha256: None,
        source: source.to_owned(),
        logged_at_us: Some(NOW),
        found_at_us: NOW + i64::from(serial),
        der: tbs.map(|tbs| vec![tbs; 10]),
        domains: vec![domain.to_owned()],
    }
}

async fn record(store: &Store, found: Vec<NewCtIssuance>) -> Vec<Uuid> {
    store.write("record", move |tx| record_ct_issuances(tx, found).boxed()).await.unwrap()
}

async fn all(store: &Store, filter: CtFilter) -> Vec<store::ct::CtIssuanceRow> {
    walk!(2, |after, size| store.ct_issuances(&filter, after, size))
}

async fn watch(store: &Store, names: &[&str]) -> Vec<String> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    store
        .write("watch", move |tx| async move { insert_ct_domains(tx, &names, "{}", NOW).await }.boxed())
        .await
        .unwrap()
}

pub(crate) async fn domains_are_watched_and_asked_for_when_due(world: World) {
    let store = &world.store;
    let mut new = watch(store, &["b.example", "a.example", "c.example"]).await;
    new.sort();
    assert_eq!(new, ["a.example", "b.example", "c.example"]);
    assert_eq!(watch(store, &["a.example", "d.example"]).await, ["d.example"], "one is watched already");
    let rows = walk!(2, |after, size| store.ct_domains(after, size));
    assert_eq!(
        rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(),
        ["a.example", "b.example", "c.example", "d.example"]
    );

    let due = |now: i64| async move {
        let due = store.ct_searches_due("crt.sh", now, 10).await.unwrap();
        due.into_iter().map(|due| (due.domain, due.cursor, due.failures)).collect::<Vec<_>>()
    };
    let never = |name: &str| (name.to_owned(), None, 0);
    assert_eq!(due(NOW).await, ["a.example", "b.example", "c.example", "d.example"].map(never));
    let left = |domain: &str, due_at_us, failures| CtSearchRow {
        service: "crt.sh".to_owned(),
        domain: domain.to_owned(),
        cursor: format!("{{\"after\":\"{domain}\"}}"),
        due_at_us,
        answered_at_us: (failures == 0).then_some(NOW),
        failures,
        last_error: (failures > 0).then(|| "no\0 answer".to_owned()),
    };
    let rows = vec![
        left("a.example", NOW + 1_000, 0),
        left("b.example", NOW + 10, 0),
        left("b.example", NOW + 20, 2),
    ];
    store.write("left", move |tx| put_ct_searches(tx, rows).boxed()).await.unwrap();
    assert_eq!(due(NOW).await, ["c.example", "d.example"].map(never));
    let later = due(NOW + 20).await;
    assert_eq!(later[2], ("b.example".to_owned(), Some("{\"after\":\"b.example\"}".to_owned()), 2));
    let stored = store.ct_searches("b.example").await.unwrap();
    assert_eq!((stored.len(), stored[0].failures, stored[0].answered_at_us), (1, 2, None));
    assert_eq!(store.ct_searches_due("certspotter", NOW, 10).await.unwrap().len(), 4, "another service");

    let rule = |revision| {
        store.write("rule", move |tx| {
            update_ct_domain(tx, "b.example", "{\"allowed\":[]}", NOW, revision).boxed()
        })
    };
    assert!(rule(1).await.unwrap());
    assert!(!rule(1).await.unwrap(), "it was changed meanwhile");
    assert_eq!(store.ct_domain("b.example").await.unwrap().unwrap().revision, 2);
    let delete = || store.write("delete", |tx| delete_ct_domain(tx, "b.example").boxed());
    assert!(delete().await.unwrap() && !delete().await.unwrap());
    assert!(store.ct_searches("b.example").await.unwrap().is_empty());
}

pub(crate) async fn an_issuance_is_stored_once_whoever_tells_of_it(world: World) {
    let store = &world.store;
    // A service without hashes, then a log, twice in a batch and again later.
    let first = record(store, vec![issuance(1, None, "crt.sh", "a.example")]).await;
    assert_eq!(first.len(), 1);
    let batch = vec![
        issuance(1, Some(1), "log", "a.example"),
        issuance(1, Some(1), "log", "b.example"),
        issuance(1, None, "crt.sh", "a.example"),
        issuance(2, None, "crt.sh", "a.example"),
        issuance(2, Some(2), "log", "a.example"),
        issuance(3, Some(3), "log", "b.example"),
    ];
    assert_eq!(record(store, batch.clone()).await.len(), 2, "2 and 3 are new");
    assert!(record(store, batch).await.is_empty());
    // The same number used twice by an authority hides nothing.
    assert_eq!(record(store, vec![issuance(3, Some(9), "log", "b.example")]).await.len(), 1);
    // The same hash under another name of the issuer is the same.
    let other = NewCtIssuance { issuer_serial: [77; 32], ..issuance(3, Some(9), "log", "c.example") };
    assert!(record(store, vec![other]).await.is_empty());

    let rows = all(store, CtFilter::default()).await;
    let told: Vec<_> = rows.iter().map(|row| (row.issuer_serial[0], row.tbs.map(|tbs| tbs[0]))).collect();
    assert_eq!(told[0], (3, Some(9)), "the newest first");
    assert_eq!(told[3], (1, Some(1)), "it has learned its hash");
    assert_eq!(told.len(), 4);
    let one = &rows[3];
    assert_eq!((one.id, one.source.as_str(), one.spki_sha256), (first[0], "crt.sh", Some([1; 32])));
    assert_eq!(one.names, ["host-1.a.example", "nul\u{fffd}.example"]);
    assert_eq!(store.ct_issuance_der(one.id).await.unwrap(), Some(vec![1; 10]));
    assert_eq!(store.ct_issuance_domains(one.id).await.unwrap(), ["a.example", "b.example"]);
    let of = |domain: &str| CtFilter { domain: Some(domain.to_owned()), verdict: None };
    let serials =
        |rows: Vec<store::ct::CtIssuanceRow>| rows.iter().map(|row| row.issuer_serial[0]).collect::<Vec<_>>();
    assert_eq!(serials(all(store, of("a.example")).await), [2, 1]);
    assert_eq!(serials(all(store, of("b.example")).await), [3, 3, 1]);
    assert_eq!(serials(all(store, of("c.example")).await), [3]);
    assert_eq!(store.ct_issuance(one.id).await.unwrap().as_ref(), Some(one));
}

pub(crate) async fn verdicts_are_given_once_and_what_has_ended_goes(world: World) {
    let store = &world.store;
    watch(store, &["a.example"]).await;
    let found = vec![issuance(1, Some(1), "log", "a.example"), issuance(2, Some(2), "log", "gone.example")];
    let ids = record(store, found).await;
    let judgeable = |verdict, until| async move {
        walk!(1, |after, size| store.ct_issuances_judgeable(verdict, NOW..=until, after, size))
    };
    assert!(judgeable(CtVerdict::Pending, NOW).await.is_empty(), "found later");
    let pending = judgeable(CtVerdict::Pending, NOW + 10).await;
    let told: Vec<_> =
        pending.iter().map(|(row, domain)| (row.issuer_serial[0], domain.as_deref())).collect();
    assert_eq!(told, [(1, Some("a.example")), (2, None)], "one domain is not watched");
    let verdicts: Vec<_> =
        pending.iter().map(|(row, _)| (row.id, CtVerdict::Unasked, "\"nobody\"".to_owned())).collect();
    let judge = |verdicts: Vec<(Uuid, CtVerdict, String)>| {
        store.write("judge", move |tx| judge_ct_issuances(tx, verdicts).boxed())
    };
    let mut judged = judge(verdicts[..1].to_vec()).await.unwrap();
    assert_eq!(judged, [pending[0].0.id]);
    judged = judge(verdicts).await.unwrap();
    assert_eq!(judged, [pending[1].0.id], "the first has its verdict");
    assert!(ids.contains(&judged[0]));
    let unasked = CtFilter { domain: None, verdict: Some(CtVerdict::Unasked) };
    let rows = all(store, unasked.clone()).await;
    assert_eq!((rows.len(), rows[0].reason.as_str()), (2, "\"nobody\""));
    assert_eq!(judgeable(CtVerdict::Unasked, NOW + 10).await.len(), 2);
    // One turns out to be known, and stays so.
    let known = (rows[0].id, CtVerdict::Expected, "\"known\"".to_owned());
    assert_eq!(judge(vec![known]).await.unwrap(), [rows[0].id]);
    assert!(judge(vec![(rows[0].id, CtVerdict::Unasked, String::new())]).await.unwrap().is_empty());
    assert_eq!(all(store, unasked).await.len(), 1);
    assert_eq!(store.ct_issuances_trim(NOW + DAY, 10).await.unwrap(), 0);
    assert_eq!(store.ct_issuances_trim(NOW + DAY + 1, 10).await.unwrap(), 1);
    assert_eq!(all(store, CtFilter::default()).await.len(), 1);
    assert_eq!(store.ct_issuance_der(pending[0].0.id).await.unwrap(), None);
}

pub(crate) async fn two_who_find_the_same_at_once_store_it_once(world: World) {
    let store = &world.store;
    let tasks: Vec<_> = (0..16_u8)
        .map(|n| {
            let store = store.clone();
            let found =
                (0..20).map(|serial| issuance(serial, (n % 2 == 0).then_some(serial), "x", "a.example"));
            let found: Vec<_> = found.collect();
            tokio::spawn(async move { record(&store, found).await.len() })
        })
        .collect();
    let mut new = 0;
    for task in tasks {
        new += task.await.unwrap();
    }
    assert_eq!(new, 20);
    assert_eq!(all(store, CtFilter::default()).await.len(), 20);
}

pub(crate) async fn finding_costs_a_constant_number_of_statements(world: World) {
    let store = &world.store;
    let mut costs = Vec::new();
    for count in [1_u8, 200] {
        let found = (0..count).map(|n| issuance(n, Some(n), "log", "a.example")).collect();
        let before = store.statements_sent();
        record(store, found).await;
        costs.push(store.statements_sent() - before);
    }
    assert_eq!(costs[0], costs[1]);
    assert!(costs[0] <= 6, "{costs:?}");
}

pub(crate) async fn a_log_keeps_its_place_and_its_alarm(world: World) {
    let store = &world.store;
    let log = [5; 32];
    let step = |place: &'static str, behind| {
        store.write("step", move |tx| step_ct_log(tx, log, "Example 2026", place, behind, NOW).boxed())
    };
    let alarm = |text: &'static str, at| {
        store.write("alarm", move |tx| alarm_ct_log(tx, log, "Example 2026", text, at).boxed())
    };
    assert_eq!(store.ct_log(log).await.unwrap(), None);
    step("{\"next\":1}", 7).await.unwrap();
    store.write("fail", move |tx| fail_ct_log(tx, log, "no answer").boxed()).await.unwrap();
    alarm("\"forked\"", NOW + 5).await.unwrap();
    alarm("\"still forked\"", NOW + 9).await.unwrap();
    let row = store.ct_log(log).await.unwrap().unwrap();
    assert_eq!((row.place.as_str(), row.behind), ("{\"next\":1}", 7), "the place does not move past it");
    assert_eq!((row.alarm.as_deref(), row.alarmed_at_us), (Some("\"still forked\""), Some(NOW + 5)));
    assert_eq!(row.last_error.as_deref(), Some("no answer"));
    step("{\"next\":2}", 0).await.unwrap();
    let rows = store.ct_logs().await.unwrap();
    assert_eq!((rows.len(), &rows[0].alarm, &rows[0].last_error), (1, &None, &None));
    let delete = || store.write("delete", move |tx| delete_ct_log(tx, log).boxed());
    assert!(delete().await.unwrap() && !delete().await.unwrap());
}

pub(crate) async fn what_is_known_for_a_name_is_found(world: World) {
    let store = &world.store;
    let known = certificate("a.example", "CN=R3", NOW + 90 * DAY);
    let ended = certificate("a.example", "CN=Old", NOW - 90 * DAY);
    let other = certificate("b.example", "CN=R3", NOW + 90 * DAY);
    let rows: Vec<_> = [&known, &ended, &other].map(|one| (**one).clone()).to_vec();
    store
        .write("know", move |tx| async move { insert_known_certificates(tx, &rows, NOW).await }.boxed())
        .await
        .unwrap();
    let names = vec!["WWW.a.example".to_owned(), "a.example".to_owned(), "none.example".to_owned()];
    let found =
        store.write("known", move |tx| async move { ct_known(tx, &names, NOW).await }.boxed()).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0].der[..], found[0].issued, found[0].managed), (&known.der[..], false, false));
}
