//! The handle on the audit log.

use std::sync::Arc;

use authority::keystore::KeyStore;
use store::{Clock, Store};

use crate::options::AuditOptions;
use crate::tables::SEALED_SEGMENTS;
use crate::witness::Witnesses;

/// Parts of the audit log.
pub struct AuditParts {
    /// The database.
    pub store: Store,
    /// The keys at rest, among which the audit key is.
    pub keystore: KeyStore,
    /// The time.
    pub clock: Clock,
    /// Settings.
    pub options: AuditOptions,
}

/// The audit log. Cheap to clone.
#[derive(Clone)]
pub struct AuditLog {
    pub(crate) parts: Arc<AuditParts>,
    pub(crate) witnesses: Arc<Witnesses>,
}

impl std::fmt::Debug for AuditLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuditLog").field("options", &self.parts.options).finish_non_exhaustive()
    }
}

impl AuditLog {
    /// Over a database and the keys at rest.
    #[must_use]
    pub fn new(parts: AuditParts) -> Self {
        parts.keystore.also_sealed(&SEALED_SEGMENTS);
        let witnesses = Arc::new(Witnesses::new(&parts.options.witness));
        Self { parts: Arc::new(parts), witnesses }
    }
}
