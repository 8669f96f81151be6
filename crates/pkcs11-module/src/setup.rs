//! The settings of a process, and what the files hold that they name.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use cryptoki_sys::*;

use crate::Outcome;
use crate::config::{ConfigError, FILE_VARIABLE, Settings};
use crate::identity::{Identity, Presented};
use crate::objects::Objects;
use crate::report::say;

/// The settings, with what the files hold that they name. A process that forks off has it from the one before, which may
/// have read what this one may not.
#[derive(Debug)]
pub(crate) struct Setup {
    settings: Settings,
    identity: Identity,
    objects: RwLock<Arc<Objects>>,
}

impl Setup {
    /// Reads everything.
    ///
    /// # Errors
    /// `CKR_GENERAL_ERROR`; standard error tells why.
    pub(crate) fn read(path: &Path) -> Outcome<Self> {
        let read = || -> Result<Self, ConfigError> {
            let settings = Settings::read(path)?;
            let identity = Identity::read(&settings)?;
            Ok(Self { settings, identity, objects: RwLock::default() })
        };
        read().map_err(|error| {
            say(format_args!("{error} ({FILE_VARIABLE} is {})", path.display()));
            CKR_GENERAL_ERROR
        })
    }

    /// The same for a process that was forked off. No lock is waited for: a thread may have held it that is not there.
    pub(crate) fn inherited(&self) -> Self {
        let objects = self.objects.try_read().map(|objects| Arc::clone(&objects)).unwrap_or_default();
        let (settings, identity) = (self.settings.clone(), self.identity.inherited());
        Self { settings, identity, objects: RwLock::new(objects) }
    }

    /// Whom to ask, and the own certificate for that as its files have it now.
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
