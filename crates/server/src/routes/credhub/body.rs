//! Request bodies: JSON objects, parsed as leniently as CredHub does and no more.

use std::collections::BTreeMap;

use api::credhub::RequestKind;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use keys::SecretJson;
use serde::de::DeserializeOwned;
use serde::de::value::MapDeserializer;

use super::context::Context;
use crate::credhub::Refused;

/// The members of a JSON object, each with its text. If several members have the same name, the last one counts, as in CredHub.
pub(super) type Members = BTreeMap<String, SecretJson>;

/// A request body that is a JSON object.
pub(super) struct Body(pub(super) Members);

impl FromRequest<Context> for Body {
    type Rejection = Refused;

    async fn from_request(request: Request, context: &Context) -> Result<Self, Refused> {
        let Text(bytes) = Text::from_request(request, context).await?;
        // An empty body counts as an empty object, because all fields of some requests are optional.
        let bytes = if bytes.is_empty() { Bytes::from_static(b"{}") } else { bytes };
        serde_json::from_slice(&bytes).map(Self).map_err(|_| Refused::bad_request())
    }
}

/// A body of JSON that is not parsed yet.
pub(super) struct Text(pub(super) Bytes);

impl FromRequest<Context> for Text {
    type Rejection = Refused;

    async fn from_request(request: Request, context: &Context) -> Result<Self, Refused> {
        let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if kind.is_some_and(|kind| !kind.to_ascii_lowercase().contains("json") && !kind.contains('*')) {
            return Err(Refused::bad("The provided content type is not supported"));
        }
        let bytes = Bytes::from_request(request, context).await.map_err(|error| match error.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                Refused::new(StatusCode::PAYLOAD_TOO_LARGE, "Value exceeds the maximum size.")
            }
            _ => Refused::bad_request(),
        });
        bytes.map(Self)
    }
}

/// Reason why the fields of a request cannot be parsed.
pub(super) enum Unreadable {
    /// The request contains an unknown field of this name.
    UnknownField(String),
    /// A field has another type, or is missing.
    Malformed,
}

impl Unreadable {
    /// Returns the error response; `status` is used for an unknown field.
    pub(super) fn refused(self, status: StatusCode) -> Refused {
        match self {
            Self::UnknownField(field) => Refused::new(
                status,
                format!(
                    "The request includes an unrecognized parameter '{field}'. Please update or remove this \
                     parameter and retry your request."
                ),
            ),
            Self::Malformed => Refused::bad_request(),
        }
    }
}

impl From<Unreadable> for Refused {
    fn from(unreadable: Unreadable) -> Self {
        unreadable.refused(StatusCode::BAD_REQUEST)
    }
}

/// Parses the members of a request body as a request.
pub(super) fn read<T: DeserializeOwned>(body: &Members) -> Result<T, Unreadable> {
    let members = body.iter().map(|(name, value)| (name.as_str(), value.raw()));
    T::deserialize(MapDeserializer::new(members)).map_err(|error| unreadable(&error))
}

/// Parses the fields that determine the format of a request.
pub(super) fn kind(body: &Members) -> Result<RequestKind, Unreadable> {
    read(body)
}

fn unreadable(error: &serde_json::Error) -> Unreadable {
    let text = error.to_string();
    let unknown = text.strip_prefix("unknown field `").and_then(|rest| rest.split('`').next());
    unknown.map_or(Unreadable::Malformed, |field| Unreadable::UnknownField(field.to_owned()))
}
