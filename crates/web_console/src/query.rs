//! Query strings of the browser's address.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// The parameters of a query in their order; none for a query that cannot be read.
pub(crate) fn pairs(query: Option<&str>) -> Vec<(String, String)> {
    query.and_then(|query| serde_urlencoded::from_str(query).ok()).unwrap_or_default()
}

/// A query without empty parameters, and without `cursor` and `done`: the filters of a list.
pub(crate) fn filters(query: Option<&str>) -> String {
    let pairs = pairs(query);
    let kept = pairs.iter().filter(|(name, value)| !value.is_empty() && name != "cursor" && name != "done");
    let kept: Vec<String> = kept
        .map(|(name, value)| format!("{}={}", api::path::segment(name), api::path::segment(value)))
        .collect();
    kept.join("&")
}

/// The value of a parameter; the default where it is absent.
pub(crate) fn parameter<T: DeserializeOwned + Default>(query: Option<&str>, name: &str) -> T {
    let value = pairs(query).into_iter().find(|(known, _)| known == name);
    value.and_then(|(_, value)| serde_json::from_value(Value::String(value)).ok()).unwrap_or_default()
}

/// A path, which may have a query, with a further query; the path alone for an empty query.
pub(crate) fn with_query(path: &str, query: &str) -> String {
    let separator = if path.contains('?') { '&' } else { '?' };
    if query.is_empty() { path.to_owned() } else { format!("{path}{separator}{query}") }
}

/// The path of an object in a collection. The identity cannot leave its segment, whatever characters it has.
pub(crate) fn item(collection: &str, id: &str) -> String {
    format!("{collection}/{}", api::path::segment(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_have_no_empty_parameters() {
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
