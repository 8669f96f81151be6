//! Problem documents (RFC 7807, as used in RFC 8555 section 6.7).

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use serde::{Deserialize, Serialize};

use super::identifier::Identifier;
use super::jose::{Algorithm, JwsError};

/// Maximum length in bytes of the `detail` member, which may quote untrusted input.
const DETAIL_MAX: usize = 1_024;
const PREFIX: &str = "urn:ietf:params:acme:error:";

/// The error types of RFC 8555 section 6.7, RFC 9773 section 7.4 and draft-ietf-acme-profiles.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    AccountDoesNotExist,
    AlreadyReplaced,
    AlreadyRevoked,
    BadCsr,
    BadNonce,
    BadPublicKey,
    BadRevocationReason,
    BadSignatureAlgorithm,
    Caa,
    Compound,
    Connection,
    Dns,
    ExternalAccountRequired,
    IncorrectResponse,
    InvalidContact,
    InvalidProfile,
    Malformed,
    OrderNotReady,
    RateLimited,
    RejectedIdentifier,
    ServerInternal,
    Tls,
    Unauthorized,
    UnsupportedContact,
    UnsupportedIdentifier,
    UserActionRequired,
}

impl Kind {
    const ALL: [(Self, &'static str, StatusCode); 26] = [
        (Self::AccountDoesNotExist, "accountDoesNotExist", StatusCode::BAD_REQUEST),
        (Self::AlreadyReplaced, "alreadyReplaced", StatusCode::CONFLICT),
        (Self::AlreadyRevoked, "alreadyRevoked", StatusCode::BAD_REQUEST),
        (Self::BadCsr, "badCSR", StatusCode::BAD_REQUEST),
        (Self::BadNonce, "badNonce", StatusCode::BAD_REQUEST),
        (Self::BadPublicKey, "badPublicKey", StatusCode::BAD_REQUEST),
        (Self::BadRevocationReason, "badRevocationReason", StatusCode::BAD_REQUEST),
        (Self::BadSignatureAlgorithm, "badSignatureAlgorithm", StatusCode::BAD_REQUEST),
        (Self::Caa, "caa", StatusCode::FORBIDDEN),
        (Self::Compound, "compound", StatusCode::FORBIDDEN),
        (Self::Connection, "connection", StatusCode::BAD_REQUEST),
        (Self::Dns, "dns", StatusCode::BAD_REQUEST),
        (Self::ExternalAccountRequired, "externalAccountRequired", StatusCode::FORBIDDEN),
        (Self::IncorrectResponse, "incorrectResponse", StatusCode::FORBIDDEN),
        (Self::InvalidContact, "invalidContact", StatusCode::BAD_REQUEST),
        (Self::InvalidProfile, "invalidProfile", StatusCode::BAD_REQUEST),
        (Self::Malformed, "malformed", StatusCode::BAD_REQUEST),
        (Self::OrderNotReady, "orderNotReady", StatusCode::FORBIDDEN),
        (Self::RateLimited, "rateLimited", StatusCode::TOO_MANY_REQUESTS),
        (Self::RejectedIdentifier, "rejectedIdentifier", StatusCode::FORBIDDEN),
        (Self::ServerInternal, "serverInternal", StatusCode::INTERNAL_SERVER_ERROR),
        (Self::Tls, "tls", StatusCode::BAD_REQUEST),
        (Self::Unauthorized, "unauthorized", StatusCode::FORBIDDEN),
        (Self::UnsupportedContact, "unsupportedContact", StatusCode::BAD_REQUEST),
        (Self::UnsupportedIdentifier, "unsupportedIdentifier", StatusCode::BAD_REQUEST),
        (Self::UserActionRequired, "userActionRequired", StatusCode::FORBIDDEN),
    ];

    fn name_and_status(self) -> (&'static str, StatusCode) {
        Self::ALL
            .iter()
            .find(|(kind, _, _)| *kind == self)
            .map_or(("serverInternal", StatusCode::INTERNAL_SERVER_ERROR), |(_, name, status)| {
                (name, *status)
            })
    }

    fn named(urn: &str) -> Option<Self> {
        let name = urn.strip_prefix(PREFIX)?;
        Self::ALL.iter().find(|(_, known, _)| *known == name).map(|(kind, _, _)| *kind)
    }
}

/// An error response, or the reason of a failed validation.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) kind: Kind,
    pub(crate) detail: String,
    status: StatusCode,
    /// Problems of single identifiers (RFC 8555 section 6.7.1).
    subproblems: Vec<(Identifier, Problem)>,
    identifier: Option<Identifier>,
    retry_after: Option<u64>,
    location: Option<String>,
    allow: Option<&'static str>,
    links: Vec<String>,
}

