//! The settings of a process, and the content of their files.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use cryptoki_sys::*;

use crate::Outcome;
use crate::config::{ConfigError, FILE_VARIABLE, Settings};
use crate::identity::{Identity, Presented};
use crate::objects::Objects;
use crate::report::log;

/// The settings with the content of their files. A forked process inherits them from its parent, which may have had access to files
/// that the child cannot read.
#[derive(Debug)]
pub(crate) struct Setup {
    settings: Settings,
    identity: Identity,
    objects: RwLock<Arc<Objects>>,
}

impl Setup {
    /// Reads the settings, the client identity and the certificates.
    ///
    /// # Errors
    /// `CKR_GENERAL_ERROR`. The reason is written to standard error.
    pub(crate) fn read(path: &Path) -> Outcome<Self> {
        let read = || -> Result<Self, ConfigError> {
            let settings = Settings::read(path)?;
            let identity = Identity::read(&settings)?;
            Ok(Self { settings, identity, objects: RwLock::default() })
        };
        read().map_err(|error| {
            log(format_args!("{error} ({FILE_VARIABLE} is {})", path.display()));
            CKR_GENERAL_ERROR
        })
    }

    /// Returns a copy for a forked process. Waits for no lock: a thread that does not exist there may have held it.
    pub(crate) fn inherited(&self) -> Self {
        let objects = self.objects.try_read().map(|objects| Arc::clone(&objects)).unwrap_or_default();
        let (settings, identity) = (self.settings.clone(), self.identity.inherited());
        Self { settings, identity, objects: RwLock::new(objects) }
    }

    /// Returns the key services and the current client identity.
    pub(crate) fn presented(&self) -> Arc<Presented> {
        self.identity.refresh(&self.settings)
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn objects(&self) -> Arc<Objects> {
        Arc::clone(&self.objects.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn replace_objects(&self, objects: Arc<Objects>) {
        *self.objects.write().unwrap_or_else(PoisonError::into_inner) = objects;
    }
}
