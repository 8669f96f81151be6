//! Tests of the listeners over real TLS connections.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use http::{Method, Request, Version};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use server::listen::server_certificate;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;

use testbed::write_and_flush;

use crate::world::{Authority, Plan, World, send, until};

/// Reads until the response contains `text`, or until the end of the stream.
async fn read_until(stream: &mut (impl AsyncReadExt + Unpin), text: &str) -> String {
    let mut all = Vec::new();
    let mut part = [0; 4_096];
    while !String::from_utf8_lossy(&all).contains(text) {
        match stream.read(&mut part).await {
            Ok(0) | Err(_) => break,
            Ok(count) => all.extend_from_slice(&part[..count]),
        }
    }
    String::from_utf8_lossy(&all).into_owned()
}

#[tokio::test]
async fn listener_accepts_http_1_1_and_2_over_tls_1_2_and_1_3() {
    let world = World::start().await;
    for http2 in [false, true] {
        for tls in [reqwest::tls::Version::TLS_1_2, reqwest::tls::Version::TLS_1_3] {
            let builder = world.builder().tls_version_min(tls).tls_version_max(tls);
            let client = if http2 { builder } else { builder.http1_only() }.build().unwrap();
            let response = client.get(world.url("/healthz")).send().await.unwrap();
            let wanted = if http2 { Version::HTTP_2 } else { Version::HTTP_11 };
            assert_eq!((response.status().as_u16(), response.version()), (200, wanted), "{tls:?}");
        }
    }
    let handshakes = world.get("/metrics").await.expect(200).text;
    assert!(handshakes.contains("bulla_server_handshakes_total{kind=\"done\"} 5"), "{handshakes}");
}

#[tokio::test]
async fn server_certificate_is_replaced_without_closing_connections() {
    let world = World::start().await;
    send(world.bare(Method::GET, "/healthz")).await.expect(200);
    let other = Authority::new("another root");
    let leaf = other.leaf(&["127.0.0.1"]);
    let running = world.running.as_ref().unwrap();
    running.replace_certificate(server_certificate(&[leaf.der], &leaf.key).unwrap());
    // The existing connection continues. A new connection gets the new certificate.
    send(world.bare(Method::GET, "/healthz")).await.expect(200);
    let fresh = world.builder().build().unwrap();
    assert!(fresh.get(world.url("/healthz")).send().await.is_err());
    let client = reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_der(&other.root).unwrap()])
        .build()
        .unwrap();
    assert!(client.get(world.url("/healthz")).send().await.unwrap().status().is_success());
}

#[tokio::test]
async fn server_certificate_with_another_private_key_is_rejected() {
    let ca = Authority::new("root");
    let (one, other) = (ca.leaf(&["127.0.0.1"]), ca.leaf(&["127.0.0.1"]));
    assert!(server_certificate(&[one.der], &other.key).is_err());
    assert!(server_certificate(&[], &other.key).is_err());
}

#[tokio::test]
async fn client_certificates_are_matched_to_identities() {
    let world = World::start().await;
    let leaf = world.ca.leaf(&["deployer.example", "spiffe://example/deployer"]);
    let with = |leaf: &crate::world::Issued| world.builder().identity(leaf.identity()).build().unwrap();
    let me = |client: reqwest::Client| {
        let url = world.url("/api/v1/auth/me");
        async move { send(client.get(url)).await }
    };
    // The certificate is valid, but no identity matches it: 401.
    assert_eq!(me(with(&leaf)).await.expect(401).problem(), "unauthenticated");
    let fingerprint = x509::Certificate::parse(&leaf.der).unwrap().fingerprint;
    for (name, matcher) in
        [("by-name", "dns:Deployer.example".to_owned()), ("by-fingerprint", format!("sha256:{fingerprint}"))]
    {
        let body =
            json!({ "name": name, "match": matcher, "grants": [{ "role": "viewer", "scope": "any" }] });
        world.post("/api/v1/client-certificates", body).await.expect(201);
        // A match by fingerprint takes precedence over a match by name.
        let answer = me(with(&leaf)).await.expect(200);
        assert_eq!(answer.json()["actor"], format!("certificate:{name}"));
    }
    // A certificate of an unknown CA fails the handshake. A client without a certificate is accepted.
    let stranger = Authority::new("elsewhere").leaf(&["deployer.example"]);
    assert!(with(&stranger).get(world.url("/healthz")).send().await.is_err());
    send(world.bare(Method::GET, "/healthz")).await.expect(200);
    // The trusted roots are replaced at runtime.
    world.running.as_ref().unwrap().replace_client_roots(&[Authority::new("new").root]).unwrap();
    assert!(with(&leaf).get(world.url("/healthz")).send().await.is_err());
}

