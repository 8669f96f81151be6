//! The second-level store: several proxies that share one real database.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use keys::{Keyring, RsaStock};
use proxy::certificate_store::{
    Backend, CertificateStore, FetchError, KeyRecipients, LeafId, NewNameLimit, OutagePolicy, SecondLevel,
    SecondLevelOptions,
};
use proxy::mint::{Authority, KeysByOwner, Leaf, LeafKeyKind, LeafKeySharing, LeafKeys, MintError, Minter};
use proxy::tables::{CleanupCounts, LeafLeaseRequest, LeafLookup, NewLeaf, SEALED_LEAF_KEYS};
use store::{Store, StoreError};
use testbed::{Database, until};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use x509::{HostOrIp, UnixTime};

use crate::world::{TIMEOUT, authority, now};

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const DAY: Duration = Duration::from_secs(86_400);

/// Timeout for a hanging database: a hundred times the usual duration of a call.
const HUNG: Duration = Duration::from_secs(3);
/// Duration of a lease that expires during a test.
const SHORT: Duration = Duration::from_secs(3);

/// Timeouts that allow for a slow test machine.
const PATIENT: SecondLevelOptions = SecondLevelOptions {
    when_away: OutagePolicy::Mint,
    trip_timeout: TIMEOUT,
    lease: Duration::from_secs(120),
    leaves_max: 100_000,
    is_shared: true,
};

/// The certificate store of a proxy, its second level, and the leaves it mints.
#[derive(Clone)]
struct Proxy {
    store: CertificateStore,
    minter: Minter,
    minted: Arc<AtomicUsize>,
    _keeper: Arc<Keeper>,
}

struct Keeper(CancellationToken);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Proxy {
    fn new(
        backend: impl Backend,
        ring: &Arc<Keyring>,
        options: SecondLevelOptions,
        authority: Authority,
    ) -> Self {
        Self::with_newcomers(backend, ring, options, authority, NewNameLimit::new(10_000, 10_000))
    }

    fn with_newcomers(
        backend: impl Backend,
        ring: &Arc<Keyring>,
        options: SecondLevelOptions,
        authority: Authority,
        name_limit: NewNameLimit,
    ) -> Self {
        let level = SecondLevel::new(backend, Arc::clone(ring), options);
        let stop = CancellationToken::new();
        tokio::spawn(level.clone().keep(stop.clone()));
        Self {
            store: CertificateStore::with_second_level(1 << 24, name_limit, Some(level)),
            minter: Minter::new(authority, Arc::new(LeafKeys::new().unwrap()), DAY),
            minted: Arc::default(),
            _keeper: Arc::new(Keeper(stop)),
        }
    }

    fn id(&self, name: &str) -> LeafId {
        LeafId {
            name: HostOrIp::parse(name).unwrap(),
            authority: self.minter.authority().fingerprint(),
            kind: LeafKeyKind::P256,
            keys: LeafKeySharing::Shared,
            user: None,
            profile: "default".into(),
            mirrored: None,
            key_recipients: KeyRecipients::Nobody,
        }
    }

    async fn fetch(&self, name: &str) -> Result<Arc<Leaf>, FetchError> {
        self.fetch_at(name, now()).await
    }

    async fn fetch_at(&self, name: &str, at: UnixTime) -> Result<Arc<Leaf>, FetchError> {
        let (id, minter, minted) = (self.id(name), self.minter.clone(), Arc::clone(&self.minted));
        let host = id.name.clone();
        let mint = move || async move {
            minted.fetch_add(1, SeqCst);
            minter.mint(&host, LeafKeyKind::P256, at).await
        };
        self.store.fetch(&id, CLIENT, at, mint).await
    }

    fn minted(&self) -> usize {
        self.minted.load(SeqCst)
    }

    fn is_unavailable(&self) -> bool {
        self.store.counts().second.unavailable
    }
}

