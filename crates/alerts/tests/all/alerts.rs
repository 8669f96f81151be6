//! Tests of alerts from the event to the channel, on both databases.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use alerts::{AlertOptions, Alerts, Channels, Escalation, Matcher, NewChannel, Rule, Silence};
use authority::keystore::KeyStore;
use events::{CertificateFailed, CertificateIssued, IssuedVersion, ManagedCertificate, Run};
use keys::Keyring;
use outbound::resolve::Resolver;
use parking_lot::Mutex;
use serde_json::{Value, json};
use store::states::{AlertState, DeliveryState};
use store::{Clock, NewEvent, Store, emit, new_event};
use testbed::Database;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use uuid::Uuid;

/// 2026-11-21, µs.
const NOW: i64 = 1_795_219_200_000_000;
const DAY: i64 = 86_400_000_000;

/// A webhook receiver on loopback. Answers with the configured status and stores its requests.
struct Receiver {
    url: String,
    status: Arc<AtomicU16>,
    got: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Receiver {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let (status, got) = (Arc::new(AtomicU16::new(200)), Arc::new(Mutex::new(Vec::new())));
        let (answer, requests) = (Arc::clone(&status), Arc::clone(&got));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (answer, requests) = (Arc::clone(&answer), Arc::clone(&requests));
                tokio::spawn(async move {
                    let Some((head, body)) = read_request(&mut stream).await else { return };
                    let status = answer.load(Ordering::SeqCst);
                    requests.lock().push((head, serde_json::from_slice(&body).unwrap_or_default()));
                    let wait = if status == 429 { "retry-after: 600\r\n" } else { "" };
                    let text = format!(
                        "HTTP/1.1 {status} X\r\n{wait}content-length: 0\r\nconnection: close\r\n\r\n"
                    );
                    let _ = stream.write_all(text.as_bytes()).await;
                });
            }
        });
        Self { url, status, got }
    }

    fn answers(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    fn taken(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut *self.got.lock())
    }
}

async fn read_request(stream: &mut tokio::net::TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        let read = stream.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&buffer[..read]);
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length: "))?.parse::<usize>().ok()?;
        if bytes.len() >= end + 4 + length {
            return Some((head, bytes[end + 4..end + 4 + length].to_vec()));
        }
    }
}

struct World {
    store: Store,
    clock: Clock,
    alerts: Alerts,
    receiver: Receiver,
    _database: Database,
}

impl World {
    async fn sqlite() -> Self {
        Self::over(Database::sqlite()).await
    }

    async fn postgres() -> Self {
        Self::over(Database::postgres().await).await
    }

