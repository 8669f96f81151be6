//! Sites that fail, join, or never existed, and lossy networks.

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use fleet::network::{LinkConditions, alone};
use keyless::routing::RouterOptions;

use super::{World, calm};
use crate::peer::TIMEOUT;

const MS: Duration = Duration::from_millis(1);

/// Failure 10: dead sites, each of which delays requests until its connection attempt times out.
#[test]
fn black_holed_sites_do_not_delay_requests() {
    const SITES: usize = 10;
    const HOLES: usize = 3;
    const COUNT: u32 = 400;
    alone(|| {
        let world = World::unconnected(&[20; SITES], calm(), Vec::new());
        for hole in 0..HOLES {
            world.set(hole, LinkConditions::hole());
        }
        world.connect();
        world.until_reached(SITES - HOLES);
        let load = world.clients.block_on(world.sign_at(COUNT, 5 * MS));
        println!(
            "row 10: {HOLES} of {SITES} sites are holes: {} of {COUNT} signed, {}",
            load.signed,
            load.shown()
        );
        assert_eq!(load.signed, COUNT as usize);
        // A request that waited for such a connection would wait for its timeout. The network takes a hundredth of a second.
        assert!(load.part(50) < TIMEOUT / 3, "they wait for connections");
        assert_eq!(world.requested()[..HOLES], [0; HOLES]);
        // Connections to each were attempted all the time.
        let site = &world.others[0].site;
        let (_, lost) = world.network.packets(&world.home.site, site);
        assert!(lost > 0);
        world.stop();
    });
}

/// Failure 12: retries that multiply the load. The nearest site fails under load. No request is lost, and the other sites receive
/// at most a tenth more requests in addition to its load, plus the burst of ten, and the requests that were lost with a connection.
#[test]
fn losing_the_nearest_site_adds_little_load_to_the_others() {
    const COUNT: u32 = 1_000;
    alone(|| {
        // Longer than by default: a stall of this machine loses no connection of the other sites.
        let router = RouterOptions {
            connect_timeout: TIMEOUT,
            ping_timeout: Duration::from_secs(10),
            ..RouterOptions::default()
        };
        let world = World::with(&[10, 40, 80], router, Vec::new());
        let (load, at) = world.clients.block_on(async {
            let dark = async {
                let mut at = 0;
                while at < COUNT as usize / 3 {
                    tokio::time::sleep(5 * MS).await;
                    at = world.requested().iter().sum();
                }
                world.set(0, LinkConditions::hole());
                at
            };
            tokio::join!(world.sign_at(COUNT, 4 * MS), dark)
        });
        let requested = world.requested();
        let all: usize = requested.iter().sum();
        let of =
            |kind| world.home.node.figure(&format!("bulla_keyless_second_tries_total{{kind=\"{kind}\"}}"));
        let lost_at =
            |site| format!("bulla_keyless_site_errors_total{{site=\"site-{site}\",error=\"lost\"}}");
        let lost: f64 = (2..=4).map(|site| world.home.node.figure(&lost_at(site))).sum();
        println!(
            "row 12: the nearest dark after {at} of {COUNT}: {} signed, {}; asked {requested:?}; lost {lost}, retried {}, hedged {}, \
             out of budget {}",
            load.signed,
            load.shown(),
            of("retried"),
            of("hedged"),
            of("out-of-budget")
        );
        assert_eq!(load.signed, COUNT as usize, "nothing was lost");
        assert!(all <= COUNT as usize * 11 / 10 + 10 + lost as usize, "{requested:?}, lost {lost}");
        assert!(requested[1] > 0, "the next nearest is asked: {requested:?}");
        world.stop();
    });
}

/// Failure 11: new sites that cannot be used. A nearer site joins under load and receives requests.
#[test]
fn site_that_joins_under_load_is_used_without_errors() {
    const COUNT: u32 = 1_000;
    const MORE: u32 = 100;
    alone(|| {
        let world = World::unconnected(&[5, 80], calm(), Vec::new());
        let without: Vec<_> =
            [&world.home, &world.others[1]].map(|fixture| fixture.node.member.clone()).into();
        world.fixtures().for_each(|fixture| fixture.set_members(without.clone()));
        world.until_reached(1);
        let has_come = Cell::new(false);
        let (load, after) = world.clients.block_on(async {
            let comes = async {
                tokio::time::sleep(500 * MS).await;
                let began = Instant::now();
                world.connect();
                while world.requested()[0] == 0 {
                    assert!(began.elapsed() < TIMEOUT, "it is not asked");
                    tokio::time::sleep(5 * MS).await;
                }
                has_come.set(true);
                began.elapsed()
            };
            let load = async {
                let load = world.sign_at(COUNT, 3 * MS).await;
                // On a busy machine the site may connect after these requests.
                while !has_come.get() {
                    assert_eq!(world.sign_at(MORE, 3 * MS).await.signed, MORE as usize);
                }
                load
            };
            tokio::join!(load, comes)
        });
        println!(
            "row 11: a site 5 ms away came: asked after {after:.1?}; {} of {COUNT} signed, {}",
            load.signed,
            load.shown()
        );
        assert_eq!(load.signed, COUNT as usize);
        world.stop();
    });
}

/// 5 % packet loss costs time, but no signature.
#[test]
fn packet_loss_delays_but_fails_no_signature() {
    const COUNT: u32 = 400;
    alone(|| {
        let world = World::new(&[40]);
        let clean = world.clients.block_on(world.sign_at(COUNT, 5 * MS));
        world.set(0, LinkConditions { lost_of_1000: 50, ..LinkConditions::round_trip(40 * MS) });
        let lossy = world.clients.block_on(world.sign_at(COUNT, 5 * MS));
        let (packets, lost) = world.network.packets(&world.home.site, &world.others[0].site);
        println!(
            "losses: 40 ms away: {}; with 5 % lost ({lost} of {packets} packets): {}",
            clean.shown(),
            lossy.shown()
        );
        assert_eq!((clean.signed, lossy.signed), (COUNT as usize, COUNT as usize));
        assert_eq!(world.gated_keys[0].signed.load(Relaxed), 2 * COUNT as usize, "each once");
        assert!(lost > 0);
        world.stop();
    });
}
