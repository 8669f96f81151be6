//! The handle on the audit log.

use std::sync::Arc;

use authority::keystore::KeyStore;
use store::{Clock, Store};

use crate::options::AuditOptions;
use crate::tables::SEALED_SEGMENTS;
use crate::witness::Witnesses;

/// Dependencies of the audit log.
pub struct AuditParts {
    /// Database of the audit log.
    pub store: Store,
    /// The key store, which contains the audit key.
    pub keystore: KeyStore,
    /// Source of the current time; tests replace it.
    pub clock: Clock,
    /// Settings: interval between heads, witnesses, and retention policy.
    pub options: AuditOptions,
}

/// Handle of the audit log: signs heads, sends them to witnesses, seals segments, and verifies the log. Cheap to clone.
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
    /// Creates the audit log from its parts.
    #[must_use]
    pub fn new(parts: AuditParts) -> Self {
        parts.keystore.register_sealed_column(&SEALED_SEGMENTS);
        let witnesses = Arc::new(Witnesses::new(&parts.options.witness));
        Self { parts: Arc::new(parts), witnesses }
    }
}
