//! Keyset cursors: the start of the next page.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::error::StoreError;
use crate::value::Value;

/// Maximum characters of an accepted cursor. The longest stored key, with all key columns in JSON and base64, fits several times.
const CURSOR_CHARS_MAX: usize = 16 * 1024;

/// Start of the next page of a listing. Opaque: store it as text and pass it to the same listing.
///
/// A cursor contains the key of the last returned row, not a row count. So rows that are inserted between two pages neither repeat
/// nor hide other rows.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Cursor(String);

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Cursor {
    type Err = StoreError;

    /// # Errors
    /// [`StoreError::BadCursor`] when the text is not a cursor. Whether it matches the listing is checked when it is used.
    fn from_str(text: &str) -> Result<Self, StoreError> {
        let cursor = Self(text.to_owned());
        cursor.parts().map(|_| cursor)
    }
}

impl Cursor {
    /// Creates a cursor after the row with this key. `listing` prevents its use for another listing.
    #[must_use]
    pub fn new(listing: &str, key: &[Value]) -> Self {
        let mut parts = vec![serde_json::Value::from(listing)];
        parts.extend(key.iter().map(|value| match value {
            Value::Int(number) => serde_json::Value::from(*number),
            Value::Text(text) => serde_json::Value::from(text.as_str()),
            Value::Null | Value::Blob(_) => serde_json::Value::Null,
        }));
        Self(URL_SAFE_NO_PAD.encode(serde_json::Value::from(parts).to_string()))
    }

    /// Returns the key, if this cursor is for `listing` and its values have the kinds of `shape`.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`] for a cursor of another listing or shape.
    pub fn key(&self, listing: &str, shape: &[Value]) -> Result<Vec<Value>, StoreError> {
        let mut parts = self.parts()?.into_iter();
        if parts.next() != Some(Value::Text(listing.to_owned())) {
            return Err(StoreError::BadCursor);
        }
        let key: Vec<Value> = parts.collect();
        let fits = key.len() == shape.len()
            && key.iter().zip(shape).all(|(a, b)| std::mem::discriminant(a) == std::mem::discriminant(b));
        if fits { Ok(key) } else { Err(StoreError::BadCursor) }
    }

    fn parts(&self) -> Result<Vec<Value>, StoreError> {
        if self.0.len() > CURSOR_CHARS_MAX {
            return Err(StoreError::BadCursor);
        }
        let json = URL_SAFE_NO_PAD.decode(&self.0).map_err(|_| StoreError::BadCursor)?;
        let parts: Vec<serde_json::Value> =
            serde_json::from_slice(&json).map_err(|_| StoreError::BadCursor)?;
        parts
            .into_iter()
            .map(|part| match part {
                // PostgreSQL rejects a NUL in a comparison, and no key contains one.
                serde_json::Value::String(text) if !text.contains('\0') => Ok(Value::Text(text)),
                serde_json::Value::Number(number) => {
                    number.as_i64().map(Value::Int).ok_or(StoreError::BadCursor)
                }
                _ => Err(StoreError::BadCursor),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn cursor_is_rejected_by_other_listings(number: i64, text in "[^\0]{0,40}") {
            let key = [Value::Int(number), Value::Text(text)];
            let cursor: Cursor = Cursor::new("a", &key).to_string().parse().unwrap();
            prop_assert_eq!(cursor.key("a", &key).unwrap(), key.to_vec());
            prop_assert!(cursor.key("b", &key).is_err());
            prop_assert!(cursor.key("a", &key[..1]).is_err());
        }

        #[test]
        fn parsing_arbitrary_cursor_text_does_not_panic(text: String) {
            if let Ok(cursor) = text.parse::<Cursor>() {
                let _ = cursor.key("a", &[Value::Int(0)]);
            }
        }
    }
}
