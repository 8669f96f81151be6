//! Metadata of secrets: versions, custom metadata, and listings of paths.

use axum::extract::Query;
use credentials::{History, Name, Operation, Requester};
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::super::credhub::context::Context;
use super::answer::{
    Answer, Body, Refused, custom_metadata, data, denied_or, destroyed_times, number, time, version_times,
};
use super::mount::LIST;
use super::path::{Folder, SecretName, name_of};
use super::principal::Principal;
use super::versions::ok_if_absent;

/// Maximum versions in a response.
const VERSIONS_MAX: u64 = 10_000;

/// The query parameters of a listing.
#[derive(Deserialize)]
pub(super) struct ListQuery {
    list: Option<String>,
}

impl ListQuery {
    fn lists(&self) -> bool {
        self.list.as_deref().is_some_and(|text| text == "true" || text == "1")
    }
}

async fn list(context: &Context, requester: &Requester, folder: Option<&Name>) -> Result<Answer, Refused> {
    let children = context.hub().credentials().children(requester, folder).await?;
    if children.is_empty() {
        return Err(Refused::absent());
    }
    Ok(data(json!({ "keys": children })))
}

pub(super) async fn list_by_method(
    context: Context,
    method: Method,
    Principal { requester, .. }: Principal,
    Folder(folder): Folder,
) -> Result<Answer, Refused> {
    if method.as_str() != LIST {
        return Err(unsupported());
    }
    list(&context, &requester, folder.as_ref()).await
}

pub(super) async fn list_root(
    context: Context,
    Principal { requester, .. }: Principal,
    Query(query): Query<ListQuery>,
) -> Result<Answer, Refused> {
    if !query.lists() {
        return Err(unsupported());
    }
    list(&context, &requester, None).await
}

pub(super) async fn list_root_by_method(
    context: Context,
    method: Method,
    Principal { requester, .. }: Principal,
) -> Result<Answer, Refused> {
    if method.as_str() != LIST {
        return Err(unsupported());
    }
    list(&context, &requester, None).await
}

fn unsupported() -> Refused {
    Refused::new(StatusCode::METHOD_NOT_ALLOWED, "unsupported operation")
}

pub(super) async fn get(
    context: Context,
    Principal { requester, .. }: Principal,
    Folder(folder): Folder,
    uri: http::Uri,
    Query(query): Query<ListQuery>,
) -> Result<Answer, Refused> {
    if query.lists() {
        return list(&context, &requester, folder.as_ref()).await;
    }
    let name = folder.filter(|_| !uri.path().ends_with('/'));
    let name = name.map_or_else(|| name_of("/"), Ok)?;
    let hub = context.hub();
    let history = match hub.credentials().list_versions(&requester, &name).await {
        Ok(history) => history,
        Err(error) => return Err(denied_or(hub, &requester, &name, Operation::Read, error).await),
    };
    let retention = hub.credentials().options().retention_of(name.key());
    let versions_max = retention.and_then(|retention| retention.versions).unwrap_or(0);
    Ok(data(shown(&history, versions_max)))
}

fn shown(history: &History, versions_max: u32) -> Json {
    let mut versions = Map::new();
    for version in &history.versions {
        let times = version_times(version.created_at_us, version.ends_at_us);
        versions.insert(version.number.to_string(), times.into());
    }
    // Missing versions after the oldest remaining one were destroyed.
    let oldest = history.versions.last().map_or(history.last_number, |version| version.number);
    let since = oldest.max(history.last_number.saturating_sub(VERSIONS_MAX));
    for number in since..=history.last_number {
        versions.entry(number.to_string()).or_insert_with(|| destroyed_times().into());
    }
    let updated_at_us = history.versions.first().map_or(history.created_at_us, |newest| newest.created_at_us);
    json!({
        "cas_required": false,
        "created_time": time(history.created_at_us),
        "current_version": history.last_number,
        "custom_metadata": custom_metadata(history.metadata.as_ref()),
        "delete_version_after": "0s",
        "max_versions": versions_max,
        "oldest_version": oldest,
        "updated_time": time(updated_at_us),
        "versions": versions,
    })
}

