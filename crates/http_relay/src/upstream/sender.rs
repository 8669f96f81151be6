//! A connection that requests can be sent on.

use hyper::Version;
use hyper::client::conn::http1;

use super::super::request_body::RequestBody;
use super::http2::{Http2, StreamSlot};

/// What requests are sent on.
pub(super) enum Sender {
    Http1(http1::SendRequest<RequestBody>),
    Http2(Http2),
}

impl Sender {
    /// The version of HTTP that its requests have.
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
    /// Its place on one that others share.
    pub(super) stream: Option<StreamSlot>,
    /// Whether it was there, or made for another.
    pub(super) kept: bool,
}
