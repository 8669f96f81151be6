//! A Markdown page, and the commands of its console blocks.

use std::collections::BTreeSet;

use super::session::PLACEHOLDERS;

/// A page with at least one console block.
pub(crate) struct Page {
    /// The path below the root of the repository.
    pub(crate) name: String,
    /// Why no block of the page is run.
    pub(crate) reason: Option<String>,
    pub(crate) blocks: Vec<Block>,
    /// Errors in the comments.
    pub(crate) wrong: Vec<String>,
}

pub(crate) struct Block {
    pub(crate) line: usize,
    /// Why no command of the block is run.
    pub(crate) reason: Option<String>,
    pub(crate) steps: Vec<Step>,
}

/// A command, or the commands of a setup comment.
pub(crate) struct Step {
    pub(crate) line: usize,
    /// The text on the page.
    pub(crate) shown: String,
    /// The text for the shell, or why it is not run.
    pub(crate) run: Result<String, String>,
    /// The lines of output on the page.
    pub(crate) sample: Vec<String>,
}

impl Block {
    /// Whether at least one command of the page is run.
    pub(crate) fn is_run(&self) -> bool {
        self.reason.is_none() && self.commands().any(|step| step.run.is_ok())
    }

    fn commands(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| !step.shown.starts_with(SETUP))
    }
}

pub(crate) const SETUP: &str = "<!-- setup:";
const NOT_RUN: &str = "<!-- not run: ";
const PAGE_NOT_RUN: &str = "<!-- page not run: ";

/// Placeholders that the setup comments of a page replace.
struct Placeholders {
    /// Words in capitals that are variables.
    names: BTreeSet<String>,
    /// Shortened texts such as `bulla_…`, and their values.
    texts: Vec<(String, String)>,
}

/// The comments before a block.
#[derive(Default)]
struct Comments {
    setups: Vec<Step>,
    reason: Option<String>,
    /// Starts of commands that are not run, and why.
    partly: Vec<(String, String)>,
}

struct Reader<'a> {
    lines: std::iter::Enumerate<std::str::Lines<'a>>,
    page: Page,
    placeholders: Placeholders,
    comments: Comments,
}

impl Page {
    pub(crate) fn parse(name: &str, text: &str) -> Self {
        let page = Self { name: name.to_owned(), reason: None, blocks: Vec::new(), wrong: Vec::new() };
        let mut reader = Reader {
            lines: text.lines().enumerate(),
            page,
            placeholders: Placeholders {
                names: PLACEHOLDERS.iter().map(|name| (*name).to_owned()).collect(),
                texts: Vec::new(),
            },
            comments: Comments::default(),
        };
        reader.read();
        reader.page
    }
}

impl Reader<'_> {
    fn read(&mut self) {
        while let Some((at, line)) = self.lines.next() {
            let text = line.trim_start();
            let indent = line.len() - text.len();
            if text.starts_with("```") {
                self.fenced(at + 1, text, indent);
            } else if [SETUP, NOT_RUN, PAGE_NOT_RUN].iter().any(|start| text.starts_with(start)) {
                self.comment(at + 1, text);
            } else if !text.is_empty() && !text.starts_with("<!--") {
                self.no_stray_comment(at + 1);
            }
        }
        self.no_stray_comment(0);
    }

    /// A reason must be next to its block.
    fn no_stray_comment(&mut self, line: usize) {
        let comments = std::mem::take(&mut self.comments);
        if comments.reason.is_some() || !comments.partly.is_empty() || !comments.setups.is_empty() {
            self.page.wrong.push(format!("{}:{line}: a comment is not before a block", self.page.name));
        }
    }

    fn comment(&mut self, line: usize, first: &str) {
        let mut text = first.to_owned();
        while !text.ends_with("-->") {
            let Some((_, more)) = self.lines.next() else { break };
            text += &format!("\n{more}");
        }
        for comment in text.split_inclusive("-->") {
            self.one_comment(line, comment.trim());
        }
    }

    fn one_comment(&mut self, line: usize, text: &str) {
        let body = text.trim_end_matches("-->");
        if let Some(reason) = body.strip_prefix(PAGE_NOT_RUN) {
            self.page.reason = Some(reason.trim().to_owned());
        } else if let Some(setup) = body.strip_prefix(SETUP) {
            let script = self.placeholders.learn(setup);
            let step = Step { line, shown: text.to_owned(), run: Ok(script), sample: Vec::new() };
            self.comments.setups.push(step);
        } else if let Some(reason) = body.strip_prefix(NOT_RUN) {
            self.not_run(reason.trim());
        }
    }

    /// Reads a reason. The commands that it is about are in code spans before it.
    fn not_run(&mut self, reason: &str) {
        match reason.strip_prefix('`').and_then(|rest| rest.split_once("`: ")) {
            Some((commands, reason)) => {
                let starts = commands.split('`').filter(|start| !start.trim_matches([',', ' ']).is_empty());
                self.comments.partly.extend(starts.map(|start| (start.to_owned(), reason.to_owned())));
            }
            None => self.comments.reason = Some(reason.to_owned()),
        }
    }

    fn fenced(&mut self, line: usize, fence: &str, indent: usize) {
        let mut lines = Vec::new();
        for (at, line) in self.lines.by_ref() {
            if line.trim() == "```" {
                break;
            }
            lines.push((at + 1, line.get(indent..).unwrap_or_default()));
        }
        if !fence.starts_with("```console") {
            self.no_stray_comment(line);
            return;
        }
        let comments = std::mem::take(&mut self.comments);
        let mut steps = comments.setups;
        for (line, text, sample) in commands(&lines) {
            let excused = comments.partly.iter().find(|(start, _)| text.starts_with(start.as_str()));
            let run =
                excused.map_or_else(|| Ok(self.placeholders.fill(&text)), |(_, reason)| Err(reason.clone()));
            steps.push(Step { line, shown: text, run, sample });
        }
        for (start, _) in &comments.partly {
            if !steps.iter().any(|step| step.run.is_err() && step.shown.starts_with(start.as_str())) {
                self.page.wrong.push(format!("{}:{line}: no command starts with `{start}`", self.page.name));
            }
        }
        self.page.blocks.push(Block { line, reason: comments.reason, steps });
    }
}

