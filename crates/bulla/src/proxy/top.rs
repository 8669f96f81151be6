//! `bulla proxy top`: follows the decisions of a running proxy in the terminal, from its audit log.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use cli::GlobalArgs;
use cli::exit::{Exit, Outcome, Problem};
use cli::terminal::{clean, shorten, width};
use cli::units;
use serde_json::Value;

use crate::config::Configuration;

/// Bytes at the end of the log that are read at the start.
const HISTORY: u64 = 1 << 20;
/// Maximum bytes of the log per read.
const READ_BYTES_MAX: u64 = 8 << 20;
/// Maximum number of decisions that the screen keeps in memory.
const ROWS_MAX: usize = 1_000;
/// Rows that a terminal of unknown height shows.
const DEFAULT_ROWS: usize = 24;
/// Control sequence that clears a terminal and moves the cursor to the first line (ECMA-48: CUP, ED).
const CLEAR: &str = "\x1b[H\x1b[2J";
const HEAD: &str = "TIME      IDENTITY          DECISION  STATUS  ms      UP        DOWN      REQUEST";

/// Arguments of `bulla proxy top`.
#[derive(Args, Clone, Debug)]
pub(crate) struct TopArgs {
    /// The audit log of the proxy [default: proxy.requests.audit_file]
    #[arg(long, value_name = "FILE")]
    audit_file: Option<PathBuf>,
    /// Only this identity, user or address: the actor in the audit log, or the part of the actor after the colon
    #[arg(long, value_name = "ACTOR")]
    actor: Option<String>,
    /// Only requests whose host, method or path contains this text
    #[arg(long, value_name = "TEXT")]
    find: Option<String>,
    /// Only denied requests
    #[arg(long)]
    denied: bool,
    /// Time between two reads of the log
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = units::duration)]
    every: Duration,
    /// Print the decisions in the log, and exit
    #[arg(long)]
    once: bool,
}

/// A decision of the proxy, and the outcome of its request once it is logged.
#[derive(Debug)]
struct Row {
    request: String,
    decision: Value,
    outcome: Option<Value>,
    is_printed: bool,
}

/// The last decisions, and the log that they are read from.
#[derive(Debug)]
struct Log<'a> {
    path: &'a Path,
    file: File,
    /// The start of a line whose end has not been read yet.
    begun: Vec<u8>,
    rows: VecDeque<Row>,
    /// Whether at least one complete line was read.
    is_begun: bool,
    /// Whether at least one line was an audit event of a proxy.
    is_of_proxy: bool,
}

/// Runs `bulla proxy top`.
pub(super) fn run(args: &TopArgs, global: &GlobalArgs) -> Outcome<Exit> {
    let path = match &args.audit_file {
        Some(path) => path.clone(),
        None => Configuration::load(global.config.as_deref())?.settings.proxy.requests.audit_file.clone(),
    };
    if path.as_os_str().is_empty() {
        return Err(Problem::usage("the proxy has no audit log")
            .hint("set proxy.requests.audit_file, or give --audit-file FILE"));
    }
    let unreadable = |error: std::io::Error| {
        Problem::usage(format_args!("cannot read {}: {error}", path.display())).hint(match error.kind() {
            ErrorKind::NotFound => {
                "the proxy creates its audit log at startup: check the path, and that the proxy runs"
            }
            ErrorKind::PermissionDenied => {
                "only the user of the proxy may read its audit log: run this as that user"
            }
            _ => "give the file that proxy.requests.audit_file of the proxy names",
        })
    };
    let mut log = Log::open(&path).map_err(unreadable)?;
    let is_screen = std::io::stdout().is_terminal() && !args.once;
    loop {
        log.read().map_err(unreadable)?;
        log.check()?;
        let shown = match is_screen {
            true => format!("{CLEAR}{}", log.screen(args)),
            false => log.lines(args),
        };
        match std::io::stdout().write_all(shown.as_bytes()).and_then(|()| std::io::stdout().flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(Exit::Ok),
            written => written.map_err(|error| Problem::output(&error))?,
        }
        if args.once {
            if shown.is_empty() {
                eprintln!("note: {}", log.why_empty());
            }
            return Ok(Exit::Ok);
        }
        std::thread::sleep(args.every);
    }
}

