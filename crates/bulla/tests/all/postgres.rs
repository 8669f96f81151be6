//! The same with PostgreSQL.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use fleet::{Latency, Mix, Plan};

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

/// The server goes in the middle of a scan and comes back: the scan waits, and nothing is lost or doubled.
#[test]
fn a_server_that_goes_and_comes_back_costs_nothing() {
    let latency = Latency::CertPulse;
    let plan = Plan { endpoints: 300, mix: Mix::Healthy, dead_fraction: 0.0, latency, ..Plan::default() };
    let world = World::new(&plan);
    let cluster = store::testing::Cluster::start();
    let url = cluster.database().to_string();
    let mut child = world
        .scan(&["@targets.txt", "--in-flight", "16", "--log", "warn", "--db", &url])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    world.wait_for_rows(&["--db", &url]);
    cluster.stop();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("waiting for the database") {
        line.clear();
        assert!(log.read_line(&mut line).unwrap() > 0, "the scan ended without noticing");
    }
    assert!(child.try_wait().unwrap().is_none(), "it waits");
    cluster.resume();
    let mut rest = String::new();
    log.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{rest}");
    world.assert_each_stored_once(&["--db", &url]);
}
