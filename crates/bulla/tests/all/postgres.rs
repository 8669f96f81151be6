//! The same with PostgreSQL.

use crate::world::{World, describe, run, stdout};

#[test]
fn a_server_takes_the_place_of_the_file() {
    let world = World::healthy();
    let cluster = store::testing::Cluster::start();
    let url = cluster.database().to_string();
    let output = run(&mut world.scan(&["@targets.txt", "--db", &url]));
    assert!(output.status.success(), "{}", describe(&output));
    let listed = world.inventory(&["--db", &url, "list", "--all"]);
    assert_eq!(listed["rows"].as_array().unwrap().len(), world.targets().len());
    let again = run(&mut world.scan(&["--again", "--db", &url]));
    assert!(again.status.success() && stdout(&again).contains("0 new certificates"), "{}", describe(&again));
    assert!(!world.path("data").exists(), "nothing beside it");
}
