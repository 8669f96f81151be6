//! Tests of the monitor's verdicts and of its reports about services that are behind. Uses a database and a manual clock.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ct::ledger::{ReportedIssuance, record, set_verdict};
use ct::monitor::{LogLists, NewDomain, Review};
use ct::search::{SearchOptions, SearchService};
use ct::tables::{CtFilter, CtSearchRow, store_ct_search};
use ct::{DomainSet, Issuance, ListSigner, Monitor, MonitorError, MonitorOptions, Verdict};
use fleet::ct::{CtAuthority, IssuedPair};
use fleet::revocation::{Document, RevocationServer};
use futures_util::FutureExt;
use outbound::http::{Client, Options};
use outbound::resolve::Resolver;
use serde_json::json;
use store::{Clock, OutboxPosition, Store, StoreUrl};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use x509::PublicKey;

const DAY: i64 = x509::DAY;
const DOMAIN: &str = "ours.example";

struct World {
    store: Store,
    clock: Clock,
    monitor: Monitor,
    _folder: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        Self::with(LogLists::default()).await
    }

    async fn with(lists: LogLists) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&StoreUrl::sqlite(folder.path().join("ct.db"))).await.unwrap();
        let clock = Clock::manual(Clock::system().now_us());
        let http = Client::new(&Resolver::with_upstreams(Vec::new()), &Options::default()).unwrap();
        let service = SearchService::new(SearchOptions::crt_sh(), http.clone(), clock.clone());
        let options = MonitorOptions::default();
        let (database, time) = (store.clone(), clock.clone());
        let monitor = Monitor::new(database, time, vec![service], http, lists, options);
        let world = Self { store, clock, monitor, _folder: folder };
        let new = NewDomain { name: DOMAIN.to_owned(), enabled: true, ..NewDomain::default() };
        world.monitor.watch(&new, "test").await.unwrap();
        world
    }

    fn now(&self) -> i64 {
        self.clock.now_seconds()
    }

    async fn find(&self, pair: &IssuedPair) -> Uuid {
        let domains = DomainSet::compile([DOMAIN], 3).unwrap();
        let found = ReportedIssuance::from_search_result(
            Issuance::from_der(&pair.certificate),
            DOMAIN,
            &domains,
            "test",
        );
        let now_us = self.clock.now_us();
        let new = self.store.write("found", move |tx| record(tx, vec![found], now_us).boxed());
        new.await.unwrap()[0]
    }

    /// Returns the kinds of the events about `subject`, in order.
    async fn event_kinds(&self, subject: &str) -> Vec<String> {
        let all = self.store.outbox_after(OutboxPosition::default(), 1_000).await.unwrap();
        all.into_iter().filter(|event| event.subject == subject).map(|event| event.kind).collect()
    }

    async fn verdict(&self, id: Uuid) -> &'static str {
        let (row, ..) = self.monitor.issuance(id).await.unwrap();
        row.verdict.name()
    }
}

#[tokio::test]
async fn verdict_waits_for_grace_time_and_clears_when_domain_is_unwatched() {
    let world = World::new().await;
    let authority = CtAuthority::new(1).unwrap();
    let id = world.find(&authority.issue(&["a.ours.example"], world.now(), 90).unwrap()).await;
    let subject = format!("ct-issuance/{id}");
    world.monitor.run_single_round().await.unwrap();
    assert_eq!(world.verdict(id).await, "pending");
    world.clock.advance(Duration::from_secs(901));
    world.monitor.run_single_round().await.unwrap();
    world.monitor.run_single_round().await.unwrap();
    assert_eq!(world.event_kinds(&subject).await, ["ct.unexpected_issuance"], "once");
    let row = world.monitor.domain(DOMAIN).await.unwrap();
    world.monitor.unwatch(&row, "test").await.unwrap();
    world.monitor.run_single_round().await.unwrap();
    assert_eq!(world.event_kinds(&subject).await, ["ct.unexpected_issuance", "ct.issuance_expected"]);
    assert_eq!(world.verdict(id).await, "expected");
}