impl<'a> Log<'a> {
    /// Opens the log near its end.
    fn open(path: &'a Path) -> std::io::Result<Self> {
        let mut file = File::open(path)?;
        let from = file.metadata()?.len().saturating_sub(HISTORY);
        file.seek(SeekFrom::Start(from))?;
        // The first line is usually incomplete. It is skipped, because it is not valid JSON.
        Ok(Self { path, file, begun: Vec::new(), rows: VecDeque::new(), is_begun: false, is_of_proxy: false })
    }

    /// Reads the lines that were written since the last read. Opens the file again after a rotation.
    fn read(&mut self) -> std::io::Result<()> {
        loop {
            let mut read = Vec::new();
            (&self.file).take(READ_BYTES_MAX).read_to_end(&mut read)?;
            if !read.is_empty() {
                self.take(&read);
                continue;
            }
            match File::open(self.path) {
                Ok(new) if new.metadata()?.ino() != self.file.metadata()?.ino() => {
                    self.file = new;
                    self.begun.clear();
                }
                _ => return Ok(()),
            }
        }
    }

    /// Checks that the file is the audit log of a proxy, as far as it was read.
    fn check(&self) -> Outcome<()> {
        if self.is_of_proxy || !self.is_begun {
            return Ok(());
        }
        Err(Problem::usage(format_args!("{} contains no events of a proxy", self.path.display()))
            .hint("give the file that proxy.requests.audit_file of the proxy names"))
    }

    /// Returns the reason why no decision is printed.
    fn why_empty(&self) -> String {
        match self.rows.len() {
            0 => "the log holds no decisions yet".to_owned(),
            count => format!("no match in the last {}", units::counted(count as u64, "decision")),
        }
    }

    fn take(&mut self, read: &[u8]) {
        let whole = read.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.begun.extend_from_slice(&read[..whole]);
        if whole > 0 {
            self.is_begun = true;
            let lines = std::mem::take(&mut self.begun);
            lines.split(|byte| *byte == b'\n').for_each(|line| self.event(line));
        }
        self.begun.extend_from_slice(&read[whole..]);
    }

    fn event(&mut self, line: &[u8]) {
        let Ok(event) = serde_json::from_slice::<Value>(line) else { return };
        self.is_of_proxy |= event["action"].as_str().is_some_and(|action| action.starts_with("proxy."));
        let Some(request) = event["details"]["request"].as_str().map(str::to_owned) else { return };
        if event["action"].as_str().is_some_and(|action| action.ends_with(".outcome")) {
            if let Some(row) = self.rows.iter_mut().rev().find(|row| row.request == request) {
                row.outcome = Some(event);
            }
            return;
        }
        let is_of_request = |row: &&mut Row| row.request == request && row.is_held();
        if let Some(row) = self.rows.iter_mut().rev().find(is_of_request) {
            *row = Row { request, decision: event, outcome: None, is_printed: false };
            return;
        }
        if self.rows.len() == ROWS_MAX {
            self.rows.pop_front();
        }
        self.rows.push_back(Row { request, decision: event, outcome: None, is_printed: false });
    }

    /// Returns the rows that are not printed yet: refusals and held requests immediately, other requests with their outcome.
    fn lines(&mut self, args: &TopArgs) -> String {
        let mut text = String::new();
        for row in &mut self.rows {
            let is_due = args.once || row.outcome.is_some() || row.decision["details"]["sent"] == false;
            if is_due && !std::mem::replace(&mut row.is_printed, true) && row.matches(args) {
                let _ = writeln!(text, "{}", row.line());
            }
        }
        text
    }

    /// Returns the text of the screen: a summary, and the last rows, newest first.
    fn screen(&self, args: &TopArgs) -> String {
        let width = usize::from(width().unwrap_or(120));
        let height = rustix::termios::tcgetwinsize(std::io::stdout());
        let height = height.map_or(DEFAULT_ROWS, |size| usize::from(size.ws_row));
        let found: Vec<_> = self.rows.iter().rev().filter(|row| row.matches(args)).collect();
        let running = found.iter().filter(|row| row.is_running()).count();
        let denied = found.iter().filter(|row| row.is_denied()).count();
        let held = found.iter().filter(|row| row.is_held()).count();
        let removed = found.iter().filter(|row| row.removed() > 0).count();
        let mut text = format!(
            "{} decisions: {denied} denied, {held} held, {running} under way, {removed} with a credential in the response    Ctrl-C ends\n\n",
            found.len()
        );
        let _ = writeln!(text, "{}", shorten(HEAD, width));
        for row in found.iter().take(height.saturating_sub(4)) {
            let _ = writeln!(text, "{}", shorten(&row.line(), width));
        }
        text
    }
}

