//! Names of objects, for lists whose rows have only IDs.

use serde_json::Value;

use crate::cell::Cell;
use crate::failure::Failure;
use crate::json;
use crate::query::item;
use crate::session::Session;

/// The names of up to 500 objects of one kind. An object without a name here is shown by its ID.
pub(crate) struct Names {
    noun: &'static str,
    listing: Value,
}

impl Names {
    /// Reads the names of objects, such as `targets`, in one request.
    ///
    /// # Errors
    /// See [`crate::api::Client::get_if_allowed`].
    pub(crate) async fn read(session: &Session, noun: &'static str) -> Result<Self, Failure> {
        let path = format!("/api/v1/{noun}?limit=500&fields=id,name");
        Ok(Self { noun, listing: session.api.get_if_allowed(&path).await?.unwrap_or_default() })
    }

    /// Returns a link to the page of an object; [`Cell::Empty`] without an ID.
    pub(crate) fn link(&self, id: &str) -> Cell {
        if id.is_empty() {
            return Cell::Empty;
        }
        let found = json::items(&self.listing).iter().find(|one| json::text(one, "/id") == id);
        let name = found.map_or(id, |one| json::text(one, "/name"));
        Cell::link(item(&format!("/console/{}", self.noun), id), name)
    }

    /// Returns the IDs with their names, as the options of a selection.
    pub(crate) fn options(&self) -> Vec<(String, String)> {
        let of = |one: &Value| (json::text(one, "/id").to_owned(), json::text(one, "/name").to_owned());
        json::items(&self.listing).iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_shown_by_name_or_else_by_id() {
        let names = Names { noun: "targets", listing: json!({ "items": [{ "id": "t1", "name": "web" }] }) };
        let shown = |id| format!("{:?}", names.link(id));
        assert!(shown("t1").contains("\"web\"") && shown("t1").contains("/console/targets/t1"));
        assert!(shown("t2").contains("\"t2\""));
        assert!(matches!(names.link(""), Cell::Empty));
        assert_eq!(names.options(), [("t1".to_owned(), "web".to_owned())]);
    }
}
