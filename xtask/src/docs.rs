//! The site of the documentation, made with mdBook from README.md and `docs`.
//!
//! The pages are copied into one folder, with the paths that they have in the repository: a relative link works on the site and on a
//! forge. Only the table of contents, `docs/SUMMARY.md`, is rewritten, because mdBook reads it from the top folder.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::shell::{Failure, cargo, command, output_of, root, run as run_command};

const VERSION: &str = "0.5.4";
const CONTENTS: &str = "docs/SUMMARY.md";
/// The folder of the copied pages, and the folder of the site. `book.toml` names both.
const SOURCE: &str = "target/docs/src";
const SITE: &str = "target/docs/site";
/// The folder of programs that only this repository uses.
const TOOLS: &str = "target/tools";

/// Makes the site, and checks its links.
///
/// # Errors
/// mdBook cannot be installed, a page is missing, or the site has a dead link.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    if let Some(argument) = arguments.first() {
        return Err(Failure::Usage(format!("`docs` takes no arguments, but was given `{argument}`")));
    }
    build(&installed_or_install()?)
}

/// Makes the site if mdBook is already installed. Installing it takes more CPU time than the whole step.
///
/// # Errors
/// A page is missing, or the site has a dead link.
pub(crate) fn run_if_installed() -> Result<(), Failure> {
    match installed() {
        Some(program) => build(&program),
        None => {
            println!("NOT BUILT: mdBook {VERSION} is not installed. `cargo xtask docs` installs it.");
            Ok(())
        }
    }
}

fn build(mdbook: &Path) -> Result<(), Failure> {
    copy_pages().map_err(|error| Failure::Program(format!("cannot copy the pages to {SOURCE}: {error}")))?;
    run_command(command(mdbook).arg("build"))?;
    let (pages, dead) = dead_links(&root().join(SITE))
        .map_err(|error| Failure::Program(format!("cannot read the site in {SITE}: {error}")))?;
    if dead.is_empty() {
        println!("{pages} pages, no dead link: {SITE}/index.html");
        return Ok(());
    }
    Err(Failure::Program(format!("{} dead links in {SITE}:\n  {}", dead.len(), dead.join("\n  "))))
}

/// Returns the path of the installed mdBook if it has the right version.
fn installed() -> Option<PathBuf> {
    let own = root().join(TOOLS).join("bin/mdbook");
    let wanted = format!("mdbook v{VERSION}");
    let fits = |program: &PathBuf| {
        output_of(command(program).arg("--version")).is_some_and(|version| version.trim() == wanted)
    };
    [PathBuf::from("mdbook"), own].into_iter().find(fits)
}

fn installed_or_install() -> Result<PathBuf, Failure> {
    if let Some(program) = installed() {
        return Ok(program);
    }
    let package = format!("mdbook@{VERSION}");
    // mdBook runs for a second only, so an optimised build would take longer in total.
    let mut install =
        cargo(&["install", "--debug", "--locked", "--no-default-features", "--features", "search"]);
    install.args(["--root", TOOLS, &package]).env("CARGO_PROFILE_DEV_DEBUG", "none");
    run_command(&mut install)?;
    installed().ok_or_else(|| Failure::Program(format!("{TOOLS}/bin/mdbook is not mdBook {VERSION}")))
}

/// Copies every page of the table of contents, all of `docs`, and the files that pages link to.
fn copy_pages() -> std::io::Result<()> {
    let (root, source) = (root(), root().join(SOURCE));
    if source.exists() {
        fs::remove_dir_all(&source)?;
    }
    let contents = fs::read_to_string(root.join(CONTENTS))?;
    let mut files: BTreeSet<PathBuf> = files_below(&root.join("docs"))?.into_iter().collect();
    files.remove(&root.join(CONTENTS));
    files.extend(linked(&root.join(CONTENTS), &contents));
    let pages: Vec<PathBuf> = files.iter().filter(|file| is_page(file)).cloned().collect();
    for page in pages {
        files.extend(linked(&page, &fs::read_to_string(&page)?).filter(|file| !is_page(file)));
    }
    for file in files {
        let copy = source.join(file.strip_prefix(&root).unwrap_or(&file));
        fs::create_dir_all(copy.parent().unwrap_or(&source))?;
        if is_page(&file) {
            fs::write(copy, with_names_of_the_site(&fs::read_to_string(&file)?))?;
        } else {
            fs::copy(&file, copy)?;
        }
    }
    fs::write(source.join("SUMMARY.md"), from_the_root(&contents))
}