fn der(leaf: &Leaf) -> Vec<u8> {
    // The private key matches the certificate.
    leaf.certified.keys_match().unwrap();
    leaf.certified.cert[0].to_vec()
}

fn ring() -> Arc<Keyring> {
    Arc::new(Keyring::ephemeral())
}

/// Fault of a database call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fault {
    /// The next leaf is not stored, and the call returns an error.
    BeforePut,
    /// The next leaf is stored, and the call returns an error.
    AfterPut,
}

/// A database that counts its calls, and can hang or fail.
#[derive(Clone)]
struct Spied {
    store: Store,
    lookups: Arc<AtomicUsize>,
    hangs: Arc<AtomicBool>,
    fault: Arc<parking_lot::Mutex<Option<Fault>>>,
    keys_put: Arc<AtomicUsize>,
    /// If set, the cleanup waits for this notification, and then reports one evicted leaf.
    evicts: Option<Arc<Notify>>,
}

impl Spied {
    fn new(store: Store) -> Self {
        Self {
            store,
            lookups: Arc::default(),
            hangs: Arc::default(),
            fault: Arc::default(),
            keys_put: Arc::default(),
            evicts: None,
        }
    }

    fn lost() -> StoreError {
        StoreError::Unavailable { source: "the connection was lost".into() }
    }

    async fn hang(&self) {
        if self.hangs.load(SeqCst) {
            std::future::pending::<()>().await;
        }
    }
}

impl Backend for Spied {
    fn lookup<'a>(
        &'a self,
        lease_request: LeafLeaseRequest<'a>,
    ) -> BoxFuture<'a, Result<LeafLookup, StoreError>> {
        async move {
            self.lookups.fetch_add(1, SeqCst);
            self.hang().await;
            self.store.lookup(lease_request).await
        }
        .boxed()
    }

    fn put<'a>(&'a self, leaf: NewLeaf<'a>) -> BoxFuture<'a, Result<bool, StoreError>> {
        async move {
            let fault = self.fault.lock().take();
            match fault {
                None => self.store.put(leaf).await,
                Some(Fault::BeforePut) => Err(Self::lost()),
                Some(Fault::AfterPut) => {
                    assert!(self.store.put(leaf).await?);
                    Err(Self::lost())
                }
            }
        }
        .boxed()
    }

    fn put_key<'a>(
        &'a self,
        id: &'a str,
        sealed: &'a [u8],
        ends_at_us: i64,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.keys_put.fetch_add(1, SeqCst);
        self.store.put_key(id, sealed, ends_at_us)
    }

    fn release<'a>(&'a self, id: &'a str, holder: Uuid) -> BoxFuture<'a, Result<(), StoreError>> {
        async move {
            self.hang().await;
            self.store.release(id, holder).await
        }
        .boxed()
    }

    fn tidy(
        &self,
        holder: Uuid,
        now_us: i64,
        every: Duration,
        leaves_max: u64,
    ) -> BoxFuture<'_, Result<CleanupCounts, StoreError>> {
        let Some(evicts) = &self.evicts else {
            return self.store.tidy(holder, now_us, every, leaves_max);
        };
        async {
            evicts.notified().await;
            Ok(CleanupCounts { deleted: 1, evicted: 1 })
        }
        .boxed()
    }
}

#[tokio::test]
async fn leaf_keys_are_stored_again_after_leaves_are_evicted() {
    let database = Database::sqlite();
    let evicts = Arc::new(Notify::new());
    let spied = Spied { evicts: Some(Arc::clone(&evicts)), ..Spied::new(database.open().await) };
    let proxy = Proxy::new(spied.clone(), &ring(), PATIENT, authority().0);
    for name in ["a.example", "b.example"] {
        proxy.fetch(name).await.unwrap();
    }
    assert_eq!(spied.keys_put.load(SeqCst), 1);
    evicts.notify_one();
    let began = Instant::now();
    for number in 0.. {
        proxy.fetch(&format!("n{number}.example")).await.unwrap();
        if spied.keys_put.load(SeqCst) == 2 {
            break;
        }
        assert!(began.elapsed() < TIMEOUT, "the key counts as put, and is perhaps there no longer");
    }
}