/// Returns line, text and sample output of each command after `$ `.
fn commands(lines: &[(usize, &str)]) -> Vec<(usize, String, Vec<String>)> {
    let mut found: Vec<(usize, String, Vec<String>)> = Vec::new();
    let mut lines = lines.iter().peekable();
    let mut is_for_root = true;
    while let Some(&(line, text)) = lines.next() {
        if let Some(command) = text.strip_prefix("$ ") {
            let mut command = command.to_owned();
            while is_open(&command)
                && let Some((_, more)) = lines.next()
            {
                command += &format!("\n{more}");
            }
            found.push((line, command, Vec::new()));
            is_for_root = false;
        } else if text.starts_with("# ") {
            is_for_root = true;
        } else if let Some((_, _, sample)) = found.last_mut().filter(|_| !is_for_root) {
            sample.push(text.to_owned());
        }
    }
    found
}

/// Whether a command continues on the next line: a backslash at its end, an open quote, or a here-document.
fn is_open(command: &str) -> bool {
    if let Some((_, after)) = command.lines().next().unwrap_or_default().split_once("<<") {
        let end = after.split_whitespace().next().unwrap_or_default().trim_matches('\'');
        return command.lines().count() < 2 || command.lines().last() != Some(end);
    }
    command.ends_with('\\') || quotes(command).last().is_some_and(|(_, quote)| quote.is_some())
}

/// Returns each character with the quote that is open after it. Comments are left out.
fn quotes(text: &str) -> Vec<(char, Option<char>)> {
    let (mut all, mut open, mut before, mut is_comment) = (Vec::new(), None, ' ', false);
    for letter in text.chars() {
        is_comment = if is_comment {
            letter != '\n'
        } else {
            letter == '#' && open.is_none() && before.is_whitespace()
        };
        if !is_comment && before != '\\' && matches!(letter, '\'' | '"') {
            open = match open {
                None => Some(letter),
                Some(quote) if quote == letter => None,
                other => other,
            };
        }
        all.push((letter, open));
        before = letter;
    }
    all
}

impl Placeholders {
    /// Reads the replacements of a setup comment, and returns its commands. `bulla_… = $TOKEN` replaces a shortened text.
    fn learn(&mut self, setup: &str) -> String {
        let mut script = String::new();
        for line in setup.lines() {
            match line.trim().split_once(" = ") {
                Some((text, value)) if text.contains('…') && !text.contains(' ') => {
                    self.texts.push((text.to_owned(), value.to_owned()));
                    continue;
                }
                _ => script += &format!("{line}\n"),
            }
            let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
            let assigned = line.split([' ', ';']).filter_map(|word| word.split_once('='));
            let names = assigned.filter(|(name, _)| !name.is_empty() && name.chars().all(is_name));
            self.names.extend(names.map(|(name, _)| name.to_owned()));
        }
        script
    }

    fn fill(&self, command: &str) -> String {
        let mut command = command.to_owned();
        for (text, value) in &self.texts {
            command = command.replace(text, value);
        }
        let letters = quotes(&command);
        let (mut filled, mut at) = (String::new(), 0);
        while at < letters.len() {
            let before = at.checked_sub(1).map_or(' ', |at| letters[at].0);
            let is_word = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
            let word: String = letters[at..].iter().map(|(c, _)| *c).take_while(|c| is_word(*c)).collect();
            let is_start = !is_word(before) && !"${".contains(before);
            let next = letters.get(at + word.len()).map_or(' ', |(c, _)| *c);
            if is_start && next != '=' && self.names.contains(&word) {
                filled += &match letters[at].1 {
                    Some('\'') => format!("'\"${word}\"'"),
                    _ => format!("${{{word}}}"),
                };
                at += word.len();
            } else {
                let length = word.len().max(1);
                filled.extend(letters[at..at + length].iter().map(|(letter, _)| letter));
                at += length;
            }
        }
        filled
    }
}
