//! Real nodes far from each other and from the control plane, each in its own network. Sites change, join and fail.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use fleet::network::{LinkConditions, Network, Site, alone};
use keyless::native::Client;
use tokio::runtime::Runtime;

use super::House;
use super::key_node::{Node, make_key, signs};
use crate::world::{run, stdout};

const MS: Duration = Duration::from_millis(1);

/// A control plane, and sites with one node each.
struct World {
    network: Network,
    runtime: Runtime,
    core: Site,
    house: House,
}

impl World {
    fn new() -> Self {
        Self::with("")
    }

    /// Uses additional configuration, also for the nodes.
    fn with(more: &str) -> Self {
        let mut network = Network::new().unwrap();
        let core = network.site().unwrap();
        let configuration = format!("[keys]\nmetrics_listen = \"\"\nsocket = \"none\"\n{more}");
        let house = core.within(|| Ok(House::up_at(core.address, &configuration))).unwrap();
        Self { network, runtime: Runtime::new().unwrap(), core, house }
    }

    /// Runs an operator's command, in the network of the control plane.
    fn does(&self, arguments: &[&str]) {
        self.core.within(|| Ok(self.house.does(arguments))).unwrap();
    }

    /// Adds a network with this round trip to the control plane, and a node that joins from it.
    fn node(&mut self, site: &str, name: &str, way: Duration) -> (Site, Node, Client) {
        let network_site = self.network.site().unwrap();
        self.network.set(&self.core, &network_site, LinkConditions::round_trip(way));
        let join = || Ok(Node::join_at(&self.house, &self.runtime, (name, network_site.address), site));
        let (node, client) = network_site.within(join).unwrap();
        (network_site, node, client)
    }

    /// Waits until the client can sign with the key, or no longer can. Returns the time.
    fn until_signs(&self, client: &Client, is_so: bool) -> Duration {
        let began = Instant::now();
        self.house.until(if is_so { "it signs" } else { "it no longer signs" }, || {
            signs(&self.house, &self.runtime, client, "shop").is_ok() == is_so
        });
        began.elapsed()
    }

    /// Signs. After an error it tries once more: a stall of this machine may have closed the connection between the nodes.
    fn signs_in_two_tries(&self, client: &Client) -> Result<(), String> {
        let sign = || signs(&self.house, &self.runtime, client, "shop");
        sign().or_else(|_| sign())
    }

    /// Returns the number of keys that the node opens itself.
    fn own(&self, network_site: &Site, node: &Node) -> Option<f64> {
        self.figure(network_site, node, "bulla_lifecycle_key_node_sealed_keys{how=\"own\"}")
    }

