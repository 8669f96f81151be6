//! Routes to upstreams, trust in upstreams, and the requests that they receive.

use std::sync::Arc;
use std::time::Duration;

use http_relay::upstream::{Parent, UpstreamPolicy, UpstreamRoute};
use proxy::{Action, Rules, Users};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::world::{Client, TIMEOUT, Upstream, World, authority, exchange, head};

/// User `alice` with password `secret`.
const USER: &str = "alice:$6$saltsalt$TVLlQcbpFVof5W3Yz4DTP6gRstiNuHwwTt6GLc1E5n0U0aDehy0S5knV8wiOQSpT0Y77vwPZN.Pq.H91p5hVO1";

/// Starts a plain HTTP server that echoes the header of each request. Returns its port.
pub(crate) async fn plain() -> u16 {
    typed("text/plain").await
}

/// The same, with the content type `kind`.
pub(crate) async fn typed(kind: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let requested = head(&mut stream).await;
            let length = requested.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{requested}"
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn parent_proxy_receives_configured_and_not_client_credentials() {
    let upstream = Upstream::start("localhost").await;
    let plain = plain().await;
    let parent = World::new(&upstream.root, |options| {
        options.rules = Rules::new(Action::Tunnel);
        options.access.users = Users::parse(USER).unwrap();
    })
    .await;
    let below = async |credentials: &str| {
        let url = format!("http://{}", parent.running.address);
        let route = UpstreamRoute::Parent(Arc::new(Parent::new(&url, Some(credentials)).unwrap()));
        World::new(&upstream.root, |options| {
            options.upstreams.route = route;
            let direct = UpstreamPolicy { route: Some(UpstreamRoute::Direct), ..UpstreamPolicy::default() };
            options.upstreams.add(&["127.0.0.1".to_owned()], direct).unwrap();
        })
        .await
    };
    let port = upstream.address.port();
    let requested = async |world: &World, host: &str| {
        let client = Client::of(&world.root, "http/1.1");
        let mut stream = world.tls(&client, &format!("{host}:{port}"), host).await.unwrap();
        let by_tls = exchange(&mut stream, &format!("GET / HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n")).await;
        let request = format!(
            "GET http://{host}:{plain}/p HTTP/1.1\r\nHost: {host}:{plain}\r\nProxy-Authorization: Basic eDp5\r\n\r\n"
        );
        (by_tls, exchange(&mut world.tcp().await, &request).await)
    };
    let world = below("alice:secret").await;
    let (by_tls, in_the_clear) = requested(&world, "localhost").await;
    assert!(by_tls.starts_with("HTTP/1.1 200"), "{by_tls}");
    assert!(
        in_the_clear.starts_with("HTTP/1.1 200") && in_the_clear.contains("GET /p HTTP/1.1"),
        "{in_the_clear}"
    );
    assert!(!in_the_clear.to_ascii_lowercase().contains("proxy-authorization"), "{in_the_clear}");

    let world = below("alice:Secret").await;
    let (by_tls, in_the_clear) = requested(&world, "localhost").await;
    for response in [by_tls, in_the_clear] {
        assert!(response.starts_with("HTTP/1.1 502") && response.contains("the status 407"), "{response}");
        assert!(
            response.contains("error=destination_unavailable") && !response.contains("proxy-authenticate"),
            "{response}"
        );
    }
    // Direct connections do not depend on the parent proxy.
    let (_, in_the_clear) = requested(&world, "127.0.0.1").await;
    assert!(in_the_clear.starts_with("HTTP/1.1 200"), "{in_the_clear}");
}

/// Starts a parent proxy that reports the header of each request. It responds to CONNECT and to the request after it.
async fn noting_parent() -> (String, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (note, noted) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let note = note.clone();
            tokio::spawn(async move {
                loop {
                    let requested = head(&mut stream).await;
                    let is_connect = requested.starts_with("CONNECT");
                    if requested.is_empty() || note.send(requested).is_err() {
                        break;
                    }
                    let answer = match is_connect {
                        true => "HTTP/1.1 200 OK\r\n\r\n",
                        false => "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
                    };
                    let _ = stream.write_all(answer.as_bytes()).await;
                }
            });
        }
    });
    (url, noted)
}

