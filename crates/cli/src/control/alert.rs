//! Commands for alerts, notification channels, rules and silences.

use std::marker::PhantomData;

use api::alerts::{self, AlertView, DeliveryView, RuleView, StateQuery};
use clap::Subcommand;
use reqwest::Method;

use super::document::{self, Document, DocumentCommand, Key};
use super::{Run, input};
use crate::columns;
use crate::connection::{Client, Columns, Listing, Output, show_one};
use crate::exit::Outcome;

/// Commands of `bulla alert`.
#[derive(Debug, Subcommand)]
pub enum AlertCommand {
    /// List alerts, latest first
    List {
        /// State of the alerts: open, acknowledged or resolved
        #[arg(long, value_name = "STATE", default_value = "open")]
        state: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show an alert with its messages
    Show {
        /// Id of the alert
        id: String,
        #[command(flatten)]
        show: Output,
    },
    /// Acknowledge an alert: it is no longer escalated
    Acknowledge {
        /// Id of the alert
        id: String,
    },
    /// Resolve an alert manually
    Resolve {
        /// Id of the alert
        id: String,
    },
    /// List messages by state; `dead` messages are no longer retried
    Messages {
        /// State of the messages: waiting, sent, dead or held (for the digest)
        #[arg(long, value_name = "STATE", default_value = "dead")]
        state: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// Retry a message in state `dead`
    Requeue {
        /// Id of the message
        id: String,
    },
    /// Notification channels: mail, webhook, chat, pager
    #[command(subcommand)]
    Channel(DocumentCommand<ChannelDocument>),
    /// Send a test message to a channel
    Test {
        /// Name or id of the channel
        id: String,
    },
    /// Rules: which alerts go to which channels
    #[command(subcommand)]
    Rule(DocumentCommand<RuleDocument>),
    /// Silences, which suppress notifications for some time
    #[command(subcommand)]
    Silence(SilenceCommand),
}

/// Notification channels, for the generic commands of `DocumentCommand`.
#[derive(Debug)]
pub struct ChannelDocument(PhantomData<()>);

impl Document for ChannelDocument {
    const ONE: &'static str = "channel";
    const MANY: &'static str = "channels";
    const PATH: &'static str = "/api/v1/alert-channels";
    const KEY: Key = Key::Id;
    const COLUMNS: Columns = columns!(
        alerts::ChannelDocument:
        ("Name", name),
        ("Kind", kind),
        ("Enabled", enabled),
        ("Last message", last_success_at),
        ("Last error", last_error),
        ("Id", id),
    );
    const REPLACE: Method = Method::PUT;
}

/// Alert rules, for the generic commands of `DocumentCommand`.
#[derive(Debug)]
pub struct RuleDocument(PhantomData<()>);

impl Document for RuleDocument {
    const ONE: &'static str = "rule";
    const MANY: &'static str = "rules";
    const PATH: &'static str = "/api/v1/alert-rules";
    const KEY: Key = Key::Id;
    const COLUMNS: Columns = columns!(RuleView: ("Name", name), ("Channels", rule, "/channels"), ("When", rule, "/when"), ("Id", id));
    const REPLACE: Method = Method::PUT;
}

/// Commands for silences, which can be created and ended, but not changed.
#[derive(Debug, Subcommand)]
pub enum SilenceCommand {
    /// List silences
    List(Listing),
    /// Create a silence from a file: `when`, `until`, `reason`
    Create {
        /// The file: JSON, or TOML if its name ends in .toml; - for JSON on standard input
        #[arg(long, short, value_name = "FILE")]
        file: std::path::PathBuf,
        #[command(flatten)]
        show: Output,
    },
    /// End a silence
    Delete {
        /// Id of the silence
        id: String,
    },
}

impl Run for SilenceCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        const PATH: &str = "/api/v1/alert-silences";
        const COLUMNS: Columns = columns!(RuleView: ("Reason", rule, "/reason"), ("When", rule, "/when"), ("By", updated_by), ("Id", id));
        match self {
            Self::List(listing) => listing.print(client, PATH, &(), COLUMNS).await,
            Self::Create { file, show } => {
                show_one(&client.send(Method::POST, PATH, Some(&input::document(file)?)).await?, show)
            }
            Self::Delete { id } => {
                client.send(Method::DELETE, &format!("{PATH}/{}", input::segment(id)), None).await.map(drop)
            }
        }
    }
}

impl Run for AlertCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        const ALERTS: Columns = columns!(
            AlertView:
            ("Severity", severity),
            ("Alert", title),
            ("Since", first_at),
            ("Last", last_at),
            ("Times", count),
            ("Taken by", acknowledged_by),
            ("Id", id),
        );
        const MESSAGES: Columns = columns!(
            DeliveryView:
            ("State", state),
            ("Reason", reason),
            ("Tries", attempts),
            ("Last error", last_error),
            ("Made", created_at),
            ("Id", id),
        );
        let alert = |id: &str| format!("/api/v1/alerts/{}", input::segment(id));
        let post = async |path: String| client.send(Method::POST, &path, None).await.map(drop);
        match self {
            Self::List { state, listing } => {
                let query = StateQuery { state: Some(state.clone()) };
                listing.print(client, "/api/v1/alerts", &query, ALERTS).await
            }
            Self::Show { id, show } => show_one(&client.get(&alert(id), &()).await?, show),
            Self::Acknowledge { id } => post(format!("{}/acknowledge", alert(id))).await,
            Self::Resolve { id } => post(format!("{}/resolve", alert(id))).await,
            Self::Messages { state, listing } => {
                let query = StateQuery { state: Some(state.clone()) };
                listing.print(client, "/api/v1/alert-deliveries", &query, MESSAGES).await
            }
            Self::Requeue { id } => {
                post(format!("/api/v1/alert-deliveries/{}/requeue", input::segment(id))).await
            }
            Self::Channel(command) => command.run(client).await,
            Self::Test { id } => {
                post(format!("{}/test", document::document_path::<ChannelDocument>(client, id).await?)).await
            }
            Self::Rule(command) => command.run(client).await,
            Self::Silence(command) => command.run(client).await,
        }
    }
}