impl Row {
    fn matches(&self, args: &TopArgs) -> bool {
        let actor = self.decision["actor"].as_str().unwrap_or_default();
        let is_actor = |wanted: &String| {
            actor == wanted || actor.split_once(':').is_some_and(|(_, name)| name == wanted)
        };
        args.actor.as_ref().is_none_or(is_actor)
            && args.find.as_ref().is_none_or(|text| self.request_text().contains(text.as_str()))
            && (!args.denied || self.is_denied())
    }

    fn is_denied(&self) -> bool {
        self.action() == "deny"
    }

    /// Returns whether the request waits for an approval.
    fn is_held(&self) -> bool {
        self.action() == "hold"
    }

    fn is_running(&self) -> bool {
        self.outcome.is_none() && self.decision["details"]["sent"] == true
    }

    fn removed(&self) -> u64 {
        let outcome = self.outcome.as_ref();
        outcome.and_then(|outcome| outcome["details"]["credentials_removed"].as_u64()).unwrap_or(0)
    }

    /// Returns the decision. `answered` means that policy allowed the request, and that a rule of the proxy answered it, such as
    /// `block`.
    fn action(&self) -> &str {
        let action = self.policy_action();
        if action == "allow" && self.decision["details"]["sent"] == false { "answered" } else { action }
    }

    fn policy_action(&self) -> &str {
        self.decision["action"].as_str().and_then(|action| action.rsplit('.').next()).unwrap_or_default()
    }

    fn request_text(&self) -> String {
        let details = &self.decision["details"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let method = details["method"].as_str().unwrap_or("CONNECT");
        format!("{method} {}{}", text(&self.decision["resource"]), text(&details["path"]))
    }

    fn line(&self) -> String {
        let time = self.decision["at"].as_str().and_then(|at| at.get(11..19)).unwrap_or_default();
        let actor = self.decision["actor"].as_str().unwrap_or_default();
        let name = actor.split_once(':').map_or(actor, |(_, name)| name);
        let details = self.outcome.as_ref().map(|outcome| &outcome["details"]);
        let number = |key: &str| {
            let value = details.and_then(|details| details[key].as_u64());
            value.map_or_else(|| "-".to_owned(), |value| value.to_string())
        };
        let text = |key: &str| self.decision["details"][key].as_str();
        let rule = match (text("rule"), text("decided_by")) {
            (Some(rule), Some(by)) => format!("  ({rule}, by {by})"),
            (Some(rule), None) => format!("  ({rule})"),
            (None, _) => String::new(),
        };
        let line = format!(
            "{time}  {:<16}  {:<8}  {:<6}  {:<6}  {:<8}  {:<8}  {}{rule}",
            shorten(name, 16),
            self.action(),
            number("status"),
            number("duration_ms"),
            number("bytes_from_client"),
            number("bytes_to_client"),
            self.request_text(),
        );
        clean(&line).trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_events_of_a_proxy_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            let mut log = Log::open(file.path()).unwrap();
            log.read().unwrap();
            let refused = log.check().err().map(|problem| problem.message);
            (refused, log.why_empty())
        };
        for other in ["-----BEGIN CERTIFICATE-----\n", "{\"action\":\"profile.put\"}\n", "\n"] {
            let refused = read(other).0.unwrap();
            assert!(refused.contains("no events of a proxy"), "{refused}");
        }
        // An empty log, and one whose first line is not written completely.
        for begun in ["", "{\"action\":\"proxy.req"] {
            assert_eq!(read(begun), (None, "the log holds no decisions yet".to_owned()));
        }
        let (refused, why) = read("{\"action\":\"proxy.request.allow\",\"details\":{\"request\":\"a\"}}\n");
        let mut log = Log::open(file.path()).unwrap();
        log.event(br#"{"action":"proxy.request.allow","details":{"request":"b","sent":false}}"#);
        assert_eq!(log.rows[0].action(), "answered");
        assert_eq!((refused, why.as_str()), (None, "no match in the last 1 decision"));
    }
}
