//! Bodies of requests: JSON objects, read as leniently as CredHub reads them and no more.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde_json::{Map, Value as Json};

use super::context::Context;
use crate::credhub::Refused;

/// A JSON object.
pub(super) struct Body(pub(super) Map<String, Json>);

impl FromRequest<Context> for Body {
    type Rejection = Refused;

    async fn from_request(request: Request, context: &Context) -> Result<Self, Refused> {
        let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if kind.is_some_and(|kind| !kind.to_ascii_lowercase().contains("json") && !kind.contains('*')) {
            return Err(Refused::bad("The provided content type is not supported"));
        }
        let octets = Bytes::from_request(request, context).await.map_err(|error| match error.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                Refused::new(StatusCode::PAYLOAD_TOO_LARGE, "Value exceeds the maximum size.")
            }
            _ => Refused::bad_request(),
        })?;
        // No body is as good as an empty object: every field of some requests may be absent.
        let octets = if octets.is_empty() { Bytes::from_static(b"{}") } else { octets };
        match serde_json::from_slice(&octets) {
            Ok(Json::Object(fields)) => Ok(Self(fields)),
            _ => Err(Refused::bad_request()),
        }
    }
}

/// Refuses fields that nobody knows.
pub(super) fn only(body: &Map<String, Json>, known: &[&str]) -> Result<(), Refused> {
    match body.keys().find(|field| !known.contains(&field.as_str())) {
        None => Ok(()),
        Some(field) => Err(Refused::bad(format!(
            "The request includes an unrecognized parameter '{field}'. Please update or remove this parameter and \
             retry your request."
        ))),
    }
}

/// A text field; `null` is as absent.
pub(super) fn text(body: &Map<String, Json>, field: &str) -> Result<Option<String>, Refused> {
    match body.get(field) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(Refused::bad_request()),
    }
}

/// A truth, which may be written as text.
pub(super) fn truth(value: &Json) -> Option<bool> {
    match value {
        Json::Bool(truth) => Some(*truth),
        Json::String(text) if text.eq_ignore_ascii_case("true") => Some(true),
        Json::String(text) if text.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    }
}

/// A field that is a truth; `null` is as absent.
pub(super) fn flag(body: &Map<String, Json>, field: &str) -> Result<Option<bool>, Refused> {
    match body.get(field) {
        None | Some(Json::Null) => Ok(None),
        Some(value) => truth(value).map(Some).ok_or_else(Refused::bad_request),
    }
}

/// A field that is a number; `null` is as absent.
pub(super) fn number(body: &Map<String, Json>, field: &str) -> Result<Option<u32>, Refused> {
    let read = |value: &Json| match value {
        Json::Number(number) => number.as_u64().and_then(|number| u32::try_from(number).ok()),
        Json::String(text) => text.parse().ok(),
        _ => None,
    };
    match body.get(field) {
        None | Some(Json::Null) => Ok(None),
        Some(value) => read(value).map(Some).ok_or_else(Refused::bad_request),
    }
}
