//! Nodes of one site that share their connections to other sites.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use fleet::network::{LinkConditions, Network, Site, alone};
use futures_util::future::join_all;
use keyless::Source;
use keyless::native::Client;
use keyless::native::proto::SignRequest;
use keyless::routing::{Holders, Member, NodeId, RouterOptions};
use keyless::server::Options;
use keys::{KeyRef, KeyType, PrivateKey, Signer};
use tokio::sync::watch;

use super::{Fixture, calm};
use crate::certificates::Authority;
use crate::native::{EC, patient, request};
use crate::node::Node;
use crate::peer::{Gated, TIMEOUT};

const MS: Duration = Duration::from_millis(1);

/// Nodes of the site `pod`, which share all connections that they can.
struct Pod {
    network: Network,
    ca: Arc<Authority>,
    nodes: Vec<Fixture>,
    holders: Vec<Vec<Arc<Holders>>>,
}

impl Pod {
    fn new(count: u8, router: &RouterOptions) -> Self {
        let (ca, mut network) = (Arc::new(Authority::new("nodes")), Network::new().unwrap());
        let options = Options {
            deadline: TIMEOUT,
            hello_timeout: TIMEOUT,
            handshake_timeout: TIMEOUT,
            ..Options::default()
        };
        let node = |number| {
            let mut fixture = Fixture::new(&mut network, &ca, number + 1, router.clone(), options.clone());
            fixture.node.member.site = "pod".to_owned();
            fixture
        };
        let nodes = (0..count).map(node).collect();
        Self { network, ca, nodes, holders: Vec::new() }
    }

    fn members(&self) -> Vec<Member> {
        self.nodes.iter().map(|fixture| fixture.node.member.clone()).collect()
    }

    /// Makes all nodes of the pod known to each other and to these nodes. Each of these holds keys of some of the policies.
    fn knows(&mut self, others: &[Member], policies: &[Vec<NodeId>]) {
        let members: Vec<Member> = self.members().into_iter().chain(others.to_vec()).collect();
        let begin = |fixture: &Fixture| {
            fixture.set_members(members.clone());
            let _entered = fixture.runtime.enter();
            policies.iter().map(|nodes| fixture.node.router.holders(nodes.clone())).collect()
        };
        self.holders = self.nodes.iter().map(begin).collect();
    }

    /// Returns, for each node, the ports at this address that it is connected to.
    fn connected(&self, to: Ipv4Addr) -> Vec<BTreeSet<u16>> {
        self.nodes.iter().map(|fixture| ports(&fixture.site, to)).collect()
    }

    fn stop(self) {
        self.nodes.into_iter().for_each(stop);
    }
}

fn stop(fixture: Fixture) {
    fixture.runtime.block_on(fixture.runtime.spawn(fixture.node.stop())).unwrap();
}

/// Returns the ports at this address that the site has connections to.
fn ports(site: &Site, to: Ipv4Addr) -> BTreeSet<u16> {
    let table = site.within(|| std::fs::read_to_string("/proc/thread-self/net/tcp")).unwrap();
    let address = format!("{:08X}:", u32::from_le_bytes(to.octets()));
    let established = table.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().skip(2);
        let (remote, state) = (fields.next()?, fields.next()?);
        let port = remote.strip_prefix(&address).filter(|_| state == "01")?;
        u16::from_str_radix(port, 16).ok()
    });
    established.collect()
}

fn until(what: &str, mut so: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < TIMEOUT, "{what}");
        std::thread::sleep(100 * MS);
    }
    began.elapsed()
}

