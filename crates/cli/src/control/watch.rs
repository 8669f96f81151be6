//! Watches: scans that the server makes by itself.

use std::time::Duration;

use api::history::SeriesView;
use api::watches::{WatchBody, WatchView};
use clap::{Args, Subcommand};
use reqwest::Method;

use super::{Run, input};
use crate::columns;
use crate::connection::{Client, Columns, Listing, Output, show_one};
use crate::exit::Outcome;
use crate::units;

const PATH: &str = "/api/v1/watches";
const HISTORY_PATH: &str = "/api/v1/history";

/// Watches.
#[derive(Debug, Subcommand)]
pub enum WatchCommand {
    /// Have the server scan targets on schedule, from now on
    Add(Box<NewWatch>),
    /// List them
    List(Listing),
    /// Show one
    Show {
        /// Its name or id
        name: String,
        #[command(flatten)]
        show: Output,
    },
    /// How their runs go: what runs, what waits, what the last run found
    Status(Listing),
    /// What scans and the scanner do beside their last seven days: durations, errors, the database, tasks
    History(Listing),
    /// Run one now
    Run {
        /// Its name or id
        name: String,
    },
    /// Begin no more runs of one
    Pause {
        /// Its name or id
        name: String,
    },
    /// Begin runs of one again; what it missed is run once
    Resume {
        /// Its name or id
        name: String,
    },
    /// Remove one; what its scans found stays
    Remove {
        /// Its name or id
        name: String,
    },
}

/// A watch to make.
#[derive(Args, Debug)]
pub struct NewWatch {
    /// Its name
    name: String,
    /// Hosts, addresses, networks and URLs, as `bulla scan` takes them; the server looks, so no files
    #[arg(value_name = "TARGET", required_unless_present = "source")]
    targets: Vec<String>,
    /// Clouds and clusters of the server's watch.clouds_file: aws/123456789012, aws, all
    #[arg(long, value_name = "SOURCE", value_delimiter = ',')]
    source: Vec<String>,
    /// From one run to the next
    #[arg(long, value_name = "DURATION", default_value = "6h", value_parser = units::duration)]
    every: Duration,
    /// How much later a run may begin, so that not all begin together [default: a tenth of --every]
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    jitter: Option<Duration>,
    /// What it belongs to
    #[arg(long, value_name = "GROUP", default_value = "")]
    group: String,
    /// Ports for targets that name none: 443,8443,9000-9010
    #[arg(long, short, value_name = "PORTS")]
    port: Option<String>,
    /// Server names to ask for, each in turn, at targets that name none
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    sni: Vec<String>,
    /// Protocol spoken before TLS at targets without a scheme
    #[arg(long, value_name = "PROTOCOL")]
    starttls: Option<String>,
    /// Look at every address of a name, each as an endpoint of its own
    #[arg(long)]
    all_addresses: bool,
    /// Make it without running it: `bulla watch resume` begins
    #[arg(long)]
    paused: bool,
    #[command(flatten)]
    show: Output,
}

/// A tenth of the interval spreads watches made together, and nobody waits long.
const JITTER_FRACTION: u32 = 10;

impl NewWatch {
    fn request(&self) -> WatchBody {
        let jitter = self.jitter.unwrap_or(self.every / JITTER_FRACTION);
        WatchBody {
            name: self.name.clone(),
            group: self.group.clone(),
            targets: self.targets.clone(),
            sources: self.source.clone(),
            ports: self.port.clone(),
            server_names: self.sni.clone(),
            starttls: self.starttls.clone(),
            all_addresses: self.all_addresses,
            interval_s: self.every.as_secs(),
            jitter_s: jitter.as_secs(),
            enabled: !self.paused,
        }
    }
}

impl Run for WatchCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        const WATCHES: Columns = columns!(
            WatchView:
            ("Name", name),
            ("Group", group),
            ("State", state),
            ("Targets", targets),
            ("Sources", sources),
            ("Every (s)", interval_s),
            ("Next run", next_run_at),
            ("Id", id),
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
            Self::Add(new) => show_one(&client.submit(Method::POST, PATH, &new.request()).await?, &new.show),
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
