//! `bulla search`: one search over everything that the caller may see.

use api::search::{HitView, SearchQuery, SearchView};
use clap::Args;

use crate::columns;
use crate::configuration::ClientSettings;
use crate::connection::{Client, Columns, Output, ServerArgs, document_of, print_rows};
use crate::exit::{Exit, Outcome};

const COLUMNS: Columns = columns!(
    HitView:
    ("Kind", kind),
    ("Name", name),
    ("By", matched),
    ("How", how),
    ("Status", status),
    ("Ends", not_after),
    ("Id", id),
);

/// Arguments of `bulla search`.
#[derive(Args, Debug)]
pub struct SearchArgs {
    /// A name or a part of it, the first digits of a serial number or fingerprint, a host, an owner, a credential's path
    #[arg(value_name = "TEXT")]
    text: String,
    /// Maximum hits of each kind
    #[arg(long, value_name = "HITS", default_value_t = 10)]
    limit: u32,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    show: Output,
}

/// Searches, and prints the results.
pub(crate) async fn run(args: &SearchArgs, settings: &ClientSettings) -> Outcome<Exit> {
    let client = Client::open(&args.server, settings)?;
    let query = SearchQuery { q: args.text.clone(), limit: Some(args.limit) };
    let found: SearchView = client.fetch("/api/v1/search", &query).await?;
    print_rows(found.hits.iter().map(document_of).collect::<Outcome<_>>()?, COLUMNS, &args.show)?;
    if found.more {
        eprintln!("there are more results: give a longer text, or --limit");
    }
    Ok(Exit::Ok)
}
