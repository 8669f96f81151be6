//! One open transaction, alike on both databases.

use tokio_postgres::types::ToSql;

use crate::audit::head::AuditHead;
use crate::column::Column;
use crate::error::StoreError;
use crate::postgres::{BoundStatement, Connected, Parameter};
use crate::sqlite::connection as sqlite;
use crate::statement::Bulk;
use crate::value::{Row, Value};

/// One open transaction.
pub struct Tx {
    pub(crate) connection: TxConnection,
    /// The audit chain this transaction writes to, once it has written; forgotten when it ends.
    pub(crate) audit_head: Option<AuditHead>,
    pub(crate) sent: u64,
    /// On PostgreSQL, whether `BEGIN` is still to be sent: it goes with the first statement.
    pub(crate) begin: bool,
}

pub(crate) enum TxConnection {
    Sqlite(rusqlite::Connection),
    Postgres(Box<Connected>),
}

impl Tx {
    /// Whether this is PostgreSQL, where a statement that differs is needed.
    #[must_use]
    pub fn is_postgres(&self) -> bool {
        matches!(self.connection, TxConnection::Postgres(_))
    }

    /// The text of a statement for this database.
    #[must_use]
    pub fn text_of(&self, statement: &Bulk) -> &'static str {
        if self.is_postgres() { statement.postgres } else { statement.sqlite }
    }

    /// Runs one statement; returns its rows.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn rows(&mut self, statement: &str, parameters: Vec<Value>) -> Result<Vec<Row>, StoreError> {
        self.sent += 1;
        match &mut self.connection {
            TxConnection::Sqlite(connection) => sqlite::rows(connection, statement, parameters),
            TxConnection::Postgres(connected) => {
                let parameters = parameters.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
                let begin = std::mem::take(&mut self.begin);
                let found = connected.pipelined(begin, &[(statement, parameters)]).await?;
                Ok(found.into_iter().flatten().collect())
            }
        }
    }

    /// Runs one statement; returns its first row.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn row(&mut self, statement: &str, parameters: Vec<Value>) -> Result<Option<Row>, StoreError> {
        Ok(self.rows(statement, parameters).await?.into_iter().next())
    }

    /// Runs one statement whose parameters are lent in the driver's own types: for batches whose columns would otherwise
    /// be copied. PostgreSQL only.
    ///
    /// # Errors
    /// Those of the database; [`StoreError::Closed`] on SQLite.
    #[crate::boxed]
    pub async fn query(
        &mut self,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        let TxConnection::Postgres(connected) = &mut self.connection else { return Err(StoreError::Closed) };
        let begin = std::mem::take(&mut self.begin);
        let found = connected.pipelined(begin, &[(statement, parameters.to_vec())]).await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Runs one statement; returns the number of rows it changed.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn execute(&mut self, statement: &str, parameters: Vec<Value>) -> Result<u64, StoreError> {
        self.sent += 1;
        match &mut self.connection {
            TxConnection::Sqlite(connection) => sqlite::execute(connection, statement, &parameters),
            TxConnection::Postgres(connected) => {
                if std::mem::take(&mut self.begin) {
                    connected.pipelined(true, &[]).await?;
                }
                connected.execute(statement, &parameters).await
            }
        }
    }

    /// Runs a statement over many rows: one statement on PostgreSQL, a cached one for each row on SQLite, which is a
    /// call inside the process. Answers the rows of RETURNING; none for no rows.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn bulk(&mut self, bulk: &Bulk, columns: Vec<Column>) -> Result<Vec<Row>, StoreError> {
        Ok(self.bulks(&[(bulk, columns)]).await?.into_iter().flatten().collect())
    }

    /// [`Self::bulk`] of several, none of which needs what another answers: one round trip for all on PostgreSQL. They
    /// are carried out in this order.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn bulks(&mut self, all: &[(&Bulk, Vec<Column>)]) -> Result<Vec<Vec<Row>>, StoreError> {
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
                let found = connected.pipelined(begin, &statements).await?;
                for (at, rows) in wanted.into_iter().zip(found) {
                    answers[at] = rows;
                }
            }
        }
        Ok(answers)
    }
}
