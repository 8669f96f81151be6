//! Upstreams: connections that are kept for the next request, bounded in all, for each host, and in time.

mod body;
mod connect;
mod idle;
mod parent;
mod policy;

pub(super) use body::Relayed;
pub(super) use connect::NoConnection;
pub(super) use parent::NoParent;
pub use parent::{BadParent, Parent};
pub use policy::{UpstreamPolicies, UpstreamPolicy, UpstreamWay};

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::{TrySendError, http1, http2};
use hyper::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Request, Response, StatusCode};
use outbound::Deadline;
use outbound::resolve::Resolver;
use parking_lot::Mutex;
use rustls::RootCertStore;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::Options;
use super::metrics::ProxyMetrics;
use super::requests::RequestBody;
use super::target::{Origin, Target};
use crate::doors::Doors;
use crate::mint::LeafName;
use body::GiveBack;
use connect::{Dialler, Place};
use idle::Idle;
use parent::Link;
use policy::Policies;

/// Kept connections that a request is tried on before a new one is made for it.
const KEPT_TRIES: usize = 3;
/// Between two looks for connections that have waited too long.
const SWEEP: Duration = Duration::from_secs(1);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoAnswer {
    #[error(transparent)]
    Connection(#[from] NoConnection),
    #[error("the upstream did not answer in its time")]
    Late,
    #[error("the upstream broke off: {0}")]
    Broken(hyper::Error),
}

/// What requests are sent on.
pub(super) enum Sender {
    Http1(http1::SendRequest<RequestBody>),
    Http2(http2::SendRequest<RequestBody>),
}

/// Of an answer: whether its connection had been kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept(pub(super) bool);

/// All of them. Cheap to clone.
#[derive(Clone)]
pub(super) struct Upstreams(Arc<Inner>);

struct Inner {
    dialler: Dialler,
    idle: Mutex<Idle>,
    connect_timeout: Duration,
    response_timeout: Duration,
    idle_body: Duration,
    metrics: ProxyMetrics,
}

impl Upstreams {
    pub(super) fn new(
        options: &Options,
        own: Vec<SocketAddr>,
        resolver: Resolver,
        roots: RootCertStore,
        doors: Doors,
        metrics: ProxyMetrics,
    ) -> Result<Self, rustls::Error> {
        let places = Arc::new(Semaphore::new(options.upstream_connections_max));
        let dialler = Dialler::new(
            resolver,
            Policies::new(&options.upstreams, roots)?,
            own,
            places,
            options.upstream_per_host_max,
            doors,
        );
        let idle = Idle::new(options.upstream_idle_max, options.upstream_idle);
        Ok(Self(Arc::new(Inner {
            dialler,
            idle: Mutex::new(idle),
            connect_timeout: options.connect_timeout,
            response_timeout: options.response_timeout,
            idle_body: options.idle,
            metrics,
        })))
    }

    /// Closes what has waited too long, until `stop`.
    pub(super) async fn sweep(self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(SWEEP) => {}
            }
            let gone = self.0.idle.lock().take_old();
            drop(gone);
        }
        let all = self.0.idle.lock().take_all();
        drop(all);
    }

    /// Asks `origin`. A request of which nothing was sent is sent again on another connection.
    pub(super) async fn send(
        &self,
        origin: &Arc<Origin>,
        mut request: Request<RequestBody>,
        prepare: impl Fn(&mut Request<RequestBody>, bool),
    ) -> Result<Response<Relayed>, NoAnswer> {
        for tries in 0.. {
            let kept = if tries < KEPT_TRIES { self.take(origin) } else { None };
            let reused = kept.is_some();
            let sender = match kept {
                Some(sender) => sender,
                None => self.connect(origin).await?,
            };
            self.0.metrics.upstream_request(reused);
            prepare(&mut request, matches!(sender, Sender::Http2(_)));
            let parent = self.0.dialler.asked_by_request(origin);
            if let Some(parent) = parent {
                parent.address(&mut request, &origin.target);
            }
            match self.send_on(origin, sender, request).await? {
                // It is we who are asked, not our client.
                Ok(response) if response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                    return match parent {
                        Some(parent) => {
                            Err(NoConnection::by(parent, NoParent::Refused(response.status())).into())
                        }
                        None => Ok(marked(response, reused)),
                    };
                }
                Ok(response) => return Ok(marked(response, reused)),
                Err(unsent) if reused => request = *unsent,
                Err(_) => break,
            }
        }
        Err(NoAnswer::Connection(NoConnection::ClosedAtOnce))
    }

    /// Whether it is known that nobody stands between when `origin` is spoken to.
    pub(super) fn verifies(&self, origin: &Origin) -> bool {
        origin.server.is_some() && self.0.dialler.verifies(origin)
    }

    fn doors(&self) -> &Doors {
        self.0.dialler.doors()
    }

    /// Octets to `target`, by the way that `name` has, and their place; `may_be_here` as in [`Origin`].
    pub(super) async fn link(
        &self,
        target: &Target,
        name: &LeafName,
        may_be_here: bool,
    ) -> Result<(Link, Place), NoConnection> {
        self.make_room();
        self.0.dialler.link(target, name, may_be_here, Deadline::within(self.0.connect_timeout)).await
    }

    /// One that is ready; those that have ended meanwhile are dropped.
    fn take(&self, origin: &Arc<Origin>) -> Option<Sender> {
        loop {
            let kept = self.0.idle.lock().take(origin)?;
            match &kept {
                Sender::Http1(sender) if sender.is_ready() => return Some(kept),
                Sender::Http2(sender) if !sender.is_closed() => return Some(kept),
                _ => {}
            }
        }
    }

    /// Where there is no place for another connection, the one that waits the longest goes.
    fn make_room(&self) {
        if !self.0.dialler.has_place() {
            let oldest = self.0.idle.lock().take_oldest();
            drop(oldest);
        }
    }

    async fn connect(&self, origin: &Arc<Origin>) -> Result<Sender, NoConnection> {
        let deadline = Deadline::within(self.0.connect_timeout);
        self.make_room();
        let sender = self.0.dialler.connect(origin, deadline).await?;
        if let Sender::Http2(shared) = &sender {
            self.keep(origin, Sender::Http2(shared.clone()));
        }
        Ok(sender)
    }

    async fn send_on(
        &self,
        origin: &Arc<Origin>,
        sender: Sender,
        request: Request<RequestBody>,
    ) -> Result<Result<Response<Relayed>, Box<Request<RequestBody>>>, NoAnswer> {
        let is_of_one = authenticates_connection(request.headers().get_all(AUTHORIZATION));
        let (sent, back) = match sender {
            Sender::Http1(mut sender) => {
                let sent =
                    tokio::time::timeout(self.0.response_timeout, sender.try_send_request(request)).await;
                (sent, Some(GiveBack { pool: self.clone(), origin: Arc::clone(origin), sender }))
            }
            Sender::Http2(mut sender) => {
                (tokio::time::timeout(self.0.response_timeout, sender.try_send_request(request)).await, None)
            }
        };
        match sent.map_err(|_| NoAnswer::Late)? {
            Ok(response) => {
                let asked_for = authenticates_connection(response.headers().get_all(WWW_AUTHENTICATE));
                let back = back.filter(|_| !is_of_one && !asked_for);
                Ok(Ok(response.map(|body| Relayed::new(body, back, self.0.idle_body))))
            }
            Err(error) => unsent_or_broken(error).map(Err),
        }
    }

    /// For the next request.
    fn keep(&self, origin: &Arc<Origin>, sender: Sender) {
        let excess = self.0.idle.lock().put(origin, sender);
        // Closed outside of the lock.
        drop(excess);
    }
}

/// With whether its connection had been kept.
fn marked(mut response: Response<Relayed>, reused: bool) -> Response<Relayed> {
    response.extensions_mut().insert(Kept(reused));
    response
}

fn unsent_or_broken(
    mut error: TrySendError<Request<RequestBody>>,
) -> Result<Box<Request<RequestBody>>, NoAnswer> {
    match error.take_message() {
        Some(request) => Ok(Box::new(request)),
        None => Err(NoAnswer::Broken(error.into_error())),
    }
}

/// Whether a connection is, or is about to be, one user's alone: NTLM authenticates it rather than requests, and so does
/// Negotiate by it (RFC 4559 section 6).
fn authenticates_connection(values: hyper::header::GetAll<'_, HeaderValue>) -> bool {
    let is = |value: &HeaderValue, scheme: &[u8]| {
        value.as_bytes().get(..scheme.len()).is_some_and(|begins| begins.eq_ignore_ascii_case(scheme))
    };
    values.iter().any(|value| is(value, b"ntlm") || is(value, b"negotiate"))
}
