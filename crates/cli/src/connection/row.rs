//! Documents of the API as rows of a table.

use serde_json::Value;

/// Column headings, each with the JSON pointer (RFC 6901) of its value. The macro [`columns`](crate::columns) creates them.
pub type Columns = &'static [(&'static str, &'static str)];

/// The columns of a response type: `columns!(CertificateView: ("Name", name), ("Ends", current?.not_after))`.
///
/// The macro compiles only if the type has the fields. A column reads the JSON document, so a listing of a server with more or
/// fewer fields also works. `kind as "type"` is a field with another name in JSON, and `rule, "/when"` is a member of a field with
/// arbitrary JSON.
#[macro_export]
macro_rules! columns {
    ($row:ty: $(($head:literal, $($field:tt)+)),+ $(,)?) => {{
        const _: fn(&$row) = |_row| { $($crate::columns!(@check _row, $($field)+);)+ };
        const COLUMNS: $crate::connection::Columns = &[$(($head, $crate::columns!(@pointer $($field)+))),+];
        COLUMNS
    }};
    (@pointer $field:ident) => { concat!("/", stringify!($field)) };
    (@pointer $field:ident as $name:literal) => { concat!("/", $name) };
    (@pointer $field:ident, $member:literal) => { concat!("/", stringify!($field), $member) };
    (@pointer $field:ident . $($rest:tt)+) => {
        concat!("/", stringify!($field), $crate::columns!(@pointer $($rest)+))
    };
    (@pointer $field:ident ? . $($rest:tt)+) => {
        concat!("/", stringify!($field), $crate::columns!(@pointer $($rest)+))
    };
    (@check $row:ident, $field:ident . $($rest:tt)+) => {{
        let inner = &$row.$field;
        $crate::columns!(@check inner, $($rest)+);
    }};
    (@check $row:ident, $field:ident ? . $($rest:tt)+) => {{
        if let Some(inner) = &$row.$field {
            $crate::columns!(@check inner, $($rest)+);
        }
    }};
    (@check $row:ident, $field:ident $($rest:tt)*) => {{
        let _ = &$row.$field;
    }};
}

/// A document of a listing or of another response.
pub struct DocumentRow {
    item: Value,
}

impl DocumentRow {
    /// Creates the row of a JSON document, such as an object in a listing.
    pub fn of(item: Value) -> Self {
        Self { item }
    }

    /// Returns the cells of this document in a table, one for each of `columns`.
    pub fn cells(&self, columns: Columns) -> Vec<String> {
        self.texts(columns, Style::Table)
    }

    /// Returns the fields of a CSV record: times and truth values as in JSON.
    pub fn fields(&self, columns: Columns) -> Vec<String> {
        self.texts(columns, Style::Program)
    }

    fn texts(&self, columns: Columns, style: Style) -> Vec<String> {
        let value = |pointer: &str| self.item.pointer(pointer).unwrap_or(&Value::Null);
        columns.iter().map(|(_, pointer)| text(value(pointer), style)).collect()
    }

    /// Returns the cell of a member of the document.
    pub fn cell(&self, member: &str) -> String {
        text(self.item.get(member).unwrap_or(&Value::Null), Style::Table)
    }

    /// Returns the names of the members that are not in `columns` and have a value without structure: a scalar, or a list of
    /// scalars. Empty texts and empty lists are left out.
    pub fn other_members(&self, columns: Columns) -> Vec<&str> {
        let is_shown = |name: &str| {
            columns.iter().any(|(_, pointer)| pointer.strip_prefix('/').is_some_and(|member| member == name))
        };
        let is_plain = |value: &Value| match value {
            Value::Null | Value::Object(_) => false,
            Value::Array(all) => !all.is_empty() && !all.iter().any(|one| one.is_object() || one.is_array()),
            Value::String(text) => !text.is_empty(),
            Value::Bool(_) | Value::Number(_) => true,
        };
        let members = self.item.as_object().into_iter().flatten();
        let plain = members.filter(|(name, value)| is_plain(value) && !is_shown(name));
        plain.map(|(name, _)| name.as_str()).collect()
    }

