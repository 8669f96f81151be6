//! How a store is opened.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::error::StoreError;

/// Options of [`crate::Store::open_with`]; the default is right outside tests.
#[derive(Clone, Debug, Default)]
pub struct StoreOptions {
    /// The largest size of an SQLite file in pages of 4 KiB; `None` leaves it to the disk.
    pub sqlite_pages_max: Option<u32>,
    /// Which fault the next transaction of `record` meets; for tests.
    #[doc(hidden)]
    pub fault: Arc<AtomicU8>,
}

/// A crash at one of the two moments that matter.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Fault {
    /// The connection goes before the commit: nothing was stored.
    BeforeCommit = 1,
    /// The connection goes after the commit: everything was stored, and nobody was told.
    AfterCommit = 2,
}

impl Fault {
    /// Whether this fault was asked for; asks for it no longer.
    pub(crate) fn take(self, switch: &AtomicU8) -> bool {
        switch.load(Ordering::Relaxed) != 0
            && switch.compare_exchange(self as u8, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    pub(crate) fn error(self) -> StoreError {
        StoreError::Unavailable { source: format!("fault asked for by a test: {self:?}").into() }
    }
}
