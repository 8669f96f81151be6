//! Responses and errors in Vault's format.

use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use credentials::{CredentialError, Name, Operation, Requester, VersionView};
use http::StatusCode;
use http::header::ALLOW;
use serde_json::{Map, Value as Json, json};
use uuid::Uuid;

use super::super::credhub::context::Context;
use crate::credhub::{self, CredHub};

const DENIED: &str = "permission denied";

/// An error response: a status and its messages.
#[derive(Debug)]
pub(super) struct Refused {
    status: StatusCode,
    body: Json,
}

impl Refused {
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, body: json!({ "errors": [error.into()] }) }
    }

    pub(super) fn bad(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }

    pub(super) fn denied() -> Self {
        Self::new(StatusCode::FORBIDDEN, DENIED)
    }

    /// Returns the error for a missing object.
    pub(super) fn absent() -> Self {
        Self { status: StatusCode::NOT_FOUND, body: json!({ "errors": [] }) }
    }

    pub(super) fn is_absent(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
    }

    /// Returns the error for a deleted or destroyed version, with its metadata.
    pub(super) fn gone(data: Json) -> Self {
        Self { status: StatusCode::NOT_FOUND, body: enveloped(data, Json::Null) }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut response = (self.status, axum::Json(self.body)).into_response();
        // The framework's `Allow` header lacks LIST.
        response.headers_mut().remove(ALLOW);
        response
    }
}

impl From<CredentialError> for Refused {
    fn from(error: CredentialError) -> Self {
        match error {
            CredentialError::NotFound => Self::absent(),
            CredentialError::Forbidden => Self::denied(),
            CredentialError::Changed => {
                Self::bad("check-and-set parameter did not match the current version")
            }
            error => Self::new(credhub::status_of(&error), error.to_string()),
        }
    }
}

impl From<credhub::Refused> for Refused {
    fn from(refused: credhub::Refused) -> Self {
        match refused.status() {
            StatusCode::UNAUTHORIZED => Self::denied(),
            status => Self::new(status, refused.error()),
        }
    }
}

/// Converts an error to a response. A caller without the permission gets "access denied", whether or not the object exists.
pub(super) async fn denied_or(
    hub: &CredHub,
    requester: &Requester,
    name: &Name,
    operation: Operation,
    error: CredentialError,
) -> Refused {
    if !matches!(error, CredentialError::NotFound) {
        return error.into();
    }
    match hub.credentials().may(requester, name, operation).await {
        Ok(true) => Refused::absent(),
        Ok(false) => Refused::denied(),
        Err(error) => error.into(),
    }
}

/// Wraps data in the envelope that every response has.
fn enveloped(data: Json, auth: Json) -> Json {
    json!({
        "request_id": Uuid::new_v4(),
        "lease_id": "",
        "renewable": false,
        "lease_duration": 0,
        "data": data,
        "wrap_info": null,
        "warnings": null,
        "auth": auth,
        "mount_type": if auth.is_null() { "kv" } else { "" },
    })
}

/// Returns a response about a lease.
pub(super) fn leased(id: &str, seconds: i64, data: Json) -> axum::Json<Json> {
    let mut response = enveloped(data, Json::Null);
    response["lease_id"] = id.into();
    response["lease_duration"] = seconds.into();
    response["renewable"] = true.into();
    response["mount_type"] = "database".into();
    axum::Json(response)
}

pub(super) fn data(data: impl Into<Json>) -> axum::Json<Json> {
    axum::Json(enveloped(data.into(), Json::Null))
}

pub(super) fn auth(auth: Json) -> axum::Json<Json> {
    axum::Json(enveloped(Json::Null, auth))
}

/// Formats a time with fractional seconds.
pub(super) fn time(us: i64) -> String {
    jiff::Timestamp::from_microsecond(us).unwrap_or_default().to_string()
}

/// Returns the creation time and the end of a version.
pub(super) fn version_times(created_at_us: i64, ends_at_us: Option<i64>) -> Map<String, Json> {
    Map::from_iter([
        ("created_time".to_owned(), time(created_at_us).into()),
        ("deletion_time".to_owned(), ends_at_us.map(time).unwrap_or_default().into()),
        ("destroyed".to_owned(), false.into()),
    ])
}

/// Returns the times of a destroyed version, in the format of [`version_times`].
pub(super) fn destroyed_times() -> Map<String, Json> {
    Map::from_iter([
        ("created_time".to_owned(), "".into()),
        ("deletion_time".to_owned(), "".into()),
        ("destroyed".to_owned(), true.into()),
    ])
}

/// Returns the metadata of a version.
pub(super) fn version_metadata(
    number: u64,
    mut times: Map<String, Json>,
    noted: Option<&Json>,
) -> Map<String, Json> {
    times.insert("version".to_owned(), number.into());
    times.insert("custom_metadata".to_owned(), custom_metadata(noted));
    times
}

/// Returns the metadata of an expired or deleted version.
pub(super) fn expired_version_metadata(version: &VersionView) -> Map<String, Json> {
    version_metadata(version.number, version_times(version.created_at_us, version.ends_at_us), None)
}

/// Returns the custom metadata of a version as strings: other values become their JSON text.
pub(super) fn custom_metadata(noted: Option<&Json>) -> Json {
    let Some(Json::Object(noted)) = noted else { return Json::Null };
    let text = |value: &Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    noted.iter().map(|(name, value)| (name.clone(), Json::from(text(value)))).collect::<Map<_, _>>().into()
}

/// A JSON object from a request body, whatever its content type. An empty body is an empty object.
pub(super) struct Body(pub(super) Map<String, Json>);

impl FromRequest<Context> for Body {
    type Rejection = Refused;

    async fn from_request(request: Request, context: &Context) -> Result<Self, Refused> {
        let octets = Bytes::from_request(request, context).await.map_err(|error| match error.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                Refused::new(StatusCode::PAYLOAD_TOO_LARGE, "http: request body too large")
            }
            _ => Refused::bad("the body could not be read"),
        })?;
        if octets.is_empty() {
            return Ok(Self(Map::new()));
        }
        match serde_json::from_slice(&octets) {
            Ok(Json::Object(fields)) => Ok(Self(fields)),
            _ => Err(Refused::bad("failed to parse JSON input: the body is not a JSON object")),
        }
    }
}

/// Parses a number, which may be a string.
pub(super) fn number(value: &Json) -> Option<u64> {
    match value {
        Json::Number(number) => number.as_u64(),
        Json::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}
