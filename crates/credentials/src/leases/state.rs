//! State of the revocation of leases in this process.

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::report::LeaseReport;

/// Totals of all revocation rounds of this process, and the request for the next round.
#[derive(Default)]
pub(crate) struct LeaseUpkeep {
    requested: Notify,
    totals: Mutex<LeaseReport>,
}

impl LeaseUpkeep {
    /// Requests a revocation round, which the background task then starts.
    pub(super) fn request(&self) {
        self.requested.notify_one();
    }

    /// Waits until a revocation round is requested.
    pub(super) async fn requested(&self) {
        self.requested.notified().await;
    }

    pub(super) fn totals(&self) -> MutexGuard<'_, LeaseReport> {
        self.totals.lock()
    }
}
