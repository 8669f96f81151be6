//! Floods: connections, HTTP/2 frames, compressed bodies, nested bodies, requests.

use std::io::Read;
use std::process::Command;

use super::client::Tls;
use super::{Fixture, Outcome};
use crate::world::connect_from;

/// Requests sent to each listener by another client.
const OTHERS: usize = 10;
/// Maximum memory growth during a flood, in KiB.
const MEMORY_KIB_MAX: u64 = 64 << 10;

pub(super) fn crowd(fixture: &Fixture) -> Outcome {
    /// Connections from each of four addresses. One address alone could fill the listener.
    const EACH: usize = 64;
    let mut held = Vec::new();
    for host in 1..=4 {
        for _ in 0..EACH {
            if let Ok(mut tls) = Tls::connect(host, fixture.credentials, &[b"http/1.1"])
                && tls.send(b"GET /info HTTP/1.1\r\nhost: x\r\n").is_ok()
            {
                held.push(tls);
            }
        }
    }
    let silent: Vec<_> = (0..EACH).filter_map(|_| connect_from(5, fixture.house.port).ok()).collect();
    let answered = fixture.answered(OTHERS);
    let done = format!("{} connections from 4 addresses, {} silent sockets", 4 * EACH, silent.len());
    drop((held, silent));
    Outcome {
        attack: "connection crowd",
        done,
        bound: format!("{OTHERS} of {OTHERS} others answered by each listener"),
        counted: format!("{answered} answered"),
        held: answered == OTHERS,
    }
}

/// Encodes an HTTP/2 frame (RFC 9113 section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut all = vec![length[1], length[2], length[3], kind, flags];
    all.extend(stream.to_be_bytes());
    all.extend(payload);
    all
}

pub(super) fn resets(fixture: &Fixture) -> Outcome {
    const STREAMS: u32 = 20_000;
    const HEADERS: u8 = 1;
    const RST_STREAM: u8 = 3;
    const SETTINGS: u8 = 4;
    // GET, https, "/healthz", from the static table and as a literal (RFC 7541). Flags: END_STREAM and END_HEADERS.
    let head = [&[0x82, 0x87, 0x04, 0x08][..], b"/healthz", &[0x41, 0x01, b'x']].concat();
    let mut tls = Tls::connect(1, fixture.house.port, &[b"h2"]).unwrap();
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &[]));
    let mut sent = 0;
    for stream in (0..STREAMS).map(|number| 2 * number + 1) {
        bytes.extend(frame(HEADERS, 0x05, stream, &head));
        bytes.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
        if bytes.len() > 16 << 10 {
            if tls.send(&bytes).is_err() {
                break;
            }
            bytes.clear();
        }
        sent += 1;
    }
    let closed = tls.send(&bytes).is_err() || tls.is_closed();
    let answered = fixture.answered(OTHERS);
    Outcome {
        attack: "HTTP/2 rapid reset",
        done: format!("{sent} streams opened and reset on one connection"),
        bound: format!("closed; {OTHERS} of {OTHERS} others answered"),
        counted: format!("closed: {closed}; {answered} answered"),
        held: closed && answered == OTHERS,
    }
}

pub(super) fn gzip(fixture: &Fixture) -> Outcome {
    const UNPACKED_BYTES: usize = 256 << 20;
    let script = format!("head -c {UNPACKED_BYTES} /dev/zero | gzip -1");
    let packed = Command::new("sh").args(["-c", &script]).output().unwrap().stdout;
    let before = fixture.memory_kib().1;
    let mut statuses = Vec::new();
    for (port, path) in [(fixture.house.port, "/api/v1/tokens"), (fixture.credentials, "/api/v1/data")] {
        let mut tls = Tls::connect(1, port, &[b"http/1.1"]).unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-encoding: gzip\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            fixture.token,
            packed.len()
        );
        tls.send(head.as_bytes()).unwrap();
        let _ = tls.send(&packed);
        statuses.push(tls.status().unwrap_or(0));
    }
    let grown = fixture.memory_kib().0.saturating_sub(before);
    // Status 0: closed without a response.
    let refused = statuses.iter().all(|status| *status == 0 || (400..500).contains(status));
    Outcome {
        attack: "gzip bomb",
        done: format!("2 bodies of {} KiB that unpack to {} MiB", packed.len() >> 10, UNPACKED_BYTES >> 20),
        bound: format!("refused; {} MiB more memory", MEMORY_KIB_MAX >> 10),
        counted: format!("{statuses:?}; {} MiB more", grown >> 10),
        held: refused && grown <= MEMORY_KIB_MAX,
    }
}

pub(super) fn deep_json(fixture: &Fixture) -> Outcome {
    const DEPTH: usize = 500_000;
    let mut statuses = Vec::new();
    let body = "[".repeat(DEPTH);
    let nested = format!("{}1{}", "{\"a\":".repeat(DEPTH / 5), "}".repeat(DEPTH / 5));
    for (port, path) in [(fixture.house.port, "/api/v1/tokens"), (fixture.credentials, "/api/v1/data")] {
        for body in [&body, &nested] {
            let mut tls = Tls::connect(1, port, &[b"http/1.1"]).unwrap();
            statuses.push(tls.json(&fixture.token, "POST", path, body).unwrap_or(0));
        }
    }
    let answered = fixture.answered(OTHERS);
    let refused = statuses.iter().all(|status| *status == 0 || (400..500).contains(status));
    Outcome {
        attack: "deep JSON",
        done: format!("{} bodies, up to {DEPTH} levels", statuses.len()),
        bound: format!("refused; {OTHERS} of {OTHERS} others answered"),
        counted: format!("{statuses:?}; {answered} answered"),
        held: refused && answered == OTHERS,
    }
}

pub(super) fn nonces(fixture: &Fixture) -> Outcome {
    const NONCES: usize = 100_000;
    /// Requests written before their responses are read.
    const AHEAD: usize = 500;
    let before = fixture.memory_kib().1;
    let mut tls = Tls::connect(1, fixture.house.port, &[b"http/1.1"]).unwrap();
    let some = "HEAD /acme/new-nonce HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(AHEAD);
    let (mut given, mut refused) = (0, 0);
    for _ in 0..NONCES / AHEAD {
        tls.send(some.as_bytes()).unwrap();
        let (mut found, mut text) = (0, Vec::new());
        let mut buffer = vec![0; 64 << 10];
        while found < AHEAD {
            let length = tls.0.read(&mut buffer).unwrap();
            assert!(length > 0, "closed after {given} nonces");
            text.extend_from_slice(&buffer[..length]);
            // Responses to HEAD have no body: each one ends with its head.
            let ended = text.windows(4).rposition(|end| end == b"\r\n\r\n").map_or(0, |at| at + 4);
            let heads = String::from_utf8_lossy(&text[..ended]).into_owned();
            let ok = heads.matches("HTTP/1.1 200").count();
            let others = heads.matches("HTTP/1.1 ").count() - ok;
            (given, refused) = (given + ok, refused + others);
            found += ok + others;
            text.drain(..ended);
        }
    }
    let grown = fixture.memory_kib().1.saturating_sub(before);
    Outcome {
        attack: "100,000 nonces",
        done: format!("{NONCES} requests of one client"),
        bound: format!("each answered, or refused by its rate; {} MiB more memory", MEMORY_KIB_MAX >> 10),
        counted: format!("{given} given, {refused} refused; {} MiB more", grown >> 10),
        held: given + refused == NONCES && given > 0 && grown <= MEMORY_KIB_MAX,
    }
}
