//! What the store answers, wiped when the last who has it drops it.

use std::fmt;
use std::time::Duration;

use keys::Secret;
use serde_json::Value;
use zeroize::Zeroize;

use crate::{Error, Name};

/// A credential's current version. Its `Debug` shows no value.
pub struct Credential {
    document: SecretJson,
    octets: usize,
}

/// JSON whose texts are wiped when it is dropped. Names of fields and numbers are not.
struct SecretJson(Value);

impl Drop for SecretJson {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

/// What a value takes in memory, about.
fn octets(value: &Value) -> usize {
    let inner = match value {
        Value::String(text) => text.len(),
        Value::Array(all) => all.iter().map(octets).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + octets(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    inner + size_of::<Value>()
}

/// Overwrites every text.
pub(crate) fn wipe(value: &mut Value) {
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(all) => all.iter_mut().for_each(wipe),
        Value::Object(fields) => fields.values_mut().for_each(wipe),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

impl Credential {
    /// A credential as the store writes it.
    pub(crate) fn of(document: Value) -> Result<Self, Error> {
        let octets = octets(&document);
        let this = Self { document: SecretJson(document), octets };
        if this.text_of("name").is_empty() || this.document.0.get("value").is_none() {
            return Err(Error::Unavailable("its answer is no credential".to_owned()));
        }
        Ok(this)
    }

    fn text_of(&self, field: &str) -> &str {
        self.document.0.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    /// As it was first written.
    #[must_use]
    pub fn name(&self) -> &str {
        self.text_of("name")
    }

    /// `password`, `certificate` and so on.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.text_of("type")
    }

    /// The version's identity.
    #[must_use]
    pub fn id(&self) -> &str {
        self.text_of("id")
    }

    /// The value: a text, or an object. A copy of it is yours to wipe.
    #[must_use]
    pub fn value(&self) -> &Value {
        self.document.0.get("value").unwrap_or(&Value::Null)
    }

    /// The value, or what stands in it at `fields` (`["private_key"]`), as text: JSON unless it is a text itself. `None`
    /// where there is nothing.
    #[must_use]
    pub fn text(&self, fields: &[&str]) -> Option<Secret> {
        let mut found = self.value();
        for field in fields {
            found = found.get(field)?;
        }
        match found {
            Value::Null => None,
            Value::String(text) => Some(Secret::new(text.as_str())),
            other => Some(Secret::new(other.to_string())),
        }
    }

    /// All that the store says of it, as CredHub writes it.
    #[must_use]
    pub fn document(&self) -> &Value {
        &self.document.0
    }

    /// How long from now it is read at all, by this machine's clock: `None` for good.
    pub(crate) fn ends_in(&self) -> Option<Duration> {
        let end: jiff::Timestamp = self.text_of("expires_at").parse().ok()?;
        Some(end.duration_since(jiff::Timestamp::now()).try_into().unwrap_or(Duration::ZERO))
    }

    pub(crate) fn key(&self) -> Result<Name, Error> {
        Name::parse(self.name())
    }

    pub(crate) fn octets(&self) -> usize {
        self.octets
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("name", &self.name())
            .field("kind", &self.kind())
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_is_read_by_field_and_never_shown() {
        let document = json!({
            "name": "/A/b", "type": "json", "id": "1", "metadata": null,
            "value": { "user": "canary-1", "deep": { "port": 5432, "none": null } },
        });
        let credential = Credential::of(document).unwrap();
        let text = |fields: &[&str]| credential.text(fields).map(|text| text.expose().to_owned());
        assert_eq!(text(&["user"]).unwrap(), "canary-1");
        assert_eq!(text(&["deep", "port"]).unwrap(), "5432");
        assert_eq!(text(&["deep"]).unwrap(), r#"{"none":null,"port":5432}"#);
        assert_eq!((text(&["deep", "none"]), text(&["user", "x"])), (None, None));
        assert_eq!(credential.key().unwrap().as_str(), "/a/b");
        assert!(!format!("{credential:?}").contains("canary"), "{credential:?}");
        assert!(Credential::of(json!({ "error": "sealed" })).is_err());
    }

    #[test]
    fn wiping_reaches_every_text() {
        let mut value = json!({ "a": ["secret", { "b": "secret" }], "c": "secret" });
        wipe(&mut value);
        assert!(!value.to_string().contains("secret"), "{value}");
    }
}