#[tokio::test]
async fn oversized_request_bodies_are_rejected_with_413() {
    let world = World::start().await;
    let large = json!({ "name": "x".repeat(2 << 20), "grants": [] });
    let answer = world.post("/api/v1/tokens", large).await.expect(413);
    assert_eq!(answer.problem(), "payload-too-large");
    // The same with an idempotency key: the server reads the body before it calls the handler.
    let request = world.with(&world.admin, Method::POST, "/api/v1/tokens").header("idempotency-key", "k");
    let answer = send(request.body(vec![b'x'; 2 << 20])).await.expect(413);
    assert_eq!(answer.problem(), "payload-too-large");
}

#[tokio::test]
async fn oversized_request_headers_are_rejected() {
    let world = World::start().await;
    let mut stream = world.raw().await;
    let head = format!("GET /healthz HTTP/1.1\r\nhost: x\r\nx-long: {}\r\n\r\n", "x".repeat(400_000));
    write_and_flush(&mut stream, head.as_bytes()).await.unwrap();
    // The server does not read oversized headers, so the client may lose the response when the connection closes.
    let response = read_until(&mut stream, "\r\n").await;
    assert!(response.is_empty() || response.starts_with("HTTP/1.1 431"), "{response}");
}

async fn with(options: impl FnOnce(&mut server::ServerOptions) + Send + 'static) -> World {
    World::start_with(Plan { options: Box::new(options), ..Plan::default() }).await
}

#[tokio::test]
async fn slow_headers_bodies_and_handshakes_time_out() {
    // Each timeout has its own server with the other timeouts at their defaults, so that a slow machine does not trigger them.
    let short = Duration::from_millis(200);
    let world = with(move |options| options.head_timeout = short).await;
    let mut stream = world.raw().await;
    // The server may close the connection before this write.
    let _ = write_and_flush(&mut stream, b"GET /healthz HTTP/1.1\r\nhost: x\r\n").await;
    // Closed with or without a response.
    let response = read_until(&mut stream, "never").await;
    assert!(response.is_empty() || response.starts_with("HTTP/1.1 408"), "{response}");

    let world = with(move |options| options.body_timeout = short).await;
    let mut stream = world.raw().await;
    let head = format!(
        "POST /api/v1/tokens HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: 1000\r\n\r\n{{",
        world.admin
    );
    write_and_flush(&mut stream, head.as_bytes()).await.unwrap();
    let response = read_until(&mut stream, "request-timeout").await;
    assert!(response.starts_with("HTTP/1.1 408") && response.contains("request-timeout"), "{response}");

    let world = with(move |options| options.handshake_timeout = short).await;
    let mut silent = tokio::net::TcpStream::connect(world.address).await.unwrap();
    assert_eq!(silent.read(&mut [0; 16]).await.unwrap(), 0, "closed by the server");
    let counted = "handshakes_total{kind=\"timed-out\"} 1";
    until("it is counted", || world.state.metrics().encode().contains(counted)).await;
}

