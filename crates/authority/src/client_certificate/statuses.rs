//! Cache of the revocation statuses of client certificates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flight::{Cache, Failed, Fresh};
use parking_lot::RwLock;
use store::StoreError;
use x509::Fingerprint;
use x509::crl::CrlSet;

use super::error::ClientCertificateError;

/// Lifetime of a cached status. A revocation by another node takes effect on this node after this time at the latest; a revocation
/// by this process takes effect immediately.
const CACHE_LIFETIME: Duration = Duration::from_secs(5);

/// Maximum number of cached statuses, a few hundred bytes each.
const CACHED_MAX: u64 = 16_384;

/// The status of a certificate that this server issued.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum RevocationStatus {
    /// Issued by this server with this profile, and not revoked.
    Good(Arc<str>),
    Revoked,
    IssuedElsewhere,
}

type CachedStatuses = Cache<(u64, Fingerprint), RevocationStatus, ClientCertificateError>;

/// The cache of statuses of client certificates, and the CRLs of other CAs.
pub(crate) struct StatusCache {
    cached: CachedStatuses,
    /// Part of every cache key. Incrementing it invalidates all statuses.
    generation: AtomicU64,
    crls: RwLock<Arc<CrlSet>>,
}

impl Default for StatusCache {
    fn default() -> Self {
        Self {
            cached: Cache::with_entries_max(CACHED_MAX),
            generation: AtomicU64::new(0),
            crls: RwLock::default(),
        }
    }
}

impl StatusCache {
    /// Invalidates all statuses after a revocation.
    pub(crate) fn forget(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn crls(&self) -> Arc<CrlSet> {
        Arc::clone(&self.crls.read())
    }

    pub(super) fn replace_crls(&self, crls: CrlSet) {
        *self.crls.write() = Arc::new(crls);
    }

    /// Returns the cached status of a certificate. If there is none, calls `lookup` and caches its result.
    pub(super) async fn revocation_status<F, W>(
        &self,
        fingerprint: Fingerprint,
        lookup: F,
    ) -> Result<RevocationStatus, ClientCertificateError>
    where
        F: FnOnce() -> W + Send + 'static,
        W: Future<Output = Result<RevocationStatus, StoreError>> + Send + 'static,
    {
        let generation = self.generation.load(Ordering::SeqCst);
        let lookup = move || async move {
            // Database errors are not cached.
            let failed = |error| Failed {
                error: ClientCertificateError::Store(Arc::new(error)),
                lifetime: Duration::ZERO,
            };
            lookup().await.map(|value| Fresh { value, lifetime: CACHE_LIFETIME }).map_err(failed)
        };
        self.cached.fetch(&(generation, fingerprint), lookup).await
    }
}
