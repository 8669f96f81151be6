//! CA keys that only sign documents which pass the checks.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use keys::{Deadline, KeyRef, SignError};
use uuid::Uuid;
use x509::{Certificate, UnixTime};

use super::ca_certificate::{self, Issuing};
use super::consent::{self, ApprovalSource};
use super::crl::KnownCrls;
use super::document::{certificate, same};
use super::refusal::Refusal;
use super::service_certificate::{self, Service};
use crate::Authority;
use crate::ca_keys::{CaKey, CaKeyLocation, CaKeys, NewCaKey, SigningOrder, SigningPurpose};
use crate::issue::IssueRequest;
use crate::keystore::{KeyStoreError, NewKey};
use crate::plan::DocumentVersion;
use crate::profile::Profile;
use crate::tables;
use crate::tree::{Ca, CaError};

/// Provider name in the table `keys` for keys that only a signer process can use.
pub const SIGNER_PROVIDER: &str = "signer";

/// Maximum difference in seconds between the clocks of a server and of the signer.
const CLOCK_SECONDS: i64 = 120;
/// Length of a serial number in bytes, for 126 random bits.
const SERIAL_BYTES: usize = 16;

/// Rules of the signer, from the configuration of its host. The database cannot relax them.
#[derive(Clone, Debug, Default)]
pub struct SignerRules {
    /// Allowed profiles, each with the SHA-256 of its stored document in hexadecimal. If empty, every profile in the database is
    /// allowed.
    pub profiles: BTreeMap<String, String>,
    /// Directory in which the signer stores the newest CRL of each kind, to check later CRLs. With `None`, the signer reads the
    /// newest CRL from the database before it signs its first CRL of this kind. An intruder may have replaced the CRL in the
    /// database with an older one.
    pub crl_folder: Option<PathBuf>,
}

/// CA keys that only sign documents which pass the checks. `authority` uses the signer's own key store.
pub struct CheckedCaKeys {
    authority: Authority,
    rules: SignerRules,
    consents: Arc<dyn ApprovalSource>,
    crls: KnownCrls,
}

impl CheckedCaKeys {
    /// Creates the checks of a signer process. Reads nothing yet.
    #[must_use]
    pub fn new(authority: Authority, rules: SignerRules, consents: Arc<dyn ApprovalSource>) -> Self {
        let crls = KnownCrls::with_folder(rules.crl_folder.clone());
        Self { authority, rules, consents, crls }
    }

    /// Returns the stored CA with this identifier. A CA that another process has just stored is found immediately.
    ///
    /// # Errors
    /// [`CaError`]
    #[crate::boxed]
    pub async fn ca(&self, id: Uuid) -> Result<Arc<Ca>, CaError> {
        match self.authority.ca_by_id(id).await {
            Err(CaError::Unknown(_)) => {
                self.authority.invalidate_cas_cache();
                self.authority.ca_by_id(id).await
            }
            found => found,
        }
    }

    async fn checked(&self, order: SigningOrder<'_>, deadline: Deadline) -> Result<Vec<u8>, SignError> {
        let (key, ca) = self.key(order.key).await?;
        let ca = ca.as_deref();
        let mut crl = None;
        match (order.purpose, ca) {
            (SigningPurpose::Certificate { request, planned_at }, Some(ca)) => {
                self.check_certificate(ca, request, planned_at, order.tbs).await?;
            }
            (SigningPurpose::Crl { shard }, Some(ca)) => {
                crl = Some(self.crls.check(&self.authority, ca, shard, order.tbs).await?);
            }
            (SigningPurpose::OcspResponder, Some(ca)) => {
                service_certificate::check(&self.authority, ca, Service::Ocsp, order.tbs)?;
            }
            (SigningPurpose::ScepRecipient, Some(ca)) => {
                service_certificate::check(&self.authority, ca, Service::Scep, order.tbs)?;
            }
            (SigningPurpose::CaCertificate { subject_key }, ca) => {
                let issuing = Issuing { key: &key, ca };
                ca_certificate::check(&self.authority, issuing, subject_key, order.tbs).await?;
            }
            (SigningPurpose::CaRequest, _) => ca_certificate::check_request(&*key, order.tbs)?,
            (_, None) => {
                return Err(Refusal::CaCertificate("the CA is not in the database".to_owned()).into());
            }
        }
        let signature = key.sign(order.tbs, deadline).await?;
        if let (Some(crl), Some(ca)) = (crl, ca) {
            crl.signed(order.tbs, &signature, ca).await?;
        }
        Ok(signature)
    }

