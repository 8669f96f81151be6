//! Cache of CRLs, and a notifier for the task that creates CRLs.

use std::collections::HashSet;
use std::sync::Arc;

use flight::Cache;
use parking_lot::Mutex;
use tokio::sync::Notify;
use uuid::Uuid;

use super::document::CrlDocument;
use super::error::CrlError;

/// Maximum size of the CRL cache in bytes. A CRL with 1,000,000 entries has 40 MB.
const CACHE_BYTES_MAX: u64 = 256 << 20;

pub(super) type Key = (Uuid, i64);

/// Cache of CRLs, and a notifier for the task that creates CRLs.
pub(crate) struct PublishedCrls {
    pub(super) cache: Cache<Key, Option<Arc<CrlDocument>>, CrlError>,
    pub(super) wakeup: Notify,
    pub(super) progress: SharedProgress,
}

impl Default for PublishedCrls {
    fn default() -> Self {
        let weigh = |_: &Key, outcome: &Result<Option<Arc<CrlDocument>>, CrlError>| match outcome {
            Ok(Some(document)) => u32::try_from(document.der.len() + 512).unwrap_or(u32::MAX),
            _ => 512,
        };
        Self {
            cache: Cache::with_weight_max(CACHE_BYTES_MAX, weigh),
            wakeup: Notify::new(),
            progress: SharedProgress::default(),
        }
    }
}

impl PublishedCrls {
    /// Notifies the task that creates CRLs, after a revocation on this node.
    pub(crate) fn wake(&self) {
        self.wakeup.notify_one();
    }

    pub(super) fn forget(&self, ca: Uuid, shard: i64) {
        self.cache.invalidate(&(ca, shard));
    }
}

/// Progress of the background work in this process.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// CRLs that are known to have a database row.
    pub(super) known_crls: HashSet<(Uuid, i64)>,
    /// Sum of all revocation counters as last read. If it is unchanged, no node has revoked a certificate.
    pub(super) changes: i64,
    pub(super) feed_read_at_us: i64,
}

/// Progress shared by the clones of an authority.
type SharedProgress = Mutex<Progress>;
