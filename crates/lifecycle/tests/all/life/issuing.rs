//! Tests from creation to the first version, with issuers in every condition.

use std::sync::atomic::Ordering;
use std::time::Duration;

use keys::PrivateKey;
use lifecycle::job::{JobKind, JobState};
use lifecycle::managed::{CertificateChange, KeyLocation, NewCertificate};
use lifecycle::state::State;
use lifecycle::tables::jobs::JobFilter;
use lifecycle::{
    CreateError, DataError, ExportError, ExportFormat, JobError, LifecycleActionError, UpdateError,
};
use store::AuditFilter;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::world::{DAY, HOUR, LIFE, Mood, NOW, World};

pub(super) async fn created_certificate_is_issued_and_its_renewal_scheduled(world: World) {
    let mut new = NewCertificate::new(&["www.example.org", "example.org"], "web");
    new.owner = Some("ann".to_owned());
    let created = world.life.create(new, "user:ann").await.unwrap();
    let before = world.life.get(created.certificate).await.unwrap();
    assert_eq!((before.state, before.current), (State::Pending, None));
    assert_eq!(world.life.job(created.job.unwrap()).await.unwrap().kind, JobKind::Issuance);

    let report = world.life.tick().await.unwrap();
    assert_eq!((report.begun, report.done, report.failed), (1, 1, 0));
    let after = world.life.get(created.certificate).await.unwrap();
    assert_eq!(after.state, State::Active);
    let version = after.current.unwrap();
    assert_eq!(version.not_after_us, NOW + LIFE);
    let part = (after.renew_at_us().unwrap() - NOW) as f64 / LIFE as f64;
    assert!((0.61..0.67).contains(&part), "{part}");
    let versions = world.life.versions(created.certificate, None, 10).await.unwrap().rows;
    assert_eq!(versions.len(), 1);
    assert_eq!(versions[0].fingerprint, version.fingerprint);
    assert!(versions[0].key_here);
    let leaf = x509::Certificate::parse(&versions[0].chain[0]).unwrap();
    assert_eq!(leaf.names(), ["www.example.org", "example.org"]);
    assert_eq!(world.life.job(created.job.unwrap()).await.unwrap().state, JobState::Done);

    // Each transition has an audit row and an event.
    let filter =
        AuditFilter { resource: Some(format!("certificate/{}", after.id)), ..AuditFilter::default() };
    let log = world.store.audit_page(&filter, None, 10).await.unwrap().rows;
    let actions: Vec<&str> = log.iter().rev().map(|row| row.action.as_str()).collect();
    assert_eq!(actions, ["certificate.create", "certificate.start", "certificate.issue"]);
    assert_eq!(log.last().unwrap().actor, "user:ann");
    // On PostgreSQL an event becomes visible when no older transaction of the whole server is open.
    let events = loop {
        let events = world.store.outbox_after(store::OutboxPosition::default(), 10).await.unwrap();
        if events.len() >= 2 {
            break events;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["certificate.created", "certificate.issued"]);
    // No work is left.
    assert_eq!(world.life.tick().await.unwrap().begun, 0);
    world.check().await;
}

pub(super) async fn taken_names_are_rejected_and_the_rest_of_the_batch_is_created(world: World) {
    let new = |number: usize| NewCertificate::new(&[&format!("n{}.example.org", number % 50)], "web");
    let created = world.life.create_many((0..100).map(new).collect(), "user:ann").await;
    let good = created.iter().filter(|one| one.is_ok()).count();
    assert_eq!(good, 50);
    for refused in created.iter().filter_map(|one| one.as_ref().err()) {
        assert!(matches!(refused, CreateError::Taken(_)), "{refused}");
    }
    let second = world.life.create(new(1), "user:ann").await.unwrap_err();
    assert_eq!(second.to_string(), "there is already a certificate \"n1.example.org\"");
    world.check().await;
}

pub(super) async fn unknown_profile_policy_or_issuer_is_rejected(world: World) {
    let with = |change: fn(&mut NewCertificate)| {
        let mut new = NewCertificate::new(&["a.example.org"], "web");
        change(&mut new);
        let life = world.life.clone();
        async move { life.create(new, "user:ann").await.unwrap_err().to_string() }
    };
    assert_eq!(
        with(|new| new.profile = "none".to_owned()).await,
        "unknown profile \"none\"; create it first"
    );
    assert_eq!(
        with(|new| new.policy = Some("none".to_owned())).await,
        "unknown policy \"none\"; create it first"
    );
    assert!(with(|new| new.issuer = Some("none".to_owned())).await.contains("no issuer none"));
    assert!(matches!(world.life.get(Uuid::nil()).await, Err(DataError::NotFound { .. })));
    world.check().await;
}

pub(super) async fn unavailable_issuer_is_retried_with_backoff_until_it_recovers(world: World) {
    let issuer = world.issuer("internal");
    *issuer.mood.lock() = Mood::Down;
    let created =
        world.life.create(NewCertificate::new(&["a.example.org"], "web"), "user:ann").await.unwrap();
    let mut pauses = Vec::new();
    for attempt in 1..=10 {
        let report = world.life.tick().await.unwrap();
        assert_eq!((report.begun, report.failed), (1, 1), "attempt {attempt}");
        let job = world.life.job(created.job.unwrap()).await.unwrap();
        assert_eq!((job.state, job.attempts), (JobState::Queued, attempt));
        assert_eq!(job.last_error.as_deref(), Some("the issuer is unavailable: nobody there"));
        pauses.push(job.next_attempt_at_us - world.clock.now_us());
        // No attempt is made before its scheduled time.
        assert_eq!(world.life.tick().await.unwrap().begun, 0);
        world.clock.set(job.next_attempt_at_us);
    }
    assert!((22_000_000..=38_000_000).contains(&pauses[0]), "{pauses:?}");
    assert!(pauses[9] > pauses[0] * 50 && pauses[9] <= HOUR * 5 / 4, "{pauses:?}");
    let waiting = world.life.get(created.certificate).await.unwrap();
    assert_eq!(waiting.state, State::Issuing);
    assert!(waiting.last_error.unwrap().contains("nobody there"));
    *issuer.mood.lock() = Mood::Well;
    assert_eq!(world.life.tick().await.unwrap().done, 1);
    let issued = world.life.get(created.certificate).await.unwrap();
    assert_eq!((issued.state, issued.last_error), (State::Active, None));
    // The key is generated once: all attempts request the same certificate.
    assert_eq!(issuer.made(), 1);
    world.check().await;
}

pub(super) async fn certificate_that_does_not_match_the_request_is_not_stored(world: World) {
    for (mood, message) in [(Mood::Lying, "for another key"), (Mood::Confused, "lacks")] {
        *world.issuer("internal").mood.lock() = mood;
        let name = format!("{}.example.org", message.len());
        let created = world.life.create(NewCertificate::new(&[&name], "web"), "user:ann").await.unwrap();
        world.life.tick().await.unwrap();
        let certificate = world.life.get(created.certificate).await.unwrap();
        assert_eq!((certificate.state, certificate.current), (State::Failed, None));
        assert!(certificate.last_error.unwrap().contains(message));
        assert!(world.life.versions(created.certificate, None, 10).await.unwrap().rows.is_empty());
    }
    world.check().await;
}

pub(super) async fn issuer_rejection_fails_the_run_and_schedules_another(world: World) {
    let issuer = world.issuer("internal");
    let certificate = world.issued("a.example.org").await;
    *issuer.mood.lock() = Mood::Refusing;
    world.clock.set(certificate.renew_at_us().unwrap());
    world.life.tick().await.unwrap();
    let failed = world.life.get(certificate.id).await.unwrap();
    assert_eq!((failed.state, failed.failures), (State::Failed, 1));
    // The issued version is kept. The next attempt is a day later, because a tenth of a month is longer.
    assert_eq!(failed.current, certificate.current);
    assert_eq!(failed.renew_at_us(), Some(world.clock.now_us() + DAY));
    *issuer.mood.lock() = Mood::Well;
    world.advance(DAY);
    world.life.tick().await.unwrap();
    let renewed = world.life.get(certificate.id).await.unwrap();
    assert_eq!((renewed.state, renewed.failures), (State::Active, 0));
    assert_ne!(renewed.current, certificate.current);
    world.check().await;
}

pub(super) async fn slow_issuer_times_out_and_the_order_is_retried(world: World) {
    let issuer = world.issuer("internal");
    *issuer.mood.lock() = Mood::Slow(Duration::from_secs(30));
    let hasty = world.with(|options| options.order_timeout = Duration::from_millis(50));
    let created = hasty.create(NewCertificate::new(&["a.example.org"], "web"), "user:ann").await.unwrap();
    assert_eq!(hasty.tick().await.unwrap().failed, 1);
    let job = hasty.job(created.job.unwrap()).await.unwrap();
    assert!(job.last_error.unwrap().contains("timed out while"));
    *issuer.mood.lock() = Mood::Well;
    world.advance(HOUR);
    assert_eq!(world.life.tick().await.unwrap().done, 1);
    assert_eq!(issuer.made(), 1);
    world.check().await;
}

pub(super) async fn issuer_is_not_called_before_its_requested_delay_ends(world: World) {
    let issuer = world.issuer("internal");
    *issuer.mood.lock() = Mood::Deferred(Duration::from_secs(600));
    world.fakes.concurrency.store(1, Ordering::SeqCst);
    let new = (0..20).map(|n| NewCertificate::new(&[&format!("n{n}.example.org")], "web"));
    world.life.create_many(new.collect(), "user:ann").await;
    world.life.tick().await.unwrap();
    assert_eq!(issuer.requests.load(Ordering::SeqCst), 1);
    world.advance(300_000_000);
    world.life.tick().await.unwrap();
    assert_eq!(issuer.requests.load(Ordering::SeqCst), 1);
    // Another issuer continues in the meantime.
    let mut new = NewCertificate::new(&["other.example.org"], "web");
    new.issuer = Some("other".to_owned());
    world.life.create(new, "user:ann").await.unwrap();
    assert_eq!(world.life.tick().await.unwrap().done, 1);
    *issuer.mood.lock() = Mood::Well;
    world.advance(301_000_000);
    assert_eq!(world.life.tick().await.unwrap().done, 20);
    world.check().await;
}

pub(super) async fn issuer_panic_is_a_failed_attempt_and_is_retried(world: World) {
    *world.issuer("internal").mood.lock() = Mood::Panicking;
    let created =
        world.life.create(NewCertificate::new(&["a.example.org"], "web"), "user:ann").await.unwrap();
    let report = world.life.tick().await.unwrap();
    assert_eq!(report.failed, 1);
    *world.issuer("internal").mood.lock() = Mood::Well;
    world.advance(HOUR);
    world.life.tick().await.unwrap();
    assert_eq!(world.life.get(created.certificate).await.unwrap().state, State::Active);
    assert_eq!(world.life.under_way().values().sum::<usize>(), 0);
    world.check().await;
}

pub(super) async fn interrupted_runs_are_taken_over_immediately_after_shutdown(world: World) {
    let issuer = world.issuer("internal");
    *issuer.mood.lock() = Mood::Slow(Duration::from_secs(3_600));
    let created =
        world.life.create(NewCertificate::new(&["a.example.org"], "web"), "user:ann").await.unwrap();
    let stopped = world.with(|options| options.stop_grace = Duration::from_millis(10));
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (life, stop) = (stopped.clone(), stop.clone());
        async move { life.run(stop).await }
    });
    while stopped.under_way().values().sum::<usize>() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.cancel();
    running.await.unwrap();
    assert_eq!(stopped.under_way().values().sum::<usize>(), 0);
    *issuer.mood.lock() = Mood::Well;
    // Hardly any time has passed: the stopped node released its work, so no lease must expire first.
    world.advance(1);
    let report = world.second().await.tick().await.unwrap();
    assert_eq!((report.reaped, report.done), (1, 1));
    assert_eq!(world.life.get(created.certificate).await.unwrap().state, State::Active);
    world.check().await;
}

