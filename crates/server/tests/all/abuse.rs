//! Tests that a few hostile clients cannot block the others.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use inbound::TrustedProxies;
use rustls::pki_types::ServerName;
use server::ServerOptions;
use server::limit::{LimitOptions, Rate};
use testbed::write_and_flush;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::world::{Plan, World, until};

/// Maximum time to wait for something that must happen.
const LONG: Duration = Duration::from_secs(60);

async fn with(options: impl FnOnce(&mut ServerOptions) + Send + 'static) -> World {
    let plan = Plan { options: Box::new(options), credentials: true, ..Plan::default() };
    World::start_with(plan).await
}

fn credentials(world: &World) -> SocketAddr {
    world.running.as_ref().unwrap().credential_address.unwrap()
}

/// Opens a connection from 127.0.0.`host`.
async fn connect(host: u8, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::new(127, 0, 0, host), 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

async fn handshake(
    world: &World,
    stream: TcpStream,
    protocol: &[u8],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut config = world.tls();
    config.alpn_protocols = vec![protocol.to_vec()];
    let name = ServerName::try_from("bulla.test").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Returns the response status of one request on a new connection from 127.0.0.`host`, or `None` if the connection was refused.
async fn get(world: &World, host: u8, to: SocketAddr, path: &str) -> Option<String> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    let stream = connect(host, to).await;
    let mut response = Vec::new();
    if to == world.public {
        let mut stream = stream;
        stream.write_all(request.as_bytes()).await.ok()?;
        stream.read_to_end(&mut response).await.ok()?;
    } else {
        let mut stream = handshake(world, stream, b"http/1.1").await.ok()?;
        write_and_flush(&mut stream, request.as_bytes()).await.ok()?;
        // Some connections end without a TLS `close_notify` alert.
        let _ = stream.read_to_end(&mut response).await;
    }
    let response = String::from_utf8_lossy(&response).into_owned();
    response.split(' ').nth(1).map(ToOwned::to_owned)
}

fn refused(world: &World, listener: &str, reason: &str) -> bool {
    let counted =
        format!("bulla_server_refused_connections_total{{listener=\"{listener}\",reason=\"{reason}\"}}");
    world.state.metrics().encode().contains(&counted)
}

#[tokio::test]
async fn incomplete_requests_from_four_addresses_do_not_block_others() {
    let world = with(|options| options.connections_max = 16).await;
    let (api, public, credentials) = (world.address, world.public, credentials(&world));
    let mut connections = Vec::new();
    for host in 1..=4 {
        for _ in 0..16 {
            let stream = connect(host, credentials).await;
            // Connections beyond the limit of an address are closed immediately.
            if let Ok(mut stream) = handshake(&world, stream, b"http/1.1").await
                && write_and_flush(&mut stream, b"GET /info HTTP/1.1\r\nhost: x\r\n").await.is_ok()
            {
                connections.push(stream);
            }
        }
    }
    assert!(refused(&world, "credentials", "address-share"));
    for (to, path, status) in
        [(credentials, "/info", "200"), (api, "/healthz", "200"), (public, "/crl/x", "404")]
    {
        let answer = tokio::time::timeout(LONG, get(&world, 9, to, path)).await.expect("an answer");
        assert_eq!(answer.as_deref(), Some(status), "{path}");
    }
    drop(connections);
}

#[tokio::test]
async fn idle_connections_are_evicted_for_new_connections() {
    let world = with(|options| {
        options.connections_max = 4;
        options.connections_per_address_max = Some(4);
        options.head_timeout = Duration::from_secs(1);
    })
    .await;
    let mut connections = Vec::new();
    for _ in 0..4 {
        let mut stream = world.raw().await;
        write_and_flush(&mut stream, b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        assert!(stream.read(&mut [0; 4_096]).await.unwrap() > 0);
        connections.push(stream);
    }
    // Connections can be evicted only after they have been idle for a moment.
    let newcomer =
        async { while get(&world, 9, world.address, "/healthz").await.as_deref() != Some("200") {} };
    tokio::time::timeout(LONG, newcomer).await.expect("the newcomer is served");
    assert!(refused(&world, "tls", "evicted"));
}

#[tokio::test]
async fn every_listener_closes_connections_after_the_header_timeout() {
    let world = with(|options| options.head_timeout = Duration::from_millis(200)).await;
    for (to, listener) in [(credentials(&world), "credentials"), (world.address, "tls")] {
        for (protocol, sent) in
            [(&b"http/1.1"[..], &b"GET / HTTP/1.1\r\n"[..]), (b"http/1.1", b""), (b"h2", b"")]
        {
            let mut stream = handshake(&world, connect(9, to).await, protocol).await.unwrap();
            let _ = write_and_flush(&mut stream, sent).await;
            let end = async { while stream.read(&mut [0; 1_024]).await.is_ok_and(|count| count > 0) {} };
            tokio::time::timeout(LONG, end).await.expect("closed by the server");
        }
        assert!(refused(&world, listener, "head-timeout"));
    }
    let mut stream = connect(9, world.public).await;
    stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    let end = async { while stream.read(&mut [0; 1_024]).await.is_ok_and(|count| count > 0) {} };
    tokio::time::timeout(LONG, end).await.expect("closed by the server");
}

/// Creates an HTTP/2 client with a receive window of one kibibyte.
async fn reluctant(world: &World, host: u8) -> (SendRequest<Empty<Bytes>>, tokio::task::JoinHandle<()>) {
    let stream = handshake(world, connect(host, world.address).await, b"h2").await.unwrap();
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(1 << 10);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    (sender, tokio::spawn(async move { drop(connection.await) }))
}

async fn description(sender: &mut SendRequest<Empty<Bytes>>) -> Response<Incoming> {
    let request = Request::get("https://bulla.test/openapi.json").body(Empty::new()).unwrap();
    sender.send_request(request).await.unwrap()
}

#[tokio::test]
async fn client_not_reading_its_response_is_disconnected() {
    let world = with(|options| options.write_timeout = Duration::from_millis(300)).await;
    let (mut sender, connection) = reluctant(&world, 9).await;
    let unread = description(&mut sender).await;
    assert_eq!(unread.status(), StatusCode::OK);
    tokio::time::timeout(LONG, connection).await.expect("closed by the server").unwrap();
    assert!(refused(&world, "tls", "answer-unread"));
    drop(unread);
}

#[tokio::test]
async fn responses_are_rejected_when_unread_ones_fill_the_memory_limit() {
    // One OpenAPI document is more than twice this limit.
    let world = with(|options| options.answer_bytes_max = 64 << 10).await;
    let (mut one, _connection) = reluctant(&world, 1).await;
    let unread = description(&mut one).await;
    assert_eq!(unread.status(), StatusCode::OK, "the only one");
    for host in [1, 2] {
        let (mut other, _connection) = reluctant(&world, host).await;
        let refused = description(&mut other).await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(refused.headers()["retry-after"], "5");
    }
    // Reading the response frees the memory.
    unread.into_body().collect().await.unwrap();
    let (mut other, _connection) = reluctant(&world, 2).await;
    let answered = async { while description(&mut other).await.status() != StatusCode::OK {} };
    tokio::time::timeout(LONG, answered).await.expect("the memory is free");
}

#[tokio::test]
async fn ping_flood_closes_the_connection() {
    let world = with(|_| {}).await;
    let stream = handshake(&world, connect(9, world.address).await, b"h2").await.unwrap();
    let (mut read, mut write) = tokio::io::split(stream);
    let mut all = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    for _ in 0..20_000 {
        all.extend(b"\0\0\x08\x06\0\0\0\0\0pingpong");
    }
    let writing =
        tokio::spawn(async move { write.write_all(&all).await.is_ok() && write.flush().await.is_ok() });
    let end = async { while read.read(&mut [0; 4_096]).await.is_ok_and(|count| count > 0) {} };
    tokio::time::timeout(LONG, end).await.expect("closed by the server");
    let _ = writing.await;
    until("it is counted", || refused(&world, "tls", "frame-flood")).await;
}

#[tokio::test]
async fn connections_per_client_certificate_are_limited() {
    let world = with(|options| options.connections_per_certificate_max = Some(1)).await;
    let client = |identity| world.builder().identity(identity).build().unwrap();
    let (one, other) = (world.ca.leaf(&["one.example"]), world.ca.leaf(&["other.example"]));
    let (first, second, third) = (client(one.identity()), client(one.identity()), client(other.identity()));
    let url = world.url("/healthz");
    assert!(first.get(&url).send().await.is_ok());
    assert!(second.get(&url).send().await.is_err(), "a second connection with this certificate");
    assert!(third.get(&url).send().await.is_ok());
    assert!(refused(&world, "tls", "certificate-share"));
}

/// Returns a PROXY protocol header for a connection of `client`.
fn introduction(client: Ipv4Addr) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    header.extend(client.octets());
    header.extend([127, 0, 0, 1, 0x30, 0x39, 0x20, 0xfb]);
    header
}

#[tokio::test]
async fn proxy_protocol_header_is_accepted_only_from_trusted_proxies() {
    let world = with(|options| {
        options.trusted_proxies = TrustedProxies::new(&["127.0.0.7/32".parse().unwrap()]);
        options.connections_per_address_max = Some(1);
    })
    .await;
    let (one, other) = (Ipv4Addr::new(203, 0, 113, 1), Ipv4Addr::new(203, 0, 113, 2));
    for to in [world.address, credentials(&world)] {
        let through = async |proxy: u8, client: Ipv4Addr| {
            let mut stream = connect(proxy, to).await;
            stream.write_all(&introduction(client)).await.unwrap();
            handshake(&world, stream, b"http/1.1").await
        };
        let _first = through(7, one).await.expect("the first connection of a client");
        assert!(through(7, one).await.is_err(), "the second one of this client");
        let _other = through(7, other).await.expect("another client");
        // A connection of the proxy itself, without a PROXY header.
        let _own =
            handshake(&world, connect(7, to).await, b"http/1.1").await.expect("a proxy without a header");
        assert!(through(8, one).await.is_err(), "who is no trusted proxy states nothing");
    }
    let mut stream = connect(7, world.public).await;
    stream.write_all(&introduction(one)).await.unwrap();
    stream.write_all(b"GET /crl/x HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 404"), "{response}");
    // An invalid PROXY header.
    let mut stream = connect(7, world.public).await;
    stream.write_all(b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c").await.unwrap();
    assert_eq!(stream.read(&mut [0; 16]).await.unwrap_or(0), 0, "closed");
    assert!(refused(&world, "public", "proxy-header"));
}

#[tokio::test]
async fn address_rate_limits_use_the_error_format_of_each_protocol() {
    let limits = || LimitOptions {
        protocol_address: Some(Rate::new(1, 2)),
        credential_address: Some(Rate::new(1, 2)),
        ..LimitOptions::unlimited()
    };
    let table: [(&str, fn(&World) -> String, &str); 4] = [
        ("/acme/default/directory", |world| world.url(""), "urn:ietf:params:acme:error:rateLimited"),
        ("/.well-known/est/cacerts", |world| world.url(""), "rate-limited"),
        ("/crl/x", |world| format!("http://{}", world.public), "rate-limited"),
        ("/info", |world| format!("https://{}", credentials(world)), "rate-limited"),
    ];
    for (path, base, kind) in table {
        let limits = limits();
        let world = World::start_with(Plan {
            state: Box::new(move |state| state.limits(limits)),
            credentials: true,
            ..Plan::default()
        })
        .await;
        let url = format!("{}{path}", base(&world));
        let client = world.builder().build().unwrap();
        // One request per second is allowed: the loop sends far more, also on a slow machine.
        let refused = async {
            loop {
                let answer = client.get(&url).send().await.unwrap();
                if answer.status() == StatusCode::TOO_MANY_REQUESTS {
                    return answer;
                }
            }
        };
        let refused = tokio::time::timeout(LONG, refused).await.expect("a burst of two");
        assert_eq!(refused.headers()["retry-after"], "1", "{path}");
        let text = refused.text().await.unwrap();
        assert!(text.contains(kind), "{path}: {text}");
        // The API has separate limits.
        world.get("/api/v1/auth/me").await.expect(200);
    }
}

#[tokio::test]
async fn credential_store_limits_clients_and_honours_token_rates() {
    let limits = LimitOptions {
        credential_caller: Some(Rate::new(1, 2)),
        tokens: vec![("busy".to_owned(), Rate::new(10_000, 20_000))],
        ..LimitOptions::unlimited()
    };
    let world = World::start_with(Plan {
        state: Box::new(move |state| state.limits(limits)),
        credentials: true,
        ..Plan::default()
    })
    .await;
    let url = format!("https://{}/api/v1/data?name-like=x", credentials(&world));
    let client = world.builder().build().unwrap();
    let get = async |token: &str, times: usize| {
        let mut refused = None;
        for _ in 0..times {
            let answer = client.get(&url).bearer_auth(token).send().await.unwrap();
            match answer.status() {
                StatusCode::OK => {}
                StatusCode::TOO_MANY_REQUESTS => refused = Some(answer),
                other => panic!("{other}"),
            }
        }
        refused
    };
    let (busy, usual) =
        (world.token("busy", "admin", "any").await, world.token("usual", "admin", "any").await);
    assert!(get(&busy, 100).await.is_none());
    // Far more requests than the limit allows, also on a slow machine.
    let refused = get(&usual, 200).await.expect("a burst of two");
    assert_eq!(refused.headers()["retry-after"], "1");
}

#[tokio::test]
async fn failed_logins_are_rate_limited_by_account() {
    let limits = LimitOptions { account_failures: Some(Rate::new(1, 2)), ..LimitOptions::unlimited() };
    let world = World::start_with(Plan {
        state: Box::new(move |state| state.limits(limits)),
        credentials: true,
        ..Plan::default()
    })
    .await;
    let client = world.builder().build().unwrap();
    let log_in = async |account: &str, secret: &str| {
        let form = format!("grant_type=client_credentials&client_id={account}&client_secret={secret}");
        let url = format!("https://{}/oauth/token", credentials(&world));
        let request = client.post(url).header("content-type", "application/x-www-form-urlencoded");
        request.body(form).send().await.unwrap()
    };
    let token = world.token("ci", "admin", "any").await;
    let refused = async {
        loop {
            let answer = log_in("ci", "bulla_guess").await;
            if answer.status() == StatusCode::TOO_MANY_REQUESTS {
                return answer;
            }
            assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
        }
    };
    let refused = tokio::time::timeout(LONG, refused).await.expect("a burst of two");
    assert_eq!(refused.headers()["retry-after"], "1");
    // Failed attempts do not lock out the correct secret or other accounts.
    assert_eq!(log_in("ci", &token).await.status(), StatusCode::OK);
    assert_eq!(log_in("other", "bulla_guess").await.status(), StatusCode::UNAUTHORIZED);
}
