//! `bulla acme`: the clients of the ACME server. Their accounts, orders, external keys and limits.

use api::acme::{
    AcmeAccountView, AcmeOrderQuery, AcmeOrderView, ExternalKeyView, LimitOverrideBody, LimitOverrideView,
    NewExternalKeyBody,
};
use clap::{Args, Subcommand};
use reqwest::Method;
use uuid::Uuid;

use super::Run;
use crate::columns;
use crate::connection::{Client, Columns, Listing, Output, show_one};
use crate::exit::Outcome;
use crate::units;

const ACCOUNTS: &str = "/api/v1/acme/accounts";
const ORDERS: &str = "/api/v1/acme/orders";
const KEYS: &str = "/api/v1/acme/external-keys";
const LIMITS: &str = "/api/v1/acme/limit-overrides";

/// The ACME server's clients.
#[derive(Debug, Subcommand)]
pub enum AcmeCommand {
    /// Accounts of ACME clients: list, show, revoke
    #[command(subcommand)]
    Account(AccountCommand),
    /// Orders of ACME clients: list, show
    #[command(subcommand)]
    Order(OrderCommand),
    /// Keys for external account binding (EAB): create, list, disable
    #[command(subcommand)]
    Key(ExternalKeyCommand),
    /// Exceptions from the rate limits
    #[command(subcommand)]
    Limit(LimitCommand),
}

/// Accounts.
#[derive(Debug, Subcommand)]
pub enum AccountCommand {
    /// List accounts, the newest first
    List(Listing),
    /// Show an account
    Show(ShowArgs),
    /// Revoke an account: it may do nothing more
    Revoke {
        /// Its id
        id: Uuid,
    },
}

/// Orders.
#[derive(Debug, Subcommand)]
pub enum OrderCommand {
    /// List orders, the newest first
    List {
        /// Orders of this account only, without those that were refused
        #[arg(long, value_name = "ID")]
        account: Option<Uuid>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show an order
    Show(ShowArgs),
}

/// Keys for external account binding.
#[derive(Debug, Subcommand)]
pub enum ExternalKeyCommand {
    /// List external keys
    List(Listing),
    /// Show an external key
    Show(ShowArgs),
    /// Create an external key; its HMAC key is shown this once
    Create(NewKeyArgs),
    /// Disable an external key: neither it nor its accounts may do anything
    Disable {
        /// Its id
        id: Uuid,
    },
    /// Delete an external key that bound no account
    Delete {
        /// Its id
        id: Uuid,
    },
}

/// An external key to create.
#[derive(Args, Debug)]
pub struct NewKeyArgs {
    /// The name that clients give as --eab-kid [default: made by the server]
    #[arg(long, value_name = "KID")]
    kid: Option<String>,
    /// A description
    #[arg(long, value_name = "TEXT", default_value = "")]
    label: String,
    /// Bind any number of accounts, not one
    #[arg(long)]
    reusable: bool,
    /// A profile that its accounts may use; may be repeated [default: any]
    #[arg(long = "profile", value_name = "NAME")]
    profiles: Vec<String>,
    /// A name with all below it, or a network, that its accounts may ask for; may be repeated [default: any]
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,
    /// The team that its accounts act for
    #[arg(long, value_name = "TEAM")]
    team: Option<String>,
    /// How long it binds new accounts: 90d [default: for ever]
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    lifetime: Option<std::time::Duration>,
    #[command(flatten)]
    show: Output,
}

/// Exceptions from the rate limits.
#[derive(Debug, Subcommand)]
pub enum LimitCommand {
    /// List exceptions
    List(Listing),
    /// Set an exception for an account, a network or a name
    Set {
        /// new_accounts, orders, failed_validations or duplicate_certificates
        kind: String,
        /// An account's id, a network, or a name (dns:a.example)
        subject: String,
        /// How many in a period [default: any number]
        #[arg(long, value_name = "COUNT")]
        allowed: Option<u32>,
        /// The period
        #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "7d")]
        period: std::time::Duration,
        /// Why
        #[arg(long, value_name = "TEXT", default_value = "")]
        note: String,
        #[command(flatten)]
        show: Output,
    },
    /// Delete an exception
    Delete {
        /// Its id
        id: Uuid,
    },
}

/// One object, and how to print it.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// Its id
    id: Uuid,
    #[command(flatten)]
    show: Output,
}

