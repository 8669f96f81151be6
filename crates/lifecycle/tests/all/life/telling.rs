//! Tests of expiry notifications, whatever prevented the renewal.

use agent::work::Work;
use alerts::tables::AlertRow;
use alerts::{AlertOptions, AlertReport, Alerts, Channels};
use lifecycle::job::JobId;
use lifecycle::managed::{NewCertificate, TargetRef};
use outbound::resolve::Resolver;
use store::states::AlertState;
use uuid::Uuid;
use x509::Severity;

use super::agents::{bad, good, jobs, target};
use super::world::{DAY, HOUR, LIFE, World};

fn alerts_of(world: &World) -> Alerts {
    let channels = Channels::new(Resolver::with_upstreams(Vec::new()));
    let (store, keystore, clock) = (world.store.clone(), world.keystore.clone(), world.clock.clone());
    Alerts::new(store, keystore, clock, channels, AlertOptions::default())
}

async fn open_alerts(world: &World, alerts: &Alerts) -> Vec<AlertRow> {
    settle(world, alerts).await;
    alerts::tables::Alerts::of(&world.store).page(AlertState::Open, None, 10).await.unwrap().rows
}

pub(super) async fn expiry_alert_contains_the_certificate_tags_and_resolves_on_renewal(world: World) {
    let alerts = alerts_of(&world);
    let mut new = NewCertificate::new(&["www.example.org"], "web");
    new.tags.insert("cost".to_owned(), "7".to_owned());
    let id = world.life.create(new, "user:ann").await.unwrap().certificate;
    world.life.tick().await.unwrap();
    settle(&world, &alerts).await;
    assert_eq!(
        alerts::tables::Alerts::of(&world.store).page(AlertState::Open, None, 10).await.unwrap().rows,
        []
    );
    // The certificate is not renewed.
    world.advance(LIFE * 95 / 100);
    settle(&world, &alerts).await;
    let open = alerts::tables::Alerts::of(&world.store).page(AlertState::Open, None, 10).await.unwrap().rows;
    assert_eq!(open.len(), 1, "{open:?}");
    assert_eq!(
        (open[0].kind.as_str(), open[0].subject.clone()),
        ("certificate.expiring", format!("certificate/{id}"))
    );
    let attributes: serde_json::Value = serde_json::from_str(&open[0].attributes).unwrap();
    assert_eq!(attributes["tags"]["cost"], "7", "rules can match it");
    // The certificate is renewed late.
    world.life.tick().await.unwrap();
    settle(&world, &alerts).await;
    assert_eq!(
        alerts::tables::Alerts::of(&world.store).page(AlertState::Open, None, 10).await.unwrap().rows,
        []
    );
}

/// Creates a certificate with one target.
async fn deployed_at(world: &World, agent: Uuid, name: &str) -> (Uuid, TargetRef) {
    let target_ref = target(world, agent, name).await;
    let mut new = NewCertificate::new(&[name], "web");
    new.targets = vec![target_ref.clone()];
    let id = world.life.create(new, "user:ann").await.unwrap().certificate;
    world.life.tick().await.unwrap();
    (id, target_ref)
}

/// The agent takes its jobs and reports `result`.
async fn report(world: &World, agent: Uuid, result: &agent::work::JobResult) {
    for job in jobs(world, agent).await {
        assert!(matches!(job.work, Work::Deploy { .. }), "{job:?}");
        world.life.deployed(JobId(job.job), agent, result).await.unwrap();
    }
}

