//! Pages of listings: how many rows to ask for, and how to make a page and its cursor of them.

use crate::cursor::Cursor;
use crate::error::StoreError;
use crate::value::{Row, Value};

/// Most rows one page gives, whatever was asked for: ten thousand inventory rows are some 20 MiB.
pub const PAGE_ROWS_MAX: usize = 10_000;

/// One page of a listing.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// At most as many rows as were asked for.
    pub rows: Vec<T>,
    /// Where the next page begins; `None` when this one is the last.
    pub next: Option<Cursor>,
}

/// The size of a page, and the number of rows to ask for: one more, to know whether another page follows.
#[must_use]
pub fn limit_of(limit: usize) -> (usize, i64) {
    let limit = limit.clamp(1, PAGE_ROWS_MAX);
    (limit, limit as i64 + 1)
}

/// The key of the cursor, or `first` when there is none; `first` also gives the key's shape.
///
/// # Errors
/// [`StoreError::BadCursor`] when the cursor is of another listing or shape.
pub fn key_or(after: Option<&Cursor>, listing: &str, first: &[Value]) -> Result<Vec<Value>, StoreError> {
    after.map_or_else(|| Ok(first.to_vec()), |cursor| cursor.key(listing, first))
}

/// The parameters and, as the last one, the number of rows to ask for.
#[must_use]
pub fn with_limit(mut parameters: Vec<Value>, limit: i64) -> Vec<Value> {
    parameters.push(limit.into());
    parameters
}

/// Decodes one row more than the page holds, if there is one, into the page and its cursor.
///
/// # Errors
/// Those of `decode`.
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
