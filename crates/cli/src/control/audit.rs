//! Commands for the audit log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use api::audit::{
    AuditKeyView, AuditQuery, AuditView, HeadsQuery, InclusionProof, ProofQuery, SegmentLine, SegmentView,
    VerificationView,
};
use audit_proof::stored_heads::StoredHeads;
use audit_proof::{export, inclusion};
use clap::Subcommand;
use jiff::Timestamp;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Run;
use crate::columns;
use crate::connection::{Client, Columns, Listing, Output, read_as, show_one};
use crate::exit::{Exit, Outcome, Problem};
use crate::units::{self, counted};

/// Commands of `bulla audit`.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// List events, newest first
    ///
    /// The server lists events that are not sealed yet; an export has the sealed ones too.
    /// With --export without the server: bulla audit list --export proxy-audit.jsonl --action proxy.request.outcome
    List {
        /// List the events in this file offline: the output of `bulla audit export`, or the audit_file of a proxy
        #[arg(long, value_name = "FILE")]
        export: Option<PathBuf>,
        /// Only the decisions and the outcome of this proxied request: the id `request` in the details of its events
        #[arg(long, value_name = "ID", requires = "export")]
        request: Option<String>,
        /// Only events of this actor: token:ci, user:alice, system:renewal
        #[arg(long, value_name = "ACTOR")]
        actor: Option<String>,
        /// Only events of this action: certificate.revoke
        #[arg(long, value_name = "ACTION")]
        action: Option<String>,
        /// Only events of this resource: certificate/ID
        #[arg(long, value_name = "RESOURCE")]
        resource: Option<String>,
        /// Only events since this time: an age (2d), a date or a time
        #[arg(long, value_name = "TIME", value_parser = time)]
        from: Option<Timestamp>,
        /// Only events before this time: an age (2d), a date or a time
        #[arg(long, value_name = "TIME", value_parser = time)]
        before: Option<Timestamp>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Print the whole log as JSON lines: events, newest first, then sealed segments
    Export,
    /// Recompute every hash chain, and report changes
    ///
    /// With --export without the server: bulla audit verify --export audit.jsonl --head heads.jsonl --key audit-key.pem
    Verify {
        /// Verify this file offline: the output of `bulla audit export`
        #[arg(long, value_name = "FILE")]
        export: Option<PathBuf>,
        /// Verify this file offline: the output of `bulla audit prove`
        #[arg(long, value_name = "FILE", conflicts_with = "export")]
        proof: Option<PathBuf>,
        /// Trusted heads that the export or the proof must continue: signed heads from a witness, the output of `bulla audit verify
        /// --output json`, or one line SHARD:SEQUENCE:HASH per chain
        #[arg(long, value_name = "FILE")]
        head: Option<PathBuf>,
        /// The public key of the signatures of the heads, PEM: the output of `bulla audit key`
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
        #[command(flatten)]
        show: Output,
    },
    /// Sign the ends of all chains now, and print the signed head
    ///
    /// Store it where the database's administrators cannot write: bulla audit head >> heads.jsonl
    Head {
        /// Print every signed head, oldest first, as JSON lines; sign nothing
        #[arg(long)]
        all: bool,
    },
    /// Print the public key that verifies signed heads, PEM
    Key,
    /// List the sealed segments, oldest first
    Segments {
        #[command(flatten)]
        listing: Listing,
    },
    /// Print a sealed segment as JSON lines: its head, then its lines
    Segment {
        /// Number of the segment
        #[arg(value_name = "NUMBER")]
        segment: u64,
    },
    /// Prove that a line is in a sealed segment
    Prove {
        /// Number of the segment
        #[arg(value_name = "NUMBER")]
        segment: u64,
        /// Number of the line, from 0: the second line of `bulla audit segment` is line 0
        #[arg(long, value_name = "LINE")]
        line: u64,
    },
}

const COLUMNS: Columns = columns!(
    AuditView:
    ("At", at),
    ("Actor", actor),
    ("Action", action),
    ("Resource", resource),
    ("Details", details),
);

const SEGMENTS: Columns = columns!(
    SegmentView:
    ("Segment", head.segment),
    ("Chain", head.shard),
    ("First", head.first),
    ("Last", head.last),
    ("Lines", head.lines),
    ("From", head.from),
    ("To", head.to),
    ("Bytes", bytes),
    ("Pruned", pruned_at),
);

