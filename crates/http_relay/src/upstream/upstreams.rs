//! The pool of upstream connections. It opens a new connection when none is idle. After a response, the connection returns to the
//! pool.

use std::error::Error as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use h2::Reason;
use hyper::client::conn::TrySendError;
use hyper::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use hyper::http::Extensions;
use hyper::{Request, Response};
use outbound::Deadline;
use outbound::guard::Guard;
use outbound::resolve::Resolver;
use prometheus_client::metrics::counter::Counter;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use shared::Shared;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;
use x509::HostOrIp;

use super::super::access_log::{ConnectionReuse, ServerKey};
use super::super::target::{Origin, Target};
use super::address_rule::AddressRule;
use super::body::{ReturningConnection, UpstreamResponseBody};
use super::connect::Dialler;
use super::error::{NoAnswer, UpstreamConnectError};
use super::http2::Http2;
use super::http2_alone::{Http2OnlyServers, http2_alone};
use super::idle::Pool;
use super::making::{HTTP1_ORIGINS_MAX, PendingConnections};
use super::parent::Link;
use super::policy::{Policies, UpstreamPolicies};
use super::sender::{Ready, Sender};
use super::slot::{Slot, Slots};
use crate::request_body::RequestBody;
use inbound::ServiceTasks;

/// Interval at which expired idle connections are closed.
const SWEEP: Duration = Duration::from_secs(1);

/// Limits and options of a pool of upstream connections.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// Routes and TLS verification of individual upstreams.
    pub policies: UpstreamPolicies,
    /// Guard that blocks addresses for all clients, such as metadata services.
    pub guard: Guard,
    /// Rule that decides which addresses may be dialled for a name.
    pub address_rule: AddressRule,
    /// Maximum connections, including idle ones.
    pub connections_max: usize,
    /// Maximum connections to one host and port.
    pub per_host_max: usize,
    /// Maximum idle connections.
    pub idle_max: usize,
    /// Idle timeout of an upstream connection.
    pub idle_life: Duration,
    /// Timeout of name resolution, connection and TLS handshake together.
    pub connect_timeout: Duration,
    /// Timeout of a response's header, from the end of the request, or while the upstream accepts no more of the request.
    pub response_timeout: Duration,
    /// Idle timeout of a body.
    pub idle: Duration,
}

/// Counters of requests, by whether a pooled or a new connection was used.
#[derive(Clone, Debug, Default)]
pub struct Reuse {
    /// Requests over a pooled connection.
    pub pooled: Counter,
    /// Requests over a new connection.
    pub made: Counter,
}

impl Reuse {
    pub(super) fn request(&self, reused: bool) {
        if reused {
            self.pooled.inc()
        } else {
            self.made.inc()
        };
    }
}

/// Result of connecting to a server in advance, before a client sends a request for it.
pub struct ProbedServer {
    /// Certificate that the upstream presented; `None` if it presented none.
    pub certificate: Option<CertificateDer<'static>>,
    /// Whether the connection uses HTTP/2.
    pub http2: bool,
}

/// The pool of upstream connections. Clones share it.
#[derive(Clone)]
pub struct Upstreams(pub(super) Shared<PoolState>);

pub(super) struct PoolState {
    pub(super) dialler: Dialler,
    pub(super) pool: Arc<Pool>,
    slots: Arc<Slots>,
    /// Whether the pool keeps idle connections.
    pub(super) keeps_idle: bool,
    pub(super) making: PendingConnections,
    pub(super) http2_alone: Http2OnlyServers,
    pub(super) connect_timeout: Duration,
    response_timeout: Duration,
    pub(super) idle_body: Duration,
    pub(super) reuse: Reuse,
}

impl Upstreams {
    /// Creates a pool. `own` are listeners of this process, which the pool never connects to.
    ///
    /// # Errors
    /// The TLS library rejects a root or a client certificate.
    pub fn new(
        options: &PoolOptions,
        own: Vec<SocketAddr>,
        resolver: Resolver,
        roots: RootCertStore,
        tasks: ServiceTasks,
        reuse: Reuse,
    ) -> Result<Self, rustls::Error> {
        let slots = Arc::new(Slots::new(options.connections_max, options.per_host_max));
        let pool = Pool::new(options.idle_max, options.idle_life, Arc::clone(&slots), tasks.clone());
        let policies = Policies::new(&options.policies, roots)?;
        let dialler = Dialler::new(
            resolver,
            policies,
            (options.guard, options.address_rule.clone()),
            own,
            Arc::clone(&slots),
            tasks,
        );
        Ok(Self(Shared::new(PoolState {
            dialler,
            pool: Arc::new(pool),
            slots,
            keeps_idle: options.idle_max > 0,
            making: PendingConnections::with_entries_max(HTTP1_ORIGINS_MAX),
            http2_alone: http2_alone(),
            connect_timeout: options.connect_timeout,
            response_timeout: options.response_timeout,
            idle_body: options.idle,
            reuse,
        })))
    }

