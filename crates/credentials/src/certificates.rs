//! Certificates with their versions, and replacement of a CA without an interruption of trust.
//!
//! A CA has one active version and at most one transitional version. The `ca` field of each certificate that the CA signed
//! contains both versions, the signing one first. Each change of the transitional flag adds a version with the new `ca` to the
//! certificates that the CA signed directly.

use std::collections::{HashMap, HashSet};

use futures_util::FutureExt;
use futures_util::future::join_all;
use serde_json::{Value as Json, json};
use store::StoreError;
use uuid::Uuid;

use crate::regenerate::Changes;
use crate::tables;
use crate::tables::{CredentialVersionRow, Requester, delete_credential_version, set_transitional_version};
use crate::value::{SubmittedValue, certificate_of};
use crate::version::{Version, VersionView};
use crate::writing::Draft;
use crate::{CaVersions, CredentialError, Credentials, Kind, Name, Operation, Value};

/// Page size when all certificates are listed.
const PAGE: usize = 500;

/// Number of child certificates that are updated concurrently.
const CHILDREN_AT_ONCE: usize = 256;

/// Maximum certificates, or versions of one certificate, in one listing.
const LISTED_MAX: usize = 100_000;

const TWO_TRANSITIONAL: &str = "The maximum number of transitional versions for a given CA is 1.";
const LAST_VERSION: &str = "The minimum number of versions for a Certificate is 1.";
const NO_CERTIFICATE: &str = "You must provide a certificate.";

/// A certificate and metadata of its versions, newest first.
#[derive(Clone, Debug)]
pub struct CertificateView {
    /// Id of the credential, the same for all its versions.
    pub id: Uuid,
    /// The name, with the capitalization in which it was first written.
    pub name: String,
    /// Name of the credential that signed the newest version. Empty when the signer is unknown.
    pub signed_by: String,
    /// Names of the current certificates that this certificate signed.
    pub signs: Vec<String>,
    /// The versions, newest first.
    pub versions: Vec<VersionView>,
}

/// A version to be added to a certificate.
#[derive(Clone)]
pub struct NewCertificateVersion {
    /// JSON object with `ca`, `certificate` and `private_key`.
    pub value: Json,
    /// Whether the version is transitional.
    pub transitional: bool,
}

impl std::fmt::Debug for NewCertificateVersion {
    /// Formats without the value, which is secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewCertificateVersion")
            .field("transitional", &self.transitional)
            .finish_non_exhaustive()
    }
}

/// Options for regenerating a certificate.
#[derive(Clone, Debug, Default)]
pub struct Regeneration {
    /// Whether the new version is transitional.
    pub set_as_transitional: bool,
    /// Whether the CA's newest version signs, even if that version is transitional.
    pub allow_transitional_parent_to_sign: bool,
    /// New RSA key length in bits. Default: unchanged.
    pub key_length: Option<u32>,
    /// New validity in days. Default: unchanged.
    pub duration: Option<u32>,
    /// New metadata. Default: unchanged.
    pub metadata: Option<Json>,
}

impl Credentials {
    /// Returns a certificate by its name. Decrypts no value.
    ///
    /// # Errors
    /// [`CredentialError::NotFound`].
    #[crate::boxed]
    pub async fn certificate(
        &self,
        requester: &Requester,
        name: &Name,
    ) -> Result<CertificateView, CredentialError> {
        let rows = self.certificate_rows(requester, name).await?;
        let signs = self.readable(requester, self.signed_by(name).await?).await?;
        let signed_by = match rows[0].signed_by.clone().map(Name::stored) {
            Some(signer) => self.display_name(&signer).await?,
            None => String::new(),
        };
        let (id, name) = (rows[0].credential, rows[0].name.clone());
        let versions = rows.into_iter().map(VersionView::from).collect();
        Ok(CertificateView { id, name, signed_by, signs, versions })
    }

    /// Returns the subset of these names that the caller may read. Uses one statement.
    async fn readable(
        &self,
        requester: &Requester,
        names: Vec<Name>,
    ) -> Result<Vec<String>, CredentialError> {
        let keys: Vec<String> = names.iter().map(|name| name.key().to_owned()).collect();
        let actors = HashSet::from([requester.actor.clone()]);
        let readers = tables::Credentials::of(self.store()).readers(actors, &keys).await?;
        let may = |name: &Name| match requester.at(name.key()) {
            (true, _) => true,
            (false, actor) => readers.may(actor, name.key()).unwrap_or(false),
        };
        Ok(names.into_iter().filter(may).map(|name| name.as_str().to_owned()).collect())
    }

