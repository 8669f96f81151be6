//! Witnesses receive every head in order, also after failures.

use std::time::Duration;

use audit::{AuditOptions, SyslogAddress, WebhookWitness, WitnessOptions};
use audit_proof::head;
use audit_proof::stored_heads::StoredHeads;
use callout::Posts;
use db::Cost;
use keys::Secret;
use outbound::guard::Guard;
use outbound::resolve::Resolver;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket, UnixDatagram};

use crate::fixture::Fixture;

impl Fixture {
    async fn event_kinds(&self) -> Vec<String> {
        let event_kinds = "-- test\nSELECT kind FROM outbox WHERE kind LIKE 'audit.witness%' ORDER BY id";
        let rows = self.store.rows(Cost::Walk, event_kinds, Vec::new()).await.unwrap();
        rows.into_iter().map(|mut row| row.text().unwrap()).collect()
    }

    async fn sign_another(&self) {
        self.write(1, 1).await;
        self.log.sign().await.unwrap();
    }
}

pub(crate) async fn witness_file_contains_each_head_once_despite_failures(fixture: Fixture) {
    let path = fixture.database.path("worm").join("heads.jsonl");
    let log = fixture.with_file(path.clone());
    fixture.sign_another().await;
    // The parent folder does not exist.
    log.send_to_witnesses().await.unwrap();
    fixture.sign_another().await;
    fixture.clock.advance(Duration::from_secs(11));
    log.send_to_witnesses().await.unwrap();
    assert_eq!(fixture.event_kinds().await, ["audit.witness_failing"], "once, not at each failure");
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    log.send_to_witnesses().await.unwrap();
    assert!(!path.exists(), "it waits before it tries again");
    fixture.clock.advance(Duration::from_secs(21));
    log.send_to_witnesses().await.unwrap();
    assert_eq!(fixture.event_kinds().await, ["audit.witness_failing", "audit.witness_recovered"]);
    fixture.sign_another().await;
    // Another process continues where this one stopped.
    let witness = WitnessOptions { file: Some(path.clone()), ..WitnessOptions::default() };
    let reopened = fixture.reopened(AuditOptions { witness, ..AuditOptions::default() }).await;
    reopened.send_to_witnesses().await.unwrap();
    reopened.send_to_witnesses().await.unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let heads = fixture.log.heads_after(0).await.unwrap();
    let lines: Vec<String> = heads.iter().map(head::line).collect();
    assert_eq!(text.lines().collect::<Vec<_>>(), lines);
    assert_eq!(StoredHeads::parse(&text).unwrap().signed, heads);
}

pub(crate) async fn deleted_heads_raise_a_witness_alert(fixture: Fixture) {
    let log = fixture.with_file(fixture.witness());
    for _ in 0..3 {
        fixture.sign_another().await;
        log.send_to_witnesses().await.unwrap();
    }
    for table in ["audit_heads", "audit_keys"] {
        fixture.store.execute(&format!("-- test\nDELETE FROM {table}"), Vec::new()).await.unwrap();
    }
    fixture.sign_another().await;
    log.send_to_witnesses().await.unwrap();
    assert_eq!(fixture.event_kinds().await, ["audit.witness_failing"]);
    let row = audit::tables::Heads::of(&fixture.store).witness("file").await.unwrap().unwrap();
    assert!(row.error.unwrap().contains("the witness has signed head 3"), "{:?}", row.sequence);
    assert_eq!(std::fs::read_to_string(fixture.witness()).unwrap().lines().count(), 3);
}

async fn syslog(fixture: &Fixture, address: &str) -> String {
    fixture.sign_another().await;
    let address: SyslogAddress = address.parse().unwrap();
    let witness = WitnessOptions { syslog: Some(address), ..WitnessOptions::default() };
    let log = fixture.with(AuditOptions { witness, ..AuditOptions::default() });
    log.send_to_witnesses().await.unwrap();
    assert_eq!(fixture.event_kinds().await, [""; 0], "the server has it");
    head::line(fixture.log.heads_after(0).await.unwrap().last().unwrap())
}

fn is_message(text: &str, head: &str) {
    assert!(text.starts_with("<109>1 2026-11-21T00:00:00Z - bulla - audit-head - {"), "{text}");
    assert!(text.ends_with(head), "{text}");
    // An auditor can parse the lines that the syslog server stores.
    assert_eq!(StoredHeads::parse(text).unwrap().signed.len(), 1);
}

#[tokio::test]
async fn heads_are_sent_over_udp_syslog() {
    let fixture = Fixture::sqlite().await;
    let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let head = syslog(&fixture, &format!("udp://{}", server.local_addr().unwrap())).await;
    let mut message = vec![0; 65_536];
    let length = server.recv(&mut message).await.unwrap();
    is_message(std::str::from_utf8(&message[..length]).unwrap(), &head);
}

#[tokio::test]
async fn heads_are_sent_over_tcp_syslog_and_closed_server_raises_alert() {
    let fixture = Fixture::sqlite().await;
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("tcp://{}", server.local_addr().unwrap());
    let reads = tokio::spawn(async move {
        let (mut stream, _) = server.accept().await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        stream.shutdown().await.unwrap();
        text
    });
    let head = syslog(&fixture, &address).await;
    let text = reads.await.unwrap();
    let (length, message) = text.split_once(' ').unwrap();
    assert_eq!(length.parse::<usize>().unwrap(), message.len());
    is_message(message, &head);
    // The server no longer listens.
    fixture.sign_another().await;
    let witness = WitnessOptions { syslog: Some(address.parse().unwrap()), ..WitnessOptions::default() };
    let log = fixture.with(AuditOptions { witness, ..AuditOptions::default() });
    log.send_to_witnesses().await.unwrap();
    assert_eq!(fixture.event_kinds().await, ["audit.witness_failing"]);
}

#[tokio::test]
async fn heads_are_sent_over_unix_socket_syslog() {
    let fixture = Fixture::sqlite().await;
    let path = fixture.database.path("log");
    let server = UnixDatagram::bind(&path).unwrap();
    let head = syslog(&fixture, &format!("unix:{}", path.display())).await;
    let mut message = vec![0; 65_536];
    let length = server.recv(&mut message).await.unwrap();
    is_message(std::str::from_utf8(&message[..length]).unwrap(), &head);
}

#[tokio::test]
async fn webhook_to_link_local_address_is_blocked_and_head_kept_for_retry() {
    let fixture = Fixture::sqlite().await;
    fixture.sign_another().await;
    let webhook = WebhookWitness {
        posts: Posts::new(Resolver::system().unwrap(), Guard::default()),
        url: "https://169.254.169.254/heads".to_owned(),
        secret: Secret::new("0123456789abcdef"),
        roots: None,
    };
    let witness = WitnessOptions { webhook: Some(webhook), ..WitnessOptions::default() };
    let log = fixture.with(AuditOptions { witness, ..AuditOptions::default() });
    log.send_to_witnesses().await.unwrap();
    assert_eq!(fixture.event_kinds().await, ["audit.witness_failing"]);
    let row = audit::tables::Heads::of(&fixture.store).witness("webhook").await.unwrap().unwrap();
    let error = row.error.unwrap();
    assert!(error.contains("link-local") || error.contains("metadata"), "{error}");
    assert_eq!(row.sequence, 0, "the head is sent again");
}
