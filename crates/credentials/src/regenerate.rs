//! Regeneration of credentials: new values from the parameters of the old values.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use serde_json::Value as Json;
use uuid::Uuid;

use crate::generate::{CertificateParameters, Parameters};
use crate::tables;
use crate::tables::Requester;
use crate::version::Version;
use crate::writing::{Draft, checked_metadata};
use crate::{CredentialError, Credentials, Kind, Name, Operation, Value};

/// Maximum levels of CAs below a CA that a bulk regeneration follows.
const DEPTH_MAX: usize = 16;

/// Maximum certificates that are generated concurrently.
const CONCURRENT_MAX: usize = 64;

const STATIC_PASSWORD: &str = "The password could not be regenerated because the value was statically set. Only \
                               generated passwords may be regenerated.";
const STATIC_USER: &str = "The user could not be regenerated because the value was statically set. Only generated users may be regenerated.";
const STATIC_CERTIFICATE: &str = "The credential could not be regenerated because the certificate was statically set \
                                  and is not self-signed or is invalid.";
const NOT_REGENERATED: &str = "The request does not include a valid type. Valid values for regenerate include \
                               'password', 'user', 'certificate', 'ssh' and 'rsa'.";

/// Changes to a certificate that is regenerated.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    pub(crate) transitional: bool,
    pub(crate) transitional_signs: bool,
    pub(crate) key_length: Option<u32>,
    pub(crate) duration: Option<u32>,
    /// The version that must be the newest; the regeneration fails otherwise.
    pub(crate) expected: Option<Uuid>,
}

impl Credentials {
    /// Regenerates a value. Without `metadata`, the new version has the metadata of the old one.
    ///
    /// # Errors
    /// [`CredentialError::Bad`] for a value that was set and not generated; otherwise the errors of generation.
    #[crate::boxed]
    pub async fn regenerate(
        &self,
        requester: &Requester,
        name: &Name,
        metadata: Option<Json>,
    ) -> Result<Version, CredentialError> {
        let existing = self.version_to_regenerate(requester, name).await?;
        self.regenerate_version(requester, existing, metadata, &Changes::default()).await
    }

    /// Regenerates all certificates that a credential signed, directly or through other CAs. Returns their names, sorted.
    ///
    /// # Errors
    /// The first [`CredentialError`]; other certificates may already be regenerated.
    #[crate::boxed]
    pub async fn bulk_regenerate(
        &self,
        requester: &Requester,
        signer: &Name,
    ) -> Result<Vec<String>, CredentialError> {
        if !tables::Credentials::of(self.store()).may(requester, signer.key(), Operation::Read).await? {
            return Err(CredentialError::NotFound);
        }
        let levels = self.certificates_signed_by(requester, signer).await?;
        // Regenerates CAs before the certificates that they sign, so that new certificates chain to new CAs.
        for names in levels.iter().flat_map(|level| level.chunks(CONCURRENT_MAX)) {
            let existing = self.newest_versions(names).await?;
            let made = existing.into_iter().map(|existing| async move {
                self.regenerate_version(requester, existing, None, &Changes::default()).await
            });
            // Waits for all started generations, because concurrent versions share transactions.
            join_all(made).await.into_iter().collect::<Result<Vec<_>, _>>()?;
        }
        let mut names: Vec<String> =
            levels.into_iter().flatten().map(|name| name.as_str().to_owned()).collect();
        names.sort_by_key(|name| name.to_ascii_lowercase());
        Ok(names)
    }

    /// Returns all certificates that a credential signed directly or indirectly, level by level, with one statement per level.
    /// Checks the write permission for all of them.
    async fn certificates_signed_by(
        &self,
        requester: &Requester,
        signer: &Name,
    ) -> Result<Vec<Vec<Name>>, CredentialError> {
        let mut seen = BTreeSet::from([signer.key().to_owned()]);
        let mut level = vec![signer.key().to_owned()];
        let mut all = Vec::new();
        for _ in 0..DEPTH_MAX {
            let mut next = Vec::new();
            for (name, may_write) in
                tables::Credentials::of(self.store()).signed_by(requester, &level).await?
            {
                let name = Name::stored(name);
                if !seen.insert(name.key().to_owned()) {
                    continue;
                }
                if !may_write {
                    return Err(CredentialError::Forbidden);
                }
                next.push(name);
            }
            if next.is_empty() {
                return Ok(all);
            }
            level = next.iter().map(|name| name.key().to_owned()).collect();
            all.push(next);
        }
        Err(CredentialError::bad(format!("The CA chain has more than {DEPTH_MAX} levels.")))
    }

