//! Responses to clients whose upstream failed.

use std::error::Error as _;

use h2::Reason;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::{Response, StatusCode, Version};
use outbound::dial::DialError;
use outbound::resolve::ResolveError;

use super::page::{self, Body};
use super::stall::UploadStatus;
use super::upstream::{NoAnswer, ParentProxyError, UpstreamConnectError};

/// Returns an error response if the client caused the failure: its body stalled or was invalid.
pub fn upload_failure_response(body: &UploadStatus, version: Version) -> Option<Response<Body>> {
    let (status, detail) = match (body.has_stalled(), body.is_broken()) {
        (true, _) => (StatusCode::REQUEST_TIMEOUT, "timeout while reading the request body"),
        (false, true) => (StatusCode::BAD_REQUEST, "the request body is invalid or incomplete"),
        (false, false) => return None,
    };
    let mut response = page::problem(status, "http_request_error", detail);
    if version < Version::HTTP_2 {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Some(response)
}

/// Returns the response to a client whose upstream failed: status, RFC 9209 error type, and reason.
pub fn unanswered(error: &NoAnswer) -> Response<Body> {
    let (status, reason) = reason_of(error);
    page::problem(status, reason, &error.to_string())
}

/// Returns the status for the client, and the error type of RFC 9209.
pub fn reason_of(error: &NoAnswer) -> (StatusCode, &'static str) {
    match error {
        NoAnswer::Late => (StatusCode::GATEWAY_TIMEOUT, "http_response_timeout"),
        NoAnswer::Broken(error) if is_protocol_error(error) => {
            (StatusCode::BAD_GATEWAY, "http_protocol_error")
        }
        NoAnswer::Broken(_) => (StatusCode::BAD_GATEWAY, "http_response_incomplete"),
        NoAnswer::Connection(error) => connect_failure(error),
    }
}

fn connect_failure(error: &UpstreamConnectError) -> (StatusCode, &'static str) {
    use UpstreamConnectError as C;
    match error {
        C::Name(ResolveError::TimedOut) => (StatusCode::GATEWAY_TIMEOUT, "dns_timeout"),
        C::Name(_) => (StatusCode::BAD_GATEWAY, "dns_error"),
        C::Dial(DialError::TimedOut) | C::Late => (StatusCode::GATEWAY_TIMEOUT, "connection_timeout"),
        C::Dial(DialError::Refused) => (StatusCode::BAD_GATEWAY, "connection_refused"),
        C::Dial(_) => (StatusCode::BAD_GATEWAY, "destination_unavailable"),
        C::NotAllowed | C::Guarded(_) => (StatusCode::FORBIDDEN, "destination_ip_prohibited"),
        C::Rejected => (StatusCode::FORBIDDEN, "http_request_denied"),
        C::Loop => (StatusCode::LOOP_DETECTED, "proxy_loop_detected"),
        C::Tls(error) if is_certificate_error(error) => (StatusCode::BAD_GATEWAY, "tls_certificate_error"),
        C::Tls(_) => (StatusCode::BAD_GATEWAY, "tls_protocol_error"),
        C::Full => (StatusCode::SERVICE_UNAVAILABLE, "connection_limit_reached"),
        C::ClosedAtOnce => (StatusCode::BAD_GATEWAY, "connection_terminated"),
        C::Http(_) => (StatusCode::BAD_GATEWAY, "http_protocol_error"),
        C::NoWebsockets => (StatusCode::BAD_GATEWAY, "http_upgrade_failed"),
        C::Parent { why: ParentProxyError::Connection(error), .. } => connect_failure(error),
        C::Parent { why: ParentProxyError::Late, .. } => (StatusCode::GATEWAY_TIMEOUT, "connection_timeout"),
        C::Parent { why: ParentProxyError::Refused(StatusCode::GATEWAY_TIMEOUT), .. } => {
            (StatusCode::GATEWAY_TIMEOUT, "destination_unavailable")
        }
        C::Parent { .. } => (StatusCode::BAD_GATEWAY, "destination_unavailable"),
    }
}

/// Returns whether the upstream violated the HTTP protocol, rather than sending an incomplete response.
fn is_protocol_error(error: &hyper::Error) -> bool {
    let of_http2 =
        error.source().and_then(|source| source.downcast_ref::<h2::Error>()).and_then(h2::Error::reason);
    let is_of_http2 = matches!(
        of_http2,
        Some(Reason::PROTOCOL_ERROR | Reason::FRAME_SIZE_ERROR | Reason::HTTP_1_1_REQUIRED)
    );
    // `strict` ends an ambiguous body with this error.
    let is_ambiguous = error
        .source()
        .and_then(|source| source.downcast_ref::<std::io::Error>())
        .is_some_and(|error| error.kind() == std::io::ErrorKind::InvalidData);
    is_of_http2 || is_ambiguous || error.is_parse() && !error.is_parse_too_large()
}

fn is_certificate_error(error: &std::io::Error) -> bool {
    let of_tls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    matches!(of_tls, Some(rustls::Error::InvalidCertificate(_)))
}
