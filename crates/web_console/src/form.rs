//! Forms of pages, and their fields.

use askama::Template;
use serde_json::Value;

use crate::json;

/// A form with one field per line, or the filters of a list in a row.
#[derive(Template)]
#[template(path = "form.html")]
pub(crate) struct Form {
    action: String,
    csrf: Option<String>,
    fields: Fields,
    button: &'static str,
}

/// Form fields, one per line.
#[derive(Default, Template)]
#[template(path = "fields.html")]
pub(crate) struct Fields(Vec<Field>);

/// A form field with its label and initial value.
pub(crate) struct Field {
    name: &'static str,
    label: &'static str,
    value: String,
    hint: &'static str,
    required: bool,
    kind: Kind,
    suggestions: Vec<String>,
}

enum Kind {
    Line(&'static str),
    NewPassword,
    Lines(u8),
    Choice(Vec<(String, String)>),
    Checkbox,
    /// Values, each with a flag: whether its checkbox is checked.
    Checkboxes(Vec<(&'static str, bool)>),
    Hidden,
}

impl Field {
    fn of(name: &'static str, label: &'static str, kind: Kind) -> Self {
        Self { name, label, value: String::new(), hint: "", required: false, kind, suggestions: Vec::new() }
    }

    /// Creates a text field with one line.
    pub(crate) fn line(name: &'static str, label: &'static str) -> Self {
        Self::of(name, label, Kind::Line("text"))
    }

    /// Creates a field for a new password, which the browser may generate.
    pub(crate) fn new_password(name: &'static str, label: &'static str) -> Self {
        Self::of(name, label, Kind::NewPassword)
    }

    pub(crate) fn search(name: &'static str, label: &'static str) -> Self {
        Self::of(name, label, Kind::Line("search"))
    }

    /// Creates a field for a whole number, 0 or more.
    pub(crate) fn number(name: &'static str, label: &'static str) -> Self {
        Self::of(name, label, Kind::Line("number"))
    }

    /// Creates a date field; the date is in UTC.
    pub(crate) fn date(name: &'static str, label: &'static str) -> Self {
        Self::of(name, label, Kind::Line("date"))
    }

    /// Creates a text field with several lines.
    pub(crate) fn lines(name: &'static str, label: &'static str) -> Self {
        Self::of(name, label, Kind::Lines(3))
    }

    /// Creates a text field for a long document.
    pub(crate) fn document(name: &'static str, label: &'static str) -> Self {
        Self::of(name, label, Kind::Lines(22))
    }

    /// Creates a selection of one of several values, each with its label.
    pub(crate) fn choice<V: Into<String>, L: Into<String>>(
        name: &'static str,
        label: &'static str,
        options: impl IntoIterator<Item = (V, L)>,
    ) -> Self {
        let options = options.into_iter().map(|(value, label)| (value.into(), label.into())).collect();
        Self::of(name, label, Kind::Choice(options))
    }

    /// Creates a selection of one of several values, with none selected initially.
    pub(crate) fn required_choice(
        name: &'static str,
        label: &'static str,
        options: impl IntoIterator<Item = (&'static str, &'static str)>,
    ) -> Self {
        let none = ("", "Choose");
        Self::choice(name, label, std::iter::once(none).chain(options)).required()
    }

    pub(crate) fn checkbox(name: &'static str, label: &'static str) -> Self {
        Self::of(name, label, Kind::Checkbox)
    }

    /// Creates a checkbox for each of several values.
    pub(crate) fn checkboxes(
        name: &'static str,
        label: &'static str,
        values: &'static [&'static str],
        checked: &[String],
    ) -> Self {
        let is_checked = |value: &&str| checked.iter().any(|known| known == value);
        let boxes = values.iter().map(|value| (*value, is_checked(value))).collect();
        Self::of(name, label, Kind::Checkboxes(boxes))
    }

    pub(crate) fn hidden(name: &'static str, value: impl Into<String>) -> Self {
        Self::of(name, "", Kind::Hidden).value(value)
    }

    /// Sets the initial value.
    pub(crate) fn value(mut self, value: impl Into<String>) -> Self {
        self.value = value.into();
        self
    }

    /// Sets whether a checkbox is checked initially.
    pub(crate) fn checked(self, checked: bool) -> Self {
        self.value(if checked { "true" } else { "" })
    }

    /// Sets the values that the browser suggests.
    pub(crate) fn suggestions(mut self, values: Vec<String>) -> Self {
        self.suggestions = values;
        self
    }

    /// Sets the explanation below the field.
    pub(crate) fn hint(mut self, hint: &'static str) -> Self {
        self.hint = hint;
        self
    }

    /// Makes the field required, so that the browser does not send the form without it.
    pub(crate) fn required(mut self) -> Self {
        self.required = true;
        self
    }
}

impl Form {
    /// Creates a form that changes something; `csrf` is the token of the session.
    pub(crate) fn post(
        action: impl Into<String>,
        csrf: &str,
        button: &'static str,
        fields: Vec<Field>,
    ) -> Self {
        Self { action: action.into(), csrf: Some(csrf.to_owned()), fields: Fields(fields), button }
    }

    /// Creates the filters of a list.
    pub(crate) fn filters(action: impl Into<String>, fields: Vec<Field>) -> Self {
        Self { action: action.into(), csrf: None, fields: Fields(fields), button: "Filter" }
    }
}

impl Fields {
    /// Adds fields after the existing ones.
    pub(crate) fn extend(&mut self, fields: impl IntoIterator<Item = Field>) {
        self.0.extend(fields);
    }
}

/// Returns the names of a list's items as options, after an option for no selection.
pub(crate) fn name_options(listing: Option<&Value>, none: &str) -> Vec<(String, String)> {
    let names = names(listing).into_iter().map(|name| (name.clone(), name));
    std::iter::once((String::new(), none.to_owned())).chain(names).collect()
}

/// Returns the names of a list's items.
pub(crate) fn names(listing: Option<&Value>) -> Vec<String> {
    let items = listing.map(json::items).unwrap_or_default();
    items.iter().map(|item| json::text(item, "/name").to_owned()).collect()
}
