//! Cache of recently issued certificates for their first download.

use std::sync::Arc;
use std::time::Duration;

use flight::{Cache, Failed, Fresh};
use uuid::Uuid;

use crate::issue::Issued;

/// Maximum number of cached certificates, 1 to 2 KB each.
const FRESH_MAX: u64 = 4_096;
/// Lifetime of a cache entry.
const CACHE_LIFETIME: Duration = Duration::from_secs(60);

/// A recently issued certificate with the data that its download needs.
#[derive(Debug)]
pub(super) struct FreshCertificate {
    pub(super) account: Uuid,
    pub(super) der: Arc<[u8]>,
    pub(super) ca: Uuid,
}

/// Cache of recently issued certificates, keyed by the identifier of their order.
pub(crate) struct FreshCertificates(Cache<Uuid, Arc<FreshCertificate>, ()>);

impl FreshCertificates {
    pub(crate) fn new() -> Self {
        Self(Cache::with_entries_max(FRESH_MAX))
    }

    /// Adds a certificate to the cache.
    pub(crate) async fn keep(&self, order: Uuid, account: Uuid, issued: &Issued) {
        let value = Arc::new(FreshCertificate { account, der: Arc::clone(&issued.der), ca: issued.ca });
        let load = move || async move { Ok::<_, Failed<()>>(Fresh { value, lifetime: CACHE_LIFETIME }) };
        // This call cannot fail, and an existing entry has the same content.
        let _ = self.0.fetch(&order, load).await;
    }

    pub(super) fn get(&self, order: Uuid) -> Option<Arc<FreshCertificate>> {
        self.0.get(&order)?.outcome.as_ref().ok().cloned()
    }
}
