//! Requests for keys held by other nodes: node selection, errors, and behavior when nodes fail.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use keyless::Source;
use keyless::client::ClientTls;
use keyless::native::proto::{ListKeysRequest, SignRequest};
use keyless::native::{CallOptions, Client, TraceParent};
use keyless::routing::{
    Holders, Member, NodeId, Router, RouterOptions, RoutingMetrics, TENANT_IN_FLIGHT_MAX,
};
use keyless::server::Options;
use keyless::tenant::TenantOptions;
use keys::{Hash, KeyRef, KeyType, PrivateKey, Scheme, Signer};
use tokio::sync::watch;
use tonic::Code;
use x509::GeneralName;

use crate::certificates::{Authority, CLIENT_AUTH, SERVER_AUTH};
use crate::native::{EC, Log, patient, request};
use crate::node::Node;
use crate::peer::{Gated, Peer, TIMEOUT, openssl_verifies, ski, until};
use crate::relay::{LinkState, Relay};

/// A node that does not answer for this long counts as lost.
const SILENCE: Duration = Duration::from_secs(5);

/// Returns the options of the nodes. Reserved for the reply's way back: one second, so that a stall of this machine does not change
/// the outcome.
fn quick() -> RouterOptions {
    RouterOptions {
        connect_timeout: TIMEOUT,
        ping_every: Duration::from_millis(100),
        ping_timeout: SILENCE,
        margin: Duration::from_secs(1),
        ..RouterOptions::default()
    }
}

/// A node, and the network path to it.
struct Far {
    node: Node,
    relay: Relay,
}

impl Deref for Far {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

/// Starts node `number`, with a round-trip time of `round_trip_ms` milliseconds to it.
async fn far(ca: &Authority, number: u8, round_trip_ms: u64, router: RouterOptions, options: Options) -> Far {
    let mut node = Node::new(ca, number, SocketAddr::from(([127, 0, 0, 1], 0)), router, options).await;
    let relay = Relay::new(node.running.nodes.unwrap(), Duration::from_millis(round_trip_ms) / 2).await;
    node.member.address = relay.address.to_string();
    Far { node, relay }
}

/// A front node that clients use, and other nodes that hold a key, each at the given round-trip time.
struct World {
    front: Far,
    others: Vec<Far>,
    gated_keys: Vec<Arc<Gated>>,
    gates: Gates,
    holders: Arc<Holders>,
    key: PrivateKey,
    ca: Authority,
}

/// The gates of the other nodes' keys.
struct Gates(Mutex<Vec<watch::Sender<bool>>>);

impl Gates {
    fn set(&self, at: usize, open: bool) {
        self.0.lock().unwrap()[at].send_replace(open);
    }

    /// The first node's key can never sign again.
    fn remove_first(&self) {
        self.set(0, false);
        self.0.lock().unwrap().remove(0);
    }
}

impl World {
    async fn new(round_trips_ms: &[u64]) -> Self {
        Self::with(round_trips_ms, Options::default).await
    }

    /// Starts all nodes with open gates.
    async fn with(round_trips_ms: &[u64], options: fn() -> Options) -> Self {
        Self::unconnected(round_trips_ms, quick(), options).await.connected().await
    }

    /// Like [`Self::new`], with these options of routing.
    async fn routing(router: RouterOptions, round_trips_ms: &[u64]) -> Self {
        Self::unconnected(round_trips_ms, router, Options::default).await.connected().await
    }

    async fn connected(self) -> Self {
        self.connect();
        self.front.reaches(self.others.len()).await;
        self
    }

