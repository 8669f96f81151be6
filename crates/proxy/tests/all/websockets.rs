//! WebSockets requested over HTTP/2 (RFC 8441), mostly from an HTTP/1.1 upstream.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use http_relay::access_log::AccessLog;
use hyper::body::Incoming;
use hyper::ext::Protocol;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use proxy::{Action, Options};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::echo::{CLOSE, MASK, TEXT, read_frame, write_frame};
use crate::requests::until;
use crate::world::{
    AnyBody, Client, Http2, Speaks, TIMEOUT, Upstream, World, answer, exchange, get, head, http2,
};

fn upgrade_request(url: &str, protocol: &'static str) -> Request<AnyBody> {
    Request::connect(url)
        .extension(Protocol::from_static(protocol))
        .header("sec-websocket-version", "13")
        .header("sec-websocket-protocol", "chat")
        .body(Full::<Bytes>::default().boxed_unsync())
        .unwrap()
}

async fn send(sender: &Http2, request: Request<AnyBody>) -> Response<Incoming> {
    let mut sender = sender.clone();
    tokio::time::timeout(TIMEOUT, sender.send_request(request)).await.expect("an answer").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn websocket_frames_are_relayed_beside_other_http2_requests() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |_| {}).await;
    let target = format!("localhost:{}", upstream.address.port());
    let url = |path: &str| format!("https://{target}{path}");
    let stream = world.tls(&Client::of(&world.root, "h2"), &target, "localhost").await.unwrap();
    let (sender, _connection) = http2(stream).await;
    // The SETTINGS frame of the proxy has arrived with this response.
    let (status, reply) = answer(&sender, get(&url("/"))).await;
    assert!(status == 200 && reply.contains("HTTP/2"), "{reply}");
    let response = send(&sender, upgrade_request(&url("/ws"), "websocket")).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["sec-websocket-protocol"], "chat");
    assert!(!response.headers().contains_key("sec-websocket-accept"), "{:?}", response.headers());
    let mut stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    for word in ["one", "two", "three"] {
        write_frame(&mut stream, TEXT, word.as_bytes(), Some(MASK)).await.unwrap();
        let frame = tokio::time::timeout(TIMEOUT, read_frame(&mut stream)).await.expect("a frame");
        assert_eq!(frame, Some((TEXT, word.to_uppercase().into_bytes())));
        assert_eq!(answer(&sender, get(&url("/beside"))).await.0, 200, "others are not kept waiting");
    }
    write_frame(&mut stream, CLOSE, &[], Some(MASK)).await.unwrap();
    let frame = tokio::time::timeout(TIMEOUT, read_frame(&mut stream)).await.expect("a frame");
    assert_eq!(frame, Some((CLOSE, Vec::new())));
    let end = tokio::time::timeout(TIMEOUT, stream.read_u8()).await.expect("an end");
    assert!(end.is_err(), "the server has ended it");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_websocket_upgrade_is_not_reported_as_success() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |_| {}).await;
    let target = format!("localhost:{}", upstream.address.port());
    let stream = world.tls(&Client::of(&world.root, "h2"), &target, "localhost").await.unwrap();
    let (sender, _connection) = http2(stream).await;
    assert_eq!(answer(&sender, get(&format!("https://{target}/"))).await.0, 200);
    for (path, protocol, status) in [
        ("/", "websocket", 502),        // answered 200, by which a client would take it for one
        ("/ws-deaf", "websocket", 502), // the wrong key's digest
        ("/ws", "connect-udp", 405),
    ] {
        let (actual, reply) =
            answer(&sender, upgrade_request(&format!("https://{target}{path}"), protocol)).await;
        assert_eq!(actual, status, "{path} {protocol}: {reply}");
    }
}

/// Allows two connections to upstreams, and rejects one host.
fn two(options: &mut Options) {
    options.upstream_connections_max = 2;
    options.rules.add(&["refused.example".to_owned()], Action::Reject).unwrap();
}

/// Opens an HTTP/2 connection for `target` whose SETTINGS frame has arrived.
async fn known(world: &World, target: &str) -> Http2 {
    let stream = world.tls(&Client::of(&world.root, "h2"), target, "localhost").await.unwrap();
    let (sender, _connection) = http2(stream).await;
    // The proxy itself responds, without a connection to an upstream.
    assert_eq!(answer(&sender, get("https://refused.example/")).await.0, 403);
    sender
}

/// Repeats the request until it returns 200.
async fn until_slot_is_free(sender: &Http2, url: &str) {
    let upgrade_request =
        async { while send(sender, self::upgrade_request(url, "websocket")).await.status() != 200 {} };
    tokio::time::timeout(TIMEOUT, upgrade_request).await.expect("a place that is free again");
}

