//! Texts that must not be shown: passwords, tokens, keys in PEM.

use std::fmt;

use serde::{Deserialize, Deserializer, Serializer};
use zeroize::Zeroizing;

/// A secret text. It is wiped when dropped, and never appears in `Debug`, logs or responses. It does not implement `Serialize`: a
/// field that must be written uses [`exposed`] or [`exposed_option`].
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Creates a secret from a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// Returns the secret in plain text. Pass it only to its destination, and never log it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<Zeroizing<String>> for Secret {
    fn from(text: Zeroizing<String>) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

/// Serializes a secret in plain text: `#[serde(serialize_with = "keys::secret::exposed")]`.
///
/// # Errors
/// Errors of the serializer.
pub fn exposed<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.expose())
}

/// Serializes an optional secret, like [`exposed`].
///
/// # Errors
/// Errors of the serializer.
pub fn exposed_option<S: Serializer>(secret: &Option<Secret>, serializer: S) -> Result<S::Ok, S::Error> {
    match secret {
        Some(secret) => serializer.serialize_some(secret.expose()),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_hides_the_secret() {
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "Secret(…)");
        assert_eq!(Secret::new("hunter2").expose(), "hunter2");
    }
}
