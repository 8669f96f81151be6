//! A page of a list of the API, as the address of the console's page asks for it.

use serde_json::Value;

use crate::failure::Failure;
use crate::form::{filters, parameter};
use crate::table::Table;
use crate::visit::Visit;

/// A page of a list.
pub(crate) struct Listed {
    /// The API's answer.
    pub(crate) answer: Value,
    /// The path that gave it.
    pub(crate) path: String,
    filters: String,
    cursor: Option<String>,
}

impl Listed {
    /// The list at a path of the API with the filters and the cursor of this page's query.
    ///
    /// # Errors
    /// As [`crate::api::Client::get`].
    pub(crate) async fn read(visit: &Visit, path: &str, query: Option<&str>) -> Result<Self, Failure> {
        let filters = filters(query);
        let cursor: String = parameter(query, "cursor");
        let cursor = Some(cursor).filter(|cursor| !cursor.is_empty());
        let from = cursor.as_deref().map(|cursor| format!("cursor={}", api::path::segment(cursor)));
        let whole: Vec<&str> = [filters.as_str(), from.as_deref().unwrap_or_default()]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect();
        let path = if whole.is_empty() { path.to_owned() } else { format!("{path}?{}", whole.join("&")) };
        let answer = visit.api.get(&path).await?;
        Ok(Self { answer, path, filters, cursor })
    }

    /// A table with links to its other pages.
    pub(crate) fn paged(&self, table: Table, page: &str) -> Table {
        table.paged(&self.answer, page, &self.filters, self.cursor.as_deref())
    }

    /// [`Self::paged`], with the export of a name in [`crate::export`].
    pub(crate) fn exported(&self, table: Table, page: &str, name: &str) -> Table {
        self.paged(table, page).exported(name, &self.filters)
    }
}

/// Names of a list's items as choices of a field, after an empty one with its words.
pub(crate) fn names(listing: Option<&Value>, none: &str) -> Vec<(String, String)> {
    let items = listing.map(crate::json::items).unwrap_or_default();
    let names = items.iter().map(|item| crate::json::text(item, "/name").to_owned());
    let names = names.map(|name| (name.clone(), name));
    std::iter::once((String::new(), none.to_owned())).chain(names).collect()
}
