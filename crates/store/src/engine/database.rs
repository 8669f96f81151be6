//! The handle callers hold, over either database.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use uuid::Uuid;

use crate::engine::error::StoreError;
use crate::engine::options::StoreOptions;
use crate::engine::postgres::{Planned, Postgres};
use crate::engine::sqlite::Sqlite;
use crate::engine::tx::Bulk;
use crate::engine::url::{Place, StoreUrl};
use crate::engine::value::{Row, Value};
use crate::inventory::model::{NewObservation, Recorded};

/// Most rows one page gives, whatever was asked for: ten thousand inventory rows are some 20 MiB.
pub const PAGE_ROWS_MAX: usize = 10_000;

/// The inventory's database. Cheap to clone; the clones share connections.
#[derive(Clone)]
pub struct Store {
    pub(crate) backend: Backend,
}

#[derive(Clone)]
pub(crate) enum Backend {
    Sqlite(Arc<Sqlite>),
    Postgres(Arc<Postgres>),
}

/// How much is taken of something that calls to the database wait for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PoolUse {
    /// `readers`, `writers` or `replica`: connections; on SQLite `writers` are calls that wait for the one that writes.
    pub name: &'static str,
    /// Taken now.
    pub in_use: usize,
    /// There are so many; from here callers wait.
    pub size: usize,
}

/// How much of the database a read may touch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cost {
    /// A handful of rows by an index. PostgreSQL plans it once a connection.
    Point,
    /// A page, or more.
    Walk,
}

impl Store {
    /// Opens the database, making the file and its folder when missing (readable by their owner only), and brings its
    /// schema up to date.
    ///
    /// Several processes may have the same database open. On SQLite a transaction that writes waits five seconds for
    /// another's; reading never waits.
    ///
    /// # Errors
    /// [`StoreError::Open`] when it cannot be opened, [`StoreError::TooNew`] when a newer Bulla has migrated it,
    /// [`StoreError::MigrationChanged`] when its schema is not ours.
    pub async fn open(url: &StoreUrl) -> Result<Self, StoreError> {
        Self::open_with(url, &StoreOptions::default()).await
    }

    /// [`Store::open`] with options.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub async fn open_with(url: &StoreUrl, options: &StoreOptions) -> Result<Self, StoreError> {
        let now_us = system_now_us();
        let backend = match &url.0 {
            Place::Sqlite(path) => {
                let (path, options) = (path.clone(), options.clone());
                let opened = tokio::task::spawn_blocking(move || Sqlite::open(&path, &options, now_us)).await;
                Backend::Sqlite(Arc::new(opened.map_err(|_| StoreError::Closed)??))
            }
            Place::Postgres(address) => {
                Backend::Postgres(Arc::new(Postgres::open(address, url.to_string(), options, now_us).await?))
            }
        };
        Ok(Self { backend })
    }

    /// Stores a batch in one transaction: all of it or nothing.
    ///
    /// Idempotent for a scan and endpoint: the first observation stays, a second is counted as a duplicate. So a batch
    /// whose fate is unknown (killed, connection lost) can be given again.
    ///
    /// An observation older than the endpoint's last one is kept in the history and changes nothing else.
    ///
    /// # Errors
    /// [`StoreError::UnknownScan`] before [`Store::begin_scan`]; transient errors (see [`StoreError::is_transient`])
    /// when the database is busy, full or away.
    ///
    /// # Cancellation
    /// Dropping the future may leave the batch stored or not, never half.
    pub async fn record(&self, scan: Uuid, batch: &[NewObservation]) -> Result<Recorded, StoreError> {
        self.record_shared(scan, batch.into()).await
    }

    /// [`Store::record`] without copying the batch.
    ///
    /// # Errors
    /// As [`Store::record`].
    pub async fn record_shared(
        &self,
        scan: Uuid,
        batch: Arc<[NewObservation]>,
    ) -> Result<Recorded, StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.record(scan, batch).await,
            Backend::Postgres(postgres) => postgres.record(scan, &batch).await,
        }
    }

    pub(crate) async fn rows(
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
    pub(crate) async fn row(
        &self,
        statement: &str,
        parameters: Vec<Value>,
    ) -> Result<Option<Row>, StoreError> {
        Ok(self.rows(Cost::Point, statement, parameters).await?.into_iter().next())
    }

    /// Rows whose key is among `keys` (hexadecimal): one statement that takes them as one JSON list, none for no keys.
    pub(crate) async fn among<K: ToString>(
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

    pub(crate) async fn execute(&self, statement: &str, parameters: Vec<Value>) -> Result<u64, StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.execute(statement.to_owned(), parameters).await,
            Backend::Postgres(postgres) => postgres.execute(statement, &parameters).await,
        }
    }

    /// What the database needs before a scan with this row id can be stored: nothing on SQLite.
    pub(crate) async fn prepare_scan(&self, row_id: i64) -> Result<(), StoreError> {
        match &self.backend {
            Backend::Sqlite(_) => Ok(()),
            Backend::Postgres(postgres) => postgres.prepare_scan(row_id).await,
        }
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
    pub async fn set_sqlite_pages_max(&self, pages: u32) -> Result<(), StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.set_pages_max(pages).await,
            Backend::Postgres(_) => Ok(()),
        }
    }
}

/// For the migrations' record only: every other time is the caller's.
fn system_now_us() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |age| i64::try_from(age.as_micros()).unwrap_or(i64::MAX))
}

/// Rows to ask for: one more than the page, to know whether another follows.
pub(crate) fn limit_of(limit: usize) -> (usize, i64) {
    let limit = limit.clamp(1, PAGE_ROWS_MAX);
    (limit, limit as i64 + 1)
}
