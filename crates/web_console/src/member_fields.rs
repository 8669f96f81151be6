//! Form fields for members of JSON documents.

use http::StatusCode;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::form::Field;
use crate::form_data::FormData;

const DAY: i64 = 86_400;
/// Maximum days that a field accepts: a hundred years.
const DAYS_MAX: f64 = 36_500.0;

/// A form field, and the member of the document that it edits.
pub(crate) struct MemberField {
    /// Path of the member, and name of the form field. Steps are separated by `/`. A step is the name of a member or, in a list of
    /// objects, `NAME=VALUE` for the object that has this member: `policy/rules/rule=max_lifetime/seconds`.
    path: &'static str,
    label: &'static str,
    hint: &'static str,
    kind: Kind,
    required: bool,
}

/// The values of a member, and how the form shows them.
enum Kind {
    Text,
    /// Text with several lines.
    Block,
    /// Text that the API never returns. An empty field leaves it unchanged.
    Secret,
    Number,
    /// A number that replaces the other members of its object.
    OnlyNumber,
    /// Seconds, shown as days.
    Days,
    Flag,
    /// A checkbox that adds an object to a list, or removes it. The object has no members except the one that identifies it.
    Object,
    /// Strings, one per line.
    Lines,
    /// Strings or objects, one per line. Objects are JSON.
    Rules,
    Choice(&'static [(&'static str, &'static str)]),
    /// Any of some strings, each with a checkbox. Other items of the list stay.
    Set(&'static [&'static str]),
}

impl MemberField {
    const fn new(path: &'static str, label: &'static str, kind: Kind) -> Self {
        Self { path, label, hint: "", kind, required: false }
    }

    pub(crate) const fn text(path: &'static str, label: &'static str) -> Self {
        Self::new(path, label, Kind::Text)
    }

    /// Creates a field for text with several lines.
    pub(crate) const fn block(path: &'static str, label: &'static str) -> Self {
        Self::new(path, label, Kind::Block)
    }

    /// Creates a field for text that the API never returns. When an object is edited, an empty field keeps the stored text.
    pub(crate) const fn secret(path: &'static str, label: &'static str) -> Self {
        Self::new(path, label, Kind::Secret)
    }

    /// Creates a field for a whole number, 0 or more.
    pub(crate) const fn number(path: &'static str, label: &'static str) -> Self {
        Self::new(path, label, Kind::Number)
    }

    /// Creates a field for a whole number, 0 or more, that replaces the other members of its object.
    pub(crate) const fn only_number(path: &'static str, label: &'static str) -> Self {
        Self::new(path, label, Kind::OnlyNumber)
    }

    /// Creates a field for days, such as `0.5`. The member has seconds.
    pub(crate) const fn days(path: &'static str, label: &'static str) -> Self {
        Self::new(path, label, Kind::Days)
    }

    pub(crate) const fn flag(path: &'static str, label: &'static str) -> Self {
        Self::new(path, label, Kind::Flag)
    }

    /// Creates a checkbox that adds or removes the object of a list at `path`.
    pub(crate) const fn object(path: &'static str, label: &'static str) -> Self {
        Self::new(path, label, Kind::Object)
    }

    /// Creates a field for a list of strings, one per line.
    pub(crate) const fn lines(path: &'static str, label: &'static str) -> Self {
        Self::new(path, label, Kind::Lines)
    }

    /// Creates a field for a list of strings and JSON objects, one per line.
    pub(crate) const fn rules(path: &'static str, label: &'static str) -> Self {
        Self::new(path, label, Kind::Rules)
    }

    /// Creates a selection of one of several values, each with its label.
    pub(crate) const fn choice(
        path: &'static str,
        label: &'static str,
        options: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self::new(path, label, Kind::Choice(options))
    }

