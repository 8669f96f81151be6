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
const KEPT_BYTES_MAX: u64 = 256 << 20;

pub(super) type Key = (Uuid, i64);

/// Cache of CRLs, and a notifier for the task that creates CRLs.
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
            kept: Cache::with_weight_max(KEPT_BYTES_MAX, weigh),
            bell: Notify::new(),
            standing: SharedProgress::default(),
        }
    }
}

impl PublishedCrls {
    /// Notifies the task that creates CRLs, after a revocation on this node.
    pub(crate) fn wake(&self) {
        self.bell.notify_one();
    }

    pub(super) fn forget(&self, ca: Uuid, shard: i64) {
        self.kept.invalidate(&(ca, shard));
    }
}

/// Progress of the background work in this process.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// CRLs that are known to have a database row.
    pub(super) begun: HashSet<(Uuid, i64)>,
    /// Sum of all revocation counters as last read. If it is unchanged, no node has revoked a certificate.
    pub(super) changes: i64,
    pub(super) heard_at_us: i64,
}

/// Progress shared by the clones of an authority.
type SharedProgress = Mutex<Progress>;
