//! Texts with references to credentials: `((/path))`, `((/path.field))`.

use zeroize::Zeroizing;

use crate::{Client, Credential, Error, Name};

/// Maximum references of one template.
const REFERENCES_MAX: usize = 1_000;
/// Maximum depth of fields in a reference.
const FIELDS_MAX: usize = 8;

/// A text with references, in the syntax of CredHub's `interpolate`. Names may contain dots: the longest existing name is used, and
/// the rest of the reference names fields.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Part {
    Text(String),
    /// The possible names, longest first.
    Reference(Vec<String>),
}

impl Template {
    /// Parses a text. A reference begins with a slash. With `prefix`, other names are references as well, and the prefix is put
    /// before them.
    ///
    /// # Errors
    /// [`Error::Invalid`] for more than 1,000 references.
    pub fn parse(text: &str, prefix: Option<&str>) -> Result<Self, Error> {
        let mut parts = Vec::new();
        let mut rest = text;
        let mut plain = String::new();
        while let Some(at) = rest.find("((") {
            let (before, from) = rest.split_at(at);
            let inner = &from[2..];
            let end = inner.find(|c: char| !is_name_char(c)).unwrap_or(inner.len());
            plain.push_str(before);
            let name = Some(&inner[..end]).filter(|_| inner[end..].starts_with("))"));
            match name.and_then(|name| absolute_name(name, prefix)) {
                Some(name) => {
                    parts.push(Part::Text(std::mem::take(&mut plain)));
                    parts.push(Part::Reference(candidates(&name)));
                    rest = &inner[end + 2..];
                }
                None => {
                    plain.push('(');
                    rest = &from[1..];
                }
            }
        }
        plain.push_str(rest);
        parts.push(Part::Text(plain));
        let this = Self { parts };
        if this.references().count() > REFERENCES_MAX {
            return Err(Error::invalid(format_args!(
                "a template may have at most {REFERENCES_MAX} references"
            )));
        }
        Ok(this)
    }

    fn references(&self) -> impl Iterator<Item = &Vec<String>> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Reference(names) => Some(names),
        })
    }

    /// Returns whether a change of this name may change the rendered text.
    #[must_use]
    pub fn concerns(&self, name: &Name) -> bool {
        let same = |candidate: &String| Name::parse(candidate).is_ok_and(|candidate| candidate == *name);
        self.references().flatten().any(same)
    }

    /// Returns the text with every reference replaced: a string unchanged, anything else as JSON.
    ///
    /// # Errors
    /// [`Error::NotFound`] with all missing names; otherwise as for [`Client::lookup`].
    #[crate::boxed]
    pub async fn render(&self, client: &Client) -> Result<Zeroizing<String>, Error> {
        let lists: Vec<Vec<String>> = self.references().cloned().collect();
        let found = client.lookup_many(&lists).await;
        let mut values = Vec::with_capacity(lists.len());
        let mut missing = Vec::new();
        for (names, found) in lists.iter().zip(found) {
            match found?.and_then(|credential| value_of(names, &credential)) {
                Some(value) => values.push(value),
                None => missing.push(names[0].clone()),
            }
        }
        if !missing.is_empty() {
            return Err(Error::NotFound(missing.join(", ")));
        }
        let mut values = values.into_iter();
        let texts = self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.len()),
            Part::Reference(_) => None,
        });
        // Allocate the final size first: a growing buffer would leave copies of secrets in memory.
        let length =
            texts.sum::<usize>() + values.as_slice().iter().map(|value| value.expose().len()).sum::<usize>();
        let mut out = Zeroizing::new(String::with_capacity(length));
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Reference(_) => out.extend(values.next().iter().map(keys::Secret::expose)),
            }
        }
        Ok(out)
    }
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_/.:,[]+".contains(c)
}

fn absolute_name(text: &str, prefix: Option<&str>) -> Option<String> {
    match prefix {
        _ if text.starts_with('/') && text.len() > 1 => Some(text.to_owned()),
        Some(prefix) if !text.is_empty() && !text.starts_with('/') => {
            Some(format!("/{}/{text}", prefix.trim_matches('/')).replace("//", "/"))
        }
        _ => None,
    }
}

/// Returns the possible names in a reference: in `/a/b.c.d`, the name may be `/a/b`, `/a/b.c` or the whole text; the rest names fields.
fn candidates(name: &str) -> Vec<String> {
    let last = name.rfind('/').map_or(0, |at| at + 1);
    let dots = name.char_indices().rev().filter(|(at, c)| *c == '.' && *at > last).map(|(at, _)| at);
    std::iter::once(name.len()).chain(dots.take(FIELDS_MAX)).map(|end| name[..end].to_owned()).collect()
}

/// Returns the value of a reference in the credential that was found for it.
fn value_of(names: &[String], credential: &Credential) -> Option<keys::Secret> {
    let found = credential.key().ok()?;
    let whole = names.first()?;
    let name = names.iter().find(|name| Name::parse(name).is_ok_and(|name| name == found))?;
    let fields: Vec<&str> = whole[name.len()..].split('.').filter(|field| !field.is_empty()).collect();
    credential.text(&fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credential::fixture::credential;
    use proptest::prelude::*;
    use serde_json::json;

    fn references(text: &str, prefix: Option<&str>) -> Vec<String> {
        Template::parse(text, prefix).unwrap().references().map(|names| names.join(" ")).collect()
    }

    #[test]
    fn only_names_in_double_parentheses_are_references() {
        for (text, prefix, wanted) in [
            ("a: ((/x))\nb: ((/y.z))", None, &["/x", "/y.z /y"][..]),
            ("((/a.b/c.d.e))", None, &["/a.b/c.d.e /a.b/c.d /a.b/c"]),
            ("((x)) (( /x)) ((/x) ) ((/x ((/)) (()) ((/x}))", None, &[]),
            ("(((/x)))", None, &["/x"]),
            ("((/x))((/y))", None, &["/x", "/y"]),
            ("((x.y)) ((/z))", Some("/p/q/"), &["/p/q/x.y /p/q/x", "/z"]),
            ("if ((i > 3)); then", Some("p"), &[]),
        ] {
            assert_eq!(references(text, prefix), wanted, "{text}");
        }
        assert!(Template::parse(&"((/x))".repeat(REFERENCES_MAX + 1), None).is_err());
    }

    #[test]
    fn dotted_reference_resolves_to_a_name_or_to_its_fields() {
        let of = |name: &str, value: serde_json::Value| {
            let credential = credential(name, value, None);
            let names = candidates("/A/b.c.d");
            value_of(&names, &credential).map(|text| text.expose().to_owned())
        };
        assert_eq!(of("/a/B.C.D", json!("whole")).unwrap(), "whole");
        assert_eq!(of("/a/b.c", json!({ "d": "field" })).unwrap(), "field");
        assert_eq!(of("/a/b", json!({ "c": { "d": 7 } })).unwrap(), "7");
        assert_eq!(of("/a/b", json!({ "c": "none" })), None);
    }

    proptest! {
        #[test]
        fn template_parts_reassemble_to_the_original_text(text in "[(a/) .!]{0,40}") {
            let template = Template::parse(&text, None).unwrap();
            let shown: String = template.parts.iter().map(|part| match part {
                Part::Text(text) => text.clone(),
                Part::Reference(names) => format!("(({}))", names[0]),
            }).collect();
            prop_assert_eq!(shown, text);
        }
    }
}
