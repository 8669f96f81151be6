//! Credentials: read, find, set, generate, regenerate, delete.

use api::credhub::{
    self, Bindings, BulkRegenerate, BulkRegenerated, CredentialView, Data, DataQuery, FoundCredentials,
    FoundView, NameQuery, RegenerateRequest,
};
use axum::Json;
use axum::response::{IntoResponse, Response};
use credentials::{FoundCredential, GenerateRequest, Kind, Mode, Name, Parameters, SearchFilter, SetRequest};
use http::StatusCode;
use http::header::{HeaderMap, IF_MATCH, IF_NONE_MATCH};
use keys::SecretJson;
use uuid::Uuid;

use super::answer::{credential, generated, time};
use super::body::{self, Body, Members, Text};
use super::context::Context;
use super::principal::{Principal, Reader};
use crate::credhub::Refused;

const BAD_SET_TYPE: &str = "The request does not include a valid type. Valid values include 'value', 'json', \
                            'password', 'user', 'certificate', 'ssh' and 'rsa'.";
const BAD_GENERATE_TYPE: &str = "The request does not include a valid type. Valid values for generate include \
                                 'password', 'user', 'certificate', 'ssh' and 'rsa'.";
const BAD_MODE: &str = "The request does not include a valid mode. Valid values for generate include 'overwrite', \
                        'no-overwrite' and 'converge'.";
const TWO_MODES: &str =
    "The parameters overwrite and mode cannot be combined. Please update and retry your request.";
const TWO_QUERIES: &str = "The query parameters current and versions cannot be provided in the same request.";
const NO_SIGNER: &str = "You must specify a signing CA. Please update and retry your request.";

pub(super) type QueryResult<T> = Result<axum::extract::Query<T>, axum::extract::rejection::QueryRejection>;

pub(super) fn parse_query<T>(query: QueryResult<T>) -> Result<T, Refused> {
    query.map(|axum::extract::Query(query)| query).map_err(|_| Refused::bad_request())
}

pub(super) async fn get(
    context: Context,
    reader: Reader,
    query: QueryResult<DataQuery>,
) -> Result<Response, Refused> {
    let query = parse_query(query)?;
    let hub = context.hub();
    let store = hub.credentials();
    if let Some(name) = query.name.filter(|name| !name.is_empty()) {
        let requester = reader.for_reveal()?;
        let name = Name::parse(&name).map_err(|_| credentials::CredentialError::NotFound)?;
        let current = query.current.as_deref().is_some_and(|text| text.eq_ignore_ascii_case("true"));
        let versions = match (current, query.versions) {
            (true, Some(_)) => return Err(Refused::bad(TWO_QUERIES)),
            (true, None) => store.current(&requester, &name).await?,
            (false, most) => {
                let bad = |_| Refused::bad("The query parameter versions was not valid for this request.");
                let most = most.map(|most| most.parse::<u32>().map_err(bad)).transpose()?;
                store.versions(&requester, &name, most.map(|most| most as usize)).await?
            }
        };
        let ca_versions = store.options().ca_versions;
        let data = versions.iter().map(|version| credential(version, ca_versions)).collect();
        return Ok(Json(Data { data }).into_response());
    }
    let requester = reader.for_search();
    let bad = |_| Refused::bad("The query parameter expires-within-days was not valid for this request.");
    let days = query.expires_within_days.filter(|days| !days.is_empty());
    let days = days.map(|days| days.parse::<i64>().map_err(bad)).transpose()?;
    let found = match (query.path, query.name_like) {
        (Some(path), _) => store.find(&requester, &SearchFilter::Path(path), days).await?,
        (None, Some(part)) if days.is_none() && part.starts_with('/') && hub.is_exact(&requester.actor) => {
            match Name::parse(&part) {
                Ok(name) => store.find_exactly(&requester, &name).await?.into_iter().collect(),
                Err(_) => Vec::new(),
            }
        }
        (None, Some(part)) => store.find(&requester, &SearchFilter::NameLike(part), days).await?,
        (None, None) => return Err(Refused::bad("The query parameter name is required for this request.")),
    };
    let credentials = found.into_iter().map(|found| found_view(found, days.is_some())).collect();
    Ok(Json(FoundCredentials::<FoundView> { credentials }).into_response())
}

fn found_view(found: FoundCredential, with_expiry: bool) -> FoundView {
    FoundView {
        name: found.name,
        version_created_at: time(found.created_at_us),
        expiry_date: with_expiry.then(|| found.not_after_us.map(time)),
    }
}

pub(super) async fn by_id(
    context: Context,
    reader: Reader,
    axum::extract::Path(id): axum::extract::Path<String>,
) -> Result<Json<CredentialView<SecretJson>>, Refused> {
    let requester = reader.for_reveal()?;
    let store = context.hub().credentials();
    let id = Uuid::parse_str(&id).map_err(|_| credentials::CredentialError::NotFound)?;
    let version = store.version(&requester, id).await?;
    Ok(Json(credential(&version, store.options().ca_versions)))
}

