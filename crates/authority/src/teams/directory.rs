//! Cached directory of the objects that each team owns, and the counts of certificates for quotas.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flight::{Cache, Failed, Fresh};
use futures_util::FutureExt;
use shared::Shared;
use store::{DAY_US, Store, StoreError};

use super::ownership::Ownership;
use crate::tables;
use crate::tables::count_certificate;

/// Lifetime of the cached ownership. A change by another node takes effect on this node after this time at the latest.
const CACHE_LIFETIME: Duration = Duration::from_secs(5);

/// Directory of the objects that each team owns. Clones are cheap and share the cache.
#[derive(Clone)]
pub struct TeamDirectory(Shared<DirectoryParts>);

struct DirectoryParts {
    store: Store,
    cache: Cache<u64, Arc<Ownership>, Arc<StoreError>>,
    /// Part of the cache key. Incrementing it invalidates the cache.
    generation: AtomicU64,
}

/// Error of a request that exceeds a team's daily quota of certificates.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the team {team} has reached its quota of {most} certificates for today (UTC)")]
pub struct OverQuota {
    /// Name of the team whose quota is exceeded.
    pub team: String,
    /// Quota of certificates per day.
    pub most: u32,
    /// Time until the next day begins.
    pub retry_after: Duration,
}

/// Reason why a certificate cannot be counted against a team's quota.
#[derive(Clone, Debug, thiserror::Error)]
pub enum QuotaError {
    /// The quota is used up.
    #[error(transparent)]
    Over(#[from] OverQuota),
    /// An error of the database.
    #[error(transparent)]
    Store(#[from] Arc<StoreError>),
}

impl TeamDirectory {
    /// Creates a handle over this database.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self(Shared::new(DirectoryParts {
            store,
            cache: Cache::with_entries_max(2),
            generation: AtomicU64::new(0),
        }))
    }

    /// Returns the owners of all objects.
    ///
    /// # Errors
    /// Fails if the database fails.
    #[crate::boxed]
    pub async fn ownership(&self) -> Result<Arc<Ownership>, Arc<StoreError>> {
        let generation = self.0.generation.load(Ordering::SeqCst);
        if let Some(cached) = self.0.cache.get(&generation) {
            return cached.outcome.clone();
        }
        let store = self.0.store.clone();
        let read = move || async move {
            let failed = |error| Failed { error: Arc::new(error), lifetime: Duration::ZERO };
            let owned = tables::Teams::of(&store).owned().await.map_err(failed)?;
            let quotas = tables::Teams::of(&store).quotas().await.map_err(failed)?;
            let owned = owned.into_iter().map(|row| (row.kind, row.object, row.team, row.moved_at_us));
            Ok(Fresh { value: Arc::new(Ownership::new(owned, quotas)), lifetime: CACHE_LIFETIME })
        };
        self.0.cache.fetch(&generation, read).await
    }

    /// Invalidates the cache after a change, so that the change takes effect immediately on this node.
    pub fn forget(&self) {
        self.0.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts a certificate against the team's quota, if the team has one.
    ///
    /// # Errors
    /// [`QuotaError`]
    #[crate::boxed]
    pub async fn count(&self, team: &str, now_us: i64) -> Result<(), QuotaError> {
        let Some(most) = self.ownership().await?.quota(team).certificates_per_day else { return Ok(()) };
        let (day, name) = (now_us.div_euclid(DAY_US), team.to_owned());
        let counted = self.0.store.write("team_day_count", move |tx| {
            let name = name.clone();
            async move { count_certificate(tx, &name, day, most).await }.boxed()
        });
        if counted.await.map_err(Arc::new)? {
            return Ok(());
        }
        Err(over(team, most, now_us).into())
    }
}

impl TeamDirectory {
    /// Checks that the team has quota left for a certificate today. A concurrent request may use the rest of the quota first.
    ///
    /// # Errors
    /// [`QuotaError`]
    #[crate::boxed]
    pub async fn check_quota(&self, team: &str, now_us: i64) -> Result<(), QuotaError> {
        let Some(most) = self.ownership().await?.quota(team).certificates_per_day else { return Ok(()) };
        let had = tables::Teams::of(&self.0.store).certificates(team, now_us.div_euclid(DAY_US)).await;
        if had.map_err(Arc::new)? < i64::from(most) {
            return Ok(());
        }
        Err(over(team, most, now_us).into())
    }
}

fn over(team: &str, most: u32, now_us: i64) -> OverQuota {
    let left_us = DAY_US - now_us.rem_euclid(DAY_US);
    OverQuota { team: team.to_owned(), most, retry_after: Duration::from_micros(left_us.unsigned_abs()) }
}

impl std::fmt::Debug for TeamDirectory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TeamDirectory").finish_non_exhaustive()
    }
}
