//! Security headers of pages.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Content security policy: no external or inline content, and no framing. Charts set sizes through the DOM, which `style-src`
/// permits.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Adds the headers that every page and asset has.
pub(crate) async fn add_page_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    set(headers, header::CONTENT_SECURITY_POLICY, POLICY);
    set(headers, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(headers, header::X_FRAME_OPTIONS, "DENY");
    // The referrer is sent only to this site, because a path may contain a credential name.
    set(headers, header::REFERRER_POLICY, "same-origin");
    set(headers, header::STRICT_TRANSPORT_SECURITY, "max-age=31536000");
    set(headers, HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    set(headers, HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    set(headers, HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()");
    set(headers, header::CACHE_CONTROL, "no-store");
    response
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &'static str) {
    headers.entry(name).or_insert(HeaderValue::from_static(value));
}
