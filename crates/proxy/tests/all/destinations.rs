//! Rules on networks and ports apply to the dialed address.

use proxy::Action::{Intercept, Reject, Tunnel};
use proxy::{Action, Rules};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::limits::answering;
use crate::ways::plain;
use crate::world::{Client, Upstream, World, authority, exchange};

fn rules(default: Action, lists: &[(Action, &str)]) -> Rules {
    let mut rules = Rules::new(default);
    for (action, pattern) in lists {
        rules.add(&[(*pattern).to_owned()], *action).unwrap();
    }
    rules
}

#[tokio::test(flavor = "multi_thread")]
async fn name_is_rejected_when_its_address_is_rejected() {
    let (port, other) = (plain().await, plain().await);
    let (_, root) = authority();
    let at_port = format!("127.0.0.0/8:{port}");
    for listed in ["localhost", "b.example"] {
        // A rule for the name does not override the rule for the address.
        let lists = [(Reject, at_port.as_str()), (Reject, "::1"), (Intercept, listed)];
        let world = World::new(&root, |options| options.rules = rules(Intercept, &lists)).await;
        for host in ["localhost", "127.0.0.1", "127.0.0.2", "[::ffff:127.0.0.1]"] {
            let full = format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}\r\n\r\n");
            let response = exchange(&mut world.tcp().await, &full).await;
            assert!(response.starts_with("HTTP/1.1 403"), "in full, {host}: {response}");
            let (mut response, mut stream) = world.connect(&format!("{host}:{port}")).await;
            if response.starts_with("HTTP/1.1 200") {
                response = exchange(&mut stream, &format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
            }
            assert!(response.starts_with("HTTP/1.1 403"), "CONNECT, {host}: {response}");
        }
        let mut stream = world.tcp().await;
        stream.write_all(&[5, 1, 0, 5, 1, 0, 3, 9]).await.unwrap();
        stream.write_all(b"localhost").await.unwrap();
        stream.write_all(&port.to_be_bytes()).await.unwrap();
        let mut reply = [0; 4];
        stream.read_exact(&mut reply).await.unwrap();
        if reply[3] == 0 {
            stream.read_exact(&mut [0; 8]).await.unwrap();
            let response = exchange(&mut stream, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
            assert!(response.starts_with("HTTP/1.1 403"), "SOCKS5: {response}");
        }
        // The rule does not cover this port.
        let full = format!("GET http://127.0.0.1:{other}/ HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(exchange(&mut world.tcp().await, &full).await.starts_with("HTTP/1.1 200"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn name_is_tunneled_only_when_all_its_addresses_are() {
    let upstream = Upstream::start("localhost").await;
    let port = upstream.address.port();
    let is_passed_on = async |default, lists: &[(Action, &str)]| {
        let world = World::new(&upstream.root, |options| options.rules = rules(default, lists)).await;
        // This client trusts the upstream's root and not the proxy's.
        let direct = Client::of(&upstream.root, "http/1.1");
        let Ok(mut stream) = world.tls(&direct, &format!("localhost:{port}"), "localhost").await else {
            return false;
        };
        exchange(&mut stream, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.starts_with("HTTP/1.1 200")
    };
    let at_port = format!("localhost:{port}");
    assert!(is_passed_on(Intercept, &[(Tunnel, "127.0.0.0/8"), (Tunnel, "::1")]).await);
    assert!(is_passed_on(Intercept, &[(Tunnel, at_port.as_str())]).await);
    assert!(!is_passed_on(Intercept, &[(Tunnel, "localhost:1")]).await);
    assert!(!is_passed_on(Intercept, &[(Tunnel, "::1")]).await, "the other address is not in the list");
    assert!(!is_passed_on(Tunnel, &[(Intercept, "127.0.0.0/8")]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_rules_apply_to_open_connections() {
    let port = answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let (_, root) = authority();
    let world = World::new(&root, |_| {}).await;
    let request = format!("GET http://localhost:{port}/ HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut stream = world.tcp().await;
    assert!(exchange(&mut stream, &request).await.starts_with("HTTP/1.1 200"));
    let lists = [(Reject, "127.0.0.0/8"), (Reject, "::1"), (Intercept, "localhost")];
    world.running.change_rules(rules(Intercept, &lists), Default::default(), Default::default(), None);
    let response = exchange(&mut stream, &request).await;
    assert!(response.starts_with("HTTP/1.1 403"), "{response}");
}
