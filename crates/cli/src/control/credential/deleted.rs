//! Deleted credentials, and the versions of a credential.

use api::credhub::{
    Deleted, DeletedView, ListedVersion, NameQuery, UndeleteRequest, VersionsChange, VersionsRequest,
    VersionsView,
};
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::Value;

use crate::columns;
use crate::connection::{Client, Columns, Output, ShortListing, print_rows, show_one};
use crate::exit::{Exit, Outcome};

const VERSIONS: &str = "/api/v1/versions";

/// Commands for deleted credentials and for versions.
#[derive(Debug, Subcommand)]
pub(super) enum DeletedCommand {
    /// List deleted credentials that can be restored, last deleted first
    Deleted(ShortListing),
    /// Restore the most recently deleted credential with this name, with all its versions
    Undelete {
        /// Name of the credential
        name: String,
        #[command(flatten)]
        show: Output,
    },
    /// List, delete, restore or destroy versions of a credential
    Versions(VersionsArgs),
}

/// Arguments of `bulla credential versions`.
#[derive(Args, Debug)]
pub(super) struct VersionsArgs {
    /// Name of the credential
    name: String,
    /// Delete these versions: 1,2; they can be restored for credentials.undelete_days
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', conflicts_with_all = ["undelete", "destroy"])]
    delete: Vec<u64>,
    /// Restore these versions
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', conflicts_with = "destroy")]
    undelete: Vec<u64>,
    /// Destroy these versions permanently; destroying the last version also removes the name
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    destroy: Vec<u64>,
    #[command(flatten)]
    show: Output,
}

impl DeletedCommand {
    pub(super) async fn run(&self, client: &Client) -> Outcome<Exit> {
        const DELETED: Columns = columns!(
            DeletedView:
            ("Name", name),
            ("Type", kind as "type"),
            ("Deleted", deleted_at),
            ("Can be restored until", kept_until),
        );
        match self {
            Self::Deleted(listing) => {
                let fetch = async || {
                    let deleted: Deleted<Value> = client.fetch("/api/v1/deleted", &()).await?;
                    Ok(deleted.credentials)
                };
                listing.print(DELETED, fetch).await?;
                Ok(Exit::Ok)
            }
            Self::Undelete { name, show } => {
                let request = UndeleteRequest { name: name.clone() };
                show_one(&client.submit(Method::POST, "/api/v1/undelete", &request).await?, show)?;
                Ok(Exit::Ok)
            }
            Self::Versions(args) => args.run(client).await,
        }
    }
}

impl VersionsArgs {
    async fn run(&self, client: &Client) -> Outcome<Exit> {
        const LISTED: Columns = columns!(
            ListedVersion:
            ("Number", number),
            ("Id", id),
            ("Stored", version_created_at),
            ("Ends", expires_at),
            ("Deleted", deleted_at),
            ("Can be restored until", kept_until),
        );
        let changes = [
            (VersionsChange::Delete, &self.delete),
            (VersionsChange::Undelete, &self.undelete),
            (VersionsChange::Destroy, &self.destroy),
        ];
        if let Some((change, numbers)) = changes.into_iter().find(|(_, numbers)| !numbers.is_empty()) {
            let request = VersionsRequest {
                name: self.name.clone(),
                versions: Some(numbers.clone()),
                change: Some(change),
            };
            client.submit(Method::POST, VERSIONS, &request).await?;
            return Ok(Exit::Ok);
        }
        let listed: VersionsView<Value> = client.fetch(VERSIONS, &NameQuery::of(&self.name)).await?;
        print_rows(listed.versions, LISTED, &self.show)?;
        Ok(Exit::Ok)
    }
}