    async fn over(database: Database) -> Self {
        let store = database.open().await;
        let clock = Clock::manual(NOW);
        let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone());
        let channels = Channels::new(Resolver::system().unwrap());
        let options = AlertOptions { server_url: Some("https://bulla.example".to_owned()) };
        let alerts = Alerts::new(store.clone(), keystore, clock.clone(), channels, options);
        let receiver = Receiver::start().await;
        Self { store, clock, alerts, receiver, _database: database }
    }

    async fn channel(&self, name: &str) -> Uuid {
        let config = json!({ "type": "webhook", "url": self.receiver.url, "secret": "0123456789abcdef" });
        let new = NewChannel { name: name.to_owned(), config, enabled: true };
        self.alerts.put_channel(None, new, "user:test").await.unwrap().row.id
    }

    async fn rule(&self, rule: Rule) {
        self.alerts.put_rule(None, &Uuid::now_v7().to_string(), &rule, "user:test").await.unwrap();
    }

    /// Publishes the event that a managed certificate has a new version.
    async fn issued(&self, subject: &str, name: &str, not_before_us: i64, not_after_us: i64) {
        let (not_before_us, not_after_us) = (Some(not_before_us), Some(not_after_us));
        let certificate = ManagedCertificate { not_before_us, not_after_us, ..certificate(name) };
        let (run, fingerprint) = (Run::default(), x509::Fingerprint::from_bytes([1; 32]));
        let version = IssuedVersion { certificate, run, serial: String::new(), fingerprint };
        let issued = CertificateIssued::Version(Box::new(version));
        self.happens(subject, &events::Event::CertificateIssued(issued)).await;
    }

    /// Publishes the event that the last run of a managed certificate failed.
    async fn failed(&self, subject: &str, name: &str) {
        let (certificate, error) = (certificate(name), Some("no".to_owned()));
        let failed = CertificateFailed { certificate, error, ..CertificateFailed::default() };
        self.happens(subject, &events::Event::CertificateFailed(failed)).await;
    }

    async fn happens(&self, subject: &str, event: &events::Event) {
        let event = new_event(self.clock.now_us(), subject.to_owned(), event);
        self.put(event).await;
    }

    async fn put(&self, event: NewEvent) {
        self.store
            .write("test", move |tx| Box::pin(async move { emit(tx, vec![event]).await }))
            .await
            .unwrap();
    }

    /// Runs rounds until all events are read and a round does nothing. On PostgreSQL events wait for all older transactions,
    /// including transactions of other tests.
    async fn settle(&self) {
        for _ in 0..6_000 {
            let idle = self.alerts.round().await.unwrap() == alerts::AlertReport::default();
            let end = self.store.outbox_end().await.unwrap();
            if idle && self.store.outbox_position("alerts").await.unwrap() == end {
                return;
            }
            if idle {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        panic!("alerts never come to rest");
    }

    fn passes(&self, us: i64) {
        self.clock.advance(Duration::from_micros(us as u64));
    }
}

fn certificate(name: &str) -> ManagedCertificate {
    ManagedCertificate { name: name.to_owned(), ..ManagedCertificate::default() }
}

fn all_to(channel: &str) -> Rule {
    Rule { channels: vec![channel.to_owned()], ..Rule::default() }
}

fn titles(messages: &[(String, Value)]) -> Vec<String> {
    messages
        .iter()
        .map(|(_, body)| format!("{} {}", body["reason"], body["title"]).replace('"', ""))
        .collect()
}

async fn expiry_alert_is_sent_once_per_threshold(world: World) {
    world.channel("hook").await;
    world.rule(all_to("hook")).await;
    world.issued("certificate/1", "web", NOW, NOW + 90 * DAY).await;
    world.settle().await;
    assert_eq!(world.receiver.taken(), []);
    world.passes(73 * DAY);
    world.settle().await;
    world.settle().await;
    assert_eq!(titles(&world.receiver.taken()), ["raised web expires in 17 days"]);
    world.passes(9 * DAY);
    world.settle().await;
    assert_eq!(titles(&world.receiver.taken()), ["raised web expires in 8 days"]);
    let open = alerts::tables::Alerts::of(&world.store).page(AlertState::Open, None, 10).await.unwrap().rows;
    assert_eq!(open.len(), 1, "the farther threshold's alert is over");
    // After a renewal, the alerts are resolved, and their recipients are notified.
    let now = world.clock.now_us();
    world.issued("certificate/1", "web", now, now + 90 * DAY).await;
    world.settle().await;
    assert_eq!(titles(&world.receiver.taken()), ["resolved web expires in 8 days"]);
    assert_eq!(
        alerts::tables::Alerts::of(&world.store).page(AlertState::Open, None, 10).await.unwrap().rows,
        []
    );
    // A time jump over several thresholds sends one notification.
    world.passes(200 * DAY);
    world.settle().await;
    assert_eq!(titles(&world.receiver.taken()), ["raised web has expired"]);
}

async fn repeated_alerts_are_counted_and_notified_once(world: World) {
    world.channel("hook").await;
    world.rule(all_to("hook")).await;
    for _ in 0..5 {
        world.failed("certificate/1", "web").await;
    }
    world.settle().await;
    world.failed("certificate/1", "web").await;
    world.settle().await;
    let messages = world.receiver.taken();
    assert_eq!(titles(&messages), ["raised web: the last run failed"]);
    assert_eq!(messages[0].1["attributes"]["detail"], "no");
    let head = &messages[0].0;
    assert!(head.contains("bulla-signature: t=") && head.contains(",v1="), "{head}");
    assert_eq!(
        alerts::tables::Alerts::of(&world.store).page(AlertState::Open, None, 10).await.unwrap().rows[0]
            .count,
        6
    );
}

async fn failed_notifications_are_retried_and_permanent_failures_recorded(world: World) {
    let channel = world.channel("hook").await;
    world.rule(all_to("hook")).await;
    world.receiver.answers(503);
    world.failed("certificate/1", "web").await;
    world.settle().await;
    assert_eq!(world.receiver.taken().len(), 1);
    assert!(world.alerts.channel(channel).await.unwrap().row.last_error.unwrap().contains("503"));
    world.receiver.answers(200);
    world.passes(60_000_000);
    world.settle().await;
    assert_eq!(world.receiver.taken().len(), 1);
    assert_eq!(world.alerts.channel(channel).await.unwrap().row.last_error, None);
    // A permanent failure is not retried, and is reported.
    world.receiver.answers(404);
    world.failed("certificate/2", "db").await;
    world.settle().await;
    let dead = alerts::tables::Alerts::of(&world.store)
        .deliveries(DeliveryState::Dead, None, 10)
        .await
        .unwrap()
        .rows;
    assert!(dead[0].last_error.as_ref().unwrap().contains("404"), "{dead:?}");
    world.receiver.answers(200);
    world.receiver.taken();
    world.alerts.requeue(dead[0].id, "user:test").await.unwrap();
    world.settle().await;
    assert_eq!(titles(&world.receiver.taken()), ["raised db: the last run failed"]);
    // A disabled channel sends nothing, and no notification counts as sent.
    let config = json!({ "type": "webhook", "url": world.receiver.url, "secret": "0123456789abcdef" });
    let off = NewChannel { name: "hook".to_owned(), config, enabled: false };
    let revision = world.alerts.channel(channel).await.unwrap().row.revision;
    world.alerts.put_channel(Some((channel, revision)), off, "user:test").await.unwrap();
    world.failed("certificate/3", "x").await;
    world.settle().await;
    let dead = alerts::tables::Alerts::of(&world.store)
        .deliveries(DeliveryState::Dead, None, 10)
        .await
        .unwrap()
        .rows;
    assert!(dead[0].last_error.as_ref().unwrap().contains("disabled"), "{dead:?}");
    assert_eq!(world.receiver.taken(), []);
}

async fn failed_channel_receives_raised_and_resolved_messages_on_recovery(world: World) {
    world.channel("hook").await;
    world.rule(all_to("hook")).await;
    world.receiver.answers(503);
    let now = world.clock.now_us();
    world.issued("certificate/1", "web", now - 85 * DAY, now + 5 * DAY).await;
    world.settle().await;
    // The first attempt may have been delivered, and the notification is sent again. Its recipients also get the resolution, in
    // this order.
    world.issued("certificate/1", "web", now, now + 90 * DAY).await;
    world.settle().await;
    let tries = titles(&world.receiver.taken());
    assert!(!tries.is_empty() && tries.iter().all(|title| title.starts_with("raised")), "{tries:?}");
    world.receiver.answers(200);
    world.passes(3_600_000_000);
    world.settle().await;
    let sent = titles(&world.receiver.taken());
    assert_eq!(sent, ["raised web expires in 5 days", "resolved web expires in 5 days"]);
}

async fn unacknowledged_alerts_escalate_and_silenced_alerts_are_not_sent(world: World) {
    world.channel("hook").await;
    world.channel("boss").await;
    let escalate = Some(Escalation { after_seconds: 600, channels: vec!["boss".to_owned()] });
    world.rule(Rule { escalate, ..all_to("hook") }).await;
    world.failed("certificate/1", "one").await;
    world.failed("certificate/2", "two").await;
    world.settle().await;
    assert_eq!(world.receiver.taken().len(), 2);
    let open = alerts::tables::Alerts::of(&world.store).page(AlertState::Open, None, 10).await.unwrap().rows;
    let one = open.iter().find(|alert| alert.title.starts_with("one")).unwrap();
    world.alerts.acknowledge(one.id, "user:ann").await.unwrap();
    assert!(world.alerts.acknowledge(one.id, "user:ann").await.is_err());
    world.passes(601_000_000);
    world.settle().await;
    assert_eq!(titles(&world.receiver.taken()), ["escalated two: the last run failed"]);
    let now = world.clock.now_us();
    let when = Matcher { subjects: vec!["certificate/3".to_owned()], ..Matcher::default() };
    let silence = Silence { when, from_us: 0, until_us: now + DAY, reason: "move".to_owned() };
    world.alerts.put_silence(&silence, "user:ann").await.unwrap();
    world.failed("certificate/3", "three").await;
    world.settle().await;
    assert_eq!(world.receiver.taken(), []);
    assert!(
        alerts::tables::Alerts::of(&world.store)
            .page(AlertState::Open, None, 10)
            .await
            .unwrap()
            .rows
            .iter()
            .any(|a| a.silenced_by.is_some())
    );
}

async fn unreadable_events_are_skipped(world: World) {
    world.channel("hook").await;
    world.rule(all_to("hook")).await;
    let at_us = world.clock.now_us();
    for (kind, body) in [
        ("certificate.failed", "[]"),
        ("certificate.failed", "not JSON"),
        ("certificate.teleported", r#"{"to":"mars"}"#),
    ] {
        let subject = "certificate/1".to_owned();
        world.put(NewEvent { at_us, kind, subject, body: body.to_owned() }).await;
    }
    world.failed("certificate/2", "web").await;
    world.settle().await;
    assert_eq!(titles(&world.receiver.taken()), ["raised web: the last run failed"]);
}

async fn digest_rule_sends_one_message_a_day(world: World) {
    world.channel("hook").await;
    world.rule(Rule { digest: true, ..all_to("hook") }).await;
    for number in 0..3 {
        let name = format!("c{number}");
        world.failed(&format!("certificate/{number}"), &name).await;
    }
    world.settle().await;
    assert_eq!(world.receiver.taken(), []);
    world.passes(DAY);
    world.settle().await;
    let messages = world.receiver.taken();
    assert_eq!(titles(&messages), ["digest 3 alerts since the last digest"]);
    assert_eq!(messages[0].1["lines"].as_array().unwrap().len(), 3);
    world.passes(DAY);
    world.settle().await;
    assert_eq!(world.receiver.taken(), []);
    // The alerts of a rejected digest are sent one by one, after the time that the channel requests.
    world.failed("certificate/4", "c4").await;
    world.settle().await;
    world.receiver.answers(429);
    world.passes(DAY);
    world.settle().await;
    assert_eq!(titles(&world.receiver.taken()), ["digest 1 alert since the last digest"]);
    world.receiver.answers(200);
    world.passes(599_000_000);
    world.settle().await;
    assert_eq!(world.receiver.taken(), []);
    world.passes(2_000_000);
    world.settle().await;
    assert_eq!(titles(&world.receiver.taken()), ["raised c4: the last run failed"]);
}

async fn invalid_channels_and_rules_are_rejected(world: World) {
    let refused = async |config: Value| {
        let new = NewChannel { name: "n".to_owned(), config, enabled: true };
        world.alerts.put_channel(None, new, "user:test").await.unwrap_err().to_string()
    };
    for (config, why) in [
        (
            json!({ "type": "webhook", "url": "http://169.254.169.254/", "secret": "0123456789abcdef" }),
            "link-local",
        ),
        (json!({ "type": "webhook", "url": "http://h/", "secret": "short" }), "16"),
        (json!({ "type": "smtp", "host": "h", "from": "nonsense", "to": ["a@b"] }), "mail address"),
        (json!({ "type": "smtp", "host": "h", "from": "a@b", "to": [] }), "recipients"),
        (json!({ "type": "pigeon" }), "pigeon"),
    ] {
        let error = refused(config.clone()).await;
        assert!(error.contains(why), "{config}: {error}");
    }
    let rule = all_to("nobody");
    let error = world.alerts.put_rule(None, "r", &rule, "user:test").await.unwrap_err().to_string();
    assert!(error.contains("nobody"), "{error}");
}

testbed::on_both! { super::World:
    expiry_alert_is_sent_once_per_threshold
    repeated_alerts_are_counted_and_notified_once
    failed_notifications_are_retried_and_permanent_failures_recorded
    failed_channel_receives_raised_and_resolved_messages_on_recovery
    unacknowledged_alerts_escalate_and_silenced_alerts_are_not_sent
    unreadable_events_are_skipped
    digest_rule_sends_one_message_a_day
    invalid_channels_and_rules_are_rejected
}
