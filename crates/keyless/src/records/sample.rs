//! Repeatedly records the same signature, for a benchmark of the cost of records.

use std::sync::Arc;

use super::draft::Draft;
use super::recorder::Recorder;
use crate::tenant::{DEFAULT, Tenant, Tenants};
use crate::{Key, KeySet, Metrics};

/// Creates records of signatures by one key, for the default tenant.
#[doc(hidden)]
pub struct Sample {
    recorder: Recorder,
    key: Arc<Key>,
    tenant: Arc<Tenant>,
}

impl Sample {
    /// Creates samples with the first key of the set; `None` if the set is empty.
    #[must_use]
    pub fn new(recorder: &Recorder, keys: &KeySet) -> Option<Self> {
        let (ski, _) = *keys.list().first()?;
        let tenant = Tenants::new(Metrics::default(), 1).named(DEFAULT);
        Some(Self { recorder: recorder.clone(), key: keys.find(&ski)?, tenant })
    }

    /// Records a signature in the same way as a request that is signed without waiting.
    pub fn record(&self, input: &[u8]) {
        if let Ok(Some(slot)) = self.recorder.slot() {
            let draft = Draft::new(slot, Arc::clone(&self.key), "ecdsa-sha256", input);
            draft.complete(Arc::clone(&self.tenant), None);
        }
    }
}

impl std::fmt::Debug for Sample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sample")
    }
}
