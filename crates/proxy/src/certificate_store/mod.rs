//! The certificate store: mints each leaf once, however many connections request it.
//!
//! [`LeafId`] contains everything that determines a leaf, so that two CAs, key types or profiles never share one. The first request
//! mints; concurrent requests wait for the same result. A leaf is renewed in the background before it expires. A failure is cached
//! for a moment, so that a broken CA does not receive a request from every connection. Clients choose the names, so memory is
//! limited in bytes, and each client has a rate limit of new names ([`NewNameLimit`]).
//!
//! Behind memory there may be a [`SecondLevel`], which survives restarts and is shared by several proxies. A leaf that is not in
//! memory is looked up there before it is minted.

mod fetch_error;
mod leaf_id;
mod new_name_limit;
mod second_level;

pub use fetch_error::FetchError;
pub use leaf_id::{KeyRecipients, LeafId};
pub(crate) use new_name_limit::LOOKUPS_PER_NAME;
pub use new_name_limit::{NewNameLimit, RateLimitKey, TooManyNames};
pub use second_level::{
    Backend, LEASE, LEAVES_MAX, Opened, Opening, OutagePolicy, SecondLevel, SecondLevelCounts,
    SecondLevelOptions, StoredLeafError, TRIP_TIMEOUT, lease_of,
};

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use flight::{Cache, Cached, Failed, Fresh};
use parking_lot::Mutex;
use tokio::time::Instant;
use x509::{HostOrIp, UnixTime};

use crate::mint::{Leaf, LeafKeyKind, LeafKeySharing, MintError, VALIDITY_MIN};
use second_level::Obtained;

/// Default maximum bytes of leaves in memory, enough for about 50,000 names.
pub const BYTES_MAX: u64 = 64 << 20;
/// Time for which a failure is cached.
const FAILURE_LIFE: Duration = Duration::from_secs(1);
/// Maximum leaves whose recent renewals are remembered. Beyond the maximum, some renewals are retried earlier.
const RENEWALS_MAX: u64 = 65_536;
/// Bytes of a cache entry in addition to its leaf: the cache's nodes and the key.
const ENTRY_BYTES: usize = 320;
/// Memory of a P-256 key in bytes: PKCS#8 text, parsed key, and public key. Also counted for each leaf of a user's key, because the
/// store may hold no other leaf of that key.
const KEY_BYTES: usize = 1_024;
/// Memory of a user's RSA key in bytes.
const RSA_KEY_BYTES: usize = 4_096;
/// A leaf is renewed when less than one part in `RENEW_PARTS` of its lifetime remains.
const RENEW_PARTS: u32 = 3;

/// Counters of a certificate store since its creation.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StoreCounts {
    /// Requests answered from memory.
    pub hits: u64,
    /// Requests that waited for a leaf that was already being minted.
    pub joined: u64,
    /// Minted leaves, including renewals.
    pub minted: u64,
    /// Failed attempts to find or mint a leaf, including renewals.
    pub failed: u64,
    /// Requests refused by the rate limit of new names.
    pub refused: u64,
    /// Counters of the second level; all zero without a second level.
    pub second: SecondLevelCounts,
}

/// The store of leaves. Clones share it.
#[derive(Clone)]
pub struct CertificateStore(Arc<StoreState>);

struct StoreState {
    leaves: Cache<LeafId, Arc<Leaf>, FetchError>,
    name_limit: NewNameLimit,
    /// Leaves whose renewal started recently, whatever its result.
    renewals: flight::BoundedMap<LeafId, ()>,
    second: Option<SecondLevel>,
    minted: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
}