    /// Creates one checkbox for each of these strings. The member is the list of the checked strings, followed by other strings
    /// that the list already contains.
    pub(crate) const fn set(
        path: &'static str,
        label: &'static str,
        values: &'static [&'static str],
    ) -> Self {
        Self::new(path, label, Kind::Set(values))
    }

    /// Sets the explanation below the field.
    pub(crate) const fn hint(mut self, hint: &'static str) -> Self {
        self.hint = hint;
        self
    }

    pub(crate) const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// Returns whether the field edits one of these top-level members of the document, or a part of one.
    pub(crate) fn is_in(&self, members: &[&str]) -> bool {
        self.path.split('/').next().is_some_and(|first| members.contains(&first))
    }

    #[cfg(test)]
    pub(crate) fn path(&self) -> &'static str {
        self.path
    }

    /// Returns the values of the form field for a document: one for each item of a set, otherwise at most one.
    pub(crate) fn values(&self, document: &Value) -> Vec<String> {
        self.kind.shown(find(document, self.path))
    }

    /// Returns the form field with the value of the document.
    pub(crate) fn of_document(&self, document: &Value) -> Field {
        self.field(self.values(document))
    }

    /// Returns the form field with the value of a submitted form. Secrets are empty.
    pub(crate) fn of_form(&self, form: &FormData) -> Field {
        self.field(match self.kind {
            Kind::Secret => Vec::new(),
            _ => form.all(self.path).map(str::to_owned).collect(),
        })
    }

    fn field(&self, values: Vec<String>) -> Field {
        let (path, label) = (self.path, self.label);
        let first = || values.first().cloned().unwrap_or_default();
        let field = match self.kind {
            Kind::Text | Kind::Days => Field::line(path, label).value(first()),
            Kind::Secret => Field::new_password(path, label),
            Kind::Number | Kind::OnlyNumber => Field::number(path, label).value(first()),
            Kind::Flag | Kind::Object => Field::checkbox(path, label).checked(!values.is_empty()),
            Kind::Block | Kind::Lines | Kind::Rules => Field::lines(path, label).value(first()),
            Kind::Choice(options) => Field::choice(path, label, options.iter().copied()).value(first()),
            Kind::Set(options) => Field::checkboxes(path, label, options, &values),
        };
        let field = field.hint(self.hint);
        if self.required { field.required() } else { field }
    }

    /// Writes the value of the form into the document. An empty field removes the member. An empty secret field leaves the member
    /// unchanged, and an unchecked flag sets an existing member to `false`.
    ///
    /// # Errors
    /// The value is invalid. The document may already have values of other fields.
    pub(crate) fn write(&self, form: &FormData, document: &mut Value) -> Result<(), Failure> {
        let steps: Vec<&str> = self.path.split('/').collect();
        match (self.value(form)?, &self.kind) {
            (Some(_), Kind::Object) => _ = member(document, &steps),
            (Some(value), Kind::OnlyNumber) => {
                if let Some((last, parents)) = steps.split_last() {
                    *member(document, parents) = json!({ *last: value });
                }
            }
            (checked, Kind::Set(options)) => {
                let is_other = |item: &&Value| !item.as_str().is_some_and(|text| options.contains(&text));
                let others = find(document, self.path).and_then(Value::as_array).into_iter().flatten();
                let others: Vec<Value> = others.filter(is_other).cloned().collect();
                match list(checked.iter().flat_map(values).cloned().chain(others)) {
                    Some(value) => *member(document, &steps) = value,
                    None => remove(document, self.path),
                }
            }
            (None, Kind::Secret) => {}
            (None, Kind::Flag) => {
                if find(document, self.path).is_some() {
                    *member(document, &steps) = json!(false);
                }
            }
            (Some(value), _) => *member(document, &steps) = value,
            (None, _) => remove(document, self.path),
        }
        Ok(())
    }

    /// Returns the value of the form; `None` if the field is empty or not checked.
    fn value(&self, form: &FormData) -> Result<Option<Value>, Failure> {
        let text = form.field(self.path);
        let lines = || form.text(self.path).lines().map(str::trim).filter(|line| !line.is_empty());
        Ok(match self.kind {
            Kind::Text | Kind::Choice(_) => text.map(Value::from),
            // Browsers send a line end as CR LF.
            Kind::Block => text.map(|text| text.replace("\r\n", "\n").into()),
            Kind::Secret => form.exact(self.path).map(Value::from),
            Kind::Flag | Kind::Object => text.map(|_| Value::Bool(true)),
            Kind::Lines => list(lines().map(Value::from)),
            Kind::Set(_) => list(form.all(self.path).map(Value::from)),
            Kind::Rules => list(lines().map(|line| self.rule(line)).collect::<Result<Vec<_>, _>>()?),
            Kind::Number | Kind::OnlyNumber => {
                let parsed = text.map(str::parse::<u32>).transpose();
                parsed.map_err(|_| self.invalid("write a whole number, 0 or more"))?.map(Value::from)
            }
            Kind::Days => match text.map(|days| (days, seconds(days))) {
                None => None,
                Some((_, Some(seconds))) => Some(seconds.into()),
                Some((days, None)) => {
                    return Err(self.invalid(format_args!(
                        "{days:?} is not a number of days above 0 and up to {DAYS_MAX}"
                    )));
                }
            },
        })
    }

    fn rule(&self, line: &str) -> Result<Value, Failure> {
        if !line.starts_with('{') {
            return Ok(line.into());
        }
        serde_json::from_str(line)
            .map_err(|error| self.invalid(format_args!("{line} is not a rule: {error}")))
    }

    fn invalid(&self, problem: impl std::fmt::Display) -> Failure {
        let detail = format!("{}: {problem}", self.label);
        Failure::refused(StatusCode::UNPROCESSABLE_ENTITY, detail, "correct the field; nothing was changed")
    }
}

