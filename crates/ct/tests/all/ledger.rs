//! Tests of the path from a log and a search service to a verdict, through the database.

use std::time::Duration;

use ct::follow::{FollowError, FollowOptions, Follower, LogPosition, StartPosition};
use ct::ledger::{GRACE, Judged, ReportedIssuance, judge_issuances, record};
use ct::tables::{
    CtDomainSettings, CtFilter, CtLogStep, CtVerdict, alarm_ct_log, insert_ct_domain, step_ct_log,
};
use ct::{DomainSet, Issuance, IssuerRule, KnownAs, LogKey, Unasked, Verdict};
use fleet::ct::{CtAuthority, CtLog, CtLogOptions, IssuedPair};
use futures_util::FutureExt;
use outbound::http::Client;
use outbound::rate::Pace;
use outbound::resolve::Resolver;
use store::{NewCertificate, Store, StoreUrl, insert_known_certificates};

const DAY: i64 = x509::DAY;

struct World {
    store: Store,
    now: i64,
    domains: DomainSet,
    _folder: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&StoreUrl::sqlite(folder.path().join("ct.db"))).await.unwrap();
        let now = store::Clock::system().now_seconds();
        let domains = DomainSet::compile(["ours.example"], 3).unwrap();
        let settings = CtDomainSettings { rule: "{}".to_owned(), enabled: true, services: Vec::new() };
        store
            .write("watch", move |tx| {
                async move { insert_ct_domain(tx, "ours.example", &settings, 0).await.map(drop) }.boxed()
            })
            .await
            .unwrap();
        Self { store, now, domains, _folder: folder }
    }

    fn now_us(&self) -> i64 {
        self.now * 1_000_000
    }

    async fn find(&self, pairs: &[&IssuedPair]) -> usize {
        let found = pairs
            .iter()
            .flat_map(|pair| {
                let of = |der| {
                    ReportedIssuance::from_search_result(
                        Issuance::from_der(der),
                        "ours.example",
                        &self.domains,
                        "test",
                    )
                };
                [of(&pair.precertificate), of(&pair.certificate)]
            })
            .collect();
        let now = self.now_us();
        self.store.write("found", move |tx| record(tx, found, now).boxed()).await.unwrap().len()
    }

    async fn know(&self, pair: &IssuedPair) {
        let certificate = x509::Certificate::parse(&pair.certificate).unwrap();
        let new = NewCertificate {
            sha256: *certificate.fingerprint.as_bytes(),
            der: certificate.der.clone(),
            subject: certificate.subject.text.clone(),
            issuer: certificate.issuer.text.clone(),
            serial: certificate.serial.to_string(),
            not_before_us: pair.not_before * 1_000_000,
            not_after_us: pair.not_after * 1_000_000,
            key_algorithm: "EC P-256".to_owned(),
            key_bits: 256,
            spki_sha256: pair.spki_sha256,
            names: pair.names.clone(),
        };
        self.store
            .write("know", move |tx| async move { insert_known_certificates(tx, &[new], 0).await }.boxed())
            .await
            .unwrap();
    }

    /// Judges the pending issuances `after` the given time.
    async fn judge(&self, after: Duration) -> Vec<Judged> {
        self.judge_range(CtVerdict::Pending, after).await
    }

    async fn judge_range(&self, verdict: CtVerdict, after: Duration) -> Vec<Judged> {
        let before = self.now_us() + after.as_micros() as i64 - GRACE.as_micros() as i64;
        let page = ct::tables::Ct::of(&self.store)
            .judgeable_issuances(verdict, 0..=before, None, 100)
            .await
            .unwrap();
        let pending = page.rows;
        self.store
            .write("judge", move |tx| judge_issuances(tx, pending, |_| IssuerRule::default()).boxed())
            .await
            .unwrap()
    }
}

