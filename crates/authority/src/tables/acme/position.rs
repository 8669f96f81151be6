//! Cursors of lists that are sorted by identifier, newest first.

use uuid::Uuid;

use db::{Cursor, StoreError, Value, key_or};

/// Returns the identifier after which a list continues, newest first. Cursors contain identifiers as text.
pub(super) fn position(after: Option<&Cursor>, listing: &str) -> Result<Value, StoreError> {
    let key = key_or(after, listing, &[Value::Text(Uuid::max().to_string())])?;
    match key.first() {
        Some(Value::Text(id)) => Ok(id.parse::<Uuid>().map_err(|_| StoreError::BadCursor)?.into()),
        _ => Err(StoreError::BadCursor),
    }
}

/// Returns the cursor values of a row, for [`position`].
pub(super) fn position_of(id: Uuid) -> Vec<Value> {
    vec![Value::Text(id.to_string())]
}