    /// Closes expired idle connections until `stop`.
    pub async fn sweep(self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(SWEEP) => {}
            }
            self.0.pool.close_expired();
        }
        self.0.pool.close_all();
    }

    /// Returns whether certificates are verified on connections to `origin`.
    pub fn verifies(&self, origin: &Origin) -> bool {
        origin.server.is_some() && self.0.dialler.verifies(origin)
    }

    /// Sets the maximum connections to one host.
    pub fn limit_per_host(&self, most: usize) {
        self.0.slots.limit_per_host(most);
    }

    /// Returns whether this process opened the connection between these addresses.
    pub fn made(&self, from: SocketAddr, to: SocketAddr) -> bool {
        self.0.slots.made(from, to)
    }

    /// Resolves the addresses of `name`. Returns none if resolution fails or times out, or if a parent proxy resolves the name.
    pub async fn addresses(&self, name: &HostOrIp) -> Vec<IpAddr> {
        if !self.0.dialler.is_direct(name) {
            return Vec::new();
        }
        let found = self.0.dialler.addresses(name, Deadline::within(self.0.connect_timeout)).await;
        found.unwrap_or_default()
    }

    /// Closes all idle connections, because the permitted addresses may have changed.
    pub fn retire(&self) {
        self.0.pool.close_all();
    }

    /// Returns whether `name` currently resolves to `address`. False if resolution fails or times out.
    pub async fn leads_to(&self, name: &HostOrIp, address: &HostOrIp) -> bool {
        let HostOrIp::Ip(address) = address else { return false };
        let found = self.0.dialler.addresses(name, Deadline::within(self.0.connect_timeout)).await;
        found.is_ok_and(|found| found.iter().any(|one| one.to_canonical() == *address))
    }

    /// Returns whether both names have the same verification and route.
    pub fn treats_alike(&self, one: &HostOrIp, other: &HostOrIp) -> bool {
        self.0.dialler.treats_alike(one, other)
    }

    /// Opens a TLS connection to `origin` as `server`, with HTTP/2 if both sides support it. The connection goes to the pool, for
    /// the first request of a client with the same HTTP version.
    pub async fn probe(
        &self,
        origin: &Origin,
        server: &HostOrIp,
    ) -> Result<ProbedServer, UpstreamConnectError> {
        let deadline = Deadline::within(self.0.connect_timeout);
        self.0.pool.evict_oldest();
        let (mut sender, certificate) = self.0.dialler.connect_tls(origin, server, deadline).await?;
        if let Sender::Http1(one) = &mut sender {
            // A pooled connection must be ready for use.
            let ready = tokio::time::timeout(deadline.remaining(), one.sender.ready()).await;
            ready.map_err(|_| UpstreamConnectError::Late)?.map_err(UpstreamConnectError::Http)?;
        }
        let http2 = matches!(sender, Sender::Http2(_));
        self.0.pool.keep(&Arc::new(Origin { http2, ..origin.clone() }), sender);
        Ok(ProbedServer { certificate, http2 })
    }

    /// Opens a byte stream to `target` by the route for `name`, and returns it with its slot. `may_be_local` is as in [`Origin`].
    /// For a direct connection, `is_meant` decides which addresses may be dialled.
    pub async fn link(
        &self,
        target: &Target,
        name: &HostOrIp,
        may_be_local: bool,
        is_meant: &(dyn Fn(IpAddr) -> bool + Sync),
    ) -> Result<(Link, Slot), UpstreamConnectError> {
        self.0.pool.evict_oldest();
        let deadline = Deadline::within(self.0.connect_timeout);
        self.0.dialler.link(target, name, may_be_local, is_meant, deadline).await
    }

    /// Performs a TLS handshake over `link` by the policy of `server`, whose certificate must be for that name. Offers the ALPN
    /// protocols `alpn`. Also returns the key of the certificate, if it was verified.
    pub async fn secure(
        &self,
        link: Link,
        server: &HostOrIp,
        alpn: Vec<Vec<u8>>,
    ) -> Result<(TlsStream<Link>, Option<ServerKey>), UpstreamConnectError> {
        self.0.dialler.secure(link, server, alpn, Deadline::within(self.0.connect_timeout)).await
    }

    /// Opens a new connection, which other requests may share if it uses HTTP/2.
    pub(super) async fn connect(&self, origin: &Arc<Origin>) -> Result<Ready, UpstreamConnectError> {
        let deadline = Deadline::within(self.0.connect_timeout);
        self.0.pool.evict_oldest();
        let sender = self.0.dialler.connect(origin, deadline).await?;
        let mut stream = None;
        if let Sender::Http2(shared) = &sender {
            stream = Some(shared.claim_first());
            self.0.pool.keep(origin, Sender::Http2(shared.clone()));
        }
        Ok(Ready { sender, stream, pooled: false })
    }

    pub(super) async fn send_on(
        &self,
        origin: &Arc<Origin>,
        ready: Ready,
        request: Request<RequestBody>,
    ) -> Result<Result<Response<UpstreamResponseBody>, Box<Request<RequestBody>>>, NoAnswer> {
        let is_of_one = authenticates_connection(request.headers().get_all(AUTHORIZATION));
        let Ready { sender, stream, .. } = ready;
        let mut copy = None;
        let (sent, back, server_key) = match sender {
            Sender::Http1(mut one) => {
                let sent = self.with_timeout(request, |request| one.sender.try_send_request(request)).await;
                let server_key = one.server_key;
                let (pool, origin) = (Arc::clone(&self.0.pool), Arc::clone(origin));
                (sent, Some(ReturningConnection { pool, origin, sender: one }), server_key)
            }
            Sender::Http2(Http2 { mut sender, server_key, .. }) => {
                copy = copy_of(&request);
                (
                    self.with_timeout(request, |request| sender.try_send_request(request)).await,
                    None,
                    server_key,
                )
            }
        };
        match sent? {
            Ok(mut response) => {
                response.extensions_mut().extend(with_key(server_key));
                let demands_authentication =
                    authenticates_connection(response.headers().get_all(WWW_AUTHENTICATE));
                let back = back.filter(|_| !is_of_one && !demands_authentication);
                Ok(Ok(response.map(|body| UpstreamResponseBody::new(body, back, stream, self.0.idle_body))))
            }
            Err(error) => match copy {
                Some(copy) if is_unprocessed(error.error()) => Ok(Err(copy)),
                _ => unsent_request(error).map(Err),
            },
        }
    }

    /// Returns the result of `send`, or a timeout error.
    pub(super) async fn with_timeout<F: Future>(
        &self,
        request: Request<RequestBody>,
        send: impl FnOnce(Request<RequestBody>) -> F,
    ) -> Result<F::Output, NoAnswer> {
        let awaited = request.body().awaited();
        tokio::select! {
            biased;
            sent = send(request) => Ok(sent),
            () = awaited.timed_out(self.0.response_timeout) => Err(NoAnswer::Late),
        }
    }
}

