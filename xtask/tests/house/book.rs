//! The pages of the site: every page is in the table of contents, and every link leads to a file and a heading that exist.
//!
//! These checks read Markdown and need no other program. `cargo xtask docs` also checks the site that mdBook makes.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

use crate::{assert_none, entries, files_below, read, root, shown};

const CONTENTS: &str = "docs/SUMMARY.md";

/// The pages at the root of the repository that are part of the site.
const ROOT_PAGES: &[&str] =
    &["README.md", "SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md", "ARCHITECTURE.md"];

/// A link of a page, with its line.
#[derive(Debug, PartialEq)]
struct Link {
    line: usize,
    target: String,
}

/// Returns the Markdown links into the repository. Blocks of code have none.
fn links(markdown: &str) -> Vec<Link> {
    let mut links = Vec::new();
    for (number, line) in prose(markdown) {
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let relative = targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"));
        links.extend(relative.map(|target| Link { line: number, target: target.to_owned() }));
    }
    links
}

/// Returns the numbered lines outside of blocks of code.
fn prose(markdown: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    markdown.lines().enumerate().filter_map(move |(at, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((at + 1, line))
    })
}

/// Returns the anchors of the headings of a page. Forges and mdBook make them alike.
fn anchors(markdown: &str) -> HashSet<String> {
    let mut anchors = HashSet::new();
    for (_, line) in prose(markdown) {
        let level = line.bytes().take_while(|byte| *byte == b'#').count();
        let Some(heading) = line[level..].strip_prefix(' ').filter(|_| (1..=6).contains(&level)) else {
            continue;
        };
        let anchor = anchor(heading);
        let repeated = (1..).map(|number| format!("{anchor}-{number}"));
        let free = std::iter::once(anchor.clone()).chain(repeated).find(|name| !anchors.contains(name));
        anchors.extend(free);
    }
    anchors
}

/// Returns the anchor of a heading: its letters and digits in lower case, and a hyphen for each blank.
fn anchor(heading: &str) -> String {
    let shown = heading.split("](").enumerate().map(|(at, part)| match part.split_once(')') {
        Some((_, rest)) if at > 0 => rest,
        _ => part,
    });
    let letters = shown.flat_map(str::chars).filter_map(|letter| match letter {
        letter if letter.is_alphanumeric() || "_-".contains(letter) => Some(letter),
        letter if letter.is_whitespace() => Some('-'),
        _ => None,
    });
    letters.flat_map(char::to_lowercase).collect()
}

/// Returns a path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

/// Returns every page of the site.
fn pages() -> Vec<PathBuf> {
    let mut pages = files_below(&root().join("docs"), &["md"]);
    pages.retain(|page| !page.ends_with(CONTENTS));
    pages.extend(ROOT_PAGES.iter().map(|name| root().join(name)));
    pages
}

/// Returns what is wrong with a link of a page.
fn fault(page: &Path, link: &Link) -> Option<String> {
    let (path, fragment) = link.target.split_once('#').unwrap_or((&link.target, ""));
    let file = if path.is_empty() { page.to_owned() } else { plain(&page.parent()?.join(path)) };
    let location = format!("{}:{}: {}", shown(page), link.line, link.target);
    if !file.is_file() {
        return Some(format!("{location}: no such file"));
    }
    let is_page = file.extension().is_some_and(|extension| extension == "md");
    if !fragment.is_empty() && is_page && !anchors(&read(&file)).contains(fragment) {
        return Some(format!("{location}: no such heading"));
    }
    None
}

#[test]
fn every_page_is_in_the_table_of_contents_once() {
    let contents = root().join(CONTENTS);
    let listed: Vec<PathBuf> =
        links(&read(&contents)).iter().map(|link| plain(&root().join("docs").join(&link.target))).collect();
    let mut broken = Vec::new();
    for page in pages() {
        match listed.iter().filter(|listed| **listed == page).count() {
            0 => broken.push(format!("{}: add it to {CONTENTS}", shown(&page))),
            1 => {}
            _ => broken.push(format!("{}: it is in {CONTENTS} more than once", shown(&page))),
        }
    }
    assert!(listed.len() > 100, "only {} pages were found", listed.len());
    assert_none(&broken);
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut pages = pages();
    pages.push(root().join(CONTENTS));
    let others =
        entries(&root()).into_iter().filter(|path| path.extension().is_some_and(|kind| kind == "md"));
    pages.extend(others.filter(|other| !ROOT_PAGES.iter().any(|name| other.ends_with(name))));
    let (mut broken, mut seen) = (Vec::new(), 0);
    for page in pages {
        let links = links(&read(&page));
        seen += links.len();
        broken.extend(links.iter().filter_map(|link| fault(&page, link)));
    }
    assert!(seen > 500, "only {seen} links were found");
    assert_none(&broken);
}

/// The checks above are only useful if they can fail.
#[test]
fn link_checks_detect_violations() {
    let page = "# A\n[a](b.md#c) ![d](../d.svg) [e](https://e.example/)\n```console\n[f](g)\n```\n[h](#a)";
    let found: Vec<(usize, String)> = links(page).into_iter().map(|link| (link.line, link.target)).collect();
    let expected =
        [(2, "b.md#c"), (2, "../d.svg"), (6, "#a")].map(|(line, target)| (line, target.to_owned()));
    assert_eq!(found, expected);
    let headings =
        "# `[keys.node]`, and more\n## [A link](b.md) here\n## Same\n## Same\n```\n# no heading\n```\n";
    let mut found: Vec<String> = anchors(headings).into_iter().collect();
    found.sort();
    assert_eq!(found, ["a-link-here", "keysnode-and-more", "same", "same-1"]);
    let readme = root().join("README.md");
    let fault_of = |target: &str| fault(&readme, &Link { line: 1, target: target.to_owned() });
    assert_eq!(fault_of("docs/scan.md"), None);
    assert_eq!(fault_of("#try-it"), None);
    assert!(fault_of("docs/missing.md").is_some_and(|fault| fault.ends_with("no such file")));
    assert!(fault_of("docs/scan.md#missing").is_some_and(|fault| fault.ends_with("no such heading")));
}
