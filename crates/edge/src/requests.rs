//! Connections in HTTP mode. Each request must match the connection's server name. The terminator adds header fields about the
//! client, and sends the request to the route's upstream on a pooled connection.

use std::sync::Arc;
use std::time::Instant;

use http_body_util::Either;
use http_relay::access_log::{Entry, counted};
use http_relay::client::Client;
use http_relay::client_body::ClientBody;
use http_relay::fields::{Upgrades, address, authority_of, clean, permitted_upgrade};
use http_relay::next_head::HeadTimeouts;
use http_relay::opening::{self, Opening};
use http_relay::page::{self, Body, misdirected_page};
use http_relay::relay::{ByteCounters, CountedStream, relay_with};
use http_relay::request_body::RequestBody;
use http_relay::serve::{Served, Serving, Websockets};
use http_relay::stall::{UploadStatus, UploadTimer};
use http_relay::unanswered::{reason_of, upload_failure_response};
use http_relay::upgrade::{UpgradeRequest, add_upgrade_fields};
use http_relay::upstream::{NoAnswer, UpstreamConnectError, UpstreamResponseBody};
use http_relay::websocket::Websocket;
use hyper::body::{Body as _, Incoming};
use hyper::header::HeaderValue;
use hyper::{Method, Request, Response, StatusCode, Version};
use telemetry::spans::TRACEPARENT;
use tokio_util::task::TaskTracker;
use x509::HostOrIp;

use super::client_auth::{self, ClientIdentity};
use super::forwarded;
use super::group::{InFlight, TRIES_MAX};
use super::metrics::End;
use super::outcome::{note_answered, record_failure};
use super::routes::Route;
use super::site::Site;
use super::terminator::{Stream, Terminator};

/// The client of a connection in HTTP mode, with its certificate.
pub(super) struct ConnectionClient {
    pub(super) client: Client,
    /// Identity from the client's certificate; `None` if the client sent no certificate.
    pub(super) identity: Option<Arc<ClientIdentity>>,
}

/// Data of a client connection that its requests share.
struct Connection {
    shared: Arc<Terminator>,
    client: Client,
    /// Identity from the client's certificate; `None` if the client sent no certificate.
    identity: Option<Arc<ClientIdentity>>,
    is_trusted: bool,
    /// The server name (SNI), as sent.
    name: Option<String>,
    /// The site whose certificate was sent.
    site: Arc<Site>,
    /// Tasks that outlive their request: upgraded connections.
    tunnels: TaskTracker,
}

/// Destination of a request: its route and host.
struct Destination {
    /// Route for the requests of this connection.
    route: Arc<Route>,
    authority: HeaderValue,
}

/// Reason why the terminator rejects a request.
enum Rejection {
    /// The method is CONNECT.
    Connect,
    /// The request has no host, or an invalid one.
    Host(&'static str),
    /// The host does not belong to this connection.
    Misdirected(HostOrIp),
}

impl Rejection {
    fn page(&self) -> Response<Body> {
        let (status, detail) = match self {
            Self::Connect => (StatusCode::METHOD_NOT_ALLOWED, "CONNECT is supported by forward proxies only"),
            Self::Host(error) => (StatusCode::BAD_REQUEST, *error),
            Self::Misdirected(host) => return misdirected_page(host),
        };
        page::problem(status, "http_request_error", detail)
    }
}

impl Terminator {
    /// Answers the requests of a connection until it closes.
    pub(super) async fn serve_requests(
        self: &Arc<Self>,
        tls: Stream,
        ConnectionClient { client, identity }: ConnectionClient,
        name: Option<String>,
        site: Arc<Site>,
    ) -> End {
        let is_http2 = tls.as_ref().application_protocol() == Some(b"h2");
        let relayed_bytes = self.metrics.relayed_bytes();
        let tls = CountedStream::new(tls, Some(relayed_bytes.up.clone()), Some(relayed_bytes.down.clone()));
        let opening = tokio::time::timeout(self.request_service.keep_alive, opening::read(tls, self.idle));
        let Ok(Ok((opening, stream))) = opening.await else { return End::NoRequest };
        let is_trusted = self.request_service.trusted.iter().any(|net| net.contains(&client.ip()));
        let tunnels = TaskTracker::new();
        let connection = Arc::new(Connection {
            shared: Arc::clone(self),
            client,
            identity,
            is_trusted,
            name,
            site,
            tunnels: tunnels.clone(),
        });
        let answer = move |request: Request<Incoming>| {
            let connection = Arc::clone(&connection);
            // Awaited inside this block so that Clippy's `large_futures` lint checks the size of the future.
            async move { connection.answer(request).await }
        };
        let serving = Serving {
            head: HeadTimeouts {
                head: self.request_service.head_timeout,
                keep_alive: self.request_service.keep_alive,
            },
            idle: self.idle,
            stopping: self.request_service.tasks.stopping(),
        };
        let served = match (opening, is_http2) {
            (Opening::Http1, false) => serving.http1(stream, answer).await,
            (Opening::Http2, true) => serving.http2(stream, answer, Websockets::Offered).await,
            _ => return End::NoRequest,
        };
        tunnels.close();
        tunnels.wait().await;
        match served {
            Served::Closed => End::Closed,
            Served::Broken(error) => {
                tracing::debug!(%error, "an HTTP connection failed");
                End::Broken
            }
            Served::CutOff => End::Idle,
        }
    }
}

impl Connection {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let Terminator { request_service, metrics, .. } = &*self.shared;
        let (began, _under_way) = (Instant::now(), metrics.request());
        let mut request = ClientBody::of(request, &request_service.tasks, request_service.head_timeout);
        let websocket = Websocket::of(&mut request);
        let mut entry = request_service.access_log.entry(&request, &self.client);
        if let Some(entry) = &mut entry {
            self.site.trace.into_iter().for_each(|certificate| entry.link(certificate));
        }
        let response = match self.destination_of(&request) {
            Ok(destination) => {
                self.forward_request(request, &destination, websocket.as_ref(), &mut entry).await
            }
            Err(refused) => refused.page(),
        };
        let response = match &websocket {
            Some(websocket) => websocket.answered(response),
            None => response,
        };
        // Set only for responses that the terminator generated: a response from an upstream has taken the entry.
        if let Some(mut entry) = entry {
            entry.answered(response.status(), response.headers());
            entry.down().count(response.body().size_hint().exact().unwrap_or(0) as usize);
        }
        metrics.answered(response.status(), began.elapsed());
        response
    }