/// Returns the key of the server as an extension of its response.
pub(super) fn with_key(key: Option<ServerKey>) -> Extensions {
    let mut extensions = Extensions::new();
    key.map(|key| extensions.insert(key));
    extensions
}

/// Marks the response with the kind of its connection: pooled or new.
pub(super) fn marked(
    mut response: Response<UpstreamResponseBody>,
    reused: bool,
) -> Response<UpstreamResponseBody> {
    let connection = if reused { ConnectionReuse::Pooled } else { ConnectionReuse::New };
    response.extensions_mut().insert(connection);
    response
}

pub(super) fn unsent_request(
    mut error: TrySendError<Request<RequestBody>>,
) -> Result<Box<Request<RequestBody>>, NoAnswer> {
    match error.take_message() {
        Some(request) => Ok(Box::new(request)),
        None => Err(NoAnswer::Broken(error.into_error())),
    }
}

/// Copies the request for a retry; `None` if it has a body that is not kept.
fn copy_of(request: &Request<RequestBody>) -> Option<Box<Request<RequestBody>>> {
    let body = request.body().copy()?;
    let mut copy = Request::new(body);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(Box::new(copy))
}

/// Returns whether the server did not process the request (RFC 9113 section 8.7). Either the server closed the connection after an
/// earlier stream, for example at its limit of requests, or it refused the stream.
fn is_unprocessed(error: &hyper::Error) -> bool {
    let Some(error) = error.source().and_then(|source| source.downcast_ref::<h2::Error>()) else {
        return false;
    };
    let ended = error.is_go_away() && error.reason() == Some(Reason::NO_ERROR);
    let refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
    error.is_remote() && (ended || refused)
}

/// Returns whether the connection belongs, or soon belongs, to a single user. NTLM, also within Negotiate, authenticates the
/// connection rather than requests (RFC 4559 section 6).
fn authenticates_connection(values: hyper::header::GetAll<'_, HeaderValue>) -> bool {
    let is = |value: &HeaderValue, scheme: &[u8]| {
        value.as_bytes().get(..scheme.len()).is_some_and(|begins| begins.eq_ignore_ascii_case(scheme))
    };
    values.iter().any(|value| is(value, b"ntlm") || is(value, b"negotiate"))
}
