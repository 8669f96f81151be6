//! Tests of the tables of watched domains, positions in services and logs, and found issuances.

use ct::tables::{
    CtDomainInsertion, CtDomainSettings, CtFilter, CtLogStep, CtSearchRow, CtVerdict, NewCtIssuance,
    alarm_ct_log, ct_expected, ct_known, delete_ct_domain, delete_ct_log, fail_ct_log, insert_ct_domain,
    judge_ct_issuances, make_ct_searches_due, record_ct_issuances, seed_ct_searches, step_ct_log,
    store_ct_search, update_ct_domain,
};
use futures_util::FutureExt;
use store::{Store, insert_known_certificates};
use uuid::Uuid;

use testbed::tables::{DAY, NOW, World, certificate};
use testbed::walk;

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

async fn all(store: &Store, filter: CtFilter) -> Vec<ct::tables::CtIssuanceRow> {
    walk!(2, |after, size| ct::tables::Ct::of(store).issuances(&filter, after, size))
}

fn settings(services: &[&str]) -> CtDomainSettings {
    let services = services.iter().map(|name| (*name).to_owned()).collect();
    CtDomainSettings { rule: "{}".to_owned(), enabled: true, services }
}

async fn watch(store: &Store, name: &'static str, services: &[&str]) -> CtDomainInsertion {
    let settings = settings(services);
    store
        .write("watch", move |tx| {
            let settings = settings.clone();
            async move { insert_ct_domain(tx, name, &settings, NOW).await }.boxed()
        })
        .await
        .unwrap()
}

async fn seed(store: &Store, service: &'static str, domain: Option<&'static str>) -> u64 {
    store.write("seed", move |tx| seed_ct_searches(tx, service, domain, NOW).boxed()).await.unwrap()
}

async fn claim(store: &Store, service: &str, holder: Uuid, now: i64, limit: usize) -> Vec<CtSearchRow> {
    ct::tables::Ct::of(store).claim_searches(service, holder, now, now + 60, limit).await.unwrap()
}

fn domains(rows: &[CtSearchRow]) -> Vec<&str> {
    let mut all: Vec<_> = rows.iter().map(|row| row.domain.as_str()).collect();
    all.sort_unstable();
    all
}

async fn leave(store: &Store, holder: Uuid, left: CtSearchRow) -> bool {
    store
        .write("leave", move |tx| {
            let left = left.clone();
            async move { store_ct_search(tx, holder, &left).await }.boxed()
        })
        .await
        .unwrap()
}

pub(crate) async fn watched_domains_are_added_listed_and_updated(world: World) {
    let store = &world.store;
    for name in ["b.example", "a.example", "c.example"] {
        assert_eq!(watch(store, name, &["crt.sh"]).await, CtDomainInsertion::Made);
    }
    assert_eq!(watch(store, "a.example", &[]).await, CtDomainInsertion::Exists);
    let rows = walk!(2, |after, size| ct::tables::Ct::of(store).domains(after, size));
    let names: Vec<_> = rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["a.example", "b.example", "c.example"]);
    assert_eq!((rows[0].enabled, &rows[0].services[..]), (true, &["crt.sh".to_owned()][..]));
    let before = ct::tables::Ct::of(store).domains_stamp().await.unwrap();
    let change = |revision| {
        let to = CtDomainSettings { enabled: false, ..settings(&["other"]) };
        store.write("rule", move |tx| {
            let to = to.clone();
            async move { update_ct_domain(tx, "b.example", &to, NOW, revision).await }.boxed()
        })
    };
    assert_eq!(seed(store, "crt.sh", None).await, 3);
    assert!(change(1).await.unwrap());
    assert!(!change(1).await.unwrap(), "it was changed by another request");
    assert_ne!(ct::tables::Ct::of(store).domains_stamp().await.unwrap(), before);
    let row = ct::tables::Ct::of(store).domain("b.example").await.unwrap().unwrap();
    assert_eq!((row.revision, row.enabled), (2, false));
    assert!(
        ct::tables::Ct::of(store).searches_of("b.example").await.unwrap().is_empty(),
        "that service watches it no more"
    );
    let delete = || store.write("delete", |tx| delete_ct_domain(tx, "a.example").boxed());
    assert!(delete().await.unwrap() && !delete().await.unwrap());
    assert!(ct::tables::Ct::of(store).searches_of("a.example").await.unwrap().is_empty());
}

