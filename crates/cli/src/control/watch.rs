//! Watches: scans that the server runs on a schedule.

use std::io::Read;
use std::time::Duration;

use api::history::SeriesView;
use api::watches::{WatchBody, WatchView};
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::{Run, input};
use crate::columns;
use crate::connection::{Client, Columns, Listing, Output, show_one};
use crate::exit::{Outcome, Problem};
use crate::units;

const PATH: &str = "/api/v1/watches";
const HISTORY_PATH: &str = "/api/v1/history";

/// Commands for watches.
#[derive(Debug, Subcommand)]
pub enum WatchCommand {
    /// Create a watch: the server scans targets on a schedule
    #[command(visible_alias = "create")]
    Add(Box<NewWatch>),
    /// Change a watch; options that are not given stay unchanged
    #[command(visible_alias = "update")]
    Set(Box<ChangedWatch>),
    /// List watches
    List(Listing),
    /// Show a watch
    Show {
        /// Name or id of the watch
        name: String,
        #[command(flatten)]
        show: Output,
    },
    /// Show the state of runs: running, waiting, and the last run's results
    Status(Listing),
    /// Compare the current values of scans and of the scanner with the last seven days: durations, errors, the database, tasks
    History(Listing),
    /// Run a watch now
    Run {
        /// Name or id of the watch
        name: String,
    },
    /// Pause a watch: no further runs start
    Pause {
        /// Name or id of the watch
        name: String,
    },
    /// Resume a watch; after missed runs, one run starts
    Resume {
        /// Name or id of the watch
        name: String,
    },
    /// Delete a watch; the results of its scans are kept
    #[command(visible_alias = "delete")]
    Remove {
        /// Name or id of the watch
        name: String,
    },
}

/// Arguments of `bulla watch add`.
#[derive(Args, Debug)]
#[command(group(clap::ArgGroup::new("subject").args(["targets", "source"]).required(true).multiple(true)))]
pub struct NewWatch {
    /// Name of the watch
    name: String,
    /// Hosts, addresses, networks and URLs, as for `bulla scan`; @FILE is a list of them on this machine
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// Clouds and clusters of the server's watch.clouds_file: aws/123456789012, aws, all
    #[arg(long, value_name = "SOURCE", value_delimiter = ',')]
    source: Vec<String>,
    /// Interval between runs
    #[arg(long, value_name = "DURATION", default_value = "6h", value_parser = units::duration)]
    every: Duration,
    /// Maximum random delay of a run, so that runs do not start together [default: a tenth of --every]
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    jitter: Option<Duration>,
    /// Group of the watch
    #[arg(long, value_name = "GROUP", default_value = "")]
    group: String,
    /// Ports for targets without a port: 443,8443,9000-9010
    #[arg(long, short, value_name = "PORTS")]
    port: Option<String>,
    /// Server names to request, one after the other, at targets without a name
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    sni: Vec<String>,
    /// STARTTLS protocol of targets without a scheme
    #[arg(long, value_name = "PROTOCOL")]
    starttls: Option<String>,
    /// Scan every address of a name as a separate endpoint
    #[arg(long)]
    all_addresses: bool,
    /// Create the watch paused: `bulla watch resume` starts it
    #[arg(long)]
    paused: bool,
    #[command(flatten)]
    show: Output,
}

/// Arguments of `bulla watch set`.
#[derive(Args, Debug)]
pub struct ChangedWatch {
    /// Name or id of the watch
    name: String,
    /// New targets, instead of the existing ones; @FILE is a list of them on this machine
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// New clouds and clusters, instead of the existing ones
    #[arg(long, value_name = "SOURCE", value_delimiter = ',')]
    source: Option<Vec<String>>,
    /// Interval between runs; a longer jitter is shortened to it
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    every: Option<Duration>,
    /// Maximum random delay of a run
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    jitter: Option<Duration>,
    /// Group of the watch
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Ports for targets without a port
    #[arg(long, short, value_name = "PORTS")]
    port: Option<String>,
    /// Server names to request, one after the other, at targets without a name
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    sni: Option<Vec<String>>,
    /// STARTTLS protocol of targets without a scheme
    #[arg(long, value_name = "PROTOCOL")]
    starttls: Option<String>,
    #[command(flatten)]
    show: Output,
}

