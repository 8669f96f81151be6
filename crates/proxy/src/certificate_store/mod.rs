//! The certificate store: each leaf minted once, however many ask.
//!
//! A leaf is known by all that makes it what it is ([`LeafId`]), so two authorities, key types or profiles never share one.
//! Anyone who asks first mints, the others wait for the same; it is renewed before it ends without a caller waiting; a failure
//! is remembered for a moment, so that a broken authority is not asked by every connection. Names come from clients: memory
//! is bounded in bytes, and so are the names that one client may have minted in a time ([`NewNameLimit`]).
//!
//! Behind memory there may be a [`SecondLevel`] that outlives the process and that several proxies share: a leaf that is not in
//! memory is looked for there, by the one of all who ask, before it is minted.

mod fetch_error;
mod leaf_id;
mod new_name_limit;
mod second_level;

pub use fetch_error::FetchError;
pub use leaf_id::{KeyGoesTo, LeafId};
pub(crate) use new_name_limit::LOOKS_PER_NAME;
pub use new_name_limit::{NewNameLimit, RateLimitKey, TooManyNames};
pub use second_level::{
    Backend, LEASE, LEAVES_MAX, Opened, Opening, SecondLevel, SecondLevelCounts, SecondLevelOptions,
    TRIP_TIMEOUT, Unopened, WhenAway, lease_of,
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

use crate::mint::{KeysOfLeaves, Leaf, LeafKeyKind, MintError, VALIDITY_MIN};
use second_level::Obtained;

/// Bytes of all leaves, unless said otherwise: some 50,000 names.
pub const OCTETS_MAX: u64 = 64 << 20;
/// Time for which a failure is cached.
const FAILURE_LIFE: Duration = Duration::from_secs(1);
/// Leaves of which it is known that a renewal was begun within that time: of more, some are tried sooner again.
const RENEWALS_MAX: u64 = 65_536;
/// What an entry costs beside its leaf: the cache's own nodes, and the key.
const ENTRY_OCTETS: usize = 320;
/// What a leaf's own P-256 key takes: its text (PKCS#8), the library's form, the public key. Likewise one of a user, whose other leaves
/// may have gone, or stand over another by now.
const KEY_OCTETS: usize = 1_024;
/// The same, of an RSA key of a user.
const RSA_KEY_OCTETS: usize = 4_096;
/// A leaf is made again when less than one part in so many of its life is left.
const RENEW_PARTS: u32 = 3;

/// How often each thing happened.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StoreCounts {
    /// Answered from memory.
    pub hits: u64,
    /// Requests that joined a minting in progress.
    pub joined: u64,
    /// Minted, renewals among them.
    pub minted: u64,
    /// Not minted.
    pub failed: u64,
    /// Refused for the number of names.
    pub refused: u64,
    /// With the second level; nothing where there is none.
    pub second: SecondLevelCounts,
}

/// Leaves by what they are. Cheap to clone; clones are one store.
#[derive(Clone)]
pub struct CertificateStore(Arc<StoreState>);

struct StoreState {
    leaves: Cache<LeafId, Arc<Leaf>, FetchError>,
    newcomers: NewNameLimit,
    /// Leaves whose renewal was begun a moment ago, whatever came of it.
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
    /// Which holds at most `octets_max` bytes; what was asked for the longest ago goes first.
    #[must_use]
    pub fn new(octets_max: u64, newcomers: NewNameLimit) -> Self {
        Self::with_second_level(octets_max, newcomers, None)
    }

    /// Like [`Self::new`], with a second level behind memory. The caller must spawn its [`SecondLevel::keep`].
    #[must_use]
    pub fn with_second_level(octets_max: u64, newcomers: NewNameLimit, second: Option<SecondLevel>) -> Self {
        let weigh = |id: &LeafId, leaf: &Result<Arc<Leaf>, FetchError>| {
            let name = id.name.dns().map_or(0, str::len);
            let user = id.user.as_ref().map_or(0, |user| user.len());
            let key = match (id.keys, id.kind) {
                (KeysOfLeaves::Shared, _) => 0,
                (KeysOfLeaves::ByHost, _) | (KeysOfLeaves::ByUser, LeafKeyKind::P256) => KEY_OCTETS,
                (KeysOfLeaves::ByUser, LeafKeyKind::Rsa2048) => RSA_KEY_OCTETS,
            };
            let octets = ENTRY_OCTETS + name + user + key + leaf.as_ref().map_or(0, |leaf| leaf.octets());
            u32::try_from(octets).unwrap_or(u32::MAX)
        };
        Self(Arc::new(StoreState {
            leaves: Cache::with_weight(octets_max, weigh),
            newcomers,
            renewals: flight::BoundedMap::builder(RENEWALS_MAX).time_to_live(FAILURE_LIFE).build(),
            second,
            minted: AtomicU64::default(),
            failed: AtomicU64::default(),
            refused: AtomicU64::default(),
        }))
    }

    /// The leaf, or what `mint` makes: once for all who ask meanwhile. `client` is who asks, and is charged for a name that
    /// is not here.
    ///
    /// # Errors
    /// [`FetchError`]
    ///
    /// # Cancellation
    /// Dropping the future cancels nothing for others; with the last of them the minting is dropped.
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
            // The cache counts a clock that stands still while the machine sleeps, and that nobody sets.
            Some(cached) if cached.outcome.as_ref().is_ok_and(|leaf| !leaf.holds_at(now)) => {
                self.0.leaves.invalidate(id);
                self.fetch_new(id, client.into(), now, mint).await
            }
            Some(cached) if cached.ends_soon(Instant::now(), RENEW_PARTS) && cached.outcome.is_ok() => {
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

    /// Mints a new leaf, counted against the requester's limit on new names. A request that joined a refused one starts its
    /// own.
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
            let asker = charged.clone();
            let making = move || async move {
                store.admit(&asker, &wanted.name)?;
                let mint = mint.lock().take();
                let ends_from = now.plus(VALIDITY_MIN.as_secs() as i64);
                match mint {
                    Some(mint) => store.make(&wanted, Some(&asker), now, ends_from, mint()).await,
                    None => unreachable!("who begins ends the loop"),
                }
            };
            match self.0.leaves.fetch(id, Box::new(making)).await {
                Err(FetchError::TooManyNames(refused)) if refused.client != charged => {}
                fetched => return fetched,
            }
        }
    }

    /// Renews a leaf in the background while clients get the valid one. Takes another proxy's leaf if that one expires later.
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
                tracing::warn!(%error, name = %id.name, "a leaf that ends soon was not made anew");
            }
        });
    }

    /// What is held for `id`, if it is still true.
    #[must_use]
    pub fn held(&self, id: &LeafId) -> Option<Arc<Cached<Arc<Leaf>, FetchError>>> {
        self.0.leaves.get(id)
    }

    /// Removes a leaf; the next request mints it again.
    pub fn forget(&self, id: &LeafId) {
        self.0.leaves.invalidate(id);
    }

    /// Leaves held.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.leaves.entries()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The counters.
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
        self.newcomers.admit(client, name).map_err(|error| {
            self.refused.fetch_add(1, Relaxed);
            // Not remembered: the next client may.
            Failed { error: error.into(), lifetime: Duration::ZERO }
        })
    }

    /// A leaf that ends at `ends_from` at least, found or minted; `charged` for a new name is who asks.
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
                charged.inspect(|client| self.newcomers.give_back(client));
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