pub(crate) async fn due_search_is_claimed_by_one_node(world: World) {
    let store = &world.store;
    for name in ["a.example", "b.example", "c.example"] {
        watch(store, name, &[]).await;
    }
    watch(store, "d.example", &["certspotter", "logs"]).await;
    assert_eq!(seed(store, "crt.sh", Some("a.example")).await, 1);
    assert_eq!((seed(store, "crt.sh", None).await, seed(store, "crt.sh", None).await), (2, 0));
    assert_eq!(seed(store, "certspotter", None).await, 4);
    let (one, other) = (Uuid::now_v7(), Uuid::now_v7());
    let first = claim(store, "crt.sh", one, NOW, 2).await;
    assert_eq!(domains(&first), ["a.example", "b.example"]);
    assert_eq!(domains(&claim(store, "crt.sh", other, NOW, 9).await), ["c.example"]);
    let a = first.iter().find(|row| row.domain == "a.example").unwrap().clone();
    assert_eq!((a.cursor.as_str(), a.failures, a.baseline_at_us), ("{}", 0, None));
    // A page with more results to come keeps the claim. The last page ends it.
    let page = CtSearchRow { cursor: "{\"after\":\"1\"}".to_owned(), ..a.clone() };
    assert!(leave(store, one, page.clone()).await && !leave(store, other, page.clone()).await);
    assert!(claim(store, "crt.sh", other, NOW, 9).await.is_empty());
    let last = CtSearchRow {
        due_at_us: NOW + 1_000,
        answered_at_us: Some(NOW),
        baseline_at_us: Some(NOW),
        holder: None,
        until_us: None,
        ..page
    };
    assert!(leave(store, one, last.clone()).await);
    assert!(!leave(store, one, last).await, "it is nobody's");
    // Leases are renewed, and are lost to another holder after they expire.
    let key = |domain: &str| ("crt.sh".to_owned(), domain.to_owned());
    let claimed = [key("a.example"), key("b.example")];
    assert_eq!(
        ct::tables::Ct::of(store).renew_searches(one, &claimed, NOW + 100).await.unwrap(),
        [key("b.example")]
    );
    assert_eq!(domains(&claim(store, "crt.sh", other, NOW + 61, 9).await), ["c.example"]);
    assert_eq!(domains(&claim(store, "crt.sh", other, NOW + 101, 9).await), ["b.example"]);
    ct::tables::Ct::of(store).release_searches(other).await.unwrap();
    let reclaimed = claim(store, "crt.sh", one, NOW + 102, 1).await;
    let failed = CtSearchRow {
        failures: 2,
        last_error: Some("no\0 answer".to_owned()),
        failing_since_us: Some(NOW + 7),
        holder: None,
        ..reclaimed[0].clone()
    };
    assert!(leave(store, one, failed).await);
    let services = ct::tables::Ct::of(store).services().await.unwrap();
    let listed: Vec<_> = services
        .iter()
        .map(|row| (row.service.as_str(), row.domains, row.failing, row.failing_since_us))
        .collect();
    assert_eq!(listed, [("certspotter", 4, 0, None), ("crt.sh", 3, 1, Some(NOW + 7))]);
    // First a domain that is wanted now, then a paused one.
    let want = |domain: &'static str, at| {
        store.write("want", move |tx| make_ct_searches_due(tx, domain, at).boxed())
    };
    assert_eq!(want("a.example", NOW + 200).await.unwrap(), 2);
    let rows = walk!(3, |after, size| ct::tables::Ct::of(store).searches(after, size));
    let listed: Vec<_> = rows.iter().map(|row| (row.domain.as_str(), row.service.as_str())).collect();
    assert_eq!(listed.len(), 7);
    assert!(listed.is_sorted(), "{listed:?}");
    let paused = CtDomainSettings { enabled: false, ..settings(&[]) };
    store
        .write("pause", move |tx| {
            let paused = paused.clone();
            async move { update_ct_domain(tx, "a.example", &paused, NOW, 1).await }.boxed()
        })
        .await
        .unwrap();
    let due = claim(store, "crt.sh", one, NOW + 300, 9).await;
    assert!(!domains(&due).contains(&"a.example"), "{due:?}");
}

