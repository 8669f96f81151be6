//! Counts new connections.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tower::{Layer, Service};

use crate::stats::Counters;

/// Layer around reqwest's connector that counts new connections.
#[derive(Clone)]
pub(super) struct CountingLayer {
    pub(super) counters: Arc<Counters>,
    /// Whether a TLS handshake follows each connection.
    pub(super) tls: bool,
}

#[derive(Clone)]
pub(super) struct Counting<S> {
    inner: S,
    layer: CountingLayer,
}

impl<S> Layer<S> for CountingLayer {
    type Service = Counting<S>;

    fn layer(&self, inner: S) -> Counting<S> {
        Counting { inner, layer: self.clone() }
    }
}

impl<S, R> Service<R> for Counting<S>
where
    S: Service<R>,
    S::Future: Send + 'static,
    S::Response: 'static,
    S::Error: 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let (connecting, layer) = (self.inner.call(request), self.layer.clone());
        Box::pin(async move {
            let made = connecting.await?;
            layer.counters.connections.add();
            if layer.tls {
                layer.counters.handshakes.add();
            }
            Ok(made)
        })
    }
}
