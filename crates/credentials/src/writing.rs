//! Setting, generation and deletion of credentials.

use std::sync::Arc;

use authority::tables::NewIssued;
use authority::tree::{Ca, CaState, CredentialCa, ImportError};
use futures_util::FutureExt;
use keys::{PrivateKey, SecretJson};
use serde_json::{Value as Json, json};
use store::NewCertificate;
use uuid::Uuid;
use x509::{Certificate, UnixTime};

use crate::credentials::NewVersion;
use crate::generate::{self, CertificateParameters, GenerateRequest, Mode, Parameters, Published, SigningCa};
use crate::tables;
use crate::tables::{NewCredentialVersion, Put, Requester, delete_credential};
use crate::value::{CertificateValue, SubmittedValue, certificate_of, is_ca_certificate, signed_by};
use crate::version::{Facts, Version, seal};
use crate::{CredentialError, Credentials, Kind, Name, Operation, Value};

/// Maximum time to live of a version, in seconds: ten years.
pub const TTL_S_MAX: u64 = 10 * 365 * 86_400;

/// Maximum characters of a credential's metadata, as JSON.
pub const METADATA_CHARS_MAX: usize = 7_000;

const LONG_METADATA: &str =
    "The request could not be completed. The credential metadata cannot exceed 7000 characters";
const BAD_METADATA: &str =
    "The request could not be completed. The credential metadata must be a JSON object.";
const NOT_CA_NAME: &str = "The name given for the CA does not reference a CA type credential.";
const NOT_CA: &str = "The requested certificate cannot be signed by the given CA because the given CA is not a \
                      certificate authority. A certificate must contain the extension 'Certificate Authority: YES' to \
                      be used to sign other certificates.";
const NO_CA_KEY: &str = "The specified CA object does not have an associated private key.";
const NOT_SIGNED_BY_NAME: &str =
    "The provided certificate was not signed by the CA specified in the 'ca_name' property.";

/// A request to set a value.
#[derive(Clone)]
pub struct SetRequest {
    /// Name of the credential.
    pub name: Name,
    /// Type of the credential, such as `password` or `certificate`.
    pub kind: Kind,
    /// The value, as JSON.
    pub value: SecretJson,
    /// Metadata to store with the value.
    pub metadata: Option<Json>,
    /// The version that must be the newest; the write fails otherwise. `Some(None)` requires that no version exists.
    pub expected: Option<Option<Uuid>>,
    /// Number that the newest version ever stored must have; the write fails otherwise. 0 requires that no version ever existed.
    pub expected_number: Option<u64>,
    /// Time to live of the version in seconds, 1–[`TTL_S_MAX`].
    pub ttl_s: Option<u64>,
}

impl SetRequest {
    /// Creates a request without conditions, time to live and metadata.
    #[must_use]
    pub fn new(name: Name, kind: Kind, value: impl Into<SecretJson>) -> Self {
        let value = value.into();
        Self { name, kind, value, metadata: None, expected: None, expected_number: None, ttl_s: None }
    }
}

impl std::fmt::Debug for SetRequest {
    /// Formats without the value.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("SetRequest");
        shown.field("name", &self.name).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// A version to store, before encryption.
pub(crate) struct Draft {
    pub(crate) name: Name,
    pub(crate) value: Value,
    pub(crate) metadata: Option<Json>,
    pub(crate) parameters: Option<Json>,
    pub(crate) facts: Option<Facts>,
    pub(crate) not_after_us: Option<i64>,
    pub(crate) transitional: bool,
    pub(crate) signed_by: Option<String>,
    pub(crate) expected: Option<Option<Uuid>>,
    pub(crate) expected_number: Option<u64>,
    pub(crate) ttl_s: Option<u64>,
    /// End of the previous version, µs since 1970-01-01 UTC. It applies to the new version too, unless the request sets a time to
    /// live.
    pub(crate) ends_at_us: Option<i64>,
    pub(crate) action: &'static str,
    pub(crate) certificate: Option<Certificate>,
    /// The CA that signed the certificate, if it is published.
    pub(crate) issuer: Option<Arc<Ca>>,
}

impl Draft {
    pub(crate) fn new(name: Name, value: Value, action: &'static str) -> Self {
        Self {
            name,
            value,
            metadata: None,
            parameters: None,
            facts: None,
            not_after_us: None,
            transitional: false,
            signed_by: None,
            expected: None,
            expected_number: None,
            ttl_s: None,
            ends_at_us: None,
            action,
            certificate: None,
            issuer: None,
        }
    }
}

/// The signer of a certificate, and its credential name (lower case).
pub(crate) struct Authority {
    pub(crate) name_key: String,
    pub(crate) ca: SigningCa,
}

impl Credentials {
    /// Stores a new version with this value.
    ///
    /// # Errors
    /// [`CredentialError`]; nothing is stored then.
    #[crate::boxed]
    pub async fn set(&self, requester: &Requester, request: SetRequest) -> Result<Version, CredentialError> {
        let SetRequest { name, kind, value, metadata, expected, expected_number, ttl_s } = request;
        let metadata = checked_metadata(metadata)?;
        let ttl_s = checked_ttl(ttl_s)?;
        let any_key = self.options().any_key;
        // Password hashing and certificate checks run on another thread, because they would block other requests.
        let is_blocking = matches!(kind, Kind::User | Kind::Certificate);
        let submitted = if is_blocking {
            let read = tokio::task::spawn_blocking(move || Value::submitted(kind, value, any_key)).await;
            read.map_err(|error| CredentialError::Internal(error.to_string()))??
        } else {
            Value::submitted(kind, value, any_key)?
        };
        let mut draft = match submitted {
            SubmittedValue { value: Value::Certificate(value), ca_name } => {
                self.set_certificate(requester, name, value, ca_name).await?
            }
            SubmittedValue { value, .. } => Draft::new(name, value, "credential.set"),
        };
        draft.metadata = metadata;
        draft.expected = expected;
        draft.expected_number = expected_number;
        draft.ttl_s = ttl_s;
        self.write(requester, draft).await
    }

