//! Bytes that pass through as they are: tunnels, and connections that have changed protocols.

use std::time::Duration;

use http_relay::access_log::counted;
use http_relay::client::Client;
use http_relay::relay::{ByteCounters, relay, relay_with};
use http_relay::target::Target;
use hyper::{HeaderMap, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};
use x509::HostOrIp;

use super::proxy::Proxy;

impl Proxy {
    /// `name`: what it is known as, whatever CONNECT said.
    pub(super) async fn tunnel<S>(&self, stream: S, target: &Target, name: &HostOrIp, client: &Client)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let octets = self.metrics.tunnel();
        let mut entry = self.requests.tunnel(client, target, name);
        let mut answered =
            |status| entry.iter_mut().for_each(|entry| entry.answered(status, &HeaderMap::new()));
        match self.upstreams.link(target, name, client.is_here()).await {
            Ok((upstream, _place)) => {
                answered(StatusCode::OK);
                let stream = counted(stream, entry.as_deref());
                let ended = relay(stream, upstream, self.options.idle, &octets).await;
                tracing::debug!(%target, ?ended, "a tunnel ended");
            }
            Err(error) => {
                answered(StatusCode::BAD_GATEWAY);
                tracing::info!(%target, %error, "a tunnel has no other end");
            }
        }
    }

    /// Passes on octets of connections that were HTTP before; once one side has ended, the other is silent for `half` at most.
    pub(super) async fn relay_upgraded<A, B>(&self, client: A, upstream: B, half: Duration)
    where
        A: AsyncRead + AsyncWrite + Unpin,
        B: AsyncRead + AsyncWrite + Unpin,
    {
        let octets: ByteCounters = self.metrics.upgraded();
        relay_with(client, upstream, self.options.idle, half, &octets).await;
    }
}
