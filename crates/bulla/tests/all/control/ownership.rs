//! Ownership of the certificates that the server finds. Here it finds its own.

use serde_json::{Value, json};

use super::House;
use crate::world::{describe, run};

#[test]
fn owner_rules_assign_team_and_owner_to_found_certificates() {
    let house = House::up();
    let rule =
        ["owner", "rule", "add", "own", "--host", "127.0.0.*", "--source", "own", "--team", "platform"];
    let made = house.json(&[&rule[..], &["--environment", "lab", "--tag", "who=us"]].concat());
    assert_eq!((&made["position"], &made["assign"]["team"]), (&json!(10), &json!("platform")));
    house.does(&["owner", "rule", "add", "rest", "--owner", "ann"]);
    let nothing = run(&mut house.bulla(&["owner", "rule", "add", "nobody", "--host", "*"]));
    assert_eq!(nothing.status.code(), Some(6), "{}", describe(&nothing));

    let target = format!("127.0.0.1:{}", house.port);
    house.does(&["watch", "add", "self", &target, "--every", "1h", "--group", "own"]);
    // The root is not trusted on this machine, and the alert is sent to the team.
    let untrusted = || {
        let alerts = house.json(&["alert", "list"]);
        let rows = alerts["rows"].as_array().unwrap().clone();
        rows.into_iter().find(|alert| alert["kind"] == "endpoint.untrusted")
    };
    house.until("the alert", || untrusted().is_some());
    let of = untrusted().unwrap()["attributes"].clone();
    let says = (&of["team"], &of["environment"], &of["tags"], &of["owner"]);
    assert_eq!(says, (&json!("platform"), &json!("lab"), &json!({"who": "us"}), &Value::Null), "{of}");

    let found = house.json(&["cert", "found"])["rows"][0].clone();
    assert_eq!((&found["team"], &found["state"]), (&json!("platform"), &json!("unmanaged")), "{found}");
    let of =
        |given: &[&str]| house.json(&[&["cert", "found"], given].concat())["rows"].as_array().unwrap().len();
    let counts =
        [&["--team", "platform"][..], &["--team", "other"], &["--owner", "ann"], &["--nobody"]].map(of);
    assert_eq!(counts, [1, 0, 0, 0]);
    let claimed = house.json(&["cert", "claim", found["leaf"]["fingerprint"].as_str().unwrap()]);
    let managed = house.json(&["cert", "show", claimed["name"].as_str().unwrap()]);
    let says = (&managed["team"], &managed["environment"], &managed["tags"]);
    assert_eq!(says, (&json!("platform"), &json!("lab"), &json!({"who": "us"})), "{managed}");

    let table = |host: &str| {
        String::from_utf8(house.does(&["owner", "rule", "explain", host, "--group", "own"]).stdout).unwrap()
    };
    assert!(table("127.0.0.9").contains("platform"), "{}", table("127.0.0.9"));
    let other = table("a.example");
    assert!(other.contains("host 127.0.0.*: the host is a.example") && other.contains("ann"), "{other}");
    house.does(&["owner", "rule", "move", "rest", "1"]);
    assert!(table("127.0.0.9").contains("ann"));
    let order = |house: &House| house.json(&["owner", "rule", "list"])["rows"].clone();
    assert_eq!((&order(&house)[0]["name"], &order(&house)[1]["name"]), (&json!("rest"), &json!("own")));
    house.does(&["owner", "rule", "remove", "rest"]);
    let tagged = ["owner", "rule", "add", "tagged", "--position", "1", "--cloud-tag", "stage=prod*"];
    let made = house.json(&[&tagged[..], &["--team-from-tag", "team"]].concat());
    let says = (&made["when"]["tag"], &made["from_tags"]["team"], &made["assign"]["team"]);
    assert_eq!(says, (&json!("stage=prod*"), &json!("team"), &Value::Null), "{made}");
    house.does(&["owner", "rule", "move", "tagged", "2"]);
    let explain =
        ["owner", "rule", "explain", "arn:x", "--source", "aws-acm", "--cloud-tag", "stage=production"];
    let explanation = house.json(&[&explain[..], &["--cloud-tag", "team=bank"]].concat());
    assert_eq!(
        (&explanation["rule"], &explanation["assign"]["team"]),
        (&json!("tagged"), &json!("bank")),
        "{explanation}"
    );
    house.does(&["owner", "rule", "remove", "tagged"]);
    assert_eq!(house.json(&["owner", "rule", "show", "own"])["when"]["source"], "own");
    assert_eq!(order(&house).as_array().unwrap().len(), 1);
    // The list of owners still works.
    house.json(&["owner", "list"]);
}