    async fn set_certificate(
        &self,
        requester: &Requester,
        name: Name,
        mut value: CertificateValue,
        ca_name: Option<String>,
    ) -> Result<Draft, CredentialError> {
        let own = value.parsed();
        let mut signed = None;
        if let Some(ca_name) = ca_name {
            let ca_name = Name::parse(&ca_name)?;
            let (active, trusted) = self.ca_versions(requester, &ca_name).await?;
            let pem = active.certificate.ok_or_else(|| CredentialError::bad(NOT_CA_NAME))?;
            let ca = certificate_of(&pem).ok_or_else(|| CredentialError::bad(NOT_CA_NAME))?;
            if own.as_ref().is_some_and(|own| !signed_by(own, &ca)) {
                return Err(CredentialError::bad(NOT_SIGNED_BY_NAME));
            }
            value.ca = Some(pem);
            value.trusted_ca = trusted;
            signed = Some(ca_name.key().to_owned());
        }
        let facts = own.as_ref().map(|own| Facts {
            certificate_authority: is_ca_certificate(own),
            self_signed: own.issuer.der == own.subject.der && own.signed_by(&own.public_key).is_ok(),
            ..Facts::default()
        });
        if signed.is_none() && facts.is_some_and(|facts| facts.self_signed && facts.certificate_authority) {
            signed = Some(name.key().to_owned());
        }
        let mut draft = Draft::new(name, Value::Certificate(value), "credential.set");
        draft.facts = facts;
        draft.not_after_us = own.as_ref().map(|own| own.not_after.0.saturating_mul(1_000_000));
        draft.signed_by = signed;
        Ok(draft)
    }

    /// Generates a value and stores it, or returns the existing value: see [`Mode`]. Checks the existing value first, so that no
    /// value is generated needlessly.
    ///
    /// # Errors
    /// [`CredentialError`]; nothing is stored then.
    #[crate::boxed]
    pub async fn generate(
        &self,
        requester: &Requester,
        request: GenerateRequest,
    ) -> Result<Version, CredentialError> {
        let GenerateRequest { name, parameters, mode, metadata, ttl_s } = request;
        let metadata = checked_metadata(metadata)?;
        let ttl_s = checked_ttl(ttl_s)?;
        if !tables::Credentials::of(self.store()).may(requester, name.key(), Operation::Write).await? {
            return Err(CredentialError::Forbidden);
        }
        let existing = self.newest(&name).await?;
        if let Some(existing) = &existing {
            if existing.kind() != parameters.kind() {
                return Err(CredentialError::OtherType);
            }
            if self.keeps_existing(requester, existing, &parameters, mode).await? {
                return self.existing(requester, &name, existing.clone()).await;
            }
        }
        let mut draft = self.make(requester, name.clone(), &parameters, false).await?;
        draft.metadata = metadata;
        draft.ttl_s = ttl_s;
        // A value that another writer stored during the generation is replaced only in the mode `overwrite`.
        if mode != Mode::Overwrite {
            draft.expected = Some(existing.map(|existing| existing.id));
        }
        match self.write(requester, draft).await {
            Err(CredentialError::Changed) => {
                let existing = self.newest(&name).await?.ok_or(CredentialError::Changed)?;
                self.existing(requester, &name, existing).await
            }
            other => other,
        }
    }

