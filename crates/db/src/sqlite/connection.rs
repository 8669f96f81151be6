//! One SQLite connection: opening it, running statements, classifying errors.

use std::ffi::CStr;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, ToSql};

use crate::column::Column;
use crate::disk::Disk;
use crate::error::{Cause, StoreError};
use crate::statement::name_of;
use crate::value::{Row, Value};

/// Time in milliseconds for which a statement waits for another process' transaction. A batch takes a few milliseconds, a
/// checkpoint of a full log a few hundred.
const BUSY_MS: u64 = 5_000;

/// Page cache in KiB of the connection that only checks whether reads work.
const READ_CACHE_KIB: i64 = 256;

/// Maximum number of prepared statements per connection: enough for all fixed statements and some filter combinations.
const STATEMENTS_CACHED: usize = 256;

/// Number of pages in the log that trigger a checkpoint: 16 MiB. A checkpoint then takes well under a second, and its cost is
/// spread over about ten thousand rows.
const CHECKPOINT_PAGES: i64 = 4_000;

/// Size in bytes to which the log is truncated after a checkpoint.
const LOG_BYTES_MAX: i64 = 64 << 20;

pub(crate) fn execute(
    connection: &Connection,
    statement: &str,
    parameters: &[Value],
) -> Result<u64, StoreError> {
    let run = || connection.prepare_cached(statement)?.execute(rusqlite::params_from_iter(parameters));
    run().map(|changed| changed as u64).map_err(|error| translate(connection, statement, error))
}

/// Runs the statement for each row. Returns the rows of all executions.
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
    run().map_err(|error| translate(connection, statement, error))
}

fn read_all(
    prepared: &mut rusqlite::CachedStatement<'_>,
    parameters: impl rusqlite::Params,
    all: &mut Vec<Row>,
) -> rusqlite::Result<()> {
    let columns = prepared.column_count();
    let mut found = prepared.query(parameters)?;
    while let Some(row) = found.next()? {
        all.push(decoded(row, columns)?);
    }
    Ok(())
}

pub(super) fn decoded(row: &rusqlite::Row<'_>, columns: usize) -> rusqlite::Result<Row> {
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
    values.map(Row::new)
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
    read().map_err(|error| translate(connection, statement, error))
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

/// Creates a missing directory (0700) and file (0600). They are private, because an inventory reveals an organization's network.
/// SQLite gives its log the same permissions.
pub(super) fn create_private_file(path: &Path) -> std::io::Result<()> {
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

pub(super) fn open_error(path: &Path, source: impl Into<Cause>) -> StoreError {
    StoreError::Open { database: path.display().to_string(), source: source.into() }
}

/// Location of the index of the write-ahead log (WAL) of SQLite.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum WalIndexLocation {
    /// A file beside the database, so that other processes may open the database, too.
    File,
    /// Memory of this process. No other process may open the database. Used when a full disk has no space for the file.
    Memory,
}

impl WalIndexLocation {
    /// Returns `File`, or `Memory` if the disk has no space for the index file.
    pub(super) fn of(path: &Path) -> Self {
        let works = || {
            let connection = connect(path, READ_CACHE_KIB, Self::File)?;
            rows(&connection, "SELECT count(*) FROM sqlite_master", Vec::new())
        };
        match works() {
            Err(StoreError::Full { .. }) => Self::Memory,
            Err(StoreError::Open { .. }) if Disk::of(path).is_full() => Self::Memory,
            _ => Self::File,
        }
    }

    /// Returns the name of the SQLite VFS (<https://sqlite.org/vfs.html>, standard Unix VFSes).
    fn vfs(self) -> &'static CStr {
        match self {
            Self::File => c"unix",
            Self::Memory => c"unix-excl",
        }
    }
}

pub(super) fn connect(
    path: &Path,
    cache_kib: i64,
    index: WalIndexLocation,
) -> Result<Connection, StoreError> {
    let open = || -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags_and_vfs(path, flags, index.vfs())?;
        connection.busy_timeout(Duration::from_millis(BUSY_MS))?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
        // Use one plan per statement for all parameter values. Otherwise, if statistics exist, SQLite prepares a statement again
        // for each new value. That costs a third of reading a row (https://sqlite.org/queryplanner-ng.html#qpstab).
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
        for (name, value) in [
            ("synchronous", 2), // FULL: see the module's comment
            ("wal_autocheckpoint", CHECKPOINT_PAGES),
            ("journal_size_limit", LOG_BYTES_MAX),
            ("cache_size", -cache_kib),
            ("trusted_schema", 0),
            // MEMORY: statement journals go to memory instead of a file, which saves a third of a bulk write.
            ("temp_store", 2),
        ] {
            pragma(&connection, name, value)?;
        }
        Ok(connection)
    };
    open().map_err(|source| open_error(path, source))
}

/// Sets a pragma. Some pragmas return a row and some do not.
pub(super) fn pragma(connection: &Connection, name: &str, value: i64) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(&format!("PRAGMA {name} = {value}"))?;
    let mut answer = statement.query([])?;
    while answer.next()?.is_some() {}
    Ok(())
}

/// Classifies an SQLite error by what the caller can do about it.
pub(super) fn translate(connection: &Connection, statement: &str, error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            StoreError::Busy { source: error.into() }
        }
        Some(ErrorCode::ConstraintViolation) => {
            StoreError::Conflict { statement: name_of(statement).to_owned(), source: error.into() }
        }
        Some(ErrorCode::DiskFull) => {
            StoreError::Full { disk: database_disk(connection), source: error.into() }
        }
        // May be transient, such as a remounted file system or a quota: worth a retry.
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => match database_disk(connection) {
            // SQLite reports missing space for the log's index as an I/O error.
            disk if disk.is_full() => StoreError::Full { disk, source: error.into() },
            _ => StoreError::Unavailable { source: error.into() },
        },
        _ => StoreError::Statement { statement: name_of(statement).to_owned(), source: error.into() },
    }
}

fn database_disk(connection: &Connection) -> Disk {
    connection.path().map(|path| Disk::of(Path::new(path))).unwrap_or_default()
}