#[tokio::test(flavor = "multi_thread")]
async fn parent_proxy_receives_the_original_target_without_credentials() {
    let (url, mut noted) = noting_parent().await;
    let (_, root) = authority();
    let world = World::new(&root, |options| {
        options.upstreams.route = UpstreamRoute::Parent(Arc::new(Parent::new(&url, None).unwrap()));
    })
    .await;
    let mut next = async || tokio::time::timeout(TIMEOUT, noted.recv()).await.unwrap().unwrap();
    let own = "Proxy-Authorization: Basic eDp5\r\n";
    // Absolute form: the URL contains the host.
    let request = format!("GET http://a.example/p HTTP/1.1\r\nHost: a.example\r\n{own}\r\n");
    let response = exchange(&mut world.tcp().await, &request).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    let forwarded = next().await;
    assert!(forwarded.starts_with("GET http://a.example:80/p HTTP/1.1\r\n"), "{forwarded}");
    assert!(!forwarded.to_ascii_lowercase().contains("proxy-authorization"), "{forwarded}");
    // After CONNECT to an address, the proxy keeps the client's Host header.
    let (_, mut stream) = world.connect("192.0.2.1:80").await;
    let response =
        exchange(&mut stream, &format!("GET /q HTTP/1.1\r\nHost: 192.0.2.1:80\r\n{own}\r\n")).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    let forwarded = next().await;
    assert!(forwarded.starts_with("CONNECT 192.0.2.1:80 HTTP/1.1\r\n"), "{forwarded}");
    assert!(!forwarded.to_ascii_lowercase().contains("proxy-authorization"), "{forwarded}");
    let forwarded = next().await.to_ascii_lowercase();
    assert!(
        forwarded.starts_with("get /q http/1.1\r\n") && forwarded.contains("host: 192.0.2.1:80\r\n"),
        "{forwarded}"
    );
    assert!(!forwarded.contains("proxy-authorization"), "{forwarded}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_to_own_listeners_are_rejected_as_loops() {
    let upstream = Upstream::start("localhost").await;
    let own = plain().await;
    let world = World::new(&upstream.root, |options| {
        options.own_addresses = vec![([127, 0, 0, 1], own).into()];
    })
    .await;
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"] {
        let request = format!("GET http://{host}:{own}/ HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let absolute_form = exchange(&mut world.tcp().await, &request).await;
        let (_, mut stream) = world.connect(&format!("{host}:{own}")).await;
        let behind = exchange(&mut stream, &format!("GET / HTTP/1.1\r\nHost: {host}:{own}\r\n\r\n")).await;
        for response in [absolute_form, behind] {
            assert!(
                response.starts_with("HTTP/1.1 508") && response.contains("error=proxy_loop_detected"),
                "{host}: {response}"
            );
        }
    }
    // A local client may reach another port of the same address.
    let other = plain().await;
    let request = format!("GET http://127.0.0.1:{other}/ HTTP/1.1\r\nHost: x\r\n\r\n");
    let response = exchange(&mut world.tcp().await, &request).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}

#[tokio::test(flavor = "multi_thread")]
async fn upstream_roots_apply_only_to_their_configured_names() {
    let upstream = Upstream::for_all().await;
    let (_, other_root) = authority();
    let world = World::new(&other_root, |options| {
        let roots = UpstreamPolicy { roots: vec![upstream.root.clone()], ..UpstreamPolicy::default() };
        options.upstreams.add(&["*.own.example".to_owned()], roots).unwrap();
        let anybody = UpstreamPolicy { verify: false, ..UpstreamPolicy::default() };
        options.upstreams.add(&["any.example".to_owned()], anybody).unwrap();
    })
    .await;
    let client = Client::of(&world.root, "http/1.1");
    let target = format!("127.0.0.1:{}", upstream.address.port());
    for (name, status) in [("a.own.example", "200"), ("any.example", "200"), ("own.example", "502")] {
        let mut stream = world.tls(&client, &target, name).await.unwrap();
        let response = exchange(&mut stream, &format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n")).await;
        assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{name}: {response}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn auto_tunnel_passes_through_after_the_client_rejects_the_leaf() {
    let upstream = Upstream::for_all().await;
    let target = format!("127.0.0.1:{}", upstream.address.port());
    // This client trusts the upstream's root and not the proxy's.
    let pinned = Client::of(&upstream.root, "http/1.1");
    let world =
        World::new(&upstream.root, |options| options.auto_tunnel = Some(Duration::from_secs(3_600))).await;
    assert!(world.tls(&pinned, &target, "localhost").await.is_err());
    // The alert of the client may arrive later.
    let began = Instant::now();
    while let Err(error) = world.tls(&pinned, &target, "localhost").await {
        assert!(began.elapsed() < TIMEOUT, "{error}");
    }
    assert!(world.tls(&pinned, &target, "other.example").await.is_err(), "a name that was not refused yet");

    let world = World::new(&upstream.root, |_| {}).await;
    for _ in 0..10 {
        assert!(world.tls(&pinned, &target, "localhost").await.is_err());
    }
}