impl ChangedWatch {
    /// Returns the request body with the changed settings. `watch` is the current watch, as the API returns it. `targets` are the
    /// given targets, with lists expanded.
    fn change(&self, watch: &Value, targets: &[String]) -> Value {
        // The fields of a view that are also fields of a request. The server computes the other fields of a view.
        const MEMBERS: [&str; 11] = [
            "name",
            "group",
            "targets",
            "sources",
            "ports",
            "server_names",
            "starttls",
            "all_addresses",
            "interval_s",
            "jitter_s",
            "enabled",
        ];
        let mut body: Map<String, Value> =
            MEMBERS.iter().map(|member| ((*member).to_owned(), watch[*member].clone())).collect();
        let mut set = |member: &str, value: Option<Value>| {
            if let Some(value) = value {
                body.insert(member.to_owned(), value);
            }
        };
        set("targets", (!targets.is_empty()).then(|| json!(targets)));
        set("sources", self.source.as_ref().map(|sources| json!(sources)));
        set("group", self.group.as_ref().map(|group| json!(group)));
        set("ports", self.port.as_ref().map(|ports| json!(ports)));
        set("server_names", self.sni.as_ref().map(|names| json!(names)));
        set("starttls", self.starttls.as_ref().map(|protocol| json!(protocol)));
        set("interval_s", self.every.map(|every| json!(every.as_secs())));
        set("jitter_s", self.jitter.map(|jitter| json!(jitter.as_secs())));
        if self.jitter.is_none() && body["jitter_s"].as_u64() > body["interval_s"].as_u64() {
            body["jitter_s"] = body["interval_s"].clone();
        }
        Value::Object(body)
    }
}

/// Maximum bytes of a list of targets: a watch's maximum of 10,000 targets, of a kilobyte each.
const LIST_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Returns the given targets, with lists (`@FILE`) replaced by their content: one target per line, `#` begins a comment.
fn expand(targets: &[String]) -> Outcome<Vec<String>> {
    let mut all = Vec::with_capacity(targets.len());
    for target in targets {
        let Some(path) = target.strip_prefix('@') else {
            all.push(target.clone());
            continue;
        };
        let read = std::fs::File::open(path).and_then(|file| {
            let mut text = String::new();
            std::io::Read::take(file, LIST_BYTES_MAX).read_to_string(&mut text).map(|_| text)
        });
        let text = read.map_err(|error| {
            Problem::usage(format_args!("cannot read the list {path}: {error}"))
                .hint("give a text file with one target per line")
        })?;
        let lines = text.lines().map(without_comment);
        all.extend(lines.filter(|line| !line.is_empty()).map(str::to_owned));
    }
    Ok(all)
}

/// Removes a comment. As in the lists of `bulla scan`, it begins with `#` at the start of a line or after a space.
fn without_comment(line: &str) -> &str {
    let line = line.trim_start_matches('\u{feff}').trim();
    let mut comments = line.match_indices('#').map(|(at, _)| &line[..at]);
    comments.find(|before| before.is_empty() || before.ends_with([' ', '\t'])).unwrap_or(line).trim_end()
}

/// Default jitter of a watch: one part in `JITTER_FRACTION` of the interval. It spreads watches that were created together,
/// without long delays.
const JITTER_FRACTION: u32 = 10;

impl NewWatch {
    fn request(&self) -> Outcome<WatchBody> {
        let jitter = self.jitter.unwrap_or(self.every / JITTER_FRACTION);
        Ok(WatchBody {
            name: self.name.clone(),
            group: self.group.clone(),
            targets: expand(&self.targets)?,
            sources: self.source.clone(),
            ports: self.port.clone(),
            server_names: self.sni.clone(),
            starttls: self.starttls.clone(),
            all_addresses: self.all_addresses,
            interval_s: self.every.as_secs(),
            jitter_s: jitter.as_secs(),
            enabled: !self.paused,
        })
    }
}

