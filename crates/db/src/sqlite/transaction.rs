//! A transaction of SQLite whose statements are cached and take borrowed parameters: for batches of many rows.

use rusqlite::{Connection, ToSql};

use super::connection::{decoded, translate};
use crate::error::StoreError;
use crate::value::Row;

/// A parameter in the driver's own types: numbers, texts and bytes, also optional.
pub type Parameter<'a> = &'a dyn ToSql;

/// An open transaction of SQLite that no other work shares.
pub struct SqliteTransaction<'c>(&'c Connection);

impl<'c> SqliteTransaction<'c> {
    pub(super) fn of(connection: &'c Connection) -> Self {
        Self(connection)
    }

    /// Runs one statement.
    ///
    /// # Errors
    /// Those of the database.
    pub fn run(&self, statement: &str, parameters: &[Parameter<'_>]) -> Result<(), StoreError> {
        let run = || self.0.prepare_cached(statement)?.execute(parameters);
        run().map(drop).map_err(|error| translate(self.0, statement, error))
    }

    /// Inserts one row; returns its number.
    ///
    /// # Errors
    /// Those of the database.
    pub fn insert(&self, statement: &str, parameters: &[Parameter<'_>]) -> Result<i64, StoreError> {
        self.run(statement, parameters)?;
        Ok(self.0.last_insert_rowid())
    }

    /// The first row, if there is one.
    ///
    /// # Errors
    /// Those of the database.
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