impl Run for AuditCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        match self {
            Self::List { export: Some(_), .. } => Ok(()),
            Self::List { actor, action, resource, from, before, listing, .. } => {
                let query = AuditQuery {
                    actor: actor.clone(),
                    action: action.clone(),
                    resource: resource.clone(),
                    from: from.map(|from| from.to_string()),
                    before: before.map(|before| before.to_string()),
                };
                listing.print(client, "/api/v1/audit", &query, COLUMNS).await
            }
            Self::Export => print_bytes(&client.get_bytes("/api/v1/audit/export", &()).await?),
            Self::Verify { export: Some(_), .. } | Self::Verify { proof: Some(_), .. } => Ok(()),
            Self::Verify { head: Some(_), .. } | Self::Verify { key: Some(_), .. } => {
                Err(Problem::usage("--head and --key need --export or --proof").hint(
                    "the server compares with its own signed heads: give --export FILE to compare with heads stored elsewhere",
                ))
            }
            Self::Verify { show, .. } => {
                let verified = client.send(Method::POST, "/api/v1/audit/verify", None).await?;
                show_one(&verified, show)?;
                fail_if_altered(&read_as(&verified)?)
            }
            Self::Head { all: true } => {
                print_bytes(&client.get_bytes("/api/v1/audit/heads", &HeadsQuery::default()).await?)
            }
            Self::Head { all: false } => {
                let mut head = client.send_bytes(Method::POST, "/api/v1/audit/heads", None).await?;
                head.push(b'\n');
                print_bytes(&head)
            }
            Self::Key => {
                let key: AuditKeyView = client.fetch("/api/v1/audit/key", &()).await?;
                print_bytes(key.public_key_pem.as_bytes())
            }
            Self::Segments { listing } => {
                listing.print(client, "/api/v1/audit/segments", &(), SEGMENTS).await
            }
            Self::Segment { segment } => {
                print_bytes(&client.get_bytes(&format!("/api/v1/audit/segments/{segment}"), &()).await?)
            }
            Self::Prove { segment, line } => {
                let (path, query) = (format!("/api/v1/audit/segments/{segment}/proof"), ProofQuery { line: *line });
                let mut proof = client.get_bytes(&path, &query).await?;
                proof.push(b'\n');
                print_bytes(&proof)
            }
        }
    }

    fn run_offline(&self) -> Option<Outcome<()>> {
        match self {
            Self::List { export: Some(export), request, actor, action, resource, from, before, listing } => {
                let wanted = EventFilter {
                    actor: actor.as_deref(),
                    action: action.as_deref(),
                    resource: resource.as_deref(),
                    request: request.as_deref(),
                    from: *from,
                    before: *before,
                };
                Some(list_export(export, &wanted, listing))
            }
            Self::Verify { export: Some(export), head, key, show, .. } => {
                Some(verify_export(export, head.as_deref(), key.as_deref(), show))
            }
            Self::Verify { proof: Some(proof), head, key, .. } => {
                Some(verify_proof(proof, head.as_deref(), key.as_deref()))
            }
            _ => None,
        }
    }
}

fn print_bytes(bytes: &[u8]) -> Outcome<()> {
    std::io::stdout().write_all(bytes).map_err(|error| Problem::output(&error))
}

fn fail_if_altered(verified: &VerificationView) -> Outcome<()> {
    if verified.good {
        return Ok(());
    }
    Err(Problem::new(Exit::Findings, "the audit log was altered")
        .hint("compare with an export and with heads stored elsewhere; the faults name the chains"))
}

fn unreadable(path: &Path, error: impl std::fmt::Display) -> Problem {
    Problem::usage(format_args!("cannot read {}: {error}", path.display())).hint(
        "--export needs a file of `bulla audit export`, --proof one of `bulla audit prove`, --head signed heads of a \
         witness or of `bulla audit head`, --key a file of `bulla audit key`",
    )
}

fn read_saved_heads(head: Option<&Path>) -> Outcome<StoredHeads> {
    let Some(path) = head else { return Ok(StoredHeads::default()) };
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, error))?;
    StoredHeads::parse(&text).map_err(|error| unreadable(path, error))
}

