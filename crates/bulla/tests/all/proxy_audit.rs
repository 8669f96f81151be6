//! The audit log of many requests, when the proxy is killed.

use std::collections::HashSet;
use std::io::Write;
use std::net::TcpListener;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustls::{ServerConnection, StreamOwned};
use serde_json::Value;
use testbed::until_blocking;

use crate::proxy_gateway::{SECRET, World, exchange, head, server_config};
use crate::world::describe;

/// Requests that reach the server before the proxy is killed. `BULLA_AUDIT_REQUESTS=1000000` for a million.
const REQUESTS: usize = 20_000;
/// Requests of one step of the wait.
const STEP: usize = 1_000;
/// Concurrent clients, each with one connection.
const CLIENTS: usize = 16;

/// Requests that arrived at the server with the credential, by the number in their path.
type Arrived = Arc<Mutex<Vec<u32>>>;

/// Starts a server that keeps connections open.
fn server(world: &World, arrived: &Arrived) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (config, arrived) =
        (server_config(&world.fixture.path("up.pem"), &world.fixture.path("up.key")), Arc::clone(arrived));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (config, arrived) = (Arc::clone(&config), Arc::clone(&arrived));
            std::thread::spawn(move || {
                let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
                loop {
                    let head = String::from_utf8(head(&mut stream)).unwrap();
                    let Some(path) = head.split(' ').nth(1).filter(|_| head.ends_with("\r\n\r\n")) else {
                        return;
                    };
                    assert!(head.contains(SECRET), "{head}");
                    arrived.lock().unwrap().push(path.rsplit('/').next().unwrap().parse().unwrap());
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                    if stream.write_all(answer).and_then(|()| stream.flush()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

#[test]
fn no_injected_credential_is_missing_in_the_audit_log_after_sigkill_under_load() {
    let wanted = std::env::var("BULLA_AUDIT_REQUESTS").map_or(REQUESTS, |text| text.parse().unwrap());
    let (mut world, arrived) = (World::new(), Arrived::default());
    world.port = server(&world, &arrived);
    let text = world.audited();
    let proxy = world.start(&text);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let stream = exchange(&proxy, "ci", &format!("CONNECT localhost:{}", world.port));
                let mut stream = world.intercepted(stream);
                let mut is_answered = || {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let request =
                        format!("GET /repos/{number} HTTP/1.1\r\nHost: localhost:{}\r\n\r\n", world.port);
                    stream.write_all(request.as_bytes()).is_ok()
                        && head(&mut stream).starts_with(b"HTTP/1.1 200")
                };
                // Ends when the proxy is killed.
                while is_answered() {}
            });
        }
        // In steps, so that a longer run has more time.
        for step in (0..wanted).step_by(STEP).chain([wanted]) {
            until_blocking("the requests have arrived", || arrived.lock().unwrap().len() >= step);
        }
        let mut kill = Command::new("kill");
        assert!(kill.args(["-KILL", &proxy.process_id().to_string()]).status().unwrap().success());
    });
    drop(proxy);
    let audit = std::fs::read_to_string(world.fixture.path("audit.jsonl")).unwrap();
    let audited: HashSet<u32> = audit
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|event| event["details"]["credentials"][0]["name"].is_string())
        .map(|event| event["details"]["path"].as_str().unwrap().rsplit('/').next().unwrap().parse().unwrap())
        .collect();
    let arrived = arrived.lock().unwrap();
    let missing: Vec<&u32> = arrived.iter().filter(|number| !audited.contains(number)).collect();
    assert!(missing.is_empty(), "{} of {} are missing: {missing:?}", missing.len(), arrived.len());
    // The next start continues the chain after the last complete event.
    drop(world.start(&text));
    let verified = world.verify();
    assert!(verified.status.success(), "{}", describe(&verified));
}
