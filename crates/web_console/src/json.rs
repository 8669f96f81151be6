//! Access to members of API responses. An absent member reads as empty, so that a page works with a server that is one version
//! older.

use serde_json::Value;

/// Returns the string at a pointer (RFC 6901); empty if absent.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the number at a pointer; 0 if absent.
pub(crate) fn number(value: &Value, pointer: &str) -> i64 {
    value.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

/// Returns the Boolean at a pointer; false if absent.
pub(crate) fn flag(value: &Value, pointer: &str) -> bool {
    value.pointer(pointer).and_then(Value::as_bool).unwrap_or_default()
}

/// Returns the list at a pointer; empty if absent.
pub(crate) fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Returns the items of a listing; empty if the API returned none.
pub(crate) fn items(listing: &Value) -> &[Value] {
    list(listing, "/items")
}

/// Returns a list of strings, joined with commas.
pub(crate) fn joined(value: &Value, pointer: &str) -> String {
    let texts: Vec<&str> = list(value, pointer).iter().filter_map(Value::as_str).collect();
    texts.join(", ")
}
