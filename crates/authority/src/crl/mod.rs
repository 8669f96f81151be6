//! Certificate revocation lists, created once for the cluster, stored in the database and served from a cache.
//!
//! In its own transaction, a revocation increments a counter in the rows of the CRLs that it affects. The node with the lease
//! creates the CRLs whose counter has changed, and those that have reached half of their lifetime.

mod build;
mod document;
mod error;
mod published;
mod work;

use std::sync::Arc;
use std::time::Duration;

use flight::{Failed, Fresh};
use uuid::Uuid;

use crate::Authority;
use crate::tables;
use published::Key;

pub use document::CrlDocument;
pub(crate) use document::{DELTA, SKEW_SECONDS};
pub use error::CrlError;
pub(crate) use published::PublishedCrls;
pub use work::TickReport;

/// Time for which a node serves a cached CRL before it checks for a newer one of another node.
const CACHE_LIFETIME: Duration = Duration::from_secs(1);

/// A part of a CA's revocations. Each part has its own CRL.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CrlPart {
    /// All certificates that are in no shard.
    Full,
    /// The certificates of one shard, counted from 1.
    Shard(u32),
    /// Changes since the last full CRL (RFC 5280 section 5.2.4).
    Delta,
}

impl Authority {
    /// Returns the newest CRL of a CA; `None` if the CA has no such part. A change by another node is visible after one second at
    /// most.
    ///
    /// # Errors
    /// [`CrlError`].
    #[crate::boxed]
    pub async fn crl(&self, ca: Uuid, part: CrlPart) -> Result<Option<Arc<CrlDocument>>, CrlError> {
        let shard = match part {
            CrlPart::Full => 0,
            CrlPart::Delta => DELTA,
            CrlPart::Shard(0) => return Ok(None),
            CrlPart::Shard(shard) => i64::from(shard),
        };
        let key = (ca, shard);
        if let Some(cached) = self.crls().cache.get(&key) {
            return cached.outcome.clone();
        }
        let this = self.clone();
        let load = move || async move {
            let found =
                this.load_crl(key).await.map_err(|error| Failed { error, lifetime: Duration::ZERO })?;
            Ok(Fresh { value: found, lifetime: CACHE_LIFETIME })
        };
        self.crls().cache.fetch(&key, load).await
    }

    /// Reads a CRL from the database if it is newer than the cached one. Creates the first CRL of a CA immediately.
    async fn load_crl(&self, (ca, shard): Key) -> Result<Option<Arc<CrlDocument>>, CrlError> {
        let number = tables::Revocations::of(self.store()).crl_number(ca, shard).await?;
        let before = self.crls().cache.get_stale(&(ca, shard));
        if let Some(Ok(Some(document))) = before.map(|cached| cached.outcome.clone())
            && number == i64::try_from(document.number).ok()
        {
            return Ok(Some(document));
        }
        if number.is_none_or(|number| number == 0) && !self.make_first_crl(ca, shard).await? {
            return Ok(None);
        }
        Ok(tables::Revocations::of(self.store())
            .crl(ca, shard)
            .await?
            .map(|row| Arc::new(CrlDocument::of(row))))
    }
}
