//! Options of paged listings, and printing of their pages.

use clap::Args;
use cli::connection::{Output, print_query_result};
use cli::exit::{Outcome, Problem};
use cli::printer::{Listed, Printer};
use cli::repeat::Repeat;
use serde_json::Value;
use store::{Cursor, Page, StoreError};

use crate::database;

/// The part of a listing to print, and its output format.
#[derive(Args, Clone, Debug)]
pub(crate) struct Pages {
    /// Rows per page
    #[arg(long, value_name = "ROWS", default_value_t = 100, help_heading = "Pages")]
    pub(crate) limit: usize,
    /// Continue after a page: the cursor that it printed
    #[arg(long, value_name = "CURSOR", help_heading = "Pages")]
    pub(crate) after: Option<Cursor>,
    /// Print all pages
    #[arg(long, help_heading = "Pages")]
    pub(crate) all: bool,
    #[command(flatten)]
    repeat: Repeat,
    #[command(flatten)]
    show: Output,
}

/// Rows per page when all pages are read.
const PAGE_ROWS: usize = 1_000;

/// Prints one page, or all pages.
pub(crate) async fn list<T: Listed>(
    pages: &Pages,
    fetch: impl AsyncFn(Option<Cursor>, usize) -> Result<Page<T>, StoreError>,
) -> Outcome<()> {
    print_listings(pages, vec![()], async |(), after, limit| fetch(after, limit).await).await
}

/// Prints one page, or all pages, of several listings one after the other.
pub(crate) async fn print_listings<K: Clone, T: Listed>(
    pages: &Pages,
    of: Vec<K>,
    fetch: impl AsyncFn(K, Option<Cursor>, usize) -> Result<Page<T>, StoreError>,
) -> Outcome<()> {
    pages.repeat.run(async || print_once(pages, of.clone(), &fetch).await).await
}

async fn print_once<K: Clone, T: Listed>(
    pages: &Pages,
    of: Vec<K>,
    fetch: &impl AsyncFn(K, Option<Cursor>, usize) -> Result<Page<T>, StoreError>,
) -> Outcome<()> {
    let mut printer = Printer::new(pages.show.output, pages.show.color);
    let (mut next, mut found) = (None, Vec::new());
    for which in of {
        let mut after = pages.after.clone();
        loop {
            let limit = if pages.all { PAGE_ROWS } else { pages.limit.max(1) };
            let page = fetch(which.clone(), after, limit).await.map_err(|error| inventory_error(&error))?;
            match pages.show.query {
                Some(_) => found.extend(page.rows.iter().map(Listed::json)),
                None => printer.page(&page.rows).map_err(|error| Problem::output(&error))?,
            }
            after = page.next;
            // A page may have no rows although more follow.
            if after.is_none() || !(pages.all || page.rows.is_empty()) {
                break;
            }
        }
        next = after;
    }
    if let Some(query) = &pages.show.query {
        return print_query_result(query, &Value::Array(found));
    }
    printer.end(next.map(|next| next.to_string()).as_deref()).map_err(|error| Problem::output(&error))
}

/// Converts each row of a page.
pub(crate) fn map<A, B>(page: Page<A>, make: impl FnMut(A) -> B) -> Page<B> {
    Page { rows: page.rows.into_iter().map(make).collect(), next: page.next }
}

/// Converts a database error to a problem. Invalid user input has another exit code than a failure of the database.
pub(crate) fn inventory_error(error: &StoreError) -> Problem {
    match error {
        StoreError::BadCursor
        | StoreError::UnknownScan(_)
        | StoreError::Pruned(_)
        | StoreError::BadFingerprint(_)
        | StoreError::AmbiguousFingerprint(_) => Problem::usage(error),
        _ => database::problem(error),
    }
}
