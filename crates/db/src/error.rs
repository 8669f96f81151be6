//! Errors of the database. Each says how the operator or the caller can correct it, if possible.

use uuid::Uuid;

use crate::disk::Disk;

/// Minimum hexadecimal digits of a fingerprint prefix that selects a certificate.
pub const PREFIX_DIGITS_MIN: usize = 4;

/// The underlying error of either driver.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// An error of the store. [`StoreError::is_transient`] says whether a retry may succeed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database URL is invalid. Operator: correct the URL.
    #[error("invalid database address {text:?}: {reason}")]
    Url {
        /// The URL with any password replaced.
        text: String,
        /// The error, and how to correct it.
        reason: String,
    },
    /// The database cannot be opened. Operator: check that the directory or server exists and is accessible.
    #[error("cannot open the database {database}: {source}")]
    Open {
        /// The file, or the server's URL without the password.
        database: String,
        /// The error of the system or driver.
        source: Cause,
    },
    /// A newer Bulla migrated the database. Operator: run the newer Bulla, or use another database. Nothing was changed.
    #[error(
        "the database {database} has schema version {found}; this Bulla supports at most {known}: \
         upgrade Bulla, or use another database"
    )]
    TooNew {
        /// The file, or the server's URL without the password.
        database: String,
        /// Schema version of the database.
        found: i64,
        /// Newest schema version that this build knows.
        known: i64,
    },
    /// A migration of the database differs from this build's. Operator: restore the database, or use the build that wrote it.
    /// Nothing was changed.
    #[error(
        "the database {database} was migrated by a different migration {version}: use the build that wrote the database, \
         or restore a backup"
    )]
    MigrationChanged {
        /// The file, or the server's URL without the password.
        database: String,
        /// Version of the migration whose checksum differs.
        version: i64,
    },
    /// Another process holds the write lock, or the transaction conflicted with another one. A retry may succeed.
    #[error("the database is busy: {source}")]
    Busy {
        /// The error of the driver.
        source: Cause,
    },
    /// The disk is full. Operator: free some space. Nothing of the transaction was stored; it can be retried.
    #[error("{disk} is full: free some space ({source})")]
    Full {
        /// The disk and its free space.
        disk: Disk,
        /// The error of the driver.
        source: Cause,
    },
    /// The server is unreachable, starting, or out of connections. Whether a pending transaction was stored is unknown; retrying it
    /// is safe.
    #[error("the database does not answer: {source}")]
    Unavailable {
        /// The error of the driver.
        source: Cause,
    },
    /// A statement failed. A retry does not help.
    #[error("the database rejected {statement}: {source}")]
    Statement {
        /// Name of the statement, from its first line.
        statement: String,
        /// The error of the driver.
        source: Cause,
    },
    /// Another row with this name or key exists.
    #[error("the object exists already ({statement}): {source}")]
    Conflict {
        /// Name of the statement, from its first line.
        statement: String,
        /// The error of the driver.
        source: Cause,
    },
    /// The state or revision of the object is not the one that the change expects.
    #[error("{0}")]
    Stale(String),
    /// The row does not have the format that this build writes.
    #[error("the database contains a row that this Bulla cannot read: {0}")]
    Corrupt(String),
    /// The cursor is invalid. Caller: use the cursor of the previous page of the same listing.
    #[error("this cursor does not belong to this listing: start again without a cursor")]
    BadCursor,
    /// The scan does not exist. Caller: start the scan first, or check its id.
    #[error("unknown scan {0}: `bulla inventory scans` lists the known scans")]
    UnknownScan(Uuid),
    /// The requested observations were pruned. Caller: request a later time or newer scans.
    #[error("{0}")]
    Pruned(String),
    /// The fingerprint is not hexadecimal.
    #[error("{0:?} is not a fingerprint: give at least {min} hexadecimal digits", min = PREFIX_DIGITS_MIN)]
    BadFingerprint(String),
    /// The fingerprint prefix matches several certificates. Caller: give more digits.
    #[error("several certificates have fingerprints that begin with {0}: give more digits")]
    AmbiguousFingerprint(String),
    /// The store is closing.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// Returns whether a retry of the same call may succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Busy { .. } | Self::Full { .. } | Self::Unavailable { .. } => true,
            Self::Url { .. }
            | Self::Open { .. }
            | Self::TooNew { .. }
            | Self::MigrationChanged { .. }
            | Self::Statement { .. }
            | Self::Conflict { .. }
            | Self::Stale(_)
            | Self::Corrupt(_)
            | Self::BadCursor
            | Self::UnknownScan(_)
            | Self::Pruned(_)
            | Self::BadFingerprint(_)
            | Self::AmbiguousFingerprint(_)
            | Self::Closed => false,
        }
    }

    /// Copies the error for another caller of the same transaction.
    pub(crate) fn duplicate(&self) -> Self {
        let cause = |source: &Cause| -> Cause { source.to_string().into() };
        match self {
            Self::Busy { source } => Self::Busy { source: cause(source) },
            Self::Full { disk, source } => Self::Full { disk: disk.clone(), source: cause(source) },
            Self::Unavailable { source } => Self::Unavailable { source: cause(source) },
            Self::Closed => Self::Closed,
            other => Self::Statement { statement: "commit".to_owned(), source: other.to_string().into() },
        }
    }
}
