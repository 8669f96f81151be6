//! Connections to upstreams: made where none is idle, and kept for the next request.

use std::error::Error as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use h2::Reason;
use hyper::client::conn::TrySendError;
use hyper::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Request, Response};
use outbound::Deadline;
use outbound::guard::Guard;
use outbound::resolve::Resolver;
use prometheus_client::metrics::counter::Counter;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;
use x509::HostOrIp;

use super::super::access_log::UpstreamConnection;
use super::super::target::{Origin, Target};
use super::address_rule::AddressRule;
use super::body::{GiveBack, Relayed};
use super::connect::Dialler;
use super::error::{NoAnswer, NoConnection};
use super::http2::Http2;
use super::http2_alone::{Http2Alone, http2_alone};
use super::idle::Pool;
use super::making::{HTTP1_ORIGINS_MAX, Making};
use super::parent::Link;
use super::policy::{Policies, UpstreamPolicies};
use super::sender::{Ready, Sender};
use super::slot::{Slot, Slots};
use crate::request_body::RequestBody;
use inbound::ServiceTasks;

/// Between two looks for connections that have waited too long.
const SWEEP: Duration = Duration::from_secs(1);

/// What bounds a pool, and how others are reached.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// What differs for certain upstreams.
    pub policies: UpstreamPolicies,
    /// Which addresses may be connected to at all.
    pub guard: Guard,
    /// Which of them may be connected to for a name.
    pub address_rule: AddressRule,
    /// Connections at once, those that wait for a request included.
    pub connections_max: usize,
    /// Of those, to one host and port.
    pub per_host_max: usize,
    /// Of all, such as wait for the next request.
    pub idle_max: usize,
    /// How long one waits.
    pub idle_life: Duration,
    /// For an address, connection and handshake.
    pub connect_timeout: Duration,
    /// For the head of an answer, from when the request was sent, or while nothing of the request is taken.
    pub response_timeout: Duration,
    /// A body of which nothing came, before it is cut off.
    pub idle: Duration,
}

/// Counts requests by the connections they went out on.
#[derive(Clone, Debug, Default)]
pub struct Reuse {
    /// Requests over a pooled connection.
    pub kept: Counter,
    /// Made for them.
    pub made: Counter,
}

impl Reuse {
    pub(super) fn request(&self, reused: bool) {
        if reused {
            self.kept.inc()
        } else {
            self.made.inc()
        };
    }
}

/// A server that was spoken to before there was a request for it.
pub struct ProbedServer {
    /// The upstream's certificate.
    pub certificate: Option<CertificateDer<'static>>,
    /// Whether the connection uses HTTP/2.
    pub http2: bool,
}

/// All of them. Cheap to clone.
#[derive(Clone)]
pub struct Upstreams(pub(super) Arc<PoolState>);

pub(super) struct PoolState {
    pub(super) dialler: Dialler,
    pub(super) pool: Arc<Pool>,
    slots: Arc<Slots>,
    /// Whether any connection may wait for a request.
    pub(super) keeps: bool,
    pub(super) making: Making,
    pub(super) http2_alone: Http2Alone,
    pub(super) connect_timeout: Duration,
    response_timeout: Duration,
    pub(super) idle_body: Duration,
    pub(super) reuse: Reuse,
}

