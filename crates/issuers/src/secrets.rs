//! Secrets of an issuer's configuration: kept apart from what may be shown, erased when dropped.

use std::collections::BTreeMap;

use keys::Secret;
use serde_json::Value;
use zeroize::Zeroizing;

/// Octets of the longest secret: a PEM key or a token with claims has a few thousand.
const SECRET_MAX: usize = 64 * 1024;

/// Why secrets could not be taken out of, or put back into, a configuration.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadSecret {
    /// Only texts can be secret.
    #[error("{pointer} must be a text of at most {SECRET_MAX} octets")]
    NotText {
        /// Where, as a JSON pointer.
        pointer: String,
    },
    /// The sealed secrets do not fit the configuration.
    #[error("the stored secrets cannot be read; set the issuer's secrets again")]
    Unreadable,
}

/// Where secrets stand in a configuration, as JSON pointers (RFC 6901).
const POINTERS: [&str; 9] = [
    "/eab/hmac_key",
    "/auth/token",
    "/auth/secret_id",
    "/provisioner/key",
    "/provisioner/password",
    "/secret",
    "/http/client_key",
    "/dns01/publisher/tsig_secret",
    "/dns01/publisher/secret",
];

/// The secrets of one configuration, by JSON pointer.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Secrets(BTreeMap<String, Secret>);

impl Secrets {
    /// Takes the secrets out of `config`, which then may be stored and shown.
    ///
    /// # Errors
    /// [`BadSecret::NotText`] when a secret is no text.
    pub fn take(config: &mut Value) -> Result<Self, BadSecret> {
        let mut found = BTreeMap::new();
        for pointer in POINTERS {
            let Some((parent, field)) = pointer.rsplit_once('/') else { continue };
            let Some(Value::Object(parent)) = config.pointer_mut(parent) else { continue };
            match parent.remove(field) {
                None | Some(Value::Null) => {}
                Some(Value::String(text)) if text.len() <= SECRET_MAX => {
                    found.insert(pointer.to_owned(), Secret::new(text));
                }
                Some(_) => return Err(BadSecret::NotText { pointer: pointer.to_owned() }),
            }
        }
        Ok(Self(found))
    }

    /// Puts the secrets back, for [`super::IssuerConfig`] to be read from. A secret whose place is gone is left out.
    pub fn put(&self, config: &mut Value) {
        for (pointer, secret) in &self.0 {
            let Some((parent, field)) = pointer.rsplit_once('/') else { continue };
            if let Some(Value::Object(parent)) = config.pointer_mut(parent) {
                parent.insert(field.to_owned(), Value::String(secret.expose().to_owned()));
            }
        }
    }

    /// These, and of `before` those that are not given anew: an update that leaves a secret out keeps it.
    #[must_use]
    pub fn over(mut self, before: Self) -> Self {
        for (pointer, secret) in before.0 {
            self.0.entry(pointer).or_insert(secret);
        }
        self
    }

    /// Which secrets are set, by JSON pointer.
    pub fn pointers(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As bytes to be sealed.
    #[must_use]
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let texts: BTreeMap<&str, &str> =
            self.0.iter().map(|(at, text)| (at.as_str(), text.expose())).collect();
        // A map of texts always serialises.
        Zeroizing::new(serde_json::to_vec(&texts).unwrap_or_default())
    }

    /// From bytes that were unsealed.
    ///
    /// # Errors
    /// [`BadSecret::Unreadable`] when they are not what [`Secrets::to_bytes`] made.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadSecret> {
        serde_json::from_slice(bytes).map(Self).map_err(|_| BadSecret::Unreadable)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_leave_the_configuration_and_return() {
        let whole =
            json!({"type": "vault", "url": "https://v", "auth": {"method": "token", "token": "s.abc"}});
        let mut config = whole.clone();
        let secrets = Secrets::take(&mut config).unwrap();
        assert!(!config.to_string().contains("s.abc"));
        assert!(!format!("{secrets:?}").contains("s.abc"));
        let mut again = config.clone();
        Secrets::from_bytes(&secrets.to_bytes()).unwrap().put(&mut again);
        assert_eq!(again, whole);
    }

    #[test]
    fn an_update_keeps_what_it_does_not_name() {
        let take = |mut value: Value| Secrets::take(&mut value).unwrap();
        let before = take(json!({"secret": "old", "eab": {"hmac_key": "kept"}}));
        let merged = take(json!({"secret": "new"})).over(before);
        let mut config = json!({"eab": {}});
        merged.put(&mut config);
        assert_eq!(config, json!({"secret": "new", "eab": {"hmac_key": "kept"}}));
    }

    #[test]
    fn only_texts_are_secrets() {
        for bad in [json!({"secret": 7}), json!({"secret": "x".repeat(SECRET_MAX + 1)})] {
            assert_eq!(
                Secrets::take(&mut bad.clone()),
                Err(BadSecret::NotText { pointer: "/secret".to_owned() })
            );
        }
        assert_eq!(Secrets::from_bytes(b"[]"), Err(BadSecret::Unreadable));
    }
}
