//! Tables of audit events and events of a run, for the page of their object.

use serde_json::Value;

use crate::cell::Cell;
use crate::json;
use crate::session::Session;
use crate::table::Table;

/// Returns a table of events: time, action, actor and details.
pub(crate) fn table(session: &Session, listing: &Value) -> Table {
    Table::of("History", &["Time", "Action", "Actor", "Details"], listing, |one| {
        vec![
            Cell::time(json::text(one, "/at"), session.now),
            Cell::code(json::text(one, "/action")),
            Cell::text(json::text(one, "/actor")),
            Cell::text(details(one.pointer("/details").unwrap_or(&Value::Null))),
        ]
    })
    .empty("The audit log has no event for this object yet.")
}

/// Formats the details of an event: `from issuing, to active`.
pub(crate) fn details(details: &Value) -> String {
    let members = details.as_object().into_iter().flatten();
    let worth = members.filter(|(_, value)| !value.is_null());
    let words = worth.map(|(name, value)| format!("{} {}", name.replace('_', " "), plain(value)));
    words.collect::<Vec<_>>().join(", ")
}

/// Formats a value as text. A string gets no quotes.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn event_details_are_formatted_as_text() {
        assert_eq!(
            details(&json!({"from": "a", "names": ["x", "y"], "n": 2, "z": null})),
            "from a, n 2, names x, y"
        );
        assert_eq!(details(&Value::Null), "");
    }
}