impl Kind {
    /// Returns the value of a member as form values: one for each item of a set, otherwise at most one. Returns none for a secret,
    /// or if the member is absent or false.
    fn shown(&self, member: Option<&Value>) -> Vec<String> {
        let Some(member) = member else { return Vec::new() };
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        match (self, member) {
            (Self::Secret, _) | (_, Value::Null | Value::Bool(false)) => Vec::new(),
            (Self::Days, member) => vec![days(member.as_i64().unwrap_or_default())],
            (Self::Lines | Self::Rules, Value::Array(items)) => {
                vec![items.iter().map(text).collect::<Vec<_>>().join("\n")]
            }
            (_, Value::Array(items)) => items.iter().map(text).collect(),
            (_, member) => vec![text(member)],
        }
    }
}

fn values(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// Returns a list; `None` if it is empty.
fn list(items: impl IntoIterator<Item = Value>) -> Option<Value> {
    let items: Vec<Value> = items.into_iter().collect();
    Some(items).filter(|items| !items.is_empty()).map(Value::Array)
}

/// Splits a step that selects an object of a list: `rule=max_lifetime`.
fn selector(step: &str) -> Option<(&str, &str)> {
    step.split_once('=')
}

fn is_selected(item: &Value, (name, value): (&str, &str)) -> bool {
    item.get(name).and_then(Value::as_str) == Some(value)
}

/// Returns the member at a path. `None` if it is absent.
fn find<'a>(document: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('/').try_fold(document, |member, step| match selector(step) {
        Some(wanted) => member.as_array()?.iter().find(|item| is_selected(item, wanted)),
        None => member.get(step),
    })
}

/// Returns the member at a path, and creates it and the objects and lists around it.
fn member<'a>(document: &'a mut Value, steps: &[&str]) -> &'a mut Value {
    let mut member = document;
    for step in steps {
        member = match selector(step) {
            Some(wanted) => {
                let mut items = match member.take() {
                    Value::Array(items) => items,
                    _ => Vec::new(),
                };
                let known = items.iter().position(|item| is_selected(item, wanted));
                let at = known.unwrap_or(items.len());
                if known.is_none() {
                    items.push(json!({ wanted.0: wanted.1 }));
                }
                *member = Value::Array(items);
                &mut member[at]
            }
            None => {
                if !member.is_object() {
                    *member = json!({});
                }
                &mut member[*step]
            }
        };
    }
    member
}

/// Removes the member at a path, with each object that then has no member, and with the object of a list that the path selects.
pub(crate) fn remove(document: &mut Value, path: &str) {
    remove_steps(document, &path.split('/').collect::<Vec<_>>());
}

fn remove_steps(member: &mut Value, steps: &[&str]) {
    let Some((step, rest)) = steps.split_first() else { return };
    match (selector(step), member) {
        (Some(wanted), Value::Array(items)) => items.retain(|item| !is_selected(item, wanted)),
        (None, Value::Object(members)) => {
            if let Some(member) = members.get_mut(*step) {
                remove_steps(member, rest);
                if rest.is_empty() || member.as_object().is_some_and(serde_json::Map::is_empty) {
                    members.remove(*step);
                }
            }
        }
        _ => {}
    }
}

/// Formats seconds as days with a fraction; empty for 0.
fn days(seconds: i64) -> String {
    match seconds {
        0 => String::new(),
        seconds if seconds % DAY == 0 => (seconds / DAY).to_string(),
        seconds => (seconds as f64 / DAY as f64).to_string(),
    }
}

