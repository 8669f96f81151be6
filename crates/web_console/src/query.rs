//! Query strings of the browser's URL.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Parses the parameters of a query in their order; empty for an invalid query.
pub(crate) fn pairs(query: Option<&str>) -> Vec<(String, String)> {
    query.and_then(|query| serde_urlencoded::from_str(query).ok()).unwrap_or_default()
}

/// Returns the filters of a list: the query without empty parameters, `cursor` and `done`.
pub(crate) fn filters(query: Option<&str>) -> String {
    let pairs = pairs(query);
    let retained =
        pairs.iter().filter(|(name, value)| !value.is_empty() && name != "cursor" && name != "done");
    let retained: Vec<String> = retained
        .map(|(name, value)| format!("{}={}", api::path::segment(name), api::path::segment(value)))
        .collect();
    retained.join("&")
}

/// Returns the value of a parameter; the default if it is absent.
pub(crate) fn parameter<T: DeserializeOwned + Default>(query: Option<&str>, name: &str) -> T {
    let value = pairs(query).into_iter().find(|(known, _)| known == name);
    value.and_then(|(_, value)| serde_json::from_value(Value::String(value)).ok()).unwrap_or_default()
}

/// Adds a query to a path, which may already have one. An empty query adds nothing.
pub(crate) fn with_query(path: &str, query: &str) -> String {
    let separator = if path.contains('?') { '&' } else { '?' };
    if query.is_empty() { path.to_owned() } else { format!("{path}{separator}{query}") }
}

/// Returns the path of an object in a collection. The ID is escaped, so that it cannot change the path.
pub(crate) fn item(collection: &str, id: &str) -> String {
    format!("{collection}/{}", api::path::segment(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_and_non_filter_parameters_are_removed_from_queries() {
        assert_eq!(
            filters(Some("status=active&owner=&cursor=abc&q=a%20b&done=saved")),
            "status=active&q=a%20b"
        );
        assert_eq!(filters(None), "");
        assert_eq!(parameter::<String>(Some("a=1&b=x%26y"), "b"), "x&y");
        assert_eq!(with_query("/console", ""), "/console");
        assert_eq!(with_query("/console", "a=1"), "/console?a=1");
        assert_eq!(with_query("/console?b=2", "a=1"), "/console?b=2&a=1");
    }
}
