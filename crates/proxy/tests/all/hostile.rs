//! Hostile and faulty clients.

use std::time::Duration;

use proxy::certificate_store::{CertificateStore, KeyRecipients, LeafId, NewNameLimit};
use proxy::mint::{LeafKeyKind, LeafKeySharing, LeafKeys, Minter};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use x509::HostOrIp;

use crate::world::{Client, TIMEOUT, Upstream, World, authority, exchange, head, now};

#[tokio::test(flavor = "multi_thread")]
async fn client_hello_may_arrive_byte_by_byte() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |_| {}).await;
    let (_, mut stream) = world.connect(&format!("localhost:{}", upstream.address.port())).await;
    stream.set_nodelay(true).unwrap();
    let config = Arc::clone(Client::of(&world.root, "http/1.1").0.config());
    let mut tls = ClientConnection::new(config, ServerName::try_from("localhost").unwrap()).unwrap();
    let mut hello = Vec::new();
    tls.write_tls(&mut hello).unwrap();
    for byte in hello {
        stream.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let answer = tokio::time::timeout(TIMEOUT, stream.read_u8()).await.unwrap().unwrap();
    assert_eq!(answer, 22, "a handshake record");
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_and_slow_clients_are_closed_after_the_timeout() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |options| {
        options.head_timeout = Duration::from_millis(200);
        options.handshake_timeout = Duration::from_millis(200);
    })
    .await;
    let ends = async |mut stream: tokio::net::TcpStream| {
        let mut rest = Vec::new();
        tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut rest)).await.expect("it is closed").ok();
    };
    ends(world.tcp().await).await;
    ends(world.connect("localhost:1").await.1).await;
    // Incomplete HTTP/2 prefaces.
    for opening in [&b"PRI"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n"] {
        let mut stream = world.tcp().await;
        let _ = stream.write_all(opening).await;
        ends(stream).await;
    }
    let (_, mut half) = world.connect("localhost:1").await;
    // On a slow machine, the proxy may already have closed the connection.
    let _ = half.write_all(&[22, 3, 1, 2, 0, 1]).await;
    ends(half).await;
    let mut slow = world.tcp().await;
    let _ = slow.write_all(b"GET http://localhost:1/ HTTP/1.1\r\nHost: a").await;
    ends(slow).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_requests_are_rejected() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |_| {}).await;
    let client = Client::of(&world.root, "http/1.1");
    let target = format!("localhost:{}", upstream.address.port());
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x..bad.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, x\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\na",
        "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n folded: b\r\n\r\n",
    ] {
        let mut stream = world.tls(&client, &target, "localhost").await.unwrap();
        let response = exchange(&mut stream, request).await;
        assert!(response.starts_with("HTTP/1.1 400") || response.is_empty(), "{request:?}: {response}");
    }
}