    /// Lists every certificate that the caller may read. Reads one page at a time and decrypts no value.
    ///
    /// # Errors
    /// [`CredentialError::Bad`] when there are more than 100,000.
    #[crate::boxed]
    pub async fn certificates(&self, requester: &Requester) -> Result<Vec<CertificateView>, CredentialError> {
        let (mut all, mut after): (Vec<CertificateView>, _) = (Vec::new(), None);
        loop {
            let now = self.now_us();
            let page = tables::Credentials::of(self.store())
                .certificates(requester, after.as_ref(), PAGE, now)
                .await?;
            for row in page.rows {
                match all.last_mut().filter(|last| last.id == row.credential) {
                    Some(last) => last.versions.push(row.into()),
                    None => all.push(CertificateView {
                        id: row.credential,
                        name: row.name.clone(),
                        signed_by: row.signed_by.clone().unwrap_or_default(),
                        signs: Vec::new(),
                        versions: vec![row.into()],
                    }),
                }
            }
            if all.len() > LISTED_MAX {
                return Err(CredentialError::bad(format!(
                    "There are more than {LISTED_MAX} certificates. Request them by name."
                )));
            }
            after = page.next;
            if after.is_none() {
                set_signers(&mut all);
                return Ok(all);
            }
        }
    }

    /// Returns the versions of a certificate by the id of its credential, newest first.
    ///
    /// # Errors
    /// [`CredentialError::NotFound`].
    #[crate::boxed]
    pub async fn certificate_versions(
        &self,
        requester: &Requester,
        id: Uuid,
    ) -> Result<Vec<Version>, CredentialError> {
        let name = self.name_of(requester, id, Operation::Read).await?;
        let versions = self.versions(requester, &name, None).await?;
        if versions[0].kind() == Kind::Certificate { Ok(versions) } else { Err(CredentialError::NotFound) }
    }

    /// Returns the active and the transitional version of a certificate by the id of its credential.
    ///
    /// # Errors
    /// [`CredentialError::NotFound`].
    #[crate::boxed]
    pub async fn current_certificate_versions(
        &self,
        requester: &Requester,
        id: Uuid,
    ) -> Result<Vec<Version>, CredentialError> {
        let name = self.name_of(requester, id, Operation::Read).await?;
        self.current(requester, &name).await
    }

    /// Generates a new version of a certificate with the parameters of its newest version and these changes.
    ///
    /// # Errors
    /// [`CredentialError`]
    #[crate::boxed]
    pub async fn regenerate_certificate(
        &self,
        requester: &Requester,
        id: Uuid,
        how: Regeneration,
    ) -> Result<Version, CredentialError> {
        let name = self.name_of(requester, id, Operation::Write).await?;
        self.reject_second_transitional(&name, how.set_as_transitional).await?;
        let newest = self.newest(&name).await?.ok_or(CredentialError::NotFound)?;
        let changes = Changes {
            transitional: how.set_as_transitional,
            transitional_signs: how.allow_transitional_parent_to_sign,
            key_length: how.key_length,
            duration: how.duration,
            expected: None,
        };
        let made = self.regenerate_version(requester, newest, how.metadata, &changes).await?;
        if how.set_as_transitional {
            self.update_children(requester, &name).await?;
        }
        Ok(made)
    }

    /// Adds a version to a certificate.
    ///
    /// # Errors
    /// [`CredentialError::Bad`] when the value is not a certificate, or for a second transitional version.
    #[crate::boxed]
    pub async fn add_certificate_version(
        &self,
        requester: &Requester,
        id: Uuid,
        new: NewCertificateVersion,
    ) -> Result<Version, CredentialError> {
        let name = self.name_of(requester, id, Operation::Write).await?;
        self.reject_second_transitional(&name, new.transitional).await?;
        let SubmittedValue { value, .. } =
            Value::submitted(Kind::Certificate, new.value.into(), self.options().any_key)?;
        let Value::Certificate(certificate) = &value else { return Err(CredentialError::OtherType) };
        let own = certificate.parsed().ok_or_else(|| CredentialError::bad(NO_CERTIFICATE))?;
        let itself = own.issuer.der == own.subject.der && own.signed_by(&own.public_key).is_ok();
        let authority = crate::value::is_ca_certificate(&own);
        let mut draft = Draft::new(name.clone(), value, "credential.set");
        draft.facts = Some(crate::Facts {
            certificate_authority: authority,
            self_signed: itself,
            ..crate::Facts::default()
        });
        draft.not_after_us = Some(own.not_after.0.saturating_mul(1_000_000));
        draft.signed_by = (itself && authority).then(|| name.key().to_owned());
        draft.transitional = new.transitional;
        let stored = self.write(requester, draft).await?;
        if new.transitional {
            self.update_children(requester, &name).await?;
        }
        Ok(stored)
    }

