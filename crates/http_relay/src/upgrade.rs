//! Connections that change protocols: what both sides say afterwards is passed on as it is.

use hyper::Version;
use hyper::header::{CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio_util::task::TaskTracker;

use super::fields::changes_as_asked;
use super::streams::TunnelGuard;
use super::websocket::Websocket;
use inbound::ServiceTasks;

/// A client that waits for another protocol.
pub struct Upgrading<'a> {
    /// The client's connection, once it has changed protocols.
    pub client: OnUpgrade,
    /// The protocol requested from the upstream.
    pub asked: HeaderValue,
    /// The WebSocket that the client asked for by HTTP/2.
    pub websocket: Option<&'a Websocket>,
    /// What goes on when the client's connection has ended.
    pub tunnels: &'a TaskTracker,
    /// The request's version of HTTP.
    pub version: Version,
}

/// Asks the upstream for what the client wants to change to.
pub fn ask_for(protocol: &HeaderValue, headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol.clone());
}

impl Upgrading<'_> {
    /// Whether the response switches to the requested protocol.
    pub fn is_met_by(&self, answer: &HeaderMap) -> bool {
        changes_as_asked(answer, &self.asked)
    }

    /// Has `relay` pass on what is said once both sides have changed, as one of `tasks`; to be called while the client is
    /// answered.
    pub fn spawn<F>(
        self,
        upstream: OnUpgrade,
        tasks: &ServiceTasks,
        relay: impl FnOnce(TokioIo<Upgraded>, TokioIo<Upgraded>) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send,
    {
        let (tunnel, stream, client) = (self.tunnels.token(), TunnelGuard::on(), self.client);
        tasks.spawn_bounded(async move {
            let _live = telemetry::tasks::guard("proxy-upgraded");
            let _tunnel = tunnel;
            let _stream = stream;
            if let Ok((client, upstream)) = futures_util::future::try_join(client, upstream).await {
                relay(TokioIo::new(client), TokioIo::new(upstream)).await;
            }
        });
    }
}
