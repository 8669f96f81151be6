//! Profiles in memory, by name.

use std::sync::Arc;

use flight::Cache;

use super::Profile;
use super::error::ProfileError;

/// Profiles kept in memory; few houses have a hundred.
const CACHED_MAX: u64 = 1_000;

/// Profiles in memory.
pub(crate) struct Profiles(pub(super) Cache<String, Arc<Profile>, ProfileError>);

impl Default for Profiles {
    fn default() -> Self {
        Self(Cache::with_entries(CACHED_MAX))
    }
}
