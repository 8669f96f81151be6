//! Answers and refusals as CredHub writes them.

use axum::response::{IntoResponse, Response};
use credentials::{CredentialError, Refusal, Value, Version, VersionView};
use http::StatusCode;
use http::header::{HeaderValue, WWW_AUTHENTICATE};
use serde_json::{Value as Json, json};

/// What a request that is not as it should be is told.
pub(super) const BAD_REQUEST: &str = "The request could not be fulfilled because the request path or body did not \
                                      meet expectation. Please check the documentation for required formatting and \
                                      retry your request.";

/// A refusal: a status and a sentence.
#[derive(Debug)]
pub(crate) struct Refused {
    status: StatusCode,
    error: String,
    /// Only where OAuth says so.
    description: Option<String>,
}

impl Refused {
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into(), description: None }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// The sentence.
    pub(crate) fn error(&self) -> &str {
        &self.error
    }

    pub(super) fn bad(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }

    pub(super) fn bad_request() -> Self {
        Self::bad(BAD_REQUEST)
    }

    /// As RFC 6750 section 3 and RFC 6749 section 5.2 have it.
    pub(super) fn oauth(status: StatusCode, error: &str, description: &str) -> Self {
        Self { status, error: error.to_owned(), description: Some(description.to_owned()) }
    }

    /// The same with another status.
    pub(super) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        // Every value is a text: clients read this into a map of texts.
        let body = match &self.description {
            Some(description) => json!({ "error": self.error, "error_description": description }),
            None => json!({ "error": self.error }),
        };
        let mut response = (self.status, axum::Json(body)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let challenge = format!("Bearer error=\"{}\"", self.error.replace(['"', '\\'], ""));
            let challenge = HeaderValue::from_str(&challenge);
            let challenge = challenge.unwrap_or(HeaderValue::from_static("Bearer"));
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

impl From<CredentialError> for Refused {
    fn from(error: CredentialError) -> Self {
        Self::new(status_of(&error), error.to_string())
    }
}

/// Its status; what the caller is not told is logged.
pub(crate) fn status_of(error: &CredentialError) -> StatusCode {
    if let Some(details) = error.details() {
        tracing::error!(details, "the credential store could not answer");
    }
    match error.refusal() {
        Refusal::Bad => StatusCode::BAD_REQUEST,
        Refusal::Absent => StatusCode::NOT_FOUND,
        Refusal::Forbidden => StatusCode::FORBIDDEN,
        Refusal::Conflict => StatusCode::CONFLICT,
        Refusal::Gone => StatusCode::GONE,
        Refusal::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Refusal::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        Refusal::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// A time in whole seconds, as CredHub writes them.
pub(super) fn time(us: i64) -> String {
    let at = jiff::Timestamp::from_microsecond(us).unwrap_or_default();
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A version, with its value.
pub(super) fn credential(version: &Version, both_cas: bool) -> Json {
    let mut shown = json!({
        "type": version.kind().name(),
        "version_created_at": time(version.created_at_us),
        "id": version.id,
        "name": version.name,
        "metadata": version.metadata,
        "value": version.value.shown(both_cas),
    });
    if let Some(ends_at_us) = version.ends_at_us {
        shown["expires_at"] = time(ends_at_us).into();
    }
    if matches!(version.value, Value::Certificate(_)) {
        let facts = version.facts.unwrap_or_default();
        shown["transitional"] = version.transitional.into();
        shown["expiry_date"] = version.not_after_us.map(time).into();
        shown["certificate_authority"] = facts.certificate_authority.into();
        shown["self_signed"] = facts.self_signed.into();
        shown["generated"] = facts.generated.into();
    }
    shown
}

/// A version that was generated: certificates tell how.
pub(super) fn generated(version: &Version, both_cas: bool) -> Json {
    let mut shown = credential(version, both_cas);
    if matches!(version.value, Value::Certificate(_))
        && let Some(kept) = &version.parameters
    {
        let longer = version.facts.and_then(|facts| facts.minimum_days);
        shown["duration_overridden"] = longer.is_some().into();
        shown["duration_used"] = longer.map_or_else(|| kept["duration"].clone(), Into::into);
        match kept.get("key_type") {
            Some(kind) => shown["key_type"] = kind.clone(),
            None => shown["key_length"] = kept["key_length"].clone(),
        }
    }
    shown
}

/// What is known of a version without its value.
pub(super) fn certificate_version(version: &VersionView) -> Json {
    let facts = version.facts.unwrap_or_default();
    json!({
        "id": version.id,
        "expiry_date": version.not_after_us.map(time),
        "transitional": version.transitional,
        "certificate_authority": facts.certificate_authority,
        "self_signed": facts.self_signed,
        "generated": facts.generated,
    })
}
