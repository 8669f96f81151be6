//! Body of an HTTP/1 response whose trailers are written by its connection.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Frame, SizeHint};

use super::page::Body;
use super::strict::Exchanges;

/// A body that passes its trailers to the connection. The HTTP library itself writes only trailers that the response announced, and
/// only for clients that sent `TE: trailers`.
pub(crate) struct TrailedBody {
    body: Body,
    exchanges: Exchanges,
}

impl TrailedBody {
    pub(crate) fn new(body: Body, exchanges: Exchanges) -> Self {
        Self { body, exchanges }
    }
}

impl hyper::body::Body for TrailedBody {
    type Data = <Body as hyper::body::Body>::Data;
    type Error = <Body as hyper::body::Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let Poll::Ready(Some(Ok(frame))) = polled else { return polled };
        match frame.into_trailers() {
            Ok(trailers) => {
                self.exchanges.trailers(trailers);
                Poll::Ready(None)
            }
            Err(frame) => Poll::Ready(Some(Ok(frame))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
