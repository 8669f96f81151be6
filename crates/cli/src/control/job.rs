//! Commands for jobs and policies, and the document types of policies, owners and teams.

use api::health::ServerNodeView;
use api::jobs::{JobEventView, JobQuery, JobView};
use api::people::PersonView;
use api::policies::{PolicyView, ViolationView};
use clap::Subcommand;
use reqwest::Method;

use super::activity::DeploymentsArgs;
use super::document::{Document, DocumentCommand, Key};
use super::{Run, input};
use crate::columns;
use crate::connection::{Client, Columns, Listing, Output, show_one};
use crate::exit::Outcome;

/// Commands for jobs: issuance, renewal, deployment and revocation.
#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// List jobs, newest first
    List {
        /// State: queued, running, awaiting_approval, awaiting_csr, done, failed, cancelled
        #[arg(long, value_name = "STATE")]
        state: Option<String>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show a job
    Show {
        /// Id of the job
        id: String,
        #[command(flatten)]
        show: Output,
    },
    /// List the events of a job, oldest first
    Events {
        /// Id of the job
        id: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// List deployments to all targets, newest first
    Deployments(DeploymentsArgs),
    /// Show the state of the scheduler: open jobs, due jobs by issuer, leases
    Scheduler {
        #[command(flatten)]
        show: Output,
    },
    /// List the server processes with the same database, and when each was last seen
    Servers(Listing),
    /// Cancel a job that no issuer has started
    Cancel {
        /// Id of the job
        id: String,
    },
    /// Start a waiting job now
    Retry {
        /// Id of the job
        id: String,
    },
}

impl Run for JobCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        const PATH: &str = "/api/v1/jobs";
        const COLUMNS: Columns = columns!(
            JobView:
            ("Certificate", name),
            ("Kind", kind),
            ("State", state),
            ("Issuer", issuer),
            ("Tries", attempts),
            ("Next", next_attempt_at),
            ("Last error", last_error),
            ("Id", id),
        );
        const SERVERS: Columns = columns!(
            ServerNodeView:
            ("Host", host),
            ("State", state),
            ("Version", version),
            ("Started", started_at),
            ("Seen", seen_at),
            ("Id", id),
        );
        const EVENTS: Columns = columns!(
            JobEventView:
            ("When", at),
            ("What", action),
            ("By", actor),
            ("To", details, "/to"),
            ("Error", details, "/error"),
        );
        let path_to = |id: &str| format!("{PATH}/{}", input::segment(id));
        let post = async |path: String| client.send(Method::POST, &path, None).await.map(drop);
        match self {
            Self::List { state, listing } => {
                let query = JobQuery { state: state.clone(), ..JobQuery::default() };
                listing.print(client, PATH, &query, COLUMNS).await
            }
            Self::Show { id, show } => show_one(&client.get(&path_to(id), &()).await?, show),
            Self::Events { id, listing } => {
                listing.print(client, &format!("{}/events", path_to(id)), &(), EVENTS).await
            }
            Self::Deployments(deployments) => deployments.print(client).await,
            Self::Servers(listing) => listing.print(client, "/api/v1/servers", &(), SERVERS).await,
            Self::Scheduler { show } => show_one(&client.get("/api/v1/scheduler", &()).await?, show),
            Self::Cancel { id } => post(format!("{}/cancel", path_to(id))).await,
            Self::Retry { id } => post(format!("{}/retry", path_to(id))).await,
        }
    }
}

/// Policies, for the generic commands of `DocumentCommand`.
#[derive(Debug)]
pub struct PolicyDocument;

impl Document for PolicyDocument {
    const ONE: &'static str = "policy";
    const MANY: &'static str = "policies";
    const PATH: &'static str = "/api/v1/policies";
    const KEY: Key = Key::Name;
    const COLUMNS: Columns = columns!(
        PolicyView:
        ("Name", name),
        ("Description", policy, "/description"),
        ("Enforcement", policy, "/enforcement"),
        ("Approval", policy, "/requires_approval"),
    );
    const REPLACE: Method = Method::PUT;
}

/// Commands for policies.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    #[command(flatten)]
    Document(DocumentCommand<PolicyDocument>),
    /// List certificates that violate policies
    Violations(Listing),
}

impl Run for PolicyCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        const VIOLATIONS: Columns = columns!(
            ViolationView:
            ("Severity", severity),
            ("Certificate", name),
            ("Policy", policy),
            ("Rule", rule),
            ("What", message),
            ("Since", found_at),
        );
        match self {
            Self::Document(command) => command.run(client).await,
            Self::Violations(listing) => listing.print(client, "/api/v1/violations", &(), VIOLATIONS).await,
        }
    }
}

/// Owners, for the generic commands of `DocumentCommand`.
#[derive(Debug)]
pub struct OwnerDocument;

impl Document for OwnerDocument {
    const ONE: &'static str = "owner";
    const MANY: &'static str = "owners";
    const PATH: &'static str = "/api/v1/owners";
    const KEY: Key = Key::Name;
    const COLUMNS: Columns = PEOPLE;
    const REPLACE: Method = Method::PUT;
}

/// Teams, for the generic commands of `DocumentCommand`.
#[derive(Debug)]
pub struct TeamDocument;

impl Document for TeamDocument {
    const ONE: &'static str = "team";
    const MANY: &'static str = "teams";
    const PATH: &'static str = "/api/v1/teams";
    const KEY: Key = Key::Name;
    const COLUMNS: Columns = columns!(
        PersonView:
        ("Name", name),
        ("Description", description),
        ("Owns names", owns, "/names"),
        ("Profiles", owns, "/profiles"),
        ("Targets", owns, "/targets"),
        ("Paths", owns, "/paths"),
        ("Certificates a day", quota, "/certificates_per_day"),
        ("Contacts", contacts),
    );
    const REPLACE: Method = Method::PUT;
}

const PEOPLE: Columns = columns!(PersonView: ("Name", name), ("Description", description), ("Team", team), ("Contacts", contacts));
