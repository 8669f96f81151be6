//! A client's connection to the proxy: CONNECT, requests with absolute URLs, and the proxy's own pages.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_relay::client::{Client, Credential};
use http_relay::client_body::ClientBody;
use http_relay::hangup::HangupWatch;
use http_relay::opening::{self, Opening, RewoundStream};
use http_relay::page::{self, Body};
use http_relay::serve::Websockets;
use http_relay::streams::TunnelGuard;
use http_relay::target::{Origin, Target};
use hyper::body::Incoming;
use hyper::http::uri::Scheme;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use inbound::{ConnectionHandler, Refusal, Silence, Slot};
use outbound::dial::close_with_reset;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::task::TaskTracker;

use super::access::AcceptedClient;
use super::connection_context::ConnectionContext;
use super::metrics::End;
use super::page::{OWN_NAME, ProxyEndpoint, about, pac, rejected_page};
use super::permitted;
use super::policy::Phase;
use super::proxy::Proxy;
use super::rules::Action;
use super::serving::ended;
use super::stopped::ServedClients;

/// Timeout of the ClientHello of a TLS connection to the proxy itself, from the accept of the connection.
const HELLO_WITHIN: Duration = Duration::from_secs(2);

impl ConnectionHandler for Proxy {
    async fn serve(self: Arc<Self>, stream: TcpStream, client: SocketAddr, slot: &mut Slot) {
        let _live = telemetry::tasks::guard("proxy-connection");
        let _open = self.metrics.connection();
        let end = self.connection(stream, client, slot.silence()).await;
        self.metrics.ended(end);
    }

    fn refused(&self, stream: TcpStream, reason: Refusal) {
        self.metrics.refused(reason);
        close_with_reset(stream);
    }

    fn evicted(&self) {
        self.metrics.refused(Refusal::Evicted);
    }

    fn cut_off(&self) {
        self.metrics.ended(End::CutOff);
    }
}

impl Proxy {
    async fn connection(self: &Arc<Self>, stream: TcpStream, client: SocketAddr, silence: Silence) -> End {
        let client = self.access.client(client);
        if !self.permits_network(&client) {
            return End::Refused;
        }
        let (client, _watch) = self.watched(client, &stream);
        let Ok(at) = stream.local_addr() else { return End::NoRequest };
        let Some((opening, stream)) = self.opening(stream, &client, self.first_bytes_timeout()).await else {
            return End::NoRequest;
        };
        match (&opening, self.access.tls_acceptor()) {
            (Opening::Tls(_), Some(tls_acceptor)) => {
                let Some((stream, client, shown)) = self.accepted(tls_acceptor.accept(stream), client).await
                else {
                    return End::NoRequest;
                };
                match self.opening(stream, &client, self.options.head_timeout).await {
                    Some((opening, stream)) => {
                        let reached = ProxyEndpoint { at, by_tls: true };
                        tokio::select! {
                            // Polled before the connection is served, so that a client with a revoked certificate is never served.
                            biased;
                            () = tls_acceptor.guarded().revoked(shown) => End::CutOff,
                            end = Box::pin(self.serve_by_protocol(opening, stream, client, reached, silence)) => end,
                        }
                    }
                    None => End::NoRequest,
                }
            }
            (_, Some(tls_acceptor)) if tls_acceptor.only => End::Refused,
            _ => {
                let reached = ProxyEndpoint { at, by_tls: false };
                self.serve_by_protocol(opening, stream, client, reached, silence).await
            }
        }
    }

    /// Waits for a client's TLS handshake with the proxy. Returns the stream, the client with the user that its certificate names,
    /// and the certificate. Returns `None` if the handshake fails or times out.
    pub(super) async fn accepted<S>(
        &self,
        handshake: impl Future<Output = io::Result<AcceptedClient<S>>>,
        client: Client,
    ) -> Option<(TlsStream<S>, Client, Option<CertificateDer<'static>>)> {
        let handshake = tokio::time::timeout(self.options.handshake_timeout, handshake).await.ok()?;
        let (stream, user, shown) = handshake
            .inspect_err(
                |error| tracing::info!(%client, %error, "the TLS handshake of a client with the proxy failed"),
            )
            .ok()?;
        let client = match user {
            Some(user) => client.authenticated_as(user.name, Credential::Certificate(user.uris.into())),
            None => client,
        };
        Some((stream, client, shown))
    }

