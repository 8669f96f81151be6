//! Certificate revocation lists: made once for the cluster, kept in the database, served from memory.
//!
//! A revocation moves a count on the rows of the CRLs it concerns, in its own transaction. Anyone who holds the lease makes
//! those whose count has moved, and those at half of their life.

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

/// How long a node serves a CRL before it asks whether another node has made a newer one.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Which revocations of a CA a CRL lists.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CrlPart {
    /// All of the certificates that are in no shard.
    Full,
    /// The certificates of one shard, counted from 1.
    Shard(u32),
    /// Changes since the last full CRL (RFC 5280 section 5.2.4).
    Delta,
}

impl Authority {
    /// Returns the newest CRL of a CA; `None` when the CA has no such part. A change made by another node is visible
    /// after one second at most.
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
        let number = tables::Revocations::of(self.store()).crl_number(ca, shard).await?;
        let before = self.crls().kept.get_stale(&(ca, shard));
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
