//! Tests of the certificate store alone.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use proxy::certificate_store::{CertificateStore, FetchError, KeyRecipients, LeafId, NewNameLimit};
use proxy::mint::{Leaf, LeafKeyKind, LeafKeySharing, LeafKeys, MintError, Minter};
use tokio::sync::Semaphore;
use x509::{Fingerprint, HostOrIp};

use crate::world::{authority, now};

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn id(name: &str) -> LeafId {
    LeafId {
        name: HostOrIp::parse(name).unwrap(),
        authority: Fingerprint::of(b"one"),
        kind: LeafKeyKind::P256,
        keys: LeafKeySharing::Shared,
        user: None,
        profile: "default".into(),
        mirrored: None,
        key_recipients: KeyRecipients::Nobody,
    }
}

fn minter(validity: Duration) -> Minter {
    Minter::new(authority().0, Arc::new(LeafKeys::new().unwrap()), validity)
}

fn store() -> CertificateStore {
    CertificateStore::new(1 << 20, NewNameLimit::new(1_000, 1_000))
}

/// Yields to other tasks until the condition is true. Does not sleep, because some tests pause the clock.
async fn until(so: impl Fn() -> bool) {
    const TURNS: usize = 10_000_000;
    for _ in 0..TURNS {
        if so() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("it never was so");
}

async fn fetch(store: &CertificateStore, id: &LeafId, minter: &Minter) -> Result<Arc<Leaf>, FetchError> {
    let (minter, name) = (minter.clone(), id.name.clone());
    store
        .fetch(id, CLIENT, now(), move || async move { minter.mint(&name, LeafKeyKind::P256, now()).await })
        .await
}

#[tokio::test]
async fn concurrent_fetches_wait_for_one_minting() {
    let (store, minter, id) = (store(), minter(Duration::from_secs(86_400)), id("a.example"));
    let (minted, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let all: Vec<_> = (0..100)
        .map(|_| {
            let (store, minter, id) = (store.clone(), minter.clone(), id.clone());
            let (minted, gate) = (Arc::clone(&minted), Arc::clone(&gate));
            tokio::spawn(async move {
                let name = id.name.clone();
                let mint = move || async move {
                    minted.fetch_add(1, Ordering::Relaxed);
                    let _ = gate.acquire().await;
                    minter.mint(&name, LeafKeyKind::P256, now()).await
                };
                store.fetch(&id, CLIENT, now(), mint).await.unwrap().certified.cert[0].to_vec()
            })
        })
        .collect();
    until(|| store.counts().joined == 99).await;
    gate.close();
    let leaves: std::collections::HashSet<Vec<u8>> =
        futures_util::future::join_all(all).await.into_iter().map(Result::unwrap).collect();
    assert_eq!((leaves.len(), minted.load(Ordering::Relaxed)), (1, 1));
}

#[tokio::test]
async fn each_leaf_id_field_selects_a_separate_leaf() {
    let (store, minter, plain) = (store(), minter(Duration::from_secs(86_400)), id("a.example"));
    let others = [
        LeafId { authority: Fingerprint::of(b"two"), ..plain.clone() },
        LeafId { kind: LeafKeyKind::Rsa2048, ..plain.clone() },
        LeafId { profile: "another".into(), ..plain.clone() },
        LeafId { keys: LeafKeySharing::ByHost, ..plain.clone() },
        LeafId { keys: LeafKeySharing::ByUser, user: Some("alice".into()), ..plain.clone() },
        LeafId { keys: LeafKeySharing::ByUser, user: Some("bob".into()), ..plain.clone() },
        LeafId { key_recipients: KeyRecipients::Consumer, ..plain.clone() },
        LeafId { mirrored: Some(Fingerprint::of(b"origin")), ..plain.clone() },
        id("b.example"),
    ];
    let first = fetch(&store, &plain, &minter).await.unwrap();
    for other in others {
        let made = fetch(&store, &other, &minter).await.unwrap();
        assert_ne!(made.certified.cert[0], first.certified.cert[0], "{other:?}");
    }
    let repeated = fetch(&store, &plain, &minter).await.unwrap();
    assert_eq!(repeated.certified.cert[0], first.certified.cert[0]);
}

#[tokio::test(start_paused = true)]
async fn leaf_is_renewed_in_the_background_before_expiry() {
    let (store, minter, id) = (store(), minter(Duration::from_secs(300)), id("a.example"));
    let first = fetch(&store, &id, &minter).await.unwrap();
    tokio::time::advance(Duration::from_secs(150)).await;
    fetch(&store, &id, &minter).await.unwrap();
    assert_eq!(store.counts().minted, 1, "half of its life is left");
    tokio::time::advance(Duration::from_secs(60)).await;
    let cached = fetch(&store, &id, &minter).await.unwrap();
    assert_eq!(cached.certified.cert[0], first.certified.cert[0], "the one that still holds");
    until(|| store.counts().minted == 2).await;
    let renewed = fetch(&store, &id, &minter).await.unwrap();
    assert_ne!(renewed.certified.cert[0], first.certified.cert[0]);
}

#[tokio::test(start_paused = true)]
async fn failed_renewal_is_not_retried_on_every_fetch() {
    let (store, minter, id) = (store(), minter(Duration::from_secs(300)), id("a.example"));
    let first = fetch(&store, &id, &minter).await.unwrap();
    tokio::time::advance(Duration::from_secs(210)).await;
    let calls = Arc::new(AtomicUsize::new(0));
    for _ in 0..1_000 {
        let calls = Arc::clone(&calls);
        let mint = move || async move {
            calls.fetch_add(1, Ordering::Relaxed);
            Err(MintError::NoRsaKey)
        };
        let cached = store.fetch(&id, CLIENT, now(), mint).await.unwrap();
        assert_eq!(cached.certified.cert[0], first.certified.cert[0]);
        tokio::task::yield_now().await;
    }
    until(|| calls.load(Ordering::Relaxed) > 0).await;
    // At most one attempt per second, by a clock that tests do not control.
    assert!(calls.load(Ordering::Relaxed) <= 10, "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn minting_failure_is_cached_briefly() {
    let (store, id) = (store(), id("a.example"));
    let calls = Arc::new(AtomicUsize::new(0));
    let failing = async || {
        let calls = Arc::clone(&calls);
        let mint = move || async move {
            calls.fetch_add(1, Ordering::Relaxed);
            Err(MintError::NoRsaKey)
        };
        store.fetch(&id, CLIENT, now(), mint).await.unwrap_err()
    };
    for _ in 0..10 {
        assert_eq!(failing().await, FetchError::Mint(MintError::NoRsaKey));
    }
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    tokio::time::advance(Duration::from_secs(2)).await;
    failing().await;
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn memory_is_limited_for_any_number_of_names() {
    let store = CertificateStore::new(64 << 10, NewNameLimit::new(1_000_000, 1_000_000));
    let minter = minter(Duration::from_secs(86_400));
    let mut byte_size = 0;
    for host in 0..500 {
        byte_size = fetch(&store, &id(&format!("host{host}.example")), &minter).await.unwrap().byte_size();
    }
    let cached = store.len();
    assert!(cached > 10 && cached * byte_size as u64 <= 64 << 10, "{cached} of {byte_size}");
}

#[tokio::test]
async fn user_keys_count_toward_the_memory_limit() {
    const KEY: u64 = 1_024;
    let store = CertificateStore::new(64 << 10, NewNameLimit::new(1_000_000, 1_000_000));
    let minter = minter(Duration::from_secs(86_400));
    let mut byte_size = 0;
    for user in 0..500 {
        let user = Some(format!("user{user}").into());
        let id = LeafId { keys: LeafKeySharing::ByUser, user, ..id("a.example") };
        byte_size = fetch(&store, &id, &minter).await.unwrap().byte_size() as u64;
    }
    let cached = store.len();
    assert!(cached > 10 && cached * (byte_size + KEY) <= 64 << 10, "{cached} of {byte_size}");
}

#[tokio::test]
async fn expired_leaf_is_not_served_after_a_clock_jump() {
    let (store, minter, id) = (store(), minter(Duration::from_secs(86_400)), id("a.example"));
    let first = fetch(&store, &id, &minter).await.unwrap();
    // The machine slept for two days: the wall clock advanced, and the clock for cache lifetimes did not.
    let later = now().plus(2 * 86_400);
    let (mint, name) = (minter.clone(), id.name.clone());
    let mint = move || async move { mint.mint(&name, LeafKeyKind::P256, later).await };
    let second = store.fetch(&id, CLIENT, later, mint).await.unwrap();
    assert!(second.is_valid_at(later) && !first.is_valid_at(later));
}
