//! Problem documents (RFC 9457): the format of all errors of this server.

use std::fmt;

use api::problem::ProblemDocument;
use axum::extract::path::ErrorKind;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::{Map, Value};
use store::StoreError;

/// Media type of every error (RFC 9457 section 3).
pub const MEDIA_TYPE: &str = "application/problem+json";

/// Prefix of a problem's `type`; the kind follows.
pub const TYPE_BASE: &str = "https://bulla.dev/problems/";

/// `Retry-After` in seconds when the database was busy or unavailable: a failover takes a few seconds.
const STORE_RETRY_SECONDS: u64 = 2;

/// `Retry-After` in seconds when the disk was full: an operator must free space.
const DISK_RETRY_SECONDS: u64 = 30;

/// An error response. Handlers return it: `Result<_, Problem>`.
///
/// The detail is for the caller and contains no secrets. Details that only the operator may see are logged.
#[derive(Clone)]
pub struct Problem(Box<ProblemParts>);

#[derive(Clone)]
struct ProblemParts {
    status: StatusCode,
    kind: &'static str,
    title: &'static str,
    detail: Option<String>,
    hint: Option<String>,
    members: Map<String, Value>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// Creates a problem of `kind` with its title. The kind is in lower case with hyphens, and must never change.
    #[must_use]
    pub fn new(status: StatusCode, kind: &'static str, title: &'static str) -> Self {
        Self(Box::new(ProblemParts {
            status,
            kind,
            title,
            detail: None,
            hint: None,
            members: Map::new(),
            headers: Vec::new(),
        }))
    }

    /// Sets the detail: the error of this request.
    #[must_use]
    pub fn detail(mut self, detail: impl fmt::Display) -> Self {
        self.0.detail = Some(detail.to_string());
        self
    }

