//! Lookup of CAs by identifier, name, key or certificate.

use std::sync::Arc;
use std::time::Duration;

use flight::{Failed, Fresh};
use uuid::Uuid;
use x509::Fingerprint;

use super::ca::{Ca, PendingCa};
use super::error::CaError;
use super::forest::CaSnapshot;
use crate::Authority;
use crate::profile::Profile;
use crate::tables;

impl Authority {
    /// Returns the server's own CAs, oldest first. CAs from the credential store ([`Ca::credential`]) are omitted.
    ///
    /// # Errors
    /// [`CaError::Store`].
    #[crate::boxed]
    pub async fn cas(&self) -> Result<Vec<Arc<Ca>>, CaError> {
        let forest = self.forest().await?;
        Ok(forest.all.iter().filter(|ca| ca.credential.is_none()).cloned().collect())
    }

    /// Returns all CAs, oldest first, including those from the credential store.
    ///
    /// # Errors
    /// [`CaError::Store`].
    #[crate::boxed]
    pub async fn all_cas(&self) -> Result<Vec<Arc<Ca>>, CaError> {
        Ok(self.forest().await?.all.clone())
    }

    /// Returns the CA whose own certificate has this fingerprint; `None` if there is no such CA.
    ///
    /// # Errors
    /// [`CaError::Store`].
    #[crate::boxed]
    pub async fn ca_by_certificate(&self, certificate: &Fingerprint) -> Result<Option<Arc<Ca>>, CaError> {
        Ok(self.forest().await?.by_certificate.get(certificate).cloned())
    }

    /// Returns the pending CAs, which wait for a certificate.
    ///
    /// # Errors
    /// [`CaError::Store`].
    #[crate::boxed]
    pub async fn pending_cas(&self) -> Result<Vec<Arc<PendingCa>>, CaError> {
        Ok(self.forest().await?.pending.clone())
    }

    /// Returns the CA with this identifier or name.
    ///
    /// # Errors
    /// [`CaError`]
    #[crate::boxed]
    pub async fn ca(&self, id_or_name: &str) -> Result<Arc<Ca>, CaError> {
        let forest = self.forest().await?;
        let by_id = Uuid::parse_str(id_or_name).ok().and_then(|id| forest.by_id.get(&id));
        let found = by_id.or_else(|| forest.by_name.get(id_or_name));
        found.cloned().ok_or_else(|| CaError::Unknown(id_or_name.to_owned()))
    }

    /// Returns the CA with this identifier.
    ///
    /// # Errors
    /// [`CaError`]
    #[crate::boxed]
    pub async fn ca_by_id(&self, id: Uuid) -> Result<Arc<Ca>, CaError> {
        let found = self.forest().await?.by_id.get(&id).cloned();
        found.ok_or_else(|| CaError::Unknown(id.to_string()))
    }

    /// Returns the CAs with this key (SHA-256 of the SubjectPublicKeyInfo). After a renewal by an external parent there are
    /// several.
    ///
    /// # Errors
    /// [`CaError::Store`].
    #[crate::boxed]
    pub async fn cas_by_key(&self, spki: &x509::SpkiHash) -> Result<Vec<Arc<Ca>>, CaError> {
        let forest = self.forest().await?;
        let same = forest.all.iter().filter(|ca| ca.certificate.public_key.spki_sha256 == *spki);
        Ok(same.cloned().collect())
    }

    /// Returns the CA from which to issue: the named one (identifier or name), otherwise the default.
    ///
    /// The default is the last chosen CA that issues. Without a choice, it is the oldest issuing CA that has no CA below it, so
    /// that a new CA does not change the default. A root whose intermediates are retired is used only if no other CA issues.
    ///
    /// # Errors
    /// [`CaError::Unknown`]; [`CaError::NoneIssues`] if no CA is named and no CA issues.
    #[crate::boxed]
    pub async fn issuing_ca(&self, named: Option<&str>) -> Result<Arc<Ca>, CaError> {
        if let Some(named) = named {
            return self.ca(named).await;
        }
        self.default_ca().await?.ok_or(CaError::NoneIssues)
    }

    /// Returns the CA that issues certificates of a profile: see [`Self::issuing_ca`].
    ///
    /// # Errors
    /// [`CaError`]
    #[crate::boxed]
    pub async fn issuing_ca_for(&self, profile: &Profile) -> Result<Arc<Ca>, CaError> {
        self.issuing_ca(profile.ca.as_deref()).await
    }

    pub(crate) async fn forest(&self) -> Result<Arc<CaSnapshot>, CaError> {
        let this = self.clone();
        let lifetime = self.options().cache_lifetime;
        let read = move || async move {
            let forest =
                this.read_forest().await.map_err(|error| Failed { error, lifetime: Duration::ZERO })?;
            Ok(Fresh { value: forest, lifetime })
        };
        self.cas_cache().cache.fetch(&(), read).await
    }

    async fn read_forest(&self) -> Result<Arc<CaSnapshot>, CaError> {
        let generation = tables::CaCache::of(self.store()).generation().await?;
        let last = self.cas_cache().last.read().clone();
        if let Some(last) = last.filter(|last| last.generation == generation) {
            return Ok(last);
        }
        let forest = Arc::new(CaSnapshot::build(
            tables::CaCache::of(self.store()).all().await?,
            self.keystore(),
            self.clock().now_us(),
        ));
        *self.cas_cache().last.write() = Some(Arc::clone(&forest));
        Ok(forest)
    }

    /// Invalidates the cache of CAs after a change on this node.
    pub(crate) fn invalidate_cas_cache(&self) {
        self.cas_cache().cache.invalidate(&());
    }
}
