//! A connection by HTTP/2, which many requests share.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use hyper::client::conn::http2::SendRequest;

use crate::request_body::RequestBody;

/// Requests under way on one connection, whatever the upstream allows (RFC 9113 section 5.1.2; many say nothing): they share its
/// window and its losses.
const STREAMS_MAX: usize = 256;

/// Requests are sent on it. Clones are of the same connection.
#[derive(Clone)]
pub(super) struct Http2 {
    pub(super) sender: SendRequest<RequestBody>,
    streams: Arc<StreamCount>,
}

struct StreamCount {
    under_way: AtomicUsize,
    /// How many the upstream allows now; none once the connection has ended.
    allowed: Box<dyn Fn() -> usize + Send + Sync>,
}

/// A request's place on a connection, until it is dropped.
pub(super) struct StreamSlot(Arc<StreamCount>);

impl Http2 {
    /// `allowed` says how many requests may be under way.
    pub(super) fn new(
        sender: SendRequest<RequestBody>,
        allowed: impl Fn() -> usize + Send + Sync + 'static,
    ) -> Self {
        let streams = StreamCount { under_way: AtomicUsize::new(0), allowed: Box::new(allowed) };
        Self { sender, streams: Arc::new(streams) }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// A place, unless all are taken or the connection has ended.
    pub(super) fn claim(&self) -> Option<StreamSlot> {
        if self.is_closed() {
            return None;
        }
        let most = STREAMS_MAX.min((self.streams.allowed)());
        let claim = |under_way| (under_way < most).then_some(under_way + 1);
        self.streams.under_way.fetch_update(Relaxed, Relaxed, claim).ok()?;
        Some(StreamSlot(Arc::clone(&self.streams)))
    }

    /// A place for whom it was made for, who goes first in any case.
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
