//! Limits on headers, timeouts and idle connections. Data in progress is forwarded without delay.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::Request;
use hyper::body::Frame;
use hyper::header::{HeaderName, HeaderValue};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::world::{Client, TIMEOUT, Upstream, World, answer, exchange, get, head, http2};

/// Starts a plain TCP server that handles each connection with `serve`. Returns its port.
async fn plain<F, W>(serve: F) -> u16
where
    F: Fn(TcpStream) -> W + Send + 'static,
    W: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            tokio::spawn(serve(stream));
        }
    });
    port
}

async fn to_the_end(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut reply = Vec::new();
    // The proxy may close the connection while the client still writes.
    let _ = tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut reply)).await.expect("an end");
    String::from_utf8_lossy(&reply).into_owned()
}

fn request(port: u16, path: &str, more: &str) -> String {
    format!("GET http://localhost:{port}{path} HTTP/1.1\r\nHost: localhost:{port}\r\n{more}\r\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_headers_are_rejected_and_other_requests_continue() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |_| {}).await;
    let target = format!("localhost:{}", upstream.address.port());
    let url = format!("https://{target}/");
    // One read may exceed the limit.
    let huge = "x".repeat(256 << 10);
    let mut stream = world.tls(&Client::fresh(&world.root), &target, "localhost").await.unwrap();
    let huge_request = format!("GET / HTTP/1.1\r\nHost: {target}\r\nX-Huge: {huge}\r\n\r\n");
    let _ = testbed::write_and_flush(&mut stream, huge_request.as_bytes()).await;
    let reply = to_the_end(&mut stream).await;
    assert!(reply.is_empty() || reply.starts_with("HTTP/1.1 431"), "{reply}");
    let stream = world.tls(&Client::of(&world.root, "h2"), &target, "localhost").await.unwrap();
    let (sender, _connection) = http2(stream).await;
    let mut large = get(&url);
    for number in 0..20 {
        large.headers_mut().insert(
            hyper::header::HeaderName::try_from(format!("x-{number}")).unwrap(),
            "y".repeat(4 << 10).parse().unwrap(),
        );
    }
    let mut second_sender = sender.clone();
    let refused = tokio::time::timeout(TIMEOUT, second_sender.send_request(large)).await.unwrap();
    assert!(refused.is_err() || refused.is_ok_and(|reply| reply.status() == 431));
    let stream = world.tls(&Client::of(&world.root, "h2"), &target, "localhost").await.unwrap();
    assert_eq!(answer(&http2(stream).await.0, get(&url)).await.0, 200);
    assert_eq!(upstream.made(), 1, "neither came to the upstream");
    // A huge header in an upstream response.
    let port = plain(|mut stream| async move {
        head(&mut stream).await;
        let huge = format!("HTTP/1.1 200 OK\r\nX-Huge: {}\r\n\r\n", "x".repeat(200 << 10));
        let _ = stream.write_all(huge.as_bytes()).await;
    })
    .await;
    let reply = exchange(&mut world.tcp().await, &request(port, "/", "")).await;
    assert!(reply.starts_with("HTTP/1.1 502"), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_upstream_times_out_on_response_and_handshake() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |options| {
        options.response_timeout = Duration::from_millis(500);
        options.connect_timeout = Duration::from_secs(3);
    })
    .await;
    let silent = plain(|mut stream| async move {
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all).await;
    })
    .await;
    let reply = exchange(&mut world.tcp().await, &request(silent, "/", "")).await;
    assert!(reply.starts_with("HTTP/1.1 504") && reply.contains("http_response_timeout"), "{reply}");
    // An upstream that never completes the TLS handshake.
    let target = format!("localhost:{silent}");
    let mut stream = world.tls(&Client::fresh(&world.root), &target, "localhost").await.unwrap();
    let reply = exchange(&mut stream, &format!("GET / HTTP/1.1\r\nHost: {target}\r\n\r\n")).await;
    assert!(reply.starts_with("HTTP/1.1 504") && reply.contains("connection_timeout"), "{reply}");
}

/// Counts open connections.
#[derive(Clone, Default)]
struct Open(Arc<AtomicUsize>);

