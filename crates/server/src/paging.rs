//! Pagination of listings: `limit`, `cursor`, `fields`, and the envelope around the items.

pub use api::listing::{Listing, PageQuery};
use axum::extract::FromRequestParts;
use http::request::Parts;
use store::{Cursor, Page};

use crate::extract::Query;
use crate::problem::Problem;

/// Default number of items in a page.
pub const LIMIT_DEFAULT: usize = 50;
/// Maximum items in a page: at a kilobyte each, half a megabyte of JSON.
pub const LIMIT_MAX: usize = 500;

/// The requested page. Handlers take it as an argument and list [`PageQuery`] in `params(...)`.
#[derive(Clone, Debug)]
pub struct Paging {
    /// Maximum items: 1 to [`LIMIT_MAX`].
    pub limit: usize,
    /// Position of the last item of the previous page.
    pub after: Option<Cursor>,
}

impl Paging {
    fn of(query: &PageQuery) -> Result<Self, Problem> {
        let limit = query.limit.map_or(LIMIT_DEFAULT, |limit| limit as usize);
        if !(1..=LIMIT_MAX).contains(&limit) {
            return Err(Problem::bad_request(format_args!("limit must be 1 to {LIMIT_MAX}, not {limit}")));
        }
        let after = query.cursor.as_deref().map(str::parse).transpose()?;
        Ok(Self { limit, after })
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Paging {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Self::of(&Query::<PageQuery>::from_request_parts(parts, state).await?.0)
    }
}

/// Converts a page of the store to the API view, row by row.
pub fn listing<R, T>(page: Page<R>, show: impl FnMut(R) -> T) -> Listing<T> {
    Listing {
        items: page.rows.into_iter().map(show).collect(),
        next: page.next.map(|cursor| cursor.to_string()),
        total: None,
    }
}

/// Converts a page of the store to the API view, or returns the error of the first row that fails.
///
/// # Errors
/// Errors of `show`.
pub fn try_listing<R, T, E>(page: Page<R>, show: impl FnMut(R) -> Result<T, E>) -> Result<Listing<T>, E> {
    let items = page.rows.into_iter().map(show).collect::<Result<_, _>>()?;
    Ok(Listing { items, next: page.next.map(|cursor| cursor.to_string()), total: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_limits_and_cursors_are_rejected() {
        let paging = |limit, cursor: Option<&str>| {
            Paging::of(&PageQuery { limit, cursor: cursor.map(str::to_owned), fields: None })
        };
        assert_eq!(paging(None, None).unwrap().limit, 50);
        assert_eq!(paging(Some(500), None).unwrap().limit, 500);
        for bad in [paging(Some(0), None), paging(Some(501), None), paging(None, Some("!"))] {
            assert_eq!(bad.unwrap_err().status(), 400);
        }
    }
}