#[tokio::test]
async fn renewal_is_expected_and_unrelated_issuance_is_not() {
    let world = World::new().await;
    let (ours, other) = (CtAuthority::new(1).unwrap(), CtAuthority::new(2).unwrap());
    let name = &["www.ours.example"];
    let old = ours.issue(name, world.now - 60 * DAY, 90).unwrap();
    world.know(&old).await;
    let renewed = ours.issue(name, world.now, 90).unwrap();
    let foreign = other.issue(name, world.now, 90).unwrap();
    let strange = ours.issue(&["login.ours.example"], world.now, 90).unwrap();
    let all = [&old, &renewed, &foreign, &strange];
    assert_eq!(world.find(&all).await, 4, "precertificate and certificate are one issuance");
    assert_eq!(world.find(&all).await, 0, "however often it is told");
    assert!(world.judge(Duration::ZERO).await.is_empty(), "not before the grace time is over");
    let judged = world.judge(GRACE).await;
    let of = |pair: &IssuedPair| {
        let serial: x509::SerialNumber = pair.serial.parse().unwrap();
        let found = judged.iter().find(|one| one.issuance.serial == serial.to_string()).unwrap();
        found.verdict.clone()
    };
    assert_eq!(of(&old), Verdict::Known(KnownAs::Inventory));
    assert!(matches!(of(&renewed), Verdict::Renewal { same_key: false, .. }));
    assert_eq!(of(&foreign), Verdict::Unasked(vec![Unasked::IssuerNotAllowed]));
    assert!(of(&strange).raises_alert());
    let unasked = CtFilter {
        domain: Some("ours.example".to_owned()),
        verdict: Some(CtVerdict::Unasked),
        found_from_us: None,
    };
    let listed = ct::tables::Ct::of(&world.store).issuances(&unasked, None, 10).await.unwrap();
    assert_eq!(listed.rows.len(), 2);
    assert!(world.judge(GRACE).await.is_empty(), "judged once");
    let evidence = ct::tables::Ct::of(&world.store).issuance_der(listed.rows[0].id).await.unwrap().unwrap();
    assert!([strange.precertificate, strange.certificate].contains(&evidence));
}

#[tokio::test]
async fn unexpected_issuance_becomes_known_after_an_inventory_scan() {
    let world = World::new().await;
    let pair = CtAuthority::new(1).unwrap().issue(&["new.ours.example"], world.now, 90).unwrap();
    world.find(&[&pair]).await;
    assert!(world.judge(GRACE).await[0].verdict.raises_alert());
    assert!(world.judge_range(CtVerdict::Unasked, GRACE).await.is_empty(), "nothing has changed");
    world.know(&pair).await;
    let judged = world.judge_range(CtVerdict::Unasked, GRACE).await;
    assert_eq!(judged[0].verdict, Verdict::Known(KnownAs::Inventory));
    assert!(world.judge_range(CtVerdict::Unasked, GRACE).await.is_empty());
}

#[tokio::test]
async fn issuance_in_the_inventory_is_known_before_its_verdict() {
    let world = World::new().await;
    let pair = CtAuthority::new(1).unwrap().issue(&["new.ours.example"], world.now, 90).unwrap();
    world.find(&[&pair]).await;
    world.know(&pair).await;
    let judged = world.judge(GRACE).await;
    assert_eq!(judged[0].verdict, Verdict::Known(KnownAs::Inventory));
    assert_eq!(judged[0].domain.as_deref(), Some("ours.example"));
}

/// A log follower as the system runs it: reads its position from the database, and writes matches and position in one transaction.
struct Stored<'w> {
    world: &'w World,
    log: &'w CtLog,
    log_id: [u8; 32],
}

