//! TLS to the proxy itself.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use http_relay::upstream::{Parent, UpstreamRoute};
use hyper::client::conn::http2;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use proxy::mint::{LeafKeyKind, LeafKeys, Minter};
use proxy::{Action, Options, OwnTls, Rules, Users};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use x509::HostOrIp;

use crate::world::{Client, TIMEOUT, Upstream, World, authority, exchange, now};

/// User `alice` with password `secret`.
const USER: &str = "alice:$6$saltsalt$TVLlQcbpFVof5W3Yz4DTP6gRstiNuHwwTt6GLc1E5n0U0aDehy0S5knV8wiOQSpT0Y77vwPZN.Pq.H91p5hVO1";
/// `alice:secret`
const BASIC: &str = "Basic YWxpY2U6c2VjcmV0";

/// Starts a proxy that accepts only TLS, as `localhost`. Returns the root of its certificate too.
async fn guarded(upstream: &Upstream, change: impl FnOnce(&mut Options)) -> (World, Vec<u8>) {
    let (authority, root) = authority();
    let minter = Minter::new(authority, Arc::new(LeafKeys::new().unwrap()), Duration::from_secs(86_400));
    let name = HostOrIp::parse("localhost").unwrap();
    let certificate = minter.mint(&name, LeafKeyKind::P256, now()).await.unwrap().certified.clone();
    let world = World::new(&upstream.root, |options| {
        options.access.tls =
            Some(OwnTls { certificate, client_roots: Vec::new(), revoked: None, only: true });
        options.access.users = Users::parse(USER).unwrap();
        change(options);
    })
    .await;
    (world, root)
}

async fn by_tls(world: &World, root: &[u8], alpn: &str) -> TlsStream<TcpStream> {
    let tcp = world.tcp().await;
    Client::of(root, alpn).0.connect("localhost".try_into().unwrap(), tcp).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_streams_authenticate_separately_and_pages_are_public() {
    let upstream = Upstream::start("localhost").await;
    let (world, root) = guarded(&upstream, |_| {}).await;
    let stream = by_tls(&world, &root, "h2").await;
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let exchange = async |method: Method, uri: &str, credential: Option<&str>| -> Response<_> {
        let mut request = Request::builder().method(method).uri(uri);
        if let Some(credential) = credential {
            request = request.header("proxy-authorization", credential);
        }
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        let answered = tokio::time::timeout(TIMEOUT, sender.clone().send_request(request)).await;
        answered.unwrap().unwrap()
    };
    let target = upstream.address.to_string();
    let known = exchange(Method::CONNECT, &target, Some(BASIC)).await;
    assert_eq!(known.status(), StatusCode::OK);
    for credential in [None, Some("Basic YWxpY2U6U2VjcmV0")] {
        let unknown = exchange(Method::CONNECT, &target, credential).await;
        assert_eq!(unknown.status(), StatusCode::PROXY_AUTHENTICATION_REQUIRED, "{credential:?}");
    }
    for (uri, wanted) in [
        ("https://proxy.example:3128/ca.pem", "BEGIN CERTIFICATE"),
        ("https://proxy.example:3128/proxy.pac", "\"HTTPS proxy.example:3128\""),
    ] {
        let page = exchange(Method::GET, uri, None).await;
        assert_eq!(page.status(), StatusCode::OK, "{uri}");
        let response = page.into_body().collect().await.unwrap().to_bytes();
        assert!(String::from_utf8_lossy(&response).contains(wanted), "{uri}: {response:?}");
    }
    let answered = exchange(Method::GET, "http://a.example/", None).await;
    assert_eq!(answered.status(), StatusCode::PROXY_AUTHENTICATION_REQUIRED);
}

#[tokio::test(flavor = "multi_thread")]
async fn socks5_works_inside_tls() {
    let upstream = Upstream::start("localhost").await;
    let (world, root) = guarded(&upstream, |_| {}).await;
    let mut stream = by_tls(&world, &root, "http/1.1").await;
    let port = upstream.address.port();
    let request = [&b"\x05\x01\x00\x03\x09localhost"[..], &port.to_be_bytes()].concat();
    for (message, answer) in [
        (&[5, 1, 2][..], &[5, 2][..]),
        (b"\x01\x05alice\x06secret", &[1, 0]),
        (&request, &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]),
    ] {
        testbed::write_and_flush(&mut stream, message).await.unwrap();
        let mut response = vec![0; answer.len()];
        tokio::time::timeout(TIMEOUT, stream.read_exact(&mut response)).await.unwrap().unwrap();
        assert_eq!(response, answer);
    }
    let client = Client::of(&world.root, "http/1.1");
    let mut stream = client.0.connect("localhost".try_into().unwrap(), stream).await.unwrap();
    let response = exchange(&mut stream, &format!("GET / HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n")).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_parent_proxy_is_verified_against_the_upstream_roots() {
    let upstream = Upstream::start("localhost").await;
    let (parent, root) = guarded(&upstream, |options| options.rules = Rules::new(Action::Tunnel)).await;
    let url = format!("https://localhost:{}", parent.running.address.port());
    let target = format!("localhost:{}", upstream.address.port());
    for (roots, wanted) in [
        (vec![upstream.root.clone(), root], "HTTP/1.1 200"),
        (vec![upstream.root.clone()], "error=tls_certificate_error"),
    ] {
        let world = World::new(&upstream.root, |options| {
            let route = Parent::new(&url, Some("alice:secret")).unwrap();
            options.upstreams.route = UpstreamRoute::Parent(Arc::new(route));
            options.upstream_roots = roots;
        })
        .await;
        let client = Client::of(&world.root, "http/1.1");
        let mut stream = world.tls(&client, &target, "localhost").await.unwrap();
        let response = exchange(&mut stream, &format!("GET / HTTP/1.1\r\nHost: {target}\r\n\r\n")).await;
        assert!(response.contains(wanted), "{wanted}: {response}");
    }
}