    fn figure(&self, network_site: &Site, node: &Node, name: &str) -> Option<f64> {
        let mut curl = std::process::Command::new("curl");
        curl.args(["-sS", "--max-time", "10", &format!("{}/metrics", node.figures)]);
        let figures = network_site.within(|| Ok(stdout(&run(&mut curl)))).unwrap();
        figures.lines().find_map(|text| text.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    }
}

/// A site starts to match a policy, and stops. Its node opens the keys, and later no longer does, without another seal command. A
/// node that joins receives requests. A failed node receives none.
#[test]
fn sealed_keys_follow_site_attributes_and_node_changes() {
    alone(|| {
        let mut world = World::new();
        world.does(&["site", "create", "frankfurt", "--attribute", "region=EU"]);
        world.does(&["site", "create", "newyork", "--attribute", "region=NA"]);
        let (frankfurt, mut fra, in_frankfurt) = world.node("frankfurt", "fra-1", 20 * MS);
        let (newyork, nyc, in_newyork) = world.node("newyork", "nyc-1", 90 * MS);
        world.network.set(&frankfurt, &newyork, LinkConditions::round_trip(80 * MS));
        make_key(&world.house, "shop");
        world.does(&["key-policy", "create", "europe", "region: EU", "--yes"]);
        let key = world.house.path("shop.key").display().to_string();
        world.does(&["key", "seal", "--policy", "europe", "--key", &key]);
        world.until_signs(&in_frankfurt, true);
        world.until_signs(&in_newyork, true);
        assert_eq!((world.own(&frankfurt, &fra), world.own(&newyork, &nyc)), (Some(1.0), Some(0.0)));

        // Inside the policy's region the node signs itself, without other nodes.
        let began = Instant::now();
        world.does(&["site", "update", "newyork", "--attribute", "region=EU", "--yes"]);
        world.house.until("newyork opens it", || world.own(&newyork, &nyc) == Some(1.0));
        let gained = began.elapsed();
        world.network.set(&frankfurt, &newyork, LinkConditions::hole());
        signs(&world.house, &world.runtime, &in_newyork, "shop").unwrap();

        // Outside the region there is no reachable node that may sign, and signing fails.
        let began = Instant::now();
        world.does(&["site", "update", "newyork", "--attribute", "region=NA", "--yes"]);
        world.until_signs(&in_newyork, false);
        let lost = began.elapsed();
        assert_eq!(world.own(&newyork, &nyc), Some(0.0));
        world.network.set(&frankfurt, &newyork, LinkConditions::round_trip(80 * MS));
        let back = world.until_signs(&in_newyork, true);

        // The site goes dark, so that no shutdown is announced. Then another node joins.
        world.network.set(&frankfurt, &world.core, LinkConditions::hole());
        world.network.set(&frankfurt, &newyork, LinkConditions::hole());
        let dropped = world.until_signs(&in_newyork, false);
        fra.kill();
        let began = Instant::now();
        let (third, second, _) = world.node("frankfurt", "fra-2", 20 * MS);
        let joined = began.elapsed();
        world.network.set(&third, &newyork, LinkConditions::round_trip(80 * MS));
        let usable = world.until_signs(&in_newyork, true);
        assert_eq!(world.own(&third, &second), Some(1.0));
        println!(
            "a site's attributes changed: its node opens the key after {gained:.1?}, and no more {lost:.1?} after they were \
             changed back; a way that was a hole is used again after {back:.1?}; a node whose site went dark is asked no more after {dropped:.1?}; \
             one that joined (in {joined:.1?}) is used from far away after {usable:.1?}"
        );
    });
}

/// Two nodes of one site share one connection to another site. The end of its owner costs the other node no signature.
#[test]
fn nodes_of_a_site_share_one_connection_to_another_site() {
    alone(|| {
        let mut world = World::with("[keys.node]\nshared_from = 0\n");
        world.does(&["site", "create", "frankfurt", "--attribute", "region=EU"]);
        world.does(&["site", "create", "newyork", "--attribute", "region=NA"]);
        let (frankfurt, _fra, _) = world.node("frankfurt", "fra-1", 20 * MS);
        let mut newyork = ["nyc-1", "nyc-2"].map(|name| (name, world.node("newyork", name, 90 * MS)));
        for (_, (network_site, _, _)) in &newyork {
            world.network.set(&frankfurt, network_site, LinkConditions::round_trip(80 * MS));
        }
        make_key(&world.house, "shop");
        world.does(&["key-policy", "create", "europe", "region: EU", "--yes"]);
        let key = world.house.path("shop.key").display().to_string();
        world.does(&["key", "seal", "--policy", "europe", "--key", &key]);
        let figure = |world: &World, at: usize, name: &str| {
            let (_, (network_site, node, _)) = &newyork[at];
            world.figure(network_site, node, name).unwrap_or_default()
        };
        let connections =
            |world: &World, at| figure(world, at, "bulla_keyless_site_connections{site=\"frankfurt\"}");
        for (_, (_, _, client)) in &newyork {
            world.until_signs(client, true);
        }
        // Before the nodes know each other, each opens its own connection. A stall of this machine may change the owner.
        world.house.until("one is left, and the other node's requests go through it", || {
            let owner = usize::from(connections(&world, 0) == 0.0);
            let is_one = connections(&world, 0) + connections(&world, 1) == 1.0;
            newyork.iter().for_each(|(_, (_, _, client))| world.signs_in_two_tries(client).unwrap());
            is_one && figure(&world, owner, "bulla_keyless_relayed_requests_total") >= 1.0
        });
        let owner = usize::from(connections(&world, 0) == 0.0);
        newyork[owner].1.1.kill();
        let began = Instant::now();
        let (name, (_, _, client)) = &newyork[1 - owner];
        world.signs_in_two_tries(client).unwrap();
        println!("{name} signs {:.1?} after the owner's end", began.elapsed());
    });
}

/// Sends requests at one site's node, one after the other, while `meanwhile` runs. Returns their number and the failures.
fn signed_while<T>(world: &World, client: &Client, meanwhile: impl FnOnce() -> T) -> (usize, Vec<String>, T) {
    let (done, is_done) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let load = scope.spawn(move || {
            let (mut count, mut failed) = (0, Vec::new());
            while matches!(is_done.try_recv(), Err(mpsc::TryRecvError::Empty)) {
                count += 1;
                failed.extend(world.signs_in_two_tries(client).err());
            }
            (count, failed)
        });
        let meanwhile = meanwhile();
        drop(done);
        let (count, failed) = load.join().unwrap();
        (count, failed, meanwhile)
    })
}

