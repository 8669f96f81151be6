//! Full disks.

use super::Points as _;
use super::flow::{Estate, agent, deployed};
use super::{Field, Role, Side};
use crate::world::{describe, run};

#[test]
fn server_with_full_disk_reports_it_and_resumes_without_loss() {
    let mut estate = Estate::new(None, true);
    estate.live("before.example");
    let shim = estate.house.shim().clone();
    shim.set(Field::Full, 1);
    let refused = run(&mut estate.house.bulla(&["cert", "create", "full.example"]));
    assert_eq!(refused.status.code(), Some(7), "{}", describe(&refused));
    let message = String::from_utf8_lossy(&refused.stderr).to_lowercase();
    assert!(message.contains("full") || message.contains("database"), "{message}");
    // Reads still work.
    estate.check("before.example");
    shim.set(Field::Full, 0);
    estate.live("after.example");
    // The disk becomes full during issuance. Whatever the moment, acknowledged certificates are issued once there is space.
    for commit in 1..=6 {
        let name = format!("middle-{commit}.example");
        let target = super::flow::target(&estate.house, &estate.agent, &name);
        shim.arm(0, Side::Before);
        estate.house.does(&["cert", "create", &name, "--target", &target]);
        estate
            .house
            .until("some commits", || shim.counted() >= commit || { estate_is_active(&estate, &name) });
        shim.set(Field::Full, 1);
        let _ = run(&mut estate.house.bulla(&["cert", "renew", &name]));
        shim.set(Field::Full, 0);
        shim.past_leases();
        estate.settle(&name);
        estate.check(&name);
    }
    estate.verify();
    assert_eq!(estate.falls, 0, "it never ended");
}

fn estate_is_active(estate: &Estate, name: &str) -> bool {
    estate.house.json(&["cert", "show", name])["status"] != "issuing"
}

#[test]
fn agent_with_full_disk_reports_it_and_keeps_deployed_files() {
    let mut estate = Estate::new(None, false);
    let name = "shop.example";
    estate.live(name);
    let before = deployed(&estate.house, name).unwrap();
    let shim = estate.house.shim().clone();
    estate.house.does(&["cert", "renew", name]);
    estate
        .house
        .until("a version to deploy", || estate.house.json(&["cert", "show", name])["status"] == "deploying");
    shim.arm(0, Side::Before);
    shim.set(Field::Full, 1);
    let mut work = agent(&estate.house, "work-once");
    shim.attack(&mut work, Role::Files);
    let output = run(&mut work);
    shim.set(Field::Full, 0);
    assert!(!output.status.success(), "{}", describe(&output));
    assert_eq!(deployed(&estate.house, name), Ok(before));
    let jobs = estate.house.json(&["job", "list"]);
    assert!(jobs.to_string().contains("No space left on device"), "{jobs}\n{}", describe(&output));
}
