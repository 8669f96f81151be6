//! `bulla console`, and users with passwords.

use std::io::Write;
use std::process::Stdio;

use super::House;
use crate::world::{describe, stderr, stdout};

#[test]
fn console_link_and_user_passwords_are_managed_by_command() {
    let house = House::up();
    let page = format!("{}/console/sign-in#code=", house.url());
    let first = house.does(&["console", "--lifetime", "1m"]);
    let url = stdout(&first).trim().to_owned();
    assert!(url.starts_with(&page) && url.len() == page.len() + 43, "{}", describe(&first));
    assert!(stderr(&first).contains("it signs in once, until "), "{}", describe(&first));
    assert_ne!(stdout(&house.does(&["console"])).trim(), url);
    house.until("the link of the start and two others are in the audit log", || {
        let links = house.json(&["audit", "list", "--action", "session.link"]);
        links["rows"].as_array().unwrap().len() == 3
    });

    house.does(&["user", "create", "ann", "--role", "viewer"]);
    let set = |password: &str| {
        let mut command = house.bulla(&["user", "password", "ann"]);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(password.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let done = set("correct horse battery staple\n");
    assert!(done.status.success(), "{}", describe(&done));
    let short = set("short\n");
    assert!(stderr(&short).contains("at least 12 characters"), "{}", describe(&short));
    let none = set("");
    assert_eq!(none.status.code(), Some(2), "{}", describe(&none));
    let changed = house.json(&["audit", "list", "--action", "user.password"]);
    assert_eq!(changed["rows"].as_array().unwrap().len(), 1, "{changed}");

    // The last admin cannot be deleted. The error says what to do.
    let last = house.bulla(&["token", "delete", "first-admin"]).output().unwrap();
    assert!(!last.status.success(), "{}", describe(&last));
    let text = stderr(&last);
    assert!(text.contains("no identity that can manage access"), "{}", describe(&last));
    assert!(text.contains("bulla token create NAME --role admin"), "{}", describe(&last));
}
