//! Tests that README.md and docs match the command line and the configuration. Every `bulla …` line must parse, every command and
//! option named in a sentence must exist, and every TOML block must be valid configuration.
//!
//! A block that is not checked has a comment with the reason in the line before: `<!-- not bulla's configuration: agent policy -->`
//! before a TOML block, `<!-- not checked: WHY -->` before any other. A test of the whole binary runs the console blocks: see
//! CONTRIBUTING.md, "A console block". `<!-- not run: WHY -->` is for that test only.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory, Parser};

use crate::command_line::Cli;
use crate::config::Configuration;

/// A fenced block, or a line of prose.
struct Passage {
    file: String,
    line: usize,
    /// The language of a block, such as `console` or `toml`; empty for prose.
    language: String,
    /// The comment in the line before a block.
    comment: String,
    text: String,
}

impl Passage {
    fn location(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }

    fn is_excused(&self) -> bool {
        self.comment.starts_with("<!-- not ")
            && !self.comment.starts_with("<!-- not run: ")
            && self.comment.contains(": ")
    }
}

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("README.md")];
    for folder in ["docs", "docs/guides", "docs/reference", "docs/runbooks"] {
        let entries = std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        files.extend(entries.filter(|path| path.extension().is_some_and(|kind| kind == "md")));
    }
    files.sort();
    files
}

fn passages() -> Vec<Passage> {
    let mut passages = Vec::new();
    for path in documents() {
        let text = std::fs::read_to_string(&path).unwrap();
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        let (mut block, mut before): (Option<Passage>, String) = (None, String::new());
        for (at, line) in text.lines().enumerate() {
            let passage = |language: &str, text: &str| Passage {
                file: file.clone(),
                line: at + 1,
                language: language.to_owned(),
                comment: before.clone(),
                text: text.to_owned(),
            };
            match (line.trim_start().strip_prefix("```"), &mut block) {
                (Some(_), Some(_)) => passages.extend(block.take()),
                (Some(language), None) => block = Some(passage(language, "")),
                (None, Some(block)) => block.text += &format!("{line}\n"),
                (None, None) => passages.push(passage("", line)),
            }
            line.trim().clone_into(&mut before);
        }
    }
    passages
}

/// Returns the commands of a console block: the text after `$ `. A line that ends with a backslash is joined with the next line.
fn console(text: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in text.lines() {
        let line = line.trim_start();
        if goes_on {
            let last = commands.last_mut().unwrap();
            last.push(' ');
            last.push_str(line.trim_end_matches('\\'));
        } else if let Some(command) =
            line.strip_prefix("$ ").or_else(|| line.strip_prefix("# bulla").map(|_| &line[2..]))
        {
            commands.push(command.trim_end_matches('\\').to_owned());
        } else {
            continue;
        }
        goes_on = line.ends_with('\\');
    }
    commands
}

/// Splits a shell line into simple commands, each a list of words. Supports only the grammar that the documentation uses.
fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' | '"' => {
                let text: String = letters.by_ref().take_while(|other| *other != letter).collect();
                word.get_or_insert_default().push_str(&text);
            }
            '\\' => word.get_or_insert_default().extend(letters.next()),
            '#' if word.is_none() => break,
            '|' | ';' | '&' | '(' | ')' | '`' | '>' | '<' => {
                // The file of a redirection is not an argument. A placeholder in angle brackets is not shell syntax.
                words.extend(word.take().filter(|word| letter != '>' || word.parse::<u8>().is_err()));
                commands.push(std::mem::take(&mut words));
                if matches!(letter, '>' | '<') {
                    words.push("redirected".to_owned());
                }
            }
            // Ignore brackets around optional parts, and ellipses.
            '[' | ']' | '…' if word.is_none() || letter == ']' => {}
            blank if blank.is_whitespace() => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    commands.push(words);
    commands
}