pub(super) async fn issuer_concurrency_limit_is_respected(world: World) {
    let issuer = world.issuer("internal");
    *issuer.mood.lock() = Mood::Crowded(3);
    world.fakes.concurrency.store(3, Ordering::SeqCst);
    world.many(30).await;
    assert_eq!(issuer.made(), 30);
    assert_eq!(issuer.at_once_max.load(Ordering::SeqCst), 3);
    world.check().await;
}

pub(super) async fn key_export_is_audited(world: World) {
    let certificate = world.issued("a.example.org").await;
    let versions = world.life.versions(certificate.id, None, 1).await.unwrap().rows;
    let leaf = x509::Certificate::parse(&versions[0].chain[0]).unwrap();

    let chain = world.life.export(certificate.id, &ExportFormat::Chain, "user:bob").await.unwrap();
    let text = String::from_utf8(chain.bytes.to_vec()).unwrap();
    assert!(text.contains("BEGIN CERTIFICATE") && !text.contains("PRIVATE KEY"));
    let both = world.life.export(certificate.id, &ExportFormat::ChainAndKey, "user:bob").await.unwrap();
    let text = String::from_utf8(both.bytes.to_vec()).unwrap();
    let key = PrivateKey::from_pem(&text[text.find("-----BEGIN PRIVATE KEY").unwrap()..]).unwrap();
    assert_eq!(keys::Signer::spki(&key), &*leaf.public_key.spki);

    let password = Zeroizing::new("correct horse".to_owned());
    let file =
        world.life.export(certificate.id, &ExportFormat::Pkcs12 { password }, "user:bob").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.p12");
    std::fs::write(&path, &*file.bytes).unwrap();
    let shown = std::process::Command::new("openssl")
        .args(["pkcs12", "-nodes", "-passin", "pass:correct horse", "-in"])
        .arg(&path)
        .output()
        .expect("this test needs openssl: apt-get install -y openssl");
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.contains("BEGIN CERTIFICATE") && shown.contains("PRIVATE KEY"), "{shown}");
    let short = ExportFormat::Pkcs12 { password: Zeroizing::new("short".to_owned()) };
    assert!(world.life.export(certificate.id, &short, "user:bob").await.is_err());

    let filter = AuditFilter { action: Some("certificate.export".to_owned()), ..AuditFilter::default() };
    let log = world.store.audit_page(&filter, None, 10).await.unwrap().rows;
    assert_eq!(log.len(), 3);
    assert!(log.iter().all(|row| row.actor == "user:bob" && !row.details.contains("PRIVATE")));
    assert!(log.iter().any(|row| row.details.contains("\"key\"")));

    let mut on_agent = NewCertificate::new(&["b.example.org"], "web");
    on_agent.key_location = KeyLocation::Agent { agent: world.agent().await };
    let created = world.life.create(on_agent, "user:ann").await.unwrap();
    let refused = world.life.export(created.certificate, &ExportFormat::ChainAndKey, "user:bob").await;
    assert!(matches!(refused, Err(ExportError::NotExportable(_))));
    world.check().await;
}

