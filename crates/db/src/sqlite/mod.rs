//! SQLite: one writer connection on its own thread, and a few read connections.
//!
//! Journal: WAL with `synchronous = FULL`. A committed write survives `kill -9` and a power failure. Waiting transactions and
//! statements share one commit, and so one disk flush. With [`StoreOptions::lossy`] the disk is flushed only at checkpoints.
//!
//! Several processes may open the same file. Reads never wait. A write transaction waits up to five seconds for another one and
//! then fails with [`StoreError::Busy`], which is transient.

pub(crate) mod connection;
mod transaction;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::{Semaphore, mpsc, oneshot};

use connection::{
    WalIndexLocation, connect, create_private_file, execute, open_error, pragma, rows, translate,
};
pub use transaction::{Parameter, SqliteTransaction};

use crate::disk::Disk;
use crate::error::StoreError;
use crate::joint::{JointWork, Work, WorkResult};
use crate::migrate::{
    self, AppliedMigration, MIGRATION_RECORD, MIGRATIONS_APPLIED, MIGRATIONS_TABLE, Migration,
    OLDEST_COMPATIBLE,
};
use crate::options::{Fault, StoreOptions};
use crate::pool::PoolUse;
use crate::tx::{Tx, TxConnection};
use crate::value::{Row, Value};

/// Number of read connections. On two cores more would only use memory.
const READERS: usize = 4;

/// Number of connections of one process: the readers and the writer.
pub(crate) const CONNECTIONS_MAX: usize = READERS + 1;

/// Maximum number of calls that wait for the writer thread: a few times the size of one commit.
const WRITES_WAITING_MAX: usize = 256;

/// Maximum number of jobs that share one commit. Each error rolls back only its own job; the limit bounds how long the first job
/// waits for the last.
const JOINT_MAX: usize = 64;

/// Page cache of the writer in KiB. Index pages of a million endpoints are read repeatedly.
const WRITER_CACHE_KIB: i64 = 16 << 10;

/// Page cache of each reader in KiB.
const READER_CACHE_KIB: i64 = 2 << 10;

enum Job {
    /// Work that uses the connection exclusively and starts its own transaction.
    Alone(Box<dyn FnOnce(&mut WriterState) + Send>),
    /// Work that shares a transaction with other waiting work.
    Joint(JointWork),
    /// A single statement, which shares a transaction only if other work waits.
    Statement(JointWork),
}

struct WriterState {
    tx: Tx,
    fault: Arc<AtomicU8>,
    sent: Arc<AtomicU64>,
}

pub(crate) struct Sqlite {
    path: PathBuf,
    jobs: mpsc::Sender<Job>,
    readers: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
    sent: Arc<AtomicU64>,
}

