//! Faults below the server: disk, clock, database.

use std::process::Command;

use super::super::House;
use super::super::crashes::jump_clock;
use super::Outcome;
use crate::world::run;

/// Runs the full-disk test in its own namespaces.
pub(super) fn full_disk() -> Outcome {
    const TEST: &str = "control::full_disk::full_disk_is_reported_reads_work_and_no_restart_is_needed";
    let test = Command::new(std::env::current_exe().unwrap()).args([TEST, "--exact"]).output().unwrap();
    let printed = String::from_utf8_lossy(&test.stdout).into_owned();
    let held = test.status.success() && printed.contains("1 passed");
    if !held {
        eprintln!("{printed}{}", String::from_utf8_lossy(&test.stderr));
    }
    Outcome {
        attack: "disk full",
        done: "a disk of 16 MiB is filled; kill, stop and start on it".to_owned(),
        bound: "507 with the disk's name; reads, CRL, OCSP; nothing acknowledged lost; no restart".to_owned(),
        counted: if held { "the test passed" } else { "the test failed" }.to_owned(),
        held,
    }
}

/// Moves only the server's clock, with a preloaded library.
pub(super) fn clock() -> Outcome {
    let mut house = House::prepared("", None);
    let jump = jump_clock(&mut house);
    house.start();
    let mut good = Vec::new();
    for days in [1, 0, -1] {
        jump(days);
        let name = format!("jump{}.example", days + 1);
        // The commands use this machine's clock.
        let succeeds =
            |arguments: &[&str]| run(house.bulla(arguments).env_remove("LD_PRELOAD")).status.success();
        good.push(succeeds(&["cert", "create", &name]) && succeeds(&["token", "list"]));
    }
    jump(0);
    let verified = house.json(&["audit", "verify"])["good"] == true;
    Outcome {
        attack: "clock jump",
        done: "a day ahead, back, and a day behind".to_owned(),
        bound: "tokens and requests as before; the audit log verifies".to_owned(),
        counted: format!("{good:?}; verifies: {verified}"),
        held: good == [true; 3] && verified,
    }
}

/// Kills the primary and promotes its standby at the same address.
pub(super) fn promotion() -> Outcome {
    const WRITES: usize = 5;
    let primary = store::testing::Cluster::start();
    let url = primary.database().to_string();
    let standby = primary.standby();
    let (base_url, folder) = url.split_once("?host=").unwrap();
    let between = tempfile::TempDir::new().unwrap();
    let address = between.path().join("database");
    std::os::unix::fs::symlink(folder, &address).unwrap();
    let house = House::up_with("", Some(format!("{base_url}?host={}", address.display())));
    let create = |name: String| {
        run(&mut house.bulla(&["token", "create", &name, "--role", "viewer"])).status.success()
    };
    let before = (0..WRITES).filter(|number| create(format!("before-{number}"))).count();
    primary.wait_for_standby(&standby);
    primary.stop();
    let refused = !create("meanwhile".to_owned());
    let replica = standby.replica_url(&url.parse().unwrap()).to_string();
    let (_, folder) = replica.split_once("?host=").unwrap();
    std::fs::remove_file(&address).unwrap();
    std::os::unix::fs::symlink(folder, &address).unwrap();
    assert!(standby.psql("postgres", "SELECT pg_promote()"));
    house.until("a write after the promotion", || create("after".to_owned()));
    let tokens = house.json(&["token", "list"]).to_string();
    let retained = (0..WRITES).filter(|number| tokens.contains(&format!("\"before-{number}\""))).count();
    Outcome {
        attack: "PostgreSQL killed and promoted",
        done: format!("{WRITES} writes, the primary killed, its standby promoted"),
        bound: "refused meanwhile; no acknowledged write lost; goes on without a restart".to_owned(),
        counted: format!("refused: {refused}; {retained} of {before} kept"),
        held: refused && before == WRITES && retained == before,
    }
}