/// Rejects settings of retention and required conditions, except their default values, because they cannot be set for a single
/// secret.
fn reject_unsupported_settings(body: &Map<String, Json>) -> Result<(), Refused> {
    let zero = |value: &Json| match value {
        Json::Null | Json::Bool(false) => true,
        Json::String(text) => text.trim_end_matches('s') == "0" || text == "false",
        other => number(other) == Some(0),
    };
    for (field, hint) in [
        ("max_versions", "credentials.retention sets how many versions are kept"),
        ("cas_required", "set options.cas in each write"),
        ("delete_version_after", "ttl_seconds in the CredHub API sets when a version expires"),
    ] {
        if body.get(field).is_some_and(|value| !zero(value)) {
            return Err(Refused::bad(format!("{field} cannot be set per secret. hint: {hint}")));
        }
    }
    Ok(())
}

/// Parses the custom metadata of a body: strings, and in a patch `null` for members to remove.
fn parsed_metadata(body: &Map<String, Json>, patches: bool) -> Result<Option<Map<String, Json>>, Refused> {
    match body.get("custom_metadata") {
        None => Ok(None),
        Some(Json::Null) => Ok(Some(Map::new())),
        Some(Json::Object(fields))
            if fields.values().all(|value| value.is_string() || patches && value.is_null()) =>
        {
            Ok(Some(fields.clone()))
        }
        Some(_) => Err(Refused::bad("custom_metadata must be an object of strings")),
    }
}

pub(super) async fn set(
    context: Context,
    Principal { requester, .. }: Principal,
    SecretName(name): SecretName,
    Body(body): Body,
) -> Result<StatusCode, Refused> {
    write_metadata(&context, &requester, &name, &body, false).await
}

pub(super) async fn patch(
    context: Context,
    Principal { requester, .. }: Principal,
    SecretName(name): SecretName,
    Body(body): Body,
) -> Result<StatusCode, Refused> {
    write_metadata(&context, &requester, &name, &body, true).await
}

async fn write_metadata(
    context: &Context,
    requester: &Requester,
    name: &Name,
    body: &Map<String, Json>,
    patches: bool,
) -> Result<StatusCode, Refused> {
    reject_unsupported_settings(body)?;
    let Some(parsed_metadata) = parsed_metadata(body, patches)? else { return Ok(StatusCode::NO_CONTENT) };
    let hub = context.hub();
    let store = hub.credentials();
    let done = match patches {
        true => {
            // Metadata that the caller may not read cannot be patched.
            if let Err(error) = store.list_versions(requester, name).await {
                return Err(denied_or(hub, requester, name, Operation::Read, error).await);
            }
            store.patch_metadata(requester, name, parsed_metadata).await
        }
        false => {
            store
                .set_metadata(
                    requester,
                    name,
                    (!parsed_metadata.is_empty()).then_some(Json::Object(parsed_metadata)),
                )
                .await
        }
    };
    match done {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(error) => {
            let refused = denied_or(hub, requester, name, Operation::Write, error).await;
            let none = "the secret does not exist yet. hint: write a version first, then its metadata";
            Err(if refused.is_absent() { Refused::bad(none) } else { refused })
        }
    }
}

/// Deletes a name with all its versions. The CredHub API can restore the name for `credentials.undelete_days` days.
pub(super) async fn delete(
    context: Context,
    Principal { requester, .. }: Principal,
    SecretName(name): SecretName,
) -> Result<StatusCode, Refused> {
    let hub = context.hub();
    match hub.credentials().delete(&requester, &name).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(error) => ok_if_absent(denied_or(hub, &requester, &name, Operation::Delete, error).await),
    }
}