    /// Deletes one version of a certificate, but never the last one. Returns the version, with its key if the caller may read it.
    ///
    /// # Errors
    /// [`CredentialError::NoVersion`]; [`CredentialError::Bad`] for the last version.
    #[crate::boxed]
    pub async fn delete_certificate_version(
        &self,
        requester: &Requester,
        id: Uuid,
        version: Uuid,
    ) -> Result<Version, CredentialError> {
        let name = self.name_of(requester, id, Operation::Delete).await?;
        let deleted_version = self.version_of(&requester.with_full_access(), version).await;
        let deleted_version = deleted_version.map_err(|error| match error {
            CredentialError::NotFound => CredentialError::NoVersion,
            other => other,
        })?;
        let event =
            self.event(requester, "credential.delete_version", name.as_str(), json!({ "version": version }));
        let outbox_event = self.changed(requester, &name, event.at_us);
        let (key, who) = (name.key().to_owned(), requester.clone());
        let deleted = self.store().write("credential_version_delete", move |tx| {
            async move {
                let deleted = delete_credential_version(tx, &who, &key, version).await?;
                if deleted {
                    store::audit(tx, vec![event]).await?;
                    store::emit(tx, vec![outbox_event]).await?;
                }
                Ok(deleted)
            }
            .boxed()
        });
        match deleted.await {
            Ok(true) => self.for_response(requester, &name, deleted_version).await,
            Ok(false) => Err(CredentialError::NoVersion),
            Err(StoreError::Stale(_)) => Err(CredentialError::bad(LAST_VERSION)),
            Err(error) => Err(error.into()),
        }
    }

    /// Sets which version is transitional: the version with this id, the newest one for `latest`, or none. Returns the current
    /// versions, with their keys if the caller may read them.
    ///
    /// # Errors
    /// [`CredentialError::NoVersion`].
    #[crate::boxed]
    pub async fn update_transitional_version(
        &self,
        requester: &Requester,
        id: Uuid,
        version: Option<&str>,
    ) -> Result<Vec<Version>, CredentialError> {
        let name = self.name_of(requester, id, Operation::Write).await?;
        let version = match version {
            None => None,
            Some("latest") => self.newest(&name).await?.map(|newest| newest.id),
            Some(text) => Some(Uuid::parse_str(text).map_err(|_| CredentialError::NoVersion)?),
        };
        let event =
            self.event(requester, "credential.transition", name.as_str(), json!({ "version": version }));
        let outbox_event = self.changed(requester, &name, event.at_us);
        let (key, who) = (name.key().to_owned(), requester.clone());
        let moved = self.store().write("credential_transition", move |tx| {
            async move {
                let moved = set_transitional_version(tx, &who, &key, version).await?;
                if moved {
                    store::audit(tx, vec![event]).await?;
                    store::emit(tx, vec![outbox_event]).await?;
                }
                Ok(moved)
            }
            .boxed()
        });
        if !moved.await? {
            return Err(CredentialError::NoVersion);
        }
        self.update_children(requester, &name).await?;
        let mut current = Vec::with_capacity(2);
        for version in self.current_or_empty(&requester.with_full_access(), &name).await? {
            current.push(self.for_response(requester, &name, version).await?);
        }
        Ok(current)
    }

    /// Prepares a version for the response to a change. Removes the private key unless the caller may read the credential. Logs
    /// the read if the key is returned.
    async fn for_response(
        &self,
        requester: &Requester,
        name: &Name,
        mut version: Version,
    ) -> Result<Version, CredentialError> {
        if tables::Credentials::of(self.store()).may(requester, name.key(), Operation::Read).await? {
            self.log_reading(requester, std::slice::from_ref(&version)).await?;
        } else if let Value::Certificate(value) = &mut version.value {
            value.private_key = None;
        }
        Ok(version)
    }

