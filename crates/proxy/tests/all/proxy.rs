//! Behavior of the proxy as clients see it.

use std::collections::HashSet;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use proxy::{Action, Rules};
use rustls::HandshakeKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use x509::GeneralName;

use crate::world::{self, Answers, AnyBody, Client, Speaks, TIMEOUT, Upstream, World, exchange, head, leaf};

fn rules(default: Action, patterns: &[&str], action: Action) -> Rules {
    let mut rules = Rules::new(default);
    rules.add(&patterns.iter().map(ToString::to_string).collect::<Vec<_>>(), action).unwrap();
    rules
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_forwarded_over_http1_and_http2() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |_| {}).await;
    let target = format!("localhost:{}", upstream.address.port());

    let client = Client::of(&world.root, "http/1.1");
    let mut stream = world.tls(&client, &target, "localhost").await.unwrap();
    let own = leaf(&stream);
    assert_eq!(own.subject_alt_names, [GeneralName::Dns("localhost".into())]);
    assert!(own.not_after.since(own.not_before) <= 47 * 86_400 + 3_600, "{own:?}");
    let reply = exchange(
        &mut stream,
        &format!("POST /a?b HTTP/1.1\r\nHost: {target}\r\nConnection: x-mine, keep-alive\r\nX-Mine: 1\r\nX-Yours: 2\r\n\
                  Proxy-Authorization: Basic eDp5\r\nTE: gzip, trailers\r\nTransfer-Encoding: chunked\r\n\r\n\
                  3\r\nabc\r\n0\r\n\r\n"),
    )
    .await;
    assert!(
        reply.contains("POST /a?b HTTP/1.1\n") && reply.contains(&format!("host: {target}\n")),
        "{reply}"
    );
    assert!(
        reply.contains("x-yours: 2\n") && reply.contains("te: trailers\n") && reply.contains("body of 3\n"),
        "{reply}"
    );
    for removed in ["x-mine", "proxy-authorization", "keep-alive"] {
        assert!(!reply.to_lowercase().contains(removed), "{removed}: {reply}");
    }

    let client = Client::of(&world.root, "h2");
    let stream = world.tls(&client, &target, "localhost").await.unwrap();
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get(format!("https://{target}/two")).body(Full::<Bytes>::default()).unwrap();
    let body = sender.send_request(request).await.unwrap().collect().await.unwrap().to_bytes();
    let reply = String::from_utf8(body.to_vec()).unwrap();
    assert!(reply.contains("/two HTTP/2.0\n"), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn upstream_connections_and_tls_sessions_are_reused() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |_| {}).await;
    let target = format!("localhost:{}", upstream.address.port());
    let client = Client::of(&world.root, "http/1.1");
    let mut kinds = Vec::new();
    for _ in 0..3 {
        let mut stream = world.tls(&client, &target, "localhost").await.unwrap();
        for _ in 0..3 {
            let reply = exchange(&mut stream, &format!("GET / HTTP/1.1\r\nHost: {target}\r\n\r\n")).await;
            assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
        }
        kinds.push(stream.get_ref().1.handshake_kind().unwrap());
    }
    assert_eq!(kinds, [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed]);
    assert_eq!(upstream.made(), 1, "one connection for nine requests");
    assert_eq!(world.running.store().counts().minted, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn sni_selects_the_host_and_connect_target_is_the_fallback() {
    let upstream = Upstream::start("a.example").await;
    let world = World::new(&upstream.root, |options| {
        options.rules = rules(Action::Intercept, &["localhost", "direct.example"], Action::Tunnel);
    })
    .await;
    let target = format!("127.0.0.1:{}", upstream.address.port());
    let client = Client::of(&world.root, "http/1.1");
    // The leaf has the name of the SNI, although CONNECT had an address (goproxy#86). The upstream certificate is verified against
    // that name too.
    let mut stream = world.tls(&client, &target, "a.example").await.unwrap();
    assert_eq!(leaf(&stream).subject_alt_names, [GeneralName::Dns("a.example".into())]);
    let reply = exchange(&mut stream, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    // A ClientHello for an address has no SNI.
    let stream = world.tls(&client, &target, "127.0.0.1").await.unwrap();
    assert_eq!(leaf(&stream).subject_alt_names, [GeneralName::Ip("127.0.0.1".parse().unwrap())]);
    // The upstream certificate does not have this name: the proxy returns 502 with the reason.
    let mut stream = world.tls(&client, &target, "b.example").await.unwrap();
    let reply = exchange(&mut stream, "GET / HTTP/1.1\r\nHost: b.example\r\n\r\n").await;
    assert!(
        reply.starts_with("HTTP/1.1 502")
            && reply.contains("proxy-status: bulla; error=tls_certificate_error"),
        "{reply}"
    );
    // The tunnel goes to the name of the SNI, not to the CONNECT target. The client receives the upstream's own certificate.
    let direct = Client::of(&upstream.root, "http/1.1");
    let elsewhere = format!("192.0.2.1:{}", upstream.address.port());
    let refused = world.tls(&direct, &elsewhere, "localhost").await.unwrap_err();
    assert!(refused.to_string().contains("not valid for name"), "{refused}");
    let made = upstream.made();
    assert!(world.tls(&direct, &target, "direct.example").await.is_err(), "there is no such name");
    assert_eq!(upstream.made(), made, "nor is its connection made to the address of CONNECT");
}

/// A request for another host than its connection would bypass rules by host.
#[tokio::test(flavor = "multi_thread")]
async fn request_host_must_match_the_host_of_its_connection() {
    let upstream = Upstream::start("localhost").await;
    let plain = crate::ways::plain().await;
    let world = World::new(&upstream.root, |_| {}).await;
    let port = upstream.address.port();
    let request_head = |host: &str| format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let cases = [("localhost", 200), ("front.example", 421), ("127.0.0.1", 421), ("LOCALHOST.:1", 200)];
    for (host, status) in cases {
        let client = Client::of(&world.root, "http/1.1");
        let mut stream = world.tls(&client, &format!("localhost:{port}"), "localhost").await.unwrap();
        let reply = exchange(&mut stream, &request_head(host)).await;
        assert!(reply.starts_with(&format!("HTTP/1.1 {status}")), "TLS, {host}: {reply}");
        let reply =
            exchange(&mut stream, &format!("GET https://{host}/ HTTP/1.1\r\nHost: localhost\r\n\r\n")).await;
        assert!(reply.starts_with(&format!("HTTP/1.1 {status}")), "TLS in full, {host}: {reply}");
        let stream =
            world.tls(&Client::of(&world.root, "h2"), &format!("localhost:{port}"), "localhost").await;
        let (sender, _connection) = world::http2(stream.unwrap()).await;
        assert_eq!(
            world::answer(&sender, world::get(&format!("https://{host}/"))).await.0,
            status,
            "HTTP/2, {host}"
        );
        let (_, mut stream) = world.connect(&format!("localhost:{plain}")).await;
        let reply = exchange(&mut stream, &request_head(host)).await;
        assert!(reply.starts_with(&format!("HTTP/1.1 {status}")), "in the clear, {host}: {reply}");
    }
    // A connection to an address accepts requests for that address and for names that resolve to it.
    for (host, status) in [("127.0.0.1", 200), ("localhost", 200), ("front.example", 421), ("127.0.0.2", 421)]
    {
        let (_, mut stream) = world.connect(&format!("127.0.0.1:{plain}")).await;
        let reply = exchange(&mut stream, &request_head(host)).await;
        assert!(reply.starts_with(&format!("HTTP/1.1 {status}")), "to an address, {host}: {reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_tunneled_or_rejected_by_rules() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |options| {
        let mut rules = rules(Action::Intercept, &["localhost"], Action::Tunnel);
        rules.add(&["*.bad.example".to_owned()], Action::Reject).unwrap();
        options.rules = rules;
    })
    .await;
    let port = upstream.address.port();
    let direct = Client::of(&upstream.root, "http/1.1");
    let mut stream = world.tls(&direct, &format!("localhost:{port}"), "localhost").await.unwrap();
    let reply = exchange(&mut stream, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    let (reply, _) = world.connect("x.bad.example:443").await;
    assert!(reply.starts_with("HTTP/1.1 403") && reply.contains("http_request_denied"), "{reply}");
    // Only the SNI has the rejected name: the proxy returns an error page.
    let client = Client::of(&world.root, "http/1.1");
    let mut stream = world.tls(&client, &format!("127.0.0.1:{port}"), "x.bad.example").await.unwrap();
    let reply = exchange(&mut stream, "GET / HTTP/1.1\r\nHost: x.bad.example\r\n\r\n").await;
    assert!(reply.starts_with("HTTP/1.1 403") && reply.contains("not allowed"), "{reply}");
    // The name is rejected on a connection for another name too.
    let mut stream = world.tls(&client, &format!("127.0.0.1:{port}"), "front.example").await.unwrap();
    let reply = exchange(&mut stream, "GET / HTTP/1.1\r\nHost: x.bad.example:443\r\n\r\n").await;
    assert!(reply.starts_with("HTTP/1.1 403"), "{reply}");
    assert_eq!(world.running.store().counts().minted, 2, "nothing is minted for what is passed on");
}

#[tokio::test(flavor = "multi_thread")]
async fn rejection_is_sent_before_the_request_body_arrives() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |options| {
        options.rules = rules(Action::Intercept, &["*.bad.example"], Action::Reject);
    })
    .await;
    let client = Client::of(&world.root, "http/1.1");
    let target = format!("127.0.0.1:{}", upstream.address.port());
    let mut stream = world.tls(&client, &target, "x.bad.example").await.unwrap();
    // The client sends header and body separately, as many clients do.
    for _ in 0..3 {
        let head = "POST / HTTP/1.1\r\nHost: x.bad.example\r\nContent-Length: 40000\r\n\r\n";
        let reply = exchange(&mut stream, head).await;
        assert!(reply.starts_with("HTTP/1.1 403"), "before the body came: {reply}");
        testbed::write_and_flush(&mut stream, &[b'x'; 40_000]).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ntlm_connections_are_not_shared_and_http2_cookies_are_joined() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let made = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&made);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            tokio::spawn(async move {
                loop {
                    let request_head = head(&mut stream).await;
                    if request_head.is_empty() {
                        return;
                    }
                    let reply = format!(
                        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{request_head}",
                        request_head.len()
                    );
                    let _ = stream.write_all(reply.as_bytes()).await;
                }
            });
        }
    });
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |_| {}).await;
    let get = |more: &str| format!("GET http://{address}/ HTTP/1.1\r\nHost: {address}\r\n{more}\r\n");
    // A connection that NTLM has authenticated is not reused for other users.
    for more in ["Authorization: NTLM abc\r\n", "Authorization: negotiate abc\r\n", ""] {
        let reply = exchange(&mut world.tcp().await, &get(more)).await;
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    }
    exchange(&mut world.tcp().await, &get("")).await;
    assert_eq!(
        made.load(std::sync::atomic::Ordering::Relaxed),
        3,
        "two for two users, and one for both others"
    );
    // Several cookie headers of HTTP/2 become one header in HTTP/1.1, and bodies of unknown length arrive.
    let (reply, tunnel) = world.connect(&address.to_string()).await;
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(tunnel)).await.unwrap();
    tokio::spawn(connection);
    let request =
        Request::get(format!("http://{address}/two")).header("cookie", "a=1").header("cookie", "b=2");
    let answer = sender.send_request(request.body(Full::<Bytes>::default()).unwrap()).await.unwrap();
    let reply = String::from_utf8(answer.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    assert!(reply.contains("cookie: a=1; b=2\r\n"), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_http_and_protocol_upgrades_are_forwarded() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let request_head = head(&mut stream).await;
                if request_head.to_lowercase().contains("upgrade: echo\r\n") {
                    stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n").await.unwrap();
                    let (mut from, mut to) = stream.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                } else {
                    let line = request_head.lines().next().unwrap();
                    let reply = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{line}", line.len());
                    stream.write_all(reply.as_bytes()).await.unwrap();
                }
            });
        }
    });
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |_| {}).await;
    let mut stream = world.tcp().await;
    let reply =
        exchange(&mut stream, &format!("GET http://{address}/x HTTP/1.1\r\nHost: other\r\n\r\n")).await;
    assert!(reply.ends_with("GET /x HTTP/1.1"), "{reply}");
    let (reply, mut stream) = world.connect(&address.to_string()).await;
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    let upgrade =
        format!("GET / HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    let reply = exchange(&mut stream, &upgrade).await;
    assert!(reply.starts_with("HTTP/1.1 101") && reply.to_lowercase().contains("upgrade: echo"), "{reply}");
    stream.write_all(b"ping").await.unwrap();
    let mut pong = [0; 4];
    tokio::time::timeout(TIMEOUT, stream.read_exact(&mut pong)).await.unwrap().unwrap();
    assert_eq!(&pong, b"ping");
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_serves_its_own_pages_and_rejects_requests_to_itself() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |_| {}).await;
    let own = world.running.address;
    let of = async |request: String| exchange(&mut world.tcp().await, &request).await;
    let reply = of(format!("GET /proxy.pac HTTP/1.1\r\nHost: {own}\r\n\r\n")).await;
    assert!(reply.contains(&format!("return \"PROXY {own}\"")), "{reply}");
    let reply = of("GET /proxy.pac HTTP/1.1\r\nHost: \"; evil\r\n\r\n".to_owned()).await;
    assert!(!reply.contains("evil"), "{reply}");
    let reply = of("GET http://bulla.proxy/ca.pem HTTP/1.1\r\nHost: bulla.proxy\r\n\r\n".to_owned()).await;
    assert!(reply.contains("BEGIN CERTIFICATE"), "{reply}");
    let (_, mut stream) = world.connect(&own.to_string()).await;
    let reply = exchange(&mut stream, &format!("GET /x HTTP/1.1\r\nHost: {own}\r\n\r\n")).await;
    assert!(reply.starts_with("HTTP/1.1 508"), "{reply}");
    let (reply, _) = world.connect("nosuch.invalid").await;
    assert!(reply.starts_with("HTTP/1.1 400"), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_handshakes_mint_one_leaf_per_name() {
    const HOSTS: usize = 50;
    const CLIENTS: usize = 32;
    let upstream = Upstream::for_all().await;
    let world = World::new(&upstream.root, |_| {}).await;
    let client = Client::fresh(&world.root);
    let target = format!("127.0.0.1:{}", upstream.address.port());
    for host in 0..HOSTS {
        let name = format!("host{host}.example");
        let all = (0..CLIENTS).map(|_| world.tls(&client, &target, &name));
        let serials: HashSet<Vec<u8>> = futures_util::future::join_all(all)
            .await
            .into_iter()
            .map(|stream| leaf(&stream.unwrap()).serial.content().to_vec())
            .collect();
        assert_eq!(serials.len(), 1, "{name}");
    }
    let counts = world.running.store().counts();
    assert_eq!((counts.minted, counts.failed, counts.refused), (HOSTS as u64, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_closes_idle_connections_at_once() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |_| {}).await;
    let target = format!("localhost:{}", upstream.address.port());
    let client = Client::of(&world.root, "http/1.1");
    let mut stream = world.tls(&client, &target, "localhost").await.unwrap();
    exchange(&mut stream, &format!("GET / HTTP/1.1\r\nHost: {target}\r\n\r\n")).await;
    assert!(world.running.stop(TIMEOUT).await, "a connection that waits for a request ends at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn client_without_ecdsa_receives_an_rsa_leaf() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |_| {}).await;
    let target = format!("localhost:{}", upstream.address.port());
    let client = Client::without_ecdsa(&world.root);
    // The first client waits for the key.
    let shown = leaf(&world.tls(&client, &target, "localhost").await.unwrap());
    assert_eq!((shown.public_key.algorithm, shown.public_key.bits), (x509::KeyAlgorithm::Rsa, 2_048));
    let other = world.tls(&Client::of(&world.root, "h2"), &target, "localhost").await.unwrap();
    assert_eq!(leaf(&other).public_key.bits, 256);
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_does_not_read_is_closed_after_the_idle_timeout() {
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
    let world =
        World::new(&upstream.root, |options| options.idle = std::time::Duration::from_millis(300)).await;
    let mut stream = world.tcp().await;
    stream.write_all(format!("GET http://{address}/ HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await.unwrap();
    tokio::time::timeout(TIMEOUT, sending).await.expect("it ends although the client never reads").unwrap();
}

/// Offers HTTP/3, and reports the protocol that the client upgrades to.
fn offers_http3(request: Request<Incoming>) -> Response<AnyBody> {
    let upgrade = request.headers().get("upgrade").map_or("none", |to| to.to_str().unwrap());
    let reply = format!("upgrade {upgrade}");
    let mut response = Response::new(Full::new(Bytes::from(reply)).boxed_unsync());
    response.headers_mut().insert("alt-svc", "h3=\":443\"; ma=86400".parse().unwrap());
    response.headers_mut().append("alt-svc", "h3-29=\":443\"".parse().unwrap());
    response
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_not_led_to_http3() {
    let answers: Answers = |request| Box::pin(async move { offers_http3(request) });
    let upstream = Upstream::start_with(Speaks { answers: Some(answers), ..Speaks::default() }).await;
    let world = World::new(&upstream.root, |_| {}).await;
    let target = format!("localhost:{}", upstream.address.port());
    let mut stream = world.tls(&Client::of(&world.root, "http/1.1"), &target, "localhost").await.unwrap();
    let get = format!("GET / HTTP/1.1\r\nHost: {target}\r\n");
    let reply = exchange(&mut stream, &format!("{get}\r\n")).await;
    assert!(reply.starts_with("HTTP/1.1 200") && !reply.to_lowercase().contains("alt-svc"), "{reply}");
    // UDP over HTTP would carry HTTP/3. The server does not get the request to switch, and the client continues by HTTP.
    let reply =
        exchange(&mut stream, &format!("{get}Connection: upgrade\r\nUpgrade: connect-udp\r\n\r\n")).await;
    assert!(reply.starts_with("HTTP/1.1 200") && reply.ends_with("upgrade none"), "{reply}");
    let stream = world.tls(&Client::of(&world.root, "h2"), &target, "localhost").await.unwrap();
    let (sender, _connection) = world::http2(stream).await;
    let response = sender.clone().send_request(world::get(&format!("https://{target}/"))).await.unwrap();
    assert!(!response.headers().contains_key("alt-svc"), "{:?}", response.headers());
}
