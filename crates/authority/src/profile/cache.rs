//! Cache of profiles by name.

use std::sync::Arc;

use flight::Cache;

use super::Profile;
use super::error::ProfileError;

/// Maximum number of cached profiles; few organizations have more than 100.
const CACHED_MAX: u64 = 1_000;

pub(crate) struct Profiles(pub(super) Cache<String, Arc<Profile>, ProfileError>);

impl Default for Profiles {
    fn default() -> Self {
        Self(Cache::with_entries_max(CACHED_MAX))
    }
}
