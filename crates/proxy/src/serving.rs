//! Serves HTTP/1 and HTTP/2 to clients. A callback answers each request.

use http_relay::client_body::ClientBody;
use http_relay::next_head::HeadTimeouts;
use http_relay::page::Body;
use http_relay::serve::{Serving, Websockets};
use hyper::body::Incoming;
use hyper::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::task::TaskTracker;

use super::metrics::End;
use super::proxy::Proxy;

impl Proxy {
    /// Serves HTTP/1 to a client until the connection ends. `answer` answers each request.
    pub(super) async fn http1<S, A, F>(&self, stream: S, answer: A) -> End
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        A: Fn(Request<Incoming>) -> F,
        F: Future<Output = Response<Body>>,
    {
        End::of(self.serving().http1(stream, answer).await)
    }

    /// Serves HTTP/2 to a client until the connection ends. `answer` answers each request.
    pub(super) async fn http2<S, A, F>(&self, stream: S, answer: A, websockets: Websockets) -> End
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        A: Fn(Request<Incoming>) -> F,
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        End::of(self.serving().http2(stream, answer, websockets).await)
    }

    fn serving(&self) -> Serving {
        Serving {
            head: HeadTimeouts { head: self.options.head_timeout, keep_alive: self.options.keep_alive },
            idle: self.options.idle,
            stopping: self.tasks.stopping(),
        }
    }

    /// Wraps the body of `request` in a [`ClientBody`]. If the body is dropped before its end, the remaining bytes are read and
    /// discarded, for at most `head_timeout`. Not for requests with `Expect`.
    pub(super) fn with_body(&self, request: Request<Incoming>) -> Request<ClientBody> {
        ClientBody::of(request, &self.tasks, self.options.head_timeout)
    }
}

/// Waits until the tunnels of a connection are closed. While a tunnel is open, the connection counts towards the client's limit.
pub(super) async fn ended(tunnels: &TaskTracker) {
    tunnels.close();
    tunnels.wait().await;
}
