//! Nouns that are documents: listed, shown, made from a file, changed, removed.

use std::marker::PhantomData;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use reqwest::Method;

use super::{Run, input};
use crate::connection::{Client, Columns, Listing, Output, path_of, show_one};
use crate::exit::Outcome;

/// What the API knows a document by.
pub enum Key {
    /// Its id: names are looked up in the listing first.
    Id,
    /// Its name.
    Name,
}

/// A noun that is a document.
pub trait Document: Send + Sync + 'static {
    /// One of them, as help names it: `profile`.
    const ONE: &'static str;
    /// Many of them, as help names them: `profiles`.
    const MANY: &'static str;
    /// Where they are: `/api/v1/profiles`.
    const PATH: &'static str;
    /// What stands after it in the path of one.
    const KEY: Key;
    /// The table's columns.
    const COLUMNS: Columns;
    /// How one is replaced.
    const REPLACE: Method;
}

/// What to do with documents.
#[derive(Debug, Subcommand)]
pub enum DocumentCommand<D: Document> {
    /// `list`
    #[command(about = format!("List {}", D::MANY))]
    List(Listing),
    /// `show`
    #[command(about = of_one::<D>("Show", ""))]
    Show(ShowArgs),
    /// `create`
    #[command(about = of_one::<D>("Create", "from a file"))]
    Create(FileArgs),
    /// `update`
    #[command(about = of_one::<D>("Replace", "by what a file says"))]
    Update(UpdateArgs),
    /// `delete`
    #[command(about = of_one::<D>("Delete", ""))]
    Delete {
        /// Its name or id
        id: String,
        #[arg(skip)]
        _of: PhantomData<fn() -> D>,
    },
}

/// `verb` with an article and the noun: `Show an owner`.
fn of_one<D: Document>(verb: &str, rest: &str) -> String {
    let article = if D::ONE.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{verb} {article} {} {rest}", D::ONE).trim_end().to_owned()
}

/// Which one, and how to show it.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// Its name or id
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
    /// Its name or id
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

/// The path of a document given by its name or id.
pub(super) async fn place<D: Document>(client: &Client, given: &str) -> Outcome<String> {
    match D::KEY {
        Key::Id => path_of(client, D::PATH, D::ONE, given).await,
        Key::Name => Ok(format!("{}/{}", D::PATH, input::segment(given))),
    }
}
