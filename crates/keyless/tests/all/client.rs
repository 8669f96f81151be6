//! The client of key services.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use keyless::client::{Client, ClientError, ClientMetrics, ClientOptions, ClientTls, Server};
use keyless::server::Options;
use keyless::wire::{ErrorCode, MessageItems};
use keys::{Hash, KeyRef, KeyType, Scheme, SignError, Signer};
use tokio::net::UnixListener;

use crate::certificates::{Authority, CLIENT_AUTH};
use crate::peer::{Gated, KINDS, TIMEOUT, World, key, openssl_verifies, patient, ski, until};

/// The opcode of ECDSA with SHA-256.
const ECDSA: u8 = 0x15;
const DIGEST: [u8; 32] = [7; 32];

fn deadline() -> Instant {
    Instant::now() + TIMEOUT
}

/// Returns options whose timeouts never expire on a slow machine, and whose pings do not change the counters.
fn calm() -> ClientOptions {
    ClientOptions {
        connect_timeout: TIMEOUT,
        ping_every: TIMEOUT,
        ping_timeout: TIMEOUT,
        ..ClientOptions::default()
    }
}

fn unix(world: &World) -> Server {
    Server::Unix(world.socket())
}

fn tls(world: &World, authority: &Authority) -> ClientOptions {
    let server = Server::Tls { host: "localhost".into(), port: world.running.address.unwrap().port() };
    let certificate = authority.leaf(&[CLIENT_AUTH]).certified();
    let tls = ClientTls { certificate, server_roots: vec![world.server_ca.der.clone()] };
    ClientOptions { servers: vec![server], tls: Some(tls), ..calm() }
}

/// Returns a client of these servers, and its metrics.
fn client(servers: &[Server], options: ClientOptions) -> (Client, Figures) {
    start(&ClientOptions { servers: servers.to_vec(), ..options })
}

fn start(options: &ClientOptions) -> (Client, Figures) {
    let metrics = ClientMetrics::default();
    (Client::start(options, metrics.clone()).unwrap(), Figures(metrics))
}

struct Figures(ClientMetrics);

impl Figures {
    /// Returns the sum of all metrics of this name whose labels contain `label`.
    fn sum(&self, name: &str, label: &str) -> f64 {
        let mut registry = prometheus_client::registry::Registry::default();
        self.0.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let of_name = text.lines().filter(|line| line.starts_with(name) && line.contains(label));
        of_name.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    }

    fn made(&self) -> f64 {
        self.sum("bulla_keyless_client_connects_total", "made")
    }
}

fn ecdsa(of: &dyn Signer) -> MessageItems<'static> {
    MessageItems { opcode: ECDSA, ski: Some(ski(of)), payload: &DIGEST, ..MessageItems::default() }
}

#[tokio::test]
async fn every_key_type_signs_over_tls_and_over_the_unix_socket() {
    let world = World::new().await;
    let over_tls = start(&tls(&world, &world.client_ca)).0;
    let over_socket = client(&[unix(&world)], calm()).0;
    for client in [over_tls, over_socket] {
        for kind in KINDS {
            let local = key(kind);
            let remote = client.key(local.spki()).unwrap();
            assert_eq!((remote.key_type(), remote.ski()), (kind, ski(local)));
            let scheme = Scheme::of(kind).unwrap();
            let signature = remote.sign(b"a message", deadline()).await.unwrap();
            let input = scheme.input(b"a message").unwrap();
            assert!(openssl_verifies(local.spki(), scheme, &input, &signature), "{kind}");
        }
        client.stop().await;
    }
}

#[tokio::test]
async fn concurrent_requests_share_one_connection() {
    let world = World::new().await;
    let (client, figures) = client(&[unix(&world)], calm());
    let items = ecdsa(key(KeyType::P256));
    let signed = join_all((0..1_000).map(|_| client.call(&items, deadline()))).await;
    assert!(signed.iter().all(Result::is_ok), "{:?}", signed.iter().find(|signed| signed.is_err()));
    assert_eq!(figures.made(), 1.0);
    assert_eq!(figures.sum("bulla_keyless_client_requests_in_flight", ""), 0.0);
    assert_eq!(figures.sum("bulla_keyless_client_request_duration_seconds_count", ""), 1_000.0);
    assert_eq!(world.figure("bulla_keyless_connections"), 1.0);
    drop(client);
    until(|| world.figure("bulla_keyless_connections") == 0.0).await;
}

