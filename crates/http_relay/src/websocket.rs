//! WebSockets of HTTP/2 clients (RFC 8441). An extended CONNECT request becomes an HTTP/1.1 request to the server (RFC 6455), and
//! the response is translated back. For servers that support only HTTP/2, see `upstream::websocket`.

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::ext::Protocol;
use hyper::header::{
    CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::{Method, Request, Response, StatusCode};

use super::page::{self, Body};
use super::websocket_key::accept_of;

/// Bytes of a key before base64 encoding (RFC 6455 section 4.1).
const KEY: usize = 16;

/// A WebSocket opened by HTTP/2.
pub struct Websocket {
    /// The expected `Sec-WebSocket-Accept` value.
    accept: String,
}

impl Websocket {
    /// If `request` opens a WebSocket by HTTP/2, turns it into an HTTP/1.1 request and returns the WebSocket; otherwise returns
    /// `None`.
    pub fn of<B>(request: &mut Request<B>) -> Option<Self> {
        let protocol = request.extensions().get::<Protocol>()?;
        if request.method() != Method::CONNECT || protocol.as_str() != "websocket" {
            return None;
        }
        let mut key = [0; KEY];
        rand::fill(&mut key).ok()?;
        let key = STANDARD.encode(key);
        let accept = accept_of(key.as_bytes());
        let key = HeaderValue::try_from(key).ok()?;
        request.extensions_mut().remove::<Protocol>();
        *request.method_mut() = Method::GET;
        let headers = request.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_KEY, key);
        headers.entry(SEC_WEBSOCKET_VERSION).or_insert(HeaderValue::from_static("13"));
        Some(Self { accept })
    }

    /// Translates the response for the client: 200 after the server has switched protocols, because bytes follow then (RFC 8441
    /// section 5).
    pub fn answered(&self, mut response: Response<Body>) -> Response<Body> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS && self.is_accepted(&response) {
            *response.status_mut() = StatusCode::OK;
            for header in [CONNECTION, UPGRADE, SEC_WEBSOCKET_ACCEPT] {
                response.headers_mut().remove(header);
            }
            return response;
        }
        self.refusal(&response).unwrap_or(response)
    }

    /// Returns the error response if `response` does not complete the handshake.
    pub fn refusal<B>(&self, response: &Response<B>) -> Option<Response<Body>> {
        let status = response.status();
        let is_refused = match status {
            StatusCode::SWITCHING_PROTOCOLS => !self.is_accepted(response),
            _ => status.is_success(),
        };
        let detail = "the upstream did not upgrade to a WebSocket";
        is_refused.then(|| page::problem(StatusCode::BAD_GATEWAY, "http_upgrade_failed", detail))
    }

    fn is_accepted<B>(&self, response: &Response<B>) -> bool {
        let is = |header, wanted: &str| {
            response
                .headers()
                .get(header)
                .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(wanted.as_bytes()))
        };
        let accept = response.headers().get(SEC_WEBSOCKET_ACCEPT);
        is(UPGRADE, "websocket") && accept.is_some_and(|accept| accept == self.accept.as_str())
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::digest;

    use super::super::websocket_key::GUID;
    use super::*;

    fn connect_request(method: Method, protocol: &'static str) -> Request<()> {
        let mut request = Request::builder().method(method).uri("https://a.example/chat").body(()).unwrap();
        request.extensions_mut().insert(Protocol::from_static(protocol));
        request
    }

    /// Returns the expected accept value for the key of a request.
    fn accepted(request: &Request<()>) -> String {
        let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
        context.update(request.headers()[SEC_WEBSOCKET_KEY].as_bytes());
        context.update(GUID);
        STANDARD.encode(context.finish())
    }

    fn answer(status: u16, accept: &str) -> Response<Body> {
        let mut response = page::empty(StatusCode::from_u16(status).unwrap());
        response.headers_mut().insert(UPGRADE, HeaderValue::from_static("WebSocket"));
        response.headers_mut().insert(SEC_WEBSOCKET_ACCEPT, HeaderValue::try_from(accept).unwrap());
        response
    }

    #[test]
    fn other_methods_and_protocols_are_not_converted() {
        for (method, protocol) in [(Method::CONNECT, "connect-udp"), (Method::GET, "websocket")] {
            let mut request = connect_request(method.clone(), protocol);
            assert!(Websocket::of(&mut request).is_none() && request.method() == method);
        }
    }

    #[test]
    fn response_requires_status_101_and_a_valid_accept_value() {
        for (status, is_right, expected) in
            [(101, true, 200), (101, false, 502), (200, true, 502), (403, true, 403), (302, true, 302)]
        {
            let mut request = connect_request(Method::CONNECT, "websocket");
            let websocket = Websocket::of(&mut request).unwrap();
            assert_eq!(
                (request.method(), request.headers()[SEC_WEBSOCKET_VERSION].as_bytes()),
                (&Method::GET, &b"13"[..])
            );
            let accept = if is_right { accepted(&request) } else { STANDARD.encode([0; 20]) };
            let response = websocket.answered(answer(status, &accept));
            assert_eq!(response.status(), expected, "{status}, {is_right}");
            assert_eq!(
                response.headers().contains_key(SEC_WEBSOCKET_ACCEPT),
                expected >= 300 && expected != 502
            );
        }
    }
}
