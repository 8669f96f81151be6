//! A list as a table, with filters, pagination and export. Narrow screens show each row as a card.

use askama::Template;
use serde_json::Value;

use crate::cell::Cell;
use crate::json;
use crate::query::with_query;

/// A table. Each row has as many cells as there are columns.
#[derive(Default, Template)]
#[template(path = "table.html")]
pub(crate) struct Table {
    caption: String,
    columns: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
    /// Text of an empty table: why it is empty, and what to do.
    empty: String,
    next: Option<String>,
    /// URL of the first page; `None` on the first page.
    first: Option<String>,
    /// The number of rows on all pages.
    total: Option<String>,
    filters: String,
    export: Option<Export>,
}

/// The paths of a list's export.
struct Export {
    csv: String,
    json: String,
}

impl Table {
    /// Creates a table of rows.
    pub(crate) fn new(
        caption: &str,
        columns: &[&'static str],
        rows: impl IntoIterator<Item = Vec<Cell>>,
    ) -> Self {
        Self {
            caption: caption.to_owned(),
            columns: columns.to_vec(),
            rows: rows.into_iter().collect(),
            empty: "Nothing yet.".to_owned(),
            ..Self::default()
        }
    }

    /// Creates a table with a row for each item of a listing.
    pub(crate) fn of(
        caption: &str,
        columns: &[&'static str],
        listing: &Value,
        row: impl Fn(&Value) -> Vec<Cell>,
    ) -> Self {
        let table = Self::new(caption, columns, json::items(listing).iter().map(row));
        Self { total: total(listing), ..table }
    }

    /// Returns whether the table has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Sets the text of an empty table: why it is empty, and what to do.
    pub(crate) fn empty(mut self, text: &str) -> Self {
        text.clone_into(&mut self.empty);
        self
    }

    /// Adds links to the next and the first page: `page` is the console's path, `filters` the query without the cursor.
    pub(crate) fn paged(mut self, listing: &Value, page: &str, filters: &str, cursor: Option<&str>) -> Self {
        let next = Some(json::text(listing, "/next")).filter(|next| !next.is_empty());
        let separator = if filters.is_empty() { "" } else { "&" };
        self.next =
            next.map(|next| format!("{page}?{filters}{separator}cursor={}", api::path::segment(next)));
        self.first = cursor.map(|_| with_query(page, filters));
        self.filtered(filters)
    }

    /// Sets the filters of the list that the table shows, as a query.
    pub(crate) fn filtered(mut self, filters: &str) -> Self {
        filters.clone_into(&mut self.filters);
        self
    }

    /// Adds links to the export of the whole list with its filters; `name` is one of [`crate::export`].
    pub(crate) fn exported(mut self, name: &str) -> Self {
        let path = |kind: &str| with_query(&format!("/console/export/{name}.{kind}"), &self.filters);
        self.export = Some(Export { csv: path("csv"), json: path("json") });
        self
    }
}

fn total(listing: &Value) -> Option<String> {
    let value = listing.pointer("/total/value")?.as_i64()?;
    let exact = json::flag(listing, "/total/exact");
    Some(format!("{}{}", if exact { "" } else { "at least " }, crate::format::number(value)))
}
