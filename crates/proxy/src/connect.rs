//! Serves connections after CONNECT, and redirected connections.

use std::sync::Arc;

use http_relay::client::Client;
use http_relay::opening::{self, ClientHelloFields, Opening};
use http_relay::serve::Websockets;
use http_relay::target::{Origin, Target};
use hyper::Request;
use hyper::body::Incoming;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::task::TaskTracker;
use x509::HostOrIp;

use super::connection_context::ConnectionContext;
use super::metrics::Handshake;
use super::proxy::Proxy;
use super::rules::Action;
use super::serving::ended;
use super::tls::{NotIntercepted, was_resumed};

impl Proxy {
    /// Serves a client's connection after CONNECT, until the connection ends or the client loses its access to the proxy.
    pub(super) async fn serve_after_connect<S>(self: Arc<Self>, stream: S, target: Target, client: Client)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let served = self.served(&client);
        tokio::select! {
            () = Arc::clone(&self).serve_tunnel_or_intercept(stream, target.clone(), client.clone()) => {}
            () = self.stopped(&served) => {
                tracing::info!(%client, %target, "the client is no longer allowed to use the proxy: closing its connection");
            }
        }
    }

    async fn serve_tunnel_or_intercept<S>(self: Arc<Self>, stream: S, target: Target, client: Client)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        // The server of a tunneled host may speak first.
        if self.is_tunnelled_immediately(&target).await {
            return self.tunnel(stream, &target, &target.name, &client).await;
        }
        let read =
            tokio::time::timeout(self.options.handshake_timeout, opening::read(stream, self.options.idle))
                .await;
        let (opening, stream) = match read {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => {
                return tracing::debug!(%client, %target, %error, "cannot read the first bytes after CONNECT");
            }
            Err(_) => {
                return tracing::debug!(%client, %target, "timeout while reading the first bytes after CONNECT");
            }
        };
        match opening {
            Opening::Tls(hello) => self.tls(stream, target, hello, client).await,
            Opening::Http1 => {
                let context = context(target, None, false, client);
                self.serve_http1(stream, context).await;
            }
            Opening::Http2 => {
                let context = context(target, None, true, client);
                self.serve_http2(stream, context).await;
            }
            Opening::Socks | Opening::Other => {
                // Without a host name, an address that no rule lists gets the default action.
                let action = self.action_of(&target, &target.name).await;
                if action == Action::Tunnel {
                    return self.tunnel(stream, &target, &target.name, &client).await;
                }
                if action == Action::Reject {
                    self.metrics.rejected();
                    return self.requests.refused(&client, &target);
                }
                tracing::info!(%client, %target, "closed a tunnel that carries neither TLS nor HTTP; see the rules for tunnels")
            }
        }
    }

    /// Serves a TLS connection by the rule for the server name in its ClientHello. Without a server name, the rule for the CONNECT
    /// target applies.
    async fn tls<S>(self: Arc<Self>, stream: S, target: Target, hello: ClientHelloFields, client: Client)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let named = hello.server_name.as_deref().and_then(|name| HostOrIp::parse(name).ok());
        let name = named.unwrap_or_else(|| target.name.clone());
        let action = self.action_of(&target, &name).await;
        if action == Action::Tunnel {
            return self.tunnel_as(stream, &target, &name, &client).await;
        }
        if action.intercepts() && self.refusals.has(&client, &name) {
            self.metrics.auto_tunnel();
            return self.tunnel_as(stream, &target, &name, &client).await;
        }
        if action.intercepts() && self.permits(&target, &name, &client).await.is_err() {
            return self.metrics.handshake(Handshake::NoLeaf);
        }
        let mirrored = match action {
            // The proxy does not probe a server if the policy denies or holds all requests to it.
            Action::Mirror if self.may_be_probed(&client, &target, &name) => {
                self.mirrors.of(&target, &name, hello.http2, &client).await
            }
            _ => None,
        };
        let stream = match self.tls.accept(stream, &name, mirrored.as_ref(), &hello, &client).await {
            Ok(stream) => stream,
            Err(error) => {
                self.metrics.handshake(match &error {
                    NotIntercepted::NoLeaf(_) => Handshake::NoLeaf,
                    NotIntercepted::Late => Handshake::Late,
                    NotIntercepted::Handshake(_) => Handshake::Failed,
                });
                tracing::info!(%client, %name, %error, "cannot intercept a client's connection");
                if self.refusals.note(&client, &name, &error) {
                    tracing::warn!(%client, %name, "a client rejected the leaf certificate: its next connection passes through");
                }
                return;
            }
        };
        self.refusals.accepted(&client, &name);
        self.metrics.handshake(if was_resumed(&stream) { Handshake::Resumed } else { Handshake::Full });
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let mirrored = mirrored.map(|mirrored| mirrored.template);
        let context = ConnectionContext { mirrored, ..context(target, Some(name), http2, client.clone()) };
        if !http2 {
            return self.serve_http1(stream, context).await;
        }
        let opening = opening::read(stream, self.options.idle);
        match tokio::time::timeout(self.options.head_timeout, opening).await {
            Ok(Ok((Opening::Http2, stream))) => {
                self.serve_http2(stream, context).await;
            }
            _ => tracing::debug!(%client, "a client negotiated HTTP/2 but did not use it"),
        }
    }

    /// Serves HTTP/1 requests and protocol upgrades on the connection `context`.
    async fn serve_http1<S>(self: &Arc<Self>, stream: S, context: ConnectionContext)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (proxy, tunnels) = (Arc::clone(self), context.tunnels.clone());
        let answer = move |request: Request<Incoming>| proxy.clone().exchange_owned(request, context.clone());
        self.http1(stream, answer).await;
        ended(&tunnels).await;
    }

    /// Serves requests over HTTP/2.
    async fn serve_http2<S>(self: &Arc<Self>, stream: S, context: ConnectionContext)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (proxy, tunnels) = (Arc::clone(self), context.tunnels.clone());
        let answer = move |request: Request<Incoming>| proxy.clone().exchange_owned(request, context.clone());
        self.http2(stream, answer, Websockets::Offered).await;
        ended(&tunnels).await;
    }
}

fn context(target: Target, server: Option<HostOrIp>, http2: bool, client: Client) -> ConnectionContext {
    // Without TLS, there is no negotiation of the upstream's protocol.
    let http2 = http2 && server.is_some();
    let origin =
        Origin { target, server, tls: None, http2, absolute_form: false, may_be_local: client.is_local() };
    ConnectionContext { origin: Arc::new(origin), client, mirrored: None, tunnels: TaskTracker::new() }
}
