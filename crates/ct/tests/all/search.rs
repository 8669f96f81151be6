//! Tests of search services, honest and misbehaving.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ct::Issuance;
use ct::search::{
    Dialect, SearchCursor, SearchError, SearchOptions, SearchOutcome, SearchQuery, SearchService, poll,
};
use fleet::ct::{CtAuthority, FakeSearchService, IssuedPair, SearchKind, Trouble};
use outbound::http::Client;
use outbound::rate::{Pace, Rate};
use outbound::resolve::Resolver;
use store::Clock;

/// A longer wait means that the test hangs.
const TIMEOUT: Duration = Duration::from_secs(180);

fn now() -> i64 {
    Clock::system().now_seconds()
}

fn service_with(
    fake: &FakeSearchService,
    dialect: Dialect,
    change: impl FnOnce(&mut SearchOptions),
) -> SearchService {
    let mut options = match dialect {
        Dialect::CertSpotter => SearchOptions::cert_spotter(None),
        Dialect::CrtSh => SearchOptions::crt_sh(),
    };
    options.url = fake.url();
    options.pace = Pace::default();
    change(&mut options);
    let client = Client::new(&Resolver::with_upstreams(Vec::new()), &outbound::http::Options::default());
    SearchService::new(options, client.unwrap(), Clock::system())
}

fn service(fake: &FakeSearchService, dialect: Dialect) -> SearchService {
    service_with(fake, dialect, |_| {})
}

async fn fake(kind: SearchKind, change: impl FnOnce(&mut fleet::ct::SearchOptions)) -> FakeSearchService {
    let mut options = fleet::ct::SearchOptions::new(kind);
    change(&mut options);
    FakeSearchService::start(&options).await.unwrap()
}

fn issue(authority: &CtAuthority, name: &str) -> IssuedPair {
    authority.issue(&[name], now(), 90).unwrap()
}

async fn collected(services: Vec<(Arc<SearchService>, Vec<SearchQuery>)>) -> Vec<SearchOutcome> {
    let (send, mut receive) = tokio::sync::mpsc::channel(4);
    let polling = tokio::spawn(poll(services, send));
    let mut all = Vec::new();
    while let Some(answer) = receive.recv().await {
        all.push(answer);
    }
    polling.await.unwrap();
    all
}

fn questions(cursors: &HashMap<String, SearchCursor>) -> Vec<SearchQuery> {
    cursors
        .iter()
        .map(|(domain, cursor)| SearchQuery { domain: domain.clone(), cursor: cursor.clone() })
        .collect()
}

#[tokio::test]
async fn search_queries_scale_with_domains_not_certificates() {
    let authority = CtAuthority::new(1).unwrap();
    let domains: Vec<String> = (0..20).map(|n| format!("estate-{n}.example")).collect();
    let pairs: Vec<IssuedPair> =
        (0..1_800).map(|n| issue(&authority, &format!("host-{n}.{}", domains[n % 20]))).collect();
    // Cert Spotter needs one more request for each domain: only an empty page ends the list.
    for (kind, dialect, first) in
        [(SearchKind::CertSpotter, Dialect::CertSpotter, 40), (SearchKind::CrtSh, Dialect::CrtSh, 20)]
    {
        let fake = fake(kind, |_| {}).await;
        fake.add(&pairs);
        let service = Arc::new(service(&fake, dialect));
        let mut cursors: HashMap<String, SearchCursor> =
            domains.iter().map(|domain| (domain.clone(), SearchCursor::default())).collect();
        let mut found = BTreeSet::new();
        for answer in collected(vec![(service.clone(), questions(&cursors))]).await {
            let page = answer.result.unwrap();
            found.extend(page.issuances.iter().map(|one| one.id.issuer_serial));
            // The cursor goes through the form in which it is stored.
            let row = serde_json::to_string(&page.cursor).unwrap();
            cursors.insert(answer.domain, serde_json::from_str(&row).unwrap());
        }
        let expected: BTreeSet<_> =
            pairs.iter().map(|pair| Issuance::from_der(&pair.certificate).id.issuer_serial).collect();
        assert_eq!(found, expected, "{kind:?}");
        assert_eq!(fake.counts().requests, first, "{kind:?}");
        let new = issue(&authority, "new.estate-7.example");
        fake.add(std::slice::from_ref(&new));
        let answers = collected(vec![(service, questions(&cursors))]).await;
        let fresh: Vec<_> = answers
            .iter()
            .flat_map(|answer| &answer.result.as_ref().unwrap().issuances)
            .filter(|one| !expected.contains(&one.id.issuer_serial))
            .map(|one| one.names.clone())
            .collect();
        assert_eq!(fresh, [new.names], "{kind:?}");
        let polls = fake.counts().requests - first;
        assert!(
            polls <= 21,
            "{polls} polls at {kind:?}: one a domain, and the end of the page with something"
        );
        let counts = fake.counts();
        assert!(counts.connections * 3 <= counts.requests, "connections are reused: {counts:?}");
    }
}

