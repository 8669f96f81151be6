//! Credentials: read, found, set, generated, made anew, removed.

use axum::response::{IntoResponse, Response};
use credentials::{Find, FoundCredential, GenerateRequest, Kind, Mode, Name, Parameters, SetRequest};
use http::StatusCode;
use http::header::{HeaderMap, IF_MATCH, IF_NONE_MATCH};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use uuid::Uuid;

use super::answer::{credential, generated, time};
use super::asking::Asking;
use super::body::{self, Body};
use super::context::Context;
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

/// What stands behind the question mark.
#[derive(Deserialize)]
pub(super) struct Query {
    name: Option<String>,
    path: Option<String>,
    #[serde(rename = "name-like")]
    name_like: Option<String>,
    current: Option<String>,
    versions: Option<String>,
    #[serde(rename = "expires-within-days")]
    days: Option<String>,
}

pub(super) type QueryResult<T> = Result<axum::extract::Query<T>, axum::extract::rejection::QueryRejection>;

pub(super) fn query_of<T>(query: QueryResult<T>) -> Result<T, Refused> {
    query.map(|axum::extract::Query(query)| query).map_err(|_| Refused::bad_request())
}

pub(super) async fn get(
    context: Context,
    Asking(asker): Asking,
    query: QueryResult<Query>,
) -> Result<axum::Json<Json>, Refused> {
    let query = query_of(query)?;
    let hub = context.hub();
    let store = hub.credentials();
    if let Some(name) = query.name.filter(|name| !name.is_empty()) {
        let name = Name::parse(&name).map_err(|_| credentials::CredentialError::NotFound)?;
        let current = query.current.as_deref().is_some_and(|text| text.eq_ignore_ascii_case("true"));
        let versions = match (current, query.versions) {
            (true, Some(_)) => return Err(Refused::bad(TWO_QUERIES)),
            (true, None) => store.current(&asker, &name).await?,
            (false, most) => {
                let bad = |_| Refused::bad("The query parameter versions was not valid for this request.");
                let most = most.map(|most| most.parse::<u32>().map_err(bad)).transpose()?;
                store.versions(&asker, &name, most.map(|most| most as usize)).await?
            }
        };
        let both = store.options().concatenate_cas;
        let all: Vec<Json> = versions.iter().map(|version| credential(version, both)).collect();
        return Ok(axum::Json(json!({ "data": all })));
    }
    let bad = |_| Refused::bad("The query parameter expires-within-days was not valid for this request.");
    let days = query.days.filter(|days| !days.is_empty());
    let days = days.map(|days| days.parse::<i64>().map_err(bad)).transpose()?;
    let found = match (query.path, query.name_like) {
        (Some(path), _) => store.find(&asker, &Find::Path(path), days).await?,
        (None, Some(part)) if days.is_none() && part.starts_with('/') && hub.is_exact(&asker.actor) => {
            match Name::parse(&part) {
                Ok(name) => store.find_exactly(&asker, &name).await?.into_iter().collect(),
                Err(_) => Vec::new(),
            }
        }
        (None, Some(part)) => store.find(&asker, &Find::NameLike(part), days).await?,
        (None, None) => return Err(Refused::bad("The query parameter name is required for this request.")),
    };
    let shown: Vec<Json> = found.iter().map(|found| shown(found, days.is_some())).collect();
    Ok(axum::Json(json!({ "credentials": shown })))
}

fn shown(found: &FoundCredential, with_end: bool) -> Json {
    let mut shown = json!({ "name": found.name, "version_created_at": time(found.created_at_us) });
    if with_end {
        shown["expiry_date"] = found.not_after_us.map(time).into();
    }
    shown
}

pub(super) async fn by_id(
    context: Context,
    Asking(asker): Asking,
    axum::extract::Path(id): axum::extract::Path<String>,
) -> Result<axum::Json<Json>, Refused> {
    let store = context.hub().credentials();
    let id = Uuid::parse_str(&id).map_err(|_| credentials::CredentialError::NotFound)?;
    let version = store.version(&asker, id).await?;
    Ok(axum::Json(credential(&version, store.options().concatenate_cas)))
}

pub(super) async fn set(
    context: Context,
    Asking(asker): Asking,
    headers: HeaderMap,
    Body(body): Body,
) -> Result<axum::Json<Json>, Refused> {
    // What is wrong with the fields is 422 here, and 400 where something is generated: see the module.
    let unprocessable = |refused: Refused| refused.with_status(StatusCode::UNPROCESSABLE_ENTITY);
    let kind = body::text(&body, "type").map_err(unprocessable)?.and_then(|kind| kind.parse::<Kind>().ok());
    let kind = kind.ok_or_else(|| unprocessable(Refused::bad(BAD_SET_TYPE)))?;
    body::only(&body, &["name", "type", "value", "metadata", "ttl_seconds"]).map_err(unprocessable)?;
    let name = name_of(&body, "name")?;
    let store = context.hub().credentials();
    let request = SetRequest {
        metadata: body.get("metadata").cloned(),
        expected: expected(&headers)?,
        ttl_s: body::number(&body, "ttl_seconds")?.map(u64::from),
        ..SetRequest::new(name, kind, body.get("value").cloned().unwrap_or_default())
    };
    let version = store.set(&asker, request).await?;
    Ok(axum::Json(credential(&version, store.options().concatenate_cas)))
}

