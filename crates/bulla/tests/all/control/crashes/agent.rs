//! The agent, killed at its file changes.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::super::House;
use super::flow::{
    Estate, agent, deployed, deployment_folder, enrolling, rows, whole_certificate, whole_key,
};
use super::{Field, Points, Role, Shim, Side, does, pairs};
use crate::world::{describe, run};

/// File changes tested by default, each before and after.
const FEW_ENROLLING: u64 = 4;
const FEW_WORKING: u64 = 5;

/// The certificate that is renewed repeatedly.
const NAME: &str = "shop.example";

/// Runs an agent command and kills it at a point. Returns whether it was killed, and the number of points.
fn attacked(shim: &Shim, command: &mut Command, at: u64, side: Side) -> (bool, u64) {
    use std::os::unix::process::ExitStatusExt;
    shim.arm(at, side);
    shim.attack(command, Role::Files);
    let output = run(command);
    let counted = shim.counted();
    shim.arm(0, side);
    let fell = output.status.signal() == Some(rustix::process::Signal::KILL.as_raw());
    assert!(fell || output.status.success(), "{side:?} change {at}: {}", describe(&output));
    (fell, counted)
}

#[test]
fn agent_killed_during_enrollment_keeps_its_identity_on_retry() {
    let mut house = House::prepared("", None);
    house.put(Shim::new(&house.path("")), false);
    house.start();
    let shim = house.shim().clone();
    let mut agents = 0;
    let mut attempt = |at: u64, side: Side| {
        let token = house.json(&["agent", "token"])["token"].as_str().unwrap().to_owned();
        let state = house.path(&format!("agent-{agents}")).display().to_string();
        let enroll = || {
            let mut command = house.bulla(&["agent", "enroll", "--state", &state]);
            command.args(enrolling(&house, &token));
            command
        };
        let (fell, counted) = attacked(&shim, &mut enroll(), at, side);
        if fell {
            let repeated = run(&mut enroll());
            let done = String::from_utf8_lossy(&repeated.stderr).contains("already");
            assert!(repeated.status.success() || done, "{side:?} change {at}: {}", describe(&repeated));
        }
        does(&mut house.bulla(&["agent", "work-once", "--state", &state]));
        agents += 1;
        let listed = house.json(&["agent", "list", "--all"]);
        assert_eq!(rows(&listed).len(), agents, "{side:?} change {at}: each is one agent");
        (fell, counted)
    };
    let (_, all) = attempt(0, Side::Before);
    for (at, side) in pairs(all, FEW_ENROLLING) {
        assert!(attempt(at, side).0, "{side:?} change {at} of {all}");
    }
}

#[test]
fn agent_killed_during_deployment_leaves_complete_files_and_keys() {
    let mut estate = Estate::new(None, false);
    let target = super::flow::target(&estate.house, &estate.agent, NAME);
    estate.house.does(&["cert", "create", NAME, "--key-on-agent", "--target", &target]);
    let mut all = 0;
    let mut versions = 1;
    cycle(&mut estate, 0, Side::Before, &mut versions, &mut all);
    estate.house.does(&["cert", "renew", NAME]);
    cycle(&mut estate, 0, Side::Before, &mut versions, &mut all);
    let (pairs, mut missed) = (pairs(all, FEW_WORKING), 0);
    for &(at, side) in &pairs {
        estate.house.does(&["cert", "renew", NAME]);
        let fell = cycle(&mut estate, at, side, &mut versions, &mut 0);
        eprintln!("killed {side:?} change {at} of {all}: {fell}");
        missed += u64::from(!fell);
    }
    // If the CA is slow, the agent makes one request more or less.
    assert!(missed <= pairs.len() as u64 / 10, "{missed} of {} were not killed", pairs.len());
    estate.verify();
}

/// Takes one version from the agent's key to its files, with the agent killed at a point. Returns whether it was killed.
fn cycle(estate: &mut Estate, at: u64, side: Side, versions: &mut usize, all: &mut u64) -> bool {
    let shim = estate.house.shim().clone();
    let before = deployed(&estate.house, NAME).ok();
    let house = &estate.house;
    house.until("work for the agent", || house.json(&["cert", "show", NAME])["status"] == "awaiting_csr");
    let (mut fell, mut counted) = attacked(&shim, &mut agent(house, "work-once"), at, side);
    // If the CA is slow, the agent ends before there is a certificate. The agent runs again once there is one.
    let status = || house.json(&["cert", "show", NAME])["status"].clone();
    while !fell {
        house.until("more work for the agent, or its end", || {
            ["awaiting_csr", "deploying", "active"].iter().any(|one| status() == *one)
        });
        if status() == "active" {
            break;
        }
        let next = attacked(&shim, &mut agent(house, "work-once"), at.saturating_sub(counted), side);
        (fell, counted) = (next.0, counted + next.1);
    }
    *all = counted;
    if fell {
        let folder = deployment_folder(&estate.house, NAME);
        let whole = |folder: &Path| whole_certificate(folder).and(whole_key(folder).map(drop));
        assert_eq!(whole(&folder), Ok(()), "{side:?} change {at}");
        recover_alone(&shim, &estate.house);
        let after = deployed(&estate.house, NAME).ok();
        let newest = estate.json_with_retry(&["cert", "show", NAME])["current"]["fingerprint"].clone();
        assert!(after == before || after.as_deref() == newest.as_str(), "{side:?} change {at}: {after:?}");
        shim.past_leases();
    }
    estate.rest(NAME, *versions);
    estate.check(NAME);
    *versions += 1;
    no_stray_keys(&estate.house, side, at);
    fell
}

/// Starts the agent without access to its server. The agent rolls back the interrupted deployment and ends.
fn recover_alone(shim: &Shim, house: &House) {
    shim.set(Field::Offline, 1);
    let output = run(&mut agent(house, "work-once"));
    shim.set(Field::Offline, 0);
    assert!(!output.status.success(), "no server was there: {}", describe(&output));
    let status: Value =
        serde_json::from_slice(&run(agent(house, "status").args(["--output", "json"])).stdout).unwrap();
    assert_eq!(status["deployments_cut_off"], 0, "{status}");
}

/// Checks that the agent keeps only the keys of the last two versions, and no unused key.
fn no_stray_keys(house: &House, side: Side, at: u64) {
    let keys = std::fs::read_dir(house.path("agent/keys")).unwrap().count();
    assert!(keys <= 2, "{side:?} change {at}: {keys} keys");
    let requests = std::fs::read_dir(house.path("agent/csr")).unwrap().count();
    assert_eq!(requests, 0, "{side:?} change {at}: requests are left");
}
