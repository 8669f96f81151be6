//! Options for opening a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crate::error::StoreError;
use crate::url::StoreUrl;

/// Default number of connections to PostgreSQL: four read, eight write. The server's default limit is a hundred for all clients,
/// and more writers would only wait for the same disk.
pub const CONNECTIONS_DEFAULT: usize = 12;
/// Minimum number of connections to PostgreSQL: one reads, one writes.
pub const CONNECTIONS_MIN: usize = 2;
/// Maximum number of connections to PostgreSQL. For more than a few hundred a server needs a connection pooler.
pub const CONNECTIONS_MAX: usize = 1_000;

/// Default time for reading a standby while the database is unreachable. Equal to the time for which clients of the credential
/// store trust their cache.
pub const REPLICA_ALONE_DEFAULT: Duration = Duration::from_secs(3_600);

/// Options for opening a database.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Maximum number of connections to PostgreSQL, from [`CONNECTIONS_MIN`] to [`CONNECTIONS_MAX`]. A third of them read, the
    /// others write. Ignored for SQLite, which always uses five.
    pub connections: usize,
    /// A standby of the PostgreSQL server (streaming replication), used for reads while the server is unreachable.
    pub replica: Option<StoreUrl>,
    /// Maximum time for reading the standby, counted from when the database was first found unreachable.
    pub replica_alone: Duration,
    /// Maximum size of an SQLite file in pages of 4 KiB. `None`: limited by the disk only.
    pub sqlite_pages_max: Option<u32>,
    /// Whether SQLite commits without waiting for the disk. A power failure may then lose the last commits, but never corrupts the
    /// file; a crash of the process loses nothing. Only for data that can be recreated.
    pub lossy: bool,
    /// Fault to inject into the next transaction of `record`, for tests.
    #[doc(hidden)]
    pub fault: Arc<AtomicU8>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            connections: CONNECTIONS_DEFAULT,
            replica: None,
            replica_alone: REPLICA_ALONE_DEFAULT,
            sqlite_pages_max: None,
            lossy: false,
            fault: Arc::default(),
        }
    }
}

impl StoreOptions {
    /// Returns the numbers of PostgreSQL connections for reading and for writing.
    pub(crate) fn readers_and_writers(&self) -> (usize, usize) {
        let connections = self.connections.clamp(CONNECTIONS_MIN, CONNECTIONS_MAX);
        let readers = (connections / 3).max(1);
        (readers, connections - readers)
    }
}

/// A simulated crash before or after a commit.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Fault {
    /// The connection breaks before the commit: nothing is stored.
    BeforeCommit = 1,
    /// The connection breaks after the commit: the data is stored, but the caller gets an error.
    AfterCommit = 2,
}

impl Fault {
    /// Returns whether this fault was requested, and clears the request.
    pub(crate) fn take(self, switch: &AtomicU8) -> bool {
        switch.load(Ordering::Relaxed) != 0
            && switch.compare_exchange(self as u8, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    pub(crate) fn error(self) -> StoreError {
        StoreError::Unavailable { source: format!("fault injected by a test: {self:?}").into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_third_of_connections_are_readers_with_at_least_one_of_each() {
        for (connections, readers, writers) in
            [(CONNECTIONS_DEFAULT, 4, 8), (5, 1, 4), (2, 1, 1), (3, 1, 2), (0, 1, 1), (9_999, 333, 667)]
        {
            let options = StoreOptions { connections, ..StoreOptions::default() };
            assert_eq!(options.readers_and_writers(), (readers, writers), "{connections}");
        }
    }
}
