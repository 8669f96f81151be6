//! A profile that requires approval, changed and approved by command, and break-glass access when no approver is left.

use super::House;
use crate::world::{run, stderr, stdout};

#[test]
fn break_glass_lets_the_host_admin_approve_a_change() {
    let house = House::up();
    let profile = |approval: bool| {
        let text = format!(
            "name = \"vip\"\nrequires_approval = {approval}\n[names]\ndns_allowed = [\".vip.example\"]\n"
        );
        std::fs::write(house.path("vip.toml"), text).unwrap();
    };
    profile(true);
    house.does(&["profile", "create", "--file", "vip.toml"]);
    profile(false);
    let waits = house.does(&["profile", "update", "vip", "--file", "vip.toml"]);
    assert!(
        stderr(&waits).contains("profile/vip is not changed yet: approval by another person"),
        "{waits:?}"
    );
    let changes = house.json(&["change", "list"]);
    let id = changes["rows"][0]["id"].as_str().unwrap_or_else(|| panic!("{changes}")).to_owned();
    let shown = stdout(&house.does(&["change", "show", &id]));
    assert!(shown.contains("/requires_approval"), "{shown}");
    let own = run(&mut house.bulla(&["change", "approve", &id]));
    assert_eq!(own.status.code(), Some(6), "{}", stderr(&own));

    let refused = run(&mut house.bulla(&["break-glass", "--reason", " "]));
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    let token = stdout(&house.does(&["break-glass", "--reason", "nobody else is here"]));
    let hash = changes["rows"][0]["plan_sha256"].as_str().unwrap();
    let approve =
        run(house.bulla(&["change", "approve", &id, "--plan", hash]).env("BULLA_CLIENT_TOKEN", token.trim()));
    assert!(approve.status.success(), "{}", stderr(&approve));
    assert_eq!(house.json(&["profile", "show", "vip"])["requires_approval"], false);
    let audit = stdout(&house.does(&["audit", "list", "--output", "json"]));
    assert!(audit.contains("nobody else is here") && audit.contains("system:host"), "{audit}");
}
