//! Alerts that a handshake ends with.

use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

/// The alert handshake_failure and its like, by their numbers (RFC 8446 section 6).
pub(super) const INTERNAL_ERROR: u8 = 80;
/// missing_extension: who names no host, where there is no default.
pub(super) const MISSING_EXTENSION: u8 = 109;
/// unrecognized_name (RFC 6066 section 3).
pub(super) const UNRECOGNIZED_NAME: u8 = 112;

/// The alert that a handshake is to end with; 0 for none of ours.
#[derive(Clone, Debug, Default)]
pub(super) struct Alert(Arc<AtomicU8>);

impl Alert {
    pub(super) fn set(&self, number: u8) {
        self.0.store(number, Relaxed);
    }

    pub(super) fn get(&self) -> Option<u8> {
        Some(self.0.load(Relaxed)).filter(|number| *number != 0)
    }
}
