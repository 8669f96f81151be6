//! Client authentication, idle timeouts, and shutdown.

use std::time::Duration;

use inbound::TrustedProxies;
use keyless::server::{Options, StartError, TlsOptions};
use keyless::wire::{MessageItems, opcode};
use keyless::{KeySet, Metrics};
use keys::{KeyRef, KeyType};
use rustls::version::{TLS12, TLS13};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use crate::certificates::{Authority, CLIENT_AUTH, SERVER_AUTH};
use crate::peer::{Gated, TIMEOUT, World, key, patient, ski, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_client_certificates_of_the_configured_ca_are_accepted() {
    let world = World::new().await;
    let other = Authority::new("others");
    let ours = |purposes: &[&str]| Some(world.client_ca.leaf(purposes));
    for version in [&TLS12, &TLS13] {
        for (identity, let_in, what) in [
            (ours(&[CLIENT_AUTH]), true, "clientAuth"),
            (ours(&[CLIENT_AUTH, SERVER_AUTH]), true, "both purposes"),
            (ours(&[]), true, "no purpose named"),
            (ours(&[SERVER_AUTH]), false, "serverAuth alone"),
            (Some(other.leaf(&[CLIENT_AUTH])), false, "another authority"),
            (Some(world.server_ca.leaf(&[CLIENT_AUTH])), false, "the server's authority"),
            (None, false, "no certificate"),
        ] {
            let found = match world.connect_with(identity.as_ref(), version).await {
                Ok(mut peer) => peer.is_let_in().await,
                Err(_) => false,
            };
            assert_eq!(found, let_in, "{what}, {version:?}");
        }
    }
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_certificates_apply_to_new_connections_and_removed_roots_disconnect() {
    let world = World::new().await;
    let mut before = world.connect().await;
    let other = Authority::new("others");
    let changed = TlsOptions {
        certificate: world.server_ca.leaf(&[SERVER_AUTH]).certified(),
        client_roots: vec![other.der.clone()],
        client_crls: Vec::new(),
    };
    // With another certificate of the same CA, or an additional root, connections stay open.
    let more =
        TlsOptions { client_roots: vec![other.der.clone(), world.client_ca.der.clone()], ..changed.clone() };
    world.running.change_tls(&more).unwrap();
    assert!(before.is_let_in().await, "it goes on");
    // With a root removed, clients that it authenticated must reconnect.
    world.running.change_tls(&changed).unwrap();
    assert_eq!(before.next().await, None);
    until(|| world.figures().contains("kind=\"clients-changed\"")).await;
    let with = async |identity| match world.connect_with(Some(&identity), &TLS13).await {
        Ok(mut peer) => peer.is_let_in().await,
        Err(_) => false,
    };
    assert!(!with(world.client_ca.leaf(&[CLIENT_AUTH])).await);
    assert!(with(other.leaf(&[CLIENT_AUTH])).await);
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connection_closes_after_its_requests_are_answered() {
    // If the machine stalls for less than this, requests are still sent in time, and requests in flight are answered within the
    // five seconds that remain.
    const IDLE: Duration = Duration::from_secs(4);
    const MORE: Duration = Duration::from_secs(5);
    let (slow, open) = Gated::new(KeyType::P256);
    let name = ski(&*slow);
    let options = Options { idle: IDLE, ..patient() };
    let world = World::with(options, vec![slow as KeyRef]).await;
    let mut silent = world.connect().await;
    assert_eq!(silent.next().await, None);
    let ended = || world.figure("bulla_keyless_connection_ends_total{kind=\"idle\"}");
    until(|| world.figures().contains("kind=\"idle\"") && ended() == 1.0).await;
    // The connection stays open for a request in flight.
    let mut active = world.connect().await;
    let items = MessageItems { opcode: 0x15, ski: Some(name), payload: &[1; 32], ..MessageItems::default() };
    let id = active.send_request(&items).await;
    tokio::time::sleep(MORE).await;
    assert_eq!(ended(), 1.0, "it is under way still");
    open.send_replace(true);
    assert_eq!(active.next().await.map(|reply| (reply.id, reply.error())), Some((id, None)));
    assert_eq!(active.next().await, None);
    // The idle timeout of the Unix socket is one hour.
    let mut local = world.connect_socket().await;
    tokio::time::sleep(MORE).await;
    assert!(local.is_let_in().await);
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_answers_requests_in_flight_and_removes_the_socket() {
    let (slow, open) = Gated::new(KeyType::P256);
    let name = ski(&*slow);
    let world = World::with(patient(), vec![slow as KeyRef]).await;
    let (mut peer, mut silent) = (world.connect().await, world.connect_socket().await);
    let items = MessageItems { opcode: 0x15, ski: Some(name), payload: &[1; 32], ..MessageItems::default() };
    let id = peer.send_request(&items).await;
    let under_way = "bulla_keyless_requests_in_flight{opcode=\"ecdsa-sha256\"}";
    until(|| world.figure(under_way) == 1.0).await;
    let (socket, address) = (world.socket(), world.running.address.unwrap());
    let World { running, folder, .. } = world;
    let stopping = tokio::spawn(running.stop());
    assert_eq!(silent.next().await, None, "nothing under way, nothing to wait for");
    open.send_replace(true);
    assert_eq!(peer.next().await.map(|reply| (reply.id, reply.error())), Some((id, None)));
    assert_eq!(peer.next().await, None);
    assert!(tokio::time::timeout(TIMEOUT, stopping).await.unwrap().unwrap(), "nothing was cut off");
    assert!(!socket.exists());
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
    drop(folder);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pending_requests_are_cancelled_when_the_connection_closes() {
    // The gate never opens.
    let (slow, _open) = Gated::new(KeyType::P256);
    let name = ski(&*slow);
    // Longer than the test waits, so that the deadline does not end the requests.
    let options = Options { deadline: TIMEOUT * 2, ..Options::default() };
    let world = World::with(options, vec![slow as KeyRef]).await;
    let mut peer = world.connect_socket().await;
    for _ in 0..100 {
        peer.send_request(&MessageItems {
            opcode: 0x15,
            ski: Some(name),
            payload: &[1; 32],
            ..MessageItems::default()
        })
        .await;
    }
    let under_way = "bulla_keyless_requests_in_flight{opcode=\"ecdsa-sha256\"}";
    until(|| world.figure(under_way) == 100.0).await;
    // A malformed message: the connection closes immediately, without waiting for requests in flight.
    peer.send(&[1, 0, 0, 3, 0, 0, 0, 1, 0x11, 0, 0]).await.unwrap();
    assert_eq!(peer.next().await, None);
    until(|| world.figure(under_way) == 0.0).await;
    world.running.stop().await;
}

#[tokio::test]
async fn listen_errors_are_reported() {
    let start = |options| keyless::server::start(options, KeySet::default(), Metrics::default());
    assert!(matches!(start(Options::default()).await, Err(StartError::Nowhere)));
    let folder = tempfile::tempdir().unwrap();
    let at = |path: std::path::PathBuf| Options { socket: Some(path), ..Options::default() };
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    for bad in [file, folder.path().join("none/keys.sock")] {
        assert!(matches!(start(at(bad)).await, Err(StartError::Bind { .. })));
    }
    let socket = folder.path().join("keys.sock");
    let first = start(at(socket.clone())).await.unwrap();
    assert!(matches!(start(at(socket.clone())).await, Err(StartError::Bind { .. })), "one answers there");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&socket).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    first.stop().await;
    // The socket file left behind by a killed server.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    start(at(socket.clone())).await.unwrap().stop().await;
    assert!(!socket.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_can_be_added_and_removed_at_runtime() {
    let world = World::new().await;
    let mut peer = world.connect_socket().await;
    let name = ski(key(KeyType::P384));
    assert_eq!(peer.sign(0x16, name, &[1; 48]).await.error(), None);
    world.keys.put("kinds", Vec::new());
    assert_eq!(peer.sign(0x16, name, &[1; 48]).await.error(), Some(2));
    world.keys.put("kinds", vec![std::sync::Arc::new(key(KeyType::P384).clone())]);
    let reply = peer.sign(0x16, name, &[1; 48]).await;
    assert_eq!((reply.error(), reply.opcode), (None, opcode::SUCCESS));
    world.running.stop().await;
}

/// PROXY protocol: a trusted load balancer states the client's address, and pending handshakes are counted by that address. Headers
/// from other addresses are not trusted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_address_is_taken_from_trusted_proxy_headers_only() {
    /// Maximum pending handshakes per address.
    const HANDSHAKES: usize = 64;
    let proxies = TrustedProxies::new(&["127.0.0.2/32".parse().unwrap()]);
    let world = World::with(Options { trusted_proxies: proxies, ..patient() }, Vec::new()).await;
    let introduced = async |host: u8, client: [u8; 4]| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, host], 0).into()).unwrap();
        let mut stream = socket.connect(world.running.address.unwrap()).await.unwrap();
        let ends = [127, 0, 0, 1, 0xc0, 1, 1, 0xbb];
        let header = [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..], &client, &ends].concat();
        stream.write_all(&header).await.unwrap();
        stream
    };
    let identity = world.client_ca.leaf(&[CLIENT_AUTH]);
    let is_let_in = async |stream| match world.connect_over(stream, Some(&identity), &TLS13).await {
        Ok(mut peer) => peer.is_let_in().await,
        Err(_) => false,
    };
    let mut silent = Vec::new();
    for _ in 0..=HANDSHAKES {
        silent.push(introduced(2, [203, 0, 113, 1]).await);
    }
    // One more than the client's address may have pending: one of them is closed.
    let closed = futures_util::future::select_all(silent.iter_mut().map(|stream| {
        Box::pin(async move {
            let _ = stream.read(&mut [0; 16]).await;
        })
    }));
    tokio::time::timeout(TIMEOUT, closed).await.expect("one is closed");
    assert!(is_let_in(introduced(2, [203, 0, 113, 2]).await).await, "another client of the same balancer");
    assert!(!is_let_in(introduced(3, [203, 0, 113, 3]).await).await, "it is not trusted");
    drop(silent);
    world.running.stop().await;
}
