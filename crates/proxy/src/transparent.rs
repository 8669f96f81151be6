//! Transparent proxy: serves connections that this host's firewall redirects, from clients that are not configured to use a proxy.
//! The system returns the original destination. The client's data names the host (server name in the ClientHello, or host of a
//! request).
//!
//! The proxy always connects to the original address, even if the client sends another name: otherwise the name could select
//! another machine. TLS verifies that the server belongs to the name, as for any upstream.

use std::net::SocketAddr;
use std::sync::Arc;

use http_relay::address::canonical;
use http_relay::client::Client;
use http_relay::target::Target;
use inbound::{ConnectionHandler, Refusal, Silence, Slot};
use tokio::net::TcpStream;

use super::metrics::End;
use super::proxy::Proxy;
use super::redirect::destination;
use super::rules::Action;

/// The proxy for redirected clients.
pub(super) struct TransparentProxy(pub(super) Arc<Proxy>);

impl ConnectionHandler for TransparentProxy {
    async fn serve(self: Arc<Self>, stream: TcpStream, client: SocketAddr, slot: &mut Slot) {
        let _live = telemetry::tasks::guard("proxy-redirected");
        let _open = self.0.metrics.connection();
        let end = self.0.redirected(stream, client, &slot.silence()).await;
        self.0.metrics.ended(end);
    }

    fn refused(&self, stream: TcpStream, reason: Refusal) {
        self.0.refused(stream, reason);
    }

    fn evicted(&self) {
        self.0.evicted();
    }

    fn cut_off(&self) {
        self.0.cut_off();
    }
}

impl Proxy {
    async fn redirected(self: &Arc<Self>, stream: TcpStream, client: SocketAddr, silence: &Silence) -> End {
        let client = Client::at(canonical(client));
        let own = &self.options.transparent.clients;
        if !self.permits_network(&client)
            || !own.is_empty() && !own.iter().any(|net| net.contains(&client.ip()))
        {
            return End::Refused;
        }
        let Ok(at) = stream.local_addr() else { return End::NoRequest };
        let destination = match destination(&stream, at) {
            Ok(destination) => destination,
            Err(error) => {
                tracing::info!(%client, %at, %error, "closed a connection that the firewall did not redirect");
                return End::Loop;
            }
        };
        if self.is_ours(&client, destination) {
            return End::Loop;
        }
        let (client, _watch) = self.watched(client, &stream);
        let target = Target::redirected(destination);
        self.metrics.redirected();
        let action = self.rules.now().names.of_target(&target);
        match action {
            Some(Action::Reject) => return self.refuse_connection(&client, &target),
            // The server of a tunneled host may speak first.
            Some(Action::Tunnel) => {}
            _ => match tokio::time::timeout(self.options.handshake_timeout, stream.peek(&mut [0])).await {
                Ok(Ok(1..)) => {}
                Ok(_) => return End::NoRequest,
                Err(_) => {
                    silence.end();
                    return self.silent(stream, destination, target, client).await;
                }
            },
        }
        // Checked again after the first data: this connection may be an upstream connection of the proxy itself, which the proxy
        // has registered by then.
        if self.is_ours(&client, destination) {
            return End::Loop;
        }
        silence.end();
        Box::pin(Arc::clone(self).serve_after_connect(stream, target, client)).await;
        End::Closed
    }

    /// Serves a client that sends nothing. The server's address decides, because the client may wait for the server to speak first.
    async fn silent(
        self: &Arc<Self>,
        stream: TcpStream,
        destination: SocketAddr,
        target: Target,
        client: Client,
    ) -> End {
        // Checked again: the proxy's own connection may have been registered late.
        if self.is_ours(&client, destination) {
            return End::Loop;
        }
        let action = self.rules.now().names.decide(&target.name, target.port);
        match action {
            Action::Tunnel => {
                self.tunnel(stream, &target, &target.name, &client).await;
                End::Closed
            }
            Action::Reject => self.refuse_connection(&client, &target),
            Action::Intercept | Action::Mirror => {
                tracing::info!(%client, %target, "closed a redirected connection: the client sent no data; see the rules \
                 for tunnels");
                End::NoRequest
            }
        }
    }

    fn refuse_connection(&self, client: &Client, target: &Target) -> End {
        self.metrics.rejected();
        self.requests.refused(client, target);
        End::Refused
    }

    /// Returns whether the connection is the proxy's own upstream connection, redirected back to it.
    fn is_ours(&self, client: &Client, destination: SocketAddr) -> bool {
        let is_ours = self.upstreams.made(client.address, destination);
        if is_ours {
            tracing::warn!(%destination, "the proxy's own connection was redirected back to the proxy: exclude the proxy's \
             user in the firewall rule");
        }
        is_ours
    }
}