    /// Returns the document's name, else its id, else the value in the first of `columns`.
    pub fn name(&self, columns: Columns) -> String {
        let text = |value: &Value| text(value, Style::Table);
        let member = |name| self.item.get(name).filter(|value| !value.is_null()).map(text);
        let first = || columns.first().and_then(|(_, pointer)| self.item.pointer(pointer)).map(text);
        member("name").or_else(|| member("id")).or_else(first).unwrap_or_default()
    }

    /// Returns the JSON document of this row.
    pub fn json(&self) -> &Value {
        &self.item
    }
}

/// The reader for which a value is formatted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Style {
    /// People: times to the minute, yes and no.
    Table,
    /// Programs: scalars as in JSON.
    Program,
}

/// Returns a value as text: lists joined, objects as `key=value`.
pub(super) fn text(value: &Value, style: Style) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(string) if style == Style::Table => minute(string).unwrap_or_else(|| string.clone()),
        Value::String(string) => string.clone(),
        Value::Array(all) => all.iter().map(|one| text(one, style)).collect::<Vec<_>>().join(", "),
        Value::Object(all) => all
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| format!("{key}={}", text_of_member(value, style)))
            .collect::<Vec<_>>()
            .join(" "),
        Value::Bool(yes) if style == Style::Table => if *yes { "yes" } else { "no" }.to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn text_of_member(value: &Value, style: Style) -> String {
    match value {
        Value::Object(_) | Value::Array(_) => value.to_string(),
        other => text(other, style),
    }
}

/// Converts `2026-11-21T05:00:00Z` to `2026-11-21 05:00`.
fn minute(text: &str) -> Option<String> {
    let at: jiff::Timestamp = text.parse().ok()?;
    Some(at.strftime("%Y-%m-%d %H:%M").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_formatted_for_people_in_tables_and_as_in_json_in_csv() {
        let document = DocumentRow {
            item: json!({ "a": { "b": ["x", "y"] }, "at": "2026-11-21T05:06:07Z", "yes": true, "tags": { "k": "v" } }),
        };
        let columns: Columns =
            &[("B", "/a/b"), ("At", "/at"), ("Yes", "/yes"), ("Tags", "/tags"), ("No", "/no")];
        assert_eq!(document.cells(columns), ["x, y", "2026-11-21 05:06", "yes", "k=v", ""]);
        assert_eq!(document.fields(columns), ["x, y", "2026-11-21T05:06:07Z", "true", "k=v", ""]);
    }

    #[test]
    fn members_without_structure_beside_the_columns_are_named() {
        let document = DocumentRow {
            item: json!({
                "name": "a", "at": "2026-11-21T05:06:07Z", "tags": ["x", "y"], "no": false, "empty": "", "none": null,
                "inner": { "b": 1 }, "list": [{ "b": 1 }], "nothing": [],
            }),
        };
        assert_eq!(document.other_members(&[("Name", "/name"), ("B", "/inner/b")]), ["at", "no", "tags"]);
        assert_eq!((document.cell("at"), document.cell("tags")), ("2026-11-21 05:06".into(), "x, y".into()));
    }

    #[test]
    fn columns_are_derived_from_typed_fields() {
        let columns: Columns = crate::columns!(
            api::issuers::IssuerView:
            ("Type", kind as "type"),
            ("State", health.breaker),
        );
        assert_eq!(columns, [("Type", "/type"), ("State", "/health/breaker")]);
        let columns: Columns = crate::columns!(
            api::watches::WatchView: ("Ended", last_run?.ended_at), ("New", last_run?.counts, "/new")
        );
        assert_eq!(columns, [("Ended", "/last_run/ended_at"), ("New", "/last_run/counts/new")]);
        let later = DocumentRow { item: json!({ "last_run": { "ended_at": "x", "of a later version": 1 } }) };
        assert_eq!(later.fields(columns), ["x", ""]);
    }
}