/// Returns the arguments of `bulla` in a simple command, after variables and wrapper programs.
fn arguments(words: &[String]) -> Option<&[String]> {
    const RUNNERS: [&str; 6] = ["sudo", "exec", "time", "env", "nohup", "$"];
    let is_before =
        |word: &String| RUNNERS.contains(&word.as_str()) || word.contains('=') && !word.starts_with('-');
    let at = words.iter().position(|word| !is_before(word))?;
    let program = words[at].rsplit('/').next()?;
    (program == "bulla").then(|| &words[at..])
}

#[test]
fn every_documented_command_line_is_one() {
    let (mut wrong, mut parsed) = (Vec::new(), 0);
    for passage in passages().iter().filter(|passage| passage.language == "console" && !passage.is_excused())
    {
        for line in console(&passage.text) {
            for words in simple_commands(&line) {
                let Some(words) = arguments(&words) else { continue };
                let words: Vec<&str> = words.iter().map(|word| fill_placeholder(word)).collect();
                match Cli::try_parse_from(&words) {
                    Err(error) if error.use_stderr() => {
                        let text = error.to_string();
                        let text = text.split("\n\nUsage").next().unwrap_or_default();
                        wrong.push(format!("{}: {}\n    {text}", passage.location(), words.join(" ")));
                    }
                    _ => parsed += 1,
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), wrong.len() + parsed, wrong.join("\n"));
    assert!(parsed > 100, "only {parsed} were found");
}

/// Replaces a placeholder of the documentation by a valid value.
fn fill_placeholder(word: &str) -> &str {
    match word {
        "ID" => "00000000-0000-0000-0000-000000000000",
        "SHA256" | "FINGERPRINT" => NO_HASH,
        word if word.ends_with("-…") => "00000000-0000-0000-0000-000000000000",
        other => other,
    }
}

const NO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Returns the number of arguments of the commands in the code spans of a table cell. Program names and redirections are not
/// counted.
fn typed_words(cell: &str) -> usize {
    let commands = cell.split('`').skip(1).step_by(2).flat_map(|span| span.split('|'));
    let words =
        |command: &str| command.split_whitespace().filter(|word| !word.starts_with(['<', '\\'])).count();
    commands.map(|command| words(command).saturating_sub(1)).sum()
}

#[test]
fn comparison_of_command_lines_counts_words_and_documents() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals/cli.md");
    let (mut tasks, mut wrong) = (0, Vec::new());
    let definition = Cli::command();
    for row in std::fs::read_to_string(page).unwrap().replace("\\|", "\u{1}").lines() {
        let cells: Vec<String> =
            row.split('|').map(|cell| cell.trim().replace('\u{1}', "|")).skip(1).collect();
        if cells.first().is_none_or(|number| number.parse::<usize>().is_err()) {
            continue;
        }
        tasks += 1;
        for (command, words) in [(2, 3), (5, 6)] {
            let counted = typed_words(&cells[command]);
            if cells[command] != "–" && cells[words] != counted.to_string() {
                wrong.push(format!("{}: {counted} words, not {}", cells[command], cells[words]));
            }
        }
        let typed: Vec<&str> = cells[2].trim_matches('`').split_whitespace().map(fill_placeholder).collect();
        if typed[0] != "bulla" {
            continue;
        }
        if let Err(error) = Cli::try_parse_from(&typed) {
            wrong.push(format!("{}: {error}", cells[2]));
        }
        let mut at = &definition;
        let levels = typed[1..].iter().map_while(|word| {
            at = at.find_subcommand(word)?;
            Some(())
        });
        let documents = levels.count() + 1;
        if cells[4] != documents.to_string() {
            wrong.push(format!("{}: {documents} documents, not {}", cells[2], cells[4]));
        }
    }
    assert_eq!((tasks, wrong), (20, Vec::new()));
}

/// Checks the commands and options that a sentence names, such as `bulla cert renew --all`.
fn named(command: &Command, span: &str) -> Result<(), String> {
    let (mut at, mut path, mut is_value) = (command, "bulla".to_owned(), false);
    let root_options: Vec<String> = options(command);
    for word in span.split_whitespace().skip(1) {
        let word = word.trim_matches(|c: char| "[](),.:".contains(c));
        if let Some(option) = word.strip_prefix("--") {
            let option = option.split(['=', '…', '/', '|']).next().unwrap_or_default();
            let known = options(at).iter().chain(&root_options).any(|known| known == option);
            if !known && !option.is_empty() {
                return Err(format!("{path} has no --{option}"));
            }
            is_value = true;
        } else if let Some(next) = at.find_subcommand(word) {
            at = next;
            path = format!("{path} {word}");
            is_value = false;
        } else if at.has_subcommands()
            && !is_value
            && word.chars().all(|c| c.is_ascii_lowercase() || c == '-')
            && word != "-"
        {
            return Err(format!("{path} has no command {word}"));
        }
    }
    Ok(())
}

fn options(command: &Command) -> Vec<String> {
    let all = command.get_arguments().filter_map(|known| known.get_long());
    all.map(str::to_owned).chain(["help".to_owned(), "version".to_owned()]).collect()
}

#[test]
fn every_command_and_option_that_a_sentence_names_exists() {
    /// First lines of signed texts, which look like commands.
    const SIGNED: [&str; 3] = ["bulla issuance plan 1", "bulla change plan 1", "bulla key node statement v1"];
    let mut definition = Cli::command();
    definition.build();
    let (mut wrong, mut found) = (Vec::new(), 0);
    for passage in passages().iter().filter(|passage| passage.language.is_empty()) {
        let spans = passage.text.split('`').skip(1).step_by(2);
        for span in spans.filter(|span| span.starts_with("bulla ") && !SIGNED.contains(span)) {
            found += 1;
            for words in simple_commands(span) {
                if words.first().is_some_and(|word| word == "bulla")
                    && let Err(reason) = named(&definition, &words.join(" "))
                {
                    wrong.push(format!("{}: `{span}`: {reason}", passage.location()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {found}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(found > 100, "only {found} were found");
}

#[test]
fn every_documented_setting_is_one() {
    let (mut wrong, mut read) = (Vec::new(), 0);
    for passage in passages().iter().filter(|passage| passage.language == "toml" && !passage.is_excused()) {
        // The files in examples do not exist. Only the settings themselves are checked.
        let text = passage.text.replace("9f86d0…", NO_HASH);
        match Configuration::from_parts(Some(("bulla.toml".into(), text)), std::iter::empty()) {
            Ok(_) => read += 1,
            Err(error) => wrong.push(format!("{}: {error:?}", passage.location())),
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), wrong.len() + read, wrong.join("\n"));
    assert!(read > 20, "only {read} were found");
}

/// A row of a table of `docs/configuration.md`: its line, the full names of its keys, and their defaults.
type SettingRow = (usize, Vec<String>, Vec<String>);

/// Returns the rows of `docs/configuration.md`. The section of a row is in the heading or the line above its table. If a heading
/// names several sections, the keys below it include their section.
fn setting_rows() -> Vec<SettingRow> {
    let text = include_str!("../../../docs/configuration.md");
    let (mut rows, mut sections) = (Vec::new(), Vec::new());
    for (at, line) in text.lines().enumerate() {
        let spans = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
        let named: Vec<String> = spans(line.split(" and `[").next().unwrap_or_default());
        let is_section = |span: &String| span.starts_with('[') || span == "roles";
        if line.starts_with('#')
            || named.first().is_some_and(|span| line.starts_with('`') && is_section(span))
        {
            sections = named.into_iter().filter(is_section).collect();
        }
        let (Some(row), Some(section)) = (line.strip_prefix("| `"), sections.first()) else { continue };
        // Sections that are arrays of tables, or whose names the operator chooses, have no variables and no defaults.
        if section.starts_with("[[") || section.contains("NAME") {
            continue;
        }
        let cells: Vec<&str> = row.split(" | ").collect();
        let section = section.trim_matches(['[', ']']);
        let full = |key: String| match key.as_str() {
            "roles" if section == "roles" => key,
            own if own.starts_with("est.") || own.starts_with("scep.") => key,
            own => format!("{section}.{own}"),
        };
        rows.push((
            at + 1,
            spans(&format!("`{}", cells[0])).into_iter().map(full).collect(),
            spans(cells[1]),
        ));
    }
    rows
}

#[test]
fn configuration_page_lists_every_key_with_its_default() {
    /// Keys without an environment variable: the file alone can set them.
    const FILE_ONLY: [&str; 2] = ["acme.terms_of_service", "acme.website"];
    let defaults: BTreeMap<&str, Option<String>> = Configuration::defaults().into_iter().collect();
    let (mut wrong, mut documented) = (Vec::new(), HashSet::new());
    for (line, keys, values) in setting_rows() {
        for (at, key) in keys.iter().enumerate() {
            documented.insert(key.clone());
            let location = format!("configuration.md:{line}: {key}");
            match defaults.get(key.as_str()) {
                None if FILE_ONLY.contains(&key.as_str()) => {}
                None => wrong.push(format!("{location}: there is no such key")),
                Some(Some(default)) => {
                    // One default in a row may apply to all keys of the row.
                    let shown = values.get(at).or(values.first()).filter(|_| values.len() <= keys.len());
                    if let Some(shown) =
                        shown.filter(|shown| shown.replace('_', "") != default.replace('_', ""))
                    {
                        wrong.push(format!("{location}: the default is {default}, not {shown}"));
                    }
                }
                Some(None) => {}
            }
        }
    }
    let missing = defaults.keys().filter(|key| !documented.contains(**key));
    wrong.extend(missing.map(|key| format!("configuration.md: {key} is missing")));
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(documented.len() > 300, "only {} keys were found", documented.len());
}

/// Returns the text of every source file of the workspace.
fn sources() -> String {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("..")];
    let mut text = String::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("tests") {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "rs") && !path.ends_with("documentation.rs")
            {
                text += &std::fs::read_to_string(path).unwrap();
            }
        }
    }
    text
}

/// Returns the string literals in `sources` that contain only a-z, 0-9, `.`, `_` and `-`: candidates for metric and field names.
fn literals(sources: &str) -> HashSet<&str> {
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
    sources.split('"').filter(|text| !text.is_empty() && text.chars().all(letters)).collect()
}

/// Returns the field names of structures in the sources: words before a colon.
fn members(sources: &str) -> HashSet<&str> {
    let before = sources.lines().filter_map(|line| line.split_once(": "));
    before.filter_map(|(name, _)| name.split_whitespace().last()).collect()
}

/// Returns the words of a text that begin with `prefix` and continue with characters that `letters` accepts.
fn words<'a>(text: &'a str, prefix: &'a str, letters: fn(char) -> bool) -> impl Iterator<Item = &'a str> {
    text.match_indices(prefix).filter_map(move |(at, _)| {
        let is_start = !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '/');
        let rest = &text[at..];
        let end =
            rest[prefix.len()..].find(|c: char| !letters(c)).map_or(rest.len(), |end| prefix.len() + end);
        (is_start && end > prefix.len()).then(|| &rest[..end])
    })
}

#[test]
fn every_documented_metric_is_registered() {
    let sources = sources();
    let literals = literals(&sources);
    let is_literal = |name: &str| literals.contains(name);
    // A metric is registered with its full name, or without the prefix of its component.
    let is_known = |name: &str| {
        let starts = name.match_indices('_').map(|(at, _)| at + 1);
        is_literal(name) || starts.clone().any(|at| is_literal(&name[at..]))
    };
    const SUFFIXES: [&str; 5] = ["_total", "_bucket", "_count", "_sum", "_info"];
    let (mut wrong, mut found) = (Vec::new(), 0);
    // A `grep` pattern may be only the start of a name.
    for passage in passages().iter().filter(|passage| !passage.text.contains("grep bulla_")) {
        for name in
            words(&passage.text, "bulla_", |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        {
            found += 1;
            let stem = SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix));
            // The text is only the prefix of several metric names, or of a token.
            let is_part = name.ends_with('_') || !name["bulla_".len()..].contains('_');
            if !is_part && !is_known(name) && !stem.is_some_and(is_known) {
                wrong.push(format!("{}: {name}", passage.location()));
            }
        }
    }
    assert!(wrong.is_empty(), "of {found}:\n{}", wrong.join("\n"));
    assert!(found > 100, "only {found} were found");
}

#[test]
fn every_documented_path_is_a_route() {
    // A test of the server compares this table with the routes.
    let table = include_str!("../../../docs/internals/authorisation.md");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()?.split_once(' '));
    let routes: Vec<Vec<&str>> =
        rows.filter(|(_, path)| path.starts_with("/api/")).map(|(_, path)| segments(path)).collect();
    let (mut wrong, mut found) = (Vec::new(), 0);
    for passage in passages() {
        for path in words(&passage.text, "/api/v1/", |c| c.is_ascii_alphanumeric() || "/-_{}$…".contains(c))
        {
            found += 1;
            let requested = segments(path);
            // `/api/v1/ct/…` and `/api/v1/agent/` mean all paths below them.
            let below = path.ends_with('/') || path.ends_with('…');
            let is_route = |route: &Vec<&str>| {
                let fits = |(wanted, given): (&&str, &&str)| wanted.starts_with('{') || wanted == given;
                let long_enough =
                    if below { route.len() >= requested.len() } else { route.len() == requested.len() };
                long_enough && route.iter().zip(&requested).all(fits)
            };
            if !routes.iter().any(is_route) {
                wrong.push(format!("{}: {path}", passage.location()));
            }
        }
    }
    assert!(wrong.is_empty(), "of {found}:\n{}", wrong.join("\n"));
    assert!(found > 50, "only {found} were found");
}

fn segments(path: &str) -> Vec<&str> {
    path.split('?')
        .next()
        .unwrap_or_default()
        .split('/')
        .filter(|part| !part.is_empty() && *part != "…")
        .collect()
}

#[test]
fn every_event_alert_permission_and_setting_that_a_sentence_names_exists() {
    /// Prefixes of dotted names that Bulla does not define: names of other programs, and file names.
    const OTHERS: [&str; 4] = ["net.", "certificatemanager.", "inventory.db-wal", "alerts.yml"];
    const FILES: [&str; 19] = [
        "sig", "jsonl", "org", "net", "rs", "md", "key", "pem", "sock", "db", "toml", "json", "service",
        "crt", "example", "com", "url", "token", "so",
    ];
    let sources = sources();
    let (literals, members) = (literals(&sources), members(&sources));
    let is_name = |span: &&str| {
        let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
        span.contains('.') && span.chars().all(letters) && span.starts_with(|c: char| c.is_ascii_lowercase())
    };
    let (mut wrong, mut found) = (Vec::new(), 0);
    for passage in passages().iter().filter(|passage| passage.language.is_empty()) {
        for name in passage.text.split('`').skip(1).step_by(2).filter(is_name) {
            let last = name.rsplit('.').next().unwrap_or_default();
            if FILES.contains(&last) || OTHERS.iter().any(|other| name.starts_with(other)) {
                continue;
            }
            found += 1;
            // The name is a string literal in the sources, or its last part is a field of a structure.
            let is_known = literals.contains(name) || members.contains(last);
            if !is_known {
                wrong.push(format!("{}: {name}", passage.location()));
            }
        }
    }
    assert!(wrong.is_empty(), "of {found}:\n{}", wrong.join("\n"));
    assert!(found > 200, "only {found} were found");
}