/// `nginx -t` fails from the first renewal on. Simulated for lifetimes of two hours, six days, 47 days and a year. Checks how soon
/// after the renewal users are notified, when they are notified that the served certificate expires, and that no renewal hides it.
pub(super) async fn repeated_deployment_failure_raises_an_alert_despite_renewals(world: World) {
    let (agent, alerts) = (world.agent().await, alerts_of(&world));
    for (number, life) in [2 * HOUR, 6 * DAY, 47 * DAY, 398 * DAY].into_iter().enumerate() {
        *world.issuer("internal").life_us.lock() = life;
        let begin = world.clock.now_us();
        let (id, target_ref) = deployed_at(&world, agent, &format!("n{number}.example.org")).await;
        report(&world, agent, &good(&target_ref)).await;
        let served = world.life.get(id).await.unwrap().served.unwrap();
        assert_eq!(open_alerts(&world, &alerts).await, [], "all is well");
        let step = life / 120;
        let (mut renewed_at, mut alerted_at, mut first_expiring_at) = (None, None, None);
        while world.clock.now_us() < served.not_after_us + life / 10 {
            world.advance(step);
            world.life.tick().await.unwrap();
            report(&world, agent, &bad("nginx -t failed")).await;
            let now = world.clock.now_us();
            let certificate = world.life.get(id).await.unwrap();
            assert_eq!(certificate.served, Some(served), "a version that is in place nowhere is not served");
            if certificate.current.unwrap().fingerprint != served.fingerprint {
                renewed_at.get_or_insert(now);
            }
            let open = open_alerts(&world, &alerts).await;
            if open.iter().any(|one| one.kind == "certificate.not_deployed") {
                alerted_at.get_or_insert(now);
            }
            assert_eq!(alerted_at.is_some(), open.iter().any(|one| one.kind == "certificate.not_deployed"));
            if open.iter().any(|one| one.kind == "certificate.expiring") {
                first_expiring_at.get_or_insert(now);
            }
        }
        let (renewed_at, alerted_at) = (renewed_at.unwrap(), alerted_at.expect("people hear of it"));
        let left = served.not_after_us - renewed_at;
        assert!(alerted_at - renewed_at <= left / 10 + step, "{life}: within a tenth of what was left");
        let warned =
            served.not_after_us - first_expiring_at.expect("people hear of the end of what is served");
        assert!((life / 5 - step..=life / 5).contains(&warned), "{life}: at a fifth of the life: {warned}");
        assert!(world.life.versions(id, None, 10).await.unwrap().rows.len() >= 2);
        // The served certificate has expired. The newest version has not.
        let open = open_alerts(&world, &alerts).await;
        let expired = open.iter().find(|one| one.title.ends_with("has expired")).expect("it is critical");
        assert_eq!((expired.kind.as_str(), expired.severity), ("certificate.expiring", Severity::Critical));
        let counts = world.life.counts().await.unwrap();
        assert_eq!((counts.expired, counts.undeployed), (1, 1), "{life}");
        assert!(world.life.get(id).await.unwrap().current.unwrap().not_after_us > world.clock.now_us());
        // The configuration is repaired.
        if jobs(&world, agent).await.is_empty() {
            let _ = world.life.redeploy(id, "user:ann").await;
        }
        world.advance(step);
        report(&world, agent, &good(&target_ref)).await;
        world.life.tick().await.unwrap();
        report(&world, agent, &good(&target_ref)).await;
        assert_eq!(open_alerts(&world, &alerts).await, [], "{life}: in place, all is over");
        let counts = world.life.counts().await.unwrap();
        assert_eq!((counts.expired, counts.undeployed), (0, 0), "{life}");
        world.check().await;
        world.life.archive(id, None, "user:ann").await.unwrap();
        assert!(world.clock.now_us() > begin + life);
    }
}

/// Without a verification, no version counts as served. Reports of agents and observations of scans count. Of several, the one that
/// expires first counts, until every target has a deployment newer than the observation.
pub(super) async fn served_version_is_the_one_verified_by_agents_and_scans(world: World) {
    let agent = world.agent().await;
    let (id, target_ref) = deployed_at(&world, agent, "www.example.org").await;
    assert_eq!(world.life.get(id).await.unwrap().served, None, "nothing is verified");
    report(&world, agent, &good(&target_ref)).await;
    let first = world.life.get(id).await.unwrap();
    assert_eq!(first.served.unwrap().fingerprint, first.current.unwrap().fingerprint);
    assert_eq!(first.undeployed_since_us, None);
    // The agent failed and saw that the old version is still served.
    world.advance(LIFE * 7 / 10);
    world.life.tick().await.unwrap();
    let mut failed = bad("reload failed");
    failed.served = Some(first.served.unwrap().fingerprint.to_string());
    report(&world, agent, &failed).await;
    let second = world.life.get(id).await.unwrap();
    assert_eq!(second.served, first.served);
    assert!(second.undeployed_since_us.is_some());
    assert_eq!(second.ends_at_us(), Some(first.current.unwrap().not_after_us));
    // A scan saw the new version somewhere. The old version still expires first.
    let versions = world.life.versions(id, None, 10).await.unwrap().rows;
    super::claiming::seen_at(&world, "lb.example.org", &versions[0].chain[0]).await;
    world.life.verify_served().await.unwrap();
    assert_eq!(world.life.get(id).await.unwrap().served, first.served);
    // The deployment succeeded. An older scan that saw the old version no longer counts.
    super::claiming::seen_at(&world, "old.example.org", &versions[1].chain[0]).await;
    world.advance(HOUR);
    report(&world, agent, &good(&target_ref)).await;
    let third = world.life.get(id).await.unwrap();
    assert_eq!(third.served.unwrap().fingerprint, third.current.unwrap().fingerprint);
    // A later scan still sees the old version.
    world.advance(HOUR);
    super::claiming::seen_at(&world, "old.example.org", &versions[1].chain[0]).await;
    world.life.verify_served().await.unwrap();
    assert_eq!(world.life.get(id).await.unwrap().served, first.served);
    // The observation is older than the maximum age.
    world.advance(LIFE / 4 + 1);
    world.life.verify_served().await.unwrap();
    assert_eq!(world.life.get(id).await.unwrap().served, third.served);
    world.check().await;
}

/// Runs rounds until all events are read. On PostgreSQL events wait for all older transactions, including transactions of other tests.
async fn settle(world: &World, alerts: &Alerts) {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let idle = alerts.round().await.unwrap() == AlertReport::default();
        let end = world.store.outbox_end().await.unwrap();
        if idle && world.store.outbox_position("alerts").await.unwrap() == end {
            return;
        }
        assert!(std::time::Instant::now() < until, "alerts never come to rest");
        tokio::task::yield_now().await;
    }
}
