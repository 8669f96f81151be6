//! A connection that requests can be sent on.

use hyper::Version;
use hyper::client::conn::http1;

use super::super::access_log::ServerKey;
use super::super::request_body::RequestBody;
use super::http2::{Http2, StreamSlot};

/// A connection for requests, by HTTP version.
pub(super) enum Sender {
    Http1(Http1),
    Http2(Http2),
}

pub(super) struct Http1 {
    pub(super) sender: http1::SendRequest<RequestBody>,
    /// Key of the server's certificate; `None` without TLS.
    pub(super) server_key: Option<ServerKey>,
}

impl Sender {
    /// Returns the HTTP version of the connection.
    pub(super) fn version(&self) -> Version {
        match self {
            Self::Http1(_) => Version::HTTP_11,
            Self::Http2(_) => Version::HTTP_2,
        }
    }
}

/// A connection for one request.
pub(super) struct Ready {
    pub(super) sender: Sender,
    /// Slot on a shared connection (HTTP/2).
    pub(super) stream: Option<StreamSlot>,
    /// Whether the connection existed already or was opened for another request.
    pub(super) pooled: bool,
}
