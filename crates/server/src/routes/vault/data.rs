//! Secrets: read, write, patch.

use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use credentials::{CaVersions, CredentialError, Name, Numbered, Operation, Requester, Version};
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap};
use keys::SecretJson;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::super::credhub::context::Context;
use super::answer::{
    Answer, Body, Refused, SecretData, SecretMembers, data, denied_or, destroyed_times,
    expired_version_metadata, number, secret, version_metadata, version_times,
};
use super::path::SecretName;
use super::principal::Principal;

/// The content type of a patch (RFC 7396).
const MERGE_PATCH: &str = "application/merge-patch+json";

/// The query parameters of a read.
#[derive(Deserialize)]
pub(super) struct VersionQuery {
    version: Option<String>,
    depth: Option<String>,
}

type VersionQueryResult = Result<Query<VersionQuery>, QueryRejection>;

fn counted(text: Option<&str>, field: &str) -> Result<Option<u64>, Refused> {
    let read = |text: &str| text.parse().map_err(|_| Refused::bad(format!("{field} is not a number")));
    // 0 means no version, as in Vault.
    Ok(text.map(read).transpose()?.filter(|number| *number > 0))
}

pub(super) async fn get(
    context: Context,
    Principal { requester, .. }: Principal,
    SecretName(name): SecretName,
    query: VersionQueryResult,
) -> Result<Answer<SecretData>, Refused> {
    let (version, _) = readable(&context, &requester, &name, query).await?;
    let ca_versions = context.hub().credentials().options().ca_versions;
    Ok(secret(version.value.fields(ca_versions)?, current_version_metadata(&version)))
}

/// Returns the requested version, if the caller may read it.
async fn readable(
    context: &Context,
    requester: &Requester,
    name: &Name,
    query: VersionQueryResult,
) -> Result<(Version, Option<u64>), Refused> {
    let Query(query) = query.map_err(|_| Refused::bad("the query cannot be parsed"))?;
    let wanted = counted(query.version.as_deref(), "version")?;
    let depth = counted(query.depth.as_deref(), "depth")?;
    let hub = context.hub();
    let gone = |metadata: Map<String, Json>| Refused::gone(json!({ "data": null, "metadata": metadata }));
    match hub.credentials().numbered(requester, name, wanted).await {
        Ok(Numbered::Readable(version)) => Ok((*version, depth)),
        Ok(Numbered::Ended(version)) => Err(gone(expired_version_metadata(&version))),
        Ok(Numbered::Destroyed(number)) => Err(gone(version_metadata(number, destroyed_times(), None))),
        Err(error) => Err(denied_or(hub, requester, name, Operation::Read, error).await),
    }
}

fn current_version_metadata(version: &Version) -> Map<String, Json> {
    let times = version_times(version.created_at_us, version.ends_at_us);
    version_metadata(version.number, times, version.metadata.as_ref())
}

/// Returns the structure of a secret without its values, to a maximum depth of `depth`.
pub(super) async fn subkeys(
    context: Context,
    Principal { requester, .. }: Principal,
    SecretName(name): SecretName,
    query: VersionQueryResult,
) -> Result<Answer, Refused> {
    let (version, depth) = readable(&context, &requester, &name, query).await?;
    let fields = version.value.fields(CaVersions::All)?.parse();
    let fields = fields.map_err(|error| CredentialError::Internal(error.to_string()))?;
    let shape = shape(&fields, depth.unwrap_or(u64::MAX));
    Ok(data(json!({ "subkeys": shape, "metadata": current_version_metadata(&version) })))
}

fn shape(fields: &Map<String, Json>, depth: u64) -> Json {
    let below = |value: &Json| match value {
        Json::Object(fields) if depth > 1 && !fields.is_empty() => shape(fields, depth - 1),
        _ => Json::Null,
    };
    fields.iter().map(|(name, value)| (name.clone(), below(value))).collect::<Map<_, _>>().into()
}

/// Returns the fields in a body, and the expected version.
fn written(mut body: SecretMembers) -> Result<(SecretJson, Option<u64>), Refused> {
    let fields = body.remove("data").filter(|data| !data.is_null());
    let fields = fields.ok_or_else(|| Refused::bad("no data provided"))?;
    if !fields.is_object() {
        return Err(Refused::bad("data is not a JSON object. hint: {\"data\": {\"field\": \"value\"}}"));
    }
    let options = body.get("options").map(|options| options.parse::<Json>()).transpose();
    let options = options.map_err(|_| Refused::bad("options cannot be parsed"))?.unwrap_or_default();
    let cas = match options.get("cas") {
        None | Some(Json::Null) => None,
        Some(cas) => Some(number(cas).ok_or_else(|| Refused::bad("options.cas is not a version number"))?),
    };
    Ok((fields, cas))
}

pub(super) async fn set(
    context: Context,
    Principal { requester, .. }: Principal,
    SecretName(name): SecretName,
    Body(body): Body<SecretMembers>,
) -> Result<Answer, Refused> {
    let (fields, cas) = written(body)?;
    let version = context.hub().credentials().set_fields(&requester, name, fields, cas).await?;
    Ok(data(current_version_metadata(&version)))
}

pub(super) async fn patch(
    context: Context,
    Principal { requester, .. }: Principal,
    SecretName(name): SecretName,
    headers: HeaderMap,
    Body(body): Body<SecretMembers>,
) -> Result<Answer, Refused> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().map(str::trim) != Some(MERGE_PATCH) {
        let text = format!("a patch must have the content type {MERGE_PATCH}");
        return Err(Refused::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    let (fields, cas) = written(body)?;
    let hub = context.hub();
    match hub.credentials().patch_fields(&requester, &name, &fields, cas).await {
        Ok(version) => Ok(data(current_version_metadata(&version))),
        Err(error @ CredentialError::NotFound) => {
            Err(denied_or(hub, &requester, &name, Operation::Read, error).await)
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_shape_omits_values_and_stops_at_the_requested_depth() {
        let fields = json!({ "a": "secret", "b": { "c": { "d": 1 }, "e": {} } });
        let fields = fields.as_object().unwrap();
        assert_eq!(shape(fields, u64::MAX), json!({ "a": null, "b": { "c": { "d": null }, "e": null } }));
        assert_eq!(shape(fields, 1), json!({ "a": null, "b": null }));
        assert_eq!(shape(fields, 2), json!({ "a": null, "b": { "c": null, "e": null } }));
    }
}
