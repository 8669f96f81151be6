//! Conversion of lists and counts to statement parameters.

use db::{StoreError, Value};

use super::requester::Requester;

/// Converts texts to one statement parameter.
pub(super) fn list(texts: &[String]) -> Value {
    serde_json::Value::from(texts).to_string().into()
}

/// Converts a count to a statement parameter.
pub(super) fn count(limit: usize) -> Value {
    i64::try_from(limit).unwrap_or(i64::MAX).into()
}

/// Returns the rows of a listing that the caller's limits permit.
pub(super) fn listed<T>(
    requester: &Requester,
    rows: impl Iterator<Item = Result<T, StoreError>>,
    name: impl Fn(&T) -> &String,
) -> Result<Vec<T>, StoreError> {
    rows.filter(|row| row.as_ref().map_or(true, |row| requester.lists(name(row)))).collect()
}
