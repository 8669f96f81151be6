//! WebSockets to servers that support only HTTP/2: opened by extended CONNECT (RFC 8441), and translated to HTTP/1.1 (RFC 6455).

use std::sync::Arc;

use hyper::body::Body as _;
use hyper::ext::Protocol;
use hyper::header::{CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use hyper::{Method, Request, Response, StatusCode, Version};
use outbound::Deadline;

use super::super::target::Origin;
use super::body::UpstreamResponseBody;
use super::error::{NoAnswer, UpstreamConnectError};
use super::upstreams::{Upstreams, marked, unsent_request, with_key};
use crate::request_body::RequestBody;
use crate::websocket_key::accept_of;

const WEBSOCKET: &str = "websocket";
/// Returns whether the request opens a WebSocket in a form that HTTP/2 can express too.
pub(super) fn is_websocket(request: &Request<RequestBody>) -> bool {
    let headers = request.headers();
    let upgrade = headers.get(UPGRADE);
    request.method() == Method::GET
        && upgrade.is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(WEBSOCKET.as_bytes()))
        && headers.contains_key(SEC_WEBSOCKET_KEY)
        && request.body().is_end_stream()
}

impl Upstreams {
    /// Opens a WebSocket over a separate HTTP/2 connection to `origin`. The response is translated to the response of an
    /// HTTP/1.1 server.
    pub(super) async fn send_by_extended_connect(
        &self,
        origin: &Arc<Origin>,
        mut request: Request<RequestBody>,
        prepare: impl Fn(&mut Request<RequestBody>, Version),
    ) -> Result<Response<UpstreamResponseBody>, NoAnswer> {
        let inner = &self.0;
        let deadline = Deadline::within(inner.connect_timeout);
        inner.pool.evict_oldest();
        let (mut sender, server_key) = match inner.dialler.connect_for_websocket(origin, deadline).await {
            Ok(sender) => sender,
            Err(error) => {
                // The server may now support HTTP/1.1, so it is no longer remembered as supporting only HTTP/2.
                if matches!(error, UpstreamConnectError::Tls(_)) {
                    inner.http2_alone.invalidate(origin);
                }
                return Err(Arc::new(error).into());
            }
        };
        inner.reuse.request(false);
        prepare(&mut request, Version::HTTP_2);
        *request.method_mut() = Method::CONNECT;
        request.extensions_mut().insert(Protocol::from_static(WEBSOCKET));
        let headers = request.headers_mut();
        // HTTP/2 replaces these fields (RFC 8441 section 5).
        let key = headers.remove(SEC_WEBSOCKET_KEY);
        headers.remove(CONNECTION);
        headers.remove(UPGRADE);
        let sent = self.with_timeout(request, |request| sender.try_send_request(request)).await;
        let mut response = match sent? {
            Ok(response) => response,
            Err(error) => {
                unsent_request(error)?;
                return Err(Arc::new(UpstreamConnectError::ClosedAtOnce).into());
            }
        };
        response.extensions_mut().extend(with_key(server_key));
        *response.version_mut() = Version::HTTP_11;
        if response.status() == StatusCode::OK {
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            let accept = accept_of(key.as_ref().map_or(&[], HeaderValue::as_bytes));
            let headers = response.headers_mut();
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(UPGRADE, HeaderValue::from_static(WEBSOCKET));
            if let Ok(accept) = HeaderValue::try_from(accept) {
                headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
            }
        }
        Ok(marked(response.map(|body| UpstreamResponseBody::new(body, None, None, inner.idle_body)), false))
    }
}
