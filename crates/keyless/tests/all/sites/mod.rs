//! Nodes at distant sites. Packets between them are delayed, lost or dropped. Each test reproduces a failure of geographically
//! distributed key services, with its figure. docs/places.md has the table.

mod delays;
mod holes;
mod partitions;
mod pods;
mod sharing;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use fleet::network::{LinkConditions, Network, Site};
use keyless::Source;
use keyless::client::ClientTls;
use keyless::native::Client;
use keyless::routing::{Holders, Member, RouterOptions};
use keyless::server::{Options, TlsOptions};
use keyless::tenant::TenantOptions;
use keys::{KeyRef, KeyType, PrivateKey, Signer};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use x509::GeneralName;

use crate::certificates::{Authority, CLIENT_AUTH, SERVER_AUTH};
use crate::native::{EC, patient, request};
use crate::node::{Node, config};
use crate::peer::{Gated, TIMEOUT};

/// Port on which nodes accept requests from each other.
const PORT: u16 = 2410;

/// Returns options whose timeouts never expire on a slow machine.
fn calm() -> RouterOptions {
    RouterOptions {
        connect_timeout: TIMEOUT,
        ping_timeout: Duration::from_secs(30),
        margin: Duration::from_secs(1),
        reached_within: TIMEOUT,
        ..RouterOptions::default()
    }
}

/// One node at its own site.
struct Fixture {
    site: Site,
    runtime: Runtime,
    node: Node,
}

impl Fixture {
    fn new(
        network: &mut Network,
        ca: &Arc<Authority>,
        number: u8,
        router: RouterOptions,
        options: Options,
    ) -> Self {
        let site = network.site().unwrap();
        let runtime = site.runtime().unwrap();
        let (ca, address) = (Arc::clone(ca), SocketAddr::from((site.address, PORT)));
        let node = async move { Node::new(&ca, number, address, router, options).await };
        let node = runtime.block_on(runtime.spawn(node)).unwrap();
        Self { site, runtime, node }
    }

    /// Runs a future on the runtime of the site.
    fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        self.runtime.block_on(self.runtime.spawn(work)).unwrap()
    }

    fn set_members(&self, members: Vec<Member>) {
        let _entered = self.runtime.enter();
        self.node.router.set_members(members);
    }

    /// Counts the established TCP connections from the site to this address.
    fn connections(&self, to: SocketAddr) -> usize {
        let table = self.site.within(|| std::fs::read_to_string("/proc/thread-self/net/tcp")).unwrap();
        let SocketAddr::V4(to) = to else { panic!("sites have addresses of IPv4") };
        // The kernel's format: the address in native byte order, with 01 for established.
        let remote = format!("{:08X}:{:04X} 01 ", u32::from_le_bytes(to.ip().octets()), to.port());
        table.lines().filter(|line| line.contains(&remote)).count()
    }
}

/// A home site whose node clients use, and other sites at the given round-trip times, whose nodes hold one gated key. All gates are
/// open.
struct World {
    network: Network,
    home: Fixture,
    others: Vec<Fixture>,
    gated_keys: Vec<Arc<Gated>>,
    gates: Vec<watch::Sender<bool>>,
    holders: Arc<Holders>,
    key: PrivateKey,
    ca: Arc<Authority>,
    /// A runtime outside all simulated networks, for clients of Unix sockets.
    clients: Runtime,
}

impl World {
    fn new(round_trips_ms: &[u64]) -> Self {
        Self::with(round_trips_ms, calm(), Vec::new())
    }

    fn with(round_trips_ms: &[u64], router: RouterOptions, tenants: Vec<TenantOptions>) -> Self {
        let world = Self::unconnected(round_trips_ms, router, tenants);
        world.connect();
        world.until_reached(world.others.len());
        world
    }

    fn unconnected(round_trips_ms: &[u64], router: RouterOptions, tenants: Vec<TenantOptions>) -> Self {
        let ca = Arc::new(Authority::new("nodes"));
        let mut network = Network::new().unwrap();
        // TLS clients may connect from any site.
        let any_address = SocketAddr::from(([0, 0, 0, 0], 0));
        let tls = TlsOptions {
            certificate: ca.leaf(&[SERVER_AUTH]).certified(),
            client_roots: vec![ca.der.clone()],
            client_crls: Vec::new(),
        };
        let patient = Options {
            deadline: TIMEOUT,
            hello_timeout: TIMEOUT,
            handshake_timeout: TIMEOUT,
            ..Options::default()
        };
        let options =
            Options { tls: Some((any_address, tls)), native: Some(any_address), tenants, ..patient.clone() };
        let home = Fixture::new(&mut network, &ca, 1, router.clone(), options);
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let (mut others, mut gated_keys, mut gates) = (Vec::new(), Vec::new(), Vec::new());
        for (at, round_trip_ms) in round_trips_ms.iter().enumerate() {
            let fixture = Fixture::new(&mut network, &ca, at as u8 + 2, router.clone(), patient.clone());
            network.set(
                &home.site,
                &fixture.site,
                LinkConditions::round_trip(Duration::from_millis(*round_trip_ms)),
            );
            let (gated, gate) = Gated::of(key.clone());
            gate.send_replace(true);
            fixture.node.holds("", vec![gated.clone()]);
            others.push(fixture);
            gated_keys.push(gated);
            gates.push(gate);
        }
        let entered = home.runtime.enter();
        let holders = home.node.router.holders(others.iter().map(|other| other.node.member.id).collect());
        drop(entered);
        let clients = Runtime::new().unwrap();
        let world = Self { network, home, others, gated_keys, gates, holders, key, ca, clients };
        world.home.node.keys.put_sources("routed", vec![world.routed(&world.key)]);
        world
    }

