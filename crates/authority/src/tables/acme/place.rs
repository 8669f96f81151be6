//! The place of a row in a listing that goes by ids, newest first.

use uuid::Uuid;

use db::{Cursor, StoreError, Value, key_or};

/// The id after which a listing goes on, newest first; ids stand in cursors as text.
pub(super) fn place(after: Option<&Cursor>, listing: &str) -> Result<Value, StoreError> {
    let key = key_or(after, listing, &[Value::Text(Uuid::max().to_string())])?;
    match key.first() {
        Some(Value::Text(id)) => Ok(id.parse::<Uuid>().map_err(|_| StoreError::BadCursor)?.into()),
        _ => Err(StoreError::BadCursor),
    }
}

/// [`place`] of a row.
pub(super) fn placed(id: Uuid) -> Vec<Value> {
    vec![Value::Text(id.to_string())]
}