    /// Adds a hint on how to resolve the problem.
    #[must_use]
    pub fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.0.hint = Some(hint.to_string());
        self
    }

    /// Adds an extension member. It must not have a name that RFC 9457 defines.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.members.insert(name.to_owned(), value.into());
        self
    }

    /// Adds a header field to the response.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.push((name, value));
        self
    }

    /// Sets `Retry-After`, in seconds.
    #[must_use]
    pub fn retry_after(self, seconds: u64) -> Self {
        self.header(RETRY_AFTER, HeaderValue::from(seconds))
    }

    /// 400: the request cannot be parsed.
    #[must_use]
    pub fn bad_request(detail: impl fmt::Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", "Malformed request").detail(detail)
    }

    /// 401: the request has no valid credential.
    #[must_use]
    pub fn unauthenticated(detail: impl fmt::Display) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthenticated", "Authentication required")
            .detail(detail)
            .hint("send an API token as `Authorization: Bearer bulla_…`, log in, or use a client certificate")
            .header(http::header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"bulla\""))
    }

    /// 403: the caller is authenticated, but lacks the permission.
    #[must_use]
    pub fn forbidden(detail: impl fmt::Display) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", "Not permitted").detail(detail)
    }

    /// 404: `what` does not exist, for example `certificate 0190…`.
    #[must_use]
    pub fn not_found(what: impl fmt::Display) -> Self {
        Self::missing(format_args!("there is no {what}"))
    }

    /// 404: the object does not exist. `detail` is a whole sentence.
    #[must_use]
    pub fn missing(detail: impl fmt::Display) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", "Not found").detail(detail)
    }

    /// 409: the current state of the object does not allow the request.
    #[must_use]
    pub fn conflict(detail: impl fmt::Display) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", "Conflict with the current state").detail(detail)
    }

    /// 409: another person must approve first.
    #[must_use]
    pub fn approval_required(detail: impl fmt::Display) -> Self {
        Self::new(StatusCode::CONFLICT, "approval-required", "Approval required").detail(detail)
    }

    /// 410: the requested data was deleted when its retention period ended.
    #[must_use]
    pub fn pruned(detail: impl fmt::Display) -> Self {
        Self::new(StatusCode::GONE, "pruned", "Pruned by the retention").detail(detail)
    }

    /// 412: the object changed since the caller read it.
    #[must_use]
    pub fn precondition_failed(detail: impl fmt::Display) -> Self {
        Self::new(StatusCode::PRECONDITION_FAILED, "precondition-failed", "Changed meanwhile")
            .detail(detail)
            .hint("read the object again and repeat the change with its new ETag")
    }

    /// 422: the request was parsed, but its content is invalid.
    #[must_use]
    pub fn unprocessable(detail: impl fmt::Display) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "unprocessable", "Not acceptable").detail(detail)
    }

    /// 429: the caller sent too many requests. `seconds` is the time until a retry.
    #[must_use]
    pub fn too_many(seconds: u64) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "rate-limited", "Too many requests")
            .detail(format_args!("retry after {seconds} s"))
            .retry_after(seconds)
    }

    /// 503: the service is unavailable. `seconds` is the time until a retry.
    #[must_use]
    pub fn unavailable(detail: impl fmt::Display, seconds: u64) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "Temporarily unavailable")
            .detail(detail)
            .retry_after(seconds)
    }

    /// The disk of the database is full. `status` is 507, or the status of a readiness probe. `error` names the disk.
    #[must_use]
    pub fn disk_full(status: StatusCode, error: &StoreError) -> Self {
        tracing::warn!(%error, "the disk of the database is full");
        Self::new(status, "disk-full", "The disk is full")
            .detail(error)
            .hint("free space on that disk or enlarge it; the server then continues without a restart")
            .retry_after(DISK_RETRY_SECONDS)
    }

    /// Returns the problem document for an error of the database.
    pub(crate) fn of_store(error: &StoreError) -> Self {
        match error {
            StoreError::Full { .. } => Self::disk_full(StatusCode::INSUFFICIENT_STORAGE, error),
            error if error.is_transient() => {
                tracing::warn!(%error, "the database did not answer a request");
                Self::unavailable("the database is busy or does not answer", STORE_RETRY_SECONDS)
            }
            error => Self::internal(error),
        }
    }

    /// 500: an internal error. The error is logged; the response does not contain it.
    #[must_use]
    pub fn internal(error: impl fmt::Display) -> Self {
        tracing::error!(%error, "a request failed");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "Internal server error")
            .detail("the request failed on the server; see the server's log for the reason")
    }

    /// Returns the HTTP status code of the response.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.0.status
    }

    /// Returns the kind: the type without [`TYPE_BASE`].
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.0.kind
    }

    /// Formats the error in one line.
    #[must_use]
    pub(crate) fn text(&self) -> String {
        self.0.detail.clone().unwrap_or_else(|| self.0.title.to_owned())
    }

    /// Creates a problem for a response of the framework (404, 405, 413, …) that is not yet a problem document.
    pub(crate) fn of_status(status: StatusCode, detail: Option<String>) -> Self {
        let (kind, title) = match status {
            StatusCode::BAD_REQUEST => ("bad-request", "Malformed request"),
            StatusCode::UNAUTHORIZED => ("unauthenticated", "Authentication required"),
            StatusCode::FORBIDDEN => ("forbidden", "Not permitted"),
            StatusCode::NOT_FOUND => ("not-found", "Not found"),
            StatusCode::METHOD_NOT_ALLOWED => ("method-not-allowed", "Method not allowed"),
            StatusCode::REQUEST_TIMEOUT => ("request-timeout", "Request timeout"),
            StatusCode::PAYLOAD_TOO_LARGE => ("payload-too-large", "The body is too large"),
            StatusCode::UNSUPPORTED_MEDIA_TYPE => ("unsupported-media-type", "Unsupported media type"),
            StatusCode::UNPROCESSABLE_ENTITY => ("unprocessable", "Not acceptable"),
            StatusCode::TOO_MANY_REQUESTS => ("rate-limited", "Too many requests"),
            StatusCode::SERVICE_UNAVAILABLE => ("unavailable", "Temporarily unavailable"),
            status if status.is_server_error() => ("internal", "Internal server error"),
            _ => ("refused", "Refused"),
        };
        let mut problem = Self::new(status, kind, title);
        problem.0.detail = detail;
        problem
    }

    /// Returns the document without `instance`, which the listener adds.
    #[must_use]
    pub fn document(&self) -> ProblemDocument {
        let inner = &self.0;
        ProblemDocument {
            kind: format!("{TYPE_BASE}{}", inner.kind),
            title: inner.title.to_owned(),
            status: inner.status.as_u16(),
            detail: inner.detail.clone(),
            hint: inner.hint.clone(),
            instance: None,
            members: inner.members.clone(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0.status.as_u16(), self.0.title)?;
        self.0.detail.as_ref().map_or(Ok(()), |detail| write!(f, ": {detail}"))
    }
}

