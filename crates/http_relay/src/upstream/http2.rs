//! HTTP/2 connections, which many requests share.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use hyper::client::conn::http2::SendRequest;

use super::super::access_log::ServerKey;
use crate::request_body::RequestBody;

/// Maximum concurrent requests on one connection, even if the upstream permits more (RFC 9113 section 5.1.2). Many upstreams set no
/// limit, but requests share the connection's flow-control window and its failures.
const STREAMS_MAX: usize = 256;

/// An HTTP/2 connection for requests. Clones share the connection.
#[derive(Clone)]
pub(super) struct Http2 {
    pub(super) sender: SendRequest<RequestBody>,
    /// Key of the server's certificate; `None` without TLS.
    pub(super) server_key: Option<ServerKey>,
    streams: Arc<StreamCount>,
}

struct StreamCount {
    under_way: AtomicUsize,
    /// Returns the number of concurrent requests that the upstream permits; 0 once the connection has ended.
    allowed: Box<dyn Fn() -> usize + Send + Sync>,
}

/// A request's slot on a connection, until dropped.
pub(super) struct StreamSlot(Arc<StreamCount>);

impl Http2 {
    /// Wraps a connection. `allowed` returns the maximum number of concurrent requests.
    pub(super) fn new(
        sender: SendRequest<RequestBody>,
        server_key: Option<ServerKey>,
        allowed: impl Fn() -> usize + Send + Sync + 'static,
    ) -> Self {
        let streams = StreamCount { under_way: AtomicUsize::new(0), allowed: Box::new(allowed) };
        Self { sender, server_key, streams: Arc::new(streams) }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Returns a slot; `None` if all are in use or the connection has ended.
    pub(super) fn claim(&self) -> Option<StreamSlot> {
        if self.is_closed() {
            return None;
        }
        let most = STREAMS_MAX.min((self.streams.allowed)());
        let claim = |under_way| (under_way < most).then_some(under_way + 1);
        self.streams.under_way.fetch_update(Relaxed, Relaxed, claim).ok()?;
        Some(StreamSlot(Arc::clone(&self.streams)))
    }

    /// Returns a slot for the request that the connection was opened for, even if no slot is free.
    pub(super) fn claim_first(&self) -> StreamSlot {
        self.streams.under_way.fetch_add(1, Relaxed);
        StreamSlot(Arc::clone(&self.streams))
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Relaxed);
    }
}
