//! The backend of a second level: available from the start, or opened later.

use std::fmt;
use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use keys::Keyring;
use parking_lot::Mutex;

use super::backend::Backend;
use super::seals::LeafSealer;

/// An open backend, and the encryption of its content.
pub struct Opened {
    pub(super) backend: Box<dyn Backend>,
    pub(super) seals: LeafSealer,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").finish_non_exhaustive()
    }
}

impl Opened {
    /// Wraps `backend`, with content sealed under `ring`.
    #[must_use]
    pub fn new(backend: impl Backend, ring: Arc<Keyring>) -> Self {
        Self { backend: Box::new(backend), seals: LeafSealer::new(ring) }
    }
}

/// Function that opens a backend, or returns the reason of the failure. The future has its own timeout.
pub type Opening = Box<dyn Fn() -> BoxFuture<'static, Result<Opened, String>> + Send + Sync>;

/// A backend that is open, or is opened later.
pub(super) struct LazyBackend {
    opened: OnceLock<Opened>,
    opening: Option<Opening>,
    /// Reason of the last failure to open, so that each reason is logged once.
    last_failure: Mutex<String>,
}

impl LazyBackend {
    pub(super) fn of(opened: Opened) -> Self {
        Self { opened: OnceLock::from(opened), opening: None, last_failure: Mutex::default() }
    }

    pub(super) fn awaited(opening: Opening) -> Self {
        Self { opened: OnceLock::new(), opening: Some(opening), last_failure: Mutex::default() }
    }

    pub(super) fn get(&self) -> Option<&Opened> {
        self.opened.get()
    }

    /// Tries to open the backend once, and logs a failure.
    pub(super) async fn open(&self) -> Result<(), ()> {
        let Some(opening) = &self.opening else { return Err(()) };
        match opening().await {
            Ok(opened) => {
                // Only one task opens the backend, so it is not set yet.
                let _ = self.opened.set(opened);
                Ok(())
            }
            Err(why) => {
                let mut last_failure = self.last_failure.lock();
                if *last_failure != why {
                    tracing::error!(why, "the certificate store cannot be opened yet");
                    *last_failure = why;
                }
                Err(())
            }
        }
    }
}