pub(super) async fn changed_names_and_issuer_apply_to_the_next_version(world: World) {
    let certificate = world.issued("a.example.org").await;
    let change = CertificateChange {
        names: Some(vec!["a.example.org".to_owned(), "b.example.org".to_owned()]),
        issuer: Some("other".to_owned()),
        renew: true,
        ..CertificateChange::default()
    };
    let stale = world.life.update(certificate.id, Some(certificate.revision - 1), &change, "user:ann").await;
    assert!(matches!(stale, Err(UpdateError::Stale(_))), "{stale:?}");
    world.life.update(certificate.id, Some(certificate.revision), &change, "user:ann").await.unwrap();
    world.life.tick().await.unwrap();
    let changed = world.life.get(certificate.id).await.unwrap();
    assert_eq!((changed.state, changed.issuer.as_str()), (State::Active, "other"));
    let versions = world.life.versions(certificate.id, None, 10).await.unwrap().rows;
    let leaf = x509::Certificate::parse(&versions[0].chain[0]).unwrap();
    assert_eq!(leaf.names(), ["a.example.org", "b.example.org"]);
    assert_eq!(world.issuer("other").made(), 1);
    // The certificate is found by its new name and renewed by its new issuer.
    let filter = lifecycle::tables::managed::ManagedFilter {
        suffix: Some("b.example.org".to_owned()),
        ..lifecycle::tables::managed::ManagedFilter::default()
    };
    let found =
        world.life.page(&filter, lifecycle::tables::managed::ManagedOrder::Name, None, 10).await.unwrap();
    assert_eq!(found.rows.len(), 1);
    world.clock.set(changed.renew_at_us().unwrap());
    world.life.tick().await.unwrap();
    assert_eq!(world.issuer("other").made(), 2);
    // A name that is in use cannot be taken.
    world.issued("c.example.org").await;
    let taken = CertificateChange { name: Some("c.example.org".to_owned()), ..CertificateChange::default() };
    let refused = world.life.update(certificate.id, None, &taken, "user:ann").await;
    assert!(matches!(refused, Err(UpdateError::Taken(_))));
    world.check().await;
}

