//! The same tests with PostgreSQL.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use fleet::{Latency, Mix, Plan};

use crate::world::{World, bulla, describe, run, stderr, stdout};

#[test]
fn postgresql_replaces_the_inventory_file() {
    let world = World::healthy();
    let cluster = store::testing::Cluster::start();
    let url = cluster.database().to_string();
    let output = run(&mut world.scan(&["@targets.txt", "--db", &url]));
    assert!(output.status.success(), "{}", describe(&output));
    let listed = world.inventory(&["--db", &url, "list", "--all"]);
    assert_eq!(listed["rows"].as_array().unwrap().len(), world.targets().len());
    let repeated = run(&mut world.scan(&["--again", "--db", &url]));
    assert!(
        repeated.status.success() && stdout(&repeated).contains("0 new certificates"),
        "{}",
        describe(&repeated)
    );
    let files = std::fs::read_dir(world.path("data")).map_or(0, Iterator::count);
    assert_eq!(files, 0, "nothing beside it");
}

/// A connection limit above the server's maximum is rejected at startup and by `config check`, and not first noticed under load.
#[test]
fn more_connections_than_postgresql_allows_are_rejected() {
    let cluster = store::testing::Cluster::start();
    let url = cluster.database().to_string();
    let with = |connections: &str, arguments: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        run(bulla()
            .args(arguments)
            .env("BULLA_DATA", folder.path())
            .env("BULLA_STORE_URL", &url)
            .env("BULLA_STORE_CONNECTIONS", connections))
    };
    for arguments in [&["config", "check"][..], &["inventory", "list"], &["serve"]] {
        let refused = with("1000", arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {}", describe(&refused));
        let message = stderr(&refused);
        assert!(message.contains("opens 1000 database connections, but the server allows "), "{message}");
        assert!(message.contains("lower store.connections, or raise max_connections"), "{message}");
    }
    let fits = with("5", &["config", "check"]);
    assert!(fits.status.success(), "{}", describe(&fits));
    assert!(stdout(&fits).contains("store.connections: 5 of the "), "{}", stdout(&fits));
    assert!(with("5", &["inventory", "list"]).status.success());
    // An unreachable server is no configuration error.
    cluster.stop();
    let offline = with("5", &["config", "check"]);
    assert!(
        offline.status.success() && stdout(&offline).contains("cannot read the connection limit"),
        "{}",
        describe(&offline)
    );
    cluster.resume();
}

/// The server stops in the middle of a scan and returns. The scan waits, and nothing is lost or duplicated.
#[test]
fn scan_waits_for_postgresql_to_return_and_loses_nothing() {
    let latency = Latency::CertPulse;
    let plan = Plan { endpoints: 300, mix: Mix::Healthy, dead_fraction: 0.0, latency, ..Plan::default() };
    let world = World::new(&plan);
    let cluster = store::testing::Cluster::start();
    let url = cluster.database().to_string();
    let mut child = world
        .scan(&["@targets.txt", "--in-flight", "8", "--log", "warn", "--db", &url])
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