/// Failure 8: a connection of every server to every site. Ten nodes of one site know fifty-one destinations, each through many of
/// ten policies. Then one node fails.
#[test]
fn pod_members_share_connections_and_rebalance_after_a_loss() {
    const NODES: usize = 10;
    const DESTINATIONS: usize = 51;
    const POLICIES: usize = 10;
    const PART: usize = DESTINATIONS.div_ceil(NODES);
    // The limit stays the same after the loss of one node.
    const _: () = assert!(PART == DESTINATIONS.div_ceil(NODES - 1));
    alone(|| {
        let router = RouterOptions { shared_from: 0, ..calm() };
        let mut pod = Pod::new(NODES as u8, &router);
        let far = pod.network.site().unwrap();
        let far_runtime = far.runtime().unwrap();
        let begin = |number: usize| {
            let (ca, address) =
                (Arc::clone(&pod.ca), SocketAddr::from((far.address, 10_000 + number as u16)));
            let options = Options {
                processors: 1,
                hello_timeout: TIMEOUT,
                handshake_timeout: TIMEOUT,
                ..Options::default()
            };
            let node =
                async move { Node::new(&ca, (NODES + 1 + number) as u8, address, calm(), options).await };
            far_runtime.block_on(far_runtime.spawn(node)).unwrap()
        };
        let far_nodes: Vec<Node> = (0..DESTINATIONS).map(begin).collect();
        let destinations: Vec<Member> = far_nodes.iter().map(|node| node.member.clone()).collect();
        let id = |number: usize| destinations[number].id;
        // Each policy covers two thirds of the destinations, and all policies together cover every destination.
        let at = |policy: usize| (0..DESTINATIONS).filter(move |number| number % 3 != policy % 3);
        let policies: Vec<Vec<NodeId>> = (0..POLICIES).map(|policy| at(policy).map(id).collect()).collect();
        pod.knows(&destinations, &policies);
        let members: Vec<Member> = pod.members().into_iter().chain(destinations.clone()).collect();
        {
            let _entered = far_runtime.enter();
            far_nodes.iter().for_each(|node| node.router.set_members(members.clone()));
        }
        let all = |connected: &[BTreeSet<u16>]| connected.iter().flatten().collect::<BTreeSet<_>>().len();
        let is_shared = |pod: &Pod| {
            let connected = pod.connected(far.address);
            all(&connected) == DESTINATIONS && connected.iter().all(|ports| ports.len() <= PART)
        };
        let began = until("each has its part", || is_shared(&pod));
        let most = pod.connected(far.address).iter().map(BTreeSet::len).max().unwrap();
        let dead = pod.nodes.pop().unwrap();
        let its = ports(&dead.site, far.address).len();
        // The node stops without announcing it. The other nodes notice when their connections close.
        dead.runtime.block_on(dead.runtime.spawn(dead.node.stop())).unwrap();
        let moved = until("its part has moved", || all(&pod.connected(far.address)) == DESTINATIONS);
        let spill = pod.connected(far.address).iter().map(BTreeSet::len).max().unwrap();
        until("each has its part again", || is_shared(&pod));
        println!(
            "row 8: {NODES} nodes, {DESTINATIONS} destinations, {POLICIES} policies: {most} connections a node at most ({began:.1?}); \
             one died: its {its} moved in {moved:.1?}, {spill} at most meanwhile"
        );
        pod.stop();
        far_runtime.block_on(join_all(far_nodes.into_iter().map(Node::stop)));
    });
}

/// A pod, and other sites of one node each, at the given round-trip times, that hold one key. Connections are shared from the first
/// one on.
struct World {
    pod: Pod,
    others: Vec<Fixture>,
    gated_keys: Vec<Arc<Gated>>,
    gates: Vec<watch::Sender<bool>>,
    key: PrivateKey,
}

impl World {
    fn new(nodes: u8, round_trips_ms: &[u64], owner_rate: u32) -> Self {
        Self::with(nodes, round_trips_ms, RouterOptions { owner_rate, ..calm() })
    }

    fn with(nodes: u8, round_trips_ms: &[u64], router: RouterOptions) -> Self {
        let router = RouterOptions { shared_from: 0, ..router };
        let mut pod = Pod::new(nodes, &router);
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let options = Options {
            deadline: TIMEOUT,
            hello_timeout: TIMEOUT,
            handshake_timeout: TIMEOUT,
            ..Options::default()
        };
        let (mut others, mut gated_keys, mut gates) = (Vec::new(), Vec::new(), Vec::new());
        for (at, round_trip_ms) in round_trips_ms.iter().enumerate() {
            let fixture = Fixture::new(&mut pod.network, &pod.ca, 100 + at as u8, calm(), options.clone());
            for node in &pod.nodes {
                let conditions = LinkConditions::round_trip(Duration::from_millis(*round_trip_ms));
                pod.network.set(&node.site, &fixture.site, conditions);
            }
            let (gated, gate) = Gated::of(key.clone());
            gate.send_replace(true);
            fixture.node.holds("", vec![gated.clone() as KeyRef]);
            others.push(fixture);
            gated_keys.push(gated);
            gates.push(gate);
        }
        let far: Vec<Member> = others.iter().map(|fixture| fixture.node.member.clone()).collect();
        pod.knows(&far, &[far.iter().map(|member| member.id).collect()]);
        let members: Vec<Member> = pod.members().into_iter().chain(far).collect();
        others.iter().for_each(|fixture| fixture.set_members(members.clone()));
        for (fixture, holders) in pod.nodes.iter().zip(&pod.holders) {
            let routed = fixture.node.router.key(&holders[0], key.spki()).unwrap();
            fixture.node.keys.put_sources("routed", vec![(String::new(), Source::Routed(Arc::new(routed)))]);
        }
        let world = Self { pod, others, gated_keys, gates, key };
        world.until_reached(round_trips_ms.len());
        world
    }

