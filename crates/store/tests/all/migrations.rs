//! Migrations are frozen: databases in use keep the checksum of each that was applied, and refuse another.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Lines of `sha256sum`: a checksum, two spaces, a path.
fn listed(text: &str) -> BTreeMap<String, String> {
    let entry = |line: &str| line.split_once("  ").map(|(sum, path)| (path.to_owned(), sum.to_owned()));
    text.lines().filter_map(entry).collect()
}

/// How the files differ from the list.
fn faults(listed: &BTreeMap<String, String>, found: &BTreeMap<String, String>) -> Vec<String> {
    let names: BTreeSet<&String> = listed.keys().chain(found.keys()).collect();
    let fault = |name: &String| match (listed.get(name), found.get(name)) {
        (Some(before), Some(now)) if before == now => None,
        (Some(_), Some(_)) => Some(format!("{name} was changed: undo it, and append a migration")),
        (Some(_), None) => Some(format!("{name} is missing")),
        (None, _) => Some(format!("{name} is not listed: add its line with `sha256sum {name}`")),
    };
    names.into_iter().filter_map(fault).collect()
}

#[test]
fn migrations_are_those_listed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let mut found = BTreeMap::new();
    for dialect in ["postgres", "sqlite"] {
        for entry in fs::read_dir(folder.join(dialect)).unwrap() {
            let path = entry.unwrap().path();
            let name = format!("{dialect}/{}", path.file_name().unwrap().to_str().unwrap());
            found.insert(name, db::hex(&db::sha256(&fs::read(&path).unwrap())));
        }
    }
    let list = fs::read_to_string(folder.join("SHA256SUMS")).unwrap();
    let faults = faults(&listed(&list), &found);
    assert!(faults.is_empty(), "crates/store/migrations/SHA256SUMS: {}", faults.join("; "));
}

#[test]
fn a_migration_that_was_changed_removed_or_added_is_noticed() {
    let list = listed("a1  sqlite/0001_a.sql\nb2  sqlite/0002_b.sql\n");
    assert_eq!(faults(&list, &list), [""; 0]);
    let found = listed("a9  sqlite/0001_a.sql\nc3  sqlite/0003_c.sql\n");
    let faults = faults(&list, &found);
    assert_eq!(faults.len(), 3);
    for (fault, part) in
        faults.iter().zip(["0001_a.sql was changed", "0002_b.sql is missing", "0003_c.sql is not"])
    {
        assert!(fault.contains(part), "{fault}");
    }
}
