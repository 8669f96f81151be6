//! SQLite: one writer connection on a thread of its own, a few read connections.
//!
//! Journal: WAL with `synchronous = FULL`: a write that was acknowledged survives `kill -9` and a power cut. Transactions and
//! statements that wait together share one commit, and so one flush of the disk. With [`StoreOptions::lossy`] the disk is flushed
//! at checkpoints alone.
//!
//! Several processes may hold the same file open. Reading never waits; a transaction that writes waits up to
//! [`BUSY_MS`] for another's and then fails with [`StoreError::Busy`], which the [`crate::Writer`] repeats.

use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rusqlite::config::DbConfig;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, ToSql};
use tokio::sync::{Semaphore, mpsc, oneshot};
use uuid::Uuid;

use crate::catalogue as sql;
use crate::engine::database::PoolUse;
use crate::engine::error::StoreError;
use crate::engine::migrate::{self, Applied};
use crate::engine::options::{Fault, StoreOptions};
use crate::engine::tx::{Column, Inner, Joint, JointWork, Tx};
use crate::engine::value::{Row, Value};
use crate::inventory::model::{NewObservation, Recorded};
use crate::inventory::recording::tally::Ids;

/// How long a statement waits for another process' transaction, in milliseconds: a batch takes milliseconds, a
/// checkpoint of a full log a few hundred.
const BUSY_MS: u64 = 5_000;

/// Read connections: on two cores more would only add memory.
const READERS: usize = 4;

/// Connections of one process: those for reading and the one that writes.
pub(crate) const CONNECTIONS_MAX: usize = READERS + 1;

/// Calls that may wait for the writer thread: as many as one commit takes, a few times over.
const WRITES_WAITING_MAX: usize = 256;

/// Most pieces of work that share one commit: an error undoes its own piece only, so the bound is on how long the first
/// waits for the last.
const JOINT_MAX: usize = 64;

/// Prepared statements each connection keeps: all that exist without the combinations of filters, and some of those.
const STATEMENTS_CACHED: usize = 256;

/// Pages written to the log before they are moved into the file: 16 MiB, so that a checkpoint stays well under a
/// second and its cost is spread over some ten thousand rows.
const CHECKPOINT_PAGES: i64 = 4_000;

/// The log is cut back to this after a checkpoint, in bytes.
const LOG_BYTES_MAX: i64 = 64 << 20;

/// Page cache of the writer, KiB. Index pages of a million endpoints are read again and again.
const WRITER_CACHE_KIB: i64 = 16 << 10;

/// Page cache of each reader, KiB.
const READER_CACHE_KIB: i64 = 2 << 10;

enum Job {
    /// Has the connection to itself, and makes its own transaction.
    Alone(Box<dyn FnOnce(&mut WriterState) + Send>),
    /// Shares a transaction with others that wait.
    Joint(Box<dyn Joint>),
    /// Likewise, and needs none when nobody else waits.
    Statement(Box<dyn Joint>),
}

/// What the writer thread owns.
struct WriterState {
    tx: Tx,
    ids: Ids,
    fault: Arc<AtomicU8>,
    sent: Arc<AtomicU64>,
}

pub(crate) struct Sqlite {
    jobs: mpsc::Sender<Job>,
    readers: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
    sent: Arc<AtomicU64>,
}

