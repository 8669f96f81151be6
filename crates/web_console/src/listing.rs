//! One page of an API list, with the filters and the cursor from the browser's URL.

use serde_json::Value;

use crate::cell::Cell;
use crate::failure::Failure;
use crate::query::{filters, parameter, with_query};
use crate::session::Session;
use crate::table::Table;

/// One page of a list, as the API returned it.
pub(crate) struct Listing {
    page: String,
    filters: String,
    cursor: Option<String>,
    path: String,
    answer: Value,
}

impl Listing {
    /// Reads a list at a path of the API, for a page of the console with this query.
    ///
    /// # Errors
    /// See [`crate::api::Client::get`].
    pub(crate) async fn read(
        session: &Session,
        page: &str,
        path: &str,
        query: Option<&str>,
    ) -> Result<Self, Failure> {
        Self::filtered(session, page, path, filters(query), query).await
    }

    /// Reads a list like [`Self::read`], but with the given filters instead of those in the URL.
    ///
    /// # Errors
    /// See [`crate::api::Client::get`].
    pub(crate) async fn filtered(
        session: &Session,
        page: &str,
        path: &str,
        filters: String,
        query: Option<&str>,
    ) -> Result<Self, Failure> {
        let cursor = Some(parameter::<String>(query, "cursor")).filter(|cursor| !cursor.is_empty());
        let path = with_cursor(path, &filters, cursor.as_deref());
        let answer = session.api.get(&path).await?;
        Ok(Self { page: page.to_owned(), filters, cursor, path, answer })
    }

    /// Returns the requested path with its query.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Returns the filters, as a query.
    pub(crate) fn filters(&self) -> &str {
        &self.filters
    }

    /// Returns the list as a table with links to its other pages.
    pub(crate) fn table(
        &self,
        caption: &str,
        columns: &[&'static str],
        row: impl Fn(&Value) -> Vec<Cell>,
    ) -> Table {
        self.paged(Table::of(caption, columns, &self.answer, row))
    }

    /// Returns the response of the API.
    pub(crate) fn answer(&self) -> &Value {
        &self.answer
    }

    /// Adds links to the other pages of this list to a table.
    pub(crate) fn paged(&self, table: Table) -> Table {
        table.paged(&self.answer, &self.page, &self.filters, self.cursor.as_deref())
    }
}

fn with_cursor(path: &str, filters: &str, cursor: Option<&str>) -> String {
    let cursor = cursor.map(|cursor| format!("cursor={}", api::path::segment(cursor)));
    let parts = [Some(filters.to_owned()).filter(|filters| !filters.is_empty()), cursor];
    with_query(path, &parts.into_iter().flatten().collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_requests_include_filters_and_cursor() {
        assert_eq!(with_cursor("/api/v1/issued", "", None), "/api/v1/issued");
        assert_eq!(with_cursor("/api/v1/issued", "ca=a", None), "/api/v1/issued?ca=a");
        assert_eq!(with_cursor("/api/v1/issued", "ca=a", Some("x=")), "/api/v1/issued?ca=a&cursor=x%3D");
        assert_eq!(with_cursor("/api/v1/issued", "", Some("y")), "/api/v1/issued?cursor=y");
    }
}
