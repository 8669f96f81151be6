//! The audit log of a running server, verified against the heads that a witness has.

use std::fs;

use audit_proof::event::{Event, genesis, parse_export_line};

use super::House;
use crate::world::{describe, run};

/// Rewrites the second event in the database file, and every later hash.
fn rewrite(house: &House, exported: &str) {
    let mut events: Vec<Event> = exported.lines().map(|line| parse_export_line(line).unwrap()).collect();
    events.sort_by_key(|event| event.sequence);
    let database = house.path("data/inventory.db");
    let mut before = genesis();
    for (at, event) in events.iter_mut().enumerate() {
        if at == 1 {
            event.actor = "user:mallory".to_owned();
        }
        event.hash = event.hash_after(&before);
        before = event.hash;
        let (sequence, actor, hash) = (event.sequence, &event.actor, event.hash);
        store::testing::execute(
            &database,
            &format!(
                "UPDATE audit_events SET actor = '{actor}', hash = X'{hash}' WHERE sequence = {sequence}"
            ),
        );
    }
    // Events written after the export are removed too.
    let last = events.len();
    store::testing::execute(&database, &format!("DELETE FROM audit_events WHERE sequence > {last}"));
    store::testing::execute(
        &database,
        &format!("UPDATE audit_chains SET sequence = {last}, hash = X'{before}'"),
    );
}

#[test]
fn rewritten_audit_log_fails_verification_against_witness_head() {
    let folder = tempfile::tempdir().unwrap();
    let witness = folder.path().join("heads.jsonl");
    let configuration =
        format!("[audit]\nhead_every_s = 10\n[audit.witness]\nfile = {:?}\n", witness.display().to_string());
    let mut house = House::up_with(&configuration, None);
    house.does(&["token", "create", "ci", "--role", "viewer"]);
    house.until("the witness has a head", || {
        fs::read_to_string(&witness).is_ok_and(|text| text.ends_with('\n'))
    });
    let print = |house: &House, arguments: &[&str], name: &str| {
        let printed = house.does(arguments).stdout;
        fs::write(house.path(name), &printed).unwrap();
        String::from_utf8(printed).unwrap()
    };
    print(&house, &["audit", "key"], "key.pem");
    print(&house, &["audit", "head"], "head.json");
    let exported = print(&house, &["audit", "export"], "audit.jsonl");
    let heads = witness.display().to_string();
    for head in [&heads, "head.json"] {
        house.does(&["audit", "verify", "--export", "audit.jsonl", "--head", head, "--key", "key.pem"]);
    }
    house.does(&["audit", "verify"]);
    // The signature is in a standard format: see docs/audit.md.
    let line = fs::read_to_string(house.path("head.json")).unwrap();
    let (text, signature) = line.trim_end().split_once(",\"signature\":\"").unwrap();
    fs::write(house.path("text"), format!("{text}}}")).unwrap();
    fs::write(house.path("signature.b64"), signature.trim_end_matches("\"}")).unwrap();
    house.openssl(&["base64", "-d", "-A", "-in", "signature.b64", "-out", "signature"]);
    let verify = [
        "pkeyutl",
        "-verify",
        "-pubin",
        "-inkey",
        "key.pem",
        "-rawin",
        "-in",
        "text",
        "-sigfile",
        "signature",
    ];
    assert!(house.openssl(&verify).contains("Successfully"));

    assert_eq!(house.stop(), Some(0));
    rewrite(&house, &exported);
    house.start();
    print(&house, &["audit", "export"], "audit.jsonl");
    house.does(&["audit", "verify", "--export", "audit.jsonl"]);
    let with_head = ["audit", "verify", "--export", "audit.jsonl", "--head", &heads, "--key", "key.pem"];
    for arguments in [&["audit", "verify"][..], &with_head] {
        let found = run(&mut house.bulla(arguments));
        assert_eq!(found.status.code(), Some(1), "{arguments:?}: {}", describe(&found));
    }
    assert_eq!(house.stop(), Some(0));
}