impl Sqlite {
    pub(crate) fn open(path: &Path, options: &StoreOptions, now_us: i64) -> Result<Self, StoreError> {
        create_private(path).map_err(|source| open_error(path, source))?;
        let mut writer = connect(path, WRITER_CACHE_KIB)?;
        if options.lossy {
            // NORMAL.
            pragma(&writer, "synchronous", 1).map_err(|error| translate("open", error))?;
        }
        if let Some(pages) = options.sqlite_pages_max {
            pragma(&writer, "max_page_count", pages.into()).map_err(|error| translate("open", error))?;
        }
        migrate(&mut writer, path, now_us)?;
        let mut readers = Vec::with_capacity(READERS);
        for _ in 0..READERS {
            let reader = connect(path, READER_CACHE_KIB)?;
            pragma(&reader, "query_only", 1).map_err(|error| translate("open", error))?;
            readers.push(reader);
        }
        let (jobs, queue) = mpsc::channel::<Job>(WRITES_WAITING_MAX);
        let sent = Arc::new(AtomicU64::new(0));
        let state = WriterState {
            tx: Tx { inner: Inner::Sqlite(writer), audit_head: None, sent: 0, begin: false },
            ids: Ids::default(),
            fault: Arc::clone(&options.fault),
            sent: Arc::clone(&sent),
        };
        std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || write_until_closed(state, queue))
            .map_err(|source| open_error(path, source))?;
        let permits = Arc::new(Semaphore::new(READERS));
        Ok(Self { jobs, readers: Arc::new(Mutex::new(readers)), permits, sent })
    }

    /// Runs `work` on the writer thread. Dropping the future does not undo it.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut WriterState) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let job = Job::Alone(Box::new(move |state| {
            let _ = reply.send(work(state));
        }));
        self.jobs.send(job).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Runs `work` in a transaction that it may share with others that wait.
    pub(crate) async fn joint<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl for<'t> FnOnce(&'t mut Tx) -> BoxFuture<'t, Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.enqueue(Job::Joint, name, work).await
    }

    /// Runs one statement; it may share the commit of others that wait.
    pub(crate) async fn execute(&self, statement: String, parameters: Vec<Value>) -> Result<u64, StoreError> {
        self.enqueue(Job::Statement, "-- statement", move |tx| {
            async move { tx.execute(&statement, parameters).await }.boxed()
        })
        .await
    }

    async fn enqueue<T: Send + 'static>(
        &self,
        job: fn(Box<dyn Joint>) -> Job,
        name: &'static str,
        work: impl for<'t> FnOnce(&'t mut Tx) -> BoxFuture<'t, Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (work, answer) = JointWork::new(name, work);
        self.jobs.send(job(Box::new(work))).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn pools(&self) -> [PoolUse; 2] {
        let reading = READERS.saturating_sub(self.permits.available_permits());
        let waiting = WRITES_WAITING_MAX.saturating_sub(self.jobs.capacity());
        [
            PoolUse { name: "readers", in_use: reading, size: READERS },
            PoolUse { name: "writers", in_use: waiting, size: WRITES_WAITING_MAX },
        ]
    }

    pub(crate) async fn record(
        &self,
        scan: Uuid,
        batch: Arc<[NewObservation]>,
    ) -> Result<Recorded, StoreError> {
        self.write(move |state| state.record(scan, &batch)).await
    }

    /// A read that touches a handful of rows by an index: microseconds, so it runs where it is called.
    pub(crate) async fn point(
        &self,
        statement: &str,
        parameters: Vec<Value>,
    ) -> Result<Vec<Row>, StoreError> {
        let _permit = self.permits.acquire().await.map_err(|_| StoreError::Closed)?;
        self.sent.fetch_add(1, Ordering::Relaxed);
        with_reader(&self.readers, |reader| rows(reader, statement, parameters))
    }

    /// A read that may walk many rows: on a thread that may block.
    pub(crate) async fn walk(
        &self,
        statement: String,
        parameters: Vec<Value>,
    ) -> Result<Vec<Row>, StoreError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let readers = Arc::clone(&self.readers);
        self.sent.fetch_add(1, Ordering::Relaxed);
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            with_reader(&readers, |reader| rows(reader, &statement, parameters))
        })
        .await
        .map_err(|_| StoreError::Closed)?
    }

    /// Prepares one statement without running it.
    pub(crate) async fn check(&self, statement: String) -> Result<(), StoreError> {
        self.write(move |state| {
            state.connection()?.prepare(&statement).map(drop).map_err(|error| translate(&statement, error))
        })
        .await
    }

    pub(crate) async fn set_pages_max(&self, pages: u32) -> Result<(), StoreError> {
        self.write(move |state| {
            pragma(state.connection()?, "max_page_count", pages.into())
                .map_err(|error| translate("open", error))
        })
        .await
    }
}

impl WriterState {
    fn connection(&self) -> Result<&Connection, StoreError> {
        match &self.tx.inner {
            Inner::Sqlite(connection) => Ok(connection),
            Inner::Postgres(_) => Err(StoreError::Closed),
        }
    }

    fn run(&self, statement: &str) -> Result<(), StoreError> {
        execute(self.connection()?, statement, &[]).map(drop)
    }

    /// Runs one statement, which is its own transaction.
    fn alone(&mut self, mut job: Box<dyn Joint>) {
        job.run(&mut self.tx);
        self.sent.fetch_add(std::mem::take(&mut self.tx.sent), Ordering::Relaxed);
        job.settle(None);
    }

