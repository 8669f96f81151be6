//! What a client says after CONNECT, or once it was redirected.

use std::sync::Arc;
use std::time::Duration;

use http_relay::access_log::counted;
use http_relay::client::Client;
use http_relay::host::LeafName;
use http_relay::opening::{self, Hello, Opening};
use http_relay::relay::{Octets, relay, relay_with};
use http_relay::target::{Origin, Target};
use hyper::body::Incoming;
use hyper::{HeaderMap, Request, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::task::TaskTracker;

use super::metrics::Handshake;
use super::proxy::Proxy;
use super::rules::Action;
use super::tls::{NotIntercepted, was_resumed};
use super::way::Way;

impl Proxy {
    /// Serves what stands behind CONNECT, to its end.
    pub(super) async fn after_connect<S>(self: Arc<Self>, stream: S, target: Target, client: Client)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        // A host that is let through may let its server speak first.
        if self.rules.now().names.of_target(&target) == Some(Action::Tunnel) {
            return self.tunnel(stream, &target, &target.name, &client).await;
        }
        let read =
            tokio::time::timeout(self.options.handshake_timeout, opening::read(stream, self.options.idle))
                .await;
        let (opening, stream) = match read {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => {
                return tracing::debug!(%client, %target, %error, "nothing of use to begin with");
            }
            Err(_) => return tracing::debug!(%client, %target, "nothing to begin with in its time"),
        };
        match opening {
            Opening::Tls(hello) => self.tls(stream, target, hello, client).await,
            Opening::Http1 => {
                let way = way(target, None, false, client);
                self.http1_of(stream, way).await;
            }
            Opening::Http2 => {
                let way = way(target, None, true, client);
                self.http2_of(stream, way).await;
            }
            Opening::Socks | Opening::Other => {
                // An address that no list has is for the default, now that there is no name to come.
                let action = self.rules.now().names.decide(&target.name);
                if action == Action::Tunnel {
                    return self.tunnel(stream, &target, &target.name, &client).await;
                }
                if action == Action::Reject {
                    self.metrics.rejected();
                    return self.requests.refused(&client, &target);
                }
                tracing::info!(%client, %target, "neither TLS nor HTTP: closed; see the rules for tunnels")
            }
        }
    }

    /// Decides by the name in the ClientHello, and by that of CONNECT where there is none.
    async fn tls<S>(self: Arc<Self>, stream: S, target: Target, hello: Hello, client: Client)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let named = hello.server_name.as_deref().and_then(|name| LeafName::parse(name).ok());
        let name = named.unwrap_or_else(|| target.name.clone());
        let action = self.rules.now().names.decide(&name);
        if action == Action::Tunnel {
            return self.tunnel(stream, &target, &name, &client).await;
        }
        if action.looks() && self.refusals.has(&client, &name) {
            self.metrics.auto_tunnel();
            return self.tunnel(stream, &target, &name, &client).await;
        }
        if action.looks() && self.permits(&target, &name, &client).await.is_err() {
            return self.metrics.handshake(Handshake::NoLeaf);
        }
        let mirrored = match action {
            Action::Mirror => self.mirrors.of(&target, &name, hello.http2, &client).await,
            _ => None,
        };
        let is_mirrored = mirrored.is_some();
        let stream = match self.tls.accept(stream, &name, mirrored.as_ref(), &hello, &client).await {
            Ok(stream) => stream,
            Err(error) => {
                self.metrics.handshake(match &error {
                    NotIntercepted::NoLeaf(_) => Handshake::NoLeaf,
                    NotIntercepted::Late => Handshake::Late,
                    NotIntercepted::Handshake(_) => Handshake::Failed,
                });
                tracing::info!(%client, %name, %error, "a client was not intercepted");
                if self.refusals.note(&client, &name, &error) {
                    tracing::warn!(%client, %name, "a client refuses the leaf: the next connection is passed on");
                }
                return;
            }
        };
        self.refusals.accepted(&client, &name);
        self.metrics.handshake(if was_resumed(&stream) { Handshake::Resumed } else { Handshake::Full });
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let way = Way { is_mirrored, ..way(target, Some(name), http2, client.clone()) };
        if !http2 {
            return self.http1_of(stream, way).await;
        }
        let opening = opening::read(stream, self.options.idle);
        match tokio::time::timeout(self.options.head_timeout, opening).await {
            Ok(Ok((Opening::Http2, stream))) => {
                self.http2_of(stream, way).await;
            }
            _ => tracing::debug!(%client, "HTTP/2 was agreed upon and not spoken"),
        }
    }

    /// Requests of `way` by HTTP/1, and what they change to.
    async fn http1_of<S>(self: &Arc<Self>, stream: S, way: Way)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (proxy, tunnels) = (Arc::clone(self), way.tunnels.clone());
        let answer = move |request: Request<Incoming>| proxy.clone().exchanged(request, way.clone());
        self.http1(stream, answer).await;
        ended(&tunnels).await;
    }

    /// Those by HTTP/2.
    async fn http2_of<S>(self: &Arc<Self>, stream: S, way: Way)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (proxy, tunnels) = (Arc::clone(self), way.tunnels.clone());
        let answer = move |request: Request<Incoming>| proxy.clone().exchanged(request, way.clone());
        self.http2(stream, answer, true).await;
        ended(&tunnels).await;
    }

    /// `name`: what it is known as, whatever CONNECT said.
    pub(super) async fn tunnel<S>(&self, stream: S, target: &Target, name: &LeafName, client: &Client)
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
        let octets: Octets = self.metrics.upgraded();
        relay_with(client, upstream, self.options.idle, half, &octets).await;
    }
}

fn way(target: Target, server: Option<LeafName>, http2: bool, client: Client) -> Way {
    // Without TLS nobody says which protocol an upstream speaks.
    let http2 = http2 && server.is_some();
    let origin = Origin { target, server, http2, in_full: false, may_be_here: client.is_here() };
    Way { origin: Arc::new(origin), client, is_mirrored: false, tunnels: TaskTracker::new() }
}

/// Once what went on after a connection's own part has ended too: until then it is its client's, and counts as its connection.
pub(super) async fn ended(tunnels: &TaskTracker) {
    tunnels.close();
    tunnels.wait().await;
}
