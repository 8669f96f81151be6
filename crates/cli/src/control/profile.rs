//! Profiles, issuers and targets: documents that control issuance and deployment.

use api::issuers::IssuerView;
use api::profiles;
use api::targets::DeployTargetView;
use clap::Subcommand;
use reqwest::Method;

use super::Run;
use super::document::{self, Document, DocumentCommand, Key};
use crate::columns;
use crate::connection::{Client, Columns, Output, show_one};
use crate::exit::Outcome;

/// Profiles, for the generic commands of `DocumentCommand`.
#[derive(Debug)]
pub struct ProfileDocument;

impl Document for ProfileDocument {
    const ONE: &'static str = "profile";
    const MANY: &'static str = "profiles";
    const PATH: &'static str = "/api/v1/profiles";
    const KEY: Key = Key::Name;
    const COLUMNS: Columns = columns!(
        profiles::ProfileDocument:
        ("Name", name),
        ("Description", description),
        ("CA", ca),
        ("Key types", key_types),
        ("Lifetime s", validity.default_seconds),
        ("Approval", requires_approval),
    );
    const REPLACE: Method = Method::PUT;
    const NAME_IN_BODY: bool = true;
}

/// Issuers, for the generic commands of `DocumentCommand`.
#[derive(Debug)]
pub struct IssuerDocument;

impl Document for IssuerDocument {
    const ONE: &'static str = "issuer";
    const MANY: &'static str = "issuers";
    const PATH: &'static str = "/api/v1/issuers";
    const KEY: Key = Key::Id;
    const COLUMNS: Columns = columns!(
        IssuerView:
        ("Name", name),
        ("Type", kind as "type"),
        ("Enabled", enabled),
        ("State", health.breaker),
        ("Problem", problem),
        ("Last error", health.last_error),
        ("Id", id),
    );
    const REPLACE: Method = Method::PATCH;
}

/// Commands of `bulla issuer`.
#[derive(Debug, Subcommand)]
pub enum IssuerCommand {
    #[command(flatten)]
    Document(DocumentCommand<IssuerDocument>),
    /// Test whether an issuer could issue; no certificate is issued
    Test {
        /// Name or id of the issuer
        id: String,
        #[command(flatten)]
        show: Output,
    },
}

impl Run for IssuerCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        match self {
            Self::Document(command) => command.run(client).await,
            Self::Test { id, show } => {
                let path = format!("{}/test", document::document_path::<IssuerDocument>(client, id).await?);
                show_one(&client.send(Method::POST, &path, None).await?, show)
            }
        }
    }
}

/// Deployment targets, for the generic commands of `DocumentCommand`.
#[derive(Debug)]
pub struct TargetDocument;

impl Document for TargetDocument {
    const ONE: &'static str = "deployment target";
    const MANY: &'static str = "deployment targets";
    const PATH: &'static str = "/api/v1/targets";
    const KEY: Key = Key::Id;
    const COLUMNS: Columns =
        columns!(DeployTargetView: ("Name", name), ("Type", target, "/type"), ("Agent", agent), ("Id", id));
    const REPLACE: Method = Method::PUT;
}