#[tokio::test(flavor = "multi_thread")]
async fn open_websockets_count_toward_the_upstream_connection_limit() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, two).await;
    let target = format!("localhost:{}", upstream.address.port());
    let url = format!("https://{target}/ws");
    let sender = known(&world, &target).await;
    let first = send(&sender, upgrade_request(&url, "websocket")).await;
    let second = send(&sender, upgrade_request(&url, "websocket")).await;
    assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 200));
    let mut stream = TokioIo::new(hyper::upgrade::on(first).await.unwrap());
    write_frame(&mut stream, TEXT, b"here", Some(MASK)).await.unwrap();
    assert!(tokio::time::timeout(TIMEOUT, read_frame(&mut stream)).await.unwrap().is_some());
    assert_eq!(send(&sender, upgrade_request(&url, "websocket")).await.status(), 503);
    drop(stream);
    until_slot_is_free(&sender, &url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reset_websockets_release_their_upstream_connection() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |options| {
        two(options);
        options.head_timeout = std::time::Duration::from_secs(3);
    })
    .await;
    let target = format!("localhost:{}", upstream.address.port());
    let url = format!("https://{target}/ws-silent");
    let sender = known(&world, &target).await;
    // Each dropped response resets its stream. Its slot is released although the upstream never sends data.
    for _ in 0..5 {
        until_slot_is_free(&sender, &url).await;
    }
}

/// Returns an HTTP/1.1 request for a WebSocket.
fn by_http1(target: &str, path: &str) -> String {
    let key = STANDARD.encode([7; 16]);
    format!(
        "GET {path} HTTP/1.1\r\nHost: {target}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
    )
}

/// ALPN of a server that supports only HTTP/2.
const HTTP2_ALONE: &[&str] = &["h2"];

/// Sends frames, reads their echoes, and closes the WebSocket.
async fn speaks(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    for word in ["one", "two", "three"] {
        write_frame(&mut stream, TEXT, word.as_bytes(), Some(MASK)).await.unwrap();
        let frame = tokio::time::timeout(TIMEOUT, read_frame(&mut stream)).await.expect("a frame");
        assert_eq!(frame, Some((TEXT, word.to_uppercase().into_bytes())));
    }
    write_frame(&mut stream, CLOSE, &[], Some(MASK)).await.unwrap();
    let frame = tokio::time::timeout(TIMEOUT, read_frame(&mut stream)).await.expect("a frame");
    assert_eq!(frame, Some((CLOSE, Vec::new())));
    let end = tokio::time::timeout(TIMEOUT, stream.read_u8()).await.expect("an end");
    assert!(end.is_err(), "the server has ended it");
}