impl Upstreams {
    /// `own` are addresses that this process listens on, which are never connected to.
    ///
    /// # Errors
    /// When the TLS library refuses a root or a client certificate.
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
        Ok(Self(Arc::new(PoolState {
            dialler,
            pool: Arc::new(pool),
            slots,
            keeps: options.idle_max > 0,
            making: Making::with_entries(HTTP1_ORIGINS_MAX),
            http2_alone: http2_alone(),
            connect_timeout: options.connect_timeout,
            response_timeout: options.response_timeout,
            idle_body: options.idle,
            reuse,
        })))
    }

    /// Closes what has waited too long, until `stop`.
    pub async fn sweep(self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(SWEEP) => {}
            }
            self.0.pool.close_old();
        }
        self.0.pool.close_all();
    }

    /// Whether connections to `origin` are authenticated end to end.
    pub fn verifies(&self, origin: &Origin) -> bool {
        origin.server.is_some() && self.0.dialler.verifies(origin)
    }

    /// As many connections to a host from now on.
    pub fn limit_per_host(&self, most: usize) {
        self.0.slots.limit_per_host(most);
    }

    /// Whether the proxy itself is at the other end of a connection that was accepted here.
    pub fn made(&self, from: SocketAddr, to: SocketAddr) -> bool {
        self.0.slots.made(from, to)
    }

    /// The addresses of `name` now; none where they are not known in time, or are for a parent to look up.
    pub async fn addresses(&self, name: &HostOrIp) -> Vec<IpAddr> {
        if !self.0.dialler.is_direct(name) {
            return Vec::new();
        }
        let found = self.0.dialler.addresses(name, Deadline::within(self.0.connect_timeout)).await;
        found.unwrap_or_default()
    }

    /// Lets no further request use the connections that there are: other addresses may be allowed now.
    pub fn retire(&self) {
        self.0.pool.close_all();
    }

    /// Whether `address` is one of the addresses of `name` now. False where that is not known in time.
    pub async fn leads_to(&self, name: &HostOrIp, address: &HostOrIp) -> bool {
        let HostOrIp::Ip(address) = address else { return false };
        let found = self.0.dialler.addresses(name, Deadline::within(self.0.connect_timeout)).await;
        found.is_ok_and(|found| found.iter().any(|one| one.to_canonical() == *address))
    }

    /// Whether both names are believed and reached alike.
    pub fn treats_alike(&self, one: &HostOrIp, other: &HostOrIp) -> bool {
        self.0.dialler.treats_alike(one, other)
    }

    /// Makes a connection to `origin` as `server`, with HTTP/2 where both say so. It is kept for the first request of a client who is
    /// told to speak as the server does.
    pub async fn probe(&self, origin: &Origin, server: &HostOrIp) -> Result<ProbedServer, NoConnection> {
        let deadline = Deadline::within(self.0.connect_timeout);
        self.0.pool.make_room();
        let (mut sender, certificate) = self.0.dialler.connect_by_tls(origin, server, deadline).await?;
        if let Sender::Http1(sender) = &mut sender {
            // One that is kept can be used at once.
            let ready = tokio::time::timeout(deadline.remaining(), sender.ready()).await;
            ready.map_err(|_| NoConnection::Late)?.map_err(NoConnection::Http)?;
        }
        let http2 = matches!(sender, Sender::Http2(_));
        self.0.pool.keep(&Arc::new(Origin { http2, ..origin.clone() }), sender);
        Ok(ProbedServer { certificate, http2 })
    }

    /// Bytes to `target`, by the way that `name` has, and their slot; `may_be_here` as in [`Origin`]. Where it is dialled, `is_meant`
    /// says which of its addresses may be.
    pub async fn link(
        &self,
        target: &Target,
        name: &HostOrIp,
        may_be_here: bool,
        is_meant: &(dyn Fn(IpAddr) -> bool + Sync),
    ) -> Result<(Link, Slot), NoConnection> {
        self.0.pool.make_room();
        let deadline = Deadline::within(self.0.connect_timeout);
        self.0.dialler.link(target, name, may_be_here, is_meant, deadline).await
    }

    /// A new one, which others may share from now on.
    pub(super) async fn connect(&self, origin: &Arc<Origin>) -> Result<Ready, NoConnection> {
        let deadline = Deadline::within(self.0.connect_timeout);
        self.0.pool.make_room();
        let sender = self.0.dialler.connect(origin, deadline).await?;
        let mut stream = None;
        if let Sender::Http2(shared) = &sender {
            stream = Some(shared.claim_first());
            self.0.pool.keep(origin, Sender::Http2(shared.clone()));
        }
        Ok(Ready { sender, stream, kept: false })
    }

    pub(super) async fn send_on(
        &self,
        origin: &Arc<Origin>,
        ready: Ready,
        request: Request<RequestBody>,
    ) -> Result<Result<Response<Relayed>, Box<Request<RequestBody>>>, NoAnswer> {
        let is_of_one = authenticates_connection(request.headers().get_all(AUTHORIZATION));
        let Ready { sender, stream, .. } = ready;
        let mut copy = None;
        let (sent, back) = match sender {
            Sender::Http1(mut sender) => {
                let sent = self.in_time(request, |request| sender.try_send_request(request)).await;
                (sent, Some(GiveBack { pool: Arc::clone(&self.0.pool), origin: Arc::clone(origin), sender }))
            }
            Sender::Http2(Http2 { mut sender, .. }) => {
                copy = copy_without_body(&request);
                (self.in_time(request, |request| sender.try_send_request(request)).await, None)
            }
        };
        match sent? {
            Ok(response) => {
                let asked_for = authenticates_connection(response.headers().get_all(WWW_AUTHENTICATE));
                let back = back.filter(|_| !is_of_one && !asked_for);
                Ok(Ok(response.map(|body| Relayed::new(body, back, stream, self.0.idle_body))))
            }
            Err(error) => match copy {
                Some(copy) if is_unprocessed(error.error()) => Ok(Err(copy)),
                _ => unsent_or_broken(error).map(Err),
            },
        }
    }

    /// The result of `send`, or a timeout.
    pub(super) async fn in_time<F: Future>(
        &self,
        request: Request<RequestBody>,
        send: impl FnOnce(Request<RequestBody>) -> F,
    ) -> Result<F::Output, NoAnswer> {
        let awaited = request.body().awaited();
        tokio::select! {
            biased;
            sent = send(request) => Ok(sent),
            () = awaited.late(self.0.response_timeout) => Err(NoAnswer::Late),
        }
    }
}