    /// Returns the existing value and logs the read, if the caller may read it.
    async fn existing(
        &self,
        requester: &Requester,
        name: &Name,
        existing: Version,
    ) -> Result<Version, CredentialError> {
        let may = tables::Credentials::of(self.store()).may(requester, name.key(), Operation::Read).await?;
        if !may {
            return Err(CredentialError::NotFound);
        }
        self.log_reading(requester, std::slice::from_ref(&existing)).await?;
        Ok(existing)
    }

    async fn keeps_existing(
        &self,
        requester: &Requester,
        existing: &Version,
        parameters: &Parameters,
        mode: Mode,
    ) -> Result<bool, CredentialError> {
        match mode {
            Mode::NoOverwrite => return Ok(true),
            Mode::Overwrite => return Ok(false),
            Mode::Converge => {}
        }
        if let (Value::Certificate(value), Parameters::Certificate(wanted)) = (&existing.value, parameters) {
            if let Some(ca) = &wanted.ca {
                let (active, _) = self.ca_versions(requester, &Name::parse(ca)?).await?;
                if active.certificate != value.ca {
                    return Ok(false);
                }
            }
            let made_by = match &existing.parameters {
                Some(_) => None,
                None => value.parsed().map(|own| {
                    let ca = wanted.ca.clone().filter(|_| existing.signed_by.is_some());
                    json!(CertificateParameters::of(&own, ca))
                }),
            };
            let serialized = existing.parameters.clone().or(made_by);
            return Ok(serialized.is_none_or(|serialized| serialized == parameters.serialized()));
        }
        // A value that was set has no parameters to compare.
        Ok(existing.parameters.as_ref().is_none_or(|serialized| *serialized == parameters.serialized()))
    }

    /// Generates a value from its parameters. `transitional_signs` allows the newest version of a CA to sign while it is
    /// transitional.
    pub(crate) async fn make(
        &self,
        requester: &Requester,
        name: Name,
        parameters: &Parameters,
        transitional_signs: bool,
    ) -> Result<Draft, CredentialError> {
        const ACTION: &str = "credential.generate";
        let Parameters::Certificate(wanted) = parameters else {
            let value = generate::make(parameters, self.stock()).await?;
            let mut draft = Draft::new(name, value, ACTION);
            draft.parameters = Some(parameters.serialized());
            return Ok(draft);
        };
        let authority = match &wanted.ca {
            Some(ca) => Some(self.signing_ca(requester, &Name::parse(ca)?, transitional_signs).await?),
            None => None,
        };
        let now = UnixTime(self.now_us() / 1_000_000);
        if let Some(authority) = authority.as_ref().filter(|_| !wanted.allow_expired_ca) {
            let until = authority.ca.certificate.not_after;
            if until < now {
                return Err(CredentialError::bad(format!(
                    "The certificate of the CA {} has expired at {until}, so the CA cannot sign. hint: regenerate the CA, \
                     or generate with \"allow_expired_ca\": true",
                    authority.name_key
                )));
            }
        }
        let key: PrivateKey = self.stock().take_or_generate(wanted.key_kind()?).await?;
        let made =
            wanted.make(&key, authority.as_ref().map(|authority| &authority.ca), now, self.options()).await?;
        let self_signer = (wanted.is_ca && authority.is_none()).then(|| name.key().to_owned());
        let mut draft = Draft::new(name, Value::Certificate(made.value), ACTION);
        draft.parameters = Some(parameters.serialized());
        draft.facts = Some(made.facts);
        draft.not_after_us = Some(made.certificate.not_after.0.saturating_mul(1_000_000));
        draft.issuer =
            authority.as_ref().and_then(|authority| Some(Arc::clone(&authority.ca.published.as_ref()?.ca)));
        draft.signed_by = authority.map(|authority| authority.name_key).or(self_signer);
        draft.certificate = Some(made.certificate);
        Ok(draft)
    }

    /// Returns a CA's active version, and the certificate of the transitional one.
    pub(crate) async fn ca_versions(
        &self,
        requester: &Requester,
        name: &Name,
    ) -> Result<(CertificateValue, Option<String>), CredentialError> {
        let versions = self.current_or_empty(requester, name).await?;
        let mut values = Vec::with_capacity(2);
        for version in versions {
            let Value::Certificate(value) = version.value else {
                return Err(CredentialError::bad(NOT_CA_NAME));
            };
            values.push(value);
        }
        let mut values = values.into_iter();
        let active = values.next().ok_or(CredentialError::NoCa)?;
        Ok((active, values.next().and_then(|other| other.certificate)))
    }

