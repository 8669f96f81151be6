//! Sites that go, come, or never were, and ways that lose.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use fleet::network::{Way, alone};
use keyless::routing::RouterOptions;

use super::{World, calm};
use crate::peer::PATIENCE;

const MS: Duration = Duration::from_millis(1);

/// Failure 10: names of sites that are dead, each of which costs a request the time of a connection that is not made.
#[test]
fn a_third_of_the_sites_black_holed_costs_nobody_a_wait() {
    const SITES: usize = 10;
    const HOLES: usize = 3;
    const COUNT: u32 = 400;
    alone(|| {
        let world = World::unconnected(&[20; SITES], calm(), Vec::new());
        for hole in 0..HOLES {
            world.set(hole, Way::hole());
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
        // Who waits for one that is not made waits for five seconds; what the way takes is a hundredth of a second.
        assert!(load.part(50) < Duration::from_secs(1), "they wait for connections");
        assert_eq!(world.asked()[..HOLES], [0; HOLES]);
        // Each was tried all the time.
        let site = &world.others[0].site;
        let (_, lost) = world.network.packets(&world.home.site, site);
        assert!(lost > 0);
        world.stop();
    });
}

/// Failure 12: retries that multiply the load. The nearest site goes dark under load: nothing is lost, and beside what it does no more
/// the others are asked for a tenth of all, with the ten at once that may always be.
#[test]
fn the_nearest_site_goes_dark_and_the_others_have_little_more_to_do() {
    const COUNT: u32 = 1_000;
    alone(|| {
        // As a service has it, so that the silence is noticed as it is there.
        let world = World::with(
            &[10, 40, 80],
            RouterOptions { connect_timeout: PATIENCE, ..RouterOptions::default() },
            Vec::new(),
        );
        let (load, at) = world.clients.block_on(async {
            let dark = async {
                let mut at = 0;
                while at < COUNT as usize / 3 {
                    tokio::time::sleep(5 * MS).await;
                    at = world.asked().iter().sum();
                }
                world.set(0, Way::hole());
                at
            };
            tokio::join!(world.sign_at(COUNT, 4 * MS), dark)
        });
        let asked = world.asked();
        let all: usize = asked.iter().sum();
        let of =
            |kind| world.home.node.figure(&format!("bulla_keyless_second_tries_total{{kind=\"{kind}\"}}"));
        println!(
            "row 12: the nearest dark after {at} of {COUNT}: {} signed, {}; asked {asked:?}; retried {}, hedged {}, out of budget {}",
            load.signed,
            load.shown(),
            of("retried"),
            of("hedged"),
            of("out-of-budget")
        );
        assert_eq!(load.signed, COUNT as usize, "nothing was lost");
        assert!(all <= COUNT as usize * 11 / 10 + 10, "{asked:?}");
        // From the moment that nobody waits for it any more all go to the next.
        assert!(asked[1] > COUNT as usize / 3, "{asked:?}");
        world.stop();
    });
}

/// Failure 11: sites that come and cannot be used. One comes under load, nearer than the others, and is asked.
#[test]
fn a_site_that_comes_under_load_is_asked_and_costs_no_error() {
    const COUNT: u32 = 1_000;
    alone(|| {
        let world = World::unconnected(&[5, 80], calm(), Vec::new());
        let without: Vec<_> = [&world.home, &world.others[1]].map(|place| place.node.member.clone()).into();
        world.places().for_each(|place| place.set_members(without.clone()));
        world.until_reached(1);
        let (load, after) = world.clients.block_on(async {
            let comes = async {
                tokio::time::sleep(500 * MS).await;
                let began = Instant::now();
                world.connect();
                while world.asked()[0] == 0 {
                    assert!(began.elapsed() < PATIENCE, "it is not asked");
                    tokio::time::sleep(5 * MS).await;
                }
                began.elapsed()
            };
            tokio::join!(world.sign_at(COUNT, 3 * MS), comes)
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

/// A way that loses one packet of twenty costs time on it, and no signature.
#[test]
fn losses_cost_time_and_no_signature() {
    const COUNT: u32 = 400;
    alone(|| {
        let world = World::new(&[40]);
        let clean = world.clients.block_on(world.sign_at(COUNT, 5 * MS));
        world.set(0, Way { lost_of_1000: 50, ..Way::round_trip(40 * MS) });
        let lossy = world.clients.block_on(world.sign_at(COUNT, 5 * MS));
        let (packets, lost) = world.network.packets(&world.home.site, &world.others[0].site);
        println!(
            "losses: 40 ms away: {}; with 5 % lost ({lost} of {packets} packets): {}",
            clean.shown(),
            lossy.shown()
        );
        assert_eq!((clean.signed, lossy.signed), (COUNT as usize, COUNT as usize));
        assert_eq!(world.held[0].signed.load(Relaxed), 2 * COUNT as usize, "each once");
        assert!(lost > 0);
        world.stop();
    });
}