#[tokio::test(flavor = "multi_thread")]
async fn websocket_to_an_http2_only_server_uses_extended_connect() {
    let upstream =
        Upstream::start_with(Speaks { alpn: HTTP2_ALONE, websockets: true, ..Speaks::default() }).await;
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let world = World::new(&upstream.root, |options| {
        options.requests.access_log = Some(AccessLog::File(log.clone()));
    })
    .await;
    let target = format!("localhost:{}", upstream.address.port());
    let mut stream = world.tls(&Client::fresh(&world.root), &target, "localhost").await.unwrap();
    let reply = exchange(&mut stream, &by_http1(&target, "/ws")).await;
    assert!(reply.starts_with("HTTP/1.1 101"), "{reply}");
    let reply = reply.to_ascii_lowercase();
    // The digest of the key above (RFC 6455 section 4.2.2).
    let key = format!("{}258EAFA5-E914-47DA-95CA-C5AB0DC85B11", STANDARD.encode([7; 16]));
    let accept = STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, key.as_bytes())).to_ascii_lowercase();
    for header in ["upgrade: websocket", "connection: upgrade", "sec-websocket-protocol: chat"] {
        assert!(reply.contains(&format!("{header}\r\n")), "{header}: {reply}");
    }
    assert!(reply.contains(&format!("sec-websocket-accept: {accept}\r\n")), "{reply}");
    speaks(stream).await;
    assert_eq!(upstream.made(), 2, "by HTTP/1.1 first, which it does not speak");
    // Over HTTP/2, concurrently with another request on the same connection.
    let stream = world.tls(&Client::of(&world.root, "h2"), &target, "localhost").await.unwrap();
    let (sender, _connection) = http2(stream).await;
    assert_eq!(answer(&sender, get(&format!("https://{target}/"))).await.0, 200);
    let response = send(&sender, upgrade_request(&format!("https://{target}/ws"), "websocket")).await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["sec-websocket-protocol"]),
        (200, &"chat".parse().unwrap())
    );
    assert!(!response.headers().contains_key("sec-websocket-accept"), "{:?}", response.headers());
    speaks(TokioIo::new(hyper::upgrade::on(response).await.unwrap())).await;
    // The proxy forwards another response of the server, and does not retry over HTTP/1.1.
    let made = upstream.made();
    let refused = send(&sender, upgrade_request(&format!("https://{target}/ws-no"), "websocket")).await;
    assert_eq!((refused.status().as_u16(), upstream.made()), (403, made + 1));
    let mut stream = world.tls(&Client::fresh(&world.root), &target, "localhost").await.unwrap();
    let reply = exchange(&mut stream, &by_http1(&target, "/ws-no")).await;
    assert!(reply.starts_with("HTTP/1.1 403") && upstream.made() == made + 2, "{reply}");
    let lines = until(&log, |text| text.lines().count() == 5).await;
    for line in lines.lines().filter(|line| line.contains("/ws")) {
        assert!(line.contains("\"upstream\":\"new\""), "on connections of their own: {line}");
    }
    assert_eq!(lines.matches("/ws").count(), 4, "{lines}");
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_only_server_without_extended_connect_causes_502() {
    let upstream = Upstream::start_with(Speaks { alpn: HTTP2_ALONE, ..Speaks::default() }).await;
    let world = World::new(&upstream.root, |_| {}).await;
    let target = format!("localhost:{}", upstream.address.port());
    // The second time, the proxy already knows that the server does not support WebSockets.
    for _ in 0..2 {
        let mut stream = world.tls(&Client::fresh(&world.root), &target, "localhost").await.unwrap();
        let reply = exchange(&mut stream, &by_http1(&target, "/ws")).await;
        assert!(reply.starts_with("HTTP/1.1 502") && reply.contains("http_upgrade_failed"), "{reply}");
        let stream = world.tls(&Client::of(&world.root, "h2"), &target, "localhost").await.unwrap();
        let (sender, _connection) = http2(stream).await;
        assert_eq!(answer(&sender, get(&format!("https://{target}/"))).await.0, 200);
        let (status, reply) =
            answer(&sender, upgrade_request(&format!("https://{target}/ws"), "websocket")).await;
        assert!(status == 502 && reply.contains("RFC 8441"), "{status} {reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn websockets_to_http2_only_servers_count_toward_the_limit() {
    let upstream =
        Upstream::start_with(Speaks { alpn: HTTP2_ALONE, websockets: true, ..Speaks::default() }).await;
    let world = World::new(&upstream.root, |options| {
        two(options);
        options.head_timeout = std::time::Duration::from_secs(3);
    })
    .await;
    let target = format!("localhost:{}", upstream.address.port());
    let url = format!("https://{target}/ws-silent");
    let sender = known(&world, &target).await;
    let (first, second) = (
        send(&sender, upgrade_request(&url, "websocket")).await,
        send(&sender, upgrade_request(&url, "websocket")).await,
    );
    assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 200));
    assert_eq!(send(&sender, upgrade_request(&url, "websocket")).await.status(), 503);
    drop((first, second));
    for _ in 0..5 {
        until_slot_is_free(&sender, &url).await;
    }
}

/// Returns whether the proxy accepts another client.
async fn lets_in(world: &World, target: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect(world.running.address).await else { return false };
    // The proxy may already have closed the connection.
    let _ = stream.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes()).await;
    head(&mut stream).await.starts_with("HTTP/1.1 200")
}

#[tokio::test(flavor = "multi_thread")]
async fn client_websocket_counts_as_a_connection_until_it_ends() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |options| options.connections_max = 1).await;
    let target = format!("localhost:{}", upstream.address.port());
    let mut stream = world.tls(&Client::fresh(&world.root), &target, "localhost").await.unwrap();
    let reply = exchange(&mut stream, &by_http1(&target, "/ws")).await;
    assert!(reply.starts_with("HTTP/1.1 101"), "{reply}");
    for word in ["one", "two", "three"] {
        write_frame(&mut stream, TEXT, word.as_bytes(), Some(MASK)).await.unwrap();
        let frame = tokio::time::timeout(TIMEOUT, read_frame(&mut stream)).await.expect("a frame");
        assert_eq!(frame, Some((TEXT, word.to_uppercase().into_bytes())));
        assert!(!lets_in(&world, &target).await, "there is no place for another");
    }
    drop(stream);
    let connecting = async { while !lets_in(&world, &target).await {} };
    tokio::time::timeout(TIMEOUT, connecting).await.expect("its place is free again");
}
