//! The life of the server itself: first start, restart, kill, stop, and the command line meanwhile.

use serde_json::Value;

use super::House;
use crate::world::{describe, run, stderr};

#[test]
fn ca_and_token_of_the_first_start_survive_restart_and_kill() {
    let mut house = House::up();
    let root = std::fs::read_to_string(house.root()).unwrap();
    house.openssl(&["x509", "-noout", "-in", &house.root().display().to_string()]);
    let profiles = house.json(&["profile", "list"]);
    let names: Vec<&str> =
        profiles["rows"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["client", "default"]);
    assert_eq!(house.stop(), Some(0));
    house.start();
    assert_eq!(std::fs::read_to_string(house.root()).unwrap(), root);
    house.does(&["profile", "list"]);
    house.kill();
    house.start();
    house.does(&["profile", "list"]);
    let verified = house.json(&["audit", "verify"]);
    assert_eq!(verified["good"], Value::Bool(true), "{verified}");
}

#[test]
fn server_files_are_accessible_only_by_their_owner() {
    use std::os::unix::fs::PermissionsExt;
    let house = House::up();
    for name in ["data/admin.token", "data/master.key", "data/server.url", "data/root.pem"] {
        let mode = std::fs::metadata(house.path(name))
            .unwrap_or_else(|error| panic!("{name}: {error}"))
            .permissions()
            .mode();
        assert_eq!(mode & 0o077, 0, "{name} is {mode:o}");
    }
}

#[test]
fn rejected_commands_return_exit_codes_and_hints() {
    let house = House::up();
    let missing = run(&mut house.bulla(&["profile", "show", "nothing"]));
    assert_eq!(missing.status.code(), Some(6), "{}", describe(&missing));
    let nobody = run(house.bulla(&["token", "list"]).env("BULLA_CLIENT_TOKEN", "bulla_wrong"));
    assert_eq!(nobody.status.code(), Some(6), "{}", describe(&nobody));
    assert!(stderr(&nobody).contains("hint: "), "{}", describe(&nobody));
    let unreachable = run(&mut house.bulla(&["token", "list", "--server", "https://127.0.0.1:1"]));
    assert_eq!(unreachable.status.code(), Some(7), "{}", describe(&unreachable));
}

#[test]
fn token_is_limited_to_its_role_and_deletion_applies_at_once() {
    let house = House::up();
    let made = house.json(&["token", "create", "watcher", "--role", "viewer"]);
    let token = made["token"].as_str().unwrap();
    let with = |arguments: &[&str]| run(house.bulla(arguments).env("BULLA_CLIENT_TOKEN", token));
    assert!(with(&["profile", "list"]).status.success());
    assert_eq!(with(&["token", "create", "more", "--role", "admin"]).status.code(), Some(6));
    house.does(&["token", "delete", made["id"].as_str().unwrap()]);
    assert_eq!(with(&["profile", "list"]).status.code(), Some(6));
}
