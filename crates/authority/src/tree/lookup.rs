//! Authorities found by id, name, key or certificate.

use std::sync::Arc;
use std::time::Duration;

use flight::{Failed, Fresh};
use uuid::Uuid;
use x509::Fingerprint;

use super::ca::{Ca, PendingCa};
use super::error::CaError;
use super::forest::Forest;
use crate::Authority;
use crate::profile::Profile;
use crate::tables;

impl Authority {
    /// The house's own authorities, oldest first: those that credentials are ([`Ca::credential`]) are left out.
    ///
    /// # Errors
    /// [`CaError::Store`].
    #[crate::boxed]
    pub async fn cas(&self) -> Result<Vec<Arc<Ca>>, CaError> {
        let forest = self.forest().await?;
        Ok(forest.all.iter().filter(|ca| ca.credential.is_none()).cloned().collect())
    }

    /// Every authority, oldest first, those that credentials are among them.
    ///
    /// # Errors
    /// [`CaError::Store`].
    #[crate::boxed]
    pub async fn all_cas(&self) -> Result<Vec<Arc<Ca>>, CaError> {
        Ok(self.forest().await?.all.clone())
    }

    /// The authority with this certificate.
    ///
    /// # Errors
    /// [`CaError::Store`].
    #[crate::boxed]
    pub async fn ca_by_certificate(&self, certificate: &Fingerprint) -> Result<Option<Arc<Ca>>, CaError> {
        Ok(self.forest().await?.by_certificate.get(certificate).cloned())
    }

    /// The authorities whose request waits for a certificate.
    ///
    /// # Errors
    /// [`CaError::Store`].
    #[crate::boxed]
    pub async fn pending_cas(&self) -> Result<Vec<Arc<PendingCa>>, CaError> {
        Ok(self.forest().await?.pending.clone())
    }

    /// The authority with this id or name.
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

    /// The authority with this id.
    ///
    /// # Errors
    /// [`CaError`]
    #[crate::boxed]
    pub async fn ca_by_id(&self, id: Uuid) -> Result<Arc<Ca>, CaError> {
        let found = self.forest().await?.by_id.get(&id).cloned();
        found.ok_or_else(|| CaError::Unknown(id.to_string()))
    }

    /// The authorities with this key (SHA-256 of the SubjectPublicKeyInfo): several after a renewal by an external
    /// parent.
    ///
    /// # Errors
    /// [`CaError::Store`].
    #[crate::boxed]
    pub async fn cas_by_key(&self, spki: &x509::SpkiHash) -> Result<Vec<Arc<Ca>>, CaError> {
        let forest = self.forest().await?;
        let same = forest.all.iter().filter(|ca| ca.certificate.public_key.spki_sha256 == *spki);
        Ok(same.cloned().collect())
    }

    /// Whom to issue from: the one named (id or name), or, when none is named, the default.
    ///
    /// The default is the authority chosen last that issues. Without one it is the oldest authority that issues and has
    /// no authority below it, so that another authority changes nothing for those who name none. A root whose intermediates
    /// are retired is the last resort.
    ///
    /// # Errors
    /// [`CaError::Unknown`]; [`CaError::NoneIssues`] when none is named and none issues.
    #[crate::boxed]
    pub async fn issuing_ca(&self, named: Option<&str>) -> Result<Arc<Ca>, CaError> {
        if let Some(named) = named {
            return self.ca(named).await;
        }
        self.default_ca().await?.ok_or(CaError::NoneIssues)
    }

    /// Whom certificates of a profile come from: see [`Self::issuing_ca`].
    ///
    /// # Errors
    /// [`CaError`]
    #[crate::boxed]
    pub async fn issuing_ca_for(&self, profile: &Profile) -> Result<Arc<Ca>, CaError> {
        self.issuing_ca(profile.ca.as_deref()).await
    }

    pub(crate) async fn forest(&self) -> Result<Arc<Forest>, CaError> {
        let this = self.clone();
        let lifetime = self.options().cache_lifetime;
        let read = move || async move {
            let forest =
                this.read_forest().await.map_err(|error| Failed { error, lifetime: Duration::ZERO })?;
            Ok(Fresh { value: forest, lifetime })
        };
        self.cas_cache().cache.fetch(&(), read).await
    }

    async fn read_forest(&self) -> Result<Arc<Forest>, CaError> {
        let generation = tables::Cas::of(self.store()).generation().await?;
        let last = self.cas_cache().last.read().clone();
        if let Some(last) = last.filter(|last| last.generation == generation) {
            return Ok(last);
        }
        let forest = Arc::new(Forest::build(
            tables::Cas::of(self.store()).all().await?,
            self.keystore(),
            self.clock().now_us(),
        ));
        *self.cas_cache().last.write() = Some(Arc::clone(&forest));
        Ok(forest)
    }

    /// After a change made here.
    pub(crate) fn forget_cas(&self) {
        self.cas_cache().cache.invalidate(&());
    }
}
