//! Tests of renewals: time, frequency, issuer and clock changes.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use issuers::Window;
use lifecycle::job::JobState;
use lifecycle::managed::{CertificateChange, ManagedCertificate, NewCertificate, Options};
use lifecycle::policy::Policy;
use lifecycle::renewal::{Day, Lead, MaintenanceWindow, RenewalRule};
use lifecycle::state::State;
use lifecycle::tables::jobs::JobFilter;
use uuid::Uuid;
use x509::UnixTime;

use super::world::{DAY, HOUR, LIFE, Mood, NOW, World};

async fn versions(world: &World, id: Uuid) -> usize {
    world.life.versions(id, None, 100).await.unwrap().rows.len()
}

pub(super) async fn certificate_is_renewed_on_time_with_a_new_key(world: World) {
    let certificate = world.issued("a.example.org").await;
    let at = certificate.renew_at_us().unwrap();
    world.clock.set(at - 1);
    assert_eq!(world.life.tick().await.unwrap().begun, 0);
    world.clock.set(at);
    assert_eq!(world.life.tick().await.unwrap().done, 1);
    let renewed = world.life.get(certificate.id).await.unwrap();
    assert_eq!(renewed.state, State::Active);
    assert!(renewed.renew_at_us().unwrap() > at + LIFE / 2);
    let all = world.life.versions(certificate.id, None, 10).await.unwrap().rows;
    let keys: BTreeSet<Vec<u8>> = all
        .iter()
        .map(|version| x509::Certificate::parse(&version.chain[0]).unwrap().public_key.spki.to_vec())
        .collect();
    assert_eq!((all.len(), keys.len()), (2, 2));
    // The issuer is told which certificate is replaced.
    let replaced = world.issuer("internal").replaced.lock().clone();
    assert_eq!(replaced, [None, Some(certificate.current.unwrap().fingerprint)]);
    assert_eq!(world.life.tick().await.unwrap().begun, 0);
    world.check().await;
}

pub(super) async fn clock_jump_of_a_year_renews_each_certificate_once(world: World) {
    let ids = world.many(60).await;
    world.fakes.concurrency.store(4, Ordering::SeqCst);
    world.issuer("internal").at_once_max.store(0, Ordering::SeqCst);
    world.advance(365 * DAY);
    assert_eq!(world.life.tick().await.unwrap().done, 60);
    assert_eq!(world.life.tick().await.unwrap().begun, 0);
    assert_eq!(world.issuer("internal").made(), 120);
    // No burst: the number of concurrent orders is limited as always.
    assert!(world.issuer("internal").at_once_max.load(Ordering::SeqCst) <= 4);
    for id in ids {
        assert_eq!(versions(&world, id).await, 2);
    }
    world.check().await;
}

pub(super) async fn clock_set_back_renews_nothing_twice(world: World) {
    let issuer = world.issuer("internal");
    world.many(10).await;
    world.advance(70 * DAY);
    world.life.tick().await.unwrap();
    assert_eq!(issuer.made(), 20);
    // One certificate fails while the clock is wrong. Its retry must not wait for that time.
    *issuer.mood.lock() = Mood::Down;
    world.life.create(NewCertificate::new(&["late.example.org"], "web"), "user:ann").await.unwrap();
    world.life.tick().await.unwrap();
    *issuer.mood.lock() = Mood::Well;
    world.clock.set(NOW);
    world.life.tick().await.unwrap();
    assert_eq!(issuer.made(), 21);
    assert_eq!(world.life.tick().await.unwrap().begun, 0);
    world.check().await;
}

pub(super) async fn two_schedulers_renew_each_certificate_once(world: World) {
    let ids = world.many(60).await;
    *world.issuer("internal").mood.lock() = Mood::Slow(std::time::Duration::from_millis(2));
    let second = world.second().await;
    world.advance(70 * DAY);
    let (one, two) = tokio::join!(world.life.tick(), second.tick());
    assert_eq!(one.unwrap().done + two.unwrap().done, 60);
    assert_eq!(world.issuer("internal").made(), 120);
    for id in ids {
        assert_eq!(versions(&world, id).await, 2);
    }
    world.check().await;
}

