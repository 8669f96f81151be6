//! The tests that `docs/places.md` and `SECURITY.md` name exist.

use std::collections::HashSet;

use crate::{assert_none, files_below, read, root};

const PAGE: &str = "docs/places.md";
const SECURITY: &str = "SECURITY.md";

/// Configuration keys of [`SECURITY`] that look like the name of a test.
const KEYS: [&str; 1] = ["client_ca_files"];

/// Returns the paths of tests or modules in a row of the table of failures: spans such as `sites::delays::trace_shows_which_stage_is_slow`.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let spans = line.split('`').skip(1).step_by(2);
    spans.filter(|span| {
        span.contains("::") && span.chars().all(|c| c.is_ascii_alphanumeric() || "_:…".contains(c))
    })
}

/// Returns the names of functions with the attribute of a test.
fn tests(source: &str) -> impl Iterator<Item = &str> {
    let after = source.split("test").skip(1).filter(|rest| rest.starts_with("]") || rest.starts_with("("));
    after.filter_map(|rest| {
        let (_, rest) = rest.split_once("fn ")?;
        rest.split(['(', '<']).next()
    })
}

#[test]
fn tests_named_in_the_table_of_failures_exist() {
    let mut known: HashSet<String> = HashSet::new();
    for file in files_below(&root().join("crates"), &["rs"]) {
        known.extend(tests(&read(&file)).map(str::to_owned));
        // A path may also end with a module.
        known.extend(file.file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    let (mut seen, mut broken) = (0, Vec::new());
    for (at, line) in read(&root().join(PAGE)).lines().enumerate().filter(|(_, line)| line.starts_with("| "))
    {
        for path in paths(line) {
            seen += 1;
            let name = path.rsplit("::").next().unwrap_or_default();
            if !known.contains(name) {
                broken.push(format!("{PAGE}:{}: there is no test {path}", at + 1));
            }
        }
    }
    assert!(seen > 30, "only {seen} tests were found");
    assert_none(&broken);
}

/// Returns the names of tests in a line: spans of at least three words in snake case.
fn names(line: &str) -> impl Iterator<Item = &str> {
    let spans = line.split('`').skip(1).step_by(2);
    let is_name =
        |span: &&str| span.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    spans.filter(is_name).filter(|span| span.matches('_').count() > 1 && !KEYS.contains(span))
}

/// Cases for both databases have no attribute of their own: a macro calls each of them by its name.
#[test]
fn tests_named_in_the_security_page_exist() {
    let sources: Vec<String> =
        files_below(&root().join("crates"), &["rs"]).iter().map(|file| read(file)).collect();
    let functions: HashSet<&str> = sources
        .iter()
        .flat_map(|source| source.split("fn ").skip(1))
        .filter_map(|rest| rest.split(['(', '<', ',']).next())
        .collect();
    let (mut seen, mut broken) = (0, Vec::new());
    for (at, line) in read(&root().join(SECURITY)).lines().enumerate() {
        for name in names(line) {
            seen += 1;
            if !functions.contains(name) {
                broken.push(format!("{SECURITY}:{}: there is no test {name}", at + 1));
            }
        }
    }
    assert!(seen > 100, "only {seen} tests were found");
    assert_none(&broken);
}

#[test]
fn functions_with_a_test_attribute_are_found() {
    let source = "#[tokio::test(flavor = \"x\")]\nasync fn one() {}\nfn helper() {}\n#[test]\nfn two() {}\n";
    assert_eq!(tests(source).collect::<Vec<_>>(), ["one", "two"]);
    let line = "| 1 | a | `sites::delays::x_y`, `flow`: `a b::c` | b |";
    assert_eq!(paths(line).collect::<Vec<_>>(), ["sites::delays::x_y"]);
    let line =
        "denied (tests `a_b_c`, `d_e_f1`), by `server.a_b_c`, `deny`, `client_ca_files` and `two_words`";
    assert_eq!(names(line).collect::<Vec<_>>(), ["a_b_c", "d_e_f1"]);
}