    /// Returns a key of the other nodes as a source for the home node.
    fn routed(&self, key: &dyn Signer) -> (String, Source) {
        let routed = self.home.node.router.key(&self.holders, key.spki()).unwrap();
        (String::new(), Source::Routed(Arc::new(routed)))
    }

    /// Adds another key to all other nodes, with its own gates.
    fn one_more_key(&self) -> (PrivateKey, Vec<Arc<Gated>>, Vec<watch::Sender<bool>>) {
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let (mut gated_keys, mut gates) = (Vec::new(), Vec::new());
        for (other, first) in self.others.iter().zip(&self.gated_keys) {
            let (gated, gate) = Gated::of(key.clone());
            other.node.holds("", vec![first.clone() as KeyRef, gated.clone()]);
            gated_keys.push(gated);
            gates.push(gate);
        }
        self.home.node.keys.put_sources("routed", vec![self.routed(&self.key), self.routed(&key)]);
        (key, gated_keys, gates)
    }

    fn fixtures(&self) -> impl Iterator<Item = &Fixture> {
        std::iter::once(&self.home).chain(&self.others)
    }

    /// Makes all nodes known to each other.
    fn connect(&self) {
        let members: Vec<Member> = self.fixtures().map(|fixture| fixture.node.member.clone()).collect();
        self.fixtures().for_each(|fixture| fixture.set_members(members.clone()));
    }

    fn until_reached(&self, count: usize) {
        self.clients.block_on(self.home.node.reaches(count));
    }

    /// Sets the network path between the home and another site.
    fn set(&self, other: usize, conditions: LinkConditions) {
        self.network.set(&self.home.site, &self.others[other].site, conditions);
    }

    /// Returns a client that connects over TLS from the site of this runtime to the home node, as this organization.
    fn client_of(&self, organization: &str, from: &Runtime) -> Client {
        let _entered = from.enter();
        let names = [GeneralName::Dns("localhost".to_owned())];
        let leaf = self.ca.leaf_of(&format!("CN=x,O={organization}"), &names, &[CLIENT_AUTH]);
        let shown = ClientTls { certificate: leaf.certified(), server_roots: vec![self.ca.der.clone()] };
        let port = self.home.node.running.native.unwrap().port();
        Client::tls(&format!("{}:{port}", self.home.site.address), "localhost", &config(&shown)).unwrap()
    }

    fn requested(&self) -> Vec<usize> {
        self.gated_keys.iter().map(|gated_keys| gated_keys.requested.load(Relaxed)).collect()
    }

    /// Sends `count` requests for the key over a Unix socket at the home site, one every `every`.
    async fn sign_at(&self, count: u32, every: Duration) -> Load {
        let client = self.home.node.client();
        let mut load = Load::default();
        let mut tasks = JoinSet::new();
        let began = Instant::now();
        for number in 0..count {
            let due = began + every * number;
            tokio::time::sleep_until(due.into()).await;
            let (client, requested) = (client.clone(), request(0, &self.key, EC, &[1; 32]));
            tasks.spawn(async move { (client.sign(requested, patient()).await, due.elapsed()) });
        }
        while let Some(done) = tasks.join_next().await {
            let (signed, took) = done.unwrap();
            load.signed += usize::from(signed.is_ok());
            load.failed.extend(signed.err().map(|status| status.to_string()));
            load.took.push(took);
        }
        load
    }

    fn stop(self) {
        for fixture in std::iter::once(self.home).chain(self.others) {
            fixture.runtime.block_on(fixture.runtime.spawn(fixture.node.stop())).unwrap();
        }
    }
}

/// The outcome of many requests.
#[derive(Default)]
struct Load {
    signed: usize,
    failed: Vec<String>,
    took: Vec<Duration>,
}

impl Load {
    /// Returns the given percentile of the durations.
    fn part(&self, percent: usize) -> Duration {
        let mut sorted = self.took.clone();
        sorted.sort_unstable();
        sorted[(sorted.len() - 1) * percent / 100]
    }

    fn shown(&self) -> String {
        format!("p50 {:.1?}, p99 {:.1?}, longest {:.1?}", self.part(50), self.part(99), self.part(100))
    }
}