#[tokio::test]
async fn renewals_are_expected_after_expected_but_not_acknowledged_ones() {
    let world = World::new().await;
    let authority = CtAuthority::new(1).unwrap();
    let day = |days: i64| world.now() + days * DAY;
    let issue = |name: &str, days| authority.issue(&[name], day(days), 90).unwrap();
    let baseline = world.find(&issue("there.ours.example", -60)).await;
    let settled = world.store.write("settle", move |tx| {
        async move { set_verdict(tx, &[baseline], &Verdict::Baseline).await }.boxed()
    });
    assert_eq!(settled.await.unwrap(), [baseline]);
    let bought = world.find(&issue("bought.ours.example", -60)).await;
    let bad = world.find(&issue("bad.ours.example", -60)).await;
    world.clock.advance(Duration::from_secs(901));
    world.monitor.run_single_round().await.unwrap();
    world.monitor.decide(bought, Review::Expected, "the shop's", "test").await.unwrap();
    world.monitor.decide(bad, Review::Acknowledged, "revoked", "test").await.unwrap();
    let repeat = world.monitor.decide(bad, Review::Acknowledged, "revoked", "test").await;
    assert!(matches!(repeat, Err(MonitorError::Decided)), "{repeat:?}");
    let mut renewals = Vec::new();
    for name in ["there", "bought", "bad"] {
        renewals.push(world.find(&issue(&format!("{name}.ours.example"), 0)).await);
    }
    let early = world.find(&issue("there.ours.example", -59)).await;
    world.clock.advance(Duration::from_secs(901));
    world.monitor.run_single_round().await.unwrap();
    let mut verdicts = Vec::new();
    for id in renewals {
        verdicts.push(world.verdict(id).await);
    }
    assert_eq!(verdicts, ["expected", "expected", "unexpected"]);
    assert_eq!(world.verdict(early).await, "unexpected", "nothing was near its end");
    assert_eq!(world.verdict(bad).await, "acknowledged");
    // A renewal speaks for the next one, long after the first has ended.
    world.clock.advance(Duration::from_secs(70 * 86_400));
    let next = world.find(&issue("there.ours.example", 0)).await;
    world.clock.advance(Duration::from_secs(901));
    world.monitor.run_single_round().await.unwrap();
    assert_eq!(world.verdict(next).await, "expected");
    let all = world.monitor.issuances(&CtFilter::default(), None, 100).await.unwrap();
    assert_eq!(all.rows.len(), 8);
}

#[tokio::test]
async fn failing_search_service_is_reported_behind_and_later_caught_up() {
    let world = World::new().await;
    let node = Uuid::now_v7();
    let claim = async || {
        let now = world.clock.now_us();
        let rows = ct::tables::Ct::of(&world.store)
            .claim_searches("crt.sh", node, now, now + 60_000_000, 1)
            .await
            .unwrap();
        rows[0].clone()
    };
    let leave = async |left: CtSearchRow| {
        let left = CtSearchRow { holder: None, until_us: None, ..left };
        let stored = world
            .store
            .write("leave", move |tx| async move { store_ct_search(tx, node, &left).await }.boxed());
        assert!(stored.await.unwrap());
    };
    let subject = "ct-service/crt.sh";
    let began = world.clock.now_us();
    let failed = CtSearchRow { failures: 1, failing_since_us: Some(began), ..claim().await };
    leave(CtSearchRow { due_at_us: began + 60_000_000, ..failed }).await;
    world.monitor.run_single_round().await.unwrap();
    assert_eq!(world.event_kinds(subject).await, ["ct.caught_up"], "nothing is wrong yet");
    world.clock.advance(Duration::from_secs(6 * 3_600));
    world.monitor.run_single_round().await.unwrap();
    assert_eq!(world.event_kinds(subject).await.last().map(String::as_str), Some("ct.behind"));
    assert!(world.monitor.figures().services[0].1.lag_s >= 21_600.0);
    let answered = CtSearchRow { failures: 0, failing_since_us: None, ..claim().await };
    leave(CtSearchRow { due_at_us: world.clock.now_us() + 1, ..answered }).await;
    world.monitor.run_single_round().await.unwrap();
    assert_eq!(world.event_kinds(subject).await.last().map(String::as_str), Some("ct.caught_up"));
}