impl Sqlite {
    pub(crate) fn open(
        path: &Path,
        options: &StoreOptions,
        migrations: &[Migration],
        now_us: i64,
    ) -> Result<Self, StoreError> {
        create_private_file(path).map_err(|source| open_error(path, source))?;
        let index = WalIndexLocation::of(path);
        if index == WalIndexLocation::Memory {
            let disk = Disk::of(path);
            tracing::warn!(
                "{disk} is full: no other process can open this database until this process restarts"
            );
        }
        let mut writer = connect(path, WRITER_CACHE_KIB, index)?;
        let set = |connection: &Connection, name: &str, value: i64| {
            pragma(connection, name, value).map_err(|error| translate(connection, "open", error))
        };
        if options.lossy {
            // 1 means NORMAL.
            set(&writer, "synchronous", 1)?;
        }
        if let Some(pages) = options.sqlite_pages_max {
            set(&writer, "max_page_count", pages.into())?;
        }
        migrate(&mut writer, path, migrations, now_us)?;
        let mut readers = Vec::with_capacity(READERS);
        for _ in 0..READERS {
            let reader = connect(path, READER_CACHE_KIB, index)?;
            set(&reader, "query_only", 1)?;
            readers.push(reader);
        }
        let (jobs, queue) = mpsc::channel::<Job>(WRITES_WAITING_MAX);
        let sent = Arc::new(AtomicU64::new(0));
        let state = WriterState {
            tx: Tx { connection: TxConnection::Sqlite(writer), audit_head: None, sent: 0, begin: false },
            fault: Arc::clone(&options.fault),
            sent: Arc::clone(&sent),
        };
        std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || write_until_closed(state, queue))
            .map_err(|source| open_error(path, source))?;
        let permits = Arc::new(Semaphore::new(READERS));
        let path = path.to_owned();
        Ok(Self { path, jobs, readers: Arc::new(Mutex::new(readers)), permits, sent })
    }

    /// Runs `work` on the writer thread. Dropping the future does not cancel it.
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

    /// Runs `work` in a transaction that it may share with other waiting work.
    pub(crate) async fn joint(&self, name: &'static str, work: Work) -> Result<(), StoreError> {
        self.enqueue(Job::Joint, name, work).await
    }

    /// Runs one statement, which may share a commit with other waiting work.
    pub(crate) async fn execute(&self, statement: String, parameters: Vec<Value>) -> Result<u64, StoreError> {
        let (work, changed) =
            WorkResult::of(move |tx| async move { tx.execute(&statement, parameters).await }.boxed());
        self.enqueue(Job::Statement, "-- statement", work).await?;
        changed.take()
    }

    async fn enqueue(
        &self,
        job: fn(JointWork) -> Job,
        name: &'static str,
        work: Work,
    ) -> Result<(), StoreError> {
        let (work, outcome) = JointWork::new(name, work);
        self.jobs.send(job(work)).await.map_err(|_| StoreError::Closed)?;
        outcome.await.map_err(|_| StoreError::Closed)?
    }

    /// Returns the current state of the file's disk.
    pub(crate) fn disk(&self) -> Disk {
        Disk::of(&self.path)
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

    /// Runs `work` in an exclusive transaction, then `committed`.
    pub(crate) async fn exclusive<T: 'static, U: Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce(&SqliteTransaction<'_>) -> Result<T, StoreError> + Send + 'static,
        committed: impl FnOnce(T) -> U + Send + 'static,
    ) -> Result<U, StoreError> {
        self.write(move |state| state.transaction(name, work, committed)).await
    }

    /// Reads a few rows by an index. Takes microseconds, so it runs on the calling thread.
    pub(crate) async fn point(
        &self,
        statement: &str,
        parameters: Vec<Value>,
    ) -> Result<Vec<Row>, StoreError> {
        let _permit = self.permits.acquire().await.map_err(|_| StoreError::Closed)?;
        self.sent.fetch_add(1, Ordering::Relaxed);
        with_reader(&self.readers, |reader| rows(reader, statement, parameters))
    }

    /// Reads possibly many rows, on a blocking thread.
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
            let connection = state.connection()?;
            connection.prepare(&statement).map(drop).map_err(|error| translate(connection, &statement, error))
        })
        .await
    }

    pub(crate) async fn set_pages_max(&self, pages: u32) -> Result<(), StoreError> {
        self.write(move |state| {
            let connection = state.connection()?;
            pragma(connection, "max_page_count", pages.into())
                .map_err(|error| translate(connection, "open", error))
        })
        .await
    }
}

impl WriterState {
    fn connection(&self) -> Result<&Connection, StoreError> {
        match &self.tx.connection {
            TxConnection::Sqlite(connection) => Ok(connection),
            TxConnection::Postgres(_) => Err(StoreError::Closed),
        }
    }

    fn run(&self, statement: &str) -> Result<(), StoreError> {
        execute(self.connection()?, statement, &[]).map(drop)
    }

    /// Runs one statement in its own implicit transaction.
    fn exclusive(&mut self, mut job: JointWork) {
        job.run(&mut self.tx);
        self.sent.fetch_add(std::mem::take(&mut self.tx.sent), Ordering::Relaxed);
        job.reply_outcome(None);
    }

    /// Runs several jobs in one transaction. A failed job is rolled back alone. Faults are injected only into transactions, not
    /// into single statements.
    fn run_batch(&mut self, mut jobs: Vec<JointWork>, injects_faults: bool) {
        let failed = self.run_in_one_transaction(&mut jobs, injects_faults).err();
        if failed.is_some() && self.connection().is_ok_and(|connection| !connection.is_autocommit()) {
            // A failed rollback needs no handling: the next BEGIN will report it.
            let _ = self.run("ROLLBACK");
        }
        self.tx.audit_head = None;
        self.sent.fetch_add(std::mem::take(&mut self.tx.sent), Ordering::Relaxed);
        for job in jobs {
            job.reply_outcome(failed.as_ref());
        }
    }

    fn run_in_one_transaction(
        &mut self,
        jobs: &mut [JointWork],
        injects_faults: bool,
    ) -> Result<(), StoreError> {
        self.run("BEGIN IMMEDIATE")?;
        let mut has_changes = false;
        for job in jobs.iter_mut() {
            self.tx.audit_head = None;
            has_changes |= match has_changes {
                true => self.run_in_savepoint(job)?,
                false => self.run_first(job)?,
            };
        }
        if injects_faults && Fault::BeforeCommit.take(&self.fault) {
            return Err(Fault::BeforeCommit.error());
        }
        self.run("COMMIT")?;
        if injects_faults && Fault::AfterCommit.take(&self.fault) {
            return Err(Fault::AfterCommit.error());
        }
        Ok(())
    }