    async fn unconnected(round_trips_ms: &[u64], router: RouterOptions, options: fn() -> Options) -> Self {
        let options = || Options { hello_timeout: TIMEOUT, handshake_timeout: TIMEOUT, ..options() };
        let ca = Authority::new("nodes");
        let front = far(&ca, 1, 0, router.clone(), options()).await;
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let (mut others, mut gated_keys, mut gates) = (Vec::new(), Vec::new(), Vec::new());
        for (at, round_trip_ms) in round_trips_ms.iter().enumerate() {
            let node = far(&ca, at as u8 + 2, *round_trip_ms, router.clone(), options()).await;
            let (gated, gate) = Gated::of(key.clone());
            gate.send_replace(true);
            node.holds("", vec![gated.clone()]);
            others.push(node);
            gated_keys.push(gated);
            gates.push(gate);
        }
        let holders = front.router.holders(others.iter().map(|node| node.member.id).collect());
        let routed = Arc::new(front.router.key(&holders, key.spki()).unwrap());
        front.keys.put_sources("routed", vec![("shop".to_owned(), Source::Routed(routed))]);
        let gates = Gates(Mutex::new(gates));
        Self { front, others, gated_keys, gates, holders, key, ca }
    }

    fn members(&self) -> Vec<Member> {
        let all = std::iter::once(&self.front).chain(&self.others);
        all.map(|node| node.member.clone()).collect()
    }

    /// Makes all nodes known to each other.
    fn connect(&self) {
        for node in std::iter::once(&self.front).chain(&self.others) {
            node.router.set_members(self.members());
        }
    }

    async fn sign(&self) -> Result<Vec<u8>, tonic::Status> {
        self.front.client().sign(request(0, &self.key, EC, &[1; 32]), patient()).await
    }

    /// Sends `count` concurrent requests. Returns how many were signed, and the errors of the others.
    async fn sign_many(&self, count: usize) -> (usize, HashMap<String, usize>) {
        let client = self.front.client();
        let one = || client.sign(request(0, &self.key, EC, &[1; 32]), patient());
        let mut failures = HashMap::new();
        let done = join_all((0..count).map(|_| one())).await;
        let mut signed = 0;
        for done in done {
            match done {
                Ok(_) => signed += 1,
                Err(status) => *failures.entry(status.to_string()).or_default() += 1,
            }
        }
        (signed, failures)
    }

    /// Waits until the measured round-trip time to this node is by far the shortest. The first measurement may have been delayed.
    async fn is_nearest(&self, at: usize) {
        let nearest = self.others[at].member.id;
        until(|| {
            let (near, far): (Vec<_>, Vec<_>) =
                self.front.router.measured().into_iter().partition(|(node, _)| *node == nearest);
            near.iter().all(|(_, near)| far.iter().all(|(_, far)| *near * 4 < *far))
        })
        .await;
    }

    /// Signs until the condition holds.
    async fn sign_until(&self, what: &str, so: impl Fn() -> bool) {
        let began = Instant::now();
        while !so() {
            assert!(began.elapsed() < TIMEOUT, "{what}: {:?}", self.requested());
            self.sign().await.unwrap();
        }
    }

    fn requested(&self) -> Vec<usize> {
        self.gated_keys.iter().map(|gated_keys| gated_keys.requested.load(Relaxed)).collect()
    }

