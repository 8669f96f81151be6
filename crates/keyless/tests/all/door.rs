//! Admission of connections, and their forced end.

use std::time::{SystemTime, UNIX_EPOCH};

use keyless::server::{Options, TlsOptions};
use keys::Signer;
use rustls::version::TLS13;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use x509::build::signed;
use x509::crl::{CrlSpec, Revoked, Scope, tbs_crl};
use x509::{Certificate, GeneralName, UnixTime};

use crate::certificates::{Authority, CLIENT_AUTH, Identity, NOT_AFTER, SERVER_AUTH};
use crate::peer::{World, patient, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_do_not_block_clients_and_limits_apply_per_listener() {
    // One connection slot over TLS, and one on the socket.
    let world = World::with(Options { connections_max: 1, ..patient() }, Vec::new()).await;
    let address = world.running.address.unwrap();
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let mut known = world.connect().await;
    assert!(known.is_let_in().await);
    let mut local = world.connect_socket().await;
    assert!(local.is_let_in().await);
    // A second connection on each listener is closed.
    let second = world.connect_with(Some(&world.client_ca.leaf(&[CLIENT_AUTH])), &TLS13).await;
    if let Ok(mut second) = second {
        assert!(!second.is_let_in().await);
    }
    assert!(!world.connect_socket().await.is_let_in().await);
    until(|| world.figures().contains("kind=\"full\"")).await;
    drop(known);
    until_let_in(&world).await;
    drop((silent, local));
    world.running.stop().await;
}

/// 64 sockets from each of 10 addresses send nothing. These are more than the pending handshake limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_from_many_addresses_do_not_block_clients() {
    let world = World::new().await;
    let address = world.running.address.unwrap();
    let mut silent = Vec::new();
    for host in 2..12 {
        for _ in 0..64 {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind(([127, 0, 0, host], 0).into()).unwrap();
            silent.push(socket.connect(address).await.unwrap());
        }
    }
    let evicted = "bulla_keyless_connection_ends_total{kind=\"evicted\"}";
    until(|| world.figures().contains(evicted) && world.figure(evicted) >= 128.0).await;
    assert!(world.connect().await.is_let_in().await);
    drop(silent);
    world.running.stop().await;
}

async fn until_let_in(world: &World) {
    for _ in 0..1_000 {
        let peer = world.connect_with(Some(&world.client_ca.leaf(&[CLIENT_AUTH])), &TLS13).await;
        if let Ok(mut peer) = peer
            && peer.is_let_in().await
        {
            return;
        }
    }
    panic!("the place is not given back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_address_is_limited_to_a_share_of_pending_handshakes() {
    let world = World::new().await;
    let address = world.running.address.unwrap();
    let mut silent = Vec::new();
    // More connections than one address may have pending. The excess connections are closed immediately.
    for _ in 0..80 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let full = "bulla_keyless_connection_ends_total{kind=\"address-share\"}";
    until(|| world.figures().contains(full) && world.figure(full) == 16.0).await;
    let mut last = silent.pop().unwrap();
    assert!(matches!(last.read(&mut [0; 1]).await, Ok(0) | Err(_)));
    drop(silent);
    until_let_in(&world).await;
    let metric = "bulla_keyless_connection_ends_total{kind=\"no-handshake\"}";
    until(|| world.figures().contains(metric) && world.figure(metric) == 64.0).await;
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_closes_when_the_client_certificate_expires() {
    let world = World::new().await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let names = [GeneralName::Dns("localhost".to_owned())];
    let ends = UnixTime(i64::try_from(now).unwrap() + 10);
    let leaf = world.client_ca.leaf_until("CN=short", &names, &[CLIENT_AUTH], ends);
    let mut peer = world.connect_with(Some(&leaf), &TLS13).await.unwrap();
    assert_eq!(peer.next().await, None, "closed by the server");
    until(|| world.figures().contains("kind=\"certificate-ended\"")).await;
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revoked_client_is_disconnected_and_rejected_afterwards() {
    let world = World::new().await;
    let (revoked, good) = (world.client_ca.leaf(&[CLIENT_AUTH]), world.client_ca.leaf(&[CLIENT_AUTH]));
    let mut peer = world.connect_with(Some(&revoked), &TLS13).await.unwrap();
    assert!(peer.is_let_in().await);
    let changed = TlsOptions {
        certificate: world.server_ca.leaf(&[SERVER_AUTH]).certified(),
        client_roots: vec![world.client_ca.der.clone()],
        client_crls: vec![crl(&world.client_ca, &[&revoked])],
    };
    world.running.change_tls(&changed).unwrap();
    assert_eq!(peer.next().await, None);
    let with = async |identity| match world.connect_with(Some(identity), &TLS13).await {
        Ok(mut peer) => peer.is_let_in().await,
        Err(_) => false,
    };
    assert!(!with(&revoked).await);
    assert!(with(&good).await);
    world.running.stop().await;
}

/// Creates a CRL of this CA that lists these certificates.
fn crl(authority: &Authority, revoked: &[&Identity]) -> Vec<u8> {
    let at = UnixTime(1_700_000_001);
    let entry = |identity: &&Identity| Revoked {
        serial: Certificate::parse(&identity.der).unwrap().serial,
        at,
        reason: None,
        invalidity_date: None,
    };
    let spec = CrlSpec {
        signature: authority.key.algorithm(),
        issuer: &authority.name.der,
        this_update: at,
        next_update: NOT_AFTER,
        number: 1,
        authority_key_id: &[1; 20],
        base: None,
        distribution_point: None,
        scope: Scope::All,
        freshest: None,
    };
    let entries: Vec<Revoked> = revoked.iter().map(entry).collect();
    let tbs = tbs_crl(&spec, &entries);
    signed(&tbs, &authority.key.algorithm(), &authority.key.sign_now(&tbs).unwrap())
}
