//! Values of columns and parameters, with the same type for both databases, so that code that reads rows is written once.

use coded::{Coded, Named};
use uuid::Uuid;

use crate::error::StoreError;

/// Value of a column or parameter. Booleans are integers 0 and 1; UUIDs are 16 bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// NULL.
    Null,
    /// An integer or a boolean.
    Int(i64),
    /// Text.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

/// One row of a result, read from left to right.
#[derive(Debug)]
pub struct Row {
    values: std::vec::IntoIter<Value>,
}

impl Row {
    pub(crate) fn new(values: Vec<Value>) -> Self {
        Self { values: values.into_iter() }
    }

    fn next(&mut self) -> Result<Value, StoreError> {
        self.values.next().ok_or_else(|| StoreError::Corrupt("a row has too few columns".to_owned()))
    }

    /// Skips one column.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the row has no further column, or one of another kind.
    pub fn skip(&mut self) -> Result<(), StoreError> {
        self.next().map(drop)
    }

    /// Returns the next column as an integer, or NULL.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the row has no further column, or one of another kind.
    pub fn maybe_int(&mut self) -> Result<Option<i64>, StoreError> {
        match self.next()? {
            Value::Null => Ok(None),
            Value::Int(value) => Ok(Some(value)),
            other => Err(unexpected("an integer", &other)),
        }
    }

    /// Returns the next column as an integer.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the row has no further column, or one of another kind.
    pub fn int(&mut self) -> Result<i64, StoreError> {
        self.maybe_int()?.ok_or_else(|| unexpected("an integer", &Value::Null))
    }

    /// Returns the next column as an integer that fits `T`.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the row has no further column, or one of another kind.
    pub fn number<T: TryFrom<i64>>(&mut self) -> Result<T, StoreError> {
        let value = self.int()?;
        T::try_from(value).map_err(|_| unexpected("a smaller number", &Value::Int(value)))
    }

    /// Returns the next column as an integer that fits `T`, or NULL.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the row has no further column, or one of another kind.
    pub fn maybe_number<T: TryFrom<i64>>(&mut self) -> Result<Option<T>, StoreError> {
        self.maybe_int()?
            .map(|value| T::try_from(value).map_err(|_| unexpected("a smaller number", &Value::Int(value))))
            .transpose()
    }

    /// Returns the next column as the code of an enum, or NULL. `column` (`jobs.state`) is for the error.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when no value has that code, the row has no further column, or one of another kind.
    pub fn maybe_coded<T: Coded>(&mut self, column: &str) -> Result<Option<T>, StoreError> {
        self.maybe_int()?.map(|code| coded(code, column)).transpose()
    }

    /// Returns the next column as the code of an enum. `column` (`jobs.state`) is for the error.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when no value has that code, the row has no further column, or one of another kind.
    pub fn coded<T: Coded>(&mut self, column: &str) -> Result<T, StoreError> {
        self.maybe_coded(column)?
            .ok_or_else(|| StoreError::Corrupt(format!("{column}: NULL, not {}", T::NOUN)))
    }

    /// Returns the next column as the name of an enum value, or NULL. `column` (`cas.state`) is for the error.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when no value has that name, the row has no further column, or one of another kind.
    pub fn maybe_named<T: Named>(&mut self, column: &str) -> Result<Option<T>, StoreError> {
        let read = |name: String| {
            T::ALL
                .iter()
                .copied()
                .find(|value| value.name() == name)
                .ok_or_else(|| StoreError::Corrupt(format!("{column}: unknown {} {name:?}", T::NOUN)))
        };
        self.maybe_text()?.map(read).transpose()
    }

    /// Returns the next column as the name of an enum value. `column` (`cas.state`) is for the error.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when no value has that name, the row has no further column, or one of another kind.
    pub fn named<T: Named>(&mut self, column: &str) -> Result<T, StoreError> {
        self.maybe_named(column)?
            .ok_or_else(|| StoreError::Corrupt(format!("{column}: NULL, not {}", T::NOUN)))
    }

    /// Returns the next column as a boolean.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the row has no further column, or one of another kind.
    pub fn flag(&mut self) -> Result<bool, StoreError> {
        Ok(self.int()? != 0)
    }

    /// Returns the next column as text, or NULL.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the row has no further column, or one of another kind.
    pub fn maybe_text(&mut self) -> Result<Option<String>, StoreError> {
        match self.next()? {
            Value::Null => Ok(None),
            Value::Text(value) => Ok(Some(value)),
            other => Err(unexpected("text", &other)),
        }
    }

    /// Returns the next column as text.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the row has no further column, or one of another kind.
    pub fn text(&mut self) -> Result<String, StoreError> {
        self.maybe_text()?.ok_or_else(|| unexpected("text", &Value::Null))
    }