    /// Runs pieces of work in one transaction. A piece that fails is undone alone. Faults are those of transactions: statements
    /// alone meet none.
    fn together(&mut self, mut jobs: Vec<Box<dyn Joint>>, meets_faults: bool) {
        let failed = self.try_together(&mut jobs, meets_faults).err();
        if failed.is_some() && self.connection().is_ok_and(|connection| !connection.is_autocommit()) {
            // Nothing to be done about a failure to undo: the next BEGIN will tell.
            let _ = self.run("ROLLBACK");
        }
        self.tx.audit_head = None;
        self.sent.fetch_add(std::mem::take(&mut self.tx.sent), Ordering::Relaxed);
        for job in jobs {
            job.settle(failed.as_ref());
        }
    }

    fn try_together(&mut self, jobs: &mut [Box<dyn Joint>], meets_faults: bool) -> Result<(), StoreError> {
        self.run("BEGIN IMMEDIATE")?;
        let alone = jobs.len() == 1;
        for job in jobs.iter_mut() {
            self.tx.audit_head = None;
            self.run("SAVEPOINT piece")?;
            let good = job.run(&mut self.tx);
            if self.connection()?.is_autocommit() {
                // SQLite gives up the whole transaction when the disk is full, among others.
                return if alone { Ok(()) } else { Err(lost()) };
            }
            if !good {
                self.run("ROLLBACK TO piece")?;
            }
            self.run("RELEASE piece")?;
        }
        if meets_faults && Fault::BeforeCommit.take(&self.fault) {
            return Err(Fault::BeforeCommit.error());
        }
        self.run("COMMIT")?;
        if meets_faults && Fault::AfterCommit.take(&self.fault) {
            return Err(Fault::AfterCommit.error());
        }
        Ok(())
    }

    fn record(&mut self, scan: Uuid, batch: &[NewObservation]) -> Result<Recorded, StoreError> {
        let Inner::Sqlite(connection) = &mut self.tx.inner else { return Err(StoreError::Closed) };
        let scan_id = {
            let found = rows(connection, crate::inventory::statements::SCAN_ID, vec![scan.into()])?;
            found.into_iter().next().ok_or(StoreError::UnknownScan(scan))?.int()?
        };
        let transaction = connection
            .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
            .map_err(|error| translate("-- record", error))?;
        let (recorded, learnt) =
            crate::inventory::recording::sqlite::record(&transaction, &self.ids, scan_id, batch)?;
        if Fault::BeforeCommit.take(&self.fault) {
            drop(transaction);
            return Err(Fault::BeforeCommit.error());
        }
        transaction.commit().map_err(|error| translate("-- record", error))?;
        self.ids.learn(learnt);
        if Fault::AfterCommit.take(&self.fault) {
            return Err(Fault::AfterCommit.error());
        }
        Ok(recorded)
    }
}

fn write_until_closed(mut state: WriterState, mut queue: mpsc::Receiver<Job>) {
    let mut next = None;
    while let Some(job) = next.take().or_else(|| queue.blocking_recv()) {
        let (first, mut meets_faults) = match job {
            Job::Alone(work) => {
                work(&mut state);
                continue;
            }
            Job::Joint(first) => (first, true),
            Job::Statement(first) => (first, false),
        };
        let mut jobs = vec![first];
        while jobs.len() < JOINT_MAX {
            match queue.try_recv() {
                Ok(Job::Joint(job)) => {
                    jobs.push(job);
                    meets_faults = true;
                }
                Ok(Job::Statement(job)) => jobs.push(job),
                Ok(other) => {
                    next = Some(other);
                    break;
                }
                Err(_) => break,
            }
        }
        match jobs.pop() {
            Some(statement) if jobs.is_empty() && !meets_faults => state.alone(statement),
            Some(last) => {
                jobs.push(last);
                state.together(jobs, meets_faults);
            }
            None => {}
        }
    }
}

fn lost() -> StoreError {
    StoreError::Unavailable { source: "another piece of work ended the shared transaction".into() }
}

/// Takes a reader for the time of `read`. A permit is held, so one is there.
fn with_reader<T>(
    readers: &Mutex<Vec<Connection>>,
    read: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let reader = readers.lock().unwrap_or_else(PoisonError::into_inner).pop().ok_or(StoreError::Closed)?;
    let answer = read(&reader);
    readers.lock().unwrap_or_else(PoisonError::into_inner).push(reader);
    answer
}