/// Runs 32 tasks for each of 50 names at each of two proxies.
async fn each_name_is_minted_once(database: Database) {
    const NAMES: usize = 50;
    const TASKS: usize = 32;
    let (ring, (authority, _)) = (ring(), authority());
    let proxies = [
        Proxy::new(database.open().await, &ring, PATIENT, authority.clone()),
        Proxy::new(database.open().await, &ring, PATIENT, authority),
    ];
    let mut all = Vec::new();
    for name in (0..NAMES).flat_map(|number| std::iter::repeat_n(format!("host{number}.example"), TASKS)) {
        for proxy in proxies.clone() {
            let name = name.clone();
            all.push(tokio::spawn(async move { (name.clone(), der(&proxy.fetch(&name).await.unwrap())) }));
        }
    }
    let mut leaves: HashMap<String, HashSet<Vec<u8>>> = HashMap::new();
    for one in all {
        let (name, leaf) = one.await.unwrap();
        leaves.entry(name).or_default().insert(leaf);
    }
    assert_eq!(leaves.len(), NAMES);
    assert!(leaves.values().all(|of_one| of_one.len() == 1), "one leaf for each name");
    assert_eq!(proxies[0].minted() + proxies[1].minted(), NAMES);
    let found: u64 = proxies.iter().map(|proxy| proxy.store.counts().second.found).sum();
    assert_eq!(found as usize, NAMES, "the other proxy found each");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_proxies_on_postgresql_mint_each_name_once() {
    each_name_is_minted_once(Database::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_proxies_on_one_sqlite_file_mint_each_name_once() {
    each_name_is_minted_once(Database::sqlite()).await;
}

/// Starts a minting in `proxy` that never completes.
async fn minting_for_ever(proxy: &Proxy) -> tokio::task::JoinHandle<Result<(), FetchError>> {
    let (id, begun) = (proxy.id("a.example"), Arc::clone(&proxy.minted));
    let mint = move || async move {
        begun.fetch_add(1, SeqCst);
        std::future::pending::<Result<Leaf, MintError>>().await
    };
    let store = proxy.store.clone();
    let minting = tokio::spawn(async move { store.fetch(&id, CLIENT, now(), mint).await.map(drop) });
    until("it begins to mint", || proxy.minted() == 1).await;
    minting
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_minting_releases_the_lease() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let database = Database::postgres().await;
    let (ring, (authority, _)) = (ring(), authority());
    let long = SecondLevelOptions { lease: HOUR, ..PATIENT };
    let leaving = Proxy::new(database.open().await, &ring, long, authority.clone());
    let other = Proxy::new(database.open().await, &ring, long, authority);
    minting_for_ever(&leaving).await.abort();
    tokio::time::timeout(TIMEOUT, other.fetch("a.example")).await.expect("it waits for the lease").unwrap();
    assert_eq!(other.minted(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_of_a_dead_proxy_is_taken_over_after_it_expires() {
    let database = Database::postgres().await;
    let (ring, (authority, _)) = (ring(), authority());
    // Long enough for the other proxy to find the lease.
    let short = SecondLevelOptions { lease: Duration::from_secs(15), ..PATIENT };
    let dying = Proxy::new(database.open().await, &ring, short, authority.clone());
    let other = Proxy::new(database.open().await, &ring, short, authority);
    let minting = minting_for_ever(&dying).await;
    other.fetch("a.example").await.unwrap();
    let counts = other.store.counts().second;
    assert_eq!(
        (other.minted(), counts.awaited, counts.without),
        (1, 1, 0),
        "it waited, and minted with the lease"
    );
    // If the first proxy returns, it finds the leaf of the other proxy.
    minting.abort();
    assert!(minting.await.unwrap_err().is_cancelled());
    let (returned, theirs) =
        (dying.fetch("a.example").await.unwrap(), other.fetch("a.example").await.unwrap());
    assert_eq!(der(&returned), der(&theirs));
}

#[tokio::test]
async fn failed_minting_releases_the_lease() {
    let database = Database::sqlite();
    let (ring, (authority, _)) = (ring(), authority());
    let failing = Proxy::new(database.open().await, &ring, PATIENT, authority.clone());
    let other = Proxy::new(database.open().await, &ring, PATIENT, authority);
    let mint = || async { Err(MintError::NoRsaKey) };
    let failed = failing.store.fetch(&failing.id("a.example"), CLIENT, now(), mint).await.unwrap_err();
    assert_eq!(failed, FetchError::Mint(MintError::NoRsaKey));
    other.fetch("a.example").await.unwrap();
    assert_eq!((other.minted(), other.store.counts().second.awaited), (1, 0), "at once");
}

async fn with_fault(fault: Fault) -> (Proxy, Proxy, bool) {
    let database = Database::postgres().await;
    let (ring, (authority, _)) = (ring(), authority());
    let short = SecondLevelOptions { lease: SHORT, ..PATIENT };
    let spied = Spied::new(database.open().await);
    *spied.fault.lock() = Some(fault);
    let first = Proxy::new(spied.clone(), &ring, short, authority.clone());
    let second = Proxy::new(database.open().await, &ring, short, authority);
    let theirs = der(&first.fetch("a.example").await.unwrap());
    assert!(spied.fault.lock().is_none(), "the fault was met");
    assert_eq!(first.store.counts().second.failures, 1);
    let ours = der(&second.fetch("a.example").await.unwrap());
    until("it is asked again", || !first.is_unavailable()).await;
    (first, second, theirs == ours)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaf_is_served_when_storing_fails_and_minted_again_by_others() {
    let (first, second, same) = with_fault(Fault::BeforePut).await;
    assert!(!same);
    assert_eq!((first.minted(), second.minted()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaf_stored_despite_a_reported_error_is_shared() {
    let (first, second, same) = with_fault(Fault::AfterPut).await;
    assert!(same);
    assert_eq!((first.minted(), second.minted()), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_are_served_during_a_database_outage() {
    let database = Database::dedicated_postgres().await;
    let (ring, (authority, _)) = (ring(), authority());
    // Longer than by default: on a slow machine a call may take a second.
    let usual = SecondLevelOptions { trip_timeout: Duration::from_secs(10), ..SecondLevelOptions::default() };
    let proxies = [
        Proxy::new(database.open().await, &ring, usual, authority.clone()),
        Proxy::new(database.open().await, &ring, usual, authority),
    ];
    let (served, stop) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
    let load: Vec<_> = (0..4)
        .map(|client| {
            let (proxy, served, stop) = (proxies[client % 2].clone(), Arc::clone(&served), stop.clone());
            tokio::spawn(async move {
                for number in 0.. {
                    if stop.is_cancelled() {
                        return;
                    }
                    proxy.fetch(&format!("host{number}.client{client}.example")).await.unwrap();
                    served.fetch_add(1, SeqCst);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            })
        })
        .collect();
    until("clients are served", || served.load(SeqCst) > 20).await;
    database.stop().await;
    until("it is noticed", || proxies.iter().all(Proxy::is_unavailable)).await;
    let before = served.load(SeqCst);
    until("they are served without it", || served.load(SeqCst) > before + 20).await;
    database.resume().await;
    until("it is back", || proxies.iter().all(|proxy| !proxy.is_unavailable())).await;
    stop.cancel();
    for client in load {
        client.await.unwrap();
    }
    // The proxies share leaves again. A call that failed late may delay one of them by another second.
    let began = Instant::now();
    for number in 0.. {
        assert!(began.elapsed() < TIMEOUT, "they never share again");
        until("it is back", || proxies.iter().all(|proxy| !proxy.is_unavailable())).await;
        let name = format!("again{number}.example");
        let leaves = [proxies[0].fetch(&name).await.unwrap(), proxies[1].fetch(&name).await.unwrap()];
        if der(&leaves[0]) == der(&leaves[1]) {
            break;
        }
    }
}

#[tokio::test]
async fn hanging_database_delays_one_request_and_recovers() {
    let database = Database::sqlite();
    let (ring, (authority, _)) = (ring(), authority());
    let spied = Spied::new(database.open().await);
    let hasty = SecondLevelOptions { trip_timeout: HUNG, ..PATIENT };
    let proxy = Proxy::new(spied.clone(), &ring, hasty, authority);
    proxy.fetch("kept.example").await.unwrap();
    spied.hangs.store(true, SeqCst);
    for number in 0..10 {
        proxy.fetch(&format!("host{number}.example")).await.unwrap();
    }
    let counts = proxy.store.counts().second;
    assert!(counts.unavailable && counts.without == 10, "{counts:?}");
    assert_eq!(spied.lookups.load(SeqCst), 2, "the first of the ten alone waited");
    proxy.fetch("kept.example").await.unwrap();
    spied.hangs.store(false, SeqCst);
    until("it is back", || !proxy.is_unavailable()).await;
    proxy.fetch("new.example").await.unwrap();
    assert_eq!(spied.lookups.load(SeqCst), 3);
}

#[tokio::test]
async fn refuse_policy_rejects_only_new_names_during_an_outage() {
    let database = Database::sqlite();
    let (ring, (authority, _)) = (ring(), authority());
    let spied = Spied::new(database.open().await);
    let trip_timeout = HUNG;
    let strict = SecondLevelOptions { when_away: OutagePolicy::Refuse, trip_timeout, ..PATIENT };
    let proxy = Proxy::new(spied.clone(), &ring, strict, authority);
    proxy.fetch("known.example").await.unwrap();
    spied.hangs.store(true, SeqCst);
    assert_eq!(proxy.fetch("new.example").await.unwrap_err(), FetchError::StoreUnavailable);
    proxy.fetch("known.example").await.unwrap();
    assert_eq!(proxy.minted(), 1);
}

#[tokio::test]
async fn leaves_survive_restart_in_a_private_file_without_plaintext_names() {
    use std::os::unix::fs::PermissionsExt;
    let database = Database::sqlite();
    let (ring, (authority, _)) = (ring(), authority());
    let before = Proxy::new(database.open().await, &ring, PATIENT, authority.clone());
    let leaf = der(&before.fetch("a.example").await.unwrap());
    drop(before);
    let after = Proxy::new(database.open().await, &ring, PATIENT, authority);
    assert_eq!(der(&after.fetch("a.example").await.unwrap()), leaf);
    assert_eq!(after.minted(), 0);
    let file = database.path("data/bulla.db");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    // The file contains no name, certificate or key in plaintext.
    let rows = store::testing::rows_of(&file);
    assert!(rows.contains("proxy_leaf_keys") && !rows.contains("a.example"), "{rows}");
    let contents = std::fs::read(&file).unwrap();
    assert!(!contents.windows(9).any(|part| part == b"a.example"));
}

/// Returns the leaf of `user`. `keys` contains the keys of all users.
async fn of_user(proxy: &Proxy, keys: &KeysByOwner, user: &str, name: &str) -> Vec<u8> {
    let user: Arc<str> = user.into();
    let id = LeafId { keys: LeafKeySharing::ByUser, user: Some(Arc::clone(&user)), ..proxy.id(name) };
    let (minter, minted, host) = (proxy.minter.clone(), Arc::clone(&proxy.minted), id.name.clone());
    let keys = keys.clone();
    let mint = move || async move {
        minted.fetch_add(1, SeqCst);
        minter.with_keys(keys.of(&user).unwrap()).mint(&host, LeafKeyKind::P256, now()).await
    };
    der(&proxy.store.fetch(&id, CLIENT, now(), mint).await.unwrap())
}

fn spki(der: &[u8]) -> Vec<u8> {
    x509::Certificate::parse(der).unwrap().public_key.spki.to_vec()
}

/// Tests a shared database, and a file after a restart.
async fn leaves_of_users_are_found_by_themselves_alone(database: Database) {
    let (ring, (authority, _)) = (ring(), authority());
    let keys = || KeysByOwner::for_users(64, DAY, RsaStock::new(2));
    let first = Proxy::new(database.open().await, &ring, PATIENT, authority.clone());
    let own = keys();
    let shared = der(&first.fetch("a.example").await.unwrap());
    let alice = of_user(&first, &own, "alice", "a.example").await;
    let other = of_user(&first, &own, "alice", "b.example").await;
    let bob = of_user(&first, &own, "bob", "a.example").await;
    assert_eq!(spki(&alice), spki(&other), "one key of one user");
    let all: HashSet<_> = [&shared, &alice, &bob].map(|leaf| spki(leaf)).into();
    assert_eq!(all.len(), 3, "and no other's");
    // Each user finds the own leaf with its original key, although this proxy has generated other keys.
    let (second, others) = (Proxy::new(database.open().await, &ring, PATIENT, authority), keys());
    for (user, name, leaf) in
        [("alice", "a.example", &alice), ("alice", "b.example", &other), ("bob", "a.example", &bob)]
    {
        assert_eq!(&of_user(&second, &others, user, name).await, leaf, "{user} {name}");
    }
    assert_eq!(second.minted(), 0);
    let carol = of_user(&second, &others, "carol", "a.example").await;
    assert!(!all.contains(&spki(&carol)) && second.minted() == 1);
}

#[tokio::test]
async fn users_find_only_their_own_leaves_on_postgresql() {
    leaves_of_users_are_found_by_themselves_alone(Database::postgres().await).await;
}

#[tokio::test]
async fn users_find_only_their_own_leaves_on_sqlite() {
    leaves_of_users_are_found_by_themselves_alone(Database::sqlite()).await;
}

#[tokio::test]
async fn user_keys_are_deleted_with_their_leaves() {
    let database = Database::sqlite();
    let (ring, (authority, _)) = (ring(), authority());
    let proxy = Proxy::new(database.open().await, &ring, PATIENT, authority);
    let keys = KeysByOwner::for_users(64, DAY, RsaStock::new(2));
    for (user, name) in [("alice", "a.example"), ("alice", "b.example"), ("bob", "a.example")] {
        of_user(&proxy, &keys, user, name).await;
    }
    let store = database.open().await;
    let stored_count =
        async || store::Keys::of(&store).sealed_count(&SEALED_LEAF_KEYS, &[0; 9]).await.unwrap();
    assert_eq!(stored_count().await, 2, "one of each");
    let after = now().plus(DAY.as_secs() as i64 + 10).0 * 1_000_000;
    proxy::tables::ProxyLeaves::of(&store).tidy(after, 1_000).await.unwrap();
    assert_eq!(
        (proxy::tables::ProxyLeaves::of(&store).counts().await.unwrap(), stored_count().await),
        (0, 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_user_at_two_proxies_mints_each_leaf_once() {
    const TASKS: usize = 32;
    let database = Database::postgres().await;
    let (ring, (authority, _)) = (ring(), authority());
    let mut proxies = Vec::new();
    for _ in 0..2 {
        let proxy = Proxy::new(database.open().await, &ring, PATIENT, authority.clone());
        proxies.push((proxy, KeysByOwner::for_users(64, DAY, RsaStock::new(2))));
    }
    let all: Vec<_> = (0..2 * TASKS)
        .map(|task| {
            let (proxy, keys) = proxies[task % 2].clone();
            tokio::spawn(async move { of_user(&proxy, &keys, "alice", "a.example").await })
        })
        .collect();
    let leaves: HashSet<Vec<u8>> =
        futures_util::future::join_all(all).await.into_iter().map(Result::unwrap).collect();
    assert_eq!((leaves.len(), proxies[0].0.minted() + proxies[1].0.minted()), (1, 1));
}

/// Returns the chain and the key that a consumer receives.
async fn for_consumer(proxy: &Proxy, keys: &KeysByOwner, to: KeyRecipients, kind: LeafKeyKind) -> String {
    let who: Arc<str> = "minted-for CN=consumer".into();
    let (user, keys) = (Some(Arc::clone(&who)), keys.clone());
    let id = LeafId { keys: LeafKeySharing::ByUser, user, kind, key_recipients: to, ..proxy.id("a.example") };
    let (minter, minted, host) = (proxy.minter.clone(), Arc::clone(&proxy.minted), id.name.clone());
    let mint = move || async move {
        minted.fetch_add(1, SeqCst);
        minter.with_keys(keys.of(&who).unwrap()).mint(&host, kind, now()).await
    };
    let leaf = proxy.store.fetch(&id, CLIENT, now(), mint).await.unwrap();
    leaf.to_pem().expect("a key that may be handed out").to_string()
}

#[tokio::test]
async fn proxies_sharing_a_database_return_the_same_consumer_leaf_and_key() {
    let database = Database::postgres().await;
    let (ring, (authority, _)) = (ring(), authority());
    let stock = RsaStock::new(2);
    let keeping = tokio::spawn({
        let stock = stock.clone();
        async move { stock.keep().await }
    });
    until("the stock is ready", || stock.ready() >= 2).await;
    keeping.abort();
    let proxy = async || Proxy::new(database.open().await, &ring, PATIENT, authority.clone());
    let keys = || KeysByOwner::for_consumers(64, DAY, stock.clone());
    let (first, second) = (proxy().await, proxy().await);
    let (own, others) = (keys(), keys());
    for kind in [LeafKeyKind::P256, LeafKeyKind::Rsa2048] {
        let given = for_consumer(&first, &own, KeyRecipients::Consumer, kind).await;
        assert!(given.contains("PRIVATE KEY"));
        assert_eq!(for_consumer(&second, &others, KeyRecipients::Consumer, kind).await, given, "{kind:?}");
    }
    assert_eq!((first.minted(), second.minted()), (2, 0));
    // The proxies share their own leaves, and never return the keys of these.
    first.fetch("a.example").await.unwrap();
    let found = second.fetch("a.example").await.unwrap();
    assert!(second.minted() == 0 && found.to_pem().is_none());
    // A local consumer of one machine is not local to another machine.
    let local_leaf = for_consumer(&first, &own, KeyRecipients::ThisMachine, LeafKeyKind::P256).await;
    assert_ne!(
        for_consumer(&second, &others, KeyRecipients::ThisMachine, LeafKeyKind::P256).await,
        local_leaf
    );
}

#[tokio::test]
async fn leaf_that_cannot_be_decrypted_is_minted_and_stored_again() {
    let database = Database::sqlite();
    let (theirs, ours, (authority, _)) = (ring(), ring(), authority());
    let before = Proxy::new(database.open().await, &theirs, PATIENT, authority.clone());
    let leaf = der(&before.fetch("a.example").await.unwrap());
    let proxy = Proxy::new(database.open().await, &ours, PATIENT, authority.clone());
    let anew = der(&proxy.fetch("a.example").await.unwrap());
    assert_ne!(anew, leaf);
    assert_eq!((proxy.minted(), proxy.store.counts().second.undecryptable), (1, 1));
    let next = Proxy::new(database.open().await, &ours, PATIENT, authority);
    assert_eq!((der(&next.fetch("a.example").await.unwrap()), next.minted()), (anew, 0));
}

#[tokio::test]
async fn leaf_from_a_swapped_database_row_is_minted_again() {
    let database = Database::sqlite();
    let (ring, (authority, _)) = (ring(), authority());
    let before = Proxy::new(database.open().await, &ring, PATIENT, authority.clone());
    for name in ["a.example", "b.example"] {
        before.fetch(name).await.unwrap();
    }
    drop(before);
    let file = database.path("data/bulla.db");
    store::testing::execute(&file, "UPDATE proxy_leaves SET sealed = (SELECT max(sealed) FROM proxy_leaves)");
    let proxy = Proxy::new(database.open().await, &ring, PATIENT, authority);
    let leaves =
        [der(&proxy.fetch("a.example").await.unwrap()), der(&proxy.fetch("b.example").await.unwrap())];
    assert_ne!(leaves[0], leaves[1]);
    assert_eq!((proxy.minted(), proxy.store.counts().second.undecryptable), (1, 1), "one of them was moved");
}

#[tokio::test]
async fn two_cas_share_neither_leaves_nor_keys() {
    let database = Database::sqlite();
    let ring = ring();
    let first = Proxy::new(database.open().await, &ring, PATIENT, authority().0);
    let second = Proxy::new(database.open().await, &ring, PATIENT, authority().0);
    let leaves = [first.fetch("a.example").await.unwrap(), second.fetch("a.example").await.unwrap()];
    let key = |leaf: &Leaf| x509::Certificate::parse(&der(leaf)).unwrap().public_key.spki.to_vec();
    assert_ne!(key(&leaves[0]), key(&leaves[1]));
    assert_eq!((first.minted(), second.minted()), (1, 1));
}

#[tokio::test]
async fn leaf_is_renewed_by_one_proxy_and_reused_by_others() {
    let database = Database::sqlite();
    let (ring, (authority, _)) = (ring(), authority());
    let first = Proxy::new(database.open().await, &ring, PATIENT, authority.clone());
    let second = Proxy::new(database.open().await, &ring, PATIENT, authority);
    let old = der(&first.fetch("a.example").await.unwrap());
    assert_eq!(der(&second.fetch("a.example").await.unwrap()), old);
    let most = DAY / 10 * 7;
    tokio::time::pause();
    tokio::time::advance(most).await;
    tokio::time::resume();
    let later = now().plus(most.as_secs() as i64);
    assert_eq!(der(&first.fetch_at("a.example", later).await.unwrap()), old, "it still holds");
    until("it is renewed", || first.minted() == 2).await;
    until("it is put", || first.store.counts().minted == 2).await;
    let new = der(&first.fetch_at("a.example", later).await.unwrap());
    assert_ne!(new, old);
    assert_eq!(der(&second.fetch_at("a.example", later).await.unwrap()), old);
    until("it is picked up", || second.store.counts().second.found == 2).await;
    let began = Instant::now();
    while der(&second.fetch_at("a.example", later).await.unwrap()) != new {
        assert!(began.elapsed() < TIMEOUT, "the other goes on with the old one");
        tokio::task::yield_now().await;
    }
    assert_eq!(second.minted(), 0);
}

#[tokio::test]
async fn client_above_its_name_limit_causes_no_database_lookup() {
    let database = Database::sqlite();
    let (ring, (authority, _)) = (ring(), authority());
    let other = Proxy::new(database.open().await, &ring, PATIENT, authority.clone());
    for name in ["a.example", "b.example", "c.example"] {
        other.fetch(name).await.unwrap();
    }
    let spied = Spied::new(database.open().await);
    let name_limit = NewNameLimit::new(1, 1);
    let proxy = Proxy::with_newcomers(spied.clone(), &ring, PATIENT, authority, name_limit);
    for name in ["a.example", "b.example", "c.example"] {
        proxy.fetch(name).await.unwrap();
    }
    assert_eq!(proxy.minted(), 0, "they were there, and are no new names");
    proxy.fetch("new.example").await.unwrap();
    let lookups = spied.lookups.load(SeqCst);
    let refused = proxy.fetch("newer.example").await.unwrap_err();
    assert!(matches!(refused, FetchError::TooManyNames(_)), "{refused}");
    assert_eq!((spied.lookups.load(SeqCst), lookups), (4, 4));
}