pub(super) async fn renewal_follows_the_window_suggested_by_the_issuer(world: World) {
    let issuer = world.issuer("acme");
    let seconds = |us: i64| UnixTime(us / 1_000_000);
    let window = |from: i64, to: i64| Window {
        start: seconds(NOW + from),
        end: seconds(NOW + to),
        retry_after_seconds: 6 * 3_600,
        explanation: Some("https://issuer.example/why".to_owned()),
    };
    *issuer.window.lock() = Some(window(20 * DAY, 21 * DAY));
    let mut new = NewCertificate::new(&["a.example.org"], "web");
    new.issuer = Some("acme".to_owned());
    let created = world.life.create(new, "user:ann").await.unwrap();
    world.life.tick().await.unwrap();
    let renew_at = |certificate: &ManagedCertificate| certificate.renew_at_us().unwrap() - NOW;
    let before = world.life.get(created.certificate).await.unwrap();
    assert!(renew_at(&before) > 50 * DAY);
    world.life.request_suggestions().await.unwrap();
    let after = world.life.get(created.certificate).await.unwrap();
    assert!((20 * DAY..21 * DAY).contains(&renew_at(&after)), "{}", renew_at(&after) / DAY);
    let (suggested, why) = world.life.suggestion(created.certificate).await.unwrap().unwrap();
    assert_eq!(suggested.start_us, NOW + 20 * DAY);
    assert_eq!(why.as_deref(), Some("https://issuer.example/why"));
    // The suggestion is not requested again before the time that the issuer gave.
    assert_eq!(world.life.request_suggestions().await.unwrap(), 0);
    world.advance(6 * HOUR);
    // The issuer has a problem and suggests to renew now.
    *issuer.window.lock() = Some(window(-2 * DAY, -DAY));
    assert_eq!(world.life.request_suggestions().await.unwrap(), 1);
    assert_eq!(world.life.tick().await.unwrap().done, 1);
    assert_eq!(versions(&world, created.certificate).await, 2);
    // An unreachable issuer does not block renewals.
    *issuer.mood.lock() = Mood::Down;
    assert_eq!(world.life.request_suggestions().await.unwrap(), 1);
    assert!(world.life.get(created.certificate).await.unwrap().renew_at_us().is_some());
    // An issuer without a suggestion is not asked again.
    *issuer.mood.lock() = Mood::Well;
    *issuer.window.lock() = None;
    world.advance(7 * HOUR);
    assert_eq!(world.life.request_suggestions().await.unwrap(), 1);
    world.advance(7 * HOUR);
    assert_eq!(world.life.request_suggestions().await.unwrap(), 0);
    world.check().await;
}

pub(super) async fn renewal_is_skipped_while_auto_renew_is_off(world: World) {
    let certificate = world.issued("a.example.org").await;
    let options = |auto_renew| CertificateChange {
        options: Some(Options { auto_renew, ..Options::default() }),
        ..CertificateChange::default()
    };
    world.life.update(certificate.id, None, &options(false), "user:ann").await.unwrap();
    assert_eq!(world.life.get(certificate.id).await.unwrap().run, None);
    world.advance(80 * DAY);
    assert_eq!(world.life.tick().await.unwrap().begun, 0);
    world.life.update(certificate.id, None, &options(true), "user:ann").await.unwrap();
    assert_eq!(world.life.tick().await.unwrap().done, 1);
    world.check().await;
}

pub(super) async fn renewal_waits_for_the_maintenance_window(world: World) {
    let window = MaintenanceWindow {
        days: vec![Day::Sunday],
        from: "02:00".to_owned(),
        to: "04:00".to_owned(),
        time_zone: "UTC".to_owned(),
    };
    let rule = RenewalRule { renew_before: Lead::Days(30), windows: vec![window], ..RenewalRule::default() };
    let policy = Policy { renewal: Some(rule), ..Policy::default() };
    world.life.put_policy("sundays", &policy, None, "user:ann").await.unwrap();
    let mut new = NewCertificate::new(&["a.example.org"], "web");
    new.policy = Some("sundays".to_owned());
    let created = world.life.create(new, "user:ann").await.unwrap();
    // Requested by a user, so issued immediately on any day.
    world.life.tick().await.unwrap();
    let certificate = world.life.get(created.certificate).await.unwrap();
    let at = certificate.renew_at_us().unwrap();
    // NOW is a Saturday at midnight.
    let sunday_two = NOW + DAY + 2 * HOUR;
    // A time that is already in the window is not moved.
    let into_window = (at - sunday_two).rem_euclid(7 * DAY);
    assert!(into_window < 2 * HOUR, "{into_window}");
    assert!(at >= certificate.current.unwrap().not_after_us - 35 * DAY);
    // The window was missed: the renewal waits for the next window.
    world.clock.set(at + 5 * HOUR);
    world.life.tick().await.unwrap();
    assert_eq!(versions(&world, created.certificate).await, 1);
    let next = world.life.get(created.certificate).await.unwrap().renew_at_us().unwrap();
    assert_eq!(next, at - into_window + 7 * DAY);
    world.clock.set(next + HOUR);
    world.life.tick().await.unwrap();
    assert_eq!(versions(&world, created.certificate).await, 2);
    world.check().await;
}

pub(super) async fn tick_statement_count_is_independent_of_the_number_of_due_runs(world: World) {
    let statements = || world.store.statements_sent();
    world.many(200).await;
    world.fakes.concurrency.store(1_000, Ordering::SeqCst);
    // Scheduling costs the same with nothing due, and with two hundred due and a paused issuer.
    let before = statements();
    world.life.schedule().await.unwrap();
    let idle = statements() - before;
    world.advance(70 * DAY);
    let before = statements();
    world.life.schedule().await.unwrap();
    assert_eq!(statements() - before, idle);
    assert!(idle <= 16, "{idle}");
    // Running costs some statements for each batch of completions, not for each certificate.
    let due = world
        .life
        .jobs(&JobFilter { state: Some(JobState::Queued), ..JobFilter::default() }, None, 1_000)
        .await
        .unwrap();
    assert!(due.rows.iter().all(|job| !job.planned));
    let life = world.with(|options| options.cache_lifetime = std::time::Duration::from_secs(3_600));
    life.tick().await.unwrap();
    world.advance(70 * DAY);
    let before = statements();
    assert_eq!(life.tick().await.unwrap().done, 200);
    let work = statements() - before;
    assert!(work < 100, "{work} statements for 200 renewals");
    world.check().await;
}