#[tokio::test]
async fn slow_key_does_not_block_others_and_excess_requests_are_rejected() {
    let (slow, open) = Gated::new(KeyType::P256);
    let world = World::with(patient(), vec![slow.clone() as KeyRef]).await;
    let options = ClientOptions { in_flight_max: 3, ..calm() };
    let (client, figures) = client(&[unix(&world)], options);
    let (slow, fast) = (ecdsa(&*slow), ecdsa(key(KeyType::P256)));
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let (client, items) = (client.clone(), slow);
            tokio::spawn(async move { client.call(&items, deadline()).await })
        })
        .collect();
    until(|| figures.sum("bulla_keyless_client_requests_in_flight", "") == 2.0).await;
    client.call(&fast, deadline()).await.unwrap();

    let third = tokio::spawn({
        let client = client.clone();
        async move { client.call(&slow, deadline()).await }
    });
    until(|| figures.sum("bulla_keyless_client_requests_in_flight", "") == 3.0).await;
    let refused = client.call(&fast, deadline()).await;
    assert!(matches!(refused, Err(ClientError::Overloaded(_))), "{refused:?}");
    third.abort();
    until(|| figures.sum("bulla_keyless_client_requests_in_flight", "") == 2.0).await;
    client.call(&fast, deadline()).await.unwrap();

    open.send(true).unwrap();
    for waiting in waiting {
        waiting.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn late_reply_is_dropped_and_the_connection_stays_open() {
    let (slow, open) = Gated::new(KeyType::P256);
    let world = World::with(patient(), vec![slow.clone() as KeyRef]).await;
    let (client, figures) = client(&[unix(&world)], calm());
    let remote = client.key(slow.spki()).unwrap();
    client.call(&ecdsa(key(KeyType::P256)), deadline()).await.unwrap();
    let soon = Instant::now() + Duration::from_millis(50);
    let late = remote.sign_digest(Scheme::Ecdsa(Hash::Sha256), &DIGEST, soon).await;
    assert_eq!(late, Err(SignError::Late));
    open.send(true).unwrap();
    for _ in 0..10 {
        remote.sign_digest(Scheme::Ecdsa(Hash::Sha256), &DIGEST, deadline()).await.unwrap();
    }
    assert_eq!(figures.made(), 1.0);
    assert_eq!(figures.sum("bulla_keyless_client_errors_total", "late"), 1.0);
}

#[tokio::test]
async fn client_fails_fast_when_the_service_is_down_and_reconnects() {
    let world = World::new().await;
    let (client, figures) = client(&[unix(&world)], calm());
    let items = ecdsa(key(KeyType::P256));
    client.call(&items, deadline()).await.unwrap();
    let (socket, set) = (world.socket(), world.keys.clone());
    assert!(world.running.stop().await);
    until(|| figures.sum("bulla_keyless_client_up", "") == 0.0).await;
    until(|| figures.sum("bulla_keyless_client_connects_total", "failed") > 0.0).await;
    let began = Instant::now();
    let refused = client.call(&items, deadline()).await;
    assert_eq!(refused, Err(ClientError::Unreachable));
    assert!(began.elapsed() < TIMEOUT / 10, "nobody waits for a service that is gone");

    let options = Options { socket: Some(socket), ..Options::default() };
    let restarted = keyless::server::start(options, set, keyless::Metrics::default()).await.unwrap();
    until(|| client.is_up()).await;
    client.call(&items, deadline()).await.unwrap();
    restarted.stop().await;
}

#[tokio::test]
async fn client_fails_over_on_lost_or_overloaded_service_only() {
    let (slow, open) = Gated::new(KeyType::P256);
    // Times out immediately. The protocol reports that as an internal error of the server.
    let hasty = Options { deadline: Duration::from_millis(1), ..Options::default() };
    let first = World::with(hasty, vec![slow.clone() as KeyRef]).await;
    let second = World::with(patient(), vec![slow.clone() as KeyRef]).await;
    let missing = Server::Unix(first.folder.path().join("nobody"));
    let (client, figures) = client(&[missing, unix(&first), unix(&second)], calm());
    until(|| figures.sum("bulla_keyless_client_up", "") == 2.0).await;

    let pending = tokio::spawn({
        let (client, items) = (client.clone(), ecdsa(&*slow));
        async move { client.call(&items, deadline()).await }
    });
    until(|| second.figure("bulla_keyless_requests_in_flight{opcode=\"ecdsa-sha256\"}") == 1.0).await;
    open.send(true).unwrap();
    pending.await.unwrap().unwrap();
    assert_eq!(figures.sum("bulla_keyless_client_retries_total", "made"), 1.0);

    first.keys.put("more", Vec::new());
    let refused = client.call(&ecdsa(&*slow), deadline()).await;
    let refused = refused.expect_err("the first does not have it");
    assert!(matches!(refused, ClientError::Refused { code: ErrorCode::KeyNotFound, .. }), "{refused}");
    assert_eq!(figures.sum("bulla_keyless_client_retries_total", ""), 1.0);
}

#[tokio::test]
async fn idle_connection_is_kept_by_pings_and_closed_without_replies() {
    let idle = Options { socket_idle: Duration::from_secs(6), ..patient() };
    let world = World::with(idle, Vec::new()).await;
    let often = ClientOptions { ping_every: Duration::from_millis(200), ..calm() };
    let (idle_client, figures) = client(&[unix(&world)], often);
    until(|| world.figure("bulla_keyless_request_duration_seconds_count{opcode=\"ping\"}") >= 40.0).await;
    assert_eq!(figures.made(), 1.0);
    idle_client.stop().await;

    let mute = world.folder.path().join("mute");
    let listener = UnixListener::bind(&mute).unwrap();
    let hold = tokio::spawn(async move {
        let mut streams = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            streams.push(stream);
        }
    });
    let impatient = ClientOptions {
        ping_every: Duration::from_millis(50),
        ping_timeout: Duration::from_millis(50),
        ..calm()
    };
    let (client, figures) = client(&[Server::Unix(mute)], impatient);
    let lost = client.call(&ecdsa(key(KeyType::P256)), deadline()).await;
    assert!(matches!(lost, Err(ClientError::Lost(_))), "{lost:?}");
    until(|| figures.made() >= 3.0).await;
    hold.abort();
}

#[tokio::test]
async fn untrusted_client_is_rejected_until_its_certificate_changes() {
    let world = World::new().await;
    let (client, figures) = start(&tls(&world, &Authority::new("strangers")));
    until(|| figures.sum("bulla_keyless_client_connects_total", "") >= 2.0).await;
    let short = Instant::now() + Duration::from_secs(5);
    assert!(client.call(&ecdsa(key(KeyType::P256)), short).await.is_err());
    client.change_tls(&tls(&world, &world.client_ca).tls.unwrap()).unwrap();
    let items = ecdsa(key(KeyType::P256));
    let deadline = deadline();
    while client.call(&items, deadline).await.is_err() {
        assert!(Instant::now() < deadline, "the new certificate is presented");
        until(|| client.is_up()).await;
    }
}
