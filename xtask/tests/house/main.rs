//! Architecture rules that reviewers would otherwise have to check (ARCHITECTURE.md, "The floors").
//!
//! The checks read the workspace as text, so they also cover code behind disabled features.

mod book;
mod circles;
mod features;
mod habits;
mod metric_reference;
mod metrics;
mod named_tests;
mod problems;
mod prose;
mod source;

use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

/// Floor of each crate. A crate may import only from lower floors, so neither from its own floor nor in a cycle.
const FLOORS: &[(&str, u8)] = &[
    // Every crate may use it for its enums.
    ("coded", 0),
    ("shared", 0),
    ("api", 1),
    ("x509", 1),
    ("webauthn", 1),
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
    // Verified without a database, also by commands.
    ("audit_proof", 3),
    // Shared test code.
    ("testbed", 4),
    ("authority", 4),
    ("callout", 4),
    ("cli", 4),
    ("clouds", 4),
    // Cloud SDKs; only the binary imports them.
    ("cloud_apis", 8),
    ("ct", 4),
    ("edge", 4),
    ("proxy", 4),
    // A library for other programs, which no crate here imports.
    ("pkcs11-module", 4),
    ("alerts", 5),
    ("audit", 5),
    ("credentials", 5),
    ("enrollment", 5),
    ("inventory", 5),
    ("issuers", 5),
    ("signer", 5),
    // `scan`, `inventory`: their own small binary.
    ("discover", 6),
    ("agent", 6),
    ("sites", 6),
    ("lifecycle", 7),
    ("server", 8),
    ("bulla", 9),
];

/// Crates that may ship the simulated world (`bulla fleet up`, `scan --demo`). Tests of any crate may use it.
const SHIPS_FLEET: &[&str] = &["bulla", "discover"];

/// Crates with unsafe code, and the only folder of each that may contain it: the C interface, and code for particular processors.
const UNSAFE: &[(&str, &str)] = &[("pkcs11-module", "src/ffi"), ("batch", "src/avx512")];

/// Request and response types outside `api`: they contain domain types. The list may only get shorter.
const SCHEMAS_ELSEWHERE: &[&str] = &["AssignmentView"];

/// Crates whose public futures are boxed, because other crates await them.
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

/// Public futures that stay unboxed, because the attribute cannot name a lifetime that their bodies need.
const UNBOXED: &[&str] = &["check_all", "credential_ca"];

/// Only `db` links a database driver. The tests of `store` may use one.
const DATABASE_DRIVERS: &[&str] = &["rusqlite", "tokio-postgres", "postgres", "sqlx", "diesel"];

/// Maximum lines per file. A longer file covers more than one domain concept: split it by concept.
const FILE_LINES_MAX: usize = 900;