pub(super) async fn archived_certificate_is_not_renewed_until_restored(world: World) {
    let certificate = world.issued("a.example.org").await;
    world.life.archive(certificate.id, None, "user:ann").await.unwrap();
    let archived = world.life.get(certificate.id).await.unwrap();
    assert_eq!((archived.state, archived.run), (State::Archived, None));
    world.advance(LIFE);
    assert_eq!(world.life.tick().await.unwrap().begun, 0);
    let second = world.life.archive(certificate.id, None, "user:ann").await;
    assert!(matches!(second, Err(LifecycleActionError::IllegalTransition(_))));
    let stale = world.life.restore(certificate.id, Some(archived.revision - 1), "user:ann").await;
    assert!(matches!(stale, Err(LifecycleActionError::Stale(_))));
    world.life.restore(certificate.id, Some(archived.revision), "user:ann").await.unwrap();
    world.life.tick().await.unwrap();
    let restored = world.life.get(certificate.id).await.unwrap();
    assert_eq!(restored.state, State::Active);
    assert_ne!(restored.current, certificate.current);
    world.check().await;
}

pub(super) async fn runs_are_cancelled_and_retried_on_request(world: World) {
    *world.issuer("internal").mood.lock() = Mood::Down;
    let created =
        world.life.create(NewCertificate::new(&["a.example.org"], "web"), "user:ann").await.unwrap();
    world.life.tick().await.unwrap();
    let job = created.job.unwrap();
    world.life.cancel_job(job, "user:ann").await.unwrap();
    let cancelled = world.life.get(created.certificate).await.unwrap();
    assert_eq!(cancelled.state, State::Pending);
    assert_eq!(world.life.job(job).await.unwrap().state, JobState::Cancelled);
    let twice = world.life.cancel_job(job, "user:ann").await;
    assert!(matches!(twice, Err(JobError::NotWaiting(_))));
    // The next attempt is scheduled. A user requests it now.
    let next = cancelled.run.unwrap().job;
    assert_ne!(next, job);
    *world.issuer("internal").mood.lock() = Mood::Well;
    world.life.retry_job(next, "user:ann").await.unwrap();
    assert_eq!(world.life.tick().await.unwrap().done, 1);
    let listed = world.life.jobs(&JobFilter::default(), None, 10).await.unwrap().rows;
    let states: Vec<JobState> = listed.iter().map(|job| job.state).collect();
    assert_eq!(states, [JobState::Queued, JobState::Done, JobState::Cancelled]);
    assert!(listed[0].planned && !listed[1].planned);
    world.check().await;
}