#[tokio::test]
async fn paged_search_resumes_from_its_cursor() {
    let authority = CtAuthority::new(1).unwrap();
    let fake = fake(SearchKind::CertSpotter, |options| options.page = 10).await;
    let pairs: Vec<_> = (0..35).map(|n| issue(&authority, &format!("h{n}.pages.example"))).collect();
    fake.add(&pairs);
    let (mut cursor, mut names, mut sizes) = (SearchCursor::default(), Vec::new(), Vec::new());
    loop {
        // Each page is read by a new process.
        let page =
            service(&fake, Dialect::CertSpotter).issuances_since("pages.example", &cursor).await.unwrap();
        sizes.push(page.issuances.len());
        names.extend(page.issuances.iter().map(|one| one.names[0].clone()));
        cursor = page.cursor;
        if !page.more {
            assert_eq!(page.poll_after, Duration::from_secs(3_600), "as the service says");
            break;
        }
    }
    assert_eq!(sizes, [10, 10, 10, 5, 0]);
    assert_eq!(names, pairs.iter().map(|pair| pair.names[0].clone()).collect::<Vec<_>>());
}

#[tokio::test]
async fn both_search_services_yield_the_same_issuance_id() {
    let pair = issue(&CtAuthority::new(1).unwrap(), "www.both.example");
    let mut ids = Vec::new();
    for (kind, dialect) in
        [(SearchKind::CertSpotter, Dialect::CertSpotter), (SearchKind::CrtSh, Dialect::CrtSh)]
    {
        let fake = fake(kind, |_| {}).await;
        fake.add(std::slice::from_ref(&pair));
        let service = service(&fake, dialect);
        let page = service.issuances_since("both.example", &SearchCursor::default()).await.unwrap();
        assert_eq!(page.issuances.len(), 1);
        assert_eq!(page.issuances[0].names, ["www.both.example"]);
        ids.push(page.issuances[0].id);
    }
    ids.push(Issuance::from_der(&pair.precertificate).id);
    ids.push(Issuance::from_der(&pair.certificate).id);
    assert!(ids.iter().all(|one| ids.iter().all(|other| one.is_same_issuance(other))), "{ids:?}");
    assert_eq!(ids[0].tbs, Some(pair.tbs_sha256()));
}

#[tokio::test]
async fn throttled_search_obeys_retry_after_and_learns_the_rate() {
    let fake = fake(SearchKind::CertSpotter, |_| {}).await;
    let service = service_with(&fake, Dialect::CertSpotter, |options| {
        options.pace = Pace { per_second: Some(Rate::per_second(100)), per_minute: None };
        options.wait_max = Duration::from_secs(1);
    });
    fake.trouble(&[Trouble::StatusRetry(429, 1_800)]);
    let cursor = SearchCursor::default();
    for _ in 0..2 {
        let error = service.issuances_since("a.example", &cursor).await.unwrap_err();
        assert!(matches!(error, SearchError::Throttled { .. }), "{error}");
        assert!(error.retry_after() > Duration::from_secs(1_790), "{error}");
    }
    assert_eq!(fake.counts().requests, 1, "it is not asked before");
    assert!(
        service.pacer_counts().learned_per_minute.is_some_and(|rate| rate < 6_000.0),
        "{:?}",
        service.pacer_counts()
    );
}

