//! Pages of listings: how many rows to fetch, and how to build a page and its cursor from them.

use crate::cursor::Cursor;
use crate::error::StoreError;
use crate::value::{Row, Value};

/// Maximum number of rows of one page, whatever was requested. Ten thousand inventory rows are about 20 MiB.
pub const PAGE_ROWS_MAX: usize = 10_000;

/// One page of a listing.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// Rows of the page. At most the requested number.
    pub rows: Vec<T>,
    /// Cursor of the next page. `None` for the last page.
    pub next: Option<Cursor>,
}

/// Returns the size of a page and the number of rows to fetch: one more, to detect whether another page follows.
#[must_use]
pub fn limit_of(limit: usize) -> (usize, i64) {
    let limit = limit.clamp(1, PAGE_ROWS_MAX);
    (limit, limit as i64 + 1)
}

/// Returns the key of the cursor, or `first` without a cursor. `first` also defines the shape of the key.
///
/// # Errors
/// [`StoreError::BadCursor`] for a cursor of another listing or shape.
pub fn key_or(after: Option<&Cursor>, listing: &str, first: &[Value]) -> Result<Vec<Value>, StoreError> {
    after.map_or_else(|| Ok(first.to_vec()), |cursor| cursor.key(listing, first))
}

/// Appends the number of rows to fetch to the parameters.
#[must_use]
pub fn with_limit(mut parameters: Vec<Value>, limit: i64) -> Vec<Value> {
    parameters.push(limit.into());
    parameters
}

/// Decodes rows into a page. An extra row after the page becomes the cursor.
///
/// # Errors
/// Errors of `decode`.
pub fn page<T>(
    rows: Vec<Row>,
    limit: usize,
    listing: &str,
    decode: impl Fn(Row) -> Result<(T, Vec<Value>), StoreError>,
) -> Result<Page<T>, StoreError> {
    let more = rows.len() > limit;
    let mut out = Vec::with_capacity(rows.len().min(limit));
    let mut last = Vec::new();
    for row in rows.into_iter().take(limit) {
        let (value, key) = decode(row)?;
        out.push(value);
        last = key;
    }
    Ok(Page { rows: out, next: more.then(|| Cursor::new(listing, &last)) })
}