impl Open {
    fn now(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    async fn until(&self, what: &str, so: impl Fn(usize) -> bool) {
        let waiting = async {
            while !so(self.now()) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, waiting)
            .await
            .unwrap_or_else(|_| panic!("never: {what}, {}", self.now()));
    }
}

/// Starts six upstreams that keep connections alive, and sends one request to each.
async fn six_that_wait(idle_max: usize, idle: Duration) -> (World, Open) {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |options| {
        options.upstream_idle_max = idle_max;
        options.upstream_idle = idle;
    })
    .await;
    let open = Open::default();
    for _ in 0..6 {
        let counted = open.clone();
        let port = plain(move |mut stream| {
            let counted = counted.clone();
            async move {
                counted.0.fetch_add(1, Ordering::SeqCst);
                while head(&mut stream).await.ends_with("\r\n\r\n") {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
                }
                counted.0.fetch_sub(1, Ordering::SeqCst);
            }
        })
        .await;
        let reply = exchange(&mut world.tcp().await, &request(port, "/", "")).await;
        assert!(reply.starts_with("HTTP/1.1 200") && open.now() > 0, "{reply}");
    }
    (world, open)
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_upstream_connections_are_limited_in_number() {
    let (_world, open) = six_that_wait(2, 100 * TIMEOUT).await;
    open.until("two wait", |open| open <= 2).await;
    assert!(open.now() > 0, "time has ended none");
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_upstream_connections_are_closed_after_the_idle_timeout() {
    let (_world, open) = six_that_wait(100, Duration::from_secs(2)).await;
    open.until("none waits", |open| open == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_sent_events_are_forwarded_without_buffering() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |_| {}).await;
    let seen = Arc::new(Notify::new());
    let waits = Arc::clone(&seen);
    let port = plain(move |mut stream| {
        let waits = Arc::clone(&waits);
        async move {
            head(&mut stream).await;
            let begin =
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
            let _ = stream.write_all(begin.as_bytes()).await;
            for event in ["data: 1\n\n", "data: 2\n\n", "data: 3\n\n"] {
                let _ = stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()).await;
                // The server sends the next event after the client has received this one.
                waits.notified().await;
            }
            let _ = stream.write_all(b"0\r\n\r\n").await;
        }
    })
    .await;
    let mut stream = world.tcp().await;
    stream.write_all(request(port, "/", "").as_bytes()).await.unwrap();
    let reply = head(&mut stream).await;
    assert!(reply.contains("text/event-stream"), "{reply}");
    for event in ["data: 1\n\n", "data: 2\n\n", "data: 3\n\n"] {
        let mut reply = String::new();
        while !reply.contains(event) {
            let byte = tokio::time::timeout(TIMEOUT, stream.read_u8()).await.expect("an event").unwrap();
            reply.push(char::from(byte));
        }
        seen.notify_one();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forbidden_fields_are_removed_from_request_trailers() {
    const TRAILERS: [&str; 4] = ["x-sum", "proxy-authorization", "http2-settings", "host"];
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |_| {}).await;
    let target = format!("localhost:{}", upstream.address.port());
    let mut stream = world.tls(&Client::fresh(&world.root), &target, "localhost").await.unwrap();
    let (names, lines) = (TRAILERS.join(", "), TRAILERS.map(|name| format!("{name}: 7\r\n")).concat());
    let request = format!(
        "POST / HTTP/1.1\r\nHost: {target}\r\nTransfer-Encoding: chunked\r\nTrailer: {names}\r\nTE: trailers\r\n\
         Connection: te\r\n\r\n3\r\nabc\r\n0\r\n{lines}\r\n"
    );
    let by_http1 = exchange(&mut stream, &request).await;
    let stream = world.tls(&Client::of(&world.root, "h2"), &target, "localhost").await.unwrap();
    let (sender, _connection) = http2(stream).await;
    let trailers = TRAILERS.map(|name| (HeaderName::from_static(name), HeaderValue::from_static("7")));
    let frames = [Frame::data(Bytes::from_static(b"abc")), Frame::trailers(trailers.into_iter().collect())];
    let body = StreamBody::new(stream::iter(frames.map(Ok::<_, Infallible>))).boxed_unsync();
    let request = Request::post(format!("https://{target}/")).body(body).unwrap();
    let (_, by_http2) = answer(&sender, request).await;
    for reply in [by_http1, by_http2] {
        let trailers: Vec<&str> = reply.lines().filter(|line| line.starts_with("trailer ")).collect();
        assert_eq!(trailers, ["trailer x-sum: 7"], "{reply}");
        assert!(reply.ends_with("body of 3\n"), "{reply}");
    }
}

/// Silent clients do not block new clients, and clients of one address do not block other addresses.
#[tokio::test(flavor = "multi_thread")]
async fn silent_clients_do_not_block_new_clients() {
    let port = answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let (_, root) = crate::world::authority();
    let world = World::new(&root, |options| {
        options.connections_max = 8;
        options.connections_per_address_max = Some(8);
    })
    .await;
    let mut busy = world.tcp().await;
    assert!(exchange(&mut busy, &request(port, "/", "")).await.starts_with("HTTP/1.1 200"));
    let mut silent = Vec::new();
    for _ in 0..16 {
        silent.push(world.tcp().await);
        let mut newcomer = world.tcp().await;
        let reply = exchange(&mut newcomer, &request(port, "/", "")).await;
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    }
    let mut oldest = silent.remove(0);
    let ended = tokio::time::timeout(TIMEOUT, oldest.read(&mut [0])).await.unwrap();
    assert!(ended.is_err() || ended.is_ok_and(|count| count == 0), "the oldest went");
    assert!(
        exchange(&mut busy, &request(port, "/", "")).await.starts_with("HTTP/1.1 200"),
        "it was served before"
    );
    // Active clients of one address may use an eighth of the connections.
    let world = World::new(&root, |options| options.connections_max = 32).await;
    let mut served = Vec::new();
    for number in 0..5 {
        // The proxy may close a rejected connection before the client can use it.
        let reply = match TcpStream::connect(world.running.address).await {
            Ok(mut stream) => {
                let _ = stream.write_all(request(port, "/", "").as_bytes()).await;
                let reply = head(&mut stream).await;
                served.push(stream);
                reply
            }
            Err(_) => String::new(),
        };
        assert_eq!(reply.is_empty(), number == 4, "{number}");
    }
    let other = tokio::net::TcpSocket::new_v4().unwrap();
    other.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = other.connect(world.running.address).await.unwrap();
    assert!(
        exchange(&mut other, &request(port, "/", "")).await.starts_with("HTTP/1.1 200"),
        "another address"
    );
}

/// Only a trusted load balancer may state the address of its client.
#[tokio::test(flavor = "multi_thread")]
async fn proxy_protocol_header_is_accepted_only_from_trusted_proxies() {
    let (_, root) = crate::world::authority();
    let world = World::new(&root, |options| {
        options.clients = vec!["203.0.113.0/24".parse().unwrap()];
        options.trusted_proxies = vec!["127.0.0.2/32".parse().unwrap()];
    })
    .await;
    let header = |client: [u8; 4]| {
        [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..], &client, &[127, 0, 0, 1, 0xc0, 1, 1, 0xbb]].concat()
    };
    let from = async |host: u8, before: Vec<u8>| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, host], 0).into()).unwrap();
        let mut stream = socket.connect(world.running.address).await.unwrap();
        // The proxy may close a rejected connection before this write.
        let _ = stream.write_all(&before).await;
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        head(&mut stream).await.starts_with("HTTP/1.1 200")
    };
    assert!(from(2, header([203, 0, 113, 9])).await);
    assert!(!from(2, header([192, 0, 2, 9])).await, "who may not use the proxy");
    assert!(!from(2, Vec::new()).await, "the balancer itself may not");
    assert!(!from(3, header([203, 0, 113, 9])).await, "nobody else is believed");
}

