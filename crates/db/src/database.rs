//! A database handle for SQLite and PostgreSQL: opening, reads, transactions.

use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use shared::Shared;

use crate::error::StoreError;
use crate::fullness::DiskFullState;
use crate::joint::{Work, WorkResult};
use crate::options::StoreOptions;
use crate::pool::PoolUse;
use crate::postgres::{Postgres, StatementPlanning};
use crate::schema::Schema;
use crate::sqlite::{Sqlite, SqliteTransaction};
use crate::statement::BulkStatement;
use crate::tx::Tx;
use crate::url::{Location, StoreUrl};
use crate::value::{Row, Value};

/// A database. Cheap to clone. Clones share connections.
#[derive(Clone)]
pub struct Database {
    pub(crate) backend: Backend,
    full: DiskFullState,
}

#[derive(Clone)]
pub(crate) enum Backend {
    Sqlite(Shared<Sqlite>),
    Postgres(Shared<Postgres>),
}

/// Number of rows that a read touches.
#[derive(Clone, Copy, Debug)]
pub enum Cost {
    /// A few rows found by an index. PostgreSQL plans the statement once per connection.
    Point,
    /// A page of rows or more.
    Walk,
}

impl Database {
    /// Opens the database and migrates its schema. Creates a missing file and directory, readable only by their owner.
    ///
    /// Several processes may open the same database. On SQLite a write transaction waits five seconds for another one; reads never
    /// wait.
    ///
    /// # Errors
    /// [`StoreError::Open`] when it cannot be opened, [`StoreError::TooNew`] when a newer Bulla has migrated it,
    /// [`StoreError::MigrationChanged`] when its schema is not Bulla's.
    #[crate::boxed]
    pub async fn open(url: &StoreUrl, options: &StoreOptions, schema: Schema) -> Result<Self, StoreError> {
        let now_us = system_now_us();
        let backend = match &url.0 {
            Location::Sqlite(path) => {
                let (path, options) = (path.clone(), options.clone());
                let opened =
                    tokio::task::spawn_blocking(move || Sqlite::open(&path, &options, schema.sqlite, now_us))
                        .await;
                Backend::Sqlite(Shared::new(opened.map_err(|_| StoreError::Closed)??))
            }
            Location::Postgres(address) => Backend::Postgres(Shared::new(
                Postgres::open(address, url.to_string(), options, schema.postgres, now_us).await?,
            )),
        };
        Ok(Self { backend, full: DiskFullState::default() })
    }