/// Names that `x509` must not use: its functions depend only on bytes and on the given time.
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
fn floors_list_matches_the_workspace_crates() {
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
fn crates_import_from_lower_floors_only() {
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

/// No file imports itself through other files of its crate.
#[test]
fn files_of_a_crate_have_no_import_cycles() {
    let mut broken = Vec::new();
    for krate in crates() {
        let found = circles::circles_below(&krate.folder.join("src"));
        broken.extend(found.into_iter().map(|circle| format!("{}: {circle}", krate.name)));
    }
    assert_none(&broken);
}

#[test]
fn tests_import_from_lower_floors_or_shared_test_crates_only() {
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
fn every_crate_inherits_workspace_settings() {
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

/// `print_rows` and `Listing` apply `--query`; a printer of its own would ignore it.
#[test]
fn commands_print_rows_with_the_function_that_applies_the_query() {
    let mut broken = Vec::new();
    for file in files_below(&root().join("crates/cli/src/control"), &["rs"]) {
        if read(&file).contains("Printer::new") {
            broken.push(format!("{}: print rows with print_rows, Listing or ShortListing", shown(&file)));
        }
    }
    assert_none(&broken);
}

/// A run of rustdoc takes seconds a crate, so the crates without examples in their comments skip it.
#[test]
fn crates_test_the_examples_in_their_comments_if_they_have_any() {
    let mut broken = Vec::new();
    for one in crates() {
        let library = one.folder.join("src/lib.rs");
        if !library.exists() {
            continue;
        }
        let tests = one.manifest.get("lib").and_then(|lib| lib.get("doctest")).and_then(Value::as_bool)
            != Some(false);
        let has_examples =
            files_below(&one.folder.join("src"), &["rs"]).iter().any(|file| has_doc_example(&read(file)));
        if tests != has_examples {
            let why = if tests {
                "no example: add `doctest = false` to [lib]"
            } else {
                "examples: remove `doctest = false`"
            };
            broken.push(format!("{}: the comments have {why}", one.name));
        }
    }
    assert_none(&broken);
}

/// Returns whether comments contain a fence that rustdoc compiles. Each second fence is the end of a block.
fn has_doc_example(text: &str) -> bool {
    let lines = text.lines().map(str::trim_start);
    let fences =
        lines.filter_map(|line| line.strip_prefix("/// ```").or_else(|| line.strip_prefix("//! ```")));
    fences.step_by(2).any(|language| language != "text")
}

#[test]
fn unsafe_code_is_forbidden_outside_listed_crates() {
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
        // All other lints equal the workspace's, and each unsafe block documents why it is sound.
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
fn only_db_store_and_tables_contain_sql_and_only_db_links_drivers() {
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

/// A statement that no test prepares would fail first in production.
#[test]
fn every_crate_with_tables_tests_its_statements() {
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

/// A column unknown to master key rotation would be lost with the old key.
#[test]
fn every_sealed_column_is_registered_for_rotation() {
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
            let registers =
                line.contains("register_sealed_column(&") || line.contains("columns: RwLock::new(");
            registers && line.contains(**name)
        })
    };
    let broken: Vec<String> = columns
        .iter()
        .filter(|name| !known(name))
        .map(|name| format!("{name}: call KeyStore::register_sealed_column with it"))
        .collect();
    assert_none(&broken);
}

/// Each field of the API has one definition, shared by the server and its clients.
#[test]
fn request_and_response_types_are_defined_in_api() {
    let elsewhere = crates().into_iter().filter(|krate| krate.name != "api");
    let files = elsewhere.flat_map(|krate| files_below(&krate.folder.join("src"), &["rs"]));
    let mut found: Vec<String> = files.flat_map(|file| habits::schemas(&read(&file))).collect();
    found.sort();
    assert_eq!(found, SCHEMAS_ELSEWHERE, "define the type in crates/api, or take it off SCHEMAS_ELSEWHERE");
}

/// The event kind and its body come from the types of crate `events`.
#[test]
fn only_store_builds_new_events() {
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
fn x509_uses_no_clock_and_no_io() {
    let mut broken = Vec::new();
    for file in files_below(&root().join("crates/x509/src"), &["rs"]) {
        // Unit tests may read files and the clock. They are in tests.rs or below the first cfg(test).
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

/// Limits, timeouts, draining and aborting of connections are implemented once, in `inbound`.
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
fn source_files_stay_below_the_line_limit() {
    let mut broken = Vec::new();
    for folder in ["crates", "fuzz"] {
        for file in files_below(&root().join(folder), &["rs"]) {
            let text = read(&file);
            // Generated files are exempt: a test regenerates and compares them.
            let lines = text.lines().count();
            if lines > FILE_LINES_MAX && !is_generated(&text) {
                broken.push(format!("{}: {lines} lines, at most {FILE_LINES_MAX}", shown(&file)));
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn architecture_docs_list_every_crate() {
    let map = read(&root().join("ARCHITECTURE.md"));
    let table = read(&root().join("docs/internals/crates.md"));
    let is_shown =
        |name: &String| map.contains(&format!("`{name}`:")) && table.contains(&format!("| `{name}`"));
    let missing: Vec<String> = crates().into_iter().map(|c| c.name).filter(|name| !is_shown(name)).collect();
    assert_none(&missing);
}

/// Maximum words of ARCHITECTURE.md, so that it can be read in one sitting.
const MAP_WORDS_MAX: usize = 2_000;

#[test]
fn architecture_doc_stays_below_the_word_limit() {
    let words = read(&root().join("ARCHITECTURE.md")).split_whitespace().count();
    assert!(words <= MAP_WORDS_MAX, "ARCHITECTURE.md has {words} words: move a topic to docs/internals");
}

/// The walkthroughs in the docs must not name missing files.
#[test]
fn architecture_docs_name_existing_files() {
    for page in ["ARCHITECTURE.md", "docs/internals/crates.md", "docs/internals/own-code.md"] {
        assert_none(&habits::files_missing(&read(&root().join(page)), &root().join("crates")));
    }
}

#[test]
fn every_disabled_lint_has_a_reason() {
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

/// Functions that may take a `bool`, each with its reason.
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

/// The code of an async function is compiled where it is awaited, so again in each importing crate, unless it is boxed.
#[test]
fn public_futures_of_listed_crates_are_boxed() {
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
fn workspace_has_no_unused_dependencies() {
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

/// The rules above are only useful if they can fail.
#[test]
fn architecture_checks_detect_violations() {
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

    /// Returns the names of the packages in the given tables, including target-specific ones, with aliases resolved.
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

/// Returns every crate except `workspace-hack`, which contains no code.
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

/// Returns whether the file is generated.
fn is_generated(text: &str) -> bool {
    text.lines().next().is_some_and(|line| line.contains("@generated by prost-build"))
}

/// Returns whether the line contains SQL. Keywords are upper case in this project, which distinguishes SQL from prose.
fn is_sql(line: &str) -> bool {
    let pairs = [("SELECT ", " FROM "), ("UPDATE ", " SET ")];
    let starts =
        ["INSERT INTO ", "DELETE FROM ", "CREATE TABLE ", "CREATE INDEX ", "ALTER TABLE ", "PRAGMA "];
    pairs.iter().any(|(first, then)| line.split_once(first).is_some_and(|(_, rest)| rest.contains(then)))
        || starts.iter().any(|start| line.contains(start))
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

/// Returns the path relative to the root of the repository.
fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let listing = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", shown(folder)));
    listing.map(|entry| entry.expect("a readable folder").path()).collect()
}

/// Returns files with one of the extensions, at any depth. Build folders are skipped, and a missing folder has no files.
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
