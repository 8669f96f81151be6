//! Lists and counts as parameters.

use db::Value;

/// A parameter that holds texts.
pub(super) fn list(texts: &[String]) -> Value {
    serde_json::Value::from(texts).to_string().into()
}

/// A parameter that holds a count.
pub(super) fn count(most: usize) -> Value {
    i64::try_from(most).unwrap_or(i64::MAX).into()
}