pub(super) async fn set(
    context: Context,
    Principal(requester): Principal,
    headers: HeaderMap,
    Body(body): Body,
) -> Result<Json<CredentialView<SecretJson>>, Refused> {
    // As in CredHub: an unknown field is 422 here, but 400 when a value is generated.
    const UNPROCESSABLE: StatusCode = StatusCode::UNPROCESSABLE_ENTITY;
    let kind = body::kind(&body).map_err(|_| Refused::bad_request().with_status(UNPROCESSABLE))?;
    let kind = kind.kind.and_then(|kind| kind.parse::<Kind>().ok());
    let kind = kind.ok_or_else(|| Refused::new(UNPROCESSABLE, BAD_SET_TYPE))?;
    let body: credhub::SetRequest<SecretJson> =
        body::read(&body).map_err(|unreadable| unreadable.refused(UNPROCESSABLE))?;
    let name = Name::parse(&body.name)?;
    let store = context.hub().credentials();
    let request = SetRequest {
        metadata: body.metadata,
        expected: expected(&headers)?,
        ttl_s: body.ttl_seconds.map(u64::from),
        ..SetRequest::new(name, kind, body.value)
    };
    let version = store.set(&requester, request).await?;
    Ok(Json(credential(&version, store.options().ca_versions)))
}

/// Parses the condition of a write: replace only the version with this ID (`If-Match: "ID"`), or only create a new credential
/// (`If-None-Match: *`).
fn expected(headers: &HeaderMap) -> Result<Option<Option<Uuid>>, Refused> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default().trim());
    match (text(IF_MATCH), text(IF_NONE_MATCH)) {
        (None, None) => Ok(None),
        (None, Some("*")) => Ok(Some(None)),
        (Some(id), None) => {
            let id = Uuid::parse_str(id.trim_matches('"'));
            id.map(|id| Some(Some(id))).map_err(|_| Refused::bad("If-Match is not the ID of a version."))
        }
        _ => Err(Refused::bad("Give If-Match with the ID of a version, or If-None-Match: *.")),
    }
}

pub(super) async fn generate(
    context: Context,
    Principal(requester): Principal,
    Body(body): Body,
) -> Result<Json<CredentialView<SecretJson>>, Refused> {
    let kind = body::kind(&body)?;
    if kind.regenerate.unwrap_or(false) {
        return regenerate_credential(&context, &requester, body).await;
    }
    let kind = kind.kind.and_then(|kind| kind.parse::<Kind>().ok());
    let kind = kind.ok_or_else(|| Refused::bad(BAD_GENERATE_TYPE))?;
    let body: credhub::GenerateRequest = body::read(&body)?;
    let request = GenerateRequest {
        name: Name::parse(&body.name)?,
        mode: mode_of(body.mode.as_deref(), body.overwrite)?,
        parameters: Parameters::read(kind, body.parameters, body.value)?,
        metadata: body.metadata,
        ttl_s: body.ttl_seconds.map(u64::from),
    };
    let store = context.hub().credentials();
    let version = store.generate(&requester, request).await?;
    Ok(Json(generated(&version, store.options().ca_versions)))
}

fn mode_of(mode: Option<&str>, overwrite: Option<bool>) -> Result<Mode, Refused> {
    match (mode, overwrite) {
        (Some(_), Some(_)) => Err(Refused::bad(TWO_MODES)),
        (None, Some(true)) | (Some("overwrite"), None) => Ok(Mode::Overwrite),
        (None, Some(false)) | (Some("no-overwrite"), None) => Ok(Mode::NoOverwrite),
        (None | Some("converge"), None) => Ok(Mode::Converge),
        (Some(_), None) => Err(Refused::bad(BAD_MODE)),
    }
}

pub(super) async fn regenerate(
    context: Context,
    Principal(requester): Principal,
    Body(body): Body,
) -> Result<Json<CredentialView<SecretJson>>, Refused> {
    regenerate_credential(&context, &requester, body).await
}

async fn regenerate_credential(
    context: &Context,
    requester: &credentials::Requester,
    body: Members,
) -> Result<Json<CredentialView<SecretJson>>, Refused> {
    let request: RegenerateRequest = body::read(&body)?;
    let store = context.hub().credentials();
    let version = store.regenerate(requester, &Name::parse(&request.name)?, request.metadata).await?;
    Ok(Json(generated(&version, store.options().ca_versions)))
}

pub(super) async fn bulk_regenerate(
    context: Context,
    Principal(requester): Principal,
    Body(body): Body,
) -> Result<Json<BulkRegenerated>, Refused> {
    let request: BulkRegenerate = body::read(&body)?;
    let signer = request.signed_by.filter(|name| !name.is_empty());
    let signer = Name::parse(&signer.ok_or_else(|| Refused::bad(NO_SIGNER))?)?;
    let regenerated_credentials = context.hub().credentials().bulk_regenerate(&requester, &signer).await?;
    Ok(Json(BulkRegenerated { regenerated_credentials }))
}

pub(super) async fn interpolate(
    context: Context,
    Principal(requester): Principal,
    Text(body): Text,
) -> Result<Json<SecretJson>, Refused> {
    let text = std::str::from_utf8(&body).map_err(|_| Refused::bad_request())?;
    let text = if text.is_empty() { "{}" } else { text };
    let services = Bindings::parse(text).ok_or_else(Refused::bad_request)?;
    Ok(Json(context.hub().credentials().interpolate(&requester, &services).await?))
}

pub(super) async fn delete(
    context: Context,
    Principal(requester): Principal,
    query: QueryResult<NameQuery>,
) -> Result<Response, Refused> {
    let name = parse_query(query)?.name.filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| Refused::bad("The query parameter name is required for this request."))?;
    let name = Name::parse(&name).map_err(|_| credentials::CredentialError::NotFound)?;
    context.hub().credentials().delete(&requester, &name).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