    /// Waits until each node of the pod reaches this number of other nodes.
    fn until_reached(&self, count: usize) {
        let far: BTreeSet<NodeId> = self.others.iter().map(|fixture| fixture.node.member.id).collect();
        until("they are reached", || {
            self.pod.nodes.iter().all(|fixture| {
                let measured = fixture.node.router.measured();
                measured.iter().filter(|(node, _)| far.contains(node)).count() == count
            })
        });
    }

    /// Returns the pod's nodes with a connection to this other node.
    fn owners(&self, other: usize) -> Vec<usize> {
        let connected = self.pod.connected(self.others[other].site.address);
        (0..connected.len()).filter(|at| !connected[*at].is_empty()).collect()
    }

    /// Signs once through this node of the pod.
    fn sign(&self, node: usize) -> impl Future<Output = bool> + Send + use<> {
        let fixture = &self.pod.nodes[node];
        let _entered = fixture.runtime.enter();
        let (client, requested) = (fixture.node.client(), request(0, &self.key, EC, &[1; 32]));
        async move {
            let signed = client.sign(requested, patient()).await;
            signed.map_err(|status| println!("{status}")).is_ok()
        }
    }

    fn requested(&self) -> usize {
        self.gated_keys.iter().map(|gated_keys| gated_keys.requested.load(Relaxed)).sum()
    }

    fn stop(self) {
        self.pod.stop();
        self.others.into_iter().for_each(stop);
    }
}

/// All nodes of the pod use one node's connection. When that node fails, no request is lost.
#[test]
fn pod_shares_one_connection_and_survives_the_loss_of_its_owner() {
    const MANY: usize = 200;
    alone(|| {
        let mut world = World::new(4, &[40], u32::MAX);
        let owners = world.owners(0);
        assert_eq!(owners.len(), 1, "{owners:?}");
        let callers = world.pod.nodes[0].runtime.handle().clone();
        let each =
            |world: &World| (0..world.pod.nodes.len()).map(|node| world.sign(node)).collect::<Vec<_>>();
        let signed = callers.block_on(join_all(each(&world)));
        assert_eq!(signed, [true; 4]);
        assert_eq!(world.requested(), 4, "each once");
        let relayed = |world: &World, node: usize| {
            world.pod.nodes[node].node.figure("bulla_keyless_relayed_requests_total")
        };
        assert_eq!(relayed(&world, owners[0]), 3.0);
        // Requests in flight when the owner fails are retried through another connection.
        let other = (owners[0] + 1) % 4;
        world.gates[0].send_replace(false);
        let runtime = world.pod.nodes[other].runtime.handle().clone();
        let under_way: Vec<_> = (0..MANY).map(|_| runtime.spawn(world.sign(other))).collect();
        until("they are there", || world.requested() == 4 + MANY);
        let dead = world.pod.nodes.remove(owners[0]);
        let began = Instant::now();
        dead.runtime.shutdown_background();
        drop(dead.node);
        // Nodes without requests in flight wait for the next owner, too.
        let fresh: Vec<_> = (0..3).map(|node| runtime.spawn(world.sign(node))).collect();
        until("another owns it", || world.owners(0).len() == 1);
        world.gates[0].send_replace(true);
        let signed = runtime.block_on(join_all(under_way));
        assert!(signed.into_iter().all(|signed| signed.unwrap()));
        assert!(runtime.block_on(join_all(fresh)).into_iter().all(|signed| signed.unwrap()));
        println!("an owner died with {MANY} under way: all signed after {:.1?}", began.elapsed());
        world.stop();
    });
}