/// Starts a server that sends the same response to each request. Returns its port.
pub(crate) async fn answering(answer: &'static str) -> u16 {
    plain(move |mut stream| async move {
        while !head(&mut stream).await.is_empty() {
            if stream.write_all(answer.as_bytes()).await.is_err() {
                break;
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn ambiguously_framed_responses_are_rejected() {
    let (_, root) = crate::world::authority();
    let world = World::new(&root, |_| {}).await;
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: y\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\n",
    ] {
        let reply = exchange(&mut world.tcp().await, &request(answering(answer).await, "/", "")).await;
        assert!(
            reply.starts_with("HTTP/1.1 502") && reply.contains("http_protocol_error"),
            "{answer:?}: {reply}"
        );
    }
    // An error inside the body closes the connection, so the response is incomplete.
    for answer in [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: y\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;a\nb\r\na\r\n0\r\n\r\n",
    ] {
        let mut stream = world.tcp().await;
        stream.write_all(request(answering(answer).await, "/", "").as_bytes()).await.unwrap();
        let reply = to_the_end(&mut stream).await;
        assert!(!reply.ends_with("0\r\n\r\n"), "{answer:?}: {reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn response_trailers_are_forwarded_to_http1_and_http2_clients() {
    const ANSWER: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                          3\r\nyes\r\n0\r\nGrpc-Status: 0\r\nX-Sum: 7\r\nProxy-Authenticate: x\r\n\r\n";
    let (_, root) = crate::world::authority();
    let world = World::new(&root, |_| {}).await;
    let port = answering(ANSWER).await;
    // The trailers are neither announced nor requested. The next responses start at the right byte.
    let mut stream = world.tcp().await;
    for close in ["", "", "Connection: close\r\n"] {
        stream.write_all(request(port, "/", close).as_bytes()).await.unwrap();
    }
    let reply = to_the_end(&mut stream).await.to_ascii_lowercase();
    let whole = "\r\n\r\n3\r\nyes\r\n0\r\ngrpc-status: 0\r\nx-sum: 7\r\n\r\n";
    assert_eq!(reply.matches(whole).count(), 3, "{reply}");
    assert!(reply.ends_with(whole), "{reply}");
    // HTTP/1.0 clients receive no chunks.
    let mut stream = world.tcp().await;
    let old = request(port, "/", "").replacen("HTTP/1.1", "HTTP/1.0", 1);
    stream.write_all(old.as_bytes()).await.unwrap();
    let reply = to_the_end(&mut stream).await;
    assert!(reply.ends_with("\r\n\r\nyes"), "{reply}");
    // The same over HTTP/2.
    let (sender, _connection) = http2(world.tcp().await).await;
    let mut asked = sender.clone();
    let response = asked.send_request(get(&format!("http://localhost:{port}/"))).await.unwrap();
    let trailers = response.into_body().collect().await.unwrap().trailers().cloned().unwrap();
    assert_eq!(
        (&trailers["grpc-status"], &trailers["x-sum"]),
        (&"0".parse().unwrap(), &"7".parse().unwrap())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn expect_continue_is_answered_and_trailers_are_forwarded() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |_| {}).await;
    let port = plain(|mut stream| async move {
        head(&mut stream).await;
        let mut body = Vec::new();
        while !body.ends_with(b"\r\n\r\n") {
            let Ok(byte) = stream.read_u8().await else { return };
            body.push(byte);
        }
        let asked = String::from_utf8_lossy(&body).to_ascii_lowercase();
        let sum = if asked.contains("x-sum: 7") { "told" } else { "untold" };
        let response_text = format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Checked\r\nConnection: close\r\n\r\n\
             3\r\nyes\r\n0\r\nX-Checked: {sum}\r\n\r\n"
        );
        let _ = stream.write_all(response_text.as_bytes()).await;
    })
    .await;
    let mut stream = world.tcp().await;
    let begin = format!(
        "POST http://localhost:{port}/ HTTP/1.1\r\nHost: localhost:{port}\r\nTransfer-Encoding: chunked\r\n\
         Trailer: X-Sum\r\nTE: trailers\r\nExpect: 100-continue\r\nConnection: close, te\r\n\r\n"
    );
    stream.write_all(begin.as_bytes()).await.unwrap();
    // The client sends no body before the 100 response.
    let reply = head(&mut stream).await;
    assert!(reply.starts_with("HTTP/1.1 100"), "{reply}");
    stream.write_all(b"3\r\nabc\r\n0\r\nX-Sum: 7\r\n\r\n").await.unwrap();
    let reply = to_the_end(&mut stream).await.to_ascii_lowercase();
    assert!(reply.starts_with("http/1.1 200") && reply.contains("\r\nx-checked: told\r\n"), "{reply}");
}