impl Run for WatchCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        const WATCHES: Columns = columns!(
            WatchView:
            // The table has no id column, because the name also identifies a watch, and an additional column would exceed 80
            // columns.
            ("Name", name),
            ("State", state),
            ("Every (s)", interval_s),
            ("Next run", next_run_at),
            ("Sources", sources),
            ("Targets", targets),
        );
        const STATUS: Columns = columns!(
            WatchView:
            ("Name", name),
            ("State", state),
            ("Parts done", progress?.parts_done),
            ("Of", progress?.parts),
            ("Seen", progress?.endpoints_done),
            ("Of", progress?.endpoints),
            ("Next run", next_run_at),
            ("Late (s)", lag_s),
            ("Last run", last_run?.ended_at),
            ("Outcome", last_run?.outcome),
            ("Endpoints", last_run?.counts, "/endpoints"),
            ("Answered", last_run?.counts, "/answered"),
            ("Changed", last_run?.counts, "/changed"),
            ("New", last_run?.counts, "/new_certificates"),
            ("Not listed", last_run?.counts, "/not_listed"),
            ("Error", last_run?.error),
        );
        const HISTORY: Columns = columns!(
            SeriesView:
            ("Series", series),
            ("Verdict", verdict),
            ("Now", value),
            ("Before", baseline_value),
            ("Ratio", ratio),
            ("Unit", unit),
            ("p50", last?.p50),
            ("p95", last?.p95),
            ("p99", last?.p99),
            ("Base p50", baseline?.p50),
            ("Base p95", baseline?.p95),
            ("Base p99", baseline?.p99),
            ("Since", since),
        );
        let one = |name: &str| format!("{PATH}/{}", input::segment(name));
        let post = async |name: &str, verb: &str| {
            client.send(Method::POST, &format!("{}/{verb}", one(name)), None).await.map(drop)
        };
        match self {
            Self::Add(new) => show_one(&client.submit(Method::POST, PATH, &new.request()?).await?, &new.show),
            Self::Set(change) => {
                let targets = expand(&change.targets)?;
                let path = one(&change.name);
                let changed = client.change(&path, async |watch| Ok(change.change(watch, &targets))).await?;
                show_one(&changed, &change.show)
            }
            Self::List(listing) => listing.print(client, PATH, &(), WATCHES).await,
            Self::Show { name, show } => show_one(&client.get(&one(name), &()).await?, show),
            Self::Status(listing) => listing.print(client, PATH, &(), STATUS).await,
            Self::History(listing) => listing.print(client, HISTORY_PATH, &(), HISTORY).await,
            Self::Run { name } => post(name, "run").await,
            Self::Pause { name } => post(name, "pause").await,
            Self::Resume { name } => post(name, "resume").await,
            Self::Remove { name } => client.send(Method::DELETE, &one(name), None).await.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Change {
        #[command(flatten)]
        change: ChangedWatch,
    }

    #[test]
    fn watch_update_keeps_unspecified_fields() {
        let watch = json!({
            "id": "7", "name": "edge", "group": "prod", "targets": ["a.example"], "sources": [], "ports": null,
            "server_names": [], "starttls": null, "all_addresses": true, "interval_s": 3600, "jitter_s": 360, "enabled": false,
            "state": "paused", "lag_s": 0,
        });
        let arguments = ["set", "edge", "--every", "2m", "--source", "aws"];
        let change = Change::try_parse_from(arguments).unwrap().change;
        assert_eq!(
            change.change(&watch, &[]),
            json!({
                "name": "edge", "group": "prod", "targets": ["a.example"], "sources": ["aws"], "ports": null,
                "server_names": [], "starttls": null, "all_addresses": true, "interval_s": 120, "jitter_s": 120,
                "enabled": false,
            })
        );
        assert_eq!(change.change(&watch, &["b.example".to_owned()])["targets"], json!(["b.example"]));
    }

    #[test]
    fn target_list_file_is_expanded_locally() {
        let list = std::env::temp_dir().join(format!("bulla-watch-{}.txt", std::process::id()));
        std::fs::write(&list, "# hosts\n a.example\n\nb.example:8443 # the other\n").unwrap();
        let given = ["c.example".to_owned(), format!("@{}", list.display())];
        let expanded = expand(&given);
        std::fs::remove_file(&list).unwrap();
        assert_eq!(expanded.unwrap(), ["c.example", "a.example", "b.example:8443"]);
        assert!(expand(&["@/nowhere/at/all".to_owned()]).is_err());
    }
}
