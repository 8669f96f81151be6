//! JSON text that is wiped when it is dropped, and hidden from `Debug`.

use std::collections::HashMap;
use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use zeroize::Zeroize;

use crate::Secret;

/// JSON text that is kept byte for byte: numbers of any size, the order of members, white space. It is wiped when dropped, and `Debug`
/// does not show it.
///
/// A field of this type must not be below `#[serde(flatten)]` or an untagged enum: they parse the text before this type sees it.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub struct SecretJson(Box<RawValue>);

impl SecretJson {
    /// Checks that a text is one JSON value, and keeps it without the white space around it.
    ///
    /// # Errors
    /// The position of the first character that is not JSON.
    pub fn new(text: String) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text).map(Self)
    }

    /// Serializes a value to JSON that is treated as secret.
    ///
    /// # Errors
    /// Errors of the value's `Serialize`, such as map keys that are not texts.
    pub fn of(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        to_raw_value(value).map(Self)
    }

    /// Returns the JSON in plain text. Pass it only to its destination, and never log it.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.get()
    }

    /// Returns the text as a source for `Deserialize`.
    #[must_use]
    pub fn raw(&self) -> &RawValue {
        &self.0
    }

    /// Parses the text. Numbers beyond the range of the target type are an error, or lose digits as `f64`.
    ///
    /// # Errors
    /// The text does not fit the type, is nested more than 127 levels deep, or has an invalid surrogate.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.expose())
    }

    /// Returns whether the value is `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.expose() == "null"
    }

    /// Returns whether the value is a string.
    #[must_use]
    pub fn is_string(&self) -> bool {
        self.expose().starts_with('"')
    }

    /// Returns whether the value is an object.
    #[must_use]
    pub fn is_object(&self) -> bool {
        self.expose().starts_with('{')
    }

    /// Returns the value, or its part at `fields` (`["private_key"]`), as text: a string without quotes, anything else as JSON, byte for
    /// byte. `None` if the part does not exist or is `null`.
    #[must_use]
    pub fn text(&self, fields: &[&str]) -> Option<Secret> {
        let mut found = self.raw();
        for field in fields {
            let members: HashMap<String, &RawValue> = serde_json::from_str(found.get()).ok()?;
            found = members.get(*field).copied()?;
        }
        match found.get() {
            "null" => None,
            text if text.starts_with('"') => serde_json::from_str(text).ok(),
            text => Some(Secret::new(text)),
        }
    }
}

impl From<Value> for SecretJson {
    fn from(value: Value) -> Self {
        // A `Value` has only texts as keys, so its serialization does not fail.
        Self::of(&value).unwrap_or_default()
    }
}

impl PartialEq for SecretJson {
    /// Compares byte for byte, including white space.
    fn eq(&self, other: &Self) -> bool {
        self.expose() == other.expose()
    }
}

impl Eq for SecretJson {}

impl fmt::Debug for SecretJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretJson(…)")
    }
}

impl Drop for SecretJson {
    fn drop(&mut self) {
        let text: Box<str> = std::mem::take(&mut self.0).into();
        String::from(text).zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"z":12345678901234567890123,  "a":{"u":"\u00e9"},"n":null,"d":1.10}"#;

    #[test]
    fn json_text_is_kept_byte_for_byte_and_hidden_from_debug() {
        let json = SecretJson::new(format!(" {TEXT}\n")).unwrap();
        assert_eq!(json.expose(), TEXT);
        assert_eq!(serde_json::to_string(&json).unwrap(), TEXT);
        assert_eq!(serde_json::from_str::<SecretJson>(TEXT).unwrap(), json);
        assert_eq!(format!("{json:?}"), "SecretJson(…)");
        assert!(SecretJson::new("{\"a\":1".to_owned()).is_err());
    }

    #[test]
    fn fields_are_texts_without_quotes_or_the_json_as_written() {
        let json = SecretJson::new(TEXT.to_owned()).unwrap();
        let text = |fields: &[&str]| json.text(fields).map(|text| text.expose().to_owned());
        assert_eq!(text(&["z"]).unwrap(), "12345678901234567890123");
        assert_eq!(text(&["d"]).unwrap(), "1.10");
        assert_eq!(text(&["a", "u"]).unwrap(), "é");
        assert_eq!(text(&["a"]).unwrap(), r#"{"u":"\u00e9"}"#);
        assert_eq!(text(&[]).unwrap(), TEXT);
        assert_eq!((text(&["n"]), text(&["none"]), text(&["z", "x"])), (None, None, None));
    }
}
