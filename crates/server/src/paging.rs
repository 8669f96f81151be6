//! Pages of listings: `limit`, `cursor`, `fields`, and the envelope around the items.

use axum::extract::FromRequestParts;
use http::request::Parts;
use serde::{Deserialize, Serialize};
use store::{Cursor, Page};
use utoipa::{IntoParams, ToSchema};

use crate::extract::Query;
use crate::problem::Problem;

/// Items in a page when nothing is asked for.
pub const LIMIT_DEFAULT: usize = 50;
/// Most items in a page: at a kilobyte each, half a megabyte of JSON.
pub const LIMIT_MAX: usize = 500;

/// The parameters of every listing.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PagingParams {
    /// Most items in the page; 50 when absent.
    #[param(minimum = 1, maximum = 500)]
    pub limit: Option<u32>,
    /// Where the page begins: `next` of the page before.
    pub cursor: Option<String>,
    /// Members to give of each item, separated by commas; all when absent.
    #[param(example = "id,name")]
    pub fields: Option<String>,
}

/// Which page is asked for. Handlers take it as an argument and name [`PagingParams`] in `params(...)`.
#[derive(Clone, Debug)]
pub struct Paging {
    /// 1 to [`LIMIT_MAX`].
    pub limit: usize,
    /// The last item of the page before.
    pub after: Option<Cursor>,
}

impl PagingParams {
    fn checked(&self) -> Result<Paging, Problem> {
        let limit = self.limit.map_or(LIMIT_DEFAULT, |limit| limit as usize);
        if !(1..=LIMIT_MAX).contains(&limit) {
            return Err(Problem::bad_request(format_args!("limit is 1 to {LIMIT_MAX}, not {limit}")));
        }
        let after = self.cursor.as_deref().map(str::parse).transpose()?;
        Ok(Paging { limit, after })
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Paging {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Query::<PagingParams>::from_request_parts(parts, state).await?.0.checked()
    }
}

/// One page of a listing.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Listing<T> {
    /// At most as many as asked for.
    pub items: Vec<T>,
    /// The `cursor` of the next page; null when this one is the last.
    pub next: Option<String>,
}

impl<T> Listing<T> {
    /// A page of the store's, each row as the API shows it.
    pub fn of<R>(page: Page<R>, show: impl FnMut(R) -> T) -> Self {
        Self {
            items: page.rows.into_iter().map(show).collect(),
            next: page.next.map(|cursor| cursor.to_string()),
        }
    }

    /// A listing that is always whole.
    #[must_use]
    pub fn whole(items: Vec<T>) -> Self {
        Self { items, next: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_cursors_are_checked() {
        let params = |limit, cursor: Option<&str>| PagingParams {
            limit,
            cursor: cursor.map(str::to_owned),
            fields: None,
        };
        assert_eq!(params(None, None).checked().unwrap().limit, 50);
        assert_eq!(params(Some(500), None).checked().unwrap().limit, 500);
        for bad in [params(Some(0), None), params(Some(501), None), params(None, Some("!"))] {
            assert_eq!(bad.checked().unwrap_err().status(), 400);
        }
    }
}
