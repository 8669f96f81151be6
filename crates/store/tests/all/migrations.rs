//! Migrations never change: databases store the checksum of each applied migration and reject any other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Parses lines of `sha256sum`: a checksum, two spaces, a path.
fn listed(text: &str) -> BTreeMap<String, String> {
    let entry = |line: &str| line.split_once("  ").map(|(sum, path)| (path.to_owned(), sum.to_owned()));
    text.lines().filter_map(entry).collect()
}

/// Returns the differences between the files and the list.
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
fn migrations_match_their_listed_checksums() {
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
fn changed_missing_and_unlisted_migrations_are_reported() {
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

/// The first schema version with rolling upgrades, during which nodes of two releases run side by side.
const ROLLING_FROM: u32 = 43;

/// Returns whether a statement can break nodes of the previous release. Statements that only expand the schema cannot.
fn contracts(statement: &str) -> bool {
    let words = statement.split_whitespace().collect::<Vec<_>>().join(" ").to_ascii_uppercase();
    let adds_column = words.starts_with("ALTER TABLE ")
        && words.contains(" ADD COLUMN ")
        && (!words.contains("NOT NULL") || words.contains("DEFAULT"))
        && !words.contains(" UNIQUE");
    let is_new = [
        "CREATE TABLE ",
        "CREATE VIRTUAL TABLE ",
        "CREATE INDEX ",
        "CREATE TRIGGER ",
        "CREATE EXTENSION ",
        "INSERT INTO ",
    ];
    let is_fill = words.starts_with("UPDATE ") || words.starts_with("COMMENT ON ");
    !(adds_column || is_fill || is_new.iter().any(|start| words.starts_with(start)))
}

/// Returns the statements of a migration without comments. `END;` ends a trigger.
fn statements(text: &str) -> Vec<String> {
    let code = |line: &str| line.split("--").next().unwrap_or_default().to_owned();
    let text = text.lines().map(code).collect::<Vec<_>>().join("\n");
    text.split(';')
        .map(|part| part.trim().to_owned())
        .filter(|part| !part.is_empty() && part != "END")
        .collect()
}

/// A migration that removes something must store the oldest compatible version.
#[test]
fn contracting_migrations_set_the_oldest_compatible_version() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    for database in ["sqlite", "postgres"] {
        for entry in fs::read_dir(folder.join(database)).unwrap() {
            let path = entry.unwrap().path();
            let number: u32 = path.file_name().unwrap().to_string_lossy()[..4].parse().unwrap();
            let text = fs::read_to_string(&path).unwrap();
            let contracting: Vec<String> =
                statements(&text).into_iter().filter(|one| contracts(one)).collect();
            assert!(
                number < ROLLING_FROM
                    || contracting.is_empty()
                    || text.contains("UPDATE schema_compatibility SET oldest"),
                "{}: nodes of the release before may fail after this; see CONTRIBUTING, add a column: {contracting:?}",
                path.display()
            );
        }
    }
    let table = [
        ("ALTER TABLE jobs ADD COLUMN note TEXT", false),
        ("ALTER TABLE jobs\n  ADD COLUMN tries BIGINT NOT NULL DEFAULT 0", false),
        ("CREATE INDEX a ON jobs (b)", false),
        ("ALTER TABLE jobs ADD COLUMN tries BIGINT NOT NULL", true),
        ("ALTER TABLE jobs DROP COLUMN note", true),
        ("ALTER TABLE jobs RENAME COLUMN note TO notes", true),
        ("DROP TABLE jobs", true),
        ("CREATE UNIQUE INDEX a ON jobs (b)", true),
        ("DELETE FROM jobs", true),
    ];
    for (statement, contracting) in table {
        assert_eq!(contracts(statement), contracting, "{statement}");
    }
}
