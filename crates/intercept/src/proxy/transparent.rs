//! Connections that this host's firewall redirects here, of clients that know nothing of a proxy: where one went is asked of the
//! system, who is meant is what its client says then (the name in its ClientHello, the host of its requests).
//!
//! The server is the one at that address, whatever name the client says: a name that led elsewhere would let it choose another
//! machine. That it is who the name says is verified in TLS, as of any upstream.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use ipnet::IpNet;
use tokio::net::{TcpListener, TcpStream};

use super::connection::Proxy;
use super::metrics::End;
use super::{Action, StartError};
use crate::doors::Host;
use crate::http::address::canonical;
use crate::http::client::Client;
use crate::http::target::Target;

/// Where redirected connections come in, and whose they are.
#[derive(Clone, Debug, Default)]
pub struct TransparentOptions {
    /// Where; port 0 takes a free one. Nowhere when empty.
    pub listen: Vec<SocketAddr>,
    /// Whose, of those that may use the proxy at all: all of these when empty. Nobody here can say who they are.
    pub clients: Vec<IpNet>,
}

/// What listens for them.
pub(super) fn listen(options: &TransparentOptions) -> Result<Vec<(TcpListener, SocketAddr)>, StartError> {
    let mut listeners = Vec::new();
    for address in options.listen.iter().copied() {
        let failed = |source| StartError::Bind { address, source };
        let listener = inbound::listen(address).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        listeners.push((listener, bound));
    }
    Ok(listeners)
}

/// The proxy, for clients that were redirected to it.
pub(super) struct Transparent(pub(super) Arc<Proxy>);

impl Host for Transparent {
    const TASK: &'static str = "proxy-redirected";

    async fn serve(self: Arc<Self>, stream: TcpStream, client: SocketAddr) {
        let _open = self.0.metrics.connection();
        let end = self.0.redirected(stream, client).await;
        self.0.metrics.ended(end);
    }

    fn refused(&self) {
        self.0.refused();
    }

    fn cut_off(&self) {
        self.0.cut_off();
    }
}

impl Proxy {
    async fn redirected(self: &Arc<Self>, stream: TcpStream, client: SocketAddr) -> End {
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
        let action = target.action(&self.rules.now().names);
        match action {
            Some(Action::Reject) => return self.closed_out(&client, &target),
            // A host that is let through may let its server speak first.
            Some(Action::Tunnel) => {}
            _ => match tokio::time::timeout(self.options.handshake_timeout, stream.peek(&mut [0])).await {
                Ok(Ok(1..)) => {}
                Ok(_) => return End::NoRequest,
                Err(_) => return self.silent(stream, destination, target, client).await,
            },
        }
        // What it said was sent when the connection it comes by was known already.
        if self.is_ours(&client, destination) {
            return End::Loop;
        }
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
        let action = self.rules.now().names.decide(&target.name);
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

/// Where a connection went before it was redirected to `at`. An error where it was not.
fn destination(stream: &TcpStream, at: SocketAddr) -> io::Result<SocketAddr> {
    let destination = canonical(original_destination(stream, at)?);
    match destination == canonical(at) {
        true => Err(io::Error::other("it was made to there")),
        false => Ok(destination),
    }
}

/// What the system's table of connections says of it, if it has it.
#[cfg(target_os = "linux")]
fn original_destination(stream: &TcpStream, at: SocketAddr) -> io::Result<SocketAddr> {
    let socket = socket2::SockRef::from(stream);
    let told = match canonical(at) {
        SocketAddr::V4(_) => socket.original_dst_v4()?,
        SocketAddr::V6(_) => socket.original_dst_v6()?,
    };
    told.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
fn original_destination(_: &TcpStream, _: SocketAddr) -> io::Result<SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}