    async fn signing_ca(
        &self,
        requester: &Requester,
        name: &Name,
        transitional_signs: bool,
    ) -> Result<Authority, CredentialError> {
        let mut versions = self.current_or_empty(requester, name).await?;
        if versions.is_empty() {
            return Err(CredentialError::NoCa);
        }
        // The active version comes first. The transitional version is newer if it was regenerated as transitional.
        let newer = |all: &[Version]| all.len() == 2 && all[1].number > all[0].number;
        if transitional_signs && newer(&versions) {
            versions.swap(0, 1);
        }
        let mut values = Vec::with_capacity(2);
        for version in versions {
            let Value::Certificate(value) = version.value else {
                return Err(CredentialError::bad(NOT_CA_NAME));
            };
            values.push(value);
        }
        let mut values = values.into_iter();
        let signing = values.next().ok_or(CredentialError::NoCa)?;
        let pem = signing.certificate.ok_or_else(|| CredentialError::bad(NOT_CA_NAME))?;
        let certificate = certificate_of(&pem).ok_or_else(|| CredentialError::bad(NOT_CA_NAME))?;
        if !is_ca_certificate(&certificate) {
            return Err(CredentialError::bad(NOT_CA));
        }
        let key = signing.private_key.ok_or_else(|| CredentialError::bad(NO_CA_KEY))?;
        let key = PrivateKey::from_pem(key.expose())?;
        let trusted = values.next().and_then(|other| other.certificate);
        let published = self.published(requester, name, &certificate, &key).await?;
        let ca = SigningCa { certificate, pem, key, trusted, published };
        Ok(Authority { name_key: name.key().to_owned(), ca })
    }

    /// Returns the published CA of a CA credential, with its revocation URLs. Publishes the CA first if necessary. A CA that cannot
    /// be published (expired, or not allowed to sign) still signs, as in CredHub, but its certificates cannot be revoked.
    async fn published(
        &self,
        requester: &Requester,
        name: &Name,
        certificate: &Certificate,
        key: &PrivateKey,
    ) -> Result<Option<Published>, CredentialError> {
        let Some(authority) = self.authority() else { return Ok(None) };
        let credential = CredentialCa { path: name.as_str(), certificate, key };
        let ca = match authority.credential_ca(credential, &requester.actor).await {
            Ok(ca) => ca,
            Err(ImportError::Store(error)) => return Err(error.into()),
            Err(error) => {
                tracing::warn!(credential = name.as_str(), %error, "certificates signed by this CA cannot be revoked");
                return Ok(None);
            }
        };
        if ca.state != CaState::Active {
            return Err(CredentialError::bad(format!(
                "The CA is {} (CA name {:?}). Please regenerate it, or use another CA.",
                ca.state, ca.name
            )));
        }
        let extensions = authority.revocation_extensions(&ca);
        Ok(Some(Published { ca, extensions }))
    }

    /// Publishes a stored version if it is a CA. A failure is only logged, because the CA is published again when it signs.
    async fn publish(&self, requester: &Requester, version: &Version) {
        if self.authority().is_none() || !version.facts.is_some_and(|facts| facts.certificate_authority) {
            return;
        }
        let Value::Certificate(value) = &version.value else { return };
        let key = value.private_key.as_ref().and_then(|key| PrivateKey::from_pem(key.expose()).ok());
        let (Some(certificate), Some(key)) = (value.parsed(), key) else { return };
        let name = Name::stored(version.name.clone());
        if let Err(error) = self.published(requester, &name, &certificate, &key).await {
            tracing::warn!(credential = version.name, %error, "a CA could not be registered for CRL and OCSP yet");
        }
    }

    /// Encrypts a draft and stores it. If its name was deleted concurrently, the name is created again.
    pub(crate) async fn write(
        &self,
        requester: &Requester,
        draft: Draft,
    ) -> Result<Version, CredentialError> {
        let written = match self.try_write(requester, &draft).await {
            Err(CredentialError::Forbidden)
                if tables::Credentials::of(self.store())
                    .may(requester, draft.name.key(), Operation::Write)
                    .await? =>
            {
                self.try_write(requester, &draft).await
            }
            other => other,
        }?;
        self.publish(requester, &written).await;
        Ok(written)
    }

