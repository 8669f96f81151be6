//! The CRLs in memory, and the notification that wakes the task that makes them.

use std::collections::HashSet;
use std::sync::Arc;

use flight::Cache;
use parking_lot::Mutex;
use tokio::sync::Notify;
use uuid::Uuid;

use super::document::CrlDocument;
use super::error::CrlError;

/// CRLs kept in memory, bytes: those asked for within a second come from there. A CRL of a million has 40 MB.
const KEPT_OCTETS_MAX: u64 = 256 << 20;

pub(super) type Key = (Uuid, i64);

/// CRLs in memory, and the bell of anyone who makes them.
pub(crate) struct PublishedCrls {
    pub(super) kept: Cache<Key, Option<Arc<CrlDocument>>, CrlError>,
    pub(super) bell: Notify,
    pub(super) standing: SharedProgress,
}

impl Default for PublishedCrls {
    fn default() -> Self {
        let weigh = |_: &Key, outcome: &Result<Option<Arc<CrlDocument>>, CrlError>| match outcome {
            Ok(Some(document)) => u32::try_from(document.der.len() + 512).unwrap_or(u32::MAX),
            _ => 512,
        };
        Self {
            kept: Cache::with_weight(KEPT_OCTETS_MAX, weigh),
            bell: Notify::new(),
            standing: SharedProgress::default(),
        }
    }
}

impl PublishedCrls {
    /// Something was revoked here.
    pub(crate) fn wake(&self) {
        self.bell.notify_one();
    }

    pub(super) fn forget(&self, ca: Uuid, shard: i64) {
        self.kept.invalidate(&(ca, shard));
    }
}

/// Progress of the work in this process.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// CRLs known to have a row.
    pub(super) begun: HashSet<(Uuid, i64)>,
    /// The sum of all counts of changes, as last read: as long as it stays, nobody has revoked anything.
    pub(super) changes: i64,
    pub(super) heard_at_us: i64,
}

/// Shared by the clones of an authority.
type SharedProgress = Mutex<Progress>;