/// Returns whether the control plane lists the node as present.
fn is_present(world: &World, node: &str) -> bool {
    let shown = world.core.within(|| Ok(world.house.json(&["node", "show", node]))).unwrap();
    shown["present"] == true
}

/// Failure 21: the control plane cannot reach one node or all nodes, while the links between nodes work. No request fails, and a
/// node retired meanwhile gets no more requests.
#[test]
fn node_cut_off_from_the_control_plane_still_signs_for_others() {
    alone(|| {
        let mut world = World::new();
        world.does(&["site", "create", "frankfurt", "--attribute", "region=EU"]);
        world.does(&["site", "create", "newyork", "--attribute", "region=NA"]);
        let (frankfurt, _fra, _) = world.node("frankfurt", "fra-1", 2 * MS);
        let (newyork, _nyc, in_newyork) = world.node("newyork", "nyc-1", 2 * MS);
        world.network.set(&frankfurt, &newyork, LinkConditions::round_trip(10 * MS));
        make_key(&world.house, "shop");
        world.does(&["key-policy", "create", "europe", "region: EU", "--yes"]);
        let key = world.house.path("shop.key").display().to_string();
        world.does(&["key", "seal", "--policy", "europe", "--key", &key]);
        world.until_signs(&in_newyork, true);

        // Cut off the node that holds the key, then the node that requests, then both.
        for cut in [&[&frankfurt][..], &[&newyork], &[&frankfurt, &newyork]] {
            let names: Vec<&str> = ["fra-1", "nyc-1"]
                .into_iter()
                .zip([&frankfurt, &newyork])
                .filter(|(_, site)| cut.iter().any(|cut| cut.address == site.address))
                .map(|(name, _)| name)
                .collect();
            let set = |way| cut.iter().for_each(|site| world.network.set(&world.core, site, way));
            let (count, failed, ()) = signed_while(&world, &in_newyork, || {
                set(LinkConditions::hole());
                world
                    .house
                    .until("they are called gone", || !names.iter().any(|name| is_present(&world, name)));
                // The others learn this from a heartbeat.
                std::thread::sleep(Duration::from_secs(2));
                set(LinkConditions::round_trip(2 * MS));
                world.house.until("they are back", || names.iter().all(|name| is_present(&world, name)));
            });
            println!("row 21: {names:?} cut off from the control plane: {} of {count} failed", failed.len());
            assert!(failed.is_empty(), "{names:?}: {failed:?}");
        }

        // A retired node, unlike an unreachable one, gets no requests.
        world.network.set(&world.core, &frankfurt, LinkConditions::hole());
        world.house.until("it is called gone", || !is_present(&world, "fra-1"));
        signs(&world.house, &world.runtime, &in_newyork, "shop").unwrap();
        world.does(&["node", "retire", "fra-1", "--yes"]);
        world.until_signs(&in_newyork, false);
    });
}