#[tokio::test]
async fn unknown_quota_is_learned_from_throttling() {
    let authority = CtAuthority::new(1).unwrap();
    // The service throttles these requests, however fast they come.
    const THROTTLED: u64 = 2;
    let fake = fake(SearchKind::CrtSh, |_| {}).await;
    let domains: Vec<String> = (0..24).map(|n| format!("quota-{n}.example")).collect();
    let pairs: Vec<_> = domains.iter().map(|domain| issue(&authority, domain)).collect();
    fake.add(&pairs);
    let service = Arc::new(service_with(&fake, Dialect::CrtSh, |options| {
        options.pace = Pace { per_second: Some(Rate::per_second(64).with_burst(4)), per_minute: None };
        options.in_flight = 16;
    }));
    let mut open: HashMap<String, SearchCursor> =
        domains.iter().map(|domain| (domain.clone(), SearchCursor::default())).collect();
    let throttled = [Trouble::StatusRetry(429, 1); THROTTLED as usize];
    // Late, so that the learned rate is high and the remaining requests wait for seconds only.
    fake.trouble(&[&[Trouble::Nothing; 20][..], &throttled].concat());
    let began = Instant::now();
    while !open.is_empty() {
        assert!(began.elapsed() < TIMEOUT, "{open:?}");
        for answer in collected(vec![(service.clone(), questions(&open))]).await {
            match answer.result {
                Ok(page) => {
                    assert_eq!(page.issuances.len(), 1);
                    open.remove(&answer.domain);
                }
                Err(error) => assert!(matches!(error, SearchError::Throttled { .. }), "{error}"),
            }
        }
    }
    let pacer_counts = service.pacer_counts();
    assert_eq!(pacer_counts.throttled, THROTTLED);
    // A request that was sent before the first throttling response is no second lesson.
    assert!((1..=THROTTLED).contains(&pacer_counts.adapted), "{pacer_counts:?}");
    assert!(pacer_counts.learned_per_minute.is_some_and(|rate| rate < 64.0 * 60.0), "{pacer_counts:?}");
}

#[tokio::test]
async fn empty_response_after_earlier_results_is_suspicious() {
    let authority = CtAuthority::new(1).unwrap();
    let fake = fake(SearchKind::CrtSh, |_| {}).await;
    fake.add(&[issue(&authority, "a.empty.example")]);
    let patient = |options: &mut SearchOptions| options.wait_max = Duration::from_secs(30);
    let service = service_with(&fake, Dialect::CrtSh, patient);
    let page = service.issuances_since("empty.example", &SearchCursor::default()).await.unwrap();
    fake.trouble(&[Trouble::Empty]);
    let error = service.issuances_since("empty.example", &page.cursor).await.unwrap_err();
    assert!(matches!(error, SearchError::SuspiciousEmpty { .. }), "{error}");
    assert!(error.retry_after() > Duration::ZERO);
    let second = service.issuances_since("empty.example", &page.cursor).await.unwrap();
    assert_eq!(second.issuances.len(), 1);
}

#[tokio::test]
async fn first_empty_response_is_doubtful_until_confirmed() {
    for (kind, dialect) in
        [(SearchKind::CertSpotter, Dialect::CertSpotter), (SearchKind::CrtSh, Dialect::CrtSh)]
    {
        let fake = fake(kind, |_| {}).await;
        let service = service(&fake, dialect);
        let mut cursor = SearchCursor::default();
        let mut doubts = Vec::new();
        for _ in 0..4 {
            let page = service.issuances_since("nothing.example", &cursor).await.unwrap();
            assert!(page.issuances.is_empty() && !page.more);
            doubts.push((page.doubtful, page.poll_after < Duration::from_secs(3_600)));
            cursor = page.cursor;
        }
        assert_eq!(doubts, [(true, true), (true, true), (false, false), (false, false)], "{kind:?}");
    }
}

