//! An open transaction with the same interface on both databases.

use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::audit::head::AuditHead;
use crate::column::Column;
use crate::error::StoreError;
use crate::postgres::{BoundStatement, Connected, Parameter};
use crate::sqlite::connection as sqlite;
use crate::statement::BulkStatement;
use crate::value::{Row, Value};

/// An open transaction.
pub struct Tx {
    pub(crate) connection: TxConnection,
    /// The audit chain that this transaction writes to, after its first audit event. Cleared at the end of the transaction.
    pub(crate) audit_head: Option<AuditHead>,
    pub(crate) sent: u64,
    /// Whether `BEGIN` is still to be sent on PostgreSQL, together with the first statement.
    pub(crate) begin: bool,
}

pub(crate) enum TxConnection {
    Sqlite(rusqlite::Connection),
    Postgres(Box<Connected>),
}

impl Tx {
    /// Returns whether the database is PostgreSQL, for statements that differ.
    #[must_use]
    pub fn is_postgres(&self) -> bool {
        matches!(self.connection, TxConnection::Postgres(_))
    }

    /// Returns one of the `slots` rows that a counter is split into: on PostgreSQL a random one, so that writers do not wait for the
    /// same row, and on SQLite, which has one writer, the first.
    #[must_use]
    pub fn counter_slot(&self, slots: i64) -> i64 {
        if self.is_postgres() { i64::from(Uuid::new_v4().as_bytes()[0]) % slots } else { 0 }
    }

    /// Returns the text of a statement for this database.
    #[must_use]
    pub fn text_of(&self, statement: &BulkStatement) -> &'static str {
        if self.is_postgres() { statement.postgres } else { statement.sqlite }
    }

    /// Runs one statement. Returns its rows.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn rows(&mut self, statement: &str, parameters: Vec<Value>) -> Result<Vec<Row>, StoreError> {
        self.sent += 1;
        match &mut self.connection {
            TxConnection::Sqlite(connection) => sqlite::rows(connection, statement, parameters),
            TxConnection::Postgres(connected) => {
                let parameters = parameters.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
                let begin = std::mem::take(&mut self.begin);
                let found = connected.execute_pipelined(begin, &[(statement, parameters)]).await?;
                Ok(found.into_iter().flatten().collect())
            }
        }
    }

    /// Runs one statement. Returns its first row.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn row(&mut self, statement: &str, parameters: Vec<Value>) -> Result<Option<Row>, StoreError> {
        Ok(self.rows(statement, parameters).await?.into_iter().next())
    }

    /// Runs one statement with borrowed parameters in the driver's own types, for batches that would otherwise be copied.
    /// PostgreSQL only.
    ///
    /// # Errors
    /// Database errors; [`StoreError::Closed`] on SQLite.
    #[crate::boxed]
    pub async fn query(
        &mut self,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        let TxConnection::Postgres(connected) = &mut self.connection else { return Err(StoreError::Closed) };
        let begin = std::mem::take(&mut self.begin);
        let found = connected.execute_pipelined(begin, &[(statement, parameters.to_vec())]).await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Runs one statement. Returns the number of changed rows.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn execute(&mut self, statement: &str, parameters: Vec<Value>) -> Result<u64, StoreError> {
        self.sent += 1;
        match &mut self.connection {
            TxConnection::Sqlite(connection) => sqlite::execute(connection, statement, &parameters),
            TxConnection::Postgres(connected) => {
                if std::mem::take(&mut self.begin) {
                    connected.execute_pipelined(true, &[]).await?;
                }
                connected.execute(statement, &parameters).await
            }
        }
    }

    /// Runs a statement over many rows: one statement on PostgreSQL, a cached one per row on SQLite. Returns the rows of RETURNING,
    /// or none without input rows.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn bulk(&mut self, bulk: &BulkStatement, columns: Vec<Column>) -> Result<Vec<Row>, StoreError> {
        Ok(self.bulks(&[(bulk, columns)]).await?.into_iter().flatten().collect())
    }

    /// Runs several [`Self::bulk`] statements that are independent of each other's results, in this order. One round trip on
    /// PostgreSQL.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn bulks(
        &mut self,
        all: &[(&BulkStatement, Vec<Column>)],
    ) -> Result<Vec<Vec<Row>>, StoreError> {
        let lengths: Vec<usize> =
            all.iter().map(|(_, columns)| columns.first().map_or(0, Column::len)).collect();
        for ((_, columns), rows) in all.iter().zip(&lengths) {
            debug_assert!(columns.iter().all(|column| column.len() == *rows), "columns differ in length");
        }
        let wanted: Vec<usize> = (0..all.len()).filter(|at| lengths[*at] > 0).collect();
        self.sent += wanted.len() as u64;
        let mut answers: Vec<Vec<Row>> = all.iter().map(|_| Vec::new()).collect();
        if wanted.is_empty() {
            return Ok(answers);
        }
        match &mut self.connection {
            TxConnection::Sqlite(connection) => {
                for at in wanted {
                    let (bulk, columns) = &all[at];
                    answers[at] = sqlite::bulk(connection, bulk.sqlite, columns, lengths[at])?;
                }
            }
            TxConnection::Postgres(connected) => {
                let statement = |at: &usize| {
                    let (bulk, columns) = &all[*at];
                    (bulk.postgres, columns.iter().map(Column::as_parameter).collect())
                };
                let statements: Vec<BoundStatement<'_>> = wanted.iter().map(statement).collect();
                let begin = std::mem::take(&mut self.begin);
                let found = connected.execute_pipelined(begin, &statements).await?;
                for (at, rows) in wanted.into_iter().zip(found) {
                    answers[at] = rows;
                }
            }
        }
        Ok(answers)
    }
}
