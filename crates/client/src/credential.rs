//! Credentials of the store, wiped when the last reference is dropped.

use std::fmt;
use std::time::Duration;

use api::credhub::CredentialView;
use keys::{Secret, SecretJson};
use serde_json::Value;
use uuid::Uuid;
use zeroize::Zeroize;

use crate::{Error, Name};

/// A credential's current version. Its `Debug` output contains no value.
pub struct Credential {
    view: CredentialView<SecretJson>,
    bytes: usize,
}

impl Drop for Credential {
    /// Erases the metadata too, because it may contain secrets.
    fn drop(&mut self) {
        if let Some(metadata) = &mut self.view.version.metadata {
            wipe(metadata);
        }
    }
}

/// Returns the approximate memory of a value in bytes.
fn bytes(value: &Value) -> usize {
    let inner = match value {
        Value::String(text) => text.len(),
        Value::Array(all) => all.iter().map(bytes).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + bytes(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    inner + size_of::<Value>()
}

/// Overwrites every text.
fn wipe(value: &mut Value) {
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(all) => all.iter_mut().for_each(wipe),
        Value::Object(fields) => fields.values_mut().for_each(wipe),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

impl Credential {
    /// Creates a credential from a response of the store.
    pub(crate) fn of(view: CredentialView<SecretJson>) -> Result<Self, Error> {
        if view.version.name.is_empty() {
            return Err(Error::Unavailable("its response is not a credential".to_owned()));
        }
        let metadata = view.version.metadata.as_ref().map_or(0, bytes);
        let bytes = size_of::<Self>() + view.version.name.len() + metadata + view.value.expose().len();
        Ok(Self { view, bytes })
    }

    /// Returns the name as it was first written.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.view.version.name
    }

    /// Returns the type: `password`, `certificate` and so on.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.view.version.kind
    }

    /// Returns the id of the version.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.view.version.id
    }

    /// Returns the value: a text, or an object.
    #[must_use]
    pub fn value(&self) -> &SecretJson {
        &self.view.value
    }

    /// Returns the value, or its part at `fields` (`["private_key"]`), as text: a string without quotes, anything else as JSON, byte for
    /// byte. `None` if the part does not exist.
    #[must_use]
    pub fn text(&self, fields: &[&str]) -> Option<Secret> {
        self.value().text(fields)
    }

    /// Returns the credential as the API of the store represents it.
    pub(crate) fn view(&self) -> &CredentialView<SecretJson> {
        &self.view
    }

    /// Returns the time until expiry, by this machine's clock; `None` without expiry.
    pub(crate) fn ends_in(&self) -> Option<Duration> {
        let end: jiff::Timestamp = self.view.version.expires_at.as_ref()?.parse().ok()?;
        Some(end.duration_since(jiff::Timestamp::now()).try_into().unwrap_or(Duration::ZERO))
    }

    pub(crate) fn key(&self) -> Result<Name, Error> {
        Name::parse(self.name())
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
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
pub(crate) mod fixture {
    use super::*;

    /// Creates a credential of type `json`.
    pub(crate) fn credential(name: &str, value: Value, expires_at: Option<String>) -> Credential {
        let document = serde_json::json!({
            "name": name, "type": "json", "id": Uuid::nil(), "metadata": null,
            "version_created_at": "2026-11-21T05:00:00Z", "expires_at": expires_at, "value": value,
        });
        Credential::of(serde_json::from_str(&document.to_string()).unwrap()).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::fixture::credential;
    use super::*;
    use serde_json::json;

    #[test]
    fn credential_fields_are_read_and_debug_hides_the_value() {
        let value = json!({ "user": "canary-1", "deep": { "port": 5432, "none": null } });
        let credential = credential("/A/b", value, None);
        let text = |fields: &[&str]| credential.text(fields).map(|text| text.expose().to_owned());
        assert_eq!(text(&["user"]).unwrap(), "canary-1");
        assert_eq!(text(&["deep", "port"]).unwrap(), "5432");
        assert_eq!(text(&["deep"]).unwrap(), r#"{"none":null,"port":5432}"#);
        assert_eq!((text(&["deep", "none"]), text(&["user", "x"])), (None, None));
        assert_eq!(credential.key().unwrap().as_str(), "/a/b");
        assert!(!format!("{credential:?}").contains("canary"), "{credential:?}");
    }

    #[test]
    fn wipe_clears_every_string_in_a_value() {
        let mut value = json!({ "a": ["secret", { "b": "secret" }], "c": "secret" });
        wipe(&mut value);
        assert!(!value.to_string().contains("secret"), "{value}");
    }
}
