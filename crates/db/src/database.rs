//! The handle over either database: opening, reading, transactions.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;

use crate::error::StoreError;
use crate::fullness::Fullness;
use crate::joint::{Work, WorkResult};
use crate::options::StoreOptions;
use crate::pool::PoolUse;
use crate::postgres::{Planned, Postgres};
use crate::schema::Schema;
use crate::sqlite::{Sqlite, SqliteTransaction};
use crate::statement::Bulk;
use crate::tx::Tx;
use crate::url::{Location, StoreUrl};
use crate::value::{Row, Value};

/// A database. Cheap to clone; the clones share connections.
#[derive(Clone)]
pub struct Database {
    pub(crate) backend: Backend,
    full: Fullness,
}

#[derive(Clone)]
pub(crate) enum Backend {
    Sqlite(Arc<Sqlite>),
    Postgres(Arc<Postgres>),
}

/// How much of the database a read may touch.
#[derive(Clone, Copy, Debug)]
pub enum Cost {
    /// A handful of rows by an index. PostgreSQL plans it once a connection.
    Point,
    /// A page, or more.
    Walk,
}

impl Database {
    /// Opens the database, making the file and its folder when missing (readable by their owner only), and brings its
    /// schema up to date.
    ///
    /// Several processes may have the same database open. On SQLite a transaction that writes waits five seconds for
    /// another's; reading never waits.
    ///
    /// # Errors
    /// [`StoreError::Open`] when it cannot be opened, [`StoreError::TooNew`] when a newer Bulla has migrated it,
    /// [`StoreError::MigrationChanged`] when its schema is not ours.
    #[crate::boxed]
    pub async fn open(url: &StoreUrl, options: &StoreOptions, schema: Schema) -> Result<Self, StoreError> {
        let now_us = system_now_us();
        let backend = match &url.0 {
            Location::Sqlite(path) => {
                let (path, options) = (path.clone(), options.clone());
                let opened =
                    tokio::task::spawn_blocking(move || Sqlite::open(&path, &options, schema.sqlite, now_us))
                        .await;
                Backend::Sqlite(Arc::new(opened.map_err(|_| StoreError::Closed)??))
            }
            Location::Postgres(address) => Backend::Postgres(Arc::new(
                Postgres::open(address, url.to_string(), options, schema.postgres, now_us).await?,
            )),
        };
        Ok(Self { backend, full: Fullness::default() })
    }