impl Stored<'_> {
    /// Runs one step as a new process: all its state comes from the database. Returns true if there is more to read. `crash` ends
    /// the process before it writes.
    async fn step(&self, crash: bool) -> bool {
        let client = Client::new(&Resolver::with_upstreams(Vec::new()), &outbound::http::Options::default());
        let options = FollowOptions {
            start: StartPosition::Beginning,
            partial_wait_max: Duration::ZERO,
            tiles_per_step: 1,
            pace: Pace::default(),
            ..FollowOptions::default()
        };
        let key = LogKey::new(self.log.submission_url(), self.log.spki()).unwrap();
        let clock = store::Clock::system();
        let follower = Follower::new(key, &self.log.monitoring_url(), client.unwrap(), options, clock);
        let row = ct::tables::Ct::of(&self.world.store).log(self.log_id).await.unwrap();
        let from = row.map(|row| row.position).unwrap_or_default();
        let position: Option<LogPosition> = (!from.is_empty()).then(|| serde_json::from_str(&from).unwrap());
        let (now, log_id) = (self.world.now_us(), self.log_id);
        match follower.step(position.as_ref(), &self.world.domains).await {
            Ok(_) if crash => true,
            Ok(step) => {
                let row = CtLogStep {
                    log_id,
                    name: "Fleet 2026".to_owned(),
                    from,
                    position: serde_json::to_string(&step.position).unwrap(),
                    behind: step.behind as i64,
                    behind_since_us: None,
                    warning: None,
                    failing_since_us: None,
                    at_us: now,
                };
                let domains = &self.world.domains;
                let found = step
                    .matches
                    .into_iter()
                    .map(|one| ReportedIssuance::from_log_match(one, domains, "Fleet 2026"))
                    .collect();
                self.world
                    .store
                    .write("step", move |tx| {
                        async move {
                            record(tx, found, now).await?;
                            assert!(step_ct_log(tx, &row).await?, "nobody else steps");
                            Ok(())
                        }
                        .boxed()
                    })
                    .await
                    .unwrap();
                step.more
            }
            Err(FollowError::Alarm(alarm)) => {
                let alarm = serde_json::to_string(&alarm).unwrap();
                self.world
                    .store
                    .write("alarm", move |tx| {
                        async move { alarm_ct_log(tx, log_id, "Fleet 2026", &alarm, now).await }.boxed()
                    })
                    .await
                    .unwrap();
                false
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn log_position_survives_crashes_and_stops_at_a_fork() {
    let world = World::new().await;
    let log = CtLog::start(&CtLogOptions::default()).await.unwrap();
    let authority = CtAuthority::new(1).unwrap();
    let other = authority.issue(&["www.other.example"], world.now, 90).unwrap();
    let mut expected = Vec::new();
    for n in 0..900 {
        if n % 100 == 55 {
            let pair = authority.issue(&[&format!("h{n}.ours.example")], world.now, 90).unwrap();
            // As in real logs: first the precertificate, later the certificate.
            log.add_precertificate(&pair);
            log.add_certificate(&pair);
            expected.push(pair.names[0].clone());
        } else {
            log.add_certificate(&other);
        }
    }
    log.publish().unwrap();
    let log_id = *LogKey::new(log.submission_url(), log.spki()).unwrap().log_id();
    let stored = Stored { world: &world, log: &log, log_id };
    let mut crash = true;
    while stored.step(crash).await {
        crash = !crash;
    }
    let listed =
        ct::tables::Ct::of(&world.store).issuances(&CtFilter::default(), None, 100).await.unwrap().rows;
    let mut names: Vec<String> = listed.iter().map(|row| row.names[0].clone()).collect();
    names.reverse();
    assert_eq!(names, expected, "each once, in the log's order");
    let before = ct::tables::Ct::of(&world.store).log(log_id).await.unwrap().unwrap();
    assert_eq!((before.behind, &before.alarm), (0, &None));
    log.fork(3).unwrap();
    assert!(!stored.step(false).await);
    let after = ct::tables::Ct::of(&world.store).log(log_id).await.unwrap().unwrap();
    assert_eq!(after.position, before.position, "nothing is read past an alarm");
    assert!(after.alarm.unwrap().contains("forked"));
}
