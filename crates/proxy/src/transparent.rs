//! Connections that this host's firewall redirects here, of clients that know nothing of a proxy: where one went is asked of the
//! system, who is meant is what its client says then (the name in its ClientHello, the host of its requests).
//!
//! The server is the one at that address, whatever name the client says: a name that led elsewhere would let it choose another
//! machine. That it is who the name says is verified in TLS, as of any upstream.

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

/// The proxy, for clients that were redirected to it.
pub(super) struct Transparent(pub(super) Arc<Proxy>);

impl ConnectionHandler for Transparent {
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
        if !self.lets_in(&client) || !own.is_empty() && !own.iter().any(|net| net.contains(&client.ip())) {
            return End::Refused;
        }
        let Ok(at) = stream.local_addr() else { return End::NoRequest };
        let destination = match destination(&stream, at) {
            Ok(destination) => destination,
            Err(error) => {
                tracing::info!(%client, %at, %error, "nobody redirected a connection to where redirected ones come in: closed");
                return End::Loop;
            }
        };
        if self.is_ours(&client, destination) {
            return End::Loop;
        }
        let target = Target::redirected(destination);
        self.metrics.redirected();
        let action = self.rules.now().names.of_target(&target);
        match action {
            Some(Action::Reject) => return self.closed_out(&client, &target),
            // A host that is let through may let its server speak first.
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
        // What it said was sent when the connection it comes by was known already.
        if self.is_ours(&client, destination) {
            return End::Loop;
        }
        silence.end();
        Box::pin(Arc::clone(self).after_connect(stream, target, client)).await;
        End::Closed
    }

    /// Who says nothing waits for its server's word, and is for the server's address.
    async fn silent(
        self: &Arc<Self>,
        stream: TcpStream,
        destination: SocketAddr,
        target: Target,
        client: Client,
    ) -> End {
        // It was not known at first, where we were told late that our own connection is made.
        if self.is_ours(&client, destination) {
            return End::Loop;
        }
        let action = self.rules.now().names.decide(&target.name, target.port);
        match action {
            Action::Tunnel => {
                self.tunnel(stream, &target, &target.name, &client).await;
                End::Closed
            }
            Action::Reject => self.closed_out(&client, &target),
            Action::Intercept | Action::Mirror => {
                tracing::info!(%client, %target, "a client that was redirected says nothing: closed; see the rules for tunnels");
                End::NoRequest
            }
        }
    }

    fn closed_out(&self, client: &Client, target: &Target) -> End {
        self.metrics.rejected();
        self.requests.refused(client, target);
        End::Refused
    }

    /// Whether it is the proxy's own connection to an upstream, which somebody redirected back.
    fn is_ours(&self, client: &Client, destination: SocketAddr) -> bool {
        let is_ours = self.upstreams.made(client.address, destination);
        if is_ours {
            tracing::warn!(%destination, "the proxy's own connection was redirected to it: have the firewall leave its user out");
        }
        is_ours
    }
}
