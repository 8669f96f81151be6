//! Line-by-line style checks that a reviewer would otherwise have to do.

use std::path::Path;

/// Returns the lines of a crate's sources that disable a lint without a reason. An `allow(` over several lines is read to its end.
pub(crate) fn allowed_without_reason(text: &str) -> Vec<usize> {
    let marks = ["#[allow(", "#![allow(", "#[expect(", "#![expect("];
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if !marks.iter().any(|mark| line.trim_start().starts_with(mark)) {
            continue;
        }
        let attribute: Vec<&str> = text
            .lines()
            .skip(number)
            .scan(false, |is_over, line| {
                if *is_over {
                    return None;
                }
                *is_over = line.trim_end().ends_with(")]");
                Some(line)
            })
            .collect();
        if !attribute.concat().contains("reason =") {
            found.push(number + 1);
        }
    }
    found
}

/// Returns the names of public async functions of a file whose future is not boxed, although it could be.
///
/// A function that is generic, or takes a value with an unnamed lifetime, is compiled by its callers in any case.
pub(crate) fn unboxed(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let Some(rest) = line.trim_start().strip_prefix("pub async fn ") else { continue };
        let is_boxed = number > 0 && lines[number - 1].trim_end().ends_with("boxed]");
        let signature = lines[number..].join(" ");
        let signature = signature.split('{').next().unwrap_or_default();
        let arguments = signature.split("->").next().unwrap_or_default();
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let is_generic = rest[name.len()..].starts_with('<') || arguments.contains("impl ");
        if !is_boxed && !is_generic && !takes_unnamed_lifetime(arguments) {
            found.push(name);
        }
    }
    found
}

/// Returns whether an argument with an unnamed lifetime is taken by value: `Request<'_>`, or a handle's `self`.
fn takes_unnamed_lifetime(arguments: &str) -> bool {
    let first = arguments.split_once('(').map_or("", |(_, rest)| rest.trim_start());
    first.starts_with("self") || arguments.contains("<'_>")
}

/// Returns the names of public functions of a file that take a bare `bool`, because a call shows `true` without its meaning.
///
/// In a builder `(mut self, x: bool)`, a setter `set_x(&self, x: bool)` and a writer of booleans, the name states the meaning.
pub(crate) fn taking_bools(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("pub fn ").chain(text.match_indices("pub async fn ")) {
        let signature = text[at..].split(['{', ';']).next().unwrap_or_default();
        let rest = signature.split_once("fn ").map_or("", |(_, rest)| rest);
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let arguments = rest.split("->").next().unwrap_or_default();
        let takes = arguments.contains(": bool") || arguments.contains(": Option<bool>");
        let says_it =
            name.starts_with("set_") || arguments.contains("(mut self") || arguments.contains("(self");
        if takes && !says_it {
            found.push(name);
        }
    }
    found
}

/// Returns the names of the types of a file that derive a schema of the OpenAPI description.
pub(crate) fn schemas(text: &str) -> Vec<String> {
    let derives = |line: &str| line.contains("derive(") && line.contains("ToSchema");
    let name = |line: &str| {
        let (_, rest) = line.split_once("struct ").or_else(|| line.split_once("enum "))?;
        Some(rest.chars().take_while(|c| c.is_alphanumeric()).collect())
    };
    let lines: Vec<&str> = text.lines().map(str::trim_start).filter(|line| !line.starts_with("//")).collect();
    let derive_lines = lines.iter().enumerate().filter(|(_, line)| derives(line));
    derive_lines.filter_map(|(at, _)| lines[at..].iter().find_map(|line| name(line))).collect()
}

/// Returns paths such as `scan/src/engine.rs` that a document names in backticks, but that do not exist below `crates`.
pub(crate) fn files_missing(document: &str, crates: &Path) -> Vec<String> {
    let named = document.split('`').skip(1).step_by(2);
    let paths = named.filter(|text| text.ends_with(".rs") && text.contains("/src/") && !text.contains(' '));
    paths.filter(|path| !crates.join(path).is_file()).map(str::to_owned).collect()
}

/// Returns the workspace dependencies that no crate uses.
pub(crate) fn unused_dependencies<'a>(
    named: impl Iterator<Item = &'a String>,
    used: &[String],
) -> Vec<String> {
    named.filter(|name| !used.contains(name)).cloned().collect()
}

#[test]
fn style_checks_detect_violations() {
    assert_eq!(allowed_without_reason("#[allow(dead_code)]\n#[allow(dead_code, reason = \"a\")]"), [1]);
    assert_eq!(allowed_without_reason("#[allow(\n    dead_code,\n    reason = \"a\"\n)]\nfn f() {}"), [0; 0]);
    let text = "#[crate::boxed]\npub async fn a(&self) {}\npub async fn b() {}\npub async fn c<T>(t: T) {}\n\
                pub async fn d(x: X<'_>) {}\n";
    assert_eq!(unboxed(text), ["b"]);
    let text = "pub fn a(on: bool) {}\npub fn b(\n    &self,\n    x: Option<bool>,\n) -> u8 {}\npub fn set_c(&self, on: bool) {}\n\
                pub fn d(mut self, on: bool) -> Self {}\npub fn e() -> bool {}\nfn f(on: bool) {}\n";
    assert_eq!(taking_bools(text), ["a", "b"]);
    assert_eq!(schemas("#[derive(Serialize, ToSchema)]\n#[serde(default)]\npub struct A {"), ["A"]);
    assert_eq!(files_missing("`no/src/file.rs` and `a b`", Path::new("/")), ["no/src/file.rs"]);
}