/// Returns a page with links to the files that mdBook writes: `index.html` for a README, `toc.html` for the table of contents.
fn with_names_of_the_site(page: &str) -> String {
    let page = page.replace("](docs/SUMMARY.md)", "](toc.html)");
    page.replace("README.md)", "index.md)").replace("README.md#", "index.md#")
}

fn is_page(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "md")
}

/// Returns the table of contents with paths from the root instead of from `docs`.
fn from_the_root(contents: &str) -> String {
    contents.replace("](", "](docs/").replace("](docs/../", "](")
}

/// Returns the existing files that a page links to.
fn linked<'a>(page: &'a Path, text: &'a str) -> impl Iterator<Item = PathBuf> + 'a {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    targets.filter_map(|target| Some(plain(&page.parent()?.join(target)))).filter(|file| file.is_file())
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

fn files_below(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(files_below(&path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

/// Returns the number of pages of a site, and its links that lead to no file or to no element.
fn dead_links(site: &Path) -> std::io::Result<(usize, Vec<String>)> {
    let mut pages = HashMap::new();
    for file in files_below(site)? {
        if file.extension().is_some_and(|extension| extension == "html") {
            let text = fs::read_to_string(&file)?;
            pages.insert(file, text);
        }
    }
    let anchors: HashMap<&PathBuf, HashSet<&str>> =
        pages.iter().map(|(page, text)| (page, values(text, "id").collect())).collect();
    let mut dead = BTreeSet::new();
    // The page for missing pages has links from the root of the web server.
    for (page, text) in pages.iter().filter(|(page, _)| !page.ends_with("404.html")) {
        for target in values(text, "href").chain(values(text, "src")).filter(|target| is_relative(target)) {
            let (path, fragment) = target.split_once('#').unwrap_or((target, ""));
            let path = path.split('?').next().unwrap_or_default();
            let folder = page.parent().unwrap_or(site);
            let file = if path.is_empty() { page.clone() } else { plain(&folder.join(path)) };
            let has_anchor =
                fragment.is_empty() || anchors.get(&file).is_none_or(|anchors| anchors.contains(fragment));
            if !file.is_file() || !has_anchor {
                dead.insert(format!("{}: {target}", page.strip_prefix(site).unwrap_or(page).display()));
            }
        }
    }
    Ok((pages.len(), dead.into_iter().collect()))
}

/// Returns the values of an attribute in a text of HTML.
fn values<'a>(html: &'a str, attribute: &str) -> impl Iterator<Item = &'a str> {
    let start = format!(" {attribute}=\"");
    let starts: Vec<usize> = html.match_indices(&start).map(|(at, _)| at + start.len()).collect();
    starts.into_iter().filter_map(|at| html[at..].split('"').next())
}

fn is_relative(target: &str) -> bool {
    !target.is_empty()
        && !target.contains("://")
        && !["mailto:", "data:", "javascript:"].iter().any(|kind| target.starts_with(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_get_paths_from_the_root() {
        let contents = "[Bulla](../README.md)\n- [Scanning](scan.md)\n  - [A](runbooks/a.md)\n";
        let expected = "[Bulla](README.md)\n- [Scanning](docs/scan.md)\n  - [A](docs/runbooks/a.md)\n";
        assert_eq!(from_the_root(contents), expected);
    }

    #[test]
    fn links_name_the_files_that_mdbook_writes() {
        let page = "[all](docs/SUMMARY.md), [a](runbooks/README.md#alerts), [b](../README.md), README.md";
        let expected = "[all](toc.html), [a](runbooks/index.md#alerts), [b](../index.md), README.md";
        assert_eq!(with_names_of_the_site(page), expected);
    }

    #[test]
    fn links_to_missing_files_and_elements_are_dead() {
        let site = std::env::temp_dir().join(format!("bulla-docs-{}", std::process::id()));
        fs::create_dir_all(site.join("docs")).unwrap();
        let index = r##"<a href="docs/a.html#there"></a> <a href="docs/a.html#gone"></a> <img src="gone.svg"> <a href="https://a.example/">"##;
        fs::write(site.join("index.html"), index).unwrap();
        fs::write(
            site.join("docs/a.html"),
            r##"<h2 id="there"></h2> <a href="../index.html"></a> <a href="#there">"##,
        )
        .unwrap();
        let found = dead_links(&site);
        fs::remove_dir_all(&site).unwrap();
        let dead = ["index.html: docs/a.html#gone", "index.html: gone.svg"].map(str::to_owned).to_vec();
        assert_eq!(found.unwrap(), (2, dead));
    }
}
