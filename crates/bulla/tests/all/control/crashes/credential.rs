//! Credentials, written while the server is killed at its commits.

use std::time::{Duration, Instant};

use super::flow::Estate;
use super::{Points, Shim, Side, pairs};
use crate::control::House;
use crate::world::{describe, run};

/// Commits of one sequence tested by default, each before and after.
const FEW: u64 = 4;

/// Credential versions of one sequence.
const VERSIONS: usize = 4;

/// Sets versions, generates a credential and rotates the master key, as a client that retries. Acknowledged versions must exist in
/// order. Other versions must exist once or not at all. Returns the number of kill points.
fn live(estate: &mut Estate, name: &str, (points, at, side): (&dyn Points, u64, Side)) -> u64 {
    let path = format!("/crash/{name}");
    points.arm(at, side);
    let mut acknowledged = Vec::new();
    let mut falls = 0;
    for number in 0..VERSIONS {
        let file = estate.house.path("value");
        std::fs::write(&file, format!("value {number}")).unwrap();
        let file = file.display().to_string();
        // After a lost answer the version may or may not exist. The client sets it again.
        loop {
            match estate.try_json(&["credential", "set", &path, "--file", &file]) {
                Some(set) => break acknowledged.push(set["id"].clone()),
                None => {
                    falls += 1;
                    estate.raise();
                }
            }
        }
    }
    let made = format!("{path}/made");
    let password = estate.json_with_retry(&["credential", "generate", &made, "--mode", "no-overwrite"]);
    let repeated = estate.json_with_retry(&["credential", "generate", &made, "--mode", "no-overwrite"]);
    assert_eq!(password["id"], repeated["id"], "{name}: made once, whatever fell");
    estate.json_with_retry(&["key", "rotate"]);
    let counted = points.counted();
    // The checks below read stored data. A point that was not reached is disarmed.
    points.arm(0, side);
    estate.json_with_retry(&["ca", "list"]);
    let stored = versions_of(estate, &path);
    let order: Vec<_> = stored.iter().filter(|id| acknowledged.contains(id)).cloned().collect();
    assert_eq!(
        order,
        acknowledged.iter().rev().cloned().collect::<Vec<_>>(),
        "{name}: newest first, none lost"
    );
    assert!(stored.len() <= acknowledged.len() + falls, "{name}: at most one more for each lost answer");
    let shown = estate.json_with_retry(&["credential", "get", &path]);
    assert_eq!(shown["value"], format!("value {}", VERSIONS - 1), "{name}");
    counted
}

fn versions_of(estate: &mut Estate, path: &str) -> Vec<serde_json::Value> {
    let arguments = ["credential", "get", path, "--versions", "50", "--output", "json"];
    let output = loop {
        let output = run(&mut estate.house.bulla(&arguments));
        if output.status.success() {
            break output;
        }
        assert!(estate.house.fell(), "{path}: {}", describe(&output));
        estate.raise();
    };
    let text = String::from_utf8(output.stdout).unwrap();
    serde_json::Deserializer::from_str(&text)
        .into_iter::<serde_json::Value>()
        .map(|one| one.unwrap()["id"].clone())
        .collect()
}

/// Runs a sequence for each point, with the server killed there. `all` is the number of commits of a sequence; it varies, because
/// background tasks commit too, and more in a longer sequence.
pub(super) fn attack(
    estate: &mut Estate,
    (all, few): (u64, u64),
    run: impl Fn(&mut Estate, &str, u64, Side) -> u64,
) {
    let mut shortest = all.max(1);
    for (number, (at, side)) in pairs(all, few).into_iter().enumerate() {
        let (at, falls) = (at.min(shortest), estate.falls);
        let name = format!("{side:?}-{at}-{number}").to_lowercase();
        let counted = run(estate, &name, at, side);
        let killed = estate.falls > falls;
        eprintln!("killed {side:?} commit {at} of some {all}: {killed}");
        assert!(killed || counted < at, "{side:?} commit {at} of {counted} was passed");
        if !killed {
            shortest = counted.max(1);
        }
    }
    assert!(estate.falls > 0, "none was killed");
}