#[tokio::test]
async fn search_failures_are_classified_and_the_retry_succeeds() {
    let authority = CtAuthority::new(1).unwrap();
    let fake = fake(SearchKind::CertSpotter, |_| {}).await;
    fake.add(&[issue(&authority, "a.half.example")]);
    for trouble in [Trouble::HalfPage, Trouble::HalfBody, Trouble::Status(502), Trouble::Hang] {
        let service = service_with(&fake, Dialect::CertSpotter, |options| {
            options.answer_limit = Duration::from_millis(500);
        });
        fake.trouble(&[trouble]);
        let error = service.issuances_since("half.example", &SearchCursor::default()).await.unwrap_err();
        assert!(matches!(error, SearchError::Failing { .. }), "{trouble:?}: {error}");
        assert!(error.retry_after() > Duration::ZERO, "{trouble:?}");
    }
    fake.trouble(&[Trouble::Status(403)]);
    let service = service(&fake, Dialect::CertSpotter);
    let error = service.issuances_since("half.example", &SearchCursor::default()).await.unwrap_err();
    assert!(matches!(error, SearchError::Refused { .. }), "{error}");
    let page = service.issuances_since("half.example", &SearchCursor::default()).await.unwrap();
    assert_eq!(page.issuances.len(), 1);
}

#[tokio::test]
async fn hanging_search_service_does_not_delay_the_others() {
    let authority = CtAuthority::new(1).unwrap();
    let (silent, healthy) = (fake(SearchKind::CrtSh, |_| {}).await, fake(SearchKind::CrtSh, |_| {}).await);
    healthy.add(&[issue(&authority, "a.one.example"), issue(&authority, "a.two.example")]);
    silent.trouble(&[Trouble::Hang; 2]);
    let with_queries = |fake: &FakeSearchService, name: &str| {
        let service = service_with(fake, Dialect::CrtSh, |options| options.name = name.to_owned());
        let question =
            |domain: &str| SearchQuery { domain: domain.to_owned(), cursor: SearchCursor::default() };
        (Arc::new(service), vec![question("one.example"), question("two.example")])
    };
    let (send, mut receive) = tokio::sync::mpsc::channel(4);
    let polling =
        tokio::spawn(poll(vec![with_queries(&silent, "silent"), with_queries(&healthy, "healthy")], send));
    for _ in 0..2 {
        let answer = receive.recv().await.unwrap();
        assert_eq!((answer.service.as_str(), answer.result.unwrap().issuances.len()), ("healthy", 1));
    }
    polling.abort();
    assert!(receive.recv().await.is_none(), "nobody is left who would answer");
}

#[tokio::test]
async fn wrong_api_token_is_refused_and_not_leaked() {
    let authority = CtAuthority::new(1).unwrap();
    let fake = fake(SearchKind::CertSpotter, |options| options.token = Some("right".to_owned())).await;
    fake.add(&[issue(&authority, "a.token.example")]);
    let cursor = SearchCursor::default();
    for (token, works) in [(Some("right"), true), (Some("not-this-one"), false), (None, false)] {
        let service =
            service_with(&fake, Dialect::CertSpotter, |options| options.token = token.map(str::to_owned));
        let page = service.issuances_since("token.example", &cursor).await;
        match page {
            Ok(page) => assert!(works && page.issuances.len() == 1),
            Err(error) => {
                assert!(!works && matches!(error, SearchError::Refused { .. }), "{error}");
                assert!(
                    !format!("{service:?} {error}").contains("not-this-one"),
                    "a token is not told: {service:?}"
                );
            }
        }
    }
}
