//! Error responses in CredHub's format.

use api::credhub::ErrorView;
use axum::response::{IntoResponse, Response};
use credentials::{CredentialError, Refusal};
use http::StatusCode;
use http::header::{HeaderValue, WWW_AUTHENTICATE};

use crate::problem::Problem;

/// The message for malformed requests.
const BAD_REQUEST: &str = "The request could not be fulfilled because the request path or body did not \
                                      meet expectation. Please check the documentation for required formatting and \
                                      retry your request.";

/// An error response: a status and a message.
#[derive(Debug)]
pub(crate) struct Refused {
    status: StatusCode,
    error: String,
    /// The OAuth error description, only if OAuth specifies one.
    description: Option<String>,
    /// The problem document to send in place of CredHub's format, for pages of this process.
    document: Option<Box<Problem>>,
}

impl Refused {
    pub(crate) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into(), description: None, document: None }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the error message, or the OAuth error code.
    pub(crate) fn error(&self) -> &str {
        &self.error
    }

    pub(crate) fn bad(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }

    pub(crate) fn bad_request() -> Self {
        Self::bad(BAD_REQUEST)
    }

    /// Creates an OAuth error in the format of RFC 6750 section 3 and RFC 6749 section 5.2.
    pub(crate) fn oauth(status: StatusCode, error: &str, description: &str) -> Self {
        Self { status, error: error.to_owned(), description: Some(description.to_owned()), document: None }
    }

    /// Creates an error that is sent as a problem document, for console pages that distinguish errors by their kind.
    pub(crate) fn with_document(problem: Problem) -> Self {
        let document = Some(Box::new(problem.clone()));
        Self { document, ..Self::new(problem.status(), problem.text()) }
    }

    /// Returns the same error with another status.
    pub(crate) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        if let Some(problem) = self.document {
            return problem.into_response();
        }
        // All values are strings, because clients parse this into a map of strings.
        let body = ErrorView { error: self.error, error_description: self.description };
        let mut response = (self.status, axum::Json(&body)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let challenge = format!("Bearer error=\"{}\"", body.error.replace(['"', '\\'], ""));
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

/// Returns the status of an error, and logs details that the caller does not see.
pub(crate) fn status_of(error: &CredentialError) -> StatusCode {
    if let Some(details) = error.details() {
        tracing::error!(details, "a request to the credential store failed");
    }
    match error.refusal() {
        Refusal::Bad => StatusCode::BAD_REQUEST,
        Refusal::Absent => StatusCode::NOT_FOUND,
        Refusal::Forbidden => StatusCode::FORBIDDEN,
        Refusal::Conflict => StatusCode::CONFLICT,
        Refusal::Gone => StatusCode::GONE,
        Refusal::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Refusal::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        Refusal::Full => StatusCode::INSUFFICIENT_STORAGE,
        Refusal::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
    }
}
