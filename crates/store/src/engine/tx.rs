//! One open transaction, alike on both databases.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::engine::audit::Head;
use crate::engine::database::{Backend, Store};
use crate::engine::error::StoreError;
use crate::engine::postgres::{Connected, Planned, Sent};
use crate::engine::value::{Row, Value};

/// One open transaction. Opaque outside this crate: its modules offer what can be done with it, so that several rooms
/// can share one.
pub struct Tx {
    pub(crate) inner: Inner,
    /// The audit chain this transaction writes to, once it has written; forgotten when it ends.
    pub(crate) audit_head: Option<Head>,
    pub(crate) sent: u64,
    /// On PostgreSQL, whether `BEGIN` is still to be sent: it goes with the first statement.
    pub(crate) begin: bool,
}

pub(crate) enum Inner {
    Sqlite(rusqlite::Connection),
    Postgres(Box<Connected>),
}

/// A statement over many rows.
#[derive(Debug)]
pub(crate) struct Bulk {
    /// For one row, its columns as ?1, ?2, …; run for each inside the process.
    pub(crate) sqlite: &'static str,
    /// For all rows at once, its columns as arrays.
    pub(crate) postgres: &'static str,
}

impl Bulk {
    /// The text for this database.
    pub(crate) fn of(&self, store: &Store) -> &'static str {
        if store.is_postgres() { self.postgres } else { self.sqlite }
    }
}

/// One column of many rows.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "the kinds are a vocabulary; not every one has a user at every time")]
pub(crate) enum Column {
    Int(Vec<i64>),
    MaybeInt(Vec<Option<i64>>),
    Text(Vec<String>),
    MaybeText(Vec<Option<String>>),
    Blob(Vec<Vec<u8>>),
    MaybeBlob(Vec<Option<Vec<u8>>>),
    Uuid(Vec<Uuid>),
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

    /// The value of one row.
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

