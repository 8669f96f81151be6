//! Detection of a full disk from the results of writes.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::disk::Disk;
use crate::error::StoreError;

/// Milliseconds between two probes of a database whose disk is full.
const PROBE_EVERY_MS: i64 = 1_000;

/// Whether writes fail because the disk is full.
#[derive(Clone)]
pub(crate) struct DiskFullState(Arc<State>);

struct State {
    full: Mutex<Option<Disk>>,
    began: Instant,
    /// Time of the last probe, in milliseconds since `began`.
    probed_ms: AtomicI64,
}

impl Default for DiskFullState {
    fn default() -> Self {
        let probed_ms = AtomicI64::new(-PROBE_EVERY_MS);
        Self(Arc::new(State { full: Mutex::default(), began: Instant::now(), probed_ms }))
    }
}

impl DiskFullState {
    /// Records whether a write failed because of a full disk. Returns the outcome unchanged.
    pub(crate) fn record<T>(&self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(StoreError::Full { disk, .. }) = &outcome {
            *self.lock() = Some(disk.clone());
        }
        outcome
    }

    /// Returns the disk that the last writes found full.
    pub(crate) fn found(&self) -> Option<Disk> {
        self.lock().clone()
    }

    pub(crate) fn clear(&self) {
        *self.lock() = None;
    }

    /// Returns whether a probe is due. The caller that gets `true` must run it.
    pub(crate) fn is_due(&self) -> bool {
        let now = i64::try_from(self.0.began.elapsed().as_millis()).unwrap_or(i64::MAX);
        let last = self.0.probed_ms.load(Ordering::Relaxed);
        let due = now.saturating_sub(last) >= PROBE_EVERY_MS;
        due && self.0.probed_ms.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Disk>> {
        self.0.full.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_is_recorded_and_probed_by_one_caller() {
        let fullness = DiskFullState::default();
        assert!(fullness.record(Ok(1)).is_ok());
        assert_eq!(fullness.found(), None);
        let full = StoreError::Full { disk: Disk::default(), source: "full".into() };
        assert!(fullness.record::<()>(Err(full)).is_err());
        assert_eq!(fullness.found(), Some(Disk::default()));
        assert!(fullness.is_due());
        assert!(!fullness.is_due());
        fullness.clear();
        assert_eq!(fullness.found(), None);
    }
}