/// A P-256 key that is used nowhere else: the key of the log in the list below. The log ID is its SHA-256.
const LOG_KEY: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEIoHdG+4XA8Eu4lDYqG5zaJGue66N1+AfRuau0wMemlONCkuwaPAFjOHMyOXWqn9\
    Oor28ApHz1R57hiX9BUSQ+Q==";

fn openssl(folder: &std::path::Path, arguments: &str) -> Vec<u8> {
    let ran = std::process::Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output();
    let ran = ran.expect("openssl is needed: apt-get install -y openssl");
    assert!(ran.status.success(), "{arguments}: {}", String::from_utf8_lossy(&ran.stderr));
    ran.stdout
}

/// A list that must be signed is rejected without its signature, or with the signature of another list. It is fetched again until
/// its signature is valid.
#[tokio::test]
async fn log_list_is_rejected_without_its_valid_signature() {
    let folder = tempfile::tempdir().unwrap();
    let server = RevocationServer::start(Duration::ZERO).await.unwrap();
    let id = STANDARD.encode(sha256(&STANDARD.decode(LOG_KEY).unwrap()));
    let list = json!({"operators": [{"name": "Example", "tiled_logs": [{"description": "signed", "log_id": id, "key": LOG_KEY,
        "submission_url": "https://log.example/1/", "monitoring_url": server.url("/log/"), "mmd": 60,
        "state": {"usable": {"timestamp": "2025-10-01T00:00:00Z"}}}]}]});
    std::fs::write(folder.path().join("list.json"), list.to_string()).unwrap();
    std::fs::write(folder.path().join("other.json"), "{}").unwrap();
    openssl(folder.path(), "genpkey -quiet -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out key.pem");
    let key = openssl(folder.path(), "pkey -in key.pem -pubout -outform DER");
    let sign = |file: &str| openssl(folder.path(), &format!("dgst -sha256 -sign key.pem {file}"));
    let put = |path: &str, body: Vec<u8>| server.put(path, Document { body, ..Document::default() });
    put("/log_list.json", list.to_string().into_bytes());
    put("/log_list.sig", sign("other.json"));
    let lists = LogLists {
        urls: vec![server.url("/log_list.json")],
        files: Vec::new(),
        signers: vec![ListSigner::new(&server.url("/"), PublicKey::parse(&key).unwrap())],
    };
    let world = World::with(lists).await;
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (monitor, stop) = (world.monitor.clone(), stop.clone());
        async move { monitor.run(stop).await }
    });
    // The second fetch starts after the first response was rejected. A fetch in progress is dropped when its time passes. The pause
    // therefore doubles, so that slow machines finish a fetch in it.
    let pause = std::cell::Cell::new(Duration::from_millis(20));
    let repeat = async || {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(600)).await;
        tokio::time::resume();
        tokio::time::sleep(pause.get()).await;
        pause.set((pause.get() * 2).min(Duration::from_secs(5)));
    };
    while server.asked("/log_list.sig") < 2 {
        repeat().await;
    }
    assert!(world.monitor.figures().logs.is_empty(), "nothing is followed");
    put("/log_list.sig", sign("list.json"));
    while world.monitor.figures().logs.is_empty() {
        repeat().await;
    }
    assert_eq!(world.monitor.figures().logs[0].0, "signed");
    stop.cancel();
    running.await.unwrap();
    server.stop().await;
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    *x509::Fingerprint::of(bytes).as_bytes()
}
