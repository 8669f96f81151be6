//! Shared network paths: tenants, nodes of one site, and their clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use fleet::network::{LinkConditions, Network, alone};
use futures_util::future::join_all;
use keyless::client::ClientTls;
use keyless::routing::{Member, NodeId, PER_SITE_MAX, Router, RoutingMetrics};
use keyless::server::Options;
use keyless::tenant::TenantOptions;
use keys::{KeyRef, KeyType, PrivateKey, Signer};
use tokio::task::JoinSet;
use tonic::Code;
use x509::GeneralName;

use super::{Load, World, calm};
use crate::certificates::{Authority, CLIENT_AUTH, SERVER_AUTH};
use crate::native::{EC, patient, request};
use crate::peer::{Gated, TIMEOUT, until};

const MS: Duration = Duration::from_millis(1);

fn tenant(name: &str) -> TenantOptions {
    TenantOptions { clients: vec![format!("O={name}")], ..TenantOptions::new(name) }
}

/// Failure 3: a full queue blocks everyone who shares it. One tenant sends 1,600 requests for a key that does not answer, with a
/// limit of 1,000 in flight. Another tenant signs through the same node and connection.
#[test]
fn tenant_at_its_in_flight_limit_does_not_block_another() {
    const MANY: usize = 1_600;
    const MAY: usize = 1_000;
    const QUIET: u32 = 200;
    alone(|| {
        let tenants =
            vec![TenantOptions { in_flight_max: MAY, ..tenant("noisy") }, TenantOptions::new("socket")];
        let world = World::with(&[60], calm(), tenants);
        let before = world.clients.block_on(world.sign_at(QUIET, 5 * MS));
        let (slow, stuck, gates) = world.one_more_key();
        // Several connections, so that the limit per connection is not reached.
        let clients: Vec<_> = (0..4).map(|_| world.client_of("noisy", &world.home.runtime)).collect();
        let mut noise = JoinSet::new();
        for number in 0..MANY {
            let (client, requested) = (clients[number % 4].clone(), request(0, &slow, EC, &[1; 32]));
            noise.spawn_on(
                async move { client.sign(requested, patient()).await },
                world.home.runtime.handle(),
            );
        }
        let node = &world.home.node;
        let figure = |name: &str, labels: &str| node.figure(&format!("bulla_keyless_{name}{{{labels}}}"));
        let during = world.clients.block_on(async {
            for _ in MAY..MANY {
                let status = noise.join_next().await.unwrap().unwrap().unwrap_err();
                assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
            }
            until(|| stuck[0].requested.load(Relaxed) == MAY).await;
            assert_eq!(figure("tenant_requests_in_flight", "tenant=\"noisy\""), MAY as f64);
            assert_eq!(figure("tenant_requests_in_flight_max", "tenant=\"noisy\""), MAY as f64);
            assert_eq!(
                figure("tenant_refusals_total", "tenant=\"noisy\",kind=\"in-flight\""),
                (MANY - MAY) as f64
            );
            assert_eq!(figure("site_requests_in_flight", "site=\"site-2\""), MAY as f64);
            let during = world.sign_at(QUIET, 5 * MS).await;
            assert_eq!(stuck[0].signed.load(Relaxed), 0, "they are still under way");
            gates[0].send_replace(true);
            while let Some(done) = noise.join_next().await {
                done.unwrap().unwrap();
            }
            during
        });
        println!(
            "row 3: {MAY} of one tenant's {MANY} under way, the rest refused; another 60 ms away: {}; before: {}",
            during.shown(),
            before.shown()
        );
        assert_eq!((before.signed, during.signed), (QUIET as usize, QUIET as usize));
        assert_eq!(figure("tenant_refusals_total", "tenant=\"socket\",kind=\"in-flight\""), 0.0);
        drop(clients);
        world.stop();
    });
}

/// Failure 4: one tenant at fifty times its share takes the shares of all others.
#[test]
fn tenant_above_its_rate_limit_does_not_reduce_the_rate_of_another() {
    const SHARE: u32 = 40;
    const TIMES: u32 = 50;
    const SECONDS: u32 = 2;
    // Burst of several seconds, so that a stall of this machine rejects nothing.
    const BURST_S: u32 = 3;
    alone(|| {
        let limited = |name| TenantOptions { rate_per_s: SHARE, burst: SHARE * BURST_S, ..tenant(name) };
        let world = World::with(&[60], calm(), vec![limited("noisy"), limited("quiet")]);
        let key = world.key.clone();
        let at = |name: &str, count: u32, every: Duration| {
            let (client, key) = (world.client_of(name, &world.home.runtime), key.clone());
            async move {
                let began = Instant::now();
                let mut tasks = JoinSet::new();
                for number in 0..count {
                    let due = began + every * number;
                    tokio::time::sleep_until(due.into()).await;
                    let (client, requested) = (client.clone(), request(0, &key, EC, &[1; 32]));
                    tasks.spawn(async move { (client.sign(requested, patient()).await, due.elapsed()) });
                }
                let (mut load, mut refused) = (Load::default(), 0);
                while let Some(done) = tasks.join_next().await {
                    match done.unwrap() {
                        (Ok(_), took) => {
                            load.signed += 1;
                            load.took.push(took);
                        }
                        (Err(status), _) => {
                            assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                            refused += 1;
                        }
                    }
                }
                // Requests admitted late are covered by tokens earned until then.
                (load, refused, began.elapsed())
            }
        };
        let count = SHARE * SECONDS;
        // Nine tenths of the tenant's rate limit.
        let every = Duration::from_secs(1) * 10 / (SHARE * 9);
        let (before, _, _) = world.home.run(at("quiet", count, every));
        let noisy =
            world.home.runtime.spawn(at("noisy", count * TIMES, Duration::from_secs(1) / (SHARE * TIMES)));
        let (quiet, refused_quiet, _) = world.home.run(at("quiet", count, every));
        let (noisy, refused, sending) = world.clients.block_on(noisy).unwrap();
        println!(
            "row 4: quiet {} of {count}, {} (alone: {}); noisy asked {} in {sending:.1?}: {} done, {refused} refused",
            quiet.signed,
            quiet.shown(),
            before.shown(),
            count * TIMES,
            noisy.signed,
        );
        assert!(quiet.signed * 100 >= count as usize * 95, "{refused_quiet} refused");
        let may = f64::from(SHARE) * (sending.as_secs_f64() + f64::from(BURST_S)) + 1.0;
        assert!(noisy.signed as f64 <= may, "{} of at most {may}", noisy.signed);
        world.stop();
    });
}

