//! A scan killed at any point resumes where it stopped, without loss or duplicates.

use std::process::Stdio;
use std::time::Duration;

use fleet::{Latency, Mix, Plan};

use crate::world::{World, describe, run};

#[test]
fn killed_scan_is_resumed_without_loss_or_duplicates() {
    let each = Duration::from_millis(40)..=Duration::from_millis(60);
    let latency = Latency::Custom { dns: each.clone(), dial: each.clone(), handshake: each };
    let plan = Plan { endpoints: 300, mix: Mix::Healthy, dead_fraction: 0.0, latency, ..Plan::default() };
    let world = World::new(&plan);
    let mut child = world
        .scan(&["@targets.txt", "--in-flight", "4", "--quiet"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    world.wait_for_rows(&[]);
    let state = || {
        let listed = run(&mut world.bulla(&["inventory", "scans", "--output", "json"]));
        let scans: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
        scans["rows"][0]["state"].as_str().map(str::to_owned)
    };
    assert_eq!(state().as_deref(), Some("running"));
    let twice = run(&mut world.bulla(&["scan", "--resume"]));
    assert_eq!(twice.status.code(), Some(2), "{}", describe(&twice));
    assert!(describe(&twice).contains("another process runs the scan"), "{}", describe(&twice));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(state().as_deref(), Some("interrupted"));
    let before = world.observations(&[]);
    let all = world.targets().len() as u64;
    assert!(before < all, "killed too late to show anything: {before} of {all}");

    let output = run(&mut world.bulla(&["scan", "--resume", "--output", "json"]));
    assert!(output.status.success(), "{}", describe(&output));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let resumed = document["observations"].as_array().unwrap().len() as u64;
    assert_eq!(resumed, all - before, "looked again at what was stored");
    assert_eq!(document["summary"]["skipped_by_resume"], before);
    world.assert_each_stored_once(&[]);
    let repeated = run(&mut world.bulla(&["scan", "--resume"]));
    assert_eq!(repeated.status.code(), Some(2), "there is nothing left to resume: {}", describe(&repeated));
}
