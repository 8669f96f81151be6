//! Timeouts of stalled peers.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::Request;
use hyper::body::Frame;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::world::{Client, TIMEOUT, Upstream, World, answer, exchange, get, head, http2};

/// Idle timeout: longer than any pause in a test that must not be cut off.
const IDLE: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn stalled_request_body_returns_408_and_closes_the_upstream() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let waiting = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        head(&mut stream).await;
        let mut body = Vec::new();
        let _ = stream.read_to_end(&mut body).await;
        body
    });
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |options| options.idle = IDLE).await;
    let mut stream = world.tcp().await;
    let request = format!("POST http://{address}/ HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
    let response = exchange(&mut stream, &request).await;
    assert!(response.starts_with("HTTP/1.1 408") && response.contains("connection: close\r\n"), "{response}");
    let body = tokio::time::timeout(TIMEOUT, waiting).await.expect("it is let go").unwrap();
    assert!(b"abc".starts_with(&body), "{body:?}");
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut rest)).await.expect("it is closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_http2_stream_ends_without_affecting_others() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |options| options.idle = IDLE).await;
    let target = format!("localhost:{}", upstream.address.port());
    let stream = world.tls(&Client::of(&world.root, "h2"), &target, "localhost").await.unwrap();
    let (sender, _connection) = http2(stream).await;
    let some = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"abc")))]);
    let body = StreamBody::new(some.chain(stream::pending())).boxed_unsync();
    let url = format!("https://{target}/");
    let stalled = answer(&sender, Request::post(&url).body(body).unwrap()).await;
    assert_eq!(stalled.0, 408, "{}", stalled.1);
    assert_eq!(upstream.made(), 1);
    let stream = world.tls(&Client::of(&world.root, "h2"), &target, "localhost").await.unwrap();
    assert_eq!(answer(&http2(stream).await.0, get(&url)).await.0, 200);
    assert_eq!(upstream.made(), 1, "others share the connection as before");
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_connection_without_requests_is_closed_despite_pings() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |options| options.idle = IDLE).await;
    let target = format!("localhost:{}", upstream.address.port());
    let stream = world.tls(&Client::of(&world.root, "h2"), &target, "localhost").await.unwrap();
    let (sender, connection) = http2(stream).await;
    let ended = tokio::time::timeout(TIMEOUT, connection).await.expect("it is closed").unwrap();
    assert!(ended.is_ok(), "and told so: {ended:?}");
    drop(sender);
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_http2_response_is_aborted() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // An endless response, until the connection is closed.
    let sending = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        while stream.write_all(&[0; 65_536]).await.is_ok() {}
    });
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |options| options.idle = IDLE).await;
    let (_, tunnel) = world.connect(&address.to_string()).await;
    let (mut sender, _connection) = http2(tunnel).await;
    let response_future = sender.send_request(get(&format!("http://{address}/")));
    let unread = tokio::time::timeout(TIMEOUT, response_future).await.unwrap().unwrap();
    tokio::time::timeout(TIMEOUT, sending).await.expect("it ends although the client answers pings").unwrap();
    let read = tokio::time::timeout(TIMEOUT, unread.into_body().collect()).await.unwrap();
    assert!(read.is_err(), "and not as if it were whole");
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_upload_does_not_count_toward_the_response_timeout() {
    const ANSWER: Duration = Duration::from_secs(6);
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |options| options.response_timeout = ANSWER).await;
    let target = format!("localhost:{}", upstream.address.port());
    // The proxy uses the client's HTTP version for the upstream.
    let mut stream = world.tls(&Client::fresh(&world.root), &target, "localhost").await.unwrap();
    let begun = format!("POST / HTTP/1.1\r\nHost: {target}\r\nContent-Length: 6\r\n\r\n");
    testbed::write_and_flush(&mut stream, begun.as_bytes()).await.unwrap();
    let stream_of_http2 = world.tls(&Client::of(&world.root, "h2"), &target, "localhost").await.unwrap();
    let (sender, _connection) = http2(stream_of_http2).await;
    let trickled = stream::iter(["abc", "def"]).then(|half| async move {
        tokio::time::sleep(ANSWER * 3 / 4).await;
        Ok::<_, Infallible>(Frame::data(Bytes::from_static(half.as_bytes())))
    });
    let request = Request::post(format!("https://{target}/")).body(StreamBody::new(trickled).boxed_unsync());
    let by_http2 = tokio::spawn(async move { answer(&sender, request.unwrap()).await });
    for half in ["abc", "def"] {
        tokio::time::sleep(ANSWER * 3 / 4).await;
        testbed::write_and_flush(&mut stream, half.as_bytes()).await.unwrap();
    }
    let response = exchange(&mut stream, "").await;
    assert!(response.starts_with("HTTP/1.1 200") && response.ends_with("body of 6\n"), "{response}");
    let (status, response) = by_http2.await.unwrap();
    assert!(status == 200 && response.ends_with("body of 6\n"), "{status} {response}");
}

#[tokio::test(flavor = "multi_thread")]
async fn upstream_that_reads_no_request_body_causes_504() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let upstream = Upstream::start("localhost").await;
    let world =
        World::new(&upstream.root, |options| options.response_timeout = Duration::from_millis(500)).await;
    let (mut from, mut to) = world.tcp().await.into_split();
    let writing = tokio::spawn(async move {
        let head =
            format!("POST http://{address}/ HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000000\r\n\r\n");
        to.write_all(head.as_bytes()).await.unwrap();
        while to.write_all(&[b'.'; 1 << 16]).await.is_ok() {}
    });
    let (_stream, _) = listener.accept().await.unwrap();
    let response = head(&mut from).await;
    assert!(response.starts_with("HTTP/1.1 504") && response.contains("http_response_timeout"), "{response}");
    writing.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_chunked_body_returns_400_and_closes() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |_| {}).await;
    let target = format!("localhost:{}", upstream.address.port());
    for body in ["0x3\r\nabc\r\n0\r\n\r\n", "3\r\nabcdef\r\n0\r\n\r\n", "3\r\nabc\r\n-1\r\n\r\n"] {
        let mut stream = world.tls(&Client::fresh(&world.root), &target, "localhost").await.unwrap();
        let request =
            format!("POST / HTTP/1.1\r\nHost: {target}\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
        let response = exchange(&mut stream, &request).await;
        assert!(
            response.starts_with("HTTP/1.1 400") && response.contains("http_request_error"),
            "{body}: {response}"
        );
        assert!(response.contains("connection: close\r\n"), "{body}: {response}");
    }
}