/// Converts a public key from PEM to DER.
fn public_key(key: Option<&Path>) -> Outcome<Option<Vec<u8>>> {
    let Some(path) = key else { return Ok(None) };
    let text = std::fs::read(path).map_err(|error| unreadable(path, error))?;
    let found = x509::pem::blocks(&text).find(|(label, _)| label == "PUBLIC KEY").map(|(_, der)| der);
    found.map(Some).ok_or_else(|| unreadable(path, "the file contains no PUBLIC KEY block"))
}

/// Conditions for events; all must match.
struct EventFilter<'a> {
    actor: Option<&'a str>,
    action: Option<&'a str>,
    resource: Option<&'a str>,
    /// Member `request` of the event's details.
    request: Option<&'a str>,
    from: Option<Timestamp>,
    before: Option<Timestamp>,
}

impl EventFilter<'_> {
    fn matches(&self, event: &Value) -> bool {
        let is = |wanted: Option<&str>, found: &Value| wanted.is_none_or(|wanted| *found == wanted);
        let at = time_of(event);
        self.from.is_none_or(|from| at >= from)
            && self.before.is_none_or(|before| at < before)
            && is(self.actor, &event["actor"])
            && is(self.action, &event["action"])
            && is(self.resource, &event["resource"])
            && is(self.request, &event["details"]["request"])
    }
}

/// The sort key of an event in a listing: its time, its position in its chain, and its line in the file. Exports of a server are
/// newest first, logs of a proxy oldest first.
type EventPosition = (i64, i64, u64);

/// The matching events of an export, and the counts of lines that a listing leaves out.
#[derive(Debug, Default)]
struct ExportedEvents {
    /// The newest matching events, oldest first.
    newest: BTreeMap<EventPosition, Value>,
    /// Number of matching events that are not in `newest`.
    others: u64,
    /// Number of lines that are neither an event nor a line of a segment.
    damaged: u64,
    /// Number of lines of other kinds, such as the head of a segment.
    other_kinds: u64,
    /// Number of events, matching or not.
    events: u64,
}

impl ExportedEvents {
    fn read(lines: impl BufRead, wanted: &EventFilter<'_>, rows_max: usize) -> std::io::Result<Self> {
        let mut found = Self::default();
        for (number, line) in (0..).zip(lines.split(b'\n')) {
            let line = line?;
            if line.trim_ascii().is_empty() {
                continue;
            }
            let Ok(event @ Value::Object(_)) = serde_json::from_slice(&line) else {
                found.damaged += 1;
                continue;
            };
            let event = unsealed(event);
            if !event["action"].is_string() {
                found.other_kinds += 1;
                continue;
            }
            found.events += 1;
            if wanted.matches(&event) {
                let sequence = event["sequence"].as_i64().unwrap_or_default();
                found.newest.insert((time_of(&event).as_microsecond(), sequence, number), event);
                if found.newest.len() > rows_max {
                    found.newest.pop_first();
                    found.others += 1;
                }
            }
        }
        Ok(found)
    }

    /// Returns the events to list, newest first.
    fn into_rows(self) -> Vec<Value> {
        self.newest.into_values().rev().collect()
    }

    /// Returns notes for the user about the lines that the listing leaves out.
    fn left_out(&self) -> Vec<String> {
        let others = (self.others > 0).then(|| {
            let count = counted(self.others, "event");
            format!("note: {count} left out: --limit gives more, --all gives every event")
        });
        let damaged = (self.damaged > 0).then(|| {
            let count = counted(self.damaged, "line");
            format!("warning: {count} left out: damaged, or no JSON of an audit log. `bulla audit verify --export` checks an export of the server")
        });
        others.into_iter().chain(damaged).collect()
    }
}

/// Returns the time of an event; 1970 if it has none.
fn time_of(event: &Value) -> Timestamp {
    event["at"].as_str().and_then(|at| at.parse().ok()).unwrap_or_default()
}

/// Parses a time, or an age.
fn time(text: &str) -> Result<Timestamp, String> {
    let at_us = units::parse_time(text, units::now_us())?;
    Timestamp::from_microsecond(at_us).map_err(|error| error.to_string())
}

