//! Data about a request that a later replay needs.

use http_relay::access_log::{METHOD_BYTES_MAX, Original, PATH_BYTES_MAX, Replay};
use http_relay::client_body::ClientBody;
use http_relay::websocket::Websocket;
use hyper::Request;
use hyper::body::Body as _;
use hyper::header::UPGRADE;

use super::connection_context::ConnectionContext;

/// Returns the data that a later replay of `request` needs: the client, the reason if the request cannot be replayed, and the
/// replay that sent it, if any.
pub(super) fn original_of(
    request: &Request<ClientBody>,
    context: &ConnectionContext,
    websocket: Option<&Websocket>,
) -> Original {
    Original {
        client: context.client.clone(),
        incomplete: incomplete(request, context, websocket.is_some()),
        replay: request.extensions().get::<Replay>().cloned(),
    }
}

fn incomplete(
    request: &Request<ClientBody>,
    context: &ConnectionContext,
    is_websocket: bool,
) -> Option<&'static str> {
    let uri = request.uri();
    let is_upgrade = is_websocket || request.headers().contains_key(UPGRADE);
    let reasons = [
        (uri.query().is_some(), "the request has a query, and the proxy does not keep queries"),
        (!request.body().is_end_stream(), "the request has a body, and the proxy does not keep bodies"),
        (is_upgrade, "the request asks for another protocol, such as WebSocket"),
        (
            context.origin.is_unverified(),
            "the host of the request is not verified: its connection was redirected",
        ),
        (uri.path().len() > PATH_BYTES_MAX, "the path of the request is too long to be kept"),
        (!uri.path().starts_with('/'), "the request has no path"),
        (
            request.method().as_str().len() > METHOD_BYTES_MAX,
            "the method of the request is too long to be kept",
        ),
    ];
    reasons.into_iter().find_map(|(applies, reason)| applies.then_some(reason))
}