/// The JSON form of a problem document.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Document {
    #[serde(rename = "type")]
    kind: String,
    detail: String,
    status: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    identifier: Option<Identifier>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    algorithms: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    subproblems: Vec<Document>,
}

impl Problem {
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        let mut detail = detail.into();
        if detail.len() > DETAIL_MAX {
            let end = (0..=DETAIL_MAX).rev().find(|end| detail.is_char_boundary(*end)).unwrap_or(0);
            detail.truncate(end);
            detail.push('…');
        }
        Self {
            kind,
            detail,
            status: kind.name_and_status().1,
            subproblems: Vec::new(),
            identifier: None,
            retry_after: None,
            location: None,
            allow: None,
            links: Vec::new(),
        }
    }

    pub(crate) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(Kind::Malformed, detail)
    }

    pub(crate) fn unauthorized(detail: impl Into<String>) -> Self {
        Self::new(Kind::Unauthorized, detail)
    }

    /// Returns the same error for objects that do not exist and for objects of other accounts, so that identifiers cannot be
    /// probed.
    pub(crate) fn not_found() -> Self {
        Self::malformed("this account has no such resource").status(StatusCode::NOT_FOUND)
    }

    /// Returns an internal server error. The cause is only in the log.
    pub(crate) fn internal() -> Self {
        Self::new(Kind::ServerInternal, "internal server error; try again later").retry_after(10)
    }

    /// Returns a temporary error: the database is unavailable or a queue is full.
    pub(crate) fn busy() -> Self {
        Self::new(Kind::ServerInternal, "the server is busy; try again in a moment")
            .status(StatusCode::SERVICE_UNAVAILABLE)
            .retry_after(3)
    }

    pub(crate) fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// Sets `Retry-After` in seconds.
    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    pub(crate) fn location(mut self, url: String) -> Self {
        self.location = Some(url);
        self
    }

    pub(crate) fn allow(mut self, methods: &'static str) -> Self {
        self.allow = Some(methods);
        self
    }

    pub(crate) fn link(mut self, link: String) -> Self {
        self.links.push(link);
        self
    }

    /// Combines problems: a single one is returned unchanged, several become subproblems of a `compound` problem.
    pub(crate) fn combine(mut problems: Vec<(Identifier, Self)>) -> Self {
        if problems.len() == 1 {
            let (identifier, mut only) = problems.remove(0);
            only.identifier = Some(identifier);
            return only;
        }
        let first = problems.first().map(|(_, problem)| problem.kind);
        let alike = first.filter(|kind| problems.iter().all(|(_, problem)| problem.kind == *kind));
        let status = problems.first().map_or(StatusCode::FORBIDDEN, |(_, problem)| problem.status);
        let mut all = Self::new(
            alike.unwrap_or(Kind::Compound),
            format!("{} of the identifiers are rejected; see the subproblems", problems.len()),
        )
        .status(status);
        all.retry_after = problems.iter().filter_map(|(_, problem)| problem.retry_after).max();
        all.subproblems = problems;
        all
    }

    fn document(&self) -> Document {
        Document {
            kind: format!("{PREFIX}{}", self.kind.name_and_status().0),
            detail: self.detail.clone(),
            status: self.status.as_u16(),
            identifier: self.identifier.clone(),
            algorithms: match self.kind {
                Kind::BadSignatureAlgorithm => Algorithm::names().into_iter().map(str::to_owned).collect(),
                _ => Vec::new(),
            },
            subproblems: self
                .subproblems
                .iter()
                .map(|(identifier, problem)| Document {
                    identifier: Some(identifier.clone()),
                    ..problem.document()
                })
                .collect(),
        }
    }

    /// Returns the problem as JSON for storage and for challenge and order objects.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::to_value(self.document()).unwrap_or_default()
    }

    /// Parses the output of [`Problem::json`].
    pub(crate) fn from_json(text: &str) -> Option<Self> {
        let document: Document = serde_json::from_str(text).ok()?;
        let status = StatusCode::from_u16(document.status).ok()?;
        let mut problem = Self::new(Kind::named(&document.kind)?, document.detail).status(status);
        problem.identifier = document.identifier;
        Some(problem)
    }

    pub(crate) fn respond(&self) -> Response<Bytes> {
        let body = serde_json::to_vec(&self.document()).unwrap_or_default();
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(location) = self.location.as_deref().and_then(|url| HeaderValue::from_str(url).ok()) {
            headers.insert(header::LOCATION, location);
        }
        if let Some(allow) = self.allow {
            headers.insert(header::ALLOW, HeaderValue::from_static(allow));
        }
        for link in self.links.iter().filter_map(|link| HeaderValue::from_str(link).ok()) {
            headers.append(header::LINK, link);
        }
        response
    }
}

