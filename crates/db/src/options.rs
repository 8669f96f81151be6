//! How a store is opened.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crate::error::StoreError;
use crate::url::StoreUrl;

/// Connections to PostgreSQL when nobody says otherwise: four read, eight write. The server's own default is a hundred for
/// everybody, and more writers would only wait for the same disk.
pub const CONNECTIONS_DEFAULT: usize = 12;
/// Fewest connections to PostgreSQL: one reads, one writes.
pub const CONNECTIONS_MIN: usize = 2;
/// Most connections to PostgreSQL: past some hundreds a server needs a pooler before it.
pub const CONNECTIONS_MAX: usize = 1_000;

/// How long a standby is read while the database is away, when nobody says otherwise: as long as clients of the credential
/// store believe what they remember.
pub const REPLICA_ALONE_DEFAULT: Duration = Duration::from_secs(3_600);

/// Options of a database that is opened.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Connections to PostgreSQL that this process opens at most, from [`CONNECTIONS_MIN`] to [`CONNECTIONS_MAX`]: a third of
    /// them read, the others write. SQLite has no server and keeps five descriptors to its file.
    pub connections: usize,
    /// A standby of the PostgreSQL server (streaming replication), read while that is away.
    pub replica: Option<StoreUrl>,
    /// For how long at most, from when the database was first found to be away.
    pub replica_alone: Duration,
    /// The largest size of an SQLite file in pages of 4 KiB; `None` leaves it to the disk.
    pub sqlite_pages_max: Option<u32>,
    /// Whether a power cut may take what an SQLite file was given last, in favour of writes that do not wait for the disk; what is
    /// left is whole. For what can be made again. A crash of the process alone loses nothing.
    pub lossy: bool,
    /// Which fault the next transaction of `record` meets; for tests.
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
    /// Connections to PostgreSQL that read, and that write.
    pub(crate) fn readers_and_writers(&self) -> (usize, usize) {
        let connections = self.connections.clamp(CONNECTIONS_MIN, CONNECTIONS_MAX);
        let readers = (connections / 3).max(1);
        (readers, connections - readers)
    }
}

/// A crash at one of the two moments that matter.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Fault {
    /// The connection goes before the commit: nothing was stored.
    BeforeCommit = 1,
    /// The connection breaks after the commit: the data is stored, but the caller gets an error.
    AfterCommit = 2,
}

impl Fault {
    /// Whether this fault was requested; clears the request.
    pub(crate) fn take(self, switch: &AtomicU8) -> bool {
        switch.load(Ordering::Relaxed) != 0
            && switch.compare_exchange(self as u8, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    pub(crate) fn error(self) -> StoreError {
        StoreError::Unavailable { source: format!("fault asked for by a test: {self:?}").into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_the_connections_read_and_there_is_one_of_each_at_least() {
        for (connections, readers, writers) in
            [(CONNECTIONS_DEFAULT, 4, 8), (5, 1, 4), (2, 1, 1), (3, 1, 2), (0, 1, 1), (9_999, 333, 667)]
        {
            let options = StoreOptions { connections, ..StoreOptions::default() };
            assert_eq!(options.readers_and_writers(), (readers, writers), "{connections}");
        }
    }
}