/// Converts days to seconds; `None` if they are not above 0 and at most [`DAYS_MAX`].
fn seconds(days: &str) -> Option<i64> {
    let days = days.parse::<f64>().ok().filter(|days| *days > 0.0 && *days <= DAYS_MAX)?;
    Some((days * DAY as f64).round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(field: &MemberField, value: &str, document: &Value) -> Value {
        let mut document = document.clone();
        field.write(&FormData::of(&[(field.path, value)]), &mut document).unwrap();
        document
    }

    #[test]
    fn written_members_roundtrip_and_empty_fields_remove_them() {
        let base = json!({ "name": "a", "policy": { "enforcement": "advisory" } });
        for (field, value, member) in [
            (MemberField::text("policy/description", ""), "text", json!("text")),
            (MemberField::number("policy/most", ""), "12", json!(12)),
            (MemberField::days("policy/validity/seconds", ""), "0.5", json!(43_200)),
            (MemberField::lines("policy/applies_to/teams", ""), "web\npay", json!(["web", "pay"])),
            (
                MemberField::rules("policy/names", ""),
                ".a\n{\"suffix\":\"b\"}",
                json!([".a", { "suffix": "b" }]),
            ),
            (MemberField::days("policy/rules/rule=max/seconds", ""), "90", json!(7_776_000)),
        ] {
            let changed = written(&field, value, &base);
            assert_eq!(find(&changed, field.path), Some(&member), "{changed}");
            assert_eq!(field.kind.shown(find(&changed, field.path)).join("\n"), value, "{}", field.path);
            let emptied = written(&field, "", &changed);
            let without_list = if field.path.contains('=') { json!([]) } else { Value::Null };
            assert_eq!(emptied.pointer("/policy/rules").cloned().unwrap_or_default(), without_list);
            assert_eq!(find(&emptied, field.path), None, "{emptied}");
            assert_eq!(emptied["policy"]["enforcement"], "advisory");
        }
    }

    #[test]
    fn members_without_a_field_stay() {
        let base =
            json!({ "rules": [{ "rule": "owner" }, { "rule": "max", "seconds": 1, "severity": "error" }] });
        let field = MemberField::days("rules/rule=max/seconds", "");
        let rules = json!([{ "rule": "owner" }, { "rule": "max", "seconds": 86_400, "severity": "error" }]);
        assert_eq!(written(&field, "1", &base)["rules"], rules);
        let owner = MemberField::object("rules/rule=owner", "");
        assert_eq!(written(&owner, "true", &base), base);
        assert_eq!(written(&owner, "", &base)["rules"].as_array().unwrap().len(), 1);
        assert_eq!(written(&owner, "true", &json!({})), json!({ "rules": [{ "rule": "owner" }] }));
    }

    #[test]
    fn checkboxes_keep_the_values_that_they_do_not_offer() {
        let field = MemberField::set("usages", "", &["serverAuth", "clientAuth"]);
        let base = json!({ "usages": ["serverAuth", "1.3.6.1.5.5.7.3.9"] });
        assert_eq!(
            written(&field, "clientAuth", &base)["usages"],
            json!(["clientAuth", "1.3.6.1.5.5.7.3.9"])
        );
        assert_eq!(written(&field, "", &base)["usages"], json!(["1.3.6.1.5.5.7.3.9"]));
        assert_eq!(written(&field, "", &json!({ "usages": ["serverAuth"] })), json!({}));
    }

    #[test]
    fn a_number_can_replace_the_other_members_of_its_object() {
        let field = MemberField::only_number("renew_before/days", "");
        let base = json!({ "renew_before": { "fraction": 0.3 } });
        assert_eq!(written(&field, "14", &base), json!({ "renew_before": { "days": 14 } }));
        assert_eq!(written(&field, "", &base), base);
    }

    #[test]
    fn empty_secrets_and_unchecked_absent_flags_change_nothing() {
        let base = json!({ "config": { "auth": { "method": "token" } } });
        assert_eq!(written(&MemberField::secret("config/auth/token", ""), "", &base), base);
        let flag = MemberField::flag("config/agreed", "");
        assert_eq!(written(&flag, "", &base), base);
        let agreed = written(&flag, "true", &base);
        assert_eq!(agreed["config"]["agreed"], true);
        assert_eq!(written(&flag, "", &agreed)["config"]["agreed"], false);
    }

    #[test]
    fn invalid_values_name_the_field() {
        for (field, value) in [
            (MemberField::days("a", "Valid for days"), "0"),
            (MemberField::days("a", "Valid for days"), "-1"),
            (MemberField::days("a", "Valid for days"), "1e99"),
            (MemberField::days("a", "Valid for days"), "NaN"),
            (MemberField::number("a", "Valid for days"), "1.5"),
            (MemberField::rules("a", "Valid for days"), "{x"),
        ] {
            let error = field.write(&FormData::of(&[("a", value)]), &mut json!({})).unwrap_err();
            let problem = error.form_problem().unwrap();
            assert!(problem.contains("Valid for days: "), "{problem}");
        }
    }
}