impl fmt::Debug for CertificateStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateStore").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl CertificateStore {
    /// Creates a store of at most `bytes_max` bytes; the least recently used leaf is evicted first.
    #[must_use]
    pub fn new(bytes_max: u64, name_limit: NewNameLimit) -> Self {
        Self::with_second_level(bytes_max, name_limit, None)
    }

    /// Like [`Self::new`], with a second level behind memory. The caller must spawn its [`SecondLevel::keep`].
    #[must_use]
    pub fn with_second_level(bytes_max: u64, name_limit: NewNameLimit, second: Option<SecondLevel>) -> Self {
        let weigh = |id: &LeafId, leaf: &Result<Arc<Leaf>, FetchError>| {
            let name = id.name.dns().map_or(0, str::len);
            let user = id.user.as_ref().map_or(0, |user| user.len());
            let key = match (id.keys, id.kind) {
                (LeafKeySharing::Shared, _) => 0,
                (LeafKeySharing::ByHost, _) | (LeafKeySharing::ByUser, LeafKeyKind::P256) => KEY_BYTES,
                (LeafKeySharing::ByUser, LeafKeyKind::Rsa2048) => RSA_KEY_BYTES,
            };
            let byte_size =
                ENTRY_BYTES + name + user + key + leaf.as_ref().map_or(0, |leaf| leaf.byte_size());
            u32::try_from(byte_size).unwrap_or(u32::MAX)
        };
        Self(Arc::new(StoreState {
            leaves: Cache::with_weight_max(bytes_max, weigh),
            name_limit,
            renewals: flight::BoundedMap::builder(RENEWALS_MAX).time_to_live(FAILURE_LIFE).build(),
            second,
            minted: AtomicU64::default(),
            failed: AtomicU64::default(),
            refused: AtomicU64::default(),
        }))
    }

    /// Returns the leaf, or mints it with `mint`, once for all concurrent requests. A new name is charged to `client`.
    ///
    /// # Errors
    /// [`FetchError`]
    ///
    /// # Cancellation
    /// Dropping the future does not affect concurrent requests for the same leaf. The minting is cancelled when no request waits
    /// for the leaf.
    pub async fn fetch<W>(
        &self,
        id: &LeafId,
        client: impl Into<RateLimitKey>,
        now: UnixTime,
        mint: impl FnOnce() -> W + Send + 'static,
    ) -> Result<Arc<Leaf>, FetchError>
    where
        W: Future<Output = Result<Leaf, MintError>> + Send + 'static,
    {
        match self.0.leaves.get(id) {
            // The cache uses a monotonic clock, which stops while the machine sleeps, so the leaf's own validity is checked too.
            Some(cached) if cached.outcome.as_ref().is_ok_and(|leaf| !leaf.is_valid_at(now)) => {
                self.0.leaves.invalidate(id);
                self.fetch_new(id, client.into(), now, mint).await
            }
            Some(cached) if cached.expires_soon(Instant::now(), RENEW_PARTS) && cached.outcome.is_ok() => {
                if !self.0.renewals.contains_key(id) {
                    self.0.renewals.insert(id.clone(), ());
                    let ends_from = cached.outcome.as_ref().map_or(now, |leaf| leaf.not_after.plus(1));
                    self.renew(id.clone(), now, ends_from, mint);
                }
                cached.outcome.clone()
            }
            Some(cached) => cached.outcome.clone(),
            None => self.fetch_new(id, client.into(), now, mint).await,
        }
    }

    /// Mints a new leaf, counted against the requester's limit on new names. If a shared request fails because of another client's
    /// limit, starts a new one.
    async fn fetch_new<W>(
        &self,
        id: &LeafId,
        charged: RateLimitKey,
        now: UnixTime,
        mint: impl FnOnce() -> W + Send + 'static,
    ) -> Result<Arc<Leaf>, FetchError>
    where
        W: Future<Output = Result<Leaf, MintError>> + Send + 'static,
    {
        let mint = Arc::new(Mutex::new(Some(mint)));
        loop {
            let (store, wanted, mint) = (Arc::clone(&self.0), id.clone(), Arc::clone(&mint));
            let requester = charged.clone();
            let making = move || async move {
                store.admit(&requester, &wanted.name)?;
                let mint = mint.lock().take();
                let ends_from = now.plus(VALIDITY_MIN.as_secs() as i64);
                match mint {
                    Some(mint) => store.make(&wanted, Some(&requester), now, ends_from, mint()).await,
                    None => unreachable!("who begins ends the loop"),
                }
            };
            match self.0.leaves.fetch(id, Box::new(making)).await {
                Err(FetchError::TooManyNames(refused)) if refused.client != charged => {}
                fetched => return fetched,
            }
        }
    }

    /// Renews a leaf in the background while clients get the valid leaf. Uses another proxy's leaf instead, if that leaf expires
    /// later.
    fn renew<W>(
        &self,
        id: LeafId,
        now: UnixTime,
        ends_from: UnixTime,
        mint: impl FnOnce() -> W + Send + 'static,
    ) where
        W: Future<Output = Result<Leaf, MintError>> + Send + 'static,
    {
        let store = Arc::clone(&self.0);
        tokio::spawn(async move {
            let _live = telemetry::tasks::guard("leaf-renewal");
            let (inner, wanted) = (Arc::clone(&store), id.clone());
            let making = move || async move { inner.make(&wanted, None, now, ends_from, mint()).await };
            if let Some(Err(error)) = store.leaves.refresh(&id, making).await {
                tracing::warn!(%error, name = %id.name, "cannot renew a leaf certificate that expires soon");
            }
        });
    }

    /// Returns the cached result for `id`, if it is still valid.
    #[must_use]
    pub fn cached(&self, id: &LeafId) -> Option<Arc<Cached<Arc<Leaf>, FetchError>>> {
        self.0.leaves.get(id)
    }

    /// Removes a leaf; the next request mints it again.
    pub fn forget(&self, id: &LeafId) {
        self.0.leaves.invalidate(id);
    }

    /// Returns the number of leaves in memory.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.leaves.entries()
    }

    /// Returns whether no leaf is in memory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the counters since the store was created.
    #[must_use]
    pub fn counts(&self) -> StoreCounts {
        let flight = self.0.leaves.counts();
        StoreCounts {
            hits: flight.hits,
            joined: flight.joined,
            minted: self.0.minted.load(Relaxed),
            failed: self.0.failed.load(Relaxed),
            refused: self.0.refused.load(Relaxed),
            second: self.0.second.as_ref().map(SecondLevel::counts).unwrap_or_default(),
        }
    }
}