impl fmt::Debug for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Problem({}: {self})", self.0.kind)
    }
}

impl std::error::Error for Problem {}

/// Response extension of a problem, so that outer layers can complete the document.
#[derive(Clone)]
pub(crate) struct IsProblem(pub(crate) Problem);

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self.document()).unwrap_or_default();
        let mut response = (self.0.status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        for (name, value) in &self.0.headers {
            headers.insert(name.clone(), value.clone());
        }
        response.extensions_mut().insert(IsProblem(self));
        response
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::BadCursor | StoreError::BadFingerprint(_) | StoreError::AmbiguousFingerprint(_) => {
                Self::bad_request(error)
            }
            StoreError::Pruned(_) => Self::pruned(error),
            StoreError::UnknownScan(_) => Self::of_status(StatusCode::NOT_FOUND, Some(error.to_string())),
            error => Self::of_store(&error),
        }
    }
}

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Self {
        let status = rejection.status();
        let text = rejection.body_text();
        let text = match text.strip_prefix("Failed to deserialize the JSON body into the target type: ") {
            Some(reason) => format!("the JSON document: {reason}"),
            None => text,
        };
        let problem = Self::of_status(status, Some(text));
        if status == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            return problem.hint("send JSON as `Content-Type: application/json`");
        }
        problem
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Self {
        Self::bad_request(rejection.body_text())
    }
}

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Self {
        if let PathRejection::FailedToDeserializePathParams(failed) = &rejection
            && let ErrorKind::DeserializeError { value, message, .. } = failed.kind()
            && message.starts_with("UUID")
        {
            return Self::bad_request(format_args!("{value:?} is not an ID"))
                .hint("give the ID (a UUID) that the list shows");
        }
        Self::bad_request(rejection.body_text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problem_documents_have_rfc_9457_members_and_extensions() {
        let problem = Problem::not_found("profile web").hint("see the list").with("profile", "web");
        let document = serde_json::to_value(problem.document()).unwrap();
        assert_eq!(
            document,
            serde_json::json!({
                "type": "https://bulla.dev/problems/not-found",
                "title": "Not found",
                "status": 404,
                "detail": "there is no profile web",
                "hint": "see the list",
                "profile": "web",
            })
        );
    }

    #[test]
    fn store_errors_map_to_status_codes_and_hide_internal_details() {
        let response = Problem::from(StoreError::Busy { source: "locked".into() }).into_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[RETRY_AFTER], "2");
        let full = Problem::from(StoreError::Full { disk: store::Disk::default(), source: "53100".into() });
        assert_eq!((full.status().as_u16(), full.kind()), (507, "disk-full"));
        let document = full.document();
        assert!(document.detail.unwrap().contains("the disk of the database server is full"));
        assert!(document.hint.is_some());
        assert_eq!(Problem::from(StoreError::BadCursor).status(), StatusCode::BAD_REQUEST);
        let corrupt = Problem::from(StoreError::Corrupt("secret row".to_owned()));
        assert_eq!(corrupt.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert!(!format!("{corrupt}").contains("secret row"));
    }
}