    pub(crate) fn as_parameter(&self) -> &(dyn tokio_postgres::types::ToSql + Sync) {
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

impl Tx {
    /// Whether this is PostgreSQL, where a statement that differs is needed.
    pub(crate) fn is_postgres(&self) -> bool {
        matches!(self.inner, Inner::Postgres(_))
    }

    pub(crate) async fn rows(
        &mut self,
        statement: &str,
        parameters: Vec<Value>,
    ) -> Result<Vec<Row>, StoreError> {
        self.sent += 1;
        match &mut self.inner {
            Inner::Sqlite(connection) => crate::engine::sqlite::rows(connection, statement, parameters),
            Inner::Postgres(connected) => {
                let parameters = parameters.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
                let begin = std::mem::take(&mut self.begin);
                let found = connected.pipelined(begin, &[(statement, parameters)]).await?;
                Ok(found.into_iter().flatten().collect())
            }
        }
    }

    pub(crate) async fn row(
        &mut self,
        statement: &str,
        parameters: Vec<Value>,
    ) -> Result<Option<Row>, StoreError> {
        Ok(self.rows(statement, parameters).await?.into_iter().next())
    }

    pub(crate) async fn execute(
        &mut self,
        statement: &str,
        parameters: Vec<Value>,
    ) -> Result<u64, StoreError> {
        self.sent += 1;
        match &mut self.inner {
            Inner::Sqlite(connection) => crate::engine::sqlite::execute(connection, statement, &parameters),
            Inner::Postgres(connected) => {
                if std::mem::take(&mut self.begin) {
                    connected.pipelined(true, &[]).await?;
                }
                connected.execute(statement, &parameters).await
            }
        }
    }

    /// Runs a statement over many rows: one statement on PostgreSQL, a cached one for each row on SQLite, which is a
    /// call inside the process. Answers the rows of RETURNING; none for no rows.
    pub(crate) async fn bulk(&mut self, bulk: &Bulk, columns: Vec<Column>) -> Result<Vec<Row>, StoreError> {
        Ok(self.bulks(&[(bulk, columns)]).await?.into_iter().flatten().collect())
    }

    /// [`Self::bulk`] of several, none of which needs what another answers: one round trip for all on PostgreSQL. They
    /// are carried out in this order.
    pub(crate) async fn bulks(&mut self, all: &[(&Bulk, Vec<Column>)]) -> Result<Vec<Vec<Row>>, StoreError> {
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
        match &mut self.inner {
            Inner::Sqlite(connection) => {
                for at in wanted {
                    let (bulk, columns) = &all[at];
                    answers[at] = crate::engine::sqlite::bulk(connection, bulk.sqlite, columns, lengths[at])?;
                }
            }
            Inner::Postgres(connected) => {
                let statement = |at: &usize| {
                    let (bulk, columns) = &all[*at];
                    (bulk.postgres, columns.iter().map(Column::as_parameter).collect())
                };
                let statements: Vec<Sent<'_>> = wanted.iter().map(statement).collect();
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

/// A piece of work that may share its transaction with others.
pub(crate) trait Joint: Send {
    /// Runs; false when its changes are to be undone.
    fn run(&mut self, tx: &mut Tx) -> bool;
    /// Tells the caller; `failed` when the shared transaction was not committed.
    fn settle(self: Box<Self>, failed: Option<&StoreError>);
}

pub(crate) struct JointWork<T, F> {
    name: &'static str,
    work: Option<F>,
    outcome: Option<Result<T, StoreError>>,
    reply: Option<oneshot::Sender<Result<T, StoreError>>>,
}

impl<T, F> JointWork<T, F> {
    pub(crate) fn new(name: &'static str, work: F) -> (Self, oneshot::Receiver<Result<T, StoreError>>) {
        let (reply, answer) = oneshot::channel();
        (Self { name, work: Some(work), outcome: None, reply: Some(reply) }, answer)
    }
}

impl<T, F> Joint for JointWork<T, F>
where
    T: Send + 'static,
    F: for<'t> FnOnce(&'t mut Tx) -> BoxFuture<'t, Result<T, StoreError>> + Send + 'static,
{
    fn run(&mut self, tx: &mut Tx) -> bool {
        let Some(work) = self.work.take() else { return false };
        let outcome = work(tx).now_or_never().unwrap_or_else(|| {
            Err(StoreError::Statement {
                statement: self.name.to_owned(),
                source: "a transaction waited for something other than its database".into(),
            })
        });
        let good = outcome.is_ok();
        self.outcome = Some(outcome);
        good
    }

    fn settle(mut self: Box<Self>, failed: Option<&StoreError>) {
        let outcome = match (failed, self.outcome.take()) {
            (_, Some(Err(own))) => Err(own),
            (Some(error), _) => Err(error.again()),
            (None, Some(outcome)) => outcome,
            (None, None) => Err(StoreError::Closed),
        };
        if let Some(reply) = self.reply.take() {
            // Whoever went away needs no answer.
            let _ = reply.send(outcome);
        }
    }
}

impl Store {
    /// Runs `work` in one transaction: committed when it answers `Ok`, undone when it answers `Err`.
    ///
    /// The future awaits nothing but the transaction's own methods. On SQLite, work that waits together shares one
    /// commit. An error that [`StoreError::is_transient`] may be tried again by the caller.
    ///
    /// # Errors
    /// Those of `work`, and those of the database.
    ///
    /// # Cancellation
    /// Dropping the future may leave the work done or not, never half.
    pub async fn write<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl for<'t> FnOnce(&'t mut Tx) -> BoxFuture<'t, Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.joint(name, work).await,
            Backend::Postgres(postgres) => postgres.write(Planned::EachTime, work).await,
        }
    }

    /// [`Store::write`] for statements that find each row by an index: PostgreSQL plans them once a connection, whatever
    /// their tables hold then.
    ///
    /// # Errors
    /// As [`Store::write`].
    pub async fn write_points<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl for<'t> FnOnce(&'t mut Tx) -> BoxFuture<'t, Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.joint(name, work).await,
            Backend::Postgres(postgres) => postgres.write(Planned::Once, work).await,
        }
    }

    /// Statements sent to the database through this handle and its clones since it was opened; a bulk statement counts
    /// once. For tests and metrics.
    #[must_use]
    pub fn statements_sent(&self) -> u64 {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.sent(),
            Backend::Postgres(postgres) => postgres.sent(),
        }
    }

    /// Whether this is PostgreSQL.
    #[must_use]
    pub fn is_postgres(&self) -> bool {
        matches!(self.backend, Backend::Postgres(_))
    }
}