    /// Returns the key, always from the signer's own key store and not from the order.
    async fn key(&self, key: CaKey<'_>) -> Result<(KeyRef, Option<Arc<Ca>>), Refusal> {
        match key {
            CaKey::New(new) => Ok((self.authority.keystore().open_row(&new.row).await?, None)),
            CaKey::Of(ca) => {
                let ca = self.ca(ca.id).await?;
                let key = self.authority.keystore().signer(ca.key_id).await?;
                if *ca.certificate.public_key.spki != *key.spki() {
                    return Err(KeyStoreError::Swapped(ca.key_id).into());
                }
                Ok((key, Some(ca)))
            }
        }
    }

    async fn check_certificate(
        &self,
        ca: &Ca,
        request: &IssueRequest,
        planned_at: UnixTime,
        tbs: &[u8],
    ) -> Result<(), Refusal> {
        let (profile, version) = self.profile(&request.profile).await?;
        let now = UnixTime(self.authority.clock().now_seconds());
        if now.since(planned_at).abs() > CLOCK_SECONDS {
            return Err(Refusal::Differs(format!(
                "the plan is dated {planned_at}, but the signer's clock says {now}"
            )));
        }
        let draft: Certificate = certificate(tbs, &ca.signer.algorithm())?;
        if draft.serial.content().len() != SERIAL_BYTES {
            return Err(Refusal::Differs("the serial number is not random".to_owned()));
        }
        let expected =
            self.authority.planned_tbs_certificate(request, &profile, ca, planned_at, &draft.serial)?;
        same(&draft, tbs, &expected)?;
        if profile.requires_approval {
            consent::check(&self.authority, &*self.consents, request, &version, ca).await?;
        }
        Ok(())
    }

    /// Returns the profile as stored now, with its version.
    async fn profile(&self, name: &str) -> Result<(Profile, DocumentVersion), Refusal> {
        let refuse = |reason: &str| Refusal::Profile { name: name.to_owned(), reason: reason.to_owned() };
        let row = tables::Profiles::of(self.authority.store()).get(name).await?;
        let row = row.ok_or_else(|| refuse("unknown profile"))?;
        let version = DocumentVersion::of(row.revision, &row.body);
        if !self.rules.profiles.is_empty() {
            match self.rules.profiles.get(name) {
                None => {
                    let reason =
                        "signer.profiles does not list this profile; the SHA-256 of the stored profile is";
                    return Err(refuse(&format!("{reason} {}", version.sha256)));
                }
                Some(pinned) if *pinned != version.sha256 => {
                    let reason = "the stored profile does not match signer.profiles; its SHA-256 is now";
                    return Err(refuse(&format!("{reason} {}", version.sha256)));
                }
                Some(_) => {}
            }
        }
        let profile =
            Profile::from_json(&row.body).map_err(|_| refuse("the stored profile cannot be read"))?;
        Ok((profile, version))
    }
}

impl CaKeys for CheckedCaKeys {
    fn make<'a>(&'a self, wanted: NewCaKey<'a>) -> BoxFuture<'a, Result<NewKey, KeyStoreError>> {
        let provider = wanted.provider.unwrap_or(SIGNER_PROVIDER);
        self.authority.keystore().prepare_in_provider(provider, wanted.kind, wanted.label).boxed()
    }

    fn sign<'a>(
        &'a self,
        order: SigningOrder<'a>,
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Vec<u8>, SignError>> {
        self.checked(order, deadline).boxed()
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), SignError>> {
        async {
            let read = self.authority.all_cas().await;
            read.map(drop).map_err(|error| SignError::Unavailable(error.to_string()))
        }
        .boxed()
    }

    fn custody(&self) -> CaKeyLocation {
        CaKeyLocation::Apart
    }
}

impl fmt::Debug for CheckedCaKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckedCaKeys").field("rules", &self.rules).finish_non_exhaustive()
    }
}