    /// Adds a version to each certificate that a CA signed, so that its `ca` trusts both versions of the CA, the signing one first.
    pub(crate) async fn update_children(
        &self,
        requester: &Requester,
        name: &Name,
    ) -> Result<(), CredentialError> {
        if self.options().ca_versions == CaVersions::Signer {
            return Ok(());
        }
        // A permission to change a CA includes updates of its children, even without write permission for them.
        let all = requester.with_full_access();
        let versions = self.current_or_empty(&all, name).await?;
        let pems: Vec<String> = versions
            .iter()
            .filter_map(|version| match &version.value {
                Value::Certificate(value) => value.certificate.clone(),
                _ => None,
            })
            .collect();
        for names in self.signed_by(name).await?.chunks(CHILDREN_AT_ONCE) {
            let existing = self.newest_versions(names).await?;
            let drafts = existing.into_iter().filter_map(|existing| draft_with_trust(existing, &pems));
            let written = drafts.map(|draft| self.write(&all, draft));
            for written in join_all(written).await {
                match written {
                    // Another writer added a newer version, which already has the CA's current versions.
                    Ok(_) | Err(CredentialError::Changed) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Returns the readable versions of a certificate, newest first; at least one.
    async fn certificate_rows(
        &self,
        requester: &Requester,
        name: &Name,
    ) -> Result<Vec<CredentialVersionRow>, CredentialError> {
        let now_us = self.now_us();
        let mut rows = tables::Credentials::of(self.store())
            .version_listing(requester, name.key(), LISTED_MAX)
            .await?
            .versions;
        rows.retain(|row| row.kind == Kind::Certificate && row.ends_at_us.is_none_or(|at| at > now_us));
        if rows.is_empty() { Err(CredentialError::NotFound) } else { Ok(rows) }
    }

    async fn reject_second_transitional(&self, name: &Name, wanted: bool) -> Result<(), CredentialError> {
        let rows = self.certificate_rows(&Requester::system(), name).await?;
        if wanted && rows.iter().any(|row| row.transitional) {
            return Err(CredentialError::bad(TWO_TRANSITIONAL));
        }
        Ok(())
    }

    async fn name_of(
        &self,
        requester: &Requester,
        id: Uuid,
        operation: Operation,
    ) -> Result<Name, CredentialError> {
        let name = tables::Credentials::of(self.store()).name(id).await?.ok_or(CredentialError::NotFound)?;
        let name = Name::stored(name);
        if tables::Credentials::of(self.store()).may(requester, name.key(), operation).await? {
            return Ok(name);
        }
        Err(if operation == Operation::Write {
            CredentialError::Forbidden
        } else {
            CredentialError::NotFound
        })
    }

    /// Returns the name with the capitalization in which it was first written, or `name` unchanged if no such credential exists.
    async fn display_name(&self, name: &Name) -> Result<String, CredentialError> {
        let found = self.find_exactly(&Requester::system(), name).await?;
        Ok(found.map_or_else(|| name.as_str().to_owned(), |found| found.name))
    }
}

/// Returns a draft of this version that trusts these CA certificates: the signing certificate, and the CA's other version if there
/// are two. `None` if the version already trusts exactly these certificates, or is not a certificate.
fn draft_with_trust(existing: Version, pems: &[String]) -> Option<Draft> {
    let Value::Certificate(mut value) = existing.value else { return None };
    let signed = value.ca.as_deref().and_then(certificate_of).map(|ca| ca.fingerprint);
    // A single CA version needs no entry: it is trusted as the signer.
    let other = |pem: &&String| certificate_of(pem).map(|ca| ca.fingerprint) != signed;
    let trusted = pems.iter().find(other).filter(|_| pems.len() > 1).cloned();
    if value.trusted_ca == trusted {
        return None;
    }
    value.trusted_ca = trusted;
    let mut draft = Draft::new(Name::stored(existing.name), Value::Certificate(value), "credential.trust");
    draft.metadata = existing.metadata;
    draft.parameters = existing.parameters;
    draft.facts = existing.facts;
    draft.not_after_us = existing.not_after_us;
    draft.ends_at_us = existing.ends_at_us;
    draft.transitional = existing.transitional;
    draft.signed_by = existing.signed_by;
    draft.expected = Some(Some(existing.id));
    Some(draft)
}

/// Sets on each certificate its signer and the certificates that it signed.
fn set_signers(all: &mut [CertificateView]) {
    let indexes: HashMap<String, usize> =
        all.iter().enumerate().map(|(index, one)| (one.name.to_ascii_lowercase(), index)).collect();
    for child in 0..all.len() {
        let Some(index) = indexes.get(&all[child].signed_by).copied() else { continue };
        all[child].signed_by = all[index].name.clone();
        if index != child {
            let name = all[child].name.clone();
            all[index].signs.push(name);
        }
    }
}