#[tokio::test]
async fn idle_connections_are_closed_after_the_timeout() {
    let plan = Plan {
        options: Box::new(|options| options.idle_timeout = Duration::from_millis(300)),
        ..Plan::default()
    };
    let world = World::start_with(plan).await;
    for protocol in [&b"http/1.1"[..], b"h2"] {
        let mut stream = world.raw_with(protocol).await;
        let end = async { while stream.read(&mut [0; 1_024]).await.is_ok_and(|count| count > 0) {} };
        tokio::time::timeout(Duration::from_secs(30), end).await.expect("closed by the server");
    }
}

#[tokio::test]
async fn connections_per_address_are_limited() {
    let plan = Plan {
        options: Box::new(|options| options.connections_per_address_max = Some(2)),
        ..Plan::default()
    };
    let world = World::start_with(plan).await;
    let (one, _two) = (world.raw().await, world.raw().await);
    let mut third = tokio::net::TcpStream::connect(world.address).await.unwrap();
    assert_eq!(third.read(&mut [0; 16]).await.unwrap_or(0), 0, "closed without a handshake");
    drop(one);
    until("a place is free again", || world.running.as_ref().unwrap().connections() == 1).await;
    let client = world.builder().build().unwrap();
    testbed::until_async("the free place is given to somebody", async || {
        client.get(world.url("/healthz")).send().await.is_ok()
    })
    .await;
}

type Parts = StreamBody<BoxStream<'static, Result<Frame<Bytes>, std::convert::Infallible>>>;

/// Returns a request body whose parts are sent one by one.
fn body_in_parts() -> (mpsc::Sender<Bytes>, Parts) {
    let (parts, receiver) = mpsc::channel::<Bytes>(1);
    let frames = stream::unfold(receiver, |mut receiver| async move {
        let part = receiver.recv().await?;
        Some((Ok(Frame::data(part)), receiver))
    });
    (parts, StreamBody::new(frames.boxed()))
}

#[tokio::test]
async fn early_response_drains_the_http2_body_up_to_a_limit() {
    let world = World::start().await;
    let io = TokioIo::new(world.raw_with(b"h2").await);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let (parts, body) = body_in_parts();
    let request = Request::post("https://bulla.test/api/v1/tokens").body(body).unwrap();
    let answer = sender.send_request(request).await.unwrap();
    assert_eq!(answer.status(), 401, "before the body came");
    // More data than the flow-control window (RFC 9113 section 6.9.2): the server reads it although the response is complete.
    let part = Bytes::from_static(&[b'x'; 16 << 10]);
    for _ in 0..20 {
        parts.send(part.clone()).await.unwrap();
    }
    // An endless body is not read forever.
    let refused = async { while parts.send(part.clone()).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(60), refused).await.expect("the stream is reset in the end");
}

#[tokio::test]
async fn early_response_keeps_the_http1_connection_open() {
    let world = World::start().await;
    let mut stream = world.raw().await;
    let head = |more: &str| {
        format!("POST /api/v1/tokens HTTP/1.1\r\nhost: x\r\ncontent-length: 40000\r\n{more}\r\n")
    };
    for _ in 0..2 {
        write_and_flush(&mut stream, head("").as_bytes()).await.unwrap();
        let response = read_until(&mut stream, "}").await;
        assert!(response.starts_with("HTTP/1.1 401"), "before the body came: {response}");
        write_and_flush(&mut stream, &[b'x'; 40_000]).await.unwrap();
    }
    // With `Expect: 100-continue` the client gets only the final response.
    write_and_flush(&mut stream, head("expect: 100-continue\r\n").as_bytes()).await.unwrap();
    let response = read_until(&mut stream, "never").await;
    assert!(response.starts_with("HTTP/1.1 401"), "{response}");
}