/// With whether its connection had been kept.
pub(super) fn marked(mut response: Response<Relayed>, reused: bool) -> Response<Relayed> {
    let connection = if reused { UpstreamConnection::Kept } else { UpstreamConnection::New };
    response.extensions_mut().insert(connection);
    response
}

pub(super) fn unsent_or_broken(
    mut error: TrySendError<Request<RequestBody>>,
) -> Result<Box<Request<RequestBody>>, NoAnswer> {
    match error.take_message() {
        Some(request) => Ok(Box::new(request)),
        None => Err(NoAnswer::Broken(error.into_error())),
    }
}

/// The same request once more, where it has no body.
fn copy_without_body(request: &Request<RequestBody>) -> Option<Box<Request<RequestBody>>> {
    let body = request.body().empty_copy()?;
    let mut copy = Request::new(body);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(Box::new(copy))
}

/// Whether the server said that it did nothing with the request (RFC 9113 section 8.7): it ended the connection after an earlier
/// stream, as servers do after some number of requests, or refused the stream.
fn is_unprocessed(error: &hyper::Error) -> bool {
    let Some(error) = error.source().and_then(|source| source.downcast_ref::<h2::Error>()) else {
        return false;
    };
    let ended = error.is_go_away() && error.reason() == Some(Reason::NO_ERROR);
    let refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
    error.is_remote() && (ended || refused)
}

/// Whether a connection is, or is about to be, one user's alone: NTLM authenticates it rather than requests, and so does
/// Negotiate by it (RFC 4559 section 6).
fn authenticates_connection(values: hyper::header::GetAll<'_, HeaderValue>) -> bool {
    let is = |value: &HeaderValue, scheme: &[u8]| {
        value.as_bytes().get(..scheme.len()).is_some_and(|begins| begins.eq_ignore_ascii_case(scheme))
    };
    values.iter().any(|value| is(value, b"ntlm") || is(value, b"negotiate"))
}
