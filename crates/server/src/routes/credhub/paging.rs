//! Pagination of the listings that CredHub does not have: `limit` and `cursor`, `items` and `next`, as in the rest of the API.

use api::listing::{Listing, PageQuery};
use axum::extract::{FromRequestParts, Query};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use serde::Serialize;
use store::{Cursor, Page};

use super::context::Context;
use crate::credhub::Refused;
use crate::paging::{LIMIT_DEFAULT, LIMIT_MAX};

/// The requested page.
pub(super) struct Pages {
    /// Maximum items: 1 to [`LIMIT_MAX`].
    pub(super) limit: usize,
    /// Position of the last item of the previous page.
    pub(super) after: Option<Cursor>,
}

impl FromRequestParts<Context> for Pages {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, context: &Context) -> Result<Self, Refused> {
        let Query(query) = Query::<PageQuery>::from_request_parts(parts, context)
            .await
            .map_err(|_| Refused::bad_request())?;
        let limit = query.limit.map_or(LIMIT_DEFAULT, |limit| limit as usize);
        if !(1..=LIMIT_MAX).contains(&limit) {
            return Err(Refused::bad(format!("limit must be 1 to {LIMIT_MAX}, not {limit}.")));
        }
        let after = query.cursor.map(|cursor| cursor.parse()).transpose();
        let after = after.map_err(|_| Refused::bad("The cursor is not valid. Start without a cursor."))?;
        Ok(Self { limit, after })
    }
}

impl Pages {
    /// Returns a page as a response.
    pub(super) fn answer<R, T: Serialize>(&self, page: Page<R>, show: impl Fn(&R) -> T) -> Response {
        let items = page.rows.iter().map(show).collect();
        let next = page.next.map(|cursor| cursor.to_string());
        axum::Json(Listing { items, next, total: None }).into_response()
    }
}