    /// Runs a job in a transaction without changes. If the job fails, a new transaction begins. There is no savepoint: within one,
    /// SQLite walks the copies of all changed pages after each statement, so that a job of many statements takes quadratic time.
    /// Returns whether the job succeeded.
    fn run_first(&mut self, job: &mut JointWork) -> Result<bool, StoreError> {
        let succeeded = job.run(&mut self.tx);
        // SQLite aborts the whole transaction for some errors, such as a full disk.
        match (succeeded, self.connection()?.is_autocommit()) {
            (true, false) => return Ok(true),
            (true, true) => return Err(transaction_aborted()),
            (false, false) => self.run("ROLLBACK")?,
            (false, true) => {}
        }
        self.run("BEGIN IMMEDIATE")?;
        Ok(false)
    }

    /// Runs a job after other jobs of the transaction. Returns whether it succeeded.
    fn run_in_savepoint(&mut self, job: &mut JointWork) -> Result<bool, StoreError> {
        self.run("SAVEPOINT job")?;
        let succeeded = job.run(&mut self.tx);
        if self.connection()?.is_autocommit() {
            // SQLite aborts the whole transaction for some errors, such as a full disk.
            return Err(job.full().unwrap_or_else(transaction_aborted));
        }
        if !succeeded {
            self.run("ROLLBACK TO job")?;
        }
        self.run("RELEASE job")?;
        Ok(succeeded)
    }

    fn transaction<T, U>(
        &mut self,
        name: &'static str,
        work: impl FnOnce(&SqliteTransaction<'_>) -> Result<T, StoreError>,
        committed: impl FnOnce(T) -> U,
    ) -> Result<U, StoreError> {
        let connection = self.connection()?;
        // Cannot nest: the connection is used only here, and no transaction is open.
        let transaction = match Transaction::new_unchecked(connection, TransactionBehavior::Immediate) {
            Ok(transaction) => transaction,
            Err(error) => return Err(translate(connection, name, error)),
        };
        let answer = work(&SqliteTransaction::of(&transaction))?;
        if Fault::BeforeCommit.take(&self.fault) {
            drop(transaction);
            return Err(Fault::BeforeCommit.error());
        }
        transaction.commit().map_err(|error| translate(connection, name, error))?;
        let answer = committed(answer);
        if Fault::AfterCommit.take(&self.fault) {
            return Err(Fault::AfterCommit.error());
        }
        Ok(answer)
    }
}

fn write_until_closed(mut state: WriterState, mut queue: mpsc::Receiver<Job>) {
    let mut next = None;
    while let Some(job) = next.take().or_else(|| queue.blocking_recv()) {
        let (first, mut injects_faults) = match job {
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
                    injects_faults = true;
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
            Some(statement) if jobs.is_empty() && !injects_faults => state.exclusive(statement),
            Some(last) => {
                jobs.push(last);
                state.run_batch(jobs, injects_faults);
            }
            None => {}
        }
    }
}

fn transaction_aborted() -> StoreError {
    StoreError::Unavailable { source: "another operation ended the shared transaction".into() }
}

/// Runs `read` with a reader connection. The caller has a permit, so a connection is free.
fn with_reader<T>(
    readers: &Mutex<Vec<Connection>>,
    read: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let reader = readers.lock().unwrap_or_else(PoisonError::into_inner).pop().ok_or(StoreError::Closed)?;
    let answer = read(&reader);
    readers.lock().unwrap_or_else(PoisonError::into_inner).push(reader);
    answer
}

fn migrate(
    connection: &mut Connection,
    path: &Path,
    migrations: &[Migration],
    now_us: i64,
) -> Result<(), StoreError> {
    let database = path.display().to_string();
    // An immediate transaction: a second process that opens the file concurrently waits here and then finds nothing to migrate.
    let transaction = connection
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .map_err(|source| open_error(path, source))?;
    transaction.execute_batch(MIGRATIONS_TABLE).map_err(|source| open_error(path, source))?;
    let mut applied = Vec::new();
    for mut row in rows(&transaction, MIGRATIONS_APPLIED, Vec::new())? {
        applied.push(AppliedMigration { version: row.int()?, checksum: row.text()? });
    }
    let oldest = match migrate::has_newer_migration(migrations, &applied) {
        true => rows(&transaction, OLDEST_COMPATIBLE, Vec::new())?.first_mut().map(Row::int).transpose()?,
        false => None,
    };
    for migration in migrate::pending(&database, migrations, &applied, oldest)? {
        transaction.execute_batch(migration.sql).map_err(|source| open_error(path, source))?;
        transaction
            .execute(MIGRATION_RECORD, rusqlite::params_from_iter(migrate::record_of(migration, now_us)))
            .map_err(|source| open_error(path, source))?;
    }
    transaction.commit().map_err(|source| open_error(path, source))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use futures_util::FutureExt;

    use super::*;

    #[test]
    #[cfg(unix)]
    fn new_sqlite_database_is_readable_only_by_its_owner() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data/inventory.db");
        create_private_file(&path).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        create_private_file(&path).unwrap();
    }

