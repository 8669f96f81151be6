//! Pages of listings: how many rows to fetch, and how to build a page and its cursor from them.

use crate::cursor::Cursor;
use crate::error::StoreError;
use crate::value::{Row, Value};

/// Maximum number of rows of one page, even if the caller requests more. Ten thousand inventory rows are about 20 MiB.
pub const PAGE_ROWS_MAX: usize = 10_000;

/// The rows of one page of a listing, and the cursor of the next page.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// Rows of the page. At most the requested number.
    pub rows: Vec<T>,
    /// Cursor of the next page. `None` for the last page.
    pub next: Option<Cursor>,
}

/// Maximum number of rows that [`visible_page`] reads for one page.
pub const VISIBLE_ROWS_READ_MAX: usize = 5_000;

/// Number of rows that [`visible_page`] reads at a time, after the first read.
const VISIBLE_ROWS_AT_ONCE: usize = 1_000;

/// A page of the rows that a caller may see.
#[derive(Clone, Debug)]
pub struct VisiblePage<T> {
    /// The rows, and the cursor of the next page.
    pub page: Page<T>,
    /// Whether the cursor is after a row that the caller may not see. If so, the key in the cursor must not be shown to the caller.
    pub is_cursor_secret: bool,
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

/// Reads a page of only the rows that a caller may see. `read` returns pages of all rows. Neither the page nor its cursor reveals
/// whether there are rows that the caller may not see: the cursor is after the last row of the page, and is present only if another
/// visible row follows.
///
/// Exception: after [`VISIBLE_ROWS_READ_MAX`] rows, the page ends early. See [`VisiblePage::is_cursor_secret`].
///
/// # Errors
/// Errors of `read`.
pub async fn visible_page<T, E, F>(
    (after, limit): (Option<&Cursor>, usize),
    read: impl Fn(Option<Cursor>, usize) -> F,
    sees: impl Fn(&T) -> bool,
) -> Result<VisiblePage<T>, E>
where
    F: Future<Output = Result<Page<T>, E>>,
{
    let (limit, _) = limit_of(limit);
    let (mut rows, mut read_rows, mut start) = (Vec::new(), 0, after.cloned());
    // The start of the read with the last row of the page, and the number of rows read up to that row.
    let mut last = (start.clone(), 0);
    let mut at_once = limit + 1;
    loop {
        let found = read(start.clone(), at_once).await?;
        read_rows += found.rows.len();
        for (index, row) in found.rows.into_iter().enumerate() {
            if !sees(&row) {
                continue;
            }
            if rows.len() == limit {
                let (start, count) = last;
                let next = read(start, count).await?.next;
                return Ok(VisiblePage { page: Page { rows, next }, is_cursor_secret: false });
            }
            rows.push(row);
            last = (start.clone(), index + 1);
        }
        let is_cursor_secret = found.next.is_some();
        if found.next.is_none() || read_rows >= VISIBLE_ROWS_READ_MAX {
            return Ok(VisiblePage { page: Page { rows, next: found.next }, is_cursor_secret });
        }
        start = found.next;
        at_once = VISIBLE_ROWS_AT_ONCE;
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads from the numbers 0 to `count`.
    async fn visible(count: i64, limit: usize, sees: fn(&i64) -> bool) -> (Vec<i64>, usize, bool) {
        let read = |after: Option<Cursor>, limit: usize| async move {
            let key = key_or(after.as_ref(), "numbers", &[Value::Int(-1)])?;
            let [Value::Int(last)] = key[..] else { return Err(StoreError::BadCursor) };
            let rows: Vec<i64> = (last + 1..count).take(limit).collect();
            let more = rows.last().is_some_and(|last| last + 1 < count);
            let next = rows.last().filter(|_| more).map(|last| Cursor::new("numbers", &[Value::Int(*last)]));
            Ok(Page { rows, next })
        };
        let (mut all, mut pages, mut after, mut secret) = (Vec::new(), 0, None, false);
        loop {
            let found = visible_page((after.as_ref(), limit), read, sees).await.unwrap();
            pages += 1;
            assert!(found.page.rows.len() <= limit);
            let last = all.last().max(found.page.rows.last()).copied();
            all.extend(&found.page.rows);
            secret |= found.is_cursor_secret;
            if let (false, Some(next)) = (found.is_cursor_secret, &found.page.next) {
                let key = next.key("numbers", &[Value::Int(0)]).unwrap();
                assert_eq!(Some(key), last.map(|last| vec![Value::Int(last)]), "after a visible row");
            }
            after = found.page.next;
            if after.is_none() {
                return (all, pages, secret);
            }
        }
    }

    #[tokio::test]
    async fn cursor_of_a_visible_page_is_after_a_visible_row() {
        let every: fn(&i64) -> bool = |_| true;
        let none: fn(&i64) -> bool = |_| false;
        let third: fn(&i64) -> bool = |number| number % 3 == 1;
        assert_eq!(visible(0, 2, every).await, (vec![], 1, false));
        assert_eq!(visible(4, 2, every).await, (vec![0, 1, 2, 3], 2, false));
        assert_eq!(visible(5, 1, none).await, (vec![], 1, false));
        assert_eq!(visible(9, 1, third).await, (vec![1, 4, 7], 3, false));
        assert_eq!(visible(9, 2, third).await, (vec![1, 4, 7], 2, false));
        let late: fn(&i64) -> bool = |number| *number == 11_000;
        let (found, pages, secret) = visible(11_001, 10, late).await;
        assert_eq!((found, secret), (vec![11_000], true));
        assert!(pages <= 4, "{pages}");
    }
}
