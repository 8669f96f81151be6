//! Failure 22: partial partitions. The node that receives the request cannot reach the node that holds the key, and other nodes
//! reach both.

use std::sync::Arc;
use std::time::Duration;

use fleet::network::{LinkConditions, alone};
use keyless::routing::RouterOptions;
use keyless::server::Options;

use super::{Fixture, World, calm};
use crate::peer::TIMEOUT;

const MS: Duration = Duration::from_millis(1);
/// Number of requests per case.
const COUNT: u32 = 60;

/// A second node of the home site, the node with the key, and a node of a third site.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Link {
    HomeToMate,
    HomeToOther,
    MateToHolder,
    OtherToHolder,
}

use Link::{HomeToMate, HomeToOther, MateToHolder, OtherToHolder};

/// Each set of cut links that leaves a path of two links. The link from the home node to the node with the key is always cut, in
/// addition.
const CASES: [&[Link]; 7] = [
    &[],
    &[HomeToMate],
    &[MateToHolder],
    &[HomeToMate, MateToHolder],
    &[HomeToOther],
    &[OtherToHolder],
    &[HomeToOther, OtherToHolder],
];

struct Partitions {
    world: World,
    mate: Fixture,
    other: Fixture,
}

impl Partitions {
    fn new() -> Self {
        // A shorter stall of this machine closes no path.
        const SILENCE: Duration = Duration::from_secs(5);
        let options =
            RouterOptions { ping_every: 200 * MS, ping_timeout: SILENCE, connect_timeout: SILENCE, ..calm() };
        let mut world = World::unconnected(&[5], options.clone(), Vec::new());
        let served = Options { deadline: TIMEOUT, ..Options::default() };
        let ca = Arc::clone(&world.ca);
        let mut fixture =
            |number| Fixture::new(&mut world.network, &ca, number, options.clone(), served.clone());
        let (mut mate, other) = (fixture(101), fixture(102));
        mate.node.member.site.clone_from(&world.home.node.member.site);
        let all = Self { world, mate, other };
        let members: Vec<_> = all.fixtures().map(|fixture| fixture.node.member.clone()).collect();
        all.fixtures().for_each(|fixture| fixture.set_members(members.clone()));
        all.world.until_reached(1);
        all
    }

    fn fixtures(&self) -> impl Iterator<Item = &Fixture> {
        self.world.fixtures().chain([&self.mate, &self.other])
    }

    fn set(&self, link: Link, conditions: LinkConditions) {
        let (home, holder) = (&self.world.home.site, &self.world.others[0].site);
        let (one, two) = match link {
            HomeToMate => (home, &self.mate.site),
            HomeToOther => (home, &self.other.site),
            MateToHolder => (&self.mate.site, holder),
            OtherToHolder => (&self.other.site, holder),
        };
        self.world.network.set(one, two, conditions);
    }

    fn sign(&self, what: &str) -> usize {
        let load = self.world.clients.block_on(self.world.sign_at(COUNT, 20 * MS));
        assert_eq!((load.signed, load.failed.first()), (COUNT as usize, None), "{what}");
        load.signed
    }
}

/// Packets are dropped silently. Requests are sent while the links are cut and while they recover.
#[test]
fn requests_succeed_while_a_two_hop_path_exists() {
    alone(|| {
        let all = Partitions::new();
        for cut in CASES {
            cut.iter().for_each(|link| all.set(*link, LinkConditions::hole()));
            all.world.set(0, LinkConditions::hole());
            let apart = all.sign(&format!("{cut:?} is cut"));
            cut.iter().for_each(|link| all.set(*link, LinkConditions::default()));
            all.world.set(0, LinkConditions::round_trip(5 * MS));
            let back = all.sign(&format!("{cut:?} is back"));
            let passed_on = |fixture: &Fixture| fixture.node.figure("bulla_keyless_relayed_requests_total");
            println!(
                "row 22: the way to the key cut, and {cut:?}: {apart} of {COUNT} signed, {back} once it was back; passed on by the \
                 mate {}, by the third site {}",
                passed_on(&all.mate),
                passed_on(&all.other)
            );
        }
        let Partitions { world, mate, other } = all;
        world.stop();
        for fixture in [mate, other] {
            fixture.runtime.block_on(fixture.runtime.spawn(fixture.node.stop())).unwrap();
        }
    });
}
