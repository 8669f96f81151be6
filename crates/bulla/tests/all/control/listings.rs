//! Listings: tables for people, and output that is repeated.

use super::House;
use super::credential_socket::BackgroundProcess;

#[test]
fn repeated_listing_continues_after_a_restart_and_ends_without_permission() {
    let mut house = House::up();
    let made = house.json(&["token", "create", "watcher", "--role", "viewer"]);
    std::fs::write(house.path("token"), made["token"].as_str().unwrap()).unwrap();
    let mut watching =
        BackgroundProcess::start(house.bulla(&["profile", "list", "--watch=1s", "--token-file", "token"]));
    let rounds = |watching: &BackgroundProcess| watching.printed().matches("default").count();
    house.until("the first output", || rounds(&watching) > 0);
    assert_eq!(house.stop(), Some(0));
    house.until("the message", || watching.printed().contains("retrying in 1 s"));
    let before = rounds(&watching);
    house.start();
    house.until("output after the restart", || rounds(&watching) > before);
    house.does(&["token", "delete", made["id"].as_str().unwrap()]);
    assert_eq!(watching.ended(), Some(6), "{}", watching.printed());
}

#[test]
fn groups_are_a_table_for_people_and_a_document_for_programs() {
    let house = House::up();
    for name in ["a.example", "b.example"] {
        house.does(&["cert", "create", name]);
    }
    let text = |arguments: &[&str]| String::from_utf8(house.does(arguments).stdout).unwrap();
    let rows = |text: &str| -> Vec<Vec<String>> {
        let rows = text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect());
        rows.collect()
    };
    let by_issuer = rows(&text(&["cert", "groups"]));
    assert_eq!(by_issuer, [["Value", "Certificates"], ["internal", "2"]].map(|row| row.map(str::to_owned)));
    let by_owner = rows(&text(&["cert", "groups", "--by", "owner"]));
    assert_eq!(by_owner[1], ["(none)", "2"]);
    assert_eq!(text(&["cert", "groups", "--output", "csv"]), "value,count\r\ninternal,2\r\n");
    let document = house.json(&["cert", "groups"]);
    assert_eq!(document["groups"][0]["count"], 2, "{document}");
    assert_eq!(text(&["cert", "groups", "--query", "counted"]).trim(), "2");
}
