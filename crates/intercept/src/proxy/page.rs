//! What the proxy itself says.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};

use super::upstream::Relayed;

/// A body to a client: an upstream's, or our own.
pub(super) type Body = Either<Relayed, Full<Bytes>>;

/// Why it is not the upstream that answers (RFC 9209).
const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// A page; `reason` is one of RFC 9209's error types.
pub(super) fn problem(status: StatusCode, reason: &str, detail: &str) -> Response<Body> {
    let mut response = text(status, "text/plain; charset=utf-8", format!("bulla proxy: {detail}\n").into());
    if let Ok(value) = HeaderValue::try_from(format!("bulla; error={reason}")) {
        response.headers_mut().insert(PROXY_STATUS, value);
    }
    response
}

/// Something to read.
pub(super) fn text(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Either::Right(Full::new(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Nothing.
pub(super) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Either::Right(Full::default()));
    *response.status_mut() = status;
    response
}

/// A proxy auto-configuration file that names the address it was asked at.
pub(super) fn pac(own: &SocketAddr, headers: &HeaderMap) -> String {
    let named = headers.get(HOST).and_then(|host| host.to_str().ok());
    // What a client sends goes into a script: nothing but a name and a port.
    let is_plain = |host: &&str| {
        host.bytes()
            .all(|octet| octet.is_ascii_alphanumeric() || matches!(octet, b'.' | b'-' | b':' | b'[' | b']'))
    };
    let own = own.to_string();
    let place = named.filter(is_plain).unwrap_or(&own);
    format!("function FindProxyForURL(url, host) {{\n  return \"PROXY {place}\";\n}}\n")
}

/// How to trust the authority.
pub(super) fn about(subject: &str, fingerprint: &str) -> String {
    include_str!("about.html").replace("{subject}", &escaped(subject)).replace("{fingerprint}", fingerprint)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
