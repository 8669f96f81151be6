//! The values of one column in many rows, as one parameter.

use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::value::Value;

/// The values of one column in many rows.
#[derive(Clone, Debug)]
pub enum Column {
    /// Integers.
    Int(Vec<i64>),
    /// Integers or NULL.
    MaybeInt(Vec<Option<i64>>),
    /// Texts.
    Text(Vec<String>),
    /// Texts or NULL.
    MaybeText(Vec<Option<String>>),
    /// Bytes.
    Blob(Vec<Vec<u8>>),
    /// Bytes or NULL.
    MaybeBlob(Vec<Option<Vec<u8>>>),
    /// UUIDs.
    Uuid(Vec<Uuid>),
    /// UUIDs or NULL.
    MaybeUuid(Vec<Option<Uuid>>),
}

impl Column {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Int(all) => all.len(),
            Self::MaybeInt(all) => all.len(),
            Self::Text(all) => all.len(),
            Self::MaybeText(all) => all.len(),
            Self::Blob(all) => all.len(),
            Self::MaybeBlob(all) => all.len(),
            Self::Uuid(all) => all.len(),
            Self::MaybeUuid(all) => all.len(),
        }
    }

    /// Returns the value in one row.
    pub(crate) fn at(&self, row: usize) -> Value {
        match self {
            Self::Int(all) => Value::Int(all[row]),
            Self::MaybeInt(all) => all[row].into(),
            Self::Text(all) => Value::Text(all[row].clone()),
            Self::MaybeText(all) => all[row].clone().into(),
            Self::Blob(all) => Value::Blob(all[row].clone()),
            Self::MaybeBlob(all) => all[row].clone().into(),
            Self::Uuid(all) => all[row].into(),
            Self::MaybeUuid(all) => all[row].into(),
        }
    }

    pub(crate) fn as_parameter(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::Int(all) => all,
            Self::MaybeInt(all) => all,
            Self::Text(all) => all,
            Self::MaybeText(all) => all,
            Self::Blob(all) => all,
            Self::MaybeBlob(all) => all,
            Self::Uuid(all) => all,
            Self::MaybeUuid(all) => all,
        }
    }
}