    /// Returns the next column as bytes, or NULL.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the row has no further column, or one of another kind.
    pub fn maybe_blob(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        match self.next()? {
            Value::Null => Ok(None),
            Value::Blob(value) => Ok(Some(value)),
            other => Err(unexpected("bytes", &other)),
        }
    }

    /// Returns the next column as bytes.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the row has no further column, or one of another kind.
    pub fn blob(&mut self) -> Result<Vec<u8>, StoreError> {
        self.maybe_blob()?.ok_or_else(|| unexpected("bytes", &Value::Null))
    }

    /// Returns the next column as 32 bytes, or NULL.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the row has no further column, or one of another kind.
    pub fn maybe_hash(&mut self) -> Result<Option<[u8; 32]>, StoreError> {
        self.maybe_blob()?
            .map(|bytes| {
                <[u8; 32]>::try_from(bytes).map_err(|bytes| unexpected("32 bytes", &Value::Blob(bytes)))
            })
            .transpose()
    }

    /// Returns the next column as 32 bytes.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the row has no further column, or one of another kind.
    pub fn hash(&mut self) -> Result<[u8; 32], StoreError> {
        self.maybe_hash()?.ok_or_else(|| unexpected("32 bytes", &Value::Null))
    }

    /// Returns the next column as a UUID, or NULL.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the row has no further column, or one of another kind.
    pub fn maybe_uuid(&mut self) -> Result<Option<Uuid>, StoreError> {
        self.maybe_blob()?
            .map(|bytes| Uuid::from_slice(&bytes).map_err(|_| unexpected("16 bytes", &Value::Blob(bytes))))
            .transpose()
    }

    /// Returns the next column as a UUID.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the row has no further column, or one of another kind.
    pub fn uuid(&mut self) -> Result<Uuid, StoreError> {
        self.maybe_uuid()?.ok_or_else(|| unexpected("16 bytes", &Value::Null))
    }
}

/// Converts a code in `column` to its enum value.
///
/// # Errors
/// [`StoreError::Corrupt`] when no value has that code.
pub fn coded<T: Coded>(code: i64, column: &str) -> Result<T, StoreError> {
    let unknown = || StoreError::Corrupt(format!("{column}: unknown code {code} of {}", T::NOUN));
    T::from_code(code).ok_or_else(unknown)
}

fn unexpected(wanted: &str, found: &Value) -> StoreError {
    StoreError::Corrupt(format!("expected {wanted}, found {found:?}"))
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}
impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Int(value.into())
    }
}
impl From<i32> for Value {
    fn from(value: i32) -> Self {
        Self::Int(value.into())
    }
}
impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Int(value.into())
    }
}
impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Self {
        Self::Blob(value)
    }
}
impl From<[u8; 32]> for Value {
    fn from(value: [u8; 32]) -> Self {
        Self::Blob(value.to_vec())
    }
}
impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}
impl From<u16> for Value {
    fn from(value: u16) -> Self {
        Self::Int(value.into())
    }
}
impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}
impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}
impl From<&[u8]> for Value {
    fn from(value: &[u8]) -> Self {
        Self::Blob(value.to_vec())
    }
}
impl From<Uuid> for Value {
    fn from(value: Uuid) -> Self {
        Self::Blob(value.as_bytes().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    coded::coded! {
        enum State: "job state" {
            Queued = 0 => "queued",
            Done = 4 => "done",
        }
    }

    fn row(value: impl Into<Value>) -> Row {
        Row::new(vec![value.into()])
    }

    #[test]
    fn enum_columns_are_decoded_by_code_and_by_name() {
        assert_eq!(row(State::Done.code()).coded::<State>("jobs.state").unwrap(), State::Done);
        assert_eq!(row(State::Done.name()).named::<State>("jobs.state").unwrap(), State::Done);
        assert_eq!(row(Value::Null).maybe_coded::<State>("jobs.state").unwrap(), None);
        assert_eq!(row(Value::Null).maybe_named::<State>("jobs.state").unwrap(), None);
    }

    #[test]
    fn invalid_enum_columns_are_reported_with_column_and_value() {
        let code = |value: Value| row(value).coded::<State>("jobs.state").unwrap_err().to_string();
        let name = |value: Value| row(value).named::<State>("jobs.state").unwrap_err().to_string();
        for (found, expected) in [
            (code(3.into()), "jobs.state: unknown code 3 of job state"),
            (code(Value::Null), "jobs.state: NULL, not job state"),
            (name("Done".into()), "jobs.state: unknown job state \"Done\""),
            (name(Value::Null), "jobs.state: NULL, not job state"),
        ] {
            assert!(found.ends_with(expected), "{found}");
        }
        assert!(row("done").coded::<State>("jobs.state").is_err());
    }
}