    /// Finds the destination by the current routes. The host must be the connection's server name, or another name that both the
    /// certificate and the route cover (RFC 9113 section 9.1.1). For other hosts, the client must open another connection.
    fn destination_of(&self, request: &Request<ClientBody>) -> Result<Destination, Rejection> {
        if request.method() == Method::CONNECT {
            return Err(Rejection::Connect);
        }
        let (authority, host) = authority_of(request).map_err(Rejection::Host)?;
        let routes = self.shared.routes.now();
        let own = routes.find(self.name.as_deref());
        let requested = routes.find(Some(&host.to_string()));
        let is_shown = self.is_own(&host) || self.site.is_for(&host);
        match (own, requested) {
            (Some(own), Some(requested)) if is_shown && Arc::ptr_eq(own, requested) => match &own.http {
                Some(_) => Ok(Destination { route: Arc::clone(own), authority }),
                None => Err(Rejection::Misdirected(host)),
            },
            _ => Err(Rejection::Misdirected(host)),
        }
    }

    /// Returns whether the host is the server name of this connection. A client without SNI may use any name that leads to the same
    /// route.
    fn is_own(&self, host: &HostOrIp) -> bool {
        self.name.as_deref().is_none_or(|own| HostOrIp::parse(own).as_ref() == Ok(host))
    }

    async fn forward_request(
        &self,
        mut request: Request<ClientBody>,
        destination: &Destination,
        websocket: Option<&Websocket>,
        entry: &mut Option<Box<Entry>>,
    ) -> Response<Body> {
        let Destination { route, authority } = destination;
        let upgrade = permitted_upgrade(request.headers(), Upgrades::Websocket);
        // Hop-by-hop fields are not forwarded.
        clean(request.headers_mut());
        forwarded::set_fields(request.headers_mut(), self.client.ip(), authority, self.is_trusted);
        if self.shared.clients.is_some() {
            client_auth::set_fields(request.headers_mut(), self.identity.as_deref());
        }
        let version = request.version();
        let client = upgrade.clone().map(|requested| UpgradeRequest {
            client: hyper::upgrade::on(&mut request),
            requested,
            websocket,
            tunnels: &self.tunnels,
            version,
        });
        if let Some(protocol) = &upgrade {
            add_upgrade_fields(protocol, request.headers_mut());
        }
        if let Some(traceparent) = entry.as_ref().and_then(|entry| entry.traceparent()) {
            request.headers_mut().insert(TRACEPARENT, traceparent);
        }
        let (upload, uploading) = UploadTimer::within(self.shared.idle);
        let tee = entry.as_ref().map(|entry| entry.up());
        let request = request.map(|body| RequestBody::new(body, tee, upload, forwarded::clean_trailers));
        let to = ServerRequest { route, authority, is_upgrade: upgrade.is_some(), uploading: &uploading };
        match self.send(request, &to, entry).await {
            Ok((response, in_flight)) => {
                let response = response.map(|body| body.with_upload(&uploading).with_guard(in_flight));
                self.forward_response(response, client, entry)
            }
            Err(error) => {
                if let Some(told) = upload_failure_response(&uploading, version) {
                    return told;
                }
                let (status, reason) = reason_of(&error);
                self.shared.metrics.upstream_error(reason);
                unanswered(status, reason)
            }
        }
    }

