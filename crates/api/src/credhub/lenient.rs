//! Deserializers for request fields, as lenient as CredHub.

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Deserializes a string. `null` counts as absent.
pub(super) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Deserializes a boolean, which may be given as a string.
pub(super) fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::Bool(on) => Ok(Some(on)),
        Value::String(text) if text.eq_ignore_ascii_case("true") => Ok(Some(true)),
        Value::String(text) if text.eq_ignore_ascii_case("false") => Ok(Some(false)),
        _ => Err(D::Error::custom("expected true or false")),
    }
}

/// Deserializes a number, which may be given as a string.
pub(super) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let read = match Value::deserialize(deserializer)? {
        Value::Null => return Ok(None),
        Value::Number(number) => number.as_u64().and_then(|number| u32::try_from(number).ok()),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    read.map(Some).ok_or_else(|| D::Error::custom("expected a number from 0 to 4294967295"))
}

/// Deserializes any JSON value. `null` counts as a value.
pub(super) fn any<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Deserializes a field leniently. If the field is absent or invalid, the store rejects the request with its own error message.
pub(super) fn readable<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).ok())
}

/// Deserializes a list of operation names. `null` becomes an empty list. Any other value that is not a list of strings becomes one
/// empty name, which the store rejects like any unknown name.
pub(super) fn operations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Null => Vec::new(),
        list => serde_json::from_value(list).unwrap_or_else(|_| vec![String::new()]),
    })
}