/// Only over the version that the caller knows (`If-Match: "ID"`), or only where nothing is (`If-None-Match: *`).
fn expected(headers: &HeaderMap) -> Result<Option<Option<Uuid>>, Refused> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default().trim());
    match (text(IF_MATCH), text(IF_NONE_MATCH)) {
        (None, None) => Ok(None),
        (None, Some("*")) => Ok(Some(None)),
        (Some(id), None) => {
            let id = Uuid::parse_str(id.trim_matches('"'));
            id.map(|id| Some(Some(id))).map_err(|_| Refused::bad("If-Match holds no id of a version."))
        }
        _ => Err(Refused::bad("Give If-Match with the id of a version, or If-None-Match: *.")),
    }
}

fn name_of(body: &Map<String, Json>, field: &str) -> Result<Name, Refused> {
    Ok(Name::parse(&body::text(body, field)?.unwrap_or_default())?)
}

pub(super) async fn generate(
    context: Context,
    Asking(asker): Asking,
    Body(body): Body,
) -> Result<axum::Json<Json>, Refused> {
    if body::flag(&body, "regenerate")?.unwrap_or(false) {
        return again(&context, &asker, &body).await;
    }
    let kind = body::text(&body, "type")?.and_then(|kind| kind.parse::<Kind>().ok());
    let kind = kind.ok_or_else(|| Refused::bad(BAD_GENERATE_TYPE))?;
    let known =
        ["name", "type", "parameters", "mode", "overwrite", "value", "metadata", "regenerate", "ttl_seconds"];
    body::only(&body, &known)?;
    let request = GenerateRequest {
        name: name_of(&body, "name")?,
        parameters: Parameters::read(kind, body.get("parameters").cloned(), body.get("value").cloned())?,
        mode: mode_of(&body)?,
        metadata: body.get("metadata").cloned(),
        ttl_s: body::number(&body, "ttl_seconds")?.map(u64::from),
    };
    let store = context.hub().credentials();
    let version = store.generate(&asker, request).await?;
    Ok(axum::Json(generated(&version, store.options().concatenate_cas)))
}

fn mode_of(body: &Map<String, Json>) -> Result<Mode, Refused> {
    match (body::text(body, "mode")?.as_deref(), body::flag(body, "overwrite")?) {
        (Some(_), Some(_)) => Err(Refused::bad(TWO_MODES)),
        (None, Some(true)) | (Some("overwrite"), None) => Ok(Mode::Overwrite),
        (None, Some(false)) | (Some("no-overwrite"), None) => Ok(Mode::NoOverwrite),
        (None | Some("converge"), None) => Ok(Mode::Converge),
        (Some(_), None) => Err(Refused::bad(BAD_MODE)),
    }
}

pub(super) async fn regenerate(
    context: Context,
    Asking(asker): Asking,
    Body(body): Body,
) -> Result<axum::Json<Json>, Refused> {
    again(&context, &asker, &body).await
}

async fn again(
    context: &Context,
    asker: &credentials::Asker,
    body: &Map<String, Json>,
) -> Result<axum::Json<Json>, Refused> {
    body::only(body, &["name", "regenerate", "metadata"])?;
    let store = context.hub().credentials();
    let version = store.regenerate(asker, &name_of(body, "name")?, body.get("metadata").cloned()).await?;
    Ok(axum::Json(generated(&version, store.options().concatenate_cas)))
}

pub(super) async fn bulk_regenerate(
    context: Context,
    Asking(asker): Asking,
    Body(body): Body,
) -> Result<axum::Json<Json>, Refused> {
    body::only(&body, &["signed_by"])?;
    let signer = body::text(&body, "signed_by")?.filter(|name| !name.is_empty());
    let signer = Name::parse(&signer.ok_or_else(|| Refused::bad(NO_SIGNER))?)?;
    let names = context.hub().credentials().bulk_regenerate(&asker, &signer).await?;
    Ok(axum::Json(json!({ "regenerated_credentials": names })))
}

pub(super) async fn interpolate(
    context: Context,
    Asking(asker): Asking,
    Body(body): Body,
) -> Result<axum::Json<Json>, Refused> {
    let services = context.hub().credentials().interpolate(&asker, Json::Object(body)).await?;
    Ok(axum::Json(services))
}

pub(super) async fn delete(
    context: Context,
    Asking(asker): Asking,
    query: QueryResult<Query>,
) -> Result<Response, Refused> {
    let name = query_of(query)?.name.filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| Refused::bad("The query parameter name is required for this request."))?;
    let name = Name::parse(&name).map_err(|_| credentials::CredentialError::NotFound)?;
    context.hub().credentials().delete(&asker, &name).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
