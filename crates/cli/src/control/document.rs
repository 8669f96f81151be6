//! Nouns that are documents: listed, shown, created from a file, changed, deleted.

use std::marker::PhantomData;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use reqwest::Method;

use super::{Run, input};
use crate::connection::{Client, Columns, Listing, Output, path_of, show_one};
use crate::exit::Outcome;

/// Identifier that the API uses for a document.
pub enum Key {
    /// The API identifies the document by its id. A name is looked up in the listing first.
    Id,
    /// The API identifies the document by its name.
    Name,
}

/// A noun whose objects are documents.
pub trait Document: Send + Sync + 'static {
    /// The singular in help texts: `profile`.
    const ONE: &'static str;
    /// The plural in help texts: `profiles`.
    const MANY: &'static str;
    /// The path of the listing: `/api/v1/profiles`.
    const PATH: &'static str;
    /// The last part of the path of one document.
    const KEY: Key;
    /// The columns of the table.
    const COLUMNS: Columns;
    /// The method that replaces a document.
    const REPLACE: Method;
}

/// Commands for documents.
#[derive(Debug, Subcommand)]
pub enum DocumentCommand<D: Document> {
    /// Lists documents.
    #[command(about = format!("List {}", D::MANY))]
    List(Listing),
    /// Shows a document.
    #[command(about = of_one::<D>("Show", ""))]
    Show(ShowArgs),
    /// Creates a document.
    #[command(about = of_one::<D>("Create", "from a file"))]
    Create(FileArgs),
    /// Replaces a document.
    #[command(about = of_one::<D>("Replace", "from a file"))]
    Update(UpdateArgs),
    /// Deletes a document.
    #[command(about = of_one::<D>("Delete", ""))]
    Delete {
        /// Name or id of the object
        id: String,
        #[arg(skip)]
        _of: PhantomData<fn() -> D>,
    },
}

/// Formats a help text of `verb`, an article and the noun: `Show an owner`.
fn of_one<D: Document>(verb: &str, rest: &str) -> String {
    let article = if D::ONE.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{verb} {article} {} {rest}", D::ONE).trim_end().to_owned()
}

/// The document to show, and output options.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// Name or id of the object
    id: String,
    #[command(flatten)]
    show: Output,
}

/// A document in a file.
#[derive(Args, Debug)]
pub struct FileArgs {
    /// The file: JSON, or TOML if its name ends in .toml; - for JSON on standard input
    #[arg(long, short, value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    show: Output,
}

/// A changed document in a file.
#[derive(Args, Debug)]
pub struct UpdateArgs {
    /// Name or id of the object
    id: String,
    #[command(flatten)]
    file: FileArgs,
}

impl<D: Document> Run for DocumentCommand<D> {
    async fn run(&self, client: &Client) -> Outcome<()> {
        let place = |given| place::<D>(client, given);
        match self {
            Self::List(listing) => listing.print(client, D::PATH, &(), D::COLUMNS).await,
            Self::Show(one) => show_one(&client.get(&place(&one.id).await?, &()).await?, &one.show),
            Self::Create(file) => {
                let made = client.send(Method::POST, D::PATH, Some(&input::document(&file.file)?)).await?;
                show_one(&made, &file.show)
            }
            Self::Update(changed) => {
                let body = input::document(&changed.file.file)?;
                show_one(
                    &client.send(D::REPLACE, &place(&changed.id).await?, Some(&body)).await?,
                    &changed.file.show,
                )
            }
            Self::Delete { id, .. } => client.send(Method::DELETE, &place(id).await?, None).await.map(drop),
        }
    }
}

/// Returns the path of a document with the given name or id.
pub(super) async fn place<D: Document>(client: &Client, given: &str) -> Outcome<String> {
    match D::KEY {
        Key::Id => path_of(client, D::PATH, D::ONE, given).await,
        Key::Name => Ok(format!("{}/{}", D::PATH, input::segment(given))),
    }
}