    async fn try_write(&self, requester: &Requester, draft: &Draft) -> Result<Version, CredentialError> {
        let id = Uuid::now_v7();
        let at_us = self.now_us();
        let bytes = draft.value.serialize_for_sealing()?;
        let kind = draft.value.kind();
        let lives = |seconds: u64| at_us.saturating_add_unsigned(seconds.saturating_mul(1_000_000));
        let ends_at_us = draft.ttl_s.map(lives).or(draft.ends_at_us);
        let text = |json: &Option<Json>| json.as_ref().map(ToString::to_string);
        let row = NewCredentialVersion {
            requester: requester.clone(),
            name: draft.name.as_str().to_owned(),
            name_key: draft.name.key().to_owned(),
            kind,
            version: id,
            at_us,
            sealed: seal(self.keyring(), draft.name.key(), id, &bytes),
            metadata: text(&draft.metadata),
            parameters: text(&draft.parameters),
            facts: draft.facts.and_then(|facts| serde_json::to_string(&facts).ok()),
            not_after_us: draft.not_after_us,
            transitional: draft.transitional,
            signed_by: draft.signed_by.clone(),
            expected: draft.expected,
            expected_number: draft.expected_number,
            ends_at_us,
            keep: self.options().retention_of(draft.name.key()).and_then(|retention| retention.versions),
        };
        let (certificate, issued) = self.inventory_records(requester, draft);
        match self.put(NewVersion { row, action: draft.action, certificate, issued }).await? {
            Put::Stored { credential, name, number } => Ok(Version {
                credential,
                id,
                number,
                name,
                created_at_us: at_us,
                ends_at_us,
                metadata: draft.metadata.clone(),
                parameters: draft.parameters.clone(),
                facts: draft.facts,
                not_after_us: draft.not_after_us,
                transitional: draft.transitional,
                signed_by: draft.signed_by.clone(),
                value: draft.value.clone(),
            }),
            Put::Denied => Err(CredentialError::Forbidden),
            Put::OtherKind => Err(CredentialError::OtherType),
            Put::Newer(_) => Err(CredentialError::Changed),
        }
    }

    /// Returns the inventory record of a certificate generated here. A certificate of a published CA is recorded as issued.
    fn inventory_records(
        &self,
        requester: &Requester,
        draft: &Draft,
    ) -> (Option<Arc<NewCertificate>>, Option<NewIssued>) {
        match (&draft.certificate, &draft.issuer, self.authority()) {
            (Some(made), Some(ca), Some(authority)) => {
                (None, Some(authority.issued_by_credential(ca, made, &requester.actor)))
            }
            (Some(made), ..) => (Some(Arc::new(authority::inventory_row(made))), None),
            (None, ..) => (None, None),
        }
    }

    /// Deletes a credential and all its versions. It can be restored for
    /// [`CredentialsOptions::undelete_days`](crate::CredentialsOptions::undelete_days).
    ///
    /// # Errors
    /// [`CredentialError::NotFound`] when it does not exist or the caller lacks the permission.
    #[crate::boxed]
    pub async fn delete(&self, requester: &Requester, name: &Name) -> Result<(), CredentialError> {
        let event = self.event(requester, "credential.delete", name.as_str(), json!({}));
        let outbox_event = self.removed(requester, name, event.at_us);
        let (key, requester) = (name.key().to_owned(), requester.clone());
        let retained_since_us = (self.options().undelete_days > 0).then_some(event.at_us);
        let removed = self.store().write_indexed("credential_delete", move |tx| {
            async move {
                let removed = delete_credential(tx, &requester, &key, retained_since_us).await?;
                if removed {
                    store::audit(tx, vec![event]).await?;
                    store::emit(tx, vec![outbox_event]).await?;
                }
                Ok(removed)
            }
            .boxed()
        });
        if removed.await? { Ok(()) } else { Err(CredentialError::NotFound) }
    }
}

fn checked_ttl(ttl_s: Option<u64>) -> Result<Option<u64>, CredentialError> {
    match ttl_s {
        Some(seconds) if !(1..=TTL_S_MAX).contains(&seconds) => {
            Err(CredentialError::bad(format!("A time to live must be 1 to {TTL_S_MAX} seconds.")))
        }
        other => Ok(other),
    }
}

/// Checks that metadata is an object within the size limit; `null` means none.
pub(crate) fn checked_metadata(metadata: Option<Json>) -> Result<Option<Json>, CredentialError> {
    let Some(metadata) = metadata.filter(|submitted| !submitted.is_null()) else { return Ok(None) };
    if !metadata.is_object() {
        return Err(CredentialError::bad(BAD_METADATA));
    }
    if metadata.to_string().chars().count() > METADATA_CHARS_MAX {
        return Err(CredentialError::bad(LONG_METADATA));
    }
    Ok(Some(metadata))
}