    /// Reads rows.
    ///
    /// # Errors
    /// Those of the database.
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
                postgres.rows(Planned::Once, statement, &parameters).await
            }
            (Backend::Postgres(postgres), Cost::Walk) => {
                postgres.rows(Planned::EachTime, statement, &parameters).await
            }
        }
    }

    /// The first row of a point read.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn row(&self, statement: &str, parameters: Vec<Value>) -> Result<Option<Row>, StoreError> {
        Ok(self.rows(Cost::Point, statement, parameters).await?.into_iter().next())
    }

    /// Rows whose key is among `keys` (hexadecimal): one statement that takes them as one JSON list, none for no keys.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn among<K: ToString>(
        &self,
        statement: &Bulk,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Row>, StoreError> {
        let list: Vec<String> = keys.into_iter().map(|key| key.to_string()).collect();
        if list.is_empty() {
            return Ok(Vec::new());
        }
        self.rows(Cost::Point, statement.of(self), vec![serde_json::Value::from(list).to_string().into()])
            .await
    }

    /// Runs one statement, in a transaction of its own; returns the number of rows it changed.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn execute(&self, statement: &str, parameters: Vec<Value>) -> Result<u64, StoreError> {
        self.full.note(match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.execute(statement.to_owned(), parameters).await,
            Backend::Postgres(postgres) => postgres.execute(statement, &parameters).await,
        })
    }

    /// Runs a statement that finds its rows by an index, changes them and returns them, in a transaction of its own.
    /// PostgreSQL only.
    ///
    /// # Errors
    /// Those of the database; [`StoreError::Closed`] on SQLite.
    #[crate::boxed]
    pub async fn write_rows(&self, statement: &str, parameters: &[Value]) -> Result<Vec<Row>, StoreError> {
        match &self.backend {
            Backend::Sqlite(_) => Err(StoreError::Closed),
            Backend::Postgres(postgres) => self.full.note(postgres.write_rows(statement, parameters).await),
        }
    }

    /// Runs `work` in a transaction of SQLite that no other work shares; then `committed`, with its answer, once that is
    /// stored. Both run on the thread that writes.
    ///
    /// # Errors
    /// Those of `work`; those of the database; [`StoreError::Closed`] on PostgreSQL.
    ///
    /// # Cancellation
    /// Dropping the future does not undo the work.
    pub async fn alone<T: 'static, U: Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce(&SqliteTransaction<'_>) -> Result<T, StoreError> + Send + 'static,
        committed: impl FnOnce(T) -> U + Send + 'static,
    ) -> Result<U, StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => self.full.note(sqlite.alone(name, work, committed).await),
            Backend::Postgres(_) => Err(StoreError::Closed),
        }
    }

    /// Runs `create` when there is no table with this name. Processes that do this at the same time wait for each other.
    /// PostgreSQL only; does nothing on SQLite.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn create_table_if_missing(&self, table: &str, create: &str) -> Result<(), StoreError> {
        match &self.backend {
            Backend::Sqlite(_) => Ok(()),
            Backend::Postgres(postgres) => postgres.create_table_if_missing(table, create).await,
        }
    }

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
        let (work, answer) = WorkResult::of(work);
        self.transact(name, Planned::EachTime, work).await?;
        answer.take()
    }

    /// [`Database::write`] for statements that find each row by an index: PostgreSQL plans them once a connection, whatever
    /// their tables hold then.
    ///
    /// # Errors
    /// As [`Database::write`].
    pub async fn write_points<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl for<'t> FnOnce(&'t mut Tx) -> BoxFuture<'t, Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (work, answer) = WorkResult::of(work);
        self.transact(name, Planned::Once, work).await?;
        answer.take()
    }

    /// Boxed, because the generic functions above are compiled in each crate that calls them.
    #[crate::boxed]
    async fn transact(&self, name: &'static str, planned: Planned, work: Work) -> Result<(), StoreError> {
        self.full.note(match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.joint(name, work).await,
            Backend::Postgres(postgres) => postgres.write(planned, work).await,
        })
    }

    /// Whether there is room for writes. Looks at the free bytes of SQLite's disk; after a write that found a disk full, writes one
    /// row, once a second at most, until that succeeds.
    ///
    /// # Errors
    /// [`StoreError::Full`] while there is no room; those of the database.
    #[crate::boxed]
    pub async fn room(&self) -> Result<(), StoreError> {
        let full = |disk| Err(StoreError::Full { disk, source: "writes are refused".into() });
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

    /// How much of its connections this process uses at this moment. Asks the database nothing.
    #[must_use]
    pub fn pools(&self) -> Vec<PoolUse> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.pools().into(),
            Backend::Postgres(postgres) => postgres.pools(),
        }
    }

    /// Whether the standby of [`StoreOptions::replica`] is read at this moment, as the database is away; `None` without one.
    #[must_use]
    pub fn replica_is_read(&self) -> Option<bool> {
        match &self.backend {
            Backend::Sqlite(_) => None,
            Backend::Postgres(postgres) => postgres.replica_is_read(),
        }
    }

    /// Moves the size limit of [`StoreOptions::sqlite_pages_max`]; nothing on PostgreSQL.
    ///
    /// # Errors
    /// Those of the database.
    #[doc(hidden)]
    #[crate::boxed]
    pub async fn set_sqlite_pages_max(&self, pages: u32) -> Result<(), StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.set_pages_max(pages).await,
            Backend::Postgres(_) => Ok(()),
        }
    }
}

impl Bulk {
    /// The text for this database.
    #[must_use]
    pub fn of(&self, database: &Database) -> &'static str {
        if database.is_postgres() { self.postgres } else { self.sqlite }
    }
}

/// For the migrations' record only: every other time is the caller's.
fn system_now_us() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |age| i64::try_from(age.as_micros()).unwrap_or(i64::MAX))
}
