//! Where a second level keeps what it has: there from the start, or opened when it can be.

use std::fmt;
use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use keys::Keyring;
use parking_lot::Mutex;

use super::backend::Backend;
use super::seals::Seals;

/// A backend that is there, and the seals of what it keeps.
pub struct Opened {
    pub(super) backend: Box<dyn Backend>,
    pub(super) seals: Seals,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").finish_non_exhaustive()
    }
}

impl Opened {
    /// Creates the storage over `backend`, sealed under `ring`.
    #[must_use]
    pub fn new(backend: impl Backend, ring: Arc<Keyring>) -> Self {
        Self { backend: Box::new(backend), seals: Seals::new(ring) }
    }
}

/// Opens a backend, or says why it cannot be. It ends by itself.
pub type Opening = Box<dyn Fn() -> BoxFuture<'static, Result<Opened, String>> + Send + Sync>;

/// A backend that is open, or is opened once it can be.
pub(super) struct LazyBackend {
    opened: OnceLock<Opened>,
    opening: Option<Opening>,
    /// Why it was not opened the last time, so that each reason is told once.
    told: Mutex<String>,
}

impl LazyBackend {
    pub(super) fn of(opened: Opened) -> Self {
        Self { opened: OnceLock::from(opened), opening: None, told: Mutex::default() }
    }

    pub(super) fn awaited(opening: Opening) -> Self {
        Self { opened: OnceLock::new(), opening: Some(opening), told: Mutex::default() }
    }

    pub(super) fn get(&self) -> Option<&Opened> {
        self.opened.get()
    }

    /// Tries once; why it did not come to be is told here.
    pub(super) async fn open(&self) -> Result<(), ()> {
        let Some(opening) = &self.opening else { return Err(()) };
        match opening().await {
            Ok(opened) => {
                // One task opens: it is not there yet.
                let _ = self.opened.set(opened);
                Ok(())
            }
            Err(why) => {
                let mut told = self.told.lock();
                if *told != why {
                    tracing::error!(why, "the certificate store cannot be opened yet");
                    *told = why;
                }
                Err(())
            }
        }
    }
}
