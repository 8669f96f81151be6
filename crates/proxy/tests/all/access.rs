//! Authentication of clients: passwords, tokens and SOCKS5.

use data_encoding::HEXLOWER;
use http_relay::access_log::AccessLog;
use proxy::{Token, Users};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::{Client, TIMEOUT, Upstream, World, exchange, head};

/// `openssl passwd -6 -salt saltsalt secret`
const HASH: &str =
    "$6$saltsalt$TVLlQcbpFVof5W3Yz4DTP6gRstiNuHwwTt6GLc1E5n0U0aDehy0S5knV8wiOQSpT0Y77vwPZN.Pq.H91p5hVO1";
/// `alice:secret`
const BASIC: &str = "Basic YWxpY2U6c2VjcmV0";
/// SHA-256 of `token-of-bob`.
const DIGEST: &str = "800480042268218663feef3ea54d81ed3f976c98c38d5fd7afbe22810ec16334";

async fn guarded(upstream: &Upstream) -> World {
    World::new(&upstream.root, |options| {
        options.access.users = Users::parse(&format!("alice:{HASH}\n")).unwrap();
        let digest = HEXLOWER.decode(DIGEST.as_bytes()).unwrap().try_into().unwrap();
        options.access.tokens = vec![Token { name: "bob".into(), digest }];
    })
    .await
}

/// Sends CONNECT with `Proxy-Authorization`. Returns the response and the stream.
async fn connect(world: &World, target: &str, credential: &str) -> (String, TcpStream) {
    let mut stream = world.tcp().await;
    let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{credential}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    (head(&mut stream).await, stream)
}

