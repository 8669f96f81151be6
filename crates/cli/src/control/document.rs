//! Commands for objects that are documents: list, show, create from a file, change, delete.

use std::marker::PhantomData;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::Value;

use super::{Run, input};
use crate::connection::{Client, Columns, Listing, Output, path_of, show_one};
use crate::exit::{Outcome, Problem};

/// Identifier that the API uses for a document.
pub enum Key {
    /// The API identifies the document by its id. A name is looked up in the listing first.
    Id,
    /// The API identifies the document by its name.
    Name,
}

/// A type of object that is a document in the API, with its names and routes.
pub trait Document: Send + Sync + 'static {
    /// The singular in help texts: `profile`.
    const ONE: &'static str;
    /// The plural in help texts: `profiles`.
    const MANY: &'static str;
    /// The path of the listing: `/api/v1/profiles`.
    const PATH: &'static str;
    /// The identifier that is the last part of a document's path.
    const KEY: Key;
    /// The columns of the listing in table output.
    const COLUMNS: Columns;
    /// HTTP method of the request that replaces a document.
    const REPLACE: Method;
    /// Whether the body of a replacement has the name too. Only for documents that the API identifies by name.
    const NAME_IN_BODY: bool = false;
}

/// Commands that every noun with documents has: list, show, create, update, delete.
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

/// Arguments for the file of a document, with output options.
#[derive(Args, Debug)]
pub struct FileArgs {
    /// The file: JSON, or TOML if its name ends in .toml; - for JSON on standard input
    #[arg(long, short, value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    show: Output,
}

/// Arguments for the document to change, and the file with its new content.
#[derive(Args, Debug)]
pub struct UpdateArgs {
    /// Name or id of the object
    id: String,
    #[command(flatten)]
    file: FileArgs,
}

impl<D: Document> Run for DocumentCommand<D> {
    async fn run(&self, client: &Client) -> Outcome<()> {
        let document_path = |given| document_path::<D>(client, given);
        match self {
            Self::List(listing) => listing.print(client, D::PATH, &(), D::COLUMNS).await,
            Self::Show(one) => show_one(&client.get(&document_path(&one.id).await?, &()).await?, &one.show),
            Self::Create(file) => {
                let created = client.send(Method::POST, D::PATH, Some(&input::document(&file.file)?)).await?;
                show_one(&created, &file.show)
            }
            Self::Update(changed) => {
                let mut body = input::document(&changed.file.file)?;
                if matches!(D::KEY, Key::Name) {
                    match_name::<D>(&mut body, &changed.id)?;
                }
                show_one(
                    &client.send(D::REPLACE, &document_path(&changed.id).await?, Some(&body)).await?,
                    &changed.file.show,
                )
            }
            Self::Delete { id, .. } => {
                client.send(Method::DELETE, &document_path(id).await?, None).await.map(drop)
            }
        }
    }
}

/// Adds the name to a body if the API requires it there, otherwise removes it. One file then serves `create` and `update`.
fn match_name<D: Document>(body: &mut Value, name: &str) -> Outcome<()> {
    let Some(members) = body.as_object_mut() else { return Ok(()) };
    if let Some(other) = members.get("name").filter(|other| *other != name) {
        return Err(Problem::usage(format_args!("the file has the name {other}, not \"{name}\""))
            .hint(format!("names do not change: give the file of the {} {name}", D::ONE)));
    }
    if D::NAME_IN_BODY {
        members.insert("name".to_owned(), name.into());
    } else {
        members.remove("name");
    }
    Ok(())
}

/// Returns the path of a document with the given name or id.
pub(super) async fn document_path<D: Document>(client: &Client, given: &str) -> Outcome<String> {
    match D::KEY {
        Key::Id => path_of(client, D::PATH, D::ONE, given).await,
        Key::Name => Ok(format!("{}/{}", D::PATH, input::segment(given))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::job::TeamDocument;
    use super::super::profile::ProfileDocument;
    use super::*;

    #[test]
    fn update_takes_the_file_of_create_with_or_without_the_name() {
        for file in [json!({ "name": "web", "n": 1 }), json!({ "n": 1 })] {
            let (mut profile, mut team) = (file.clone(), file);
            match_name::<ProfileDocument>(&mut profile, "web").unwrap();
            match_name::<TeamDocument>(&mut team, "web").unwrap();
            assert_eq!((profile, team), (json!({ "name": "web", "n": 1 }), json!({ "n": 1 })));
        }
        let other = match_name::<TeamDocument>(&mut json!({ "name": "shop" }), "web").unwrap_err();
        assert_eq!(other.message, "the file has the name \"shop\", not \"web\"");
    }
}
