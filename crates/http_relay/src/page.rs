//! Responses that the proxy generates itself.

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use x509::HostOrIp;

use super::upstream::UpstreamResponseBody;

/// Body of a response: from an upstream, or generated.
pub type Body = Either<UpstreamResponseBody, Full<Bytes>>;

/// Header field with the reason of a generated error response (RFC 9209).
const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// Returns an error page; `reason` is an error type of RFC 9209.
pub fn problem(status: StatusCode, reason: &str, detail: &str) -> Response<Body> {
    let mut response = text(status, "text/plain; charset=utf-8", format!("bulla proxy: {detail}\n").into());
    if let Ok(value) = HeaderValue::try_from(format!("bulla; error={reason}")) {
        response.headers_mut().insert(PROXY_STATUS, value);
    }
    response
}

/// Returns a response with a body of content type `kind`.
pub fn text(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Either::Right(Full::new(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Returns a response without a body.
pub fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Either::Right(Full::default()));
    *response.status_mut() = status;
    response
}

/// Returns the response to a request for `host` on a connection to another host (RFC 9110 section 15.5.20).
pub fn misdirected_page(host: &HostOrIp) -> Response<Body> {
    let detail = format!("this connection serves another host: open a new connection for {host}");
    problem(StatusCode::MISDIRECTED_REQUEST, "http_request_error", &detail)
}

/// Returns the response if the upstream switches to a protocol that was not requested.
pub fn unrequested_upgrade_page() -> Response<Body> {
    problem(
        StatusCode::BAD_GATEWAY,
        "http_protocol_error",
        "the upstream switched protocols without a request to upgrade",
    )
}

/// Returns the class of a status for metrics: `1xx` to `5xx`.
pub fn class_of(status: StatusCode) -> &'static str {
    match status.as_u16() / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        _ => "5xx",
    }
}