pub(crate) async fn expected_verdict_applies_to_the_names_of_the_issuance(world: World) {
    let store = &world.store;
    let found = [1, 2].map(|n| issuance(n, Some(n), "log", "a.example")).to_vec();
    let ids = record(store, found).await;
    let first = ids[0];
    let judge = |verdict| {
        store.write("judge", move |tx| {
            judge_ct_issuances(tx, vec![(first, verdict, "\"x\"".to_owned())]).boxed()
        })
    };
    assert_eq!(judge(CtVerdict::Unasked).await.unwrap(), [first]);
    let expected = |name: &'static str, ended| {
        store.write("expected", move |tx| {
            async move { ct_expected(tx, &[name.to_owned()], ended).await }.boxed()
        })
    };
    let name = ct::tables::Ct::of(store).issuance(first).await.unwrap().unwrap().names[0].clone();
    let name: &'static str = name.leak();
    assert!(expected(name, 0).await.unwrap().is_empty());
    assert_eq!(judge(CtVerdict::Acknowledged).await.unwrap(), [first]);
    assert!(judge(CtVerdict::Acknowledged).await.unwrap().is_empty(), "seen to already");
    assert!(expected(name, 0).await.unwrap().is_empty(), "seen to is not expected");
    assert_eq!(judge(CtVerdict::Expected).await.unwrap(), [first]);
    let rows = expected(name, NOW).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), [first]);
    assert!(expected(name, NOW + 400 * DAY).await.unwrap().is_empty(), "it has ended");
    let since = CtFilter { found_from_us: Some(NOW + 2), ..CtFilter::default() };
    assert_eq!(all(store, since).await.len(), 1);
    assert!(ct::tables::Ct::of(store).issuances_trim(NOW + 400 * DAY, 10).await.unwrap() == 2);
    assert!(expected(name, NOW).await.unwrap().is_empty());
}

pub(crate) async fn issuance_from_several_sources_is_stored_once(world: World) {
    let store = &world.store;
    // A sighting by a service without hashes, then one by a log, repeated in the same batch and in a later one.
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
    // A serial number that a CA uses twice does not hide the second certificate.
    assert_eq!(record(store, vec![issuance(3, Some(9), "log", "b.example")]).await.len(), 1);
    // The same hash under another issuer name is the same issuance.
    let other = NewCtIssuance { issuer_serial: [77; 32], ..issuance(3, Some(9), "log", "c.example") };
    assert!(record(store, vec![other]).await.is_empty());

    let rows = all(store, CtFilter::default()).await;
    let listed: Vec<_> = rows.iter().map(|row| (row.issuer_serial[0], row.tbs.map(|tbs| tbs[0]))).collect();
    assert_eq!(listed[0], (3, Some(9)), "the newest first");
    assert_eq!(listed[3], (1, Some(1)), "it has learned its hash");
    assert_eq!(listed.len(), 4);
    let one = &rows[3];
    assert_eq!((one.id, one.source.as_str(), one.spki_sha256), (first[0], "crt.sh", Some([1; 32])));
    assert_eq!(one.names, ["host-1.a.example", "nul\u{fffd}.example"]);
    assert_eq!(ct::tables::Ct::of(store).issuance_der(one.id).await.unwrap(), Some(vec![1; 10]));
    assert_eq!(ct::tables::Ct::of(store).issuance_domains(one.id).await.unwrap(), ["a.example", "b.example"]);
    let of = |domain: &str| CtFilter { domain: Some(domain.to_owned()), ..CtFilter::default() };
    let serials = |rows: Vec<ct::tables::CtIssuanceRow>| {
        rows.iter().map(|row| row.issuer_serial[0]).collect::<Vec<_>>()
    };
    assert_eq!(serials(all(store, of("a.example")).await), [2, 1]);
    assert_eq!(serials(all(store, of("b.example")).await), [3, 3, 1]);
    assert_eq!(serials(all(store, of("c.example")).await), [3]);
    assert_eq!(ct::tables::Ct::of(store).issuance(one.id).await.unwrap().as_ref(), Some(one));
}