    /// Returns the names of the current certificates that a credential signed, except its own name.
    pub(crate) async fn signed_by(&self, signer: &Name) -> Result<Vec<Name>, CredentialError> {
        let names = [signer.key().to_owned()];
        let signed = tables::Credentials::of(self.store()).signed_by(&Requester::system(), &names).await?;
        let names = signed.into_iter().map(|(name, _)| Name::stored(name));
        Ok(names.filter(|name| name.key() != signer.key()).collect())
    }

    async fn version_to_regenerate(
        &self,
        requester: &Requester,
        name: &Name,
    ) -> Result<Version, CredentialError> {
        if !tables::Credentials::of(self.store()).may(requester, name.key(), Operation::Write).await? {
            return Err(CredentialError::Forbidden);
        }
        self.newest(name).await?.ok_or(CredentialError::NotFound)
    }

    pub(crate) async fn regenerate_version(
        &self,
        requester: &Requester,
        existing: Version,
        metadata: Option<Json>,
        changes: &Changes,
    ) -> Result<Version, CredentialError> {
        let draft = self.draft_regeneration(requester, existing, metadata, changes).await?;
        self.write(requester, draft).await
    }

    /// Generates a new version with the parameters of an existing one, without storing it.
    pub(crate) async fn draft_regeneration(
        &self,
        requester: &Requester,
        existing: Version,
        metadata: Option<Json>,
        changes: &Changes,
    ) -> Result<Draft, CredentialError> {
        let mut parameters = parameters_of(&existing)?;
        if let Parameters::Certificate(wanted) = &mut parameters {
            if let Some(bits) = changes.key_length {
                (wanted.key_length, wanted.key_type) = (bits, None);
            }
            wanted.duration = changes.duration.unwrap_or(wanted.duration);
            **wanted = wanted.as_ref().clone().checked()?;
        }
        let name = Name::stored(existing.name.clone());
        let mut draft: Draft = self.make(requester, name, &parameters, changes.transitional_signs).await?;
        draft.metadata = checked_metadata(metadata)?.or(existing.metadata);
        draft.ends_at_us = existing.ends_at_us;
        draft.transitional = changes.transitional;
        draft.expected = changes.expected.map(Some);
        draft.action = "credential.regenerate";
        Ok(draft)
    }
}

/// Returns the parameters that a value was generated with, or parameters that would generate such a value.
fn parameters_of(existing: &Version) -> Result<Parameters, CredentialError> {
    let kind = existing.kind();
    if let Some(serialized) =
        existing.parameters.as_ref().and_then(|serialized| Parameters::from_serialized(kind, serialized))
    {
        return Ok(serialized);
    }
    match (&existing.value, kind) {
        (_, Kind::Password) => Err(CredentialError::bad(STATIC_PASSWORD)),
        (_, Kind::User) => Err(CredentialError::bad(STATIC_USER)),
        (_, Kind::Rsa) => Ok(Parameters::Rsa(crate::RsaParameters::default())),
        (_, Kind::Ssh) => Ok(Parameters::Ssh(crate::SshParameters::default())),
        (Value::Certificate(value), _) => {
            let own = value.parsed().ok_or_else(|| CredentialError::bad(STATIC_CERTIFICATE))?;
            let is_self_signed = existing.facts.is_some_and(|facts| facts.self_signed);
            let ca = existing.signed_by.clone().filter(|_| !is_self_signed);
            if ca.is_none() && !is_self_signed {
                return Err(CredentialError::bad(STATIC_CERTIFICATE));
            }
            Ok(Parameters::Certificate(Box::new(CertificateParameters::of(&own, ca))))
        }
        _ => Err(CredentialError::bad(NOT_REGENERATED)),
    }
}
