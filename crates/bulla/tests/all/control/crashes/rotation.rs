//! Master key rotation while the server is killed at its commits.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;

use super::flow::Estate;
use super::{Points, Shim, Side, pairs};
use crate::control::House;

/// Commits of a rotation tested by default, each before and after.
const FEW: u64 = 4;

/// Number of credentials: three pages of the rotation.
const CREDENTIALS: usize = 1_100;

/// Rotates from one master key to the other, with the server killed at a point. Returns the number of kill points.
fn change(estate: &mut Estate, to: &str, from: &str, (points, at, side): (&dyn Points, u64, Side)) -> u64 {
    assert_eq!(estate.house.stop(), Some(0));
    let keys = format!("[authority]\nmaster_key_file = {to:?}\nold_master_key_files = [{from:?}]\n");
    estate.house.configure(&keys);
    estate.house.start();
    let falls = estate.falls;
    points.arm(at, side);
    let done = estate.json_with_retry(&["key", "rotate"]);
    let counted = points.counted();
    points.arm(0, side);
    assert_eq!(
        (&done["remaining"], &done["failed"]),
        (&0.into(), &serde_json::json!([])),
        "{side:?} {at}: {done}"
    );
    if estate.falls == falls {
        // Without a kill, one call re-wraps every credential, page by page.
        assert!(done["rewrapped"].as_u64().unwrap() >= CREDENTIALS as u64, "{done}");
    }
    let status = estate.json_with_retry(&["key", "status"]);
    assert_eq!((&status["remaining"], status["keys"].as_array().unwrap().len()), (&0.into(), 2), "{status}");
    // The old key is no longer needed.
    assert_eq!(estate.house.stop(), Some(0));
    estate.house.configure(&format!("[authority]\nmaster_key_file = {to:?}\n"));
    estate.house.start();
    let export = estate.house.path("all.yml");
    let path = export.display().to_string();
    let all = estate.json_with_retry(&["credential", "export", "--path", "/many", "--to", &path, "--plain"]);
    assert_eq!(
        (&all["credentials"], &all["failed"]),
        (&CREDENTIALS.into(), &serde_json::json!([])),
        "{side:?} {at}"
    );
    std::fs::remove_file(export).unwrap();
    counted
}

#[test]
fn master_key_rotation_survives_server_kills_without_data_loss() {
    let mut house = House::prepared("", None);
    house.put(Shim::new(&house.path("")), true);
    house.start();
    let mut text = "credentials:\n".to_owned();
    for number in 0..CREDENTIALS {
        let _ = writeln!(text, "- {{ name: /many/{number}, type: value, value: v{number} }}");
    }
    std::fs::write(house.path("many.yml"), text).unwrap();
    let file = house.path("many.yml").display().to_string();
    let done = house.json(&["credential", "import", &file]);
    assert_eq!(done["created"], CREDENTIALS, "{done}");
    let second = house.path("second.key");
    std::fs::write(&second, [5; 32]).unwrap();
    std::fs::set_permissions(&second, std::fs::Permissions::from_mode(0o600)).unwrap();
    let (mut to, mut from) =
        (second.display().to_string(), house.path("data/master.key").display().to_string());
    let mut estate = Estate::over(house);
    let points = estate.house.shim().clone();
    let all = change(&mut estate, &to, &from, (&points, 0, Side::Before));
    // The number of commits varies: background tasks commit too, and more in a longer rotation.
    let mut shortest = all.max(1);
    for (at, side) in pairs(all, FEW) {
        std::mem::swap(&mut to, &mut from);
        let (at, falls) = (at.min(shortest), estate.falls);
        let counted = change(&mut estate, &to, &from, (&points, at, side));
        let killed = estate.falls > falls;
        eprintln!("killed {side:?} commit {at} of some {all}: {killed}");
        assert!(killed || counted < at, "{side:?} commit {at} of {counted} was passed");
        if !killed {
            shortest = counted.max(1);
        }
    }
    assert!(estate.falls > 0, "none was killed");
    let audit = estate.json_with_retry(&["audit", "verify"]);
    assert_eq!(audit["good"], true, "{audit}");
}
