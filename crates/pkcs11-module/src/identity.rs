//! Whom to ask, and the own certificate for that: read again where its files are others than they were.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, PoisonError, RwLock};

use keyless::client::ClientOptions;

use crate::config::{ConfigError, Settings};
use crate::report::say;

/// What tells that a file is another than it was.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Stamp {
    inode: u64,
    octets: u64,
    modified: (i64, i64),
    inode_changed: (i64, i64),
}

impl Stamp {
    fn of(found: &Metadata) -> Self {
        Self {
            inode: found.ino(),
            octets: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            inode_changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

/// What was read.
#[derive(Debug)]
pub(crate) struct Presented {
    pub(crate) options: ClientOptions,
    /// The files before they were read; `None` of one that could not be looked at.
    files: Vec<Option<Stamp>>,
}

/// The newest that could be read.
#[derive(Debug)]
pub(crate) struct Identity {
    now: RwLock<Arc<Presented>>,
    /// For a process that is forked off while `now` is changed.
    first: Arc<Presented>,
}

impl Identity {
    /// # Errors
    /// [`ConfigError`]
    pub(crate) fn read(settings: &Settings) -> Result<Self, ConfigError> {
        let files = stamps(settings);
        Ok(Self::of(Arc::new(Presented { options: settings.client_options()?, files })))
    }

    fn of(presented: Arc<Presented>) -> Self {
        Self { now: RwLock::new(Arc::clone(&presented)), first: presented }
    }

    /// The same for a process that was forked off. No lock is waited for: a thread may have held it that is not there.
    pub(crate) fn inherited(&self) -> Self {
        Self::of(self.now.try_read().map_or_else(|_| Arc::clone(&self.first), |now| Arc::clone(&now)))
    }

    /// What the files hold now. Where it cannot be used it is what they held before, which is told once a change: of two files
    /// one is always changed first. What this process may not look at stays as it was.
    pub(crate) fn look(&self, settings: &Settings) -> Arc<Presented> {
        let before = Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner));
        let files = stamps(settings);
        let mut pairs = files.iter().zip(&before.files);
        if !pairs.any(|(now, before)| now.is_some() && now != before) {
            return before;
        }
        let options = settings.client_options().unwrap_or_else(|error| {
            say(format_args!(
                "the certificate for the key service stays the one that was read before: {error}"
            ));
            before.options.clone()
        });
        let files = files.into_iter().zip(&before.files).map(|(now, before)| now.or(*before)).collect();
        let next = Arc::new(Presented { options, files });
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&next);
        next
    }
}

fn stamps(settings: &Settings) -> Vec<Option<Stamp>> {
    settings.identity_files().map(|path| path.metadata().ok().map(|found| Stamp::of(&found))).collect()
}