#[tokio::test]
async fn requests_in_flight_complete_before_shutdown() {
    let mut world = World::start().await;
    let mut stream = world.raw().await;
    let body = json!({ "name": "late", "grants": [] }).to_string();
    let head = format!(
        "POST /api/v1/tokens HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nexpect: 100-continue\r\n\r\n",
        world.admin,
        body.len()
    );
    write_and_flush(&mut stream, head.as_bytes()).await.unwrap();
    assert!(
        read_until(&mut stream, "\r\n\r\n").await.starts_with("HTTP/1.1 100"),
        "its handler waits for the body"
    );
    write_and_flush(&mut stream, &body.as_bytes()[..5]).await.unwrap();

    // The same over HTTP/2, with a body in several parts.
    let (parts, frames) = body_in_parts();
    let io = TokioIo::new(world.raw_with(b"h2").await);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::post("https://bulla.test/api/v1/tokens")
        .header("authorization", format!("Bearer {}", world.admin))
        .header("content-type", "application/json")
        .body(frames)
        .unwrap();
    let answer = tokio::spawn(sender.send_request(request));
    parts.send(Bytes::from_static(b"{\"name\":")).await.unwrap();
    let both = "bulla_server_requests_in_flight 2";
    until("both requests are under way", || world.state.metrics().encode().contains(both)).await;

    let address = world.address;
    let running = world.running.take().unwrap();
    let stop = tokio::spawn(running.stop());
    until("the listener is closed", || std::net::TcpStream::connect(address).is_err()).await;
    assert!(!stop.is_finished());
    write_and_flush(&mut stream, &body.as_bytes()[5..]).await.unwrap();
    assert!(read_until(&mut stream, "bulla_").await.starts_with("HTTP/1.1 201"));
    parts.send(Bytes::from_static(b"\"later\",\"grants\":[]}")).await.unwrap();
    drop(parts);
    let answer = answer.await.unwrap().unwrap();
    assert_eq!(answer.status(), 201);
    assert!(!answer.into_body().collect().await.unwrap().to_bytes().is_empty());
    drop(sender);
    assert!(stop.await.unwrap(), "drained");
    connection.await.unwrap().unwrap();
}

#[tokio::test]
async fn shutdown_ends_event_streams_and_stops_after_the_drain_timeout() {
    let plan = Plan {
        options: Box::new(|options| options.drain_timeout = Duration::from_millis(300)),
        ..Plan::default()
    };
    let mut world = World::start_with(plan).await;
    let request = world.with(&world.admin, Method::GET, "/api/v1/events").timeout(Duration::from_secs(300));
    let mut events = request.send().await.unwrap();
    let mut stream = world.raw().await;
    let head = format!(
        "POST /api/v1/tokens HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: 9\r\nexpect: 100-continue\r\n\r\n",
        world.admin
    );
    write_and_flush(&mut stream, head.as_bytes()).await.unwrap();
    assert!(
        read_until(&mut stream, "\r\n\r\n").await.starts_with("HTTP/1.1 100"),
        "its handler waits for the body"
    );
    let running = world.running.take().unwrap();
    let tasks = async { while events.chunk().await.is_ok_and(|part| part.is_some()) {} };
    let (drained, ()) = tokio::join!(running.stop(), tasks);
    assert!(!drained, "the rest of the body never came");
}

#[tokio::test]
async fn plain_http_listener_does_not_serve_the_api() {
    let world = World::start().await;
    let client = reqwest::Client::new();
    for path in ["/healthz", "/api/v1/tokens", "/openapi.json", "/metrics"] {
        let response = client.get(format!("http://{}{path}", world.public)).send().await.unwrap();
        assert_eq!(response.status(), 404, "{path}");
    }
}

#[tokio::test]
async fn address_in_use_is_reported_with_the_address() {
    let world = World::start().await;
    let leaf = world.ca.leaf(&["127.0.0.1"]);
    let options =
        server::ServerOptions::new(world.address, server_certificate(&[leaf.der], &leaf.key).unwrap());
    let error = server::Server::start(options, world.state.clone()).await.unwrap_err().to_string();
    assert!(error.contains(&world.address.to_string()), "{error}");
}
