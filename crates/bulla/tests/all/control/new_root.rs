//! A root that is created while the server runs.

use super::House;
use crate::world::{describe, run};

#[test]
fn new_root_is_trusted_without_a_restart() {
    let house = House::up();
    house.does(&["ca", "create", "root-2", "--subject", "CN=Root 2"]);
    house.does(&["ca", "create", "issuing-2", "--subject", "CN=Issuing 2", "--parent", "root-2"]);
    let roots = || std::fs::read_to_string(house.root()).unwrap().matches("BEGIN CERTIFICATE").count();
    house.until("both roots are in the file", || roots() == 2);
    house.does(&["ca", "default", "issuing-2"]);
    let token = house.json(&["agent", "token"]);
    let (root, state) = (house.root().display().to_string(), house.path("agent").display().to_string());
    let (url, token) = (house.url(), token["token"].as_str().unwrap().to_owned());
    house.does(&[
        "agent", "enroll", "--server", &url, "--token", &token, "--ca", &root, "--state", &state, "--name",
        "web-1",
    ]);
    // The agent's certificate is below the new root, and the server accepts it.
    let policy = house.path("policy.toml").display().to_string();
    house.does(&["agent", "policy", "init", "--policy", &policy]);
    let worked = run(&mut house.bulla(&["agent", "work-once", "--state", &state, "--policy", &policy]));
    assert!(worked.status.success(), "{}", describe(&worked));
    let pem = house.does(&["ca", "export", "issuing-2"]).stdout;
    std::fs::write(house.path("chain.pem"), pem).unwrap();
    let pem = house.does(&["ca", "export", "issuing-2", "--root"]).stdout;
    std::fs::write(house.path("root-2.pem"), pem).unwrap();
    house.openssl(&["verify", "-CAfile", "root-2.pem", "chain.pem"]);
    let same = house.does(&["ca", "export", "root-2"]).stdout;
    assert_eq!(std::fs::read(house.path("root-2.pem")).unwrap(), same);
}