/// A client cannot reach another node through a node. A node can, from any site.
#[test]
fn requests_are_relayed_for_nodes_only() {
    alone(|| {
        let world = World::new(2, &[1], u32::MAX);
        let owner = world.owners(0)[0];
        let (owner, far) = (&world.pod.nodes[owner], &world.others[0]);
        let node = far.node.member.id.0.to_vec();
        let named = SignRequest { node, ..request(0, &world.key, EC, &[1; 32]) };
        // A client of the node's own socket, and a node of another site.
        let path = owner.node.folder.path().join("native.sock");
        let copy = named.clone();
        let status = owner.run(async move { Client::socket(path).sign(named, patient()).await }).unwrap_err();
        assert_eq!(status.code(), tonic::Code::NotFound, "{status}");
        let (shown, member) = (far.node.shown.clone(), owner.node.member.clone());
        assert_eq!(world.requested(), 0);
        let signed = far.run(async move {
            let tls = crate::node::config(&shown);
            let client = Client::pinned(&member.address, &member.id.dns(), &tls, member.tls_spki_sha256);
            client.unwrap().sign(copy, patient()).await
        });
        assert!(signed.is_ok(), "{signed:?}");
        assert_eq!(world.requested(), 1);
        world.stop();
    });
}

/// Failure 9: few servers carry all traffic to one site. Eight nodes request one key of one node, at a rate above the limit of one
/// owner.
#[test]
fn busy_destination_is_reached_through_several_owners() {
    const NODES: usize = 8;
    const OWNERS: usize = 4;
    alone(|| {
        // One owner may carry ten requests per second. Even a slow machine sends several times as many.
        let world = World::new(NODES as u8, &[20], 10);
        let alone = world.owners(0).len();
        let second = || {
            let node = |node: usize| {
                let signing: Vec<_> = (0..50).map(|_| world.sign(node)).collect();
                world.pod.nodes[node].runtime.spawn(async move {
                    let began = Instant::now();
                    let mut tasks = tokio::task::JoinSet::new();
                    for (number, signing) in signing.into_iter().enumerate() {
                        tokio::time::sleep_until((began + 20 * MS * number as u32).into()).await;
                        tasks.spawn(signing);
                    }
                    tasks.join_all().await.into_iter().all(|signed| signed)
                })
            };
            let callers: Vec<_> = (0..NODES).map(node).collect();
            let signed = world.pod.nodes[0].runtime.block_on(join_all(callers));
            assert!(signed.into_iter().all(|signed| signed.unwrap()));
        };
        // Requests carried by each node's own connection: all its requests, minus those relayed through other nodes.
        let carried = |fixture: &Fixture| {
            let requested =
                fixture.node.figure("bulla_keyless_site_request_duration_seconds_count{site=\"site-100\"}");
            requested - fixture.node.figure("bulla_keyless_site_relayed_requests_total{site=\"site-100\"}")
        };
        let all = || world.pod.nodes.iter().map(carried).collect::<Vec<_>>();
        until("more own it", || {
            second();
            world.owners(0).len() >= OWNERS
        });
        let before = all();
        second();
        second();
        let shares: Vec<f64> = all().iter().zip(&before).map(|(now, before)| now - before).collect();
        println!(
            "row 9: {NODES} nodes ask one: owners {alone} → {}, of 800 they carry {shares:?}",
            world.owners(0).len()
        );
        assert!(shares.iter().filter(|share| **share > 0.0).count() >= OWNERS, "{shares:?}");
        assert_eq!(shares.iter().sum::<f64>(), (2 * NODES * 50) as f64, "each by one connection");
        world.stop();
    });
}

/// If the owner of a destination cannot reach it, another node takes over.
#[test]
fn destination_unreachable_from_its_owner_is_reached_through_another() {
    alone(|| {
        let impatient = RouterOptions {
            connect_timeout: Duration::from_secs(1),
            ping_timeout: Duration::from_secs(2),
            reached_within: Duration::from_secs(1),
            owner_rate: u32::MAX,
            ..calm()
        };
        let world = World::with(4, &[5], impatient);
        until("one owns it", || world.owners(0).len() == 1);
        let owners = world.owners(0);
        for owner in &owners {
            world.pod.network.set(
                &world.pod.nodes[*owner].site,
                &world.others[0].site,
                LinkConditions::hole(),
            );
        }
        until("another owns it, too", || world.owners(0).iter().any(|at| !owners.contains(at)));
        let lost = |owner: &usize| {
            let node = &world.pod.nodes[*owner].node;
            node.figure("bulla_keyless_site_connections{site=\"site-100\"}") == 0.0
        };
        until("it is known to be lost", || owners.iter().all(lost));
        world.until_reached(1);
        let runtime = world.pod.nodes[owners[0]].runtime.handle().clone();
        assert!(runtime.block_on(world.sign(owners[0])), "by another's connection");
        world.stop();
    });
}