/// Creates a router that only sends requests and serves none.
fn asker(ca: &Authority, number: u8) -> (Router, Member) {
    let id = NodeId([number; 16]);
    let leaf = ca.leaf_of(
        "CN=node",
        &[GeneralName::Uri(id.uri()), GeneralName::Dns(id.dns())],
        &[CLIENT_AUTH, SERVER_AUTH],
    );
    let shown = ClientTls { certificate: leaf.certified(), server_roots: vec![ca.der.clone()] };
    let router = Router::new(id, &shown, calm(), RoutingMetrics::default()).unwrap();
    let member = Member {
        id,
        name: format!("asker-{number}"),
        site: "askers".to_owned(),
        address: "10.9.1.1:9".to_owned(),
        tls_spki_sha256: leaf.spki_sha256(),
    };
    (router, member)
}

/// Failure 9: few servers carry all traffic to a busy site. Eight nodes request one key of a site of eight nodes.
#[test]
fn requests_to_a_busy_site_are_spread_over_its_nodes() {
    const NODES: usize = 8;
    const EACH: usize = 50;
    alone(|| {
        let ca = Arc::new(Authority::new("nodes"));
        let mut network = Network::new().unwrap();
        let (home, hot) = (network.site().unwrap(), network.site().unwrap());
        network.set(&home, &hot, LinkConditions::round_trip(20 * MS));
        let (home_runtime, hot_runtime) = (home.runtime().unwrap(), hot.runtime().unwrap());
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let (mut nodes, mut gated_keys) = (Vec::new(), Vec::new());
        for number in 0..NODES as u8 {
            let (ca, address) =
                (Arc::clone(&ca), SocketAddr::from((hot.address, super::PORT + u16::from(number))));
            let node = async move {
                let options = Options { deadline: TIMEOUT, ..Options::default() };
                crate::node::Node::new(&ca, 100 + number, address, calm(), options).await
            };
            let mut node = hot_runtime.block_on(hot_runtime.spawn(node)).unwrap();
            node.member.site = "hot".to_owned();
            let (gated, gate) = Gated::of(key.clone());
            gate.send_replace(true);
            node.holds("", vec![gated.clone() as KeyRef]);
            nodes.push(node);
            gated_keys.push((gated, gate));
        }
        let askers: Vec<_> = (0..NODES as u8).map(|number| asker(&ca, number)).collect();
        let members = nodes.iter().map(|node| &node.member).chain(askers.iter().map(|(_, member)| member));
        let members: Vec<Member> = members.cloned().collect();
        let entered = hot_runtime.enter();
        nodes.iter().for_each(|node| node.router.set_members(members.clone()));
        drop(entered);
        let mut sending = JoinSet::new();
        for (router, _) in &askers {
            let _entered = home_runtime.enter();
            router.set_members(members.clone());
            let holders = router.holders(nodes.iter().map(|node| node.member.id).collect());
            let key = router.key(&holders, key.spki()).unwrap();
            let router = router.clone();
            sending.spawn(async move {
                until(|| router.measured().len() == PER_SITE_MAX).await;
                let sign = |_| key.sign_digest(EC, &[1; 32], Instant::now() + TIMEOUT);
                for done in join_all((0..EACH).map(sign)).await {
                    done.unwrap();
                }
            });
        }
        home_runtime.block_on(async {
            while let Some(done) = sending.join_next().await {
                done.unwrap()
            }
        });
        let requested: Vec<usize> =
            gated_keys.iter().map(|(gated_keys, _)| gated_keys.requested.load(Relaxed)).collect();
        println!(
            "row 9: {} requests of {NODES} nodes for one key of a site of {NODES}: {requested:?}",
            NODES * EACH
        );
        assert!(requested.iter().filter(|requested| **requested > 0).count() >= 4, "{requested:?}");
        assert!(requested.iter().all(|requested| *requested <= NODES * EACH / 2), "{requested:?}");
        home_runtime.block_on(join_all(askers.iter().map(|(router, _)| router.stop())));
        for node in nodes {
            hot_runtime.block_on(hot_runtime.spawn(node.stop())).unwrap();
        }
    });
}