#[test]
fn credential_versions_survive_a_kill_around_a_commit() {
    let mut house = House::prepared("", None);
    house.put(Shim::new(&house.path("")), true);
    house.start();
    let mut estate = Estate::over(house);
    let points = estate.house.shim().clone();
    // The first sequence includes commits of the server start. Later ones are like the sequences that are interrupted.
    live(&mut estate, "first", (&points, 0, Side::Before));
    let all = live(&mut estate, "counted", (&points, 0, Side::Before));
    attack(&mut estate, (all, FEW), |estate, name, at, side| live(estate, name, (&points, at, side)));
    let audit = estate.json_with_retry(&["audit", "verify"]);
    assert_eq!(audit["good"], true, "{audit}");
}

/// Maximum time until a process that got SIGKILL has ended, also on a loaded machine.
const MOMENTS: Duration = Duration::from_secs(60);
/// Maximum time of a CA rotation, on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Rotates a CA from beginning to end while the server is killed. Returns the number of kill points.
fn change(estate: &mut Estate, name: &str, (points, at, side): (&dyn Points, u64, Side)) -> u64 {
    let (ca, leaf) = (format!("/change/{name}/ca"), format!("/change/{name}/leaf"));
    let make = ["credential", "generate", "--type", "certificate", "--mode", "no-overwrite"];
    let with = ["--with", "key_type=p256", "--with", "duration=900"];
    let (common_name, signer) = (format!("common_name={name}"), format!("ca={ca}"));
    let authority = [&make[..], &with, &[&ca, "--with", "is_ca=true", "--with", &common_name]].concat();
    estate.json_with_retry(&authority);
    estate.json_with_retry(&[&make[..], &with, &[&leaf, "--with", &signer, "--with", &common_name]].concat());
    let policy = ["credential", "rotation", "set", &ca, "--every", "100d", "--overlap", "60s"];
    estate.json_with_retry(&policy);
    points.arm(at, side);
    loop {
        let now = run(&mut estate.house.bulla(&["credential", "rotation", "now", &ca]));
        // After a lost answer the rotation may already be in progress. A second request then reports this.
        let is_answered = now.status.success() || describe(&now).contains("one is in progress");
        if is_answered || !estate.house.fell_within(MOMENTS) {
            break;
        }
        estate.raise();
    }
    let began = Instant::now();
    let step = |estate: &mut Estate| {
        let due = estate.json_with_retry(&["credential", "rotation", "due", &ca]);
        due["rows"][0]["step"].as_str().unwrap_or("none").to_owned()
    };
    loop {
        let versions = versions_of(estate, &ca).len();
        if versions > 1
            && step(estate) == "none"
            && estate.json_with_retry(&["credential", "get", &leaf])["id"].is_string()
        {
            break;
        }
        assert!(began.elapsed() < TIMEOUT, "{name}: {versions} versions, {}", step(estate));
        estate.house.shim().past_leases();
        // Setting a policy triggers an immediate check of it.
        estate.json_with_retry(&policy);
    }
    let counted = points.counted();
    points.arm(0, side);
    estate.json_with_retry(&["ca", "list"]);
    let all = versions_of(estate, &ca);
    assert_eq!(all.len(), 2, "{name}: made once");
    let now = estate.json_with_retry(&["credential", "get", &ca]);
    let child = estate.json_with_retry(&["credential", "get", &leaf]);
    assert_eq!(now["id"], all[0], "{name}: the new one signs");
    assert_eq!(child["value"]["ca"], now["value"]["certificate"], "{name}: and is trusted alone");
    counted
}

#[test]
fn credential_ca_rotates_once_when_the_server_is_killed() {
    let mut house = House::prepared("", None);
    house.put(Shim::new(&house.path("")), true);
    house.start();
    let mut estate = Estate::over(house);
    let points = estate.house.shim().clone();
    let all = change(&mut estate, "counted", (&points, 0, Side::Before));
    attack(&mut estate, (all, FEW), |estate, name, at, side| change(estate, name, (&points, at, side)));
    let audit = estate.json_with_retry(&["audit", "verify"]);
    assert_eq!(audit["good"], true, "{audit}");
}
