//! The house rules that review would otherwise repeat (ARCHITECTURE.md, "The floors").
//!
//! Reads the workspace as text, so it holds for code that is switched off by a feature too.

mod circles;
mod habits;
mod metrics;
mod prose;
mod source;

use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

/// Floor of each crate. A crate may import from lower floors only, so never sideways and never in a circle.
const FLOORS: &[(&str, u8)] = &[
    // Every crate may declare its enums with it.
    ("coded", 0),
    ("api", 1),
    ("x509", 1),
    ("flight", 1),
    ("batch", 1),
    ("telemetry", 1),
    ("sandbox", 1),
    ("inbound", 1),
    ("db", 2),
    ("events", 2),
    ("keys", 2),
    ("outbound", 2),
    // The simulated estate that tests and demos scan.
    ("fleet", 2),
    ("client", 3),
    ("web_console", 3),
    ("http_relay", 3),
    ("keyless", 3),
    ("scan", 3),
    ("store", 3),
    // Verified without a database, by the commands too.
    ("audit_proof", 3),
    // What tests share.
    ("testbed", 4),
    ("authority", 4),
    ("callout", 4),
    ("cli", 4),
    ("clouds", 4),
    // The SDKs of clouds; only the binary imports them.
    ("cloud_apis", 8),
    ("ct", 4),
    ("edge", 4),
    ("proxy", 4),
    // A library for other programs, which nothing here imports.
    ("pkcs11-module", 4),
    ("alerts", 5),
    ("audit", 5),
    ("credentials", 5),
    ("enrollment", 5),
    ("inventory", 5),
    ("issuers", 5),
    ("signer", 5),
    ("agent", 6),
    ("sites", 6),
    ("lifecycle", 7),
    ("server", 8),
    ("bulla", 9),
];

/// Crates that may carry the simulated world in what they ship (`bulla fleet up`, `scan --demo`). Tests of
/// any crate may use it.
const SHIPS_FLEET: &[&str] = &["bulla"];

/// Crates with unsafe code, and the one folder of each that it stands in: what C calls, and what only some processors can do.
const UNSAFE: &[(&str, &str)] = &[("pkcs11-module", "src/ffi"), ("batch", "src/avx512")];

/// Request and response types outside `api`: they hold types of the domain. The list gets shorter, never longer.
const SCHEMAS_ELSEWHERE: &[&str] = &["AssignmentView"];

/// Crates whose public futures are boxed: the rooms that others await.
const BOXED: &[&str] = &[
    "agent",
    "alerts",
    "audit",
    "authority",
    "callout",
    "client",
    "cloud_apis",
    "clouds",
    "credentials",
    "ct",
    "db",
    "edge",
    "enrollment",
    "inventory",
    "issuers",
    "keyless",
    "lifecycle",
    "outbound",
    "proxy",
    "scan",
    "signer",
    "sites",
    "store",
];

/// Public futures that stay unboxed: the attribute cannot name a lifetime that their bodies need.
const UNBOXED: &[&str] = &["check_all", "credential_ca"];

/// Only `db` links a database driver; `store` has its tests use one.
const DATABASE_DRIVERS: &[&str] = &["rusqlite", "tokio-postgres", "postgres", "sqlx", "diesel"];

/// Lines. A longer file holds more than one noun of the domain; cut it where the nouns part.
const FILE_LINES_MAX: usize = 900;

/// What `x509` must not reach for: it is a pure function of bytes and of the instant it is given.
const IMPURE: &[&str] = &[
    "SystemTime::now",
    "Instant::now",
    "Timestamp::now",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "std::fs",
    "std::env",
    "tokio::",
];

#[test]
fn every_crate_has_a_floor_and_every_floor_a_crate() {
    let mut found: Vec<String> = crates().into_iter().map(|c| c.name).collect();
    let mut named: Vec<String> = FLOORS.iter().map(|(name, _)| (*name).to_owned()).collect();
    found.sort();
    named.sort();
    assert_eq!(
        found, named,
        "add a new crate to FLOORS here, to ARCHITECTURE.md and to docs/internals/crates.md"
    );
}