    /// Sends a request to a server of the upstream. If the connection fails, tries the next server.
    async fn send(
        &self,
        mut request: Request<RequestBody>,
        to: &ServerRequest<'_>,
        entry: &mut Option<Box<Entry>>,
    ) -> Result<(Response<UpstreamResponseBody>, InFlight), NoAnswer> {
        let (shared, group) = (&self.shared, &to.route.group);
        let mut tried = Vec::new();
        let mut last = None;
        while tried.len() < TRIES_MAX
            && let Some(at) = group.choose(self.client.ip(), &tried)
            && let Some(http) = &to.route.http
        {
            let (server, origin) = (&group.servers()[at], http.origin(at, to.is_upgrade));
            let in_flight = server.begin();
            let prepare =
                |request: &mut Request<RequestBody>, version| address(request, origin, to.authority, version);
            let error = match shared.request_service.upstreams.try_send(origin, request, prepare).await {
                Ok(response) => {
                    note_answered(group, server, &shared.metrics);
                    entry.iter_mut().for_each(|entry| entry.upstream_server(Arc::clone(&server.label)));
                    return Ok((response, in_flight));
                }
                Err(unanswered) => unanswered,
            };
            tracing::info!(
                upstream = %group.name(), server = %server.label, error = %error.error, "no response from an upstream"
            );
            entry.iter_mut().for_each(|entry| entry.upstream_server(Arc::clone(&server.label)));
            if is_servers_fault(&error.error, to.uploading) {
                record_failure(group, server, &shared.metrics);
            }
            let Some(unsent) = error.unsent else { return Err(error.error) };
            request = *unsent;
            last = Some(error.error);
            tried.push(at);
        }
        Err(last.unwrap_or_else(|| NoAnswer::Connection(Arc::new(UpstreamConnectError::Full))))
    }

    fn forward_response(
        &self,
        mut response: Response<UpstreamResponseBody>,
        client: Option<UpgradeRequest<'_>>,
        entry: &mut Option<Box<Entry>>,
    ) -> Response<Body> {
        if let (Some(entry), Some(connection)) = (entry.as_mut(), response.extensions().get()) {
            entry.upstream(*connection);
        }
        let websocket = client.as_ref().and_then(|client| client.websocket);
        if let Some(refusal) = websocket.and_then(|websocket| websocket.refusal(&response)) {
            return refusal;
        }
        let mut entry = entry.take();
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Some(client) = client.filter(|client| client.is_accepted_by(response.headers())) else {
                self.shared.metrics.upstream_error("http_protocol_error");
                return page::unrequested_upgrade_page();
            };
            let told = if websocket.is_some() { StatusCode::OK } else { response.status() };
            entry.iter_mut().for_each(|entry| entry.answered(told, response.headers()));
            self.change(client, hyper::upgrade::on(&mut response), entry);
            return response.map(Either::Left);
        }
        clean(response.headers_mut());
        entry.iter_mut().for_each(|entry| entry.answered(response.status(), response.headers()));
        response.map(|body| Either::Left(body.logged(entry, None)))
    }

    /// Relays the bytes of a connection after a protocol upgrade.
    fn change(
        &self,
        client: UpgradeRequest<'_>,
        upstream: hyper::upgrade::OnUpgrade,
        entry: Option<Box<Entry>>,
    ) {
        let shared = Arc::clone(&self.shared);
        // With HTTP/2, the terminator cannot distinguish a reset stream from an ended one, so a short half-close timeout frees the
        // server's connection.
        let is_http2 = client.version == Version::HTTP_2;
        let half = if is_http2 { shared.request_service.head_timeout } else { shared.idle };
        client.spawn(upstream, &self.shared.request_service.tasks, move |client, upstream| async move {
            let client = counted(client, entry.as_deref());
            // The bytes are already counted at the TLS stream.
            relay_with(client, upstream, shared.idle, half, &ByteCounters::default()).await;
        });
    }
}

/// A request for one server.
struct ServerRequest<'a> {
    route: &'a Route,
    authority: &'a HeaderValue,
    is_upgrade: bool,
    uploading: &'a UploadStatus,
}

/// Returns whether the server caused the failure, rather than the client or a local limit.
fn is_servers_fault(error: &NoAnswer, uploading: &UploadStatus) -> bool {
    let is_full =
        matches!(error, NoAnswer::Connection(error) if matches!(**error, UpstreamConnectError::Full));
    !is_full && !uploading.has_failed()
}

/// Returns an error response without details: clients are untrusted, and the log contains the reason.
fn unanswered(status: StatusCode, reason: &str) -> Response<Body> {
    let detail = match status {
        StatusCode::SERVICE_UNAVAILABLE => "the maximum number of upstream connections is reached",
        StatusCode::GATEWAY_TIMEOUT => "the upstream did not answer in time",
        StatusCode::LOOP_DETECTED => "request loop detected",
        _ => "cannot connect to the upstream, or the upstream closed the connection",
    };
    page::problem(status, reason, detail)
}