    async fn stop(self) {
        for node in std::iter::once(self.front).chain(self.others) {
            node.node.stop().await;
        }
    }
}

/// No node with a software key signs with these schemes. The receiving node rejects the request itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn legacy_schemes_are_rejected_by_the_receiving_node() {
    let world = World::new(&[5]).await;
    let key = PrivateKey::generate(KeyType::Rsa2048).unwrap();
    let (gated, gate) = Gated::of(key.clone());
    gate.send_replace(true);
    world.others[0].holds("", vec![gated.clone()]);
    let routed = Arc::new(world.front.router.key(&world.holders, key.spki()).unwrap());
    world.front.keys.put_sources("routed", vec![(String::new(), Source::Routed(routed))]);
    let client = world.front.client();
    let sign = async |scheme, octets| {
        let requested = request(0, &key, scheme, &vec![1; octets]);
        client.sign(requested, patient()).await.map(drop)
    };
    for hash in [Hash::Md5Sha1, Hash::Sha1, Hash::Sha224] {
        let refused = sign(Scheme::RsaPkcs1(hash), hash.octets()).await.unwrap_err();
        assert!(refused.message().contains("security modules only"), "{refused}");
    }
    let relayed = gated.requested.load(Relaxed);
    sign(Scheme::RsaPkcs1(Hash::Sha256), 32).await.unwrap();
    assert_eq!((relayed, gated.requested.load(Relaxed)), (0, 1));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nearest_node_with_the_key_signs() {
    let world = World::new(&[600, 5, 200]).await;
    world.is_nearest(1).await;
    let signature = world.sign().await.unwrap();
    assert!(openssl_verifies(world.key.spki(), EC, &[1; 32], &signature));
    for _ in 0..100 {
        world.sign().await.unwrap();
    }
    // A stall of this machine may send a request to another node, but only for a short time.
    let mostly = || world.requested()[0] + world.requested()[2] < world.requested()[1];
    world.sign_until("the nearest signs most", mostly).await;
    // The nearest node is gone: the next nearest receives the requests.
    let members = world.members().into_iter().filter(|member| member.name != "node-3").collect();
    world.front.router.set_members(members);
    let before = world.requested();
    // A stall during measurement makes a node look distant for a while.
    world.sign_until("the next nearest is asked", || world.requested()[2] > before[2]).await;
    let after = world.requested();
    assert!(after[1] == before[1], "{before:?} {after:?}");
    // The nearest node returns.
    world.connect();
    world.front.reaches(3).await;
    world.sign_until("the nearest is asked again", || world.requested()[1] > after[1]).await;
    world.stop().await;
}

/// The service samples every five seconds. The test does not depend on the time of the sample.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stuck_requests_to_a_site_raise_the_littles_law_ratio() {
    let world = World::new(&[0]).await;
    world.gates.set(0, false);
    let (client, requested) = (world.front.client(), request(0, &world.key, EC, &[1; 32]));
    let requested = tokio::spawn(async move { client.sign(requested, patient()).await });
    until(|| world.front.figure("bulla_keyless_site_littles_law_ratio{site=\"site-2\"}") > 2.0).await;
    world.gates.set(0, true);
    requested.await.unwrap().unwrap();
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_node_receives_requests_and_lost_node_does_not() {
    let world = World::unconnected(&[0, 0], quick(), Options::default).await;
    let status = world.sign().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains("none of the nodes"), "{status}");
    world.connect();
    // The request waits for the first connection.
    world.sign().await.unwrap();
    world.front.reaches(2).await;
    world.others[0].relay.set(LinkState::Cut);
    world.front.reaches(1).await;
    let before = world.requested();
    assert_eq!(world.sign_many(50).await.0, 50);
    assert_eq!(world.requested(), [before[0], before[1] + 50]);
    world.others[0].relay.set(LinkState::Open);
    world.front.reaches(2).await;
    world.front.router.change_holders(&world.holders, vec![world.others[0].member.id]);
    let before = world.requested();
    world.sign().await.unwrap();
    assert_eq!(world.requested(), [before[0] + 1, before[1]], "the other holds it no more");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_in_flight_to_a_lost_node_are_retried_elsewhere() {
    let world = World::new(&[0, 400]).await;
    world.is_nearest(0).await;
    world.gates.set(0, false);
    let (signed, failures) = tokio::join!(world.sign_many(8), async {
        until(|| world.requested()[0] > 0).await;
        world.others[0].relay.set(LinkState::Cut);
    })
    .0;
    assert_eq!((signed, failures), (8, HashMap::new()));
    assert_eq!(world.gated_keys[1].signed.load(Relaxed), 8);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_are_limited_to_a_tenth_of_requests() {
    const MANY: usize = 50;
    let world = World::new(&[0, 400]).await;
    world.is_nearest(0).await;
    // The nearest node accepts all requests and can sign none, because its key's backend is gone.
    world.gates.remove_first();
    let of = |kind| world.front.figure(&format!("bulla_keyless_second_tries_total{{kind=\"{kind}\"}}"));
    let (mut requested, mut signed, mut failures) = (0, 0, 0);
    let began = Instant::now();
    // A stall of this machine may send requests to the second node first. These need no retry.
    while requested < 10 * MANY || of("out-of-budget") == 0.0 {
        assert!(began.elapsed() < TIMEOUT, "the budget is not used up: {requested} asked, {signed} signed");
        let (some, others) = world.sign_many(MANY).await;
        requested += MANY;
        signed += some;
        failures += others.values().sum::<usize>();
    }
    assert_eq!(signed + failures, requested);
    // A burst of ten, and a tenth of all requests.
    let tries = of("retried") + of("hedged");
    assert!((10..=10 + requested / 10).contains(&(tries as usize)), "{tries} of {requested}");
    assert_eq!(world.gated_keys[1].signed.load(Relaxed), signed);
    world.stop().await;
}

/// A node that has just joined receives requests before it has the keys. No request fails because of that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_without_the_key_is_tried_last_and_fails_no_request() {
    let world = World::new(&[0, 400]).await;
    world.is_nearest(0).await;
    world.others[0].holds("", Vec::new());
    for _ in 0..10 {
        assert_eq!(world.sign_many(50).await, (50, HashMap::new()));
    }
    let lack = || world.front.figure("bulla_keyless_site_errors_total{site=\"site-2\",error=\"not-found\"}");
    world.sign_until("it is asked first", || lack() > 0.0).await;
    // Then it is tried last for a second: a request that begins within that time does not go there.
    let began = Instant::now();
    loop {
        let before = lack();
        world.sign().await.unwrap();
        if lack() == before {
            break;
        }
        assert!(began.elapsed() < TIMEOUT, "it is always tried first");
    }
    // Once the node holds the key, it is tried again.
    world.others[0].holds("", vec![world.gated_keys[0].clone()]);
    world.sign_until("it is asked again", || world.requested()[0] > 0).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_request_is_not_forwarded() {
    let world = World::new(&[0, 40]).await;
    // The key's gate was removed, so that the key is unreachable everywhere. Input that does not fit the key is nevertheless rejected
    // immediately.
    let wrong = request(0, &world.key, keys::Scheme::Ed25519, &[1; 32]);
    let status = world.front.client().sign(wrong, patient()).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    assert_eq!(world.requested(), [0, 0]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_node_is_tried_last() {
    let world = World::new(&[0, 400]).await;
    world.is_nearest(0).await;
    for _ in 0..30 {
        world.sign().await.unwrap();
    }
    world.others[0].relay.set(LinkState::Hole);
    // The second node answers each request, within the retry budget. Then the first node receives no more requests.
    for _ in 0..20 {
        world.sign().await.unwrap();
    }
    world.front.reaches(1).await;
    let before = world.front.figure("bulla_keyless_site_errors_total{site=\"site-2\",error=\"late\"}");
    for _ in 0..20 {
        world.sign().await.unwrap();
    }
    let after = world.front.figure("bulla_keyless_site_errors_total{site=\"site-2\",error=\"late\"}");
    assert_eq!(before, after);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadline_error_names_the_node_and_late_request_is_not_signed() {
    let world = World::routing(RouterOptions { margin: Duration::from_secs(5), ..quick() }, &[50]).await;
    world.gates.set(0, false);
    // The client waits longer than this deadline: the test checks the error, not its time.
    let late = SignRequest { timeout_ms: 15_000, ..request(0, &world.key, EC, &[1; 32]) };
    let status = world.front.client().sign(late, patient()).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    // The innermost hop reports the error, because its deadline is shorter than the client's.
    assert!(status.message().contains("node-2: deadline exceeded in the key service"), "{status}");
    world.gates.set(0, true);
    world.sign().await.unwrap();
    assert_eq!(world.gated_keys[0].signed.load(Relaxed), 1, "what was late was not signed");
    // A deadline shorter than the round-trip time and the margin fails immediately.
    let soon = SignRequest { timeout_ms: 4_000, ..request(0, &world.key, EC, &[1; 32]) };
    let status = world.front.client().sign(soon, patient()).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert!(status.message().contains("ms are left until the deadline"), "{status}");
    assert_eq!(world.gated_keys[0].signed.load(Relaxed), 1);
    world.stop().await;
}

/// A request without a deadline waits ten times the usual latency of its node, not the maximum.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn default_deadline_adapts_to_the_usual_latency_of_the_node() {
    let options = || Options { deadline: TIMEOUT, ..Options::default() };
    let world = World::with(&[250], options).await;
    assert_eq!(world.sign_many(40).await.0, 40);
    world.gates.set(0, false);
    let mut peer = Peer::over(&world.front.folder.path().join("keys.sock")).await;
    let began = Instant::now();
    let reply = peer.sign(0x15, ski(&world.key), &[1; 32]).await;
    assert_eq!(reply.error(), Some(8));
    // Ten times a quarter of a second, of which one second is reserved for the way back.
    assert!((Duration::from_secs(1)..TIMEOUT / 2).contains(&began.elapsed()), "{:?}", began.elapsed());
    world.gates.set(0, true);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timeout_error_names_the_silent_node() {
    let world = World::routing(RouterOptions { ping_timeout: TIMEOUT, ..quick() }, &[0]).await;
    world.sign().await.unwrap();
    world.others[0].relay.set(LinkState::Hole);
    // Shorter than the silence after which the connection is closed.
    let late = SignRequest { timeout_ms: 10_000, ..request(0, &world.key, EC, &[1; 32]) };
    let status = world.front.client().sign(late, patient()).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert!(status.message().contains("node-2: the node did not answer in time"), "{status}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_requests_are_cancelled_at_the_remote_node() {
    let world = World::new(&[20]).await;
    world.gates.set(0, false);
    let client = world.front.client();
    let one = || client.sign(request(0, &world.key, EC, &[1; 32]), patient());
    let all = join_all((0..100).map(|_| one()));
    tokio::select! {
        _ = all => panic!("the gate is closed"),
        () = until(|| world.requested()[0] == 100) => {}
    }
    until(|| world.front.figure("bulla_keyless_site_requests_in_flight{site=\"site-2\"}") == 0.0).await;
    // The cancellation is sent before the next request.
    let last = world.sign();
    let opened = async {
        until(|| world.requested()[0] == 101).await;
        world.gates.set(0, true);
    };
    tokio::join!(async { last.await.unwrap() }, opened);
    assert_eq!(world.gated_keys[0].signed.load(Relaxed), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenant_with_slow_keys_uses_at_most_half_of_a_connection() {
    let options = || Options {
        tenants: vec![
            TenantOptions { in_flight_max: 10_000, ..TenantOptions::new("socket") },
            TenantOptions { clients: vec!["nobody.example".to_owned()], ..TenantOptions::new("other") },
        ],
        ..Options::default()
    };
    let world = World::with(&[0], options).await;
    // Two keys, so that the limit per key is not reached.
    let (slow, gate) = Gated::new(KeyType::P256);
    let node = &world.others[0];
    let (fast, other) =
        (PrivateKey::generate(KeyType::P256).unwrap(), PrivateKey::generate(KeyType::P256).unwrap());
    node.holds("", vec![slow.clone(), Arc::new(fast.clone()), Arc::new(other.clone())]);
    let route = |key: &dyn Signer| {
        let routed = world.front.router.key(&world.holders, key.spki()).unwrap();
        (String::new(), Source::Routed(Arc::new(routed)))
    };
    world.front.keys.put_sources("routed", vec![route(&*slow), route(&fast), route(&other)]);
    let client = world.front.client();
    // One connection per client: the limit of streams per connection is below the number of requests.
    let clients: Vec<Client> = (0..5).map(|_| world.front.client()).collect();
    let many = join_all((0..TENANT_IN_FLIGHT_MAX).map(|at| {
        let client = &clients[at % 5];
        client.sign(request(0, &*slow, EC, &[1; 32]), patient())
    }));
    let full = async {
        until(|| slow.requested.load(Relaxed) == TENANT_IN_FLIGHT_MAX).await;
        // The tenant has reached its limit on this connection.
        let status = client.sign(request(0, &fast, EC, &[1; 32]), patient()).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        assert!(status.message().contains("the nodes that may use this key are"), "{status}");
        gate.send_replace(true);
    };
    let (done, ()) = tokio::join!(many, full);
    assert!(done.iter().all(Result::is_ok));
    client.sign(request(0, &fast, EC, &[1; 32]), patient()).await.unwrap();
    world.stop().await;
}

/// The limit is the tenant's setting. Keys held on this node are not limited by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_in_flight_per_tenant_and_node_are_limited() {
    let options = || {
        let tenant = TenantOptions { destination_in_flight_max: 3, ..TenantOptions::new("socket") };
        Options { tenants: vec![tenant], ..Options::default() }
    };
    let world = World::with(&[0], options).await;
    let (slow, gate) = Gated::new(KeyType::P256);
    let fast = PrivateKey::generate(KeyType::P256).unwrap();
    world.others[0].holds("", vec![slow.clone(), Arc::new(fast.clone())]);
    let route = |key: &dyn Signer| {
        let routed = world.front.router.key(&world.holders, key.spki()).unwrap();
        (String::new(), Source::Routed(Arc::new(routed)))
    };
    world.front.keys.put_sources("routed", vec![route(&*slow), route(&fast)]);
    let local_key = PrivateKey::generate(KeyType::P256).unwrap();
    world.front.keys.put("here", vec![Arc::new(local_key.clone())]);
    let client = world.front.client();
    let three = join_all((0..3).map(|_| client.sign(request(0, &*slow, EC, &[1; 32]), patient())));
    let full = async {
        until(|| slow.requested.load(Relaxed) == 3).await;
        let status = client.sign(request(0, &fast, EC, &[1; 32]), patient()).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        assert!(client.sign(request(0, &local_key, EC, &[1; 32]), patient()).await.is_ok());
        gate.send_replace(true);
    };
    let (done, ()) = tokio::join!(three, full);
    assert!(done.iter().all(Result::is_ok));
    client.sign(request(0, &fast, EC, &[1; 32]), patient()).await.unwrap();
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forwarded_request_is_not_forwarded_again() {
    let world = World::new(&[0]).await;
    // The other node has a route back to the first, and no key.
    let back = world.others[0].router.holders(vec![world.front.member.id]);
    let routed = Arc::new(world.others[0].router.key(&back, world.key.spki()).unwrap());
    world.others[0].holds("", Vec::new());
    world.others[0].keys.put_sources("routed", vec![(String::new(), Source::Routed(routed))]);
    world.others[0].reaches(1).await;
    let status = world.sign().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains("node-2: unknown key"), "{status}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_without_a_valid_node_identity_are_rejected() {
    let world = World::new(&[0]).await;
    let address: SocketAddr = world.others[0].running.nodes.unwrap();
    let sign_as = async |number: u8, shown: &ClientTls| {
        let id = NodeId([number; 16]);
        let router = Router::new(id, shown, RouterOptions::default(), RoutingMetrics::default()).unwrap();
        let member = Member { address: address.to_string(), ..world.others[0].member.clone() };
        let holders = router.holders(vec![member.id]);
        router.set_members(vec![member]);
        let key = router.key(&holders, world.key.spki()).unwrap();
        let signed = key.sign_digest(EC, &[1; 32], Instant::now() + TIMEOUT).await;
        (signed, router, key)
    };
    let uri = |number: u8| GeneralName::Uri(NodeId([number; 16]).uri());
    let (signed, router, key) = sign_as(1, &world.front.shown).await;
    signed.unwrap();
    // An unknown node, one without a node name, and the first node's name with another key.
    for names in [vec![uri(77)], vec![GeneralName::Dns("localhost".to_owned())], vec![uri(1)]] {
        let leaf = world.ca.leaf_of("CN=node", &names, &[CLIENT_AUTH, SERVER_AUTH]);
        let shown = ClientTls { certificate: leaf.certified(), server_roots: vec![world.ca.der.clone()] };
        let (refused, stranger, _) = sign_as(77, &shown).await;
        assert!(refused.unwrap_err().to_string().contains("none of the nodes"));
        stranger.stop().await;
    }
    // A server that presents another key than the one announced for it is rejected.
    let other =
        Member { tls_spki_sha256: world.front.member.tls_spki_sha256, ..world.others[0].member.clone() };
    world.front.router.set_members(vec![other]);
    let refused = world.sign().await.unwrap_err();
    assert!(refused.message().contains("none of the nodes"), "{refused}");
    world.connect();
    // A key that is not sealed is for the node itself: a key from a folder is not available to other nodes.
    world.others[0].holds("", Vec::new());
    world.others[0].keys.put("folder", vec![world.gated_keys[0].clone() as KeyRef]);
    let refused = key.sign_digest(EC, &[1; 32], Instant::now() + TIMEOUT).await.unwrap_err();
    assert!(refused.to_string().contains("unknown key, or the client is not allowed to"), "{refused}");
    world.others[0].holds("", vec![world.gated_keys[0].clone()]);
    key.sign_digest(EC, &[1; 32], Instant::now() + TIMEOUT).await.unwrap();
    // Nodes offer each other only signatures.
    let direct = Client::pinned(
        &address.to_string(),
        &world.others[0].member.id.dns(),
        &world.front.config(),
        world.others[0].member.tls_spki_sha256,
    );
    let direct = direct.unwrap();
    let denied = [
        direct.list_keys(ListKeysRequest::default(), patient()).await.map(drop).unwrap_err(),
        direct.seal(vec![1], patient()).await.map(drop).unwrap_err(),
        direct.unseal(vec![1], patient()).await.map(drop).unwrap_err(),
    ];
    assert!(denied.iter().all(|status| status.code() == Code::PermissionDenied), "{denied:?}");
    // A removed node: its connection closes.
    let others = world.members().into_iter().filter(|member| member.id != world.front.member.id);
    world.others[0].router.set_members(others.collect());
    until(|| router.measured().is_empty()).await;
    let refused = key.sign_digest(EC, &[1; 32], Instant::now() + TIMEOUT).await.unwrap_err();
    assert!(refused.to_string().contains("none of the nodes"), "{refused}");
    router.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_key_is_preferred_over_a_remote_one() {
    let world = World::new(&[0]).await;
    world.front.keys.put("own", vec![Arc::new(world.key.clone()) as KeyRef]);
    world.front.keys.put_sources("routed", {
        let routed = world.front.router.key(&world.holders, world.key.spki()).unwrap();
        vec![(String::new(), Source::Routed(Arc::new(routed)))]
    });
    world.sign().await.unwrap();
    assert_eq!(world.requested(), [0]);
    world.front.keys.put("own", Vec::new());
    world.sign().await.unwrap();
    assert_eq!(world.requested(), [1]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenant_restrictions_apply_at_the_remote_node() {
    let named = || Options {
        tenants: vec![TenantOptions { keys: vec!["shop".to_owned()], ..TenantOptions::new("socket") }],
        ..Options::default()
    };
    let world = World::with(&[0], named).await;
    // At the other node the key has another name, which this tenant may not use. Other tenants may use it.
    let status = world.sign().await.unwrap_err();
    assert!(status.message().contains("node-2: unknown key"), "{status}");
    let node = &world.others[0];
    node.holds("shop", vec![world.gated_keys[0].clone()]);
    world.sign().await.unwrap();
    world.stop().await;
}

/// Runs on one thread, so that one subscriber captures everything.
#[tokio::test]
async fn trace_context_is_propagated_to_the_remote_node() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let (log, _default) = Log::of_this_thread();
    let world = World::new(&[10]).await;
    let trace = TraceParent::parse(&format!("00-{TRACE}-00f067aa0ba902b7-01"));
    let terms = CallOptions { trace, ..patient() };
    world.front.client().sign(request(0, &world.key, EC, &[1; 32]), terms).await.unwrap();
    world.stop().await;
    let text = log.text();
    let with = |part: &str| -> Vec<&str> {
        text.lines().filter(|line| line.contains(TRACE) && line.contains(part)).collect()
    };
    let wire = with("stage=\"wire\"");
    let [wire] = wire.as_slice() else { panic!("no way, or two, in {text}") };
    assert!(wire.contains("00f067aa0ba902b7"), "{wire}");
    let (_, span) = wire.split_once("span_id=\"").unwrap();
    let parent = format!("parent_id=\"{}\"", &span[..16]);
    assert!(with(&parent).iter().any(|line| line.contains("stage=\"sign\"")), "no {parent} in {text}");
}

/// A request that names a policy is signed only by a key sealed to that policy. Both the node that receives the request and the
/// node that it forwards to check this.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_signs_only_under_the_policy_it_is_sealed_to() {
    fn options() -> Options {
        let socket = TenantOptions { keys: vec!["shop".to_owned()], ..TenantOptions::new("socket") };
        Options { tenants: vec![socket], ..Options::default() }
    }
    let world = World::with(&[0], options).await;
    let (front, other) = (&world.front.keys, &world.others[0].keys);
    let sealed =
        |name: &str, source: Source, policy: &str| vec![(name.to_owned(), source, Some(policy.into()))];
    let routed = Arc::new(world.front.router.key(&world.holders, world.key.spki()).unwrap());
    let gated_keys = Source::Sealed(world.gated_keys[0].clone() as KeyRef);
    front.put_sealed("routed", sealed("shop", Source::Routed(Arc::clone(&routed)), "europe"));
    other.put_sealed("sealed", sealed("shop", gated_keys.clone(), "europe"));
    let client = world.front.client();
    let sign = async |key: &dyn Signer, policy: &str| {
        let request = SignRequest { policy: policy.to_owned(), ..request(0, key, EC, &[1; 32]) };
        client.sign(request, patient()).await
    };
    for policy in ["", "europe"] {
        assert!(sign(&world.key, policy).await.is_ok(), "{policy}");
    }
    let signed = || world.gated_keys[0].signed.load(Relaxed);
    let before = signed();
    for policy in ["asia", "europe ", "Europe"] {
        let status = sign(&world.key, policy).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{policy}: {status}");
        assert!(status.message().ends_with("it is sealed to \"europe\""), "{status}");
    }
    // The remote node knows the key under another policy. It reports that, and does not sign.
    other.put_sealed("sealed", sealed("shop", gated_keys, "asia"));
    let status = sign(&world.key, "europe").await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    let message = status.message();
    assert!(message.starts_with("node-2: ") && message.ends_with("\"asia\""), "{status}");
    assert_eq!(signed(), before, "nothing was signed");
    assert!(sign(&world.key, "").await.is_ok(), "whoever names none may have it");
    // A key from a folder is sealed to no policy.
    let own = PrivateKey::generate(KeyType::P256).unwrap();
    front.put_named("folder", vec![("shop".to_owned(), Arc::new(own.clone()) as KeyRef)]);
    assert!(sign(&own, "").await.is_ok());
    let status = sign(&own, "europe").await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert!(status.message().ends_with("it is sealed to none"), "{status}");
    // A client that may not use a key does not learn its policy, nor whether the named policy is the right one.
    front.put_sealed("routed", sealed("mail", Source::Routed(routed), "europe"));
    for policy in ["", "asia", "europe"] {
        assert_eq!(sign(&world.key, policy).await.unwrap_err().code(), Code::NotFound, "{policy}");
    }
    drop(client);
    world.stop().await;
}
