//! A list as a table, with filters, pages and export. Narrow screens show each row as a card.

use askama::Template;
use serde_json::Value;

use crate::cell::Cell;
use crate::json;

/// A table. Rows have as many cells as there are columns.
#[derive(Default, Template)]
#[template(path = "table.html")]
pub(crate) struct Table {
    /// The caption, for screen readers.
    pub(crate) caption: String,
    /// The head of each column.
    pub(crate) columns: Vec<&'static str>,
    /// The rows.
    pub(crate) rows: Vec<Vec<Cell>>,
    /// The text without rows, and what to do.
    pub(crate) empty: String,
    /// Where the next page is.
    pub(crate) next: Option<String>,
    /// Where the first page is, on any other.
    pub(crate) first: Option<String>,
    /// How many rows there are on all pages.
    pub(crate) total: Option<String>,
    /// Where CSV and JSON of the whole list are.
    pub(crate) export: Option<Export>,
}

/// Where a list is exported.
pub(crate) struct Export {
    /// As comma-separated values.
    pub(crate) csv: String,
    /// As JSON.
    pub(crate) json: String,
}

impl Table {
    /// A table of rows, each made by `row` from an item of a listing.
    pub(crate) fn of(
        caption: &str,
        columns: &[&'static str],
        listing: &Value,
        row: impl Fn(&Value) -> Vec<Cell>,
    ) -> Self {
        Self {
            caption: caption.to_owned(),
            columns: columns.to_vec(),
            rows: json::items(listing).iter().map(row).collect(),
            empty: "Nothing yet.".to_owned(),
            total: total(listing),
            ..Self::default()
        }
    }

    /// What to say when there is nothing, and what to do.
    pub(crate) fn empty(mut self, text: &str) -> Self {
        text.clone_into(&mut self.empty);
        self
    }

    /// Links to the next and first page: `page` is the console's path, `query` the filters without the cursor.
    pub(crate) fn paged(mut self, listing: &Value, page: &str, query: &str, cursor: Option<&str>) -> Self {
        let at = |extra: Option<(&str, &str)>| {
            let mut all = query.to_owned();
            if let Some((name, value)) = extra {
                let sign = if all.is_empty() { "" } else { "&" };
                all = format!("{all}{sign}{name}={}", api::path::segment(value));
            }
            if all.is_empty() { page.to_owned() } else { format!("{page}?{all}") }
        };
        self.next = Some(json::text(listing, "/next"))
            .filter(|next| !next.is_empty())
            .map(|next| at(Some(("cursor", next))));
        self.first = cursor.map(|_| at(None));
        self
    }

    /// Offers the whole list, of a name in [`crate::export`], with these filters.
    pub(crate) fn exported(mut self, name: &str, query: &str) -> Self {
        let sign = if query.is_empty() { "" } else { "?" };
        self.export = Some(Export {
            csv: format!("/console/export/{name}.csv{sign}{query}"),
            json: format!("/console/export/{name}.json{sign}{query}"),
        });
        self
    }
}

fn total(listing: &Value) -> Option<String> {
    let value = listing.pointer("/total/value")?.as_i64()?;
    let exact = json::flag(listing, "/total/exact");
    Some(format!("{}{}", if exact { "" } else { "at least " }, crate::format::number(value)))
}
