//! Interoperability test of the follower with an independent log: the trees and tiles of Tessera. `.ci/interop ct` builds it.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ct::follow::{FollowOptions, Follower, LogPosition, StartPosition};
use ct::{DomainSet, Issuance, LogKey};
use fleet::ct::{CtAuthority, IssuedPair};
use outbound::http::Client;
use outbound::rate::Pace;
use outbound::resolve::Resolver;
use serde_json::json;
use store::Clock;

struct Tessera {
    process: Child,
    monitoring_url: String,
    submission_url: String,
    spki: Vec<u8>,
    _folder: tempfile::TempDir,
}

impl Tessera {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut process = Command::new("ct-log")
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("this test needs ct-log: .ci/interop ct builds it");
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let [monitoring, submission, spki] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("ct-log says {line:?}")
        };
        Self {
            process,
            monitoring_url: monitoring.to_owned(),
            submission_url: submission.to_owned(),
            spki: STANDARD.decode(spki).unwrap(),
            _folder: folder,
        }
    }

    /// Adds entries. Returns once all of them are in the published tree.
    fn add(&self, entries: &[serde_json::Value]) {
        let body = serde_json::to_vec(entries).unwrap();
        let host = self.monitoring_url.trim_start_matches("http://").trim_end_matches('/');
        let mut stream = TcpStream::connect(host).unwrap();
        let head = format!(
            "POST /add HTTP/1.1\r\nHost: {host}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&body).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

impl Drop for Tessera {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn precertificate(pair: &IssuedPair) -> serde_json::Value {
    json!({
        "tbs": STANDARD.encode(&pair.tbs), "precertificate": STANDARD.encode(&pair.precertificate),
        "issuer_key_hash": STANDARD.encode(pair.issuer_key_hash), "issuer": STANDARD.encode(&pair.issuer),
    })
}

fn certificate(pair: &IssuedPair) -> serde_json::Value {
    json!({ "certificate": STANDARD.encode(&pair.certificate), "issuer": STANDARD.encode(&pair.issuer) })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tessera_log_is_followed_and_verified_as_it_grows() {
    let log = Tessera::start();
    let authority = CtAuthority::new(1).unwrap();
    let now = Clock::system().now_seconds();
    let other = authority.issue(&["www.other.example"], now, 90).unwrap();
    let key = LogKey::new(&log.submission_url, &log.spki).unwrap();
    let client = Client::new(&Resolver::with_upstreams(Vec::new()), &outbound::http::Options::default());
    let options = FollowOptions {
        start: StartPosition::Beginning,
        partial_wait_max: Duration::ZERO,
        tiles_per_step: 1,
        pace: Pace::default(),
        ..FollowOptions::default()
    };
    let follower = Follower::new(key, &log.monitoring_url, client.unwrap(), options, Clock::system());
    let domains = DomainSet::compile(["ours.example"], 5).unwrap();

    let mut position: Option<LogPosition> = None;
    let (mut read, mut logged) = (0, 0);
    // Additions that end within a tile, at its end, beyond it, and several tiles later.
    for (round, count) in [1, 100, 155, 1, 700].into_iter().enumerate() {
        let ours = authority.issue(&[&format!("round-{round}.ours.example")], now, 90).unwrap();
        let mut entries = vec![if round % 2 == 0 { precertificate(&ours) } else { certificate(&ours) }];
        entries.extend(
            (1..count).map(|n| if n % 3 == 0 { certificate(&other) } else { precertificate(&other) }),
        );
        log.add(&entries);
        logged += count as u64;
        let mut found = Vec::new();
        loop {
            let step = follower.step(position.as_ref(), &domains).await.unwrap();
            read += step.entries;
            assert_eq!(step.unreadable, 0);
            found.extend(step.matches);
            position = Some(step.position);
            if !step.more {
                break;
            }
        }
        assert_eq!((read, position.as_ref().unwrap().behind()), (logged, 0), "round {round}");
        assert_eq!(found.len(), 1, "round {round}");
        assert_eq!(found[0].issuance.id, Issuance::from_der(&ours.certificate).id);
    }
}
