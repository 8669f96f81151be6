//! One page of a list of the API, with the filters and the cursor of the browser's address.

use serde_json::Value;

use crate::cell::Cell;
use crate::failure::Failure;
use crate::form::{filters, parameter};
use crate::table::Table;
use crate::visit::Visit;

/// One page of a list.
pub(crate) struct Listing {
    page: String,
    filters: String,
    cursor: Option<String>,
    path: String,
    answer: Value,
}

impl Listing {
    /// Asks for a list at a path of the API, for a page of the console whose address has this query.
    ///
    /// # Errors
    /// [`Failure`]: what the API refused.
    pub(crate) async fn read(
        visit: &Visit,
        page: &str,
        path: &str,
        query: Option<&str>,
    ) -> Result<Self, Failure> {
        let filters = filters(query);
        let cursor = Some(parameter::<String>(query, "cursor")).filter(|cursor| !cursor.is_empty());
        let path = asked(path, &filters, cursor.as_deref());
        let answer = visit.api.get(&path).await?;
        Ok(Self { page: page.to_owned(), filters, cursor, path, answer })
    }

    /// The path that was asked for, with its query.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The filters, as a query.
    pub(crate) fn filters(&self) -> &str {
        &self.filters
    }

    /// The list as a table with links to its other pages.
    pub(crate) fn table(
        &self,
        caption: &str,
        columns: &[&'static str],
        row: impl Fn(&Value) -> Vec<Cell>,
    ) -> Table {
        let table = Table::of(caption, columns, &self.answer, row);
        table.paged(&self.answer, &self.page, &self.filters, self.cursor.as_deref())
    }
}

fn asked(path: &str, filters: &str, cursor: Option<&str>) -> String {
    let mut parts = Vec::new();
    if !filters.is_empty() {
        parts.push(filters.to_owned());
    }
    if let Some(cursor) = cursor {
        parts.push(format!("cursor={}", api::path::segment(cursor)));
    }
    if parts.is_empty() { path.to_owned() } else { format!("{path}?{}", parts.join("&")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_asked_for_with_filters_and_cursor() {
        assert_eq!(asked("/api/v1/issued", "", None), "/api/v1/issued");
        assert_eq!(asked("/api/v1/issued", "ca=a", None), "/api/v1/issued?ca=a");
        assert_eq!(asked("/api/v1/issued", "ca=a", Some("x=")), "/api/v1/issued?ca=a&cursor=x%3D");
        assert_eq!(asked("/api/v1/issued", "", Some("y")), "/api/v1/issued?cursor=y");
    }
}
