//! Hostile HTTP/2 clients.

use std::time::Duration;

use data_encoding::HEXLOWER;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use proxy::Token;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::{AnyBody, Client, TIMEOUT, Upstream, World, exchange, http2};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// END_STREAM and END_HEADERS.
const WHOLE: u8 = 5;

/// Builds a frame (RFC 9113 section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Builds `GET http://bulla.proxy/` with the static table of RFC 7541 and a literal host.
fn request(stream: u32) -> Vec<u8> {
    let host = b"bulla.proxy";
    frame(HEADERS, WHOLE, stream, &[&[0x82, 0x86, 0x84, 0x01, host.len() as u8][..], host].concat())
}

/// Opens an HTTP/2 connection to the proxy itself.
async fn begun(world: &World) -> TcpStream {
    let mut stream = world.tcp().await;
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await.unwrap();
    stream
}

/// Asserts that the proxy still serves another client.
async fn assert_serves(world: &World) {
    let reply = exchange(&mut world.tcp().await, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_connect_behaves_like_http1_connect() {
    let upstream = Upstream::start("localhost").await;
    // SHA-256 of `token-of-bob`.
    const DIGEST: &str = "800480042268218663feef3ea54d81ed3f976c98c38d5fd7afbe22810ec16334";
    let world = World::new(&upstream.root, |options| {
        let digest = HEXLOWER.decode(DIGEST.as_bytes()).unwrap().try_into().unwrap();
        options.access.tokens = vec![Token { name: "bob".into(), digest }];
        options.rules.add(&["bad.example".to_owned()], proxy::Action::Reject).unwrap();
    })
    .await;
    let (sender, _connection) = http2(world.tcp().await).await;
    let connect = async |target: &str, token: Option<&str>| {
        let mut request = Request::builder().method(Method::CONNECT).uri(target);
        if let Some(token) = token {
            request = request.header("proxy-authorization", format!("Bearer {token}"));
        }
        let body: AnyBody = Full::<Bytes>::default().boxed_unsync();
        let response_future = sender.clone().send_request(request.body(body).unwrap());
        tokio::time::timeout(TIMEOUT, response_future).await.unwrap().unwrap()
    };
    let target = format!("localhost:{}", upstream.address.port());
    for token in [None, Some("token-of-eve")] {
        assert_eq!(connect(&target, token).await.status(), 407);
    }
    let token = Some("token-of-bob");
    assert_eq!(connect("bad.example:443", token).await.status(), 403);
    // Two concurrent tunnels in one connection do not mix their data.
    let client = Client::of(&world.root, "http/1.1");
    let mut streams = Vec::new();
    for _ in 0..2 {
        let response = connect(&target, token).await;
        assert_eq!(response.status(), 200);
        let tunnel = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
        streams.push(client.0.connect("localhost".try_into().unwrap(), tunnel).await.unwrap());
    }
    for (number, stream) in streams.iter_mut().enumerate() {
        let reply = exchange(stream, &format!("GET /{number} HTTP/1.1\r\nHost: {target}\r\n\r\n")).await;
        assert!(reply.contains(&format!("GET /{number} HTTP/1.1\n")), "{reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_rapid_reset_closes_the_connection() {
    const RESETS: u32 = 10_000;
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |_| {}).await;
    let (mut from, mut to) = begun(&world).await.into_split();
    let pair = |number| {
        let stream = 2 * number + 1;
        [request(stream), frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
    };
    let all: Vec<u8> = (0..RESETS).flat_map(pair).collect();
    // The proxy may close the connection before all frames are written.
    let sending = tokio::spawn(async move {
        let _ = to.write_all(&all).await;
        to
    });
    let mut reply = Vec::new();
    let read = tokio::time::timeout(TIMEOUT, from.read_to_end(&mut reply)).await;
    let _ = read.expect("it is closed, and not for its idleness");
    assert!(reply.len() < 1 << 20, "nothing of note is answered: {}", reply.len());
    drop(sending.await);
    assert_serves(&world).await;
}

/// Encodes one header as literal name and value (RFC 7541 section 6.2.2).
fn literal(name: &str, value: &str) -> Vec<u8> {
    [&[0, name.len() as u8][..], name.as_bytes(), &[value.len() as u8], value.as_bytes()].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn http1_smuggling_through_http2_headers_is_rejected() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |_| {}).await;
    let smuggled = b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    for (name, value) in [
        ("transfer-encoding", "chunked"),
        ("connection", "x-gone"),
        ("content-length", "3"),
        ("host", "a\r\nx: y"),
        ("x-a\r\nx-b", "1"),
        ("X-Upper", "1"),
        ("x", "1\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n"),
    ] {
        let mut stream = begun(&world).await;
        // Method POST, scheme http, path `/`.
        let mut block = vec![0x83, 0x86, 0x84, 0x01, host.len() as u8];
        block.extend_from_slice(host.as_bytes());
        block.extend(literal(name, value));
        let headers = frame(HEADERS, END_HEADERS, 1, &block);
        let data = frame(DATA, END_STREAM, 1, smuggled);
        let _ = stream.write_all(&[headers, data].concat()).await;
        // The proxy resets the stream or closes the connection.
        let refused = async {
            loop {
                let mut head = [0; 9];
                if stream.read_exact(&mut head).await.is_err() {
                    return;
                }
                let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
                let mut payload = vec![0; length];
                let is_cut_off = stream.read_exact(&mut payload).await.is_err();
                if is_cut_off || head[3] == RST_STREAM || head[3] == GO_AWAY {
                    return;
                }
            }
        };
        tokio::time::timeout(TIMEOUT, refused).await.unwrap_or_else(|_| panic!("{name}: {value:?}"));
    }
    // Only the request with the wrong length may have reached the upstream, and no second request.
    let mut came = Vec::new();
    while let Ok(Ok((mut stream, _))) =
        tokio::time::timeout(Duration::from_millis(100), listener.accept()).await
    {
        let _ = tokio::time::timeout(Duration::from_millis(500), stream.read_to_end(&mut came)).await;
    }
    let came = String::from_utf8_lossy(&came);
    assert!(
        !came.contains("smuggled") && !came.contains("chunked") && came.matches("HTTP/1.1").count() <= 1,
        "{came}"
    );
    assert_serves(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn flooding_client_that_does_not_read_is_closed_and_others_are_served() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |options| options.idle = Duration::from_millis(300)).await;
    for flood in [frame(SETTINGS, 0, 0, &[]), frame(PING, 0, 0, b"01234567")] {
        let mut stream = begun(&world).await;
        let some = flood.repeat(1_000);
        let flooding = tokio::spawn(async move { while stream.write_all(&some).await.is_ok() {} });
        assert_serves(&world).await;
        tokio::time::timeout(TIMEOUT, flooding).await.expect("it is cut off").unwrap();
    }
    assert_serves(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn flooding_client_that_reads_is_closed() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |_| {}).await;
    for flood in [frame(SETTINGS, 0, 0, &[]), frame(PING, 0, 0, b"01234567")] {
        let (mut read, mut write) = begun(&world).await.into_split();
        let some = flood.repeat(1_000);
        let flooding = tokio::spawn(async move { while write.write_all(&some).await.is_ok() {} });
        let reading = async { while read.read(&mut [0; 4_096]).await.is_ok_and(|count| count > 0) {} };
        tokio::time::timeout(TIMEOUT, reading).await.expect("it is closed out");
        tokio::time::timeout(TIMEOUT, flooding).await.expect("it cannot go on").unwrap();
    }
    assert_serves(&world).await;
}
