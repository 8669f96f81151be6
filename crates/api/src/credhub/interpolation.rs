//! References to credentials in service bindings: `POST /api/v1/interpolate`.

use std::collections::HashMap;
use std::ops::Range;

use serde_json::value::RawValue;

/// Names of the member that contains a reference.
const REFERENCE: [&str; 2] = ["credhub-ref", "credhub_ref"];

type Members<'a> = HashMap<String, &'a RawValue>;

/// Service bindings (`{"SERVICE": [{"credentials": {"credhub-ref": NAME}}]}`), as text. Only the references are replaced; all other
/// bytes stay unchanged.
pub struct Bindings<'a> {
    text: &'a str,
    /// Positions of the `credentials` that are references, in order, each with the name of its credential.
    references: Vec<(Range<usize>, String)>,
}

impl<'a> Bindings<'a> {
    /// Parses a text. Returns `None` if it is not a JSON object.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        let services: Members<'a> = serde_json::from_str(text).ok()?;
        let lists =
            services.values().filter_map(|list| serde_json::from_str::<Vec<&RawValue>>(list.get()).ok());
        let found = lists.flatten().filter_map(|binding| {
            let members: Members<'a> = serde_json::from_str(binding.get()).ok()?;
            let credentials = members.get("credentials")?.get();
            // `credentials` is a slice of `text`: the difference of their addresses is its position.
            let from = credentials.as_ptr() as usize - text.as_ptr() as usize;
            Some((from..from + credentials.len(), reference(credentials)?))
        });
        let mut references: Vec<_> = found.collect();
        references.sort_by_key(|(range, _)| range.start);
        Some(Self { text, references })
    }

    /// Returns the names of the credentials, in the order of their references.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.references.iter().map(|(_, name)| name.as_str())
    }

    /// Returns the text with each reference replaced by its value, in JSON. The result is allocated once, because a growing buffer
    /// would leave copies of secrets in memory.
    #[must_use]
    pub fn replaced(&self, values: &[&str]) -> String {
        let length = self.text.len() + values.iter().map(|value| value.len()).sum::<usize>();
        let mut replaced = String::with_capacity(length);
        let mut from = 0;
        for ((range, _), value) in self.references.iter().zip(values) {
            replaced.push_str(&self.text[from..range.start]);
            replaced.push_str(value);
            from = range.end;
        }
        replaced.push_str(&self.text[from..]);
        replaced
    }
}

/// Returns the name in a reference, without optional double parentheses around it.
fn reference(credentials: &str) -> Option<String> {
    let members: Members<'_> = serde_json::from_str(credentials).ok()?;
    let name = REFERENCE.iter().find_map(|key| members.get(*key))?;
    let name: String = serde_json::from_str(name.get()).ok()?;
    let inner = name.strip_prefix("((").and_then(|name| name.strip_suffix("))"));
    Some(inner.unwrap_or(&name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_replaced_and_the_rest_of_the_text_stays() {
        let text = r#"{ "z": [{"credentials":{"credhub-ref":"((/a))"},"n":12345678901234567890},
            {"credentials": {"credhub_ref": "/b" }}, {"credentials":{"plain":1.0}}, 7],
            "a": [{"credentials": {"credhub-ref": "/a"}}], "b": {"credentials": {"credhub-ref": "/no"}} }"#;
        let bindings = Bindings::parse(text).unwrap();
        assert_eq!(bindings.names().collect::<Vec<_>>(), ["/a", "/b", "/a"]);
        let expected = text
            .replace(r#"{"credhub-ref":"((/a))"}"#, "1")
            .replace(r#"{"credhub_ref": "/b" }"#, "[2]")
            .replace(r#"{"credhub-ref": "/a"}"#, "3");
        assert_eq!(bindings.replaced(&["1", "[2]", "3"]), expected);
        assert!(Bindings::parse("[]").is_none() && Bindings::parse("{").is_none());
        assert_eq!(Bindings::parse("{}").unwrap().replaced(&[]), "{}");
    }
}
