//! The server scans by itself; here it looks at itself.

use serde_json::{Value, json};

use super::House;
use crate::world::{describe, run};

#[test]
fn a_watch_runs_by_itself_and_again_when_told_to() {
    let mut house = House::up();
    let target = format!("127.0.0.1:{}", house.port);
    let made = house.json(&["watch", "add", "self", &target, "--every", "1h", "--group", "own"]);
    assert_eq!((&made["interval_s"], &made["jitter_s"]), (&json!(3600), &json!(360)));
    let last = |house: &House| house.json(&["watch", "show", "self"])["last_run"].clone();
    house.until("the first run", || last(&house)["outcome"] == "finished");
    let first = last(&house);
    assert_eq!(
        (&first["counts"]["endpoints"], &first["counts"]["answered"]),
        (&json!(1), &json!(1)),
        "{first}"
    );
    // The endpoint is new; its certificate is the authority's own, and known.
    let news = (&first["counts"]["changed"], &first["counts"]["new_certificates"]);
    assert_eq!(news, (&json!(1), &json!(0)), "{first}");
    // What it saw is in the inventory.
    let seen: Value = serde_json::from_slice(&house.does(&["api", "/api/v1/inventory"]).stdout).unwrap();
    assert_eq!(seen["items"].as_array().map(Vec::len), Some(1), "{seen}");
    let table = String::from_utf8(house.does(&["watch", "status"]).stdout).unwrap();
    assert!(table.contains("self") && table.contains("finished") && table.contains("planned"), "{table}");

    house.does(&["watch", "run", "self"]);
    house.until("the second run", || {
        let now = last(&house);
        now["outcome"] == "finished" && now["scan"] != first["scan"]
    });
    house.does(&["watch", "pause", "self"]);
    let refused = run(&mut house.bulla(&["watch", "run", "self"]));
    assert_eq!(refused.status.code(), Some(6), "{}", describe(&refused));

    // A restart forgets nothing.
    house.kill();
    house.start();
    house.does(&["watch", "resume", "self"]);
    assert_eq!(house.json(&["watch", "list"])["rows"][0]["name"], "self");
    house.does(&["watch", "remove", "self"]);
    assert_eq!(house.json(&["watch", "list"])["rows"], json!([]));

    let file = run(&mut house.bulla(&["watch", "add", "files", "/etc/ssl"]));
    assert_eq!(file.status.code(), Some(6), "{}", describe(&file));
}
