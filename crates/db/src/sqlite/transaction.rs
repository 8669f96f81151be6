//! A SQLite transaction with cached statements and borrowed parameters, for batches of many rows.

use rusqlite::{Connection, ToSql};

use super::connection::{decoded, translate};
use crate::error::StoreError;
use crate::value::Row;

/// A parameter in the driver's own types: numbers, texts and bytes, also optional.
pub type Parameter<'a> = &'a dyn ToSql;

/// An open SQLite transaction that is not shared with other work.
pub struct SqliteTransaction<'c>(&'c Connection);

impl<'c> SqliteTransaction<'c> {
    pub(super) fn of(connection: &'c Connection) -> Self {
        Self(connection)
    }

    /// Runs one statement.
    ///
    /// # Errors
    /// Database errors.
    pub fn run(&self, statement: &str, parameters: &[Parameter<'_>]) -> Result<(), StoreError> {
        let run = || self.0.prepare_cached(statement)?.execute(parameters);
        run().map(drop).map_err(|error| translate(self.0, statement, error))
    }

    /// Inserts one row. Returns its row id.
    ///
    /// # Errors
    /// Database errors.
    pub fn insert(&self, statement: &str, parameters: &[Parameter<'_>]) -> Result<i64, StoreError> {
        self.run(statement, parameters)?;
        Ok(self.0.last_insert_rowid())
    }

    /// Returns the first row, if there is one.
    ///
    /// # Errors
    /// Database errors.
    pub fn find(&self, statement: &str, parameters: &[Parameter<'_>]) -> Result<Option<Row>, StoreError> {
        let find = || -> rusqlite::Result<Option<Row>> {
            let mut prepared = self.0.prepare_cached(statement)?;
            let columns = prepared.column_count();
            let mut found = prepared.query(parameters)?;
            found.next()?.map(|row| decoded(row, columns)).transpose()
        };
        find().map_err(|error| translate(self.0, statement, error))
    }
}
