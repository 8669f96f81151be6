//! Members of the API's answers. A member that is absent reads as empty, so that a page survives a server that is one version older.

use serde_json::Value;

/// A text by its pointer (RFC 6901), empty where there is none.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A number by its pointer, 0 where there is none.
pub(crate) fn number(value: &Value, pointer: &str) -> i64 {
    value.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

/// A truth value by its pointer, false where there is none.
pub(crate) fn flag(value: &Value, pointer: &str) -> bool {
    value.pointer(pointer).and_then(Value::as_bool).unwrap_or_default()
}

/// A list by its pointer, empty where there is none.
pub(crate) fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The rows of a listing.
pub(crate) fn items(listing: &Value) -> &[Value] {
    list(listing, "/items")
}

/// A list of texts, joined with commas.
pub(crate) fn joined(value: &Value, pointer: &str) -> String {
    let texts: Vec<&str> = list(value, pointer).iter().filter_map(Value::as_str).collect();
    texts.join(", ")
}
