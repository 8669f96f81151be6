//! Which client certificates are revoked, remembered for a moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flight::{Cache, Failed, Fresh};
use parking_lot::RwLock;
use store::StoreError;
use x509::Fingerprint;
use x509::crl::CrlSet;

use super::error::ClientCertificateError;

/// How long a status is believed, for what another node of the cluster revokes. What this process revokes counts at once.
const BELIEVED: Duration = Duration::from_secs(5);

/// Statuses remembered: some hundred bytes each.
const REMEMBERED_MAX: u64 = 16_384;

/// Status of a certificate of our own CA.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Standing {
    /// Issued here by this profile, and not revoked.
    Good(Arc<str>),
    Revoked,
    IssuedElsewhere,
}

type Remembered = Cache<(u64, Fingerprint), Standing, ClientCertificateError>;

/// The statuses of client certificates, and the CRLs of other CAs.
pub(crate) struct Statuses {
    remembered: Remembered,
    /// Part of every key: raised, all statuses are looked up again.
    generation: AtomicU64,
    crls: RwLock<Arc<CrlSet>>,
}

impl Default for Statuses {
    fn default() -> Self {
        Self {
            remembered: Cache::with_entries(REMEMBERED_MAX),
            generation: AtomicU64::new(0),
            crls: RwLock::default(),
        }
    }
}

impl Statuses {
    /// After a revocation, so that it counts at once.
    pub(crate) fn forget(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn crls(&self) -> Arc<CrlSet> {
        Arc::clone(&self.crls.read())
    }

    pub(super) fn replace_crls(&self, crls: CrlSet) {
        *self.crls.write() = Arc::new(crls);
    }

    /// What is remembered of a certificate, or what `look` finds.
    pub(super) async fn standing<F, W>(
        &self,
        fingerprint: Fingerprint,
        look: F,
    ) -> Result<Standing, ClientCertificateError>
    where
        F: FnOnce() -> W + Send + 'static,
        W: Future<Output = Result<Standing, StoreError>> + Send + 'static,
    {
        let generation = self.generation.load(Ordering::SeqCst);
        let look = move || async move {
            // The database's trouble is not remembered.
            let failed = |error| Failed {
                error: ClientCertificateError::Store(Arc::new(error)),
                lifetime: Duration::ZERO,
            };
            look().await.map(|value| Fresh { value, lifetime: BELIEVED }).map_err(failed)
        };
        self.remembered.fetch(&(generation, fingerprint), look).await
    }
}
