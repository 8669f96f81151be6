//! Certificates just issued, kept for the clients that fetch them next.

use std::sync::Arc;
use std::time::Duration;

use flight::{Cache, Failed, Fresh};
use uuid::Uuid;

use crate::issue::Issued;

/// Certificates kept for clients that fetch them right after they were issued; a kilobyte or two each.
const FRESH_MAX: u64 = 4_096;
/// How long one is kept.
const FRESH_FOR: Duration = Duration::from_secs(60);

/// A certificate just issued: what its download needs.
#[derive(Debug)]
pub(super) struct FreshCertificate {
    pub(super) account: Uuid,
    pub(super) der: Arc<[u8]>,
    pub(super) ca: Uuid,
}

/// Certificates just issued, by order.
pub(crate) struct FreshCertificates(Cache<Uuid, Arc<FreshCertificate>, ()>);

impl FreshCertificates {
    pub(crate) fn new() -> Self {
        Self(Cache::with_entries(FRESH_MAX))
    }

    /// Keeps one for a while.
    pub(crate) async fn keep(&self, order: Uuid, account: Uuid, issued: &Issued) {
        let value = Arc::new(FreshCertificate { account, der: Arc::clone(&issued.der), ca: issued.ca });
        let kept = move || async move { Ok::<_, Failed<()>>(Fresh { value, lifetime: FRESH_FOR }) };
        // It cannot fail, and anyone who kept it before kept the same.
        let _ = self.0.fetch(&order, kept).await;
    }

    pub(super) fn get(&self, order: Uuid) -> Option<Arc<FreshCertificate>> {
        self.0.get(&order)?.outcome.as_ref().ok().cloned()
    }
}