impl StoreState {
    fn admit(&self, client: &RateLimitKey, name: &HostOrIp) -> Result<(), Failed<FetchError>> {
        self.name_limit.admit(client, name).map_err(|error| {
            self.refused.fetch_add(1, Relaxed);
            // Not cached: the next client may be within its limit.
            Failed { error: error.into(), lifetime: Duration::ZERO }
        })
    }

    /// Finds or mints a leaf that is valid until `ends_from` at least. A new name is charged to `charged`.
    async fn make(
        &self,
        id: &LeafId,
        charged: Option<&RateLimitKey>,
        now: UnixTime,
        ends_from: UnixTime,
        minting: impl Future<Output = Result<Leaf, MintError>>,
    ) -> Result<Fresh<Arc<Leaf>>, Failed<FetchError>> {
        let made = match self.second.as_ref().filter(|level| level.keeps(id)) {
            Some(second) => second.fetch(id, now, ends_from, minting).await,
            None => minting.await.map(Obtained::Minted).map_err(FetchError::from),
        };
        let leaf = match made {
            Ok(Obtained::Minted(leaf)) => {
                self.minted.fetch_add(1, Relaxed);
                leaf
            }
            Ok(Obtained::Found(leaf)) => {
                charged.inspect(|client| self.name_limit.give_back(client));
                leaf
            }
            Err(error) => {
                self.failed.fetch_add(1, Relaxed);
                return Err(Failed { error, lifetime: FAILURE_LIFE });
            }
        };
        let lifetime = Duration::from_secs(leaf.not_after.since(now).max(0) as u64);
        Ok(Fresh { value: Arc::new(leaf), lifetime })
    }
}