pub(crate) fn execute(
    connection: &Connection,
    statement: &str,
    parameters: &[Value],
) -> Result<u64, StoreError> {
    let run = || connection.prepare_cached(statement)?.execute(rusqlite::params_from_iter(parameters));
    run().map(|changed| changed as u64).map_err(|error| translate(statement, error))
}

/// Runs the statement for each row; answers what each returns.
pub(crate) fn bulk(
    connection: &Connection,
    statement: &str,
    columns: &[Column],
    count: usize,
) -> Result<Vec<Row>, StoreError> {
    let run = || -> rusqlite::Result<Vec<Row>> {
        let mut prepared = connection.prepare_cached(statement)?;
        let returning = prepared.column_count() > 0;
        let mut all = Vec::new();
        for row in 0..count {
            let parameters = columns.iter().map(|column| column.at(row));
            if returning {
                read_all(&mut prepared, rusqlite::params_from_iter(parameters), &mut all)?;
            } else {
                prepared.execute(rusqlite::params_from_iter(parameters))?;
            }
        }
        Ok(all)
    };
    run().map_err(|error| translate(statement, error))
}

fn read_all(
    prepared: &mut rusqlite::CachedStatement<'_>,
    parameters: impl rusqlite::Params,
    all: &mut Vec<Row>,
) -> rusqlite::Result<()> {
    let columns = prepared.column_count();
    let mut found = prepared.query(parameters)?;
    while let Some(row) = found.next()? {
        let values: rusqlite::Result<Vec<Value>> = (0..columns)
            .map(|column| {
                Ok(match row.get_ref(column)? {
                    ValueRef::Null => Value::Null,
                    ValueRef::Integer(number) => Value::Int(number),
                    ValueRef::Real(number) => Value::Int(number as i64),
                    ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
                    ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
                })
            })
            .collect();
        all.push(Row::new(values?));
    }
    Ok(())
}

pub(crate) fn rows(
    connection: &Connection,
    statement: &str,
    parameters: Vec<Value>,
) -> Result<Vec<Row>, StoreError> {
    let read = || -> rusqlite::Result<Vec<Row>> {
        let mut prepared = connection.prepare_cached(statement)?;
        let mut all = Vec::new();
        read_all(&mut prepared, rusqlite::params_from_iter(parameters), &mut all)?;
        Ok(all)
    };
    read().map_err(|error| translate(statement, error))
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// Makes the folder (0700) and the file (0600) when missing: an inventory maps an organisation for whoever reads it.
/// SQLite gives its log the file's permissions.
fn create_private(path: &Path) -> std::io::Result<()> {
    let mut folder = std::fs::DirBuilder::new();
    let mut file = std::fs::OpenOptions::new();
    file.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
        folder.mode(0o700);
        file.mode(0o600);
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        folder.recursive(true).create(parent)?;
    }
    match file.open(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn open_error(path: &Path, source: impl Into<crate::engine::error::Cause>) -> StoreError {
    StoreError::Open { database: path.display().to_string(), source: source.into() }
}

fn connect(path: &Path, cache_kib: i64) -> Result<Connection, StoreError> {
    let open = || -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(Duration::from_millis(BUSY_MS))?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
        // One plan for a statement whatever its parameters: without, statistics make SQLite prepare a statement anew
        // for every new value, a third of the cost of reading a row (https://sqlite.org/queryplanner-ng.html#qpstab).
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
        for (name, value) in [
            ("synchronous", 2), // FULL: see the module's comment
            ("wal_autocheckpoint", CHECKPOINT_PAGES),
            ("journal_size_limit", LOG_BYTES_MAX),
            ("cache_size", -cache_kib),
            ("trusted_schema", 0),
            // MEMORY: what undoes one statement of many rows goes there and not to a file, a third of a bulk write.
            ("temp_store", 2),
        ] {
            pragma(&connection, name, value)?;
        }
        Ok(connection)
    };
    open().map_err(|source| open_error(path, source))
}

/// Some pragmas answer with a row and some do not.
fn pragma(connection: &Connection, name: &str, value: i64) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(&format!("PRAGMA {name} = {value}"))?;
    let mut answer = statement.query([])?;
    while answer.next()?.is_some() {}
    Ok(())
}