/// Content-Length with chunks, and lines without CR (RFC 9112 sections 2.2, 6.1 and 7.1).
#[tokio::test(flavor = "multi_thread")]
async fn content_length_with_chunks_and_bare_line_feeds_are_rejected() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |_| {}).await;
    let client = Client::of(&world.root, "http/1.1");
    let target = format!("localhost:{}", upstream.address.port());
    let post =
        |lines: &str, body: &str| format!("POST / HTTP/1.1\r\nHost: {target}\r\n{lines}\r\n\r\n{body}");
    let chunked = |body: &str| post("Transfer-Encoding: chunked", body);
    for request in [
        post("Content-Length: 5\r\nTransfer-Encoding: chunked", "0\r\n\r\n"),
        post("Transfer-Encoding: chunked\r\nContent-Length: 5", "0\r\n\r\n"),
        post("Transfer-Encoding: chunked\r\ncontent-length: 0", "0\r\n\r\n"),
        format!("GET / HTTP/1.1\nHost: {target}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: {target}\nX: a\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: {target}\r\n\n"),
        format!("GET / HTTP/1.1\nHost: {target}\n\n"),
        chunked("1;a\nb\r\na\r\n0\r\n\r\n"),
        chunked("1\na\r\n0\r\n\r\n"),
        chunked("1\r\na\n0\r\n\r\n"),
        chunked("1\r\na\r\n0\r\nX-Sum: 7\n\r\n"),
        chunked("1\r\na\r\n0\r\nX-Sum: 7\r\n\n"),
    ] {
        // Sends the request alone and after a valid request, over TLS and over plain TCP.
        let mut stream = world.tls(&client, &target, "localhost").await.unwrap();
        let response = exchange(&mut stream, &request).await;
        assert!(response.starts_with("HTTP/1.1 400"), "{request:?}: {response}");
        let mut stream = world.tls(&client, &target, "localhost").await.unwrap();
        let right = format!("GET / HTTP/1.1\r\nHost: {target}\r\n\r\n");
        let response = exchange(&mut stream, &format!("{right}{request}")).await;
        assert!(response.starts_with("HTTP/1.1 200"), "{request:?}: {response}");
        let response = head(&mut stream).await;
        assert!(response.starts_with("HTTP/1.1 400"), "the second, {request:?}: {response}");
        let response =
            exchange(&mut world.tcp().await, &request.replacen(" / ", " http://localhost:1/ ", 1)).await;
        assert!(
            response.starts_with("HTTP/1.1 4") || response.starts_with("HTTP/1.1 502"),
            "{request:?}: {response}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn new_names_of_one_client_are_limited() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |options| {
        options.new_names_per_minute = 1;
        options.new_names_burst = 3;
    })
    .await;
    let client = Client::of(&world.root, "http/1.1");
    let target = format!("127.0.0.1:{}", upstream.address.port());
    let mut refused = 0;
    for host in 0..20 {
        refused += u64::from(world.tls(&client, &target, &format!("h{host}.example")).await.is_err());
    }
    assert!(refused >= 15, "{refused}");
    assert_eq!(world.running.store().counts().refused, refused);
    world.tls(&client, &target, "h0.example").await.expect("one that is there is given to everybody");
}

