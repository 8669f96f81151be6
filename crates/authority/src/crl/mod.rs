//! Certificate revocation lists: made once for the cluster, kept in the database, served from memory.
//!
//! A revocation moves a count on the rows of the CRLs it concerns, in its own transaction. Whoever holds the lease makes
//! those whose count has moved, and those at half of their life.

mod build;
mod work;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flight::{Cache, Failed, Fresh};
use store::{CrlRow, StoreError};
use tokio::sync::Notify;
use uuid::Uuid;
use x509::UnixTime;

use crate::Authority;
use crate::tree::CaError;

pub use work::TickReport;

/// CRLs kept in memory, octets: those asked for within a second come from there. A CRL of a million has 40 MB.
const KEPT_OCTETS_MAX: u64 = 256 << 20;

/// How long a node serves a CRL before it asks whether another node has made a newer one.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The delta, beside shard 0 (full) and those from 1 on.
pub(crate) const DELTA: i64 = -1;

/// What clocks may differ by: CRLs and OCSP responses say that they were made that much earlier.
pub(crate) const SKEW_SECONDS: i64 = 60;

/// A CRL as it is served.
#[derive(Clone, Debug, PartialEq)]
pub struct CrlDocument {
    /// Itself.
    pub der: Bytes,
    /// Its number (RFC 5280 section 5.2.3).
    pub number: u64,
    /// When it was made.
    pub this_update: UnixTime,
    /// When it ends.
    pub next_update: UnixTime,
    /// For HTTP, quotes included.
    pub etag: String,
    /// Certificates on it.
    pub entries: u64,
    /// The number of the full CRL it builds upon, for a delta.
    pub base: Option<u64>,
}

impl CrlDocument {
    fn of(row: CrlRow) -> Self {
        let number = |n: i64| u64::try_from(n).unwrap_or_default();
        let seconds = |us: i64| UnixTime(us.div_euclid(1_000_000));
        Self {
            number: number(row.number),
            this_update: seconds(row.this_update_us),
            next_update: seconds(row.next_update_us),
            // Numbers never repeat; the time tells a CA restored from a backup from what it was.
            etag: format!("\"{}-{}\"", row.number, row.this_update_us),
            entries: number(row.entries),
            base: row.base.map(number),
            der: row.der.into(),
        }
    }
}

/// Why there is no CRL.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CrlError {
    /// No such CA, or the database.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// The CA's key did not sign.
    #[error("the key of the authority: {0}")]
    Sign(#[from] keys::SignError),
    /// Those of the database.
    #[error(transparent)]
    Store(Arc<StoreError>),
}

impl From<StoreError> for CrlError {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}

type Key = (Uuid, i64);

/// CRLs in memory, and the bell of whoever makes them.
pub(crate) struct PublishedCrls {
    kept: Cache<Key, Option<Arc<CrlDocument>>, CrlError>,
    bell: Notify,
    standing: work::SharedStanding,
}

impl Default for PublishedCrls {
    fn default() -> Self {
        let weigh = |_: &Key, outcome: &Result<Option<Arc<CrlDocument>>, CrlError>| match outcome {
            Ok(Some(document)) => u32::try_from(document.der.len() + 512).unwrap_or(u32::MAX),
            _ => 512,
        };
        Self {
            kept: Cache::with_weight(KEPT_OCTETS_MAX, weigh),
            bell: Notify::new(),
            standing: work::SharedStanding::default(),
        }
    }
}

impl PublishedCrls {
    /// Something was revoked here.
    pub(crate) fn wake(&self) {
        self.bell.notify_one();
    }

    fn forget(&self, ca: Uuid, shard: i64) {
        self.kept.invalidate(&(ca, shard));
    }
}

impl Authority {
    /// The newest CRL of a CA: the full one, that of a shard (from 1), or the delta. `None` when there is no such one. On
    /// another node's change it is at most a second old.
    ///
    /// # Errors
    /// [`CrlError`].
    pub async fn crl(
        &self,
        ca: Uuid,
        shard: Option<u32>,
        delta: bool,
    ) -> Result<Option<Arc<CrlDocument>>, CrlError> {
        let shard = match (shard, delta) {
            (None, false) => 0,
            (None, true) => DELTA,
            (Some(0), _) | (Some(_), true) => return Ok(None),
            (Some(shard), false) => i64::from(shard),
        };
        let key = (ca, shard);
        if let Some(cached) = self.crls().kept.get(&key) {
            return cached.outcome.clone();
        }
        let this = self.clone();
        let load = move || async move {
            let found =
                this.load_crl(key).await.map_err(|error| Failed { error, lifetime: Duration::ZERO })?;
            Ok(Fresh { value: found, lifetime: ASK_AGAIN })
        };
        self.crls().kept.fetch(&key, load).await
    }

    /// From the database, unless the one in memory is still the newest. The first one of a CA is made now.
    async fn load_crl(&self, (ca, shard): Key) -> Result<Option<Arc<CrlDocument>>, CrlError> {
        let number = self.store().crl_number(ca, shard).await?;
        let before = self.crls().kept.get_stale(&(ca, shard));
        if let Some(Ok(Some(document))) = before.map(|cached| cached.outcome.clone())
            && number == i64::try_from(document.number).ok()
        {
            return Ok(Some(document));
        }
        if number.is_none_or(|number| number == 0) && !self.make_first_crl(ca, shard).await? {
            return Ok(None);
        }
        Ok(self.store().crl(ca, shard).await?.map(|row| Arc::new(CrlDocument::of(row))))
    }
}