pub(super) async fn issuance_is_retried_while_the_key_service_is_unavailable(world: World) {
    let mut new = NewCertificate::new(&["a.example.org"], "web");
    new.key_location = KeyLocation::KeyService;
    let created = world.life.create(new, "user:ann").await.unwrap();
    world.life.tick().await.unwrap();
    let job = world.life.job(created.job.unwrap()).await.unwrap();
    assert_eq!((job.state, job.attempts), (JobState::Queued, 1));
    assert!(job.last_error.unwrap().contains("pkcs11"));
    assert_eq!(world.life.get(created.certificate).await.unwrap().state, State::Pending);
    // The job fails after days and is scheduled again: no work is stuck.
    world.advance(4 * DAY);
    world.life.tick().await.unwrap();
    assert_eq!(world.life.job(created.job.unwrap()).await.unwrap().state, JobState::Failed);
    let failed = world.life.get(created.certificate).await.unwrap();
    assert_eq!((failed.failures, failed.renew_at_us()), (1, Some(world.clock.now_us() + HOUR)));
    // With the key on the server instead, the certificate is issued immediately.
    let change = CertificateChange {
        key_location: Some(KeyLocation::Server),
        renew: true,
        ..CertificateChange::default()
    };
    world.life.update(created.certificate, None, &change, "user:ann").await.unwrap();
    world.life.tick().await.unwrap();
    assert_eq!(world.life.get(created.certificate).await.unwrap().state, State::Active);
    world.check().await;
}