impl ShowArgs {
    async fn print(&self, client: &Client, path: &str) -> Outcome<()> {
        show_one(&client.get(&format!("{path}/{}", self.id), &()).await?, &self.show)
    }
}

impl Run for AcmeCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        match self {
            Self::Account(command) => command.run(client).await,
            Self::Order(command) => command.run(client).await,
            Self::Key(command) => command.run(client).await,
            Self::Limit(command) => command.run(client).await,
        }
    }
}

impl Run for AccountCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        const COLUMNS: Columns = columns!(
            AcmeAccountView:
            ("Id", id),
            ("Status", status),
            ("Contacts", contacts),
            ("Profile", profile),
            ("External key", external_key),
            ("Address", address),
            ("Created", created_at),
        );
        match self {
            Self::List(listing) => listing.print(client, ACCOUNTS, &(), COLUMNS).await,
            Self::Show(one) => one.print(client, ACCOUNTS).await,
            Self::Revoke { id } => {
                client.send(Method::POST, &format!("{ACCOUNTS}/{id}/revoke"), None).await.map(drop)
            }
        }
    }
}

impl Run for OrderCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        const COLUMNS: Columns = columns!(
            AcmeOrderView:
            ("Names", names),
            ("Status", status),
            ("Profile", profile),
            ("Created", created_at),
            ("Account", account),
            ("Id", id),
        );
        match self {
            Self::List { account, listing } => {
                listing.print(client, ORDERS, &AcmeOrderQuery { account: *account }, COLUMNS).await
            }
            Self::Show(one) => one.print(client, ORDERS).await,
        }
    }
}

impl Run for ExternalKeyCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        const COLUMNS: Columns = columns!(
            ExternalKeyView:
            ("Key id", kid),
            ("Label", label),
            ("Accounts", uses),
            ("Reusable", reusable),
            ("Profiles", profiles),
            ("Names", names),
            ("Ends", expires_at),
            ("Disabled", disabled_at),
            ("Id", id),
        );
        match self {
            Self::List(listing) => listing.print(client, KEYS, &(), COLUMNS).await,
            Self::Show(one) => one.print(client, KEYS).await,
            Self::Create(new) => show_one(&client.submit(Method::POST, KEYS, &new.body()).await?, &new.show),
            Self::Disable { id } => {
                client.send(Method::POST, &format!("{KEYS}/{id}/disable"), None).await.map(drop)
            }
            Self::Delete { id } => client.send(Method::DELETE, &format!("{KEYS}/{id}"), None).await.map(drop),
        }
    }
}

impl NewKeyArgs {
    fn body(&self) -> NewExternalKeyBody {
        NewExternalKeyBody {
            kid: self.kid.clone(),
            label: self.label.clone(),
            reusable: self.reusable,
            profiles: self.profiles.clone(),
            names: self.names.clone(),
            team: self.team.clone(),
            expires_at: self.lifetime.map(units::from_now),
        }
    }
}

impl Run for LimitCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        const COLUMNS: Columns = columns!(
            LimitOverrideView:
            ("Limit", kind),
            ("Subject", subject),
            ("Allowed", allowed),
            ("Seconds", seconds),
            ("Note", note),
            ("Id", id),
        );
        match self {
            Self::List(listing) => listing.print(client, LIMITS, &(), COLUMNS).await,
            Self::Set { kind, subject, allowed, period, note, show } => {
                let body = LimitOverrideBody {
                    kind: kind.clone(),
                    subject: subject.clone(),
                    allowed: *allowed,
                    seconds: u32::try_from(units::whole_seconds(*period)).unwrap_or(u32::MAX),
                    note: note.clone(),
                };
                show_one(&client.submit(Method::POST, LIMITS, &body).await?, show)
            }
            Self::Delete { id } => {
                client.send(Method::DELETE, &format!("{LIMITS}/{id}"), None).await.map(drop)
            }
        }
    }
}