/// Converts a line of a sealed segment to the event in it. Returns other lines unchanged.
fn unsealed(line: Value) -> Value {
    let at = |us: i64| Timestamp::from_microsecond(us).ok().map(|at| at.to_string());
    match SegmentLine::deserialize(&line) {
        Ok(SegmentLine::Event { sequence, at_us, actor, action, resource, details, hash }) => json!({
            "at": at(at_us), "actor": actor, "action": action, "resource": resource, "details": details,
            "sequence": sequence, "hash": hash,
        }),
        Ok(SegmentLine::Reads { actor, resource, version, times, first_us, last_us, .. }) => json!({
            "at": at(first_us), "actor": actor, "action": "credential.read", "resource": resource,
            "details": { "version": version, "times": times, "until_us": last_us },
        }),
        Ok(SegmentLine::Point { .. }) | Err(_) => line,
    }
}

/// Lists the events of an export, newest first.
fn list_export(path: &Path, wanted: &EventFilter<'_>, listing: &Listing) -> Outcome<()> {
    if let Some(flag) = listing.flag_of_servers() {
        return Err(Problem::usage(format_args!(
            "{flag} does not work with --export: a file has no pages and does not change"
        ))
        .hint("--limit ROWS or --all gives more rows"));
    }
    let file = File::open(path).map_err(|error| unreadable(path, error))?;
    let rows_max = listing.rows_max().unwrap_or(usize::MAX);
    let found = ExportedEvents::read(BufReader::new(file), wanted, rows_max);
    let found = found.map_err(|error| unreadable(path, error))?;
    if found.events == 0 && found.damaged + found.other_kinds > 0 {
        return Err(unreadable(path, "no line is an audit event"));
    }
    for line in found.left_out() {
        eprintln!("{line}");
    }
    listing.print_documents(found.into_rows(), COLUMNS)
}

/// Verifies an export, and that it continues the stored heads.
fn verify_export(path: &Path, head: Option<&Path>, key: Option<&Path>, show: &Output) -> Outcome<()> {
    let (heads, key) = (read_saved_heads(head)?, public_key(key)?);
    let file = File::open(path).map_err(|error| unreadable(path, error))?;
    let verified = export::verify(BufReader::new(file), &heads, key.as_deref());
    let verified = verified.map_err(|error| unreadable(path, error))?;
    let shown = serde_json::to_value(&verified).map_err(|error| unreadable(path, error))?;
    show_one(&shown, show)?;
    fail_if_altered(&verified)
}