    /// Returns whether the client's address may use the proxy.
    pub(super) fn permits_network(&self, client: &Client) -> bool {
        let nets = &self.options.clients;
        nets.is_empty() || nets.iter().any(|net| net.contains(&client.ip()))
    }

    /// Adds a hangup signal to the client if the policy may hold its requests: a hold then ends when the client disconnects. The
    /// caller must keep the returned watch until the connection ends.
    pub(super) fn watched(&self, client: Client, stream: &TcpStream) -> (Client, Option<HangupWatch>) {
        let is_watched = self.rules.now().policy.holds();
        let watch = is_watched.then(|| HangupWatch::of(stream).ok()).flatten();
        match &watch {
            Some(one) => (client.with_hangup(one.signal()), watch),
            None => (client, None),
        }
    }

    /// Returns the timeout of the client's first bytes. If the port serves only TLS, this is the timeout of a ClientHello.
    fn first_bytes_timeout(&self) -> Duration {
        let limit = self.options.head_timeout;
        if self.access.tls_acceptor().is_some_and(|tls_acceptor| tls_acceptor.only) {
            limit.min(HELLO_WITHIN)
        } else {
            limit
        }
    }

    /// Reads the client's first bytes and detects their protocol. Returns `None` on a read error or a timeout.
    async fn opening<S>(
        &self,
        stream: S,
        client: &Client,
        limit: Duration,
    ) -> Option<(Opening, RewoundStream<S>)>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let read = opening::read(stream, self.options.idle);
        let read = tokio::time::timeout(limit, read).await.ok()?;
        read.inspect_err(
            |error| tracing::debug!(%client, %error, "cannot read the first bytes of a connection"),
        )
        .ok()
    }

    async fn serve_by_protocol<S>(
        self: &Arc<Self>,
        opening: Opening,
        stream: S,
        client: Client,
        reached: ProxyEndpoint,
        silence: Silence,
    ) -> End
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        if opening == Opening::Socks {
            return self.serve_socks(stream, client, &silence).await;
        }
        // CONNECT tunnels and upgraded connections continue after their HTTP connection has ended.
        let tunnels = TaskTracker::new();
        let (proxy, spawn) = (Arc::clone(self), tunnels.clone());
        let clients = ServedClients::default();
        let served = clients.clone();
        let answer = move |request: Request<Incoming>| {
            // The client has sent a complete request.
            silence.end();
            let (proxy, spawn, client) = (Arc::clone(&proxy), spawn.clone(), client.clone());
            let served = served.clone();
            async move { proxy.answer(request, &client, reached, (&spawn, &served)).await }
        };
        let serve = async {
            match opening {
                Opening::Http1 => self.http1(stream, answer).await,
                Opening::Http2 => self.http2(stream, answer, Websockets::NotOffered).await,
                Opening::Tls(_) | Opening::Socks | Opening::Other => End::NoRequest,
            }
        };
        let end = tokio::select! {
            end = serve => end,
            () = clients.stopped(self) => End::CutOff,
        };
        ended(&tunnels).await;
        end
    }

    async fn serve_socks<S>(self: &Arc<Self>, mut stream: S, client: Client, silence: &Silence) -> End
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let requested =
            tokio::time::timeout(self.options.head_timeout, self.socks(&mut stream, &client)).await;
        let (target, client) = match requested {
            Ok(Ok(requested)) => requested,
            Ok(Err(error)) => {
                tracing::info!(%client, %error, "a SOCKS5 request failed");
                return End::NoRequest;
            }
            Err(_) => return End::NoRequest,
        };
        silence.end();
        Box::pin(Arc::clone(self).serve_after_connect(stream, target, client)).await;
        End::Closed
    }

    /// Answers a request that the client sends outside of a tunnel: CONNECT, a request with an absolute URL, or a request for the
    /// proxy's own pages.
    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        client: &Client,
        reached: ProxyEndpoint,
        (tunnels, served): (&TaskTracker, &ServedClients),
    ) -> Response<Body> {
        let request = self.with_body(request);
        let is_connect = request.method() == Method::CONNECT;
        // The CA certificate and the proxy configuration are available to all clients.
        if !is_connect && self.is_for_own_pages(&request, reached) {
            return self.own_page(&request, reached);
        }
        let client = match self.access.of_request(request.headers(), client).await {
            Ok(client) => client,
            Err(denied) => {
                self.metrics.denied(denied);
                tracing::info!(%client, %denied, "rejected a client");
                return self.access.refusal(denied);
            }
        };
        served.add(self.served(&client));
        if is_connect {
            return self.connect(request, client, tunnels).await;
        }
        let target = match Target::from_absolute_uri(request.uri()) {
            Ok(target) => target,
            Err(error) => return page::problem(StatusCode::BAD_REQUEST, "http_request_error", &error),
        };
        let origin = Origin {
            target,
            server: None,
            tls: None,
            http2: false,
            absolute_form: true,
            may_be_local: client.is_local(),
        };
        let context =
            ConnectionContext { origin: Arc::new(origin), client, mirrored: None, tunnels: tunnels.clone() };
        self.exchange(request, &context).await
    }

    async fn connect(
        self: Arc<Self>,
        request: Request<ClientBody>,
        client: Client,
        tunnels: &TaskTracker,
    ) -> Response<Body> {
        let target = match Target::from_connect_uri(request.uri()) {
            Ok(target) => target,
            Err(error) => return page::problem(StatusCode::BAD_REQUEST, "http_request_error", &error),
        };
        if let Err(refused) = self.admit_target(&client, &target, Phase::Connect).await {
            return refused.page.page(request.headers());
        }
        let action = self.action_of(&target, &target.name).await;
        if action == Action::Reject {
            self.metrics.rejected();
            self.requests.refused(&client, &target);
            return rejected_page(&target);
        }
        if action == Action::Tunnel
            && let Err(refused) = self.admit_target(&client, &target, Phase::Tunnel).await
        {
            return refused.page.page(request.headers());
        }
        if let Err(refused) = self.permits_target(&target, &client).await {
            return permitted::page(&target.name, &refused);
        }
        let tasks = self.tasks.clone();
        let (tunnel, stream) = (tunnels.token(), TunnelGuard::on());
        tasks.spawn_bounded(async move {
            let _tunnel = tunnel;
            let _stream = stream;
            match hyper::upgrade::on(request).await {
                Ok(upgraded) => self.serve_after_connect(TokioIo::new(upgraded), target, client).await,
                Err(error) => tracing::debug!(%client, %error, "a connection failed after CONNECT"),
            }
        });
        page::empty(StatusCode::OK)
    }

    /// Returns whether the request is for the proxy's own pages. A browser that is configured to use the proxy requests these pages
    /// by the proxy's address.
    fn is_for_own_pages(&self, request: &Request<ClientBody>, reached: ProxyEndpoint) -> bool {
        let Some(authority) = request.uri().authority() else { return true };
        // HTTP/2 requests always name a host. On a TLS connection to the proxy, `https:` requests are for the proxy itself under
        // any name, because clients use CONNECT for other hosts.
        let is_its_own_tls = reached.by_tls
            && request.version() == Version::HTTP_2
            && request.uri().scheme() == Some(&Scheme::HTTPS);
        is_its_own_tls
            || authority.host() == OWN_NAME
            || authority.port_u16() == Some(self.address.port())
                && authority.host().parse() == Ok(self.address.ip())
    }

    fn own_page(&self, request: &Request<ClientBody>, reached: ProxyEndpoint) -> Response<Body> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return page::empty(StatusCode::METHOD_NOT_ALLOWED);
        }
        let root = self.tls.trusted().certificate();
        match request.uri().path() {
            "/ca.crt" | "/ca.cer" => {
                page::text(StatusCode::OK, "application/x-x509-ca-cert", root.der.to_vec().into())
            }
            "/ca.pem" => {
                let pem = x509::pem::encode("CERTIFICATE", &root.der);
                page::text(StatusCode::OK, "application/x-pem-file", pem.into())
            }
            "/proxy.pac" => {
                let script = pac(reached, request.uri(), request.headers());
                page::text(StatusCode::OK, "application/x-ns-proxy-autoconfig", script.into())
            }
            "/" => {
                let text = about(&root.subject.text, &root.fingerprint.to_string());
                page::text(StatusCode::OK, "text/html; charset=utf-8", text.into())
            }
            _ => page::problem(
                StatusCode::NOT_FOUND,
                "http_request_error",
                "not found; available are /, /ca.pem, /ca.crt and /proxy.pac",
            ),
        }
    }
}