impl From<JwsError> for Problem {
    fn from(error: JwsError) -> Self {
        let kind = match error {
            JwsError::Malformed(_) => Kind::Malformed,
            JwsError::BadAlgorithm(_) => Kind::BadSignatureAlgorithm,
            JwsError::BadKey(_) => Kind::BadPublicKey,
            JwsError::BadSignature => {
                // RFC 8555 section 6.2 defines no error type for this case; clients know `malformed`.
                return Self::malformed(error.to_string()).status(StatusCode::UNAUTHORIZED);
            }
        };
        Self::new(kind, error.to_string())
    }
}

impl From<store::StoreError> for Problem {
    fn from(error: store::StoreError) -> Self {
        read_failed(&error)
    }
}

/// Returns a temporary error after a failed database read.
pub(super) fn read_failed(error: &store::StoreError) -> Problem {
    tracing::error!(%error, "the database is unavailable");
    if error.is_transient() { Problem::busy() } else { Problem::internal() }
}

/// Returns the error for an exceeded rate limit, with the number of seconds to wait.
pub(super) fn rate_limited(what: &str, seconds: u64) -> Problem {
    Problem::new(Kind::RateLimited, format!("too many {what}; try again in {seconds} s")).retry_after(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problem_kinds_round_trip_through_their_type_uri() {
        for (kind, name, status) in Kind::ALL {
            assert_eq!(kind.name_and_status(), (name, status));
            assert_eq!(Kind::named(&format!("{PREFIX}{name}")), Some(kind));
        }
    }

    #[test]
    fn several_problems_become_one_compound_document() {
        let name = |name: &str| Identifier::dns(name).unwrap();
        let refused = |kind| Problem::new(kind, "no");
        let one = Problem::combine(vec![(name("a.example"), refused(Kind::Caa))]);
        assert_eq!(one.json()["identifier"]["value"], "a.example");
        let both = Problem::combine(vec![
            (name("a.example"), refused(Kind::Caa)),
            (name("b.example"), refused(Kind::RejectedIdentifier)),
        ]);
        let document = both.json();
        assert_eq!(document["type"], "urn:ietf:params:acme:error:compound");
        assert_eq!(document["subproblems"][1]["identifier"]["value"], "b.example");
        let parsed = Problem::from_json(&one.json().to_string()).unwrap();
        assert_eq!(parsed.json(), one.json());
    }

    #[test]
    fn long_detail_is_truncated_at_a_character_boundary() {
        let problem = Problem::malformed("é".repeat(DETAIL_MAX));
        assert!(problem.detail.len() <= DETAIL_MAX + '…'.len_utf8());
    }
}