fn migrate(connection: &mut Connection, path: &Path, now_us: i64) -> Result<(), StoreError> {
    let database = path.display().to_string();
    // Immediate: a second process that opens the file at the same moment waits here and then finds nothing to do.
    let transaction = connection
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .map_err(|source| open_error(path, source))?;
    transaction.execute_batch(sql::MIGRATIONS_TABLE).map_err(|source| open_error(path, source))?;
    let mut applied = Vec::new();
    for mut row in rows(&transaction, sql::MIGRATIONS_APPLIED, Vec::new())? {
        applied.push(Applied { version: row.int()?, checksum: row.text()? });
    }
    for migration in migrate::pending(&database, sql::SQLITE_MIGRATIONS, &applied)? {
        transaction.execute_batch(migration.sql).map_err(|source| open_error(path, source))?;
        transaction
            .execute(sql::MIGRATION_RECORD, rusqlite::params_from_iter(migrate::record_of(migration, now_us)))
            .map_err(|source| open_error(path, source))?;
    }
    transaction.commit().map_err(|source| open_error(path, source))
}

/// Sorts an SQLite error by what the caller can do about it.
pub(crate) fn translate(statement: &str, error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            StoreError::Busy { source: error.into() }
        }
        Some(ErrorCode::ConstraintViolation) => {
            StoreError::Conflict { statement: sql::name_of(statement).to_owned(), source: error.into() }
        }
        Some(ErrorCode::DiskFull) => StoreError::Full { source: error.into() },
        // A file system that comes and goes, quotas: worth the writer's patience.
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => {
            StoreError::Unavailable { source: error.into() }
        }
        _ => StoreError::Statement { statement: sql::name_of(statement).to_owned(), source: error.into() },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    #[cfg(unix)]
    fn a_new_inventory_is_readable_by_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data/inventory.db");
        create_private(&path).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        create_private(&path).unwrap();
    }

    // The fault switch is read once: the batch after it is stored.
    #[test]
    fn a_fault_happens_once() {
        let fault = AtomicU8::new(0);
        fault.store(Fault::BeforeCommit as u8, Ordering::SeqCst);
        assert!(!Fault::AfterCommit.take(&fault));
        assert!(Fault::BeforeCommit.take(&fault));
        assert!(!Fault::BeforeCommit.take(&fault));
    }

    /// Commits in a log: its frames that say how large the file is after them (<https://sqlite.org/fileformat2.html#walformat>).
    fn commits(log: &Path) -> usize {
        let log = std::fs::read(log).unwrap();
        log[32..].chunks_exact(24 + 4_096).filter(|frame| frame[4..8] != [0; 4]).count()
    }

    /// The writer is held while they come, so that they wait together.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn statements_that_wait_together_share_one_commit_and_fail_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.db");
        let sqlite = Arc::new(Sqlite::open(&file, &StoreOptions::default(), 0).unwrap());
        let put = |number: i64| {
            let sqlite = Arc::clone(&sqlite);
            async move { sqlite.execute("INSERT INTO few (n) VALUES (?1)".to_owned(), vec![number.into()]).await }
        };
        sqlite.execute("CREATE TABLE few (n INTEGER PRIMARY KEY)".to_owned(), Vec::new()).await.unwrap();
        assert_eq!(put(0).await.unwrap(), 1);
        let log = folder.path().join("a.db-wal");
        let before = commits(&log);
        let (release, held) = std::sync::mpsc::channel::<()>();
        let holding = sqlite.write(move |_| Ok(held.recv().is_ok()));
        let waiting = futures_util::future::join_all((0..10).map(put));
        let release = async {
            while sqlite.jobs.capacity() > WRITES_WAITING_MAX - 10 {
                tokio::task::yield_now().await;
            }
            release.send(()).unwrap();
        };
        let (was_held, put, ()) = tokio::join!(holding, waiting, release);
        assert!(was_held.unwrap());
        assert!(put[0].is_err(), "it was there");
        assert!(put[1..].iter().all(|put| matches!(put, Ok(1))), "{put:?}");
        assert_eq!(commits(&log) - before, 1);
        let mut counted = sqlite.point("SELECT count(*) FROM few", Vec::new()).await.unwrap();
        assert_eq!(counted.remove(0).int().unwrap(), 10);
    }
}
