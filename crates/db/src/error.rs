//! What can go wrong between a caller and the database, and what to do about it.

use uuid::Uuid;

use crate::disk::Disk;

/// Fewest hexadecimal digits that name a certificate by the beginning of its fingerprint.
pub const PREFIX_DIGITS_MIN: usize = 4;

/// The error underneath, of whichever driver.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// An error of the store. [`StoreError::is_transient`] says whether a retry may succeed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Operator: correct the address.
    #[error("the database address {text:?} is not usable: {reason}")]
    Url {
        /// As given, with any password replaced.
        text: String,
        /// The error, and the correction.
        reason: String,
    },
    /// Operator: check that the folder or server is there and permitted.
    #[error("cannot open the database {database}: {source}")]
    Open {
        /// The file, or the server without the password.
        database: String,
        /// The error of the system or driver.
        source: Cause,
    },
    /// Operator: run the newer Bulla, or point at another database. Nothing was changed.
    #[error(
        "the database {database} has schema version {found}, and this Bulla knows versions up to {known}: \
         use the Bulla that wrote it or a newer one, or another database"
    )]
    TooNew {
        /// The file, or the server without the password.
        database: String,
        /// The version found.
        found: i64,
        /// The newest version this build knows.
        known: i64,
    },
    /// Operator: restore the database or use the build that wrote it. Nothing was changed.
    #[error(
        "the database {database} was migrated by another text of migration {version}: \
         use the build that wrote it, or restore a backup"
    )]
    MigrationChanged {
        /// The file, or the server without the password.
        database: String,
        /// The migration whose checksum differs.
        version: i64,
    },
    /// Wait: another process holds the write lock, or a transaction lost against another.
    #[error("the database is busy: {source}")]
    Busy {
        /// The error of the driver.
        source: Cause,
    },
    /// Operator: make room. Nothing of the transaction was stored; it can be repeated.
    #[error("{disk} is full: make room ({source})")]
    Full {
        /// Which disk, and how much room it has.
        disk: Disk,
        /// The error of the driver.
        source: Cause,
    },
    /// Wait: the server is gone, starting, or has no connection left. Whether a transaction under way was stored is
    /// unknown; repeating it is safe.
    #[error("the database does not answer: {source}")]
    Unavailable {
        /// The error of the driver.
        source: Cause,
    },
    /// A statement failed in a way that waiting does not heal.
    #[error("the database refused {statement}: {source}")]
    Statement {
        /// The statement's name.
        statement: String,
        /// The error of the driver.
        source: Cause,
    },
    /// Caller: something with this name or key is there already.
    #[error("this is there already ({statement}): {source}")]
    Conflict {
        /// The statement's name.
        statement: String,
        /// The error of the driver.
        source: Cause,
    },
    /// Caller: what was to be changed is not in the state, or of the version, that the change expects.
    #[error("{0}")]
    Stale(String),
    /// The row is not of the shape that this build writes.
    #[error("the database holds a row that this Bulla cannot read: {0}")]
    Corrupt(String),
    /// Caller: take a cursor from the page before, of the same listing.
    #[error("this cursor does not belong to this listing: begin again without it")]
    BadCursor,
    /// Caller: begin the scan first, or check its id.
    #[error("there is no scan {0}: `bulla inventory scans` lists those known")]
    UnknownScan(Uuid),
    /// Caller: give hexadecimal digits.
    #[error("{0:?} is not a fingerprint: give at least {min} hexadecimal digits", min = PREFIX_DIGITS_MIN)]
    BadFingerprint(String),
    /// Caller: give more digits.
    #[error("several certificates begin with {0}: give more digits")]
    AmbiguousFingerprint(String),
    /// The store is being closed.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// Whether the same call may succeed later without anybody changing the call.
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
            | Self::BadFingerprint(_)
            | Self::AmbiguousFingerprint(_)
            | Self::Closed => false,
        }
    }

    /// The same error for another caller of the same transaction.
    pub(crate) fn again(&self) -> Self {
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