#[tokio::test(flavor = "multi_thread")]
async fn valid_password_or_token_is_required() {
    let upstream = Upstream::start("localhost").await;
    let world = guarded(&upstream).await;
    let target = format!("localhost:{}", upstream.address.port());
    let header = |value: &str| format!("Proxy-Authorization: {value}\r\n");
    let right = [header(BASIC), header("basic  YWxpY2U6c2VjcmV0"), header("Bearer token-of-bob")];
    for credential in right {
        let (response, stream) = connect(&world, &target, &credential).await;
        assert!(response.starts_with("HTTP/1.1 200"), "{credential}: {response}");
        let client = Client::of(&world.root, "http/1.1");
        let mut stream = client.0.connect("localhost".try_into().unwrap(), stream).await.unwrap();
        let response = exchange(&mut stream, &format!("GET / HTTP/1.1\r\nHost: {target}\r\n\r\n")).await;
        assert!(response.starts_with("HTTP/1.1 200"), "who is let in is not asked again: {response}");
    }
    let wrong = [
        String::new(),
        header("Basic YWxpY2U6U2VjcmV0"),
        header("Basic Ym9iOnNlY3JldA=="),
        header("Basic !"),
        header("Bearer token-of-eve"),
        header("Negotiate x"),
        format!("{}{}", header(BASIC), header(BASIC)),
    ];
    for credential in wrong {
        let (response, _) = connect(&world, &target, &credential).await;
        assert!(response.starts_with("HTTP/1.1 407"), "{credential}: {response}");
        assert!(
            response.contains("proxy-authenticate: Basic realm=")
                && response.contains("proxy-authenticate: Bearer")
        );
    }
    // Absolute-form requests require authentication too. The pages about the CA are public.
    let mut stream = world.tcp().await;
    let response =
        exchange(&mut stream, &format!("GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n")).await;
    assert!(response.starts_with("HTTP/1.1 407"), "{response}");
    let response = exchange(&mut stream, "GET /ca.pem HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_authentication_is_limited_and_known_users_are_not() {
    let upstream = Upstream::start("localhost").await;
    let world = guarded(&upstream).await;
    let known = format!("Proxy-Authorization: {BASIC}\r\n");
    let (response, _) = connect(&world, "localhost:1", &known).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    let mut responses = Vec::new();
    for guess in 0..60 {
        let guess = format!("Proxy-Authorization: Bearer guess-{guess}\r\n");
        responses.push(connect(&world, "localhost:1", &guess).await.0);
    }
    assert!(responses[0].starts_with("HTTP/1.1 407"), "{}", responses[0]);
    assert!(responses.iter().any(|response| response.starts_with("HTTP/1.1 429")), "{responses:?}");
    let (response, _) = connect(&world, "localhost:1", &known).await;
    assert!(response.starts_with("HTTP/1.1 200"), "the same address, and known: {response}");
}

/// Sends `messages` one by one. Returns the responses, whose lengths are `answers`, and the stream.
async fn socks(world: &World, messages: &[&[u8]], answers: &[usize]) -> (Vec<u8>, TcpStream) {
    let mut stream = world.tcp().await;
    let mut response = Vec::new();
    for (message, answer) in messages.iter().zip(answers) {
        stream.write_all(message).await.unwrap();
        let mut bytes = vec![0; *answer];
        tokio::time::timeout(TIMEOUT, stream.read_exact(&mut bytes)).await.unwrap().unwrap();
        response.extend(bytes);
    }
    (response, stream)
}

fn to(kind: u8, address: &[u8], port: u16) -> Vec<u8> {
    [&[5, 1, 0, kind], address, &port.to_be_bytes()].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn socks5_accepts_names_and_addresses_and_rejects_other_requests() {
    let upstream = Upstream::start("localhost").await;
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let world = World::new(&upstream.root, |options| {
        options.requests.access_log = Some(AccessLog::File(log.clone()));
        options.rules.add(&["bad.example".to_owned()], proxy::Action::Reject).unwrap();
    })
    .await;
    let port = upstream.address.port();
    for request in [to(3, b"\x09localhost", port), to(1, &[127, 0, 0, 1], port)] {
        let (response, stream) = socks(&world, &[&[5, 2, 0, 2], &request], &[2, 10]).await;
        assert_eq!(response, [5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        let client = Client::of(&world.root, "http/1.1");
        let mut stream = client.0.connect("localhost".try_into().unwrap(), stream).await.unwrap();
        let response =
            exchange(&mut stream, &format!("GET / HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n")).await;
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    }
    assert_eq!(world.running.store().counts().minted, 1);
    let udp = [&[5, 3, 0, 1][..], &[127, 0, 0, 1], &[0, 80]].concat();
    for (request, reply) in [
        (udp, 7),
        (to(3, b"\x0bbad.example", 443), 2),
        (to(3, b"\x03a b", 443), 8),
        (to(9, b"", 443), 8),
        (to(1, &[127, 0, 0, 1], 0), 8),
        (to(4, &[0; 16], 443), 0),
    ] {
        let (response, _) = socks(&world, &[&[5, 1, 0], &request], &[2, 10]).await;
        assert_eq!(response[3], reply, "{request:?}");
    }
    // No common authentication method.
    let (response, _) = socks(&world, &[&[5, 1, 1]], &[2]).await;
    assert_eq!(response, [5, 0xff]);
    let text = crate::requests::until(&log, |text| text.contains("bad.example:443")).await;
    let refused = text.lines().find(|line| line.contains("bad.example")).unwrap();
    assert!(refused.contains("\"method\":\"CONNECT\"") && refused.contains("\"status\":403"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn socks5_accepts_the_same_passwords() {
    let upstream = Upstream::start("localhost").await;
    let world = guarded(&upstream).await;
    let (response, _) = socks(&world, &[&[5, 1, 0]], &[2]).await;
    assert_eq!(response, [5, 0xff], "who does not say is not let in");
    let (response, mut stream) = socks(&world, &[&[5, 1, 2], b"\x01\x05alice\x06Secret"], &[2, 2]).await;
    assert_eq!(response, [5, 2, 1, 1]);
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut rest)).await.expect("it is closed");
    let request = to(3, b"\x09localhost", upstream.address.port());
    let (response, _) = socks(&world, &[&[5, 1, 2], b"\x01\x05alice\x06secret", &request], &[2, 2, 10]).await;
    assert_eq!(response[..4], [5, 2, 1, 0]);
    assert_eq!(response[5], 0);
}

/// Most clients support only passwords. They send the token as the password and its name as the user, with SOCKS5 or Basic.
#[tokio::test(flavor = "multi_thread")]
async fn token_is_accepted_as_the_password_of_its_name() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |options| {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, b"token");
        options.access.tokens =
            vec![Token { name: "bob".into(), digest: digest.as_ref().try_into().unwrap() }];
    })
    .await;
    let (response, _) = socks(&world, &[&[5, 1, 0]], &[2]).await;
    assert_eq!(response, [5, 0xff], "who does not say is not let in");
    let (response, _) = socks(&world, &[&[5, 1, 2], b"\x01\x03bob\x05token"], &[2, 2]).await;
    assert_eq!(response, [5, 2, 1, 0]);
    for wrong in [&b"\x01\x03eve\x05token"[..], b"\x01\x03bob\x05other"] {
        let (response, _) = socks(&world, &[&[5, 1, 2], wrong], &[2, 2]).await;
        assert_eq!(response, [5, 2, 1, 1]);
    }
}