    // A requested fault is injected once: the next batch is stored.
    #[test]
    fn injected_fault_triggers_once() {
        let fault = AtomicU8::new(0);
        fault.store(Fault::BeforeCommit as u8, Ordering::SeqCst);
        assert!(!Fault::AfterCommit.take(&fault));
        assert!(Fault::BeforeCommit.take(&fault));
        assert!(!Fault::BeforeCommit.take(&fault));
    }

    /// Counts the commits in a WAL file: frames that contain the file size after the commit
    /// (<https://sqlite.org/fileformat2.html#walformat>).
    fn commits(log: &Path) -> usize {
        let log = std::fs::read(log).unwrap();
        log[32..].chunks_exact(24 + 4_096).filter(|frame| frame[4..8] != [0; 4]).count()
    }

    /// The writer is blocked while the statements are queued, so that they wait together.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn queued_statements_share_one_commit_and_fail_individually() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.db");
        let sqlite = Arc::new(Sqlite::open(&file, &StoreOptions::default(), &[], 0).unwrap());
        let put = |number: i64| {
            let sqlite = Arc::clone(&sqlite);
            async move { sqlite.execute("INSERT INTO few (n) VALUES (?1)".to_owned(), vec![number.into()]).await }
        };
        sqlite.execute("CREATE TABLE few (n INTEGER PRIMARY KEY)".to_owned(), Vec::new()).await.unwrap();
        assert_eq!(put(0).await.unwrap(), 1);
        let log = folder.path().join("a.db-wal");
        let before = commits(&log);
        let (release, released) = std::sync::mpsc::channel::<()>();
        let holding = sqlite.write(move |_| Ok(released.recv().is_ok()));
        let waiting = futures_util::future::join_all((0..10).map(put));
        let release = async {
            while sqlite.jobs.capacity() > WRITES_WAITING_MAX - 10 {
                tokio::task::yield_now().await;
            }
            release.send(()).unwrap();
        };
        let (was_released, put, ()) = tokio::join!(holding, waiting, release);
        assert!(was_released.unwrap());
        assert!(put[0].is_err(), "it was there");
        assert!(put[1..].iter().all(|put| matches!(put, Ok(1))), "{put:?}");
        assert_eq!(commits(&log) - before, 1);
        let mut counted = sqlite.point("SELECT count(*) FROM few", Vec::new()).await.unwrap();
        assert_eq!(counted.remove(0).int().unwrap(), 10);
    }

    /// The first job fails, and one after others.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn failed_jobs_of_a_batch_leave_no_changes_and_the_others_are_committed() {
        let folder = tempfile::tempdir().unwrap();
        let sqlite =
            Arc::new(Sqlite::open(&folder.path().join("a.db"), &StoreOptions::default(), &[], 0).unwrap());
        sqlite.execute("CREATE TABLE few (n INTEGER PRIMARY KEY)".to_owned(), Vec::new()).await.unwrap();
        let put_twice = |number: i64| {
            let again = if number % 4 == 0 { number } else { number + 100 };
            let sqlite = Arc::clone(&sqlite);
            async move {
                let work: crate::joint::Work = Box::new(move |tx| {
                    async move {
                        for number in [number, again] {
                            tx.execute("INSERT INTO few (n) VALUES (?1)", vec![number.into()]).await?;
                        }
                        Ok(())
                    }
                    .boxed()
                });
                sqlite.joint("put_twice", work).await
            }
        };
        let (release, released) = std::sync::mpsc::channel::<()>();
        let holding = sqlite.write(move |_| Ok(released.recv().is_ok()));
        let waiting = futures_util::future::join_all((0..8).map(put_twice));
        let release = async {
            while sqlite.jobs.capacity() > WRITES_WAITING_MAX - 8 {
                tokio::task::yield_now().await;
            }
            release.send(()).unwrap();
        };
        let (_, put, ()) = tokio::join!(holding, waiting, release);
        let failed: Vec<usize> = (0..8).filter(|number| put[*number].is_err()).collect();
        assert_eq!(failed, [0, 4], "{put:?}");
        let rows = sqlite.point("SELECT n FROM few ORDER BY n", Vec::new()).await.unwrap();
        let stored: Vec<i64> = rows.into_iter().map(|mut row| row.int().unwrap()).collect();
        assert_eq!(stored, [1, 2, 3, 5, 6, 7, 101, 102, 103, 105, 106, 107]);
    }
}
