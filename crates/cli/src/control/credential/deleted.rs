//! Deleted credentials, and the versions of a credential.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::rows::print;
use crate::api::{Client, Columns, Output, show_one};
use crate::exit::{Exit, Outcome};

const VERSIONS: &str = "/api/v1/versions";

/// What to do with what is deleted, and with versions.
#[derive(Debug, Subcommand)]
pub(super) enum DeletedCommand {
    /// What was deleted and can be taken back, the last deleted first
    Deleted {
        #[command(flatten)]
        show: Output,
    },
    /// Take back the credential of a name that was deleted last, with all its versions
    Undelete {
        /// Its name
        name: String,
        #[command(flatten)]
        show: Output,
    },
    /// List the versions of a credential, or delete some, take them back, destroy them
    Versions(VersionsArgs),
}

/// `bulla credential versions`
#[derive(Args, Debug)]
pub(super) struct VersionsArgs {
    /// Its name
    name: String,
    /// Delete these versions: 1,2; they can be taken back for credentials.undelete_days
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', conflicts_with_all = ["undelete", "destroy"])]
    delete: Vec<u64>,
    /// Take these versions back
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', conflicts_with = "destroy")]
    undelete: Vec<u64>,
    /// Destroy these versions for good; with the last the name goes
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    destroy: Vec<u64>,
    #[command(flatten)]
    show: Output,
}

impl DeletedCommand {
    pub(super) async fn run(&self, client: &Client) -> Outcome<Exit> {
        const DELETED: Columns = &[
            ("Name", "/name"),
            ("Type", "/type"),
            ("Deleted", "/deleted_at"),
            ("Can be taken back until", "/kept_until"),
        ];
        match self {
            Self::Deleted { show } => {
                let answer = client.get("/api/v1/deleted", &[]).await?;
                print(members(&answer, "credentials"), DELETED, show)
            }
            Self::Undelete { name, show } => {
                let body = json!({ "name": name });
                show_one(&client.send(Method::POST, "/api/v1/undelete", Some(&body)).await?, show)?;
                Ok(Exit::Ok)
            }
            Self::Versions(args) => args.run(client).await,
        }
    }
}

fn members(answer: &Value, field: &str) -> Vec<Value> {
    answer.get(field).and_then(Value::as_array).cloned().unwrap_or_default()
}

impl VersionsArgs {
    async fn run(&self, client: &Client) -> Outcome<Exit> {
        const LISTED: Columns = &[
            ("Number", "/number"),
            ("Id", "/id"),
            ("Stored", "/version_created_at"),
            ("Ends", "/expires_at"),
            ("Deleted", "/deleted_at"),
            ("Can be taken back until", "/kept_until"),
        ];
        let changes = [("delete", &self.delete), ("undelete", &self.undelete), ("destroy", &self.destroy)];
        if let Some((change, numbers)) = changes.into_iter().find(|(_, numbers)| !numbers.is_empty()) {
            let body = json!({ "name": self.name, "versions": numbers, "change": change });
            client.send(Method::POST, VERSIONS, Some(&body)).await?;
            return Ok(Exit::Ok);
        }
        let answer = client.get(VERSIONS, &[("name", self.name.clone())]).await?;
        print(members(&answer, "versions"), LISTED, &self.show)
    }
}
