//! Runs the console blocks of README.md and docs as a reader pastes them.
//!
//! A second test runs the examples of the help, which `docs/reference/cli.md` lists: `commands.md` and `services.md` of this folder have
//! them in an order in which each has what it needs, with the setup.
//!
//! CONTRIBUTING.md says how a page marks a block that is not run, and what a block needs. `BULLA_PAGE=docs/alerts.md` runs one page.

mod page;
mod session;
mod shape;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use page::{Page, SETUP};
use session::Session;

/// Pages that start services at the ports of `bulla up`. They are run without it, each in its own namespace.
const WITHOUT_SERVER: [&str; 5] =
    ["docs/agent-gateway.md", "docs/edge.md", "docs/keys.md", "docs/proxy.md", "docs/run.md"];
/// Pages that change what the other pages need, such as the default CA, or create the same names. Each has its own server.
const OWN_SERVER: [&str; 2] = ["docs/guides/keyless-two-regions.md", "docs/guides/rotate-root-ca.md"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns the pages with console blocks. The README is first.
fn pages() -> Vec<Page> {
    let mut names = vec!["README.md".to_owned()];
    for folder in ["docs", "docs/guides", "docs/reference", "docs/runbooks"] {
        let entries = std::fs::read_dir(root().join(folder)).unwrap();
        let files = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut files: Vec<_> = files.filter(|file| file.ends_with(".md")).collect();
        files.sort();
        names.extend(files.into_iter().map(|file| format!("{folder}/{file}")));
    }
    let wanted = std::env::var("BULLA_PAGE").ok();
    names.retain(|name| wanted.as_ref().is_none_or(|wanted| name == wanted));
    let page = |name: &String| Page::parse(name, &std::fs::read_to_string(root().join(name)).unwrap());
    names.iter().map(page).filter(|page| !page.blocks.is_empty()).collect()
}

/// Returns the first two commands of the page of the API: the function `api`, which the runbooks use.
fn common() -> String {
    let text = std::fs::read_to_string(root().join("docs/api.md")).unwrap();
    let page = Page::parse("docs/api.md", &text);
    let commands = page.blocks[0].steps.iter().filter(|step| !step.shown.starts_with(SETUP)).take(2);
    commands.map(|step| format!("{}\n", step.shown)).collect()
}

/// Checks one page, and returns what is wrong.
fn check(page: &Page, session: &Session) -> Vec<String> {
    let mut wrong = page.wrong.clone();
    let steps = page.blocks.iter().flat_map(|block| block.steps.iter().map(move |step| (block, step)));
    for (at, (block, step)) in steps.enumerate() {
        if block.reason.is_some() || step.run.is_err() {
            continue;
        }
        let done = session.done(page, at);
        let location = format!("{}:{}: {}", page.name, step.line, step.shown);
        let is_stated = |code: i32| step.shown.contains(&format!("exit code {code}"));
        // A command whose reader ends first, such as `head`, is killed by SIGPIPE.
        if !done.code.is_some_and(|code| code == 0 || code == 141 || is_stated(code)) {
            let code = done.code.map_or("no exit code".to_owned(), |code| format!("exit code {code}"));
            let (out, err) = (cut(&done.out), cut(&done.err));
            wrong.push(format!("{location}\n  {code}\n  stderr: {err}\n  stdout: {out}"));
            continue;
        }
        let output = format!("{}\n{}", done.out, done.err);
        let missing = shape::differences(&step.sample, &output);
        if !missing.is_empty() {
            wrong.push(format!("{location}\n  the output lacks {missing:?}\n  it is: {}", cut(&output)));
        }
    }
    wrong
}

fn cut(text: &str) -> String {
    /// Maximum length of shown output, in characters.
    const CHARS_MAX: usize = 1_500;
    text.trim().chars().take(CHARS_MAX).collect()
}

/// The pages with the examples of the help, and whether they have a server.
const EXAMPLES: [(&str, bool); 2] = [("commands.md", true), ("services.md", false)];

/// Returns the commands of a page, without comments, sorted.
fn commands(pages: &[Page]) -> Vec<String> {
    let steps = pages.iter().flat_map(|page| &page.blocks).flat_map(|block| &block.steps);
    let shown = steps.map(|step| step.shown.as_str()).filter(|shown| !shown.starts_with(SETUP));
    let mut commands: Vec<String> =
        shown.map(|shown| shown.split(" # ").next().unwrap_or_default().to_owned()).collect();
    commands.sort();
    commands
}

#[test]
fn examples_of_the_help_run() {
    let read = |name: &str| Page::parse(name, &std::fs::read_to_string(root().join(name)).unwrap());
    let folder = "crates/bulla/tests/all/control/documentation";
    let mut pages = Vec::new();
    let mut wrong = Vec::new();
    for (name, with_server) in EXAMPLES {
        let page = read(&format!("{folder}/{name}"));
        let session = Session::of(&[&page], with_server, "");
        let of_page = check(&page, &session);
        if !of_page.is_empty() {
            eprintln!("{}", session.printed());
        }
        wrong.extend(of_page);
        pages.push(page);
    }
    assert!(wrong.is_empty(), "{} failures\n{}", wrong.len(), wrong.join("\n\n"));
    let (run, printed) = (commands(&pages), commands(&[read("docs/reference/cli.md")]));
    let difference = |of: &[String], without: &[String]| -> Vec<String> {
        of.iter().filter(|command| !without.contains(command)).cloned().collect()
    };
    assert_eq!(difference(&printed, &run), [""; 0], "examples of the help that no page of this test runs");
    assert_eq!(difference(&run, &printed), [""; 0], "commands that are no examples of the help");
    assert_eq!(run, printed, "each example of the help once");
}

#[test]
fn console_blocks_of_the_documentation_run() {
    let pages = pages();
    let (read, unread): (Vec<&Page>, Vec<&Page>) = pages.iter().partition(|page| page.reason.is_none());
    let is_own = |page: &&Page| OWN_SERVER.contains(&page.name.as_str());
    let is_without = |page: &&Page| WITHOUT_SERVER.contains(&page.name.as_str());
    let shared: Vec<&Page> = read.iter().copied().filter(|page| !is_own(page) && !is_without(page)).collect();
    let mut groups = vec![(shared, true)];
    groups.extend(read.iter().copied().filter(is_own).map(|page| (vec![page], true)));
    groups.extend(read.iter().copied().filter(is_without).map(|page| (vec![page], false)));
    let (mut wrong, mut counts, common) = (Vec::new(), BTreeMap::<String, usize>::new(), common());
    for (pages, with_server) in groups.iter().filter(|(pages, _)| !pages.is_empty()) {
        let session = Session::of(pages, *with_server, &common);
        let of_group: Vec<String> = pages.iter().flat_map(|page| check(page, &session)).collect();
        if !of_group.is_empty() {
            eprintln!("{}", session.printed());
        }
        wrong.extend(of_group);
    }
    for block in read.iter().flat_map(|page| page.blocks.iter().map(move |block| (page, block))) {
        let (page, block) = block;
        match &block.reason {
            _ if block.is_run() => *counts.entry("run".to_owned()).or_default() += 1,
            Some(reason) => *counts.entry(reason.clone()).or_default() += 1,
            None if block.steps.iter().any(|step| step.run.is_err()) => {
                *counts.entry("each command says why it is not run".to_owned()).or_default() += 1;
            }
            None => wrong.push(format!(
                "{}:{}: the block has no command after `$ `, and no comment `<!-- not run: REASON -->`",
                page.name, block.line
            )),
        }
    }
    for page in unread {
        *counts
            .entry(format!("{}: {}", page.name, page.reason.as_deref().unwrap_or_default()))
            .or_default() += page.blocks.len();
    }
    let listed: Vec<String> = counts.iter().map(|(reason, blocks)| format!("{blocks} {reason}")).collect();
    eprintln!("console blocks:\n{}", listed.join("\n"));
    assert!(wrong.is_empty(), "{} failures\n{}", wrong.len(), wrong.join("\n\n"));
}
