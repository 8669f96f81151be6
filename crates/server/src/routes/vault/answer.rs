//! Responses and errors in Vault's format.

use std::collections::BTreeMap;

use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use credentials::{CredentialError, Name, Operation, Requester, VersionView};
use http::StatusCode;
use http::header::ALLOW;
use keys::SecretJson;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};
use uuid::Uuid;

use super::super::credhub::context::Context;
use crate::credhub::{self, CredHub};

const DENIED: &str = "permission denied";

/// An error response: a status and its messages.
#[derive(Debug)]
pub(super) struct Refused {
    status: StatusCode,
    body: RefusedBody,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum RefusedBody {
    Errors {
        errors: Vec<String>,
    },
    /// The body of the 404 for a deleted or destroyed version: the metadata of the version without its value.
    Gone(Box<Envelope<Json>>),
}

impl Refused {
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, body: RefusedBody::Errors { errors: vec![error.into()] } }
    }

    pub(super) fn bad(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }

    pub(super) fn denied() -> Self {
        Self::new(StatusCode::FORBIDDEN, DENIED)
    }

    /// Returns the error for a missing object.
    pub(super) fn absent() -> Self {
        Self { status: StatusCode::NOT_FOUND, body: RefusedBody::Errors { errors: Vec::new() } }
    }

    pub(super) fn is_absent(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
    }

    /// Returns the error for a deleted or destroyed version, with its metadata.
    pub(super) fn gone(data: Json) -> Self {
        let body = RefusedBody::Gone(Box::new(Envelope::of(data, Json::Null)));
        Self { status: StatusCode::NOT_FOUND, body }
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

/// The envelope that every response has.
#[derive(Debug, Serialize)]
pub(super) struct Envelope<D> {
    request_id: Uuid,
    lease_id: String,
    renewable: bool,
    lease_duration: i64,
    data: D,
    wrap_info: Option<()>,
    warnings: Option<()>,
    auth: Json,
    mount_type: &'static str,
}

impl<D> Envelope<D> {
    fn of(data: D, auth: Json) -> Self {
        Self {
            request_id: Uuid::new_v4(),
            lease_id: String::new(),
            renewable: false,
            lease_duration: 0,
            data,
            wrap_info: None,
            warnings: None,
            mount_type: if auth.is_null() { "kv" } else { "" },
            auth,
        }
    }
}

/// A response with data.
pub(super) type Answer<D = Json> = axum::Json<Envelope<D>>;

/// Returns a response about a lease.
pub(super) fn leased(id: &str, seconds: i64, data: Json) -> Answer {
    axum::Json(Envelope {
        lease_id: id.to_owned(),
        lease_duration: seconds,
        renewable: true,
        mount_type: "database",
        ..Envelope::of(data, Json::Null)
    })
}

pub(super) fn data(data: impl Into<Json>) -> Answer {
    axum::Json(Envelope::of(data.into(), Json::Null))
}

/// The fields of a secret, as they were written, and the metadata of its version.
#[derive(Debug, Serialize)]
pub(super) struct SecretData {
    data: SecretJson,
    metadata: Map<String, Json>,
}

/// Returns the response with the fields of a secret and the metadata of its version.
pub(super) fn secret(fields: SecretJson, metadata: Map<String, Json>) -> Answer<SecretData> {
    axum::Json(Envelope::of(SecretData { data: fields, metadata }, Json::Null))
}

pub(super) fn auth(auth: Json) -> Answer {
    axum::Json(Envelope::of(Json::Null, auth))
}

/// Formats a time with fractional seconds.
pub(super) fn time(us: i64) -> String {
    jiff::Timestamp::from_microsecond(us).unwrap_or_default().to_string()
}

/// Returns the creation and deletion times of a version that is not destroyed.
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

pub(super) fn version_metadata(
    number: u64,
    mut times: Map<String, Json>,
    stored: Option<&Json>,
) -> Map<String, Json> {
    times.insert("version".to_owned(), number.into());
    times.insert("custom_metadata".to_owned(), custom_metadata(stored));
    times
}

/// Returns the metadata of an expired or deleted version.
pub(super) fn expired_version_metadata(version: &VersionView) -> Map<String, Json> {
    version_metadata(version.number, version_times(version.created_at_us, version.ends_at_us), None)
}

/// Returns the custom metadata of a version as strings: other values become their JSON text.
pub(super) fn custom_metadata(stored: Option<&Json>) -> Json {
    let Some(Json::Object(stored)) = stored else { return Json::Null };
    let text = |value: &Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    stored.iter().map(|(name, value)| (name.clone(), Json::from(text(value)))).collect::<Map<_, _>>().into()
}

/// A JSON object from a request body, whatever its content type. An empty body is an empty object. [`SecretMembers`] keeps the texts of
/// its members.
pub(super) struct Body<M = Map<String, Json>>(pub(super) M);

/// The members of an object, each with its text.
pub(super) type SecretMembers = BTreeMap<String, SecretJson>;

impl<M: Default + DeserializeOwned> FromRequest<Context> for Body<M> {
    type Rejection = Refused;

    async fn from_request(request: Request, context: &Context) -> Result<Self, Refused> {
        let bytes = Bytes::from_request(request, context).await.map_err(|error| match error.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                Refused::new(StatusCode::PAYLOAD_TOO_LARGE, "http: request body too large")
            }
            _ => Refused::bad("the body could not be read"),
        })?;
        if bytes.is_empty() {
            return Ok(Self(M::default()));
        }
        let members = serde_json::from_slice(&bytes);
        members
            .map(Self)
            .map_err(|_| Refused::bad("failed to parse JSON input: the body is not a JSON object"))
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
