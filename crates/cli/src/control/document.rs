//! Nouns that are documents: listed, shown, made from a file, changed, removed.

use std::marker::PhantomData;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use reqwest::Method;

use super::{Run, input};
use crate::connection::{Client, Columns, Listing, Output, show_one};
use crate::exit::Outcome;

/// A noun that is a document.
pub trait Document: Send + Sync + 'static {
    /// Where they are: `/api/v1/profiles`.
    const PATH: &'static str;
    /// The table's columns.
    const COLUMNS: Columns;
    /// How one is replaced.
    const REPLACE: Method;
}

/// What to do with documents.
#[derive(Debug, Subcommand)]
pub enum DocumentCommand<D: Document> {
    /// List them
    List(Listing),
    /// Show one
    Show(ShowArgs),
    /// Make one from a file
    Create(FileArgs),
    /// Change one to what a file says
    Update(UpdateArgs),
    /// Remove one
    Delete {
        /// Its id or name
        id: String,
        #[arg(skip)]
        _of: PhantomData<fn() -> D>,
    },
}

/// Which one, and how to show it.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// Its id or name
    id: String,
    #[command(flatten)]
    show: Output,
}

/// A document in a file.
#[derive(Args, Debug)]
pub struct FileArgs {
    /// The file: JSON, or TOML when it ends in .toml; - for JSON on standard input
    #[arg(long, short, value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    show: Output,
}

/// A changed document in a file.
#[derive(Args, Debug)]
pub struct UpdateArgs {
    /// Its id or name
    id: String,
    #[command(flatten)]
    file: FileArgs,
}

impl<D: Document> Run for DocumentCommand<D> {
    async fn run(&self, client: &Client) -> Outcome<()> {
        let place = |id: &str| format!("{}/{}", D::PATH, input::segment(id));
        match self {
            Self::List(listing) => listing.print(client, D::PATH, &(), D::COLUMNS).await,
            Self::Show(one) => show_one(&client.get(&place(&one.id), &()).await?, &one.show),
            Self::Create(file) => {
                let made = client.send(Method::POST, D::PATH, Some(&input::document(&file.file)?)).await?;
                show_one(&made, &file.show)
            }
            Self::Update(changed) => {
                let body = input::document(&changed.file.file)?;
                show_one(
                    &client.send(D::REPLACE, &place(&changed.id), Some(&body)).await?,
                    &changed.file.show,
                )
            }
            Self::Delete { id, .. } => client.send(Method::DELETE, &place(id), None).await.map(drop),
        }
    }
}
