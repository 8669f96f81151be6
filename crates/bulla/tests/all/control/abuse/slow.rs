//! Slow clients: request heads, request bodies and responses that do not end.

use std::io::Read;

use super::client::Tls;
use super::{Fixture, Outcome};

/// Slow clients per listener.
const CLIENTS: usize = 10;
/// Requests sent to each listener by another client meanwhile.
const OTHERS: usize = 5;

pub(super) fn heads(fixture: &Fixture) -> Outcome {
    let ports = [fixture.house.port, fixture.credentials];
    let mut held: Vec<Tls> = Vec::new();
    for port in ports {
        for _ in 0..CLIENTS {
            let mut tls = Tls::connect(1, port, &[b"http/1.1"]).unwrap();
            tls.send(b"GET /info HTTP/1.1\r\nhost: x\r\nx-slow: ").unwrap();
            held.push(tls);
        }
    }
    let answered = fixture.answered(OTHERS);
    let closed = held.iter_mut().map(Tls::is_closed).filter(|closed| *closed).count();
    Outcome {
        attack: "slow header",
        done: format!("{} half heads, API and credentials", held.len()),
        bound: format!("all closed; {OTHERS} of {OTHERS} others answered"),
        counted: format!("{closed} closed; {answered} answered"),
        held: closed == 2 * CLIENTS && answered == OTHERS,
    }
}

pub(super) fn bodies(fixture: &Fixture) -> Outcome {
    let mut held: Vec<Tls> = Vec::new();
    for _ in 0..CLIENTS {
        let mut tls = Tls::connect(1, fixture.house.port, &[b"http/1.1"]).unwrap();
        let head = format!(
            "POST /api/v1/tokens HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: 1000\r\n\r\n{{\"name\": ",
            fixture.token
        );
        tls.send(head.as_bytes()).unwrap();
        held.push(tls);
    }
    let answered = fixture.answered(OTHERS);
    let closed = held.iter_mut().map(Tls::is_closed).filter(|closed| *closed).count();
    Outcome {
        attack: "slow body",
        done: format!("{} bodies of which 9 of 1,000 bytes come", held.len()),
        bound: format!("all closed; {OTHERS} of {OTHERS} others answered"),
        counted: format!("{closed} closed; {answered} answered"),
        held: closed == CLIENTS && answered == OTHERS,
    }
}

/// Number of values in a large lookup, and their size in bytes: 12 MB per response.
const VALUES: usize = 200;
const VALUE_BYTES: usize = 60_000;
/// Lookups whose responses are not read.
const LOOKUPS: usize = 10;
/// Maximum memory growth caused by unread responses, in KiB. It covers the budget of 16 MiB, the first response of each address
/// beyond the budget, and memory the allocator has not returned. Ten buffered responses would need 120 MB.
const MEMORY_KIB_MAX: u64 = 96 << 10;

pub(super) fn readers(fixture: &Fixture) -> Outcome {
    let mut writer = Tls::connect(9, fixture.credentials, &[b"http/1.1"]).unwrap();
    let names: Vec<String> = (0..VALUES).map(|number| format!("/large/{number}")).collect();
    for name in &names {
        let body =
            format!("{{\"name\":\"{name}\",\"type\":\"value\",\"value\":\"{}\"}}", "x".repeat(VALUE_BYTES));
        let status = writer.json(&fixture.token, "PUT", "/api/v1/data", &body).unwrap();
        assert_eq!(status, 200, "{name}");
    }
    let lookups: Vec<[&String; 1]> = names.iter().map(|name| [name]).collect();
    let body = serde_json::json!({ "lookups": lookups }).to_string();
    // Read this response completely, so that the memory to build one response is already allocated.
    assert_eq!(writer.json(&fixture.token, "POST", "/api/v1/lookup", &body).unwrap(), 200);
    drop(writer);
    let before = fixture.memory_kib().0;
    let mut held = Vec::new();
    for number in 0..LOOKUPS {
        let mut tls = Tls::connect(1 + number as u8 % 4, fixture.credentials, &[b"http/1.1"]).unwrap();
        let head = format!(
            "POST /api/v1/lookup HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            fixture.token,
            body.len()
        );
        tls.send(head.as_bytes()).unwrap();
        // The response has begun. The client reads no more of it.
        let _ = tls.0.read(&mut [0; 256]).unwrap();
        held.push(tls);
    }
    let answered = fixture.answered(OTHERS);
    // The growth of the peak.
    let grown = fixture.memory_kib().0.saturating_sub(before);
    let mut ended = 0;
    for tls in &mut held {
        ended += usize::from(tls.is_closed());
    }
    Outcome {
        attack: "slow reader",
        done: format!("{LOOKUPS} unread lookups of {} MB", VALUES * VALUE_BYTES / 1_000_000),
        bound: format!(
            "{} MiB more memory; all ended; {OTHERS} of {OTHERS} others answered",
            MEMORY_KIB_MAX >> 10
        ),
        counted: format!("{} MiB more; {ended} ended; {answered} answered", grown >> 10),
        held: grown <= MEMORY_KIB_MAX && ended == LOOKUPS && answered == OTHERS,
    }
}