#[test]
fn imports_run_downwards_only() {
    let mut broken = Vec::new();
    for krate in crates() {
        let Some(own) = floor(&krate.name) else { continue };
        for dependency in krate.dependencies(&["dependencies", "build-dependencies"]) {
            match floor(&dependency) {
                Some(other) if other >= own => {
                    broken.push(format!("{} (floor {own}) imports {dependency} (floor {other})", krate.name));
                }
                _ => {}
            }
            if dependency == "fleet" && !SHIPS_FLEET.contains(&krate.name.as_str()) {
                broken.push(format!("{} ships fleet; it may be a dev-dependency only", krate.name));
            }
            if dependency == "testbed" {
                broken.push(format!("{} ships testbed; it may be a dev-dependency only", krate.name));
            }
        }
    }
    assert_none(&broken);
}

/// No file imports itself through others of its crate.
#[test]
fn files_of_a_crate_import_in_no_circle() {
    let mut broken = Vec::new();
    for krate in crates() {
        let found = circles::circles_below(&krate.folder.join("src"));
        broken.extend(found.into_iter().map(|circle| format!("{}: {circle}", krate.name)));
    }
    assert_none(&broken);
}

#[test]
fn tests_import_downwards_or_what_tests_share() {
    let mut broken = Vec::new();
    for krate in crates() {
        let Some(own) = floor(&krate.name) else { continue };
        for dependency in krate.dependencies(&["dev-dependencies"]) {
            let lower = floor(&dependency).is_none_or(|other| other < own);
            if !lower && !["fleet", "testbed"].contains(&dependency.as_str()) {
                broken.push(format!("tests of {} import {dependency}", krate.name));
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn every_crate_follows_the_workspace() {
    let mut broken = Vec::new();
    for krate in crates() {
        if !is_true(krate.manifest.get("lints"), "workspace") && !krate.has_unsafe_code() {
            broken.push(format!("{}: needs [lints] workspace = true", krate.name));
        }
        let package = krate.manifest.get("package");
        for key in ["version", "edition", "rust-version", "license", "publish"] {
            if !is_true(package.and_then(|p| p.get(key)), "workspace") {
                broken.push(format!("{}: needs {key}.workspace = true", krate.name));
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn unsafe_code_is_forbidden_but_where_it_must_be() {
    let workspace = manifest(&root().join("Cargo.toml"));
    let lints = |table: Option<&Value>| {
        let mut lints = table.and_then(Value::as_table).cloned().unwrap_or_default();
        let unsafe_code =
            lints.get_mut("rust").and_then(Value::as_table_mut).and_then(|rust| rust.remove("unsafe_code"));
        (lints, unsafe_code.and_then(|level| level.as_str().map(str::to_owned)))
    };
    let (usual, unsafe_code) = lints(workspace.get("workspace").and_then(|w| w.get("lints")));
    assert_eq!(unsafe_code.as_deref(), Some("forbid"));
    let mut broken = Vec::new();
    for krate in crates().iter().filter(|krate| krate.has_unsafe_code()) {
        // The same in everything else, and each block says why it is sound.
        let (mut own, unsafe_code) = lints(krate.manifest.get("lints"));
        let clippy = own.get_mut("clippy").and_then(Value::as_table_mut);
        let blocks = clippy.and_then(|clippy| clippy.remove("undocumented_unsafe_blocks"));
        if own != usual || unsafe_code.as_deref() != Some("deny") || blocks.is_none() {
            broken.push(format!("{}: its lints are not the workspace's", krate.name));
        }
        let folder = UNSAFE.iter().find(|(name, _)| *name == krate.name).map(|(_, folder)| *folder);
        let allowed = krate.folder.join(folder.unwrap_or_default());
        for file in files_below(&krate.folder.join("src"), &["rs"]) {
            if !file.starts_with(&allowed) && read(&file).contains("allow(unsafe_code") {
                broken.push(format!("{}: unsafe code stands in {}", shown(&file), shown(&allowed)));
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn sql_stays_in_db_store_and_tables_and_drivers_in_db() {
    let mut broken = Vec::new();
    for krate in crates().into_iter().filter(|c| c.name != "db") {
        for dependency in krate.dependencies(&["dependencies", "build-dependencies"]) {
            if DATABASE_DRIVERS.contains(&dependency.as_str()) {
                broken.push(format!("{} depends on {dependency}", krate.name));
            }
        }
        if krate.name == "store" {
            continue;
        }
        let tables = krate.folder.join("src/tables");
        let files = files_below(&krate.folder.join("src"), &["rs"]);
        for file in files.iter().filter(|file| !file.starts_with(&tables)) {
            for (number, line) in read(file).lines().enumerate() {
                if is_sql(line) {
                    broken.push(format!("{}:{}: SQL: {}", shown(file), number + 1, line.trim()));
                }
            }
        }
    }
    assert_none(&broken);
}

/// A statement that no test prepares fails in production first.
#[test]
fn every_crate_with_tables_prepares_its_statements() {
    let has_tables = |krate: &Crate| krate.name == "store" || krate.folder.join("src/tables").is_dir();
    let prepares = |krate: &Crate| {
        let files = files_below(&krate.folder.join("tests"), &["rs"]);
        let call = format!("{}::tables::STATEMENTS", krate.name).replace("store::tables::", "store::");
        files.iter().any(|file| read(file).contains("check_statements(") && read(file).contains(&call))
    };
    let broken: Vec<String> = crates()
        .iter()
        .filter(|krate| has_tables(krate) && !prepares(krate))
        .map(|krate| format!("{}: test its statements with testbed::check_statements", krate.name))
        .collect();
    assert_none(&broken);
}

/// A column that the rotation of the master key does not know would be lost with the old key.
#[test]
fn every_sealed_column_is_known_to_the_rotation() {
    let sources = |krate: &Crate| files_below(&krate.folder.join("src"), &["rs"]);
    let all: Vec<String> = crates().iter().flat_map(sources).map(|file| read(&file)).collect();
    let columns: Vec<&str> = all
        .iter()
        .flat_map(|text| text.lines())
        .filter_map(|line| {
            line.trim().strip_prefix("pub const ")?.split_once(": SealedColumn").map(|(name, _)| name)
        })
        .collect();
    assert!(columns.len() >= 5, "the rule sees {columns:?} only");
    let known = |name: &&&str| {
        all.iter().flat_map(|text| text.lines()).any(|line| {
            let registers = line.contains("also_sealed(&") || line.contains("columns: RwLock::new(");
            registers && line.contains(**name)
        })
    };
    let broken: Vec<String> = columns
        .iter()
        .filter(|name| !known(name))
        .map(|name| format!("{name}: call KeyStore::also_sealed with it"))
        .collect();
    assert_none(&broken);
}

/// A field of the API has one definition, which the server and its clients share.
#[test]
fn request_and_response_types_are_defined_in_api() {
    let elsewhere = crates().into_iter().filter(|krate| krate.name != "api");
    let files = elsewhere.flat_map(|krate| files_below(&krate.folder.join("src"), &["rs"]));
    let mut found: Vec<String> = files.flat_map(|file| habits::schemas(&read(&file))).collect();
    found.sort();
    assert_eq!(found, SCHEMAS_ELSEWHERE, "define the type in crates/api, or take it off SCHEMAS_ELSEWHERE");
}

/// A kind and its body come from the types of crate `events`.
#[test]
fn events_are_built_in_one_place() {
    let mut broken = Vec::new();
    for krate in crates() {
        for file in files_below(&krate.folder.join("src"), &["rs"]) {
            let names_the_type = ["struct NewEvent", "-> NewEvent", "for NewEvent"];
            let builds = |line: &str| {
                line.contains("NewEvent {") && !names_the_type.iter().any(|mark| line.contains(mark))
            };
            if !file.ends_with("store/src/events.rs") && read(&file).lines().any(builds) {
                broken.push(format!("{} builds a NewEvent; call store::new_event", shown(&file)));
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn x509_has_no_clock_and_no_io() {
    let mut broken = Vec::new();
    for file in files_below(&root().join("crates/x509/src"), &["rs"]) {
        // Unit tests may read files and ask the time; they stand in tests.rs or below the first cfg(test).
        if file.file_name().is_some_and(|name| name == "tests.rs") || file.iter().any(|part| part == "tests")
        {
            continue;
        }
        let text = read(&file);
        let shipped = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (number, line) in shipped.lines().enumerate() {
            for word in
                IMPURE.iter().filter(|word| line.contains(**word) && !line.trim_start().starts_with("//"))
            {
                broken.push(format!("{}:{}: {word}", shown(&file), number + 1));
            }
        }
    }
    assert_none(&broken);
}

/// Limits, pauses, drains and aborts of connections are `inbound`'s, written once.
#[test]
fn only_inbound_accepts_connections() {
    let mut broken = Vec::new();
    for krate in crates().iter().filter(|krate| krate.name != "inbound") {
        for file in files_below(&krate.folder.join("src"), &["rs"]) {
            let text = read(&file);
            let shipped = text.split("#[cfg(test)]").next().unwrap_or_default();
            let is_test = file.iter().any(|part| part == "tests" || part == "tests.rs");
            if !is_test && shipped.contains("listener.accept()") {
                broken.push(format!("{}: use inbound::Acceptor", shown(&file)));
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn files_stay_short_enough_to_hold_in_mind() {
    let mut broken = Vec::new();
    for folder in ["crates", "fuzz"] {
        for file in files_below(&root().join(folder), &["rs"]) {
            let text = read(&file);
            // What a generator writes nobody has to hold in mind: a test makes it again and compares.
            let lines = text.lines().count();
            if lines > FILE_LINES_MAX && !is_generated(&text) {
                broken.push(format!("{}: {lines} lines, at most {FILE_LINES_MAX}", shown(&file)));
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn documents_link_to_files_that_exist() {
    let mut documents = files_below(&root().join("docs"), &["md"]);
    documents.extend(
        entries(&root())
            .into_iter()
            .filter(|path| path.extension().is_some_and(|extension| extension == "md")),
    );
    assert!(documents.len() >= 5, "found {documents:?}");
    let mut broken = Vec::new();
    for document in documents {
        for link in relative_links(&read(&document)) {
            if !document.parent().unwrap().join(&link).exists() {
                broken.push(format!("{}: links to {link}", shown(&document)));
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn the_map_shows_every_crate() {
    let map = read(&root().join("ARCHITECTURE.md"));
    let table = read(&root().join("docs/internals/crates.md"));
    let is_shown =
        |name: &String| map.contains(&format!("`{name}`:")) && table.contains(&format!("| `{name}`"));
    let missing: Vec<String> = crates().into_iter().map(|c| c.name).filter(|name| !is_shown(name)).collect();
    assert_none(&missing);
}

/// Words of the map: a page that is read in one sitting.
const MAP_WORDS_MAX: usize = 2_000;

#[test]
fn the_map_stays_short() {
    let words = read(&root().join("ARCHITECTURE.md")).split_whitespace().count();
    assert!(words <= MAP_WORDS_MAX, "ARCHITECTURE.md has {words} words: move a topic to docs/internals");
}

/// A journey that names a file that is gone leads nowhere.
#[test]
fn the_map_names_files_that_exist() {
    for page in ["ARCHITECTURE.md", "docs/internals/crates.md", "docs/internals/own-code.md"] {
        assert_none(&habits::files_missing(&read(&root().join(page)), &root().join("crates")));
    }
}

#[test]
fn a_lint_is_switched_off_with_a_reason() {
    let mut broken = Vec::new();
    for file in files_below(&root().join("crates"), &["rs"]) {
        let text = read(&file);
        if !is_generated(&text) {
            let lines = habits::allowed_without_reason(&text);
            broken.extend(lines.into_iter().map(|line| format!("{}:{line}: give a reason", shown(&file))));
        }
    }
    assert_none(&broken);
}

/// Functions whose `bool` is what they are about, each with what it is.
const BOOLS: &[(&str, &str)] = &[
    ("audit_if", "whether the audited change took place"),
    ("boolean", "the value that is encoded"),
    ("link", "whether the peer keeps the connection"),
    ("reloaded", "whether the new rules are in use"),
];

#[test]
fn public_functions_take_no_bare_bool() {
    let mut broken = Vec::new();
    for krate in crates() {
        for file in files_below(&krate.folder.join("src"), &["rs"]) {
            let text = read(&file);
            let names = habits::taking_bools(&text).into_iter();
            let names =
                names.filter(|name| !is_generated(&text) && BOOLS.iter().all(|(known, _)| known != name));
            broken.extend(
                names.map(|name| format!("{}: {name} takes a bool: name its two cases", shown(&file))),
            );
        }
    }
    assert_none(&broken);
}

/// The code of an async function is compiled where it is awaited, so once more in each crate above, unless it is boxed.
#[test]
fn public_futures_of_rooms_are_boxed() {
    let mut broken = Vec::new();
    for krate in crates().iter().filter(|krate| BOXED.contains(&krate.name.as_str())) {
        for file in files_below(&krate.folder.join("src"), &["rs"]) {
            if file.iter().any(|part| part == "tests" || part == "tests.rs") {
                continue;
            }
            let names =
                habits::unboxed(&read(&file)).into_iter().filter(|name| !UNBOXED.contains(&name.as_str()));
            broken.extend(names.map(|name| format!("{}: {name} needs #[crate::boxed]", shown(&file))));
        }
    }
    assert_none(&broken);
}

#[test]
fn the_workspace_names_no_dependency_that_nobody_uses() {
    let workspace = manifest(&root().join("Cargo.toml"));
    let named = workspace["workspace"]["dependencies"].as_table().expect("a table");
    let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
    let manifests =
        crates().into_iter().map(|krate| krate.manifest).chain([manifest(&root().join("xtask/Cargo.toml"))]);
    let used: Vec<String> = manifests
        .flat_map(|manifest| {
            let targets = manifest.get("target").and_then(Value::as_table).cloned().unwrap_or_default();
            let tables = std::iter::once(manifest)
                .chain(targets.values().filter_map(Value::as_table).cloned().collect::<Vec<_>>());
            tables
                .flat_map(|table| {
                    kinds.iter().filter_map(|kind| table.get(*kind)?.as_table().cloned()).collect::<Vec<_>>()
                })
                .flat_map(|table| table.keys().cloned().collect::<Vec<_>>())
                .collect::<Vec<_>>()
        })
        .collect();
    assert_none(&habits::unused_dependencies(named.keys(), &used));
}

/// The rules above are only worth something if they can fail.
#[test]
fn the_rules_see_what_they_look_for() {
    for (line, expected) in [
        (r#"let q = "SELECT id FROM certificates";"#, true),
        (r#"    "INSERT INTO endpoints (a) VALUES (?1)","#, true),
        (r#"tx.execute("DELETE FROM scans", &[])"#, true),
        (r#"tx.execute("UPDATE scans SET finished = 1", &[])"#, true),
        (r#""CREATE TABLE t (id INTEGER)""#, true),
        (r"// select a server from the list", false),
        (r#"hint: "update the certificate and set its SAN""#, false),
    ] {
        assert_eq!(is_sql(line), expected, "{line}");
    }
    assert_eq!(
        relative_links("[a](docs/a.md) [b](https://b.example/) [c](#c) ![d](../d.svg#x) `x[0](y)`"),
        ["docs/a.md", "../d.svg", "y"],
    );
    let table: Table = toml::from_str(
        "[dependencies]\na.workspace = true\nb = { package = \"real\", version = \"1\" }\n\
         [target.'cfg(unix)'.dependencies]\nc = \"1\"\n[dev-dependencies]\nd = \"1\"\n",
    )
    .unwrap();
    let krate = Crate { name: "t".to_owned(), folder: PathBuf::new(), manifest: table };
    assert_eq!(krate.dependencies(&["dependencies"]), ["a", "real", "c"]);
}

struct Crate {
    name: String,
    folder: PathBuf,
    manifest: Table,
}

impl Crate {
    fn has_unsafe_code(&self) -> bool {
        UNSAFE.iter().any(|(name, _)| *name == self.name)
    }

    /// Names of the packages in the given tables, those for a target only included, aliases resolved.
    fn dependencies(&self, kinds: &[&str]) -> Vec<String> {
        let targets = self.manifest.get("target").and_then(Value::as_table);
        let per_target = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
        let mut names = Vec::new();
        for table in std::iter::once(&self.manifest).chain(per_target) {
            for kind in kinds {
                for (alias, value) in table.get(*kind).and_then(Value::as_table).into_iter().flatten() {
                    let package = value.get("package").and_then(Value::as_str);
                    names.push(package.unwrap_or(alias).to_owned());
                }
            }
        }
        names
    }
}

/// Every crate but `workspace-hack`, which holds no code.
fn crates() -> Vec<Crate> {
    let folders = entries(&root().join("crates")).into_iter().filter(|path| path.join("Cargo.toml").exists());
    let folders = folders.filter(|path| path.file_name().is_some_and(|name| name != "workspace-hack"));
    let mut crates: Vec<Crate> = folders
        .map(|folder| {
            let manifest = manifest(&folder.join("Cargo.toml"));
            let name = manifest["package"]["name"].as_str().expect("a package has a name").to_owned();
            Crate { name, folder, manifest }
        })
        .collect();
    crates.sort_by(|a, b| a.name.cmp(&b.name));
    crates
}

fn floor(name: &str) -> Option<u8> {
    FLOORS.iter().find(|(known, _)| *known == name).map(|(_, floor)| *floor)
}

/// Whether a generator wrote the file.
fn is_generated(text: &str) -> bool {
    text.lines().next().is_some_and(|line| line.contains("@generated by prost-build"))
}

/// Keywords are written in capitals in this project, which tells SQL from prose.
fn is_sql(line: &str) -> bool {
    let pairs = [("SELECT ", " FROM "), ("UPDATE ", " SET ")];
    let starts =
        ["INSERT INTO ", "DELETE FROM ", "CREATE TABLE ", "CREATE INDEX ", "ALTER TABLE ", "PRAGMA "];
    pairs.iter().any(|(first, then)| line.split_once(first).is_some_and(|(_, rest)| rest.contains(then)))
        || starts.iter().any(|start| line.contains(start))
}

/// Targets of Markdown links that point into the repository, without their fragment.
fn relative_links(markdown: &str) -> Vec<String> {
    markdown
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .map(|target| target.split('#').next().unwrap_or_default().to_owned())
        .filter(|target| !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:"))
        .collect()
}

fn is_true(table: Option<&Value>, key: &str) -> bool {
    table.and_then(|t| t.get(key)).and_then(Value::as_bool) == Some(true)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(1).expect("the folder above is the root").to_owned()
}

fn manifest(path: &Path) -> Table {
    toml::from_str(&read(path)).unwrap_or_else(|error| panic!("{}: {error}", shown(path)))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", shown(path)))
}

/// Path from the root of the repository, as a person would say it.
fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let listing = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", shown(folder)));
    listing.map(|entry| entry.expect("a readable folder").path()).collect()
}

/// Files with one of the extensions, at any depth; build folders and a folder that is not there hold none.
fn files_below(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    if !folder.is_dir() || folder.file_name().is_some_and(|name| name == "target") {
        return Vec::new();
    }
    let mut files = Vec::new();
    for path in entries(folder) {
        if path.is_dir() {
            files.extend(files_below(&path, extensions));
        } else if path.extension().is_some_and(|found| extensions.iter().any(|wanted| found == *wanted)) {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn assert_none(broken: &[String]) {
    assert!(broken.is_empty(), "{} broken:\n  {}", broken.len(), broken.join("\n  "));
}