pub(crate) async fn verdicts_are_given_once_and_expired_issuances_deleted(world: World) {
    let store = &world.store;
    watch(store, "a.example", &[]).await;
    let found = vec![issuance(1, Some(1), "log", "a.example"), issuance(2, Some(2), "log", "gone.example")];
    let ids = record(store, found).await;
    let judgeable = |verdict, until| async move {
        walk!(1, |after, size| ct::tables::Ct::of(store).judgeable_issuances(
            verdict,
            NOW..=until,
            after,
            size
        ))
    };
    assert!(judgeable(CtVerdict::Pending, NOW).await.is_empty(), "found later");
    let pending = judgeable(CtVerdict::Pending, NOW + 10).await;
    let listed: Vec<_> =
        pending.iter().map(|(row, domain)| (row.issuer_serial[0], domain.as_deref())).collect();
    assert_eq!(listed, [(1, Some("a.example")), (2, None)], "one domain is not watched");
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
    let unasked = CtFilter { verdict: Some(CtVerdict::Unasked), ..CtFilter::default() };
    let rows = all(store, unasked.clone()).await;
    assert_eq!((rows.len(), rows[0].reason.as_str()), (2, "\"nobody\""));
    assert_eq!(judgeable(CtVerdict::Unasked, NOW + 10).await.len(), 2);
    // One issuance is found to be known, and stays known.
    let known = (rows[0].id, CtVerdict::Expected, "\"known\"".to_owned());
    assert_eq!(judge(vec![known]).await.unwrap(), [rows[0].id]);
    assert!(judge(vec![(rows[0].id, CtVerdict::Unasked, String::new())]).await.unwrap().is_empty());
    assert_eq!(all(store, unasked).await.len(), 1);
    assert_eq!(ct::tables::Ct::of(store).issuances_trim(NOW + DAY, 10).await.unwrap(), 0);
    assert_eq!(ct::tables::Ct::of(store).issuances_trim(NOW + DAY + 1, 10).await.unwrap(), 1);
    assert_eq!(all(store, CtFilter::default()).await.len(), 1);
    assert_eq!(ct::tables::Ct::of(store).issuance_der(pending[0].0.id).await.unwrap(), None);
}

pub(crate) async fn concurrent_recording_of_the_same_issuances_stores_each_once(world: World) {
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

pub(crate) async fn recording_statement_count_is_independent_of_the_number_of_issuances(world: World) {
    let store = &world.store;
    let mut costs = Vec::new();
    for count in [1_u8, 200] {
        let found = (0..count).map(|n| issuance(n, Some(n), "log", "a.example")).collect();
        let before = store.statements_sent();
        record(store, found).await;
        costs.push(store.statements_sent() - before);
    }
    assert_eq!(costs[0], costs[1]);
    assert!(costs[0] <= 7, "{costs:?}");
}

pub(crate) async fn ct_log_position_and_alarm_state_are_stored(world: World) {
    let store = &world.store;
    let log = [5; 32];
    let step = |from: &'static str, position: &'static str, behind| {
        let step = CtLogStep {
            log_id: log,
            name: "Example 2026".to_owned(),
            from: from.to_owned(),
            position: position.to_owned(),
            behind,
            behind_since_us: None,
            warning: None,
            failing_since_us: None,
            at_us: NOW,
        };
        store.write("step", move |tx| {
            let step = step.clone();
            async move { step_ct_log(tx, &step).await }.boxed()
        })
    };
    let fail =
        |at| store.write("fail", move |tx| fail_ct_log(tx, log, "Example 2026", "no answer", at).boxed());
    let alarm = |text: &'static str, at| {
        store.write("alarm", move |tx| alarm_ct_log(tx, log, "Example 2026", text, at).boxed())
    };
    assert_eq!(ct::tables::Ct::of(store).log(log).await.unwrap(), None);
    fail(NOW).await.unwrap();
    assert_eq!(ct::tables::Ct::of(store).log(log).await.unwrap().unwrap().position, "", "it was never read");
    assert!(step("", "{\"next\":1}", 7).await.unwrap());
    assert!(!step("", "{\"next\":9}", 0).await.unwrap(), "somebody was faster");
    fail(NOW + 3).await.unwrap();
    fail(NOW + 4).await.unwrap();
    alarm("\"forked\"", NOW + 5).await.unwrap();
    alarm("\"still forked\"", NOW + 9).await.unwrap();
    let row = ct::tables::Ct::of(store).log(log).await.unwrap().unwrap();
    assert_eq!((row.position.as_str(), row.behind), ("{\"next\":1}", 7), "the place does not move past it");
    assert_eq!((row.alarm.as_deref(), row.alarmed_at_us), (Some("\"still forked\""), Some(NOW + 5)));
    assert_eq!((row.last_error.as_deref(), row.failing_since_us), (Some("no answer"), Some(NOW + 3)));
    assert!(step("{\"next\":1}", "{\"next\":2}", 0).await.unwrap());
    let rows = ct::tables::Ct::of(store).logs().await.unwrap();
    assert_eq!((rows.len(), &rows[0].alarm, &rows[0].last_error), (1, &None, &None));
    let delete = || store.write("delete", move |tx| delete_ct_log(tx, log).boxed());
    assert!(delete().await.unwrap() && !delete().await.unwrap());
}

pub(crate) async fn known_certificates_are_found_by_name(world: World) {
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
