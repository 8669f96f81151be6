//! The tests that `docs/places.md` names exist.

use std::collections::HashSet;

use crate::{assert_none, files_below, read, root};

const PAGE: &str = "docs/places.md";

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

#[test]
fn functions_with_a_test_attribute_are_found() {
    let source = "#[tokio::test(flavor = \"x\")]\nasync fn one() {}\nfn helper() {}\n#[test]\nfn two() {}\n";
    assert_eq!(tests(source).collect::<Vec<_>>(), ["one", "two"]);
    let line = "| 1 | a | `sites::delays::x_y`, `flow`: `a b::c` | b |";
    assert_eq!(paths(line).collect::<Vec<_>>(), ["sites::delays::x_y"]);
}
