//! Requests about certificates and their versions.

use api::credhub::{
    CertificateHistory, Certificates, CertificatesQuery, CredentialView, NewVersion, RegenerateCertificate,
    TransitionalVersion,
};
use axum::Json;
use axum::extract::{Path, Query};
use credentials::{CaVersions, CredentialError, Name, NewCertificateVersion, Regeneration};
use keys::SecretJson;
use uuid::Uuid;

use super::answer::{certificate_version, credential, generated};
use super::body::{self, Body};
use super::context::Context;
use super::principal::{Principal, Reader};
use crate::credhub::Refused;

fn id_of(text: &str) -> Result<Uuid, CredentialError> {
    Uuid::parse_str(text).map_err(|_| CredentialError::NotFound)
}

pub(super) async fn list(
    context: Context,
    Principal(requester): Principal,
    Query(query): Query<CertificatesQuery>,
) -> Result<Json<Certificates>, Refused> {
    let store = context.hub().credentials();
    let all = match query.name.filter(|name| !name.is_empty()) {
        Some(name) => {
            let name = Name::parse(&name).map_err(|_| CredentialError::NotFound)?;
            vec![store.certificate(&requester, &name).await?]
        }
        None => store.certificates(&requester).await?,
    };
    let histories = all.into_iter().map(|one| CertificateHistory {
        id: one.id,
        versions: one.versions.iter().map(certificate_version).collect(),
        name: one.name,
        signed_by: Some(one.signed_by),
        signs: one.signs,
    });
    Ok(Json(Certificates { certificates: histories.collect() }))
}

pub(super) async fn versions(
    context: Context,
    reader: Reader,
    Path(id): Path<String>,
    Query(query): Query<CertificatesQuery>,
) -> Result<Json<Vec<CredentialView<SecretJson>>>, Refused> {
    let requester = reader.for_reveal()?;
    let store = context.hub().credentials();
    let current = query.current.as_deref().is_some_and(|text| text.eq_ignore_ascii_case("true"));
    let id = id_of(&id)?;
    let versions = if current {
        store.current_certificate_versions(&requester, id).await?
    } else {
        store.certificate_versions(&requester, id).await?
    };
    let ca_versions = store.options().ca_versions;
    Ok(Json(versions.iter().map(|version| credential(version, ca_versions)).collect()))
}

pub(super) async fn regenerate(
    context: Context,
    Principal(requester): Principal,
    Path(id): Path<String>,
    Body(body): Body,
) -> Result<Json<CredentialView<SecretJson>>, Refused> {
    let request: RegenerateCertificate = body::read(&body)?;
    let how = Regeneration {
        set_as_transitional: request.set_as_transitional.unwrap_or(false),
        allow_transitional_parent_to_sign: request.allow_transitional_parent_to_sign.unwrap_or(false),
        key_length: request.key_length,
        duration: request.duration,
        metadata: request.metadata,
    };
    let store = context.hub().credentials();
    let version = store.regenerate_certificate(&requester, id_of(&id)?, how).await?;
    Ok(Json(generated(&version, store.options().ca_versions)))
}

pub(super) async fn add(
    context: Context,
    Principal(requester): Principal,
    Path(id): Path<String>,
    Body(body): Body,
) -> Result<Json<CredentialView<SecretJson>>, Refused> {
    let request: NewVersion = body::read(&body)?;
    let new =
        NewCertificateVersion { value: request.value, transitional: request.transitional.unwrap_or(false) };
    let version = context.hub().credentials().add_certificate_version(&requester, id_of(&id)?, new).await?;
    Ok(Json(credential(&version, CaVersions::Signer)))
}

pub(super) async fn remove(
    context: Context,
    Principal(requester): Principal,
    Path((id, version)): Path<(String, String)>,
) -> Result<Json<CredentialView<SecretJson>>, Refused> {
    let version = Uuid::parse_str(&version).map_err(|_| CredentialError::NoVersion)?;
    let deleted =
        context.hub().credentials().delete_certificate_version(&requester, id_of(&id)?, version).await?;
    Ok(Json(credential(&deleted, CaVersions::Signer)))
}

pub(super) async fn transition(
    context: Context,
    Principal(requester): Principal,
    Path(id): Path<String>,
    Body(body): Body,
) -> Result<Json<Vec<CredentialView<SecretJson>>>, Refused> {
    let TransitionalVersion { version } = body::read(&body)?;
    let store = context.hub().credentials();
    let current = store.update_transitional_version(&requester, id_of(&id)?, version.as_deref()).await?;
    Ok(Json(current.iter().map(|version| credential(version, CaVersions::Signer)).collect()))
}
