//! Protocol upgrades: afterwards the bytes of both sides are relayed unchanged.

use hyper::Version;
use hyper::header::{CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio_util::task::TaskTracker;

use super::fields::switches_as_requested;
use super::streams::TunnelGuard;
use super::websocket::Websocket;
use inbound::ServiceTasks;

/// A client that has requested a protocol upgrade.
pub struct UpgradeRequest<'a> {
    /// The client's connection, available after the upgrade.
    pub client: OnUpgrade,
    /// The protocol requested from the upstream.
    pub requested: HeaderValue,
    /// The WebSocket that the client requested by HTTP/2.
    pub websocket: Option<&'a Websocket>,
    /// Tasks that may outlive the client's connection.
    pub tunnels: &'a TaskTracker,
    /// The request's version of HTTP.
    pub version: Version,
}

/// Adds the fields of an upgrade request to `headers`.
pub fn add_upgrade_fields(protocol: &HeaderValue, headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol.clone());
}

impl UpgradeRequest<'_> {
    /// Returns whether the response switches to the requested protocol.
    pub fn is_accepted_by(&self, answer: &HeaderMap) -> bool {
        switches_as_requested(answer, &self.requested)
    }

    /// Runs `relay` in a new task of `tasks` after both sides have switched. Call it before the response is sent to the client.
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
