//! Documents of the API as rows of a table.

use serde_json::Value;

/// Heads of columns, each with the JSON pointer (RFC 6901) of its value.
pub type Columns = &'static [(&'static str, &'static str)];

/// A document of a listing, or of another answer.
pub struct DocumentRow {
    item: Value,
}

impl DocumentRow {
    /// The row of a document.
    pub fn of(item: Value) -> Self {
        Self { item }
    }

    /// The cells of a table or the fields of a CSV record.
    pub fn fields(&self, columns: Columns) -> Vec<String> {
        columns.iter().map(|(_, pointer)| text(self.item.pointer(pointer).unwrap_or(&Value::Null))).collect()
    }

    /// The document itself.
    pub fn json(&self) -> &Value {
        &self.item
    }
}

/// A value in a cell: times to the minute, lists joined, objects as `key=value`.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => minute(text).unwrap_or_else(|| text.clone()),
        Value::Array(all) => all.iter().map(text).collect::<Vec<_>>().join(", "),
        Value::Object(all) => all
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| format!("{key}={}", text_of_member(value)))
            .collect::<Vec<_>>()
            .join(" "),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Number(number) => number.to_string(),
    }
}

fn text_of_member(value: &Value) -> String {
    match value {
        Value::Object(_) | Value::Array(_) => value.to_string(),
        other => text(other),
    }
}

/// `2026-11-21T05:00:00Z` as `2026-11-21 05:00`.
fn minute(text: &str) -> Option<String> {
    let at: jiff::Timestamp = text.parse().ok()?;
    Some(at.strftime("%Y-%m-%d %H:%M").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_written_for_people() {
        let document = DocumentRow {
            item: json!({ "a": { "b": ["x", "y"] }, "at": "2026-11-21T05:06:07Z", "yes": true, "tags": { "k": "v" } }),
        };
        let columns: Columns =
            &[("B", "/a/b"), ("At", "/at"), ("Yes", "/yes"), ("Tags", "/tags"), ("No", "/no")];
        assert_eq!(document.fields(columns), ["x, y", "2026-11-21 05:06", "yes", "k=v", ""]);
    }
}