/// Verifies a proof, and that the stored heads name its segment.
fn verify_proof(path: &Path, head: Option<&Path>, key: Option<&Path>) -> Outcome<()> {
    let (heads, key) = (read_saved_heads(head)?, public_key(key)?);
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, error))?;
    let proof: InclusionProof = serde_json::from_str(&text).map_err(|error| unreadable(path, error))?;
    let wrong = |fault: String| {
        Problem::new(Exit::Findings, format!("the proof is not valid: {fault}"))
            .hint("compare with another copy of the proof and with heads stored elsewhere")
    };
    if let Some(fault) = heads.check(key.as_deref()).1.into_iter().next() {
        return Err(wrong(fault));
    }
    inclusion::check(&proof, &heads.signed, key.as_deref()).map_err(wrong)?;
    let segment = &proof.segment;
    let (number, shard, first, last) = (segment.segment, segment.shard, segment.first, segment.last);
    let line = audit_proof::segment::line_text(&proof.line);
    print_bytes(format!("in segment {number} (chain {shard}, events {first} to {last}): {line}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: EventFilter<'_> =
        EventFilter { actor: None, action: None, resource: None, request: None, from: None, before: None };

    #[test]
    fn what_a_listing_of_an_export_leaves_out_is_counted() {
        let event = |number: u32| format!("{{\"action\":\"a\",\"actor\":\"{number}\"}}\n");
        let mut text: Vec<u8> = (0..5).flat_map(|number| event(number).into_bytes()).collect();
        text.extend_from_slice(b"{\"segment\":1}\n\n{\"action\":\"a\",\"act\n\xff\n7\n");
        let found = ExportedEvents::read(&text[..], &ALL, 2).unwrap();
        assert_eq!((found.others, found.damaged, found.other_kinds, found.events), (3, 3, 1, 5));
        let left_out = found.left_out();
        assert_eq!(actors(found), ["4", "3"]);
        assert!(left_out[0].contains("3 events left out") && left_out[0].contains("--all"), "{left_out:?}");
        assert!(left_out[1].contains("3 lines"), "{left_out:?}");
        let all = ExportedEvents::read(&text[..text.len() - 2], &ALL, usize::MAX).unwrap();
        assert_eq!((all.newest.len(), all.others), (5, 0));
    }

    /// Returns the actors of the listed events, in order.
    fn actors(found: ExportedEvents) -> Vec<Value> {
        found.into_rows().iter_mut().map(|event| event["actor"].take()).collect()
    }

    #[test]
    fn events_of_each_kind_of_file_are_listed_newest_first() {
        let event = |at: &str, sequence: u32| {
            format!("{{\"at\":\"{at}\",\"actor\":\"{sequence}\",\"action\":\"a\",\"sequence\":{sequence}}}\n")
        };
        let oldest_first = [
            event("2026-01-01T00:00:00Z", 4),
            event("2026-01-01T00:00:00Z", 5),
            event("2026-01-01T00:00:00.5Z", 6),
            event("2026-01-01T00:00:01Z", 7),
        ];
        let newest_first: String = oldest_first.iter().rev().cloned().collect();
        let line = |line: &SegmentLine| audit_proof::segment::line_text(line) + "\n";
        let sealed = SegmentLine::Event {
            sequence: 1,
            at_us: 1_700_000_000_000_000,
            actor: "1".to_owned(),
            action: "a".to_owned(),
            resource: "r".to_owned(),
            details: json!({}),
            hash: String::new(),
        };
        let reads = SegmentLine::Reads {
            actor: "2".to_owned(),
            resource: "r".to_owned(),
            version: "v".to_owned(),
            times: 9,
            records: 1,
            first_us: 1_700_000_000_000_001,
            last_us: 1_700_000_000_000_002,
        };
        let server = newest_first + "{\"format\":\"bulla-audit-segment\"}\n" + &line(&sealed) + &line(&reads);
        let read = |text: &str, rows_max| ExportedEvents::read(text.as_bytes(), &ALL, rows_max).unwrap();
        assert_eq!(actors(read(&server, usize::MAX)), ["7", "6", "5", "4", "2", "1"]);
        assert_eq!(actors(read(&server, 2)), ["7", "6"]);
        assert_eq!(actors(read(&oldest_first.concat(), 3)), ["7", "6", "5"]);
        let of_a_second = EventFilter {
            from: Some(time("2026-01-01").unwrap()),
            before: Some(time("2026-01-01T00:00:01Z").unwrap()),
            ..ALL
        };
        let found = ExportedEvents::read(server.as_bytes(), &of_a_second, usize::MAX).unwrap();
        assert_eq!(actors(found), ["6", "5", "4"]);
        assert!(time("yesterday").is_err());
        let rows = read(&server, usize::MAX).into_rows();
        assert_eq!(rows[5]["at"], "2023-11-14T22:13:20Z");
        assert_eq!(
            (&rows[4]["action"], &rows[4]["details"]["times"]),
            (&json!("credential.read"), &json!(9))
        );
    }

    #[test]
    fn a_file_that_is_no_export_and_flags_of_the_server_are_refused() {
        #[derive(clap::Parser)]
        struct Command {
            #[command(flatten)]
            listing: Listing,
        }
        let listing = |flags: &[&str]| {
            <Command as clap::Parser>::parse_from(std::iter::once("x").chain(flags.iter().copied())).listing
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        for other in ["-----BEGIN CERTIFICATE-----\n", "{\"name\":\"a\"}\n", "[\n1]\n"] {
            std::fs::write(file.path(), other).unwrap();
            let refused = list_export(file.path(), &ALL, &listing(&[])).unwrap_err();
            assert!(refused.message.contains("no line is an audit event"), "{refused:?}");
        }
        std::fs::write(file.path(), "{\"action\":\"a\"}\n").unwrap();
        list_export(file.path(), &ALL, &listing(&["--all"])).unwrap();
        for flags in [["--after=x"], ["--watch"], ["--watch=1s"]] {
            let refused = list_export(file.path(), &ALL, &listing(&flags)).unwrap_err();
            assert!(refused.message.contains(&flags[0][..7]), "{refused:?}");
        }
    }
}
