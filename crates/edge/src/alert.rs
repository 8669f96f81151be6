//! TLS alerts that end a failed handshake.

use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

/// Number of the alert internal_error (RFC 8446 section 6).
pub(super) const INTERNAL_ERROR: u8 = 80;
/// Number of the alert missing_extension: the client sent no server name, and there is no default certificate.
pub(super) const MISSING_EXTENSION: u8 = 109;
/// Number of the alert unrecognized_name (RFC 6066 section 3).
pub(super) const UNRECOGNIZED_NAME: u8 = 112;

/// The alert that ends the handshake; 0 if the terminator chose none.
#[derive(Clone, Debug, Default)]
pub(super) struct HandshakeAlert(Arc<AtomicU8>);

impl HandshakeAlert {
    pub(super) fn set(&self, number: u8) {
        self.0.store(number, Relaxed);
    }

    pub(super) fn get(&self) -> Option<u8> {
        Some(self.0.load(Relaxed)).filter(|number| *number != 0)
    }
}