    /// Executes a statement that only reads, and returns its rows.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn rows(
        &self,
        cost: Cost,
        statement: &str,
        parameters: Vec<Value>,
    ) -> Result<Vec<Row>, StoreError> {
        match (&self.backend, cost) {
            (Backend::Sqlite(sqlite), Cost::Point) => sqlite.point(statement, parameters).await,
            (Backend::Sqlite(sqlite), Cost::Walk) => sqlite.walk(statement.to_owned(), parameters).await,
            (Backend::Postgres(postgres), Cost::Point) => {
                postgres.rows(StatementPlanning::Once, statement, &parameters).await
            }
            (Backend::Postgres(postgres), Cost::Walk) => {
                postgres.rows(StatementPlanning::EachTime, statement, &parameters).await
            }
        }
    }

    /// Executes a statement that finds rows by an index, and returns the first row.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn row(&self, statement: &str, parameters: Vec<Value>) -> Result<Option<Row>, StoreError> {
        Ok(self.rows(Cost::Point, statement, parameters).await?.into_iter().next())
    }

    /// Returns the rows whose key is among `keys` (hexadecimal). Sends one statement with the keys as a JSON list, or none without
    /// keys.
    ///
    /// # Errors
    /// Database errors.
    pub async fn among<K: ToString>(
        &self,
        statement: &BulkStatement,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Row>, StoreError> {
        let list: Vec<String> = keys.into_iter().map(|key| key.to_string()).collect();
        if list.is_empty() {
            return Ok(Vec::new());
        }
        self.rows(Cost::Point, statement.of(self), vec![serde_json::Value::from(list).to_string().into()])
            .await
    }

    /// Runs one statement in its own transaction. Returns the number of changed rows.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn execute(&self, statement: &str, parameters: Vec<Value>) -> Result<u64, StoreError> {
        self.full.record(match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.execute(statement.to_owned(), parameters).await,
            Backend::Postgres(postgres) => postgres.execute(statement, &parameters).await,
        })
    }

    /// Runs a statement that finds rows by an index, changes and returns them, in its own transaction. PostgreSQL only.
    ///
    /// # Errors
    /// Database errors; [`StoreError::Closed`] on SQLite.
    #[crate::boxed]
    pub async fn write_rows(&self, statement: &str, parameters: &[Value]) -> Result<Vec<Row>, StoreError> {
        match &self.backend {
            Backend::Sqlite(_) => Err(StoreError::Closed),
            Backend::Postgres(postgres) => self.full.record(postgres.write_rows(statement, parameters).await),
        }
    }

    /// Runs `work` in a SQLite transaction that is not shared with other work. After the commit, calls `committed` with the result.
    /// Both run on the writer thread.
    ///
    /// # Errors
    /// Errors of `work`; database errors; [`StoreError::Closed`] on PostgreSQL.
    ///
    /// # Cancellation
    /// Dropping the future does not undo the work.
    pub async fn exclusive<T: 'static, U: Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce(&SqliteTransaction<'_>) -> Result<T, StoreError> + Send + 'static,
        committed: impl FnOnce(T) -> U + Send + 'static,
    ) -> Result<U, StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => self.full.record(sqlite.exclusive(name, work, committed).await),
            Backend::Postgres(_) => Err(StoreError::Closed),
        }
    }

    /// Runs `create` when no table has this name. Concurrent processes wait for each other. PostgreSQL only; does nothing on
    /// SQLite.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn create_table_if_missing(&self, table: &str, create: &str) -> Result<(), StoreError> {
        match &self.backend {
            Backend::Sqlite(_) => Ok(()),
            Backend::Postgres(postgres) => postgres.create_table_if_missing(table, create).await,
        }
    }

    /// Runs `work` in one transaction. Commits it when `work` returns `Ok`, rolls it back on `Err`.
    ///
    /// The future must await only the transaction's own methods. On SQLite, concurrent calls share one commit. The caller may retry
    /// an error that [`StoreError::is_transient`].
    ///
    /// # Errors
    /// Errors of `work`, and database errors.
    ///
    /// # Cancellation
    /// After the future is dropped, the work is either done completely or not at all.
    pub async fn write<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl for<'t> FnOnce(&'t mut Tx) -> BoxFuture<'t, Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (work, answer) = WorkResult::of(work);
        self.transact(name, StatementPlanning::EachTime, work).await?;
        answer.take()
    }

    /// Same as [`Database::write`], for statements that find each row by an index: PostgreSQL plans them once per connection,
    /// independent of the size of the tables.
    ///
    /// # Errors
    /// Same as [`Database::write`].
    pub async fn write_indexed<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl for<'t> FnOnce(&'t mut Tx) -> BoxFuture<'t, Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (work, answer) = WorkResult::of(work);
        self.transact(name, StatementPlanning::Once, work).await?;
        answer.take()
    }

    /// Runs a transaction. The work is boxed, because the generic callers above are compiled again in each crate that uses them.
    #[crate::boxed]
    async fn transact(
        &self,
        name: &'static str,
        planned: StatementPlanning,
        work: Work,
    ) -> Result<(), StoreError> {
        self.full.record(match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.joint(name, work).await,
            Backend::Postgres(postgres) => postgres.write(planned, work).await,
        })
    }

    /// Checks whether the disk has space for writes. On SQLite, checks the free bytes. After a write failed on a full disk, writes
    /// one row at most once a second, until that succeeds.
    ///
    /// # Errors
    /// [`StoreError::Full`] while there is no space; database errors.
    #[crate::boxed]
    pub async fn check_space(&self) -> Result<(), StoreError> {
        let full = |disk| Err(StoreError::Full { disk, source: "writes are rejected".into() });
        if let Backend::Sqlite(sqlite) = &self.backend
            && let disk = sqlite.disk()
            && disk.is_full()
        {
            return full(disk);
        }
        let Some(found) = self.full.found() else { return Ok(()) };
        if !self.full.is_due() {
            return full(found);
        }
        self.probe().await?;
        self.full.clear();
        Ok(())
    }

    /// Returns the number of statements sent through this handle and its clones since it was opened. A bulk statement counts once.
    /// For tests and metrics.
    #[must_use]
    pub fn statements_sent(&self) -> u64 {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.sent(),
            Backend::Postgres(postgres) => postgres.sent(),
        }
    }

    /// Returns whether the database is PostgreSQL.
    #[must_use]
    pub fn is_postgres(&self) -> bool {
        matches!(self.backend, Backend::Postgres(_))
    }

    /// Returns the current use of this process' connections. Sends nothing to the database.
    #[must_use]
    pub fn pools(&self) -> Vec<PoolUse> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.pools().into(),
            Backend::Postgres(postgres) => postgres.pools(),
        }
    }

    /// Returns whether reads currently use the standby of [`StoreOptions::replica`], because the database is unreachable. `None`
    /// without a standby.
    #[must_use]
    pub fn is_reading_replica(&self) -> Option<bool> {
        match &self.backend {
            Backend::Sqlite(_) => None,
            Backend::Postgres(postgres) => postgres.is_reading_replica(),
        }
    }

    /// Changes the size limit of [`StoreOptions::sqlite_pages_max`]. Does nothing on PostgreSQL.
    ///
    /// # Errors
    /// Database errors.
    #[doc(hidden)]
    #[crate::boxed]
    pub async fn set_sqlite_pages_max(&self, pages: u32) -> Result<(), StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.set_pages_max(pages).await,
            Backend::Postgres(_) => Ok(()),
        }
    }
}

impl BulkStatement {
    /// Returns the SQL text for the kind of this database.
    #[must_use]
    pub fn of(&self, database: &Database) -> &'static str {
        if database.is_postgres() { self.postgres } else { self.sqlite }
    }
}

/// Returns the system time in microseconds. Used only to record migrations; all other times come from the caller.
fn system_now_us() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |age| i64::try_from(age.as_micros()).unwrap_or(i64::MAX))
}
