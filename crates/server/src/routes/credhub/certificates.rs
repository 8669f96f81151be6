//! Certificates with their versions.

use axum::extract::Path;
use credentials::{CredentialError, Name, NewCertificateVersion, Regeneration};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use uuid::Uuid;

use super::answer::{certificate_version, credential, generated};
use super::asking::Asking;
use super::body::{self, Body};
use super::context::Context;
use crate::credhub::Refused;

/// What stands behind the question mark.
#[derive(Deserialize)]
pub(super) struct Query {
    name: Option<String>,
    current: Option<String>,
}

fn id_of(text: &str) -> Result<Uuid, CredentialError> {
    Uuid::parse_str(text).map_err(|_| CredentialError::NotFound)
}

pub(super) async fn list(
    context: Context,
    Asking(asker): Asking,
    axum::extract::Query(query): axum::extract::Query<Query>,
) -> Result<axum::Json<Json>, Refused> {
    let store = context.hub().credentials();
    let all = match query.name.filter(|name| !name.is_empty()) {
        Some(name) => {
            let name = Name::parse(&name).map_err(|_| CredentialError::NotFound)?;
            vec![store.certificate(&asker, &name).await?]
        }
        None => store.certificates(&asker).await?,
    };
    let shown: Vec<Json> = all
        .iter()
        .map(|one| {
            json!({
                "id": one.id,
                "name": one.name,
                "signed_by": one.signed_by,
                "signs": one.signs,
                "versions": one.versions.iter().map(certificate_version).collect::<Vec<_>>(),
            })
        })
        .collect();
    Ok(axum::Json(json!({ "certificates": shown })))
}

pub(super) async fn versions(
    context: Context,
    Asking(asker): Asking,
    Path(id): Path<String>,
    axum::extract::Query(query): axum::extract::Query<Query>,
) -> Result<axum::Json<Json>, Refused> {
    let store = context.hub().credentials();
    let current = query.current.as_deref().is_some_and(|text| text.eq_ignore_ascii_case("true"));
    let versions = store.certificate_versions(&asker, id_of(&id)?, current).await?;
    let both = store.options().concatenate_cas;
    Ok(axum::Json(versions.iter().map(|version| credential(version, both)).collect()))
}

pub(super) async fn regenerate(
    context: Context,
    Asking(asker): Asking,
    Path(id): Path<String>,
    Body(body): Body,
) -> Result<axum::Json<Json>, Refused> {
    let known =
        ["set_as_transitional", "allow_transitional_parent_to_sign", "key_length", "duration", "metadata"];
    body::only(&body, &known)?;
    let how = Regeneration {
        set_as_transitional: body::flag(&body, "set_as_transitional")?.unwrap_or(false),
        allow_transitional_parent_to_sign: body::flag(&body, "allow_transitional_parent_to_sign")?
            .unwrap_or(false),
        key_length: body::number(&body, "key_length")?,
        duration: body::number(&body, "duration")?,
        metadata: body.get("metadata").cloned(),
    };
    let store = context.hub().credentials();
    let version = store.regenerate_certificate(&asker, id_of(&id)?, how).await?;
    Ok(axum::Json(generated(&version, store.options().concatenate_cas)))
}

pub(super) async fn add(
    context: Context,
    Asking(asker): Asking,
    Path(id): Path<String>,
    Body(body): Body,
) -> Result<axum::Json<Json>, Refused> {
    body::only(&body, &["value", "transitional"])?;
    let new = NewCertificateVersion {
        value: body.get("value").cloned().unwrap_or_default(),
        transitional: body::flag(&body, "transitional")?.unwrap_or(false),
    };
    let version = context.hub().credentials().add_certificate_version(&asker, id_of(&id)?, new).await?;
    Ok(axum::Json(credential(&version, false)))
}

pub(super) async fn remove(
    context: Context,
    Asking(asker): Asking,
    Path((id, version)): Path<(String, String)>,
) -> Result<axum::Json<Json>, Refused> {
    let version = Uuid::parse_str(&version).map_err(|_| CredentialError::NoVersion)?;
    let gone = context.hub().credentials().delete_certificate_version(&asker, id_of(&id)?, version).await?;
    Ok(axum::Json(credential(&gone, false)))
}

pub(super) async fn transition(
    context: Context,
    Asking(asker): Asking,
    Path(id): Path<String>,
    Body(body): Body,
) -> Result<axum::Json<Json>, Refused> {
    body::only(&body, &["version"])?;
    let version = body::text(&body, "version")?;
    let store = context.hub().credentials();
    let current = store.update_transitional_version(&asker, id_of(&id)?, version.as_deref()).await?;
    Ok(axum::Json(current.iter().map(|version| credential(version, false)).collect()))
}