#[tokio::test]
async fn many_names_of_one_client_use_bounded_minting_and_memory() {
    const NAMES: u64 = 100_000;
    const BURST: u32 = 2_000;
    const BYTES_MAX: u64 = 512 << 10;
    let (authority, _) = authority();
    let minter = Minter::new(authority, Arc::new(LeafKeys::new().unwrap()), Duration::from_secs(86_400));
    let store = CertificateStore::new(BYTES_MAX, NewNameLimit::new(1, BURST));
    let id = |number: u64| LeafId {
        name: HostOrIp::parse(&format!("host{number}.example")).unwrap(),
        authority: x509::Fingerprint::of(b"one"),
        kind: LeafKeyKind::P256,
        keys: LeafKeySharing::Shared,
        user: None,
        profile: "default".into(),
        mirrored: None,
        key_recipients: KeyRecipients::Nobody,
    };
    let fetch = async |client: [u8; 4], number: u64| {
        let (minter, id) = (minter.clone(), id(number));
        let name = id.name.clone();
        let mint = move || async move { minter.mint(&name, LeafKeyKind::P256, now()).await };
        store.fetch(&id, std::net::IpAddr::from(client), now(), mint).await
    };
    for number in 0..NAMES {
        let _ = fetch([10, 0, 0, 1], number).await;
    }
    let counts = store.counts();
    assert_eq!(counts.minted + counts.refused, NAMES);
    let in_an_hour = u64::from(BURST) + 60;
    assert!((u64::from(BURST)..in_an_hour).contains(&counts.minted), "{counts:?}");
    let cached = (0..in_an_hour).filter_map(|number| store.cached(&id(number)));
    let bytes: usize = cached.map(|cached| cached.outcome.as_ref().unwrap().certified.cert[0].len()).sum();
    assert!(bytes as u64 <= BYTES_MAX && !store.is_empty(), "{bytes} octets of {}", store.len());
    fetch([10, 0, 0, 2], NAMES).await.expect("another client has its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_outside_the_allowed_networks_are_disconnected() {
    let upstream = Upstream::start("localhost").await;
    let world =
        World::new(&upstream.root, |options| options.clients = vec!["10.0.0.0/8".parse().unwrap()]).await;
    assert_eq!(head(&mut world.tcp().await).await, "");
}

#[tokio::test]
async fn leaf_keys_differ_between_cas_and_from_the_ca_key() {
    let name = HostOrIp::parse("same.example").unwrap();
    let mut seen = Vec::new();
    for _ in 0..2 {
        let (authority, root) = authority();
        let minter = Minter::new(authority, Arc::new(LeafKeys::new().unwrap()), Duration::from_secs(86_400));
        let leaf = minter.mint(&name, LeafKeyKind::P256, now()).await.unwrap();
        let leaf = x509::Certificate::parse(&leaf.certified.cert[0]).unwrap();
        let root = x509::Certificate::parse(&root).unwrap();
        assert_ne!(leaf.public_key.spki, root.public_key.spki, "never the authority's own");
        seen.push(leaf.public_key.spki);
    }
    assert_ne!(seen[0], seen[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn connect_inside_an_intercepted_connection_returns_405() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |_| {}).await;
    let client = Client::of(&world.root, "http/1.1");
    let target = format!("localhost:{}", upstream.address.port());
    let mut stream = world.tls(&client, &target, "localhost").await.unwrap();
    let response =
        exchange(&mut stream, "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n").await;
    assert!(response.starts_with("HTTP/1.1 405"), "{response}");
    assert_eq!(upstream.made(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn alternative_forms_of_an_address_match_the_same_rules() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |options| {
        options.rules.add(&["127.0.0.9".to_owned()], proxy::Action::Reject).unwrap();
    })
    .await;
    let (response, _) = world.connect("[::ffff:127.0.0.9]:443").await;
    assert!(response.starts_with("HTTP/1.1 403"), "{response}");
    let port = world.running.address.port();
    for (host, status) in [("127.0.0.1", 508), ("[::ffff:127.0.0.1]", 508), ("0.0.0.0", 403)] {
        let (_, mut stream) = world.connect(&format!("{host}:{port}")).await;
        let response = exchange(&mut stream, &format!("GET /x HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{host}: {response}");
    }
}

/// Requests from this machine, by each method that the proxy offers.
#[tokio::test(flavor = "multi_thread")]
async fn metadata_addresses_are_unreachable_by_every_method() {
    let (_, root) = crate::world::authority();
    let world = World::new(&root, |options| {
        options.rules.add(&["169.254.169.254".to_owned()], proxy::Action::Tunnel).unwrap();
    })
    .await;
    let is_refused = |response: &str| {
        response.starts_with("HTTP/1.1 403") && response.contains("destination_ip_prohibited")
    };
    for host in ["[fd00:ec2::254]", "100.100.100.200", "168.63.129.16", "[64:ff9b::a9fe:a9fe]", "0.0.0.0"] {
        let request = format!("GET http://{host}/latest HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let response = exchange(&mut world.tcp().await, &request).await;
        assert!(is_refused(&response), "{host}, in full: {response}");
        let (_, mut stream) = world.connect(&format!("{host}:80")).await;
        let upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n";
        let response =
            exchange(&mut stream, &format!("GET /ws HTTP/1.1\r\nHost: {host}\r\n{upgrade}\r\n")).await;
        assert!(is_refused(&response), "{host}, WebSocket behind CONNECT: {response}");
    }
    let (response, mut stream) = world.connect("169.254.169.254:80").await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    assert_eq!(head(&mut stream).await, "", "a tunnel that is closed");
    let mut stream = world.tcp().await;
    stream.write_all(&[5, 1, 0, 5, 1, 0, 1, 192, 0, 0, 192, 0, 80]).await.unwrap();
    stream.read_exact(&mut [0; 12]).await.unwrap();
    let response = exchange(&mut stream, "GET / HTTP/1.1\r\nHost: 192.0.0.192\r\n\r\n").await;
    assert!(is_refused(&response), "SOCKS5: {response}");
}
