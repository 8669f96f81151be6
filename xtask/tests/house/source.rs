//! Parses a Rust source file for the rules: its imports, the names it defines, and its text without comments, strings and tests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The sources of a crate by module path; `lib.rs` is the empty path.
pub(crate) type Modules = BTreeMap<Vec<String>, Source>;

/// One file.
pub(crate) struct Source {
    /// `use` declarations, one entry per name.
    pub(crate) imports: Vec<Import>,
    /// Names of functions, types, traits, constants and macros defined here, methods included.
    pub(crate) defined: BTreeSet<String>,
    /// The text without comments, the contents of strings, `use` declarations, and code under `#[cfg(test)]`.
    pub(crate) body: String,
}

/// One imported name.
pub(crate) struct Import {
    pub(crate) path: Vec<String>,
    /// The name in this file: the last part of the path, or what follows `as`; `*` for all.
    pub(crate) alias: String,
    /// Whether it is re-exported, with any visibility.
    pub(crate) is_public: bool,
}

/// Reads every module below a crate's `src`. Folders named `tests` contain unit tests and are skipped.
pub(crate) fn modules(folder: &Path) -> Modules {
    let mut modules = Modules::new();
    for file in crate::files_below(folder, &["rs"]) {
        let relative = file.strip_prefix(folder).expect("a file below the folder").with_extension("");
        let mut module: Vec<String> =
            relative.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        if module.iter().any(|part| part == "tests") {
            continue;
        }
        if matches!(module.last().map(String::as_str), Some("mod" | "lib"))
            || module == ["main"] && !folder.join("lib.rs").exists()
        {
            module.pop();
        }
        modules.insert(module, Source::parse(&crate::read(&file)));
    }
    modules
}

impl Source {
    pub(crate) fn parse(text: &str) -> Source {
        let code = without_tests(&without_comments_and_strings(text));
        let (imports, body) = imports_and_rest(&code);
        let defined = defined_in(&body);
        Source { imports, defined, body }
    }
}

/// Returns whether `text` contains `name` as a whole word.
pub(crate) fn names(text: &str, name: &str) -> bool {
    !name.is_empty() && words_at(text, name).next().is_some()
}

/// Returns `[a, b]` for each `first::a::b` in the text. `first` must not follow `::` itself, unless it is a keyword.
pub(crate) fn paths_after(text: &str, first: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for at in words_at(text, first) {
        if text[..at].trim_end().ends_with("::") {
            continue;
        }
        let mut rest = &text[at + first.len()..];
        let mut path = Vec::new();
        while let Some(after) = rest.trim_start().strip_prefix("::") {
            let after = after.trim_start();
            let word = word_at_start(after);
            if word.is_empty() {
                break;
            }
            path.push(word.to_owned());
            rest = &after[word.len()..];
        }
        if !path.is_empty() {
            paths.push(path);
        }
    }
    paths
}

fn words_at<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |at| !text[..*at].ends_with(is_word) && !text[at + word.len()..].starts_with(is_word))
}

fn word_at_start(text: &str) -> &str {
    &text[..text.find(|c| !is_word(c)).unwrap_or(text.len())]
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn without_comments_and_strings(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(length) = raw_string_length(rest).filter(|_| !code.ends_with(is_word)) {
            length
        } else if c == '"' {
            string_length(rest)
        } else if c == '\'' {
            character_length(rest).unwrap_or(0)
        } else {
            0
        };
        if skipped == 0 {
            code.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            code.push(' ');
            rest = &rest[skipped..];
        }
    }
    code
}

/// Returns the length of `r"…"`, `r#"…"#`, `br"…"` at the start of the text.
fn raw_string_length(text: &str) -> Option<usize> {
    let after =
        text.strip_prefix("br").or_else(|| text.strip_prefix("cr")).or_else(|| text.strip_prefix('r'))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    let inner = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = inner.find(&end).map_or(inner.len(), |at| at + end.len());
    Some(text.len() - inner.len() + length)
}

fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns the length of a character literal, or `None` for a lifetime.
fn character_length(text: &str) -> Option<usize> {
    let inner = &text[1..];
    if inner.starts_with('\\') {
        return inner[2..].find('\'').map(|at| at + 4);
    }
    let c = inner.chars().next()?;
    inner[c.len_utf8()..].starts_with('\'').then_some(c.len_utf8() + 2)
}

fn without_tests(code: &str) -> String {
    let mut retained = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = ["#[cfg(test)]", "#[cfg(all(test"].iter().filter_map(|mark| rest.find(mark)).min() {
        retained.push_str(&rest[..at]);
        rest = &rest[at..];
        rest = &rest[item_length(rest)..];
    }
    retained + rest
}

/// Returns the length of an item with its attributes, up to its `;` or its last brace.
fn item_length(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// Returns the `use` declarations of a file, anywhere in it, and the rest of its code.
fn imports_and_rest(code: &str) -> (Vec<Import>, String) {
    let mut imports = Vec::new();
    let mut body = String::with_capacity(code.len());
    let mut from = 0;
    for at in words_at(code, "use") {
        let tree = code[at + 3..].split(';').next().unwrap_or_default();
        // `impl Trait + use<'a>` captures lifetimes; it imports nothing.
        if at < from || tree.trim_start().starts_with('<') {
            continue;
        }
        let before = code[from..at].trim_end();
        let is_public = before.ends_with("pub")
            || before.ends_with(')')
                && before.rfind("pub(").is_some_and(|open| !before[open..].contains(['\n', ';', '{', '}']));
        body.push_str(&code[from..at]);
        add_tree(tree, &[], is_public, &mut imports);
        from = at + 3 + tree.len();
    }
    body.push_str(&code[from..]);
    (imports, body)
}

/// Adds each name of `a::{b, c::{d as e}}`.
fn add_tree(tree: &str, above: &[String], is_public: bool, imports: &mut Vec<Import>) {
    let tree = tree.trim();
    if tree.is_empty() {
        return;
    }
    if let Some((path, inner)) = tree.split_once('{') {
        let above: Vec<String> = above.iter().cloned().chain(parts_of(path)).collect();
        for branch in branches(inner.strip_suffix('}').unwrap_or(inner)) {
            add_tree(branch, &above, is_public, imports);
        }
        return;
    }
    let (path, alias) =
        tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path, Some(alias.trim())));
    let mut path: Vec<String> = above.iter().cloned().chain(parts_of(path)).collect();
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    let alias = alias.map_or_else(|| path.last().cloned().unwrap_or_default(), str::to_owned);
    imports.push(Import { path, alias, is_public });
}

fn parts_of(path: &str) -> impl Iterator<Item = String> + '_ {
    path.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned)
}

/// Returns the branches of `a, b::{c, d}`: split by commas outside braces.
fn branches(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let mut branches = Vec::new();
    let mut from = 0;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                branches.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    branches.push(&text[from..]);
    branches
}

fn defined_in(body: &str) -> BTreeSet<String> {
    let mut defined = BTreeSet::new();
    for keyword in ["fn", "struct", "enum", "trait", "type", "const", "static", "union"] {
        for at in words_at(body, keyword) {
            let after = body[at + keyword.len()..].trim_start();
            let after = after.strip_prefix("mut ").unwrap_or(after);
            defined.insert(word_at_start(after).to_owned());
        }
    }
    for at in words_at(body, "macro_rules") {
        let after = body[at + "macro_rules".len()..].trim_start_matches(['!', ' ']);
        defined.insert(word_at_start(after).to_owned());
    }
    defined.remove("");
    defined
}
