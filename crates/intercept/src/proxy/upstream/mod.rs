//! Upstreams: connections that are kept for the next request, bounded in all, for each host, and in time.

mod body;
mod connect;
mod idle;

pub(super) use body::Relayed;
pub(super) use connect::NoConnection;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::{Request, Response};
use outbound::Deadline;
use outbound::resolve::Resolver;
use parking_lot::Mutex;
use rustls::RootCertStore;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::Options;
use super::metrics::ProxyMetrics;
use super::target::{Origin, Target};
use crate::doors::Doors;
use body::GiveBack;
use connect::{Dialler, Place};
use idle::Idle;

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
    Http1(http1::SendRequest<Incoming>),
    Http2(http2::SendRequest<Incoming>),
}

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
        own: SocketAddr,
        resolver: Resolver,
        roots: RootCertStore,
        doors: Doors,
        metrics: ProxyMetrics,
    ) -> Result<Self, rustls::Error> {
        let places = Arc::new(Semaphore::new(options.upstream_connections_max));
        let dialler = Dialler::new(resolver, roots, own, places, options.upstream_per_host_max, doors)?;
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
        mut request: Request<Incoming>,
        prepare: impl Fn(&mut Request<Incoming>, bool),
    ) -> Result<Response<Relayed>, NoAnswer> {
        loop {
            let kept = self.take(origin);
            let reused = kept.is_some();
            let sender = match kept {
                Some(sender) => sender,
                None => self.connect(origin).await?,
            };
            self.0.metrics.upstream_request(reused);
            prepare(&mut request, matches!(sender, Sender::Http2(_)));
            match self.send_on(origin, sender, request).await? {
                Ok(response) => return Ok(response),
                Err(unsent) if reused => request = *unsent,
                Err(_) => return Err(NoAnswer::Connection(NoConnection::ClosedAtOnce)),
            }
        }
    }

    fn doors(&self) -> &Doors {
        self.0.dialler.doors()
    }

    /// Octets to `target`, and their place.
    pub(super) async fn tcp(&self, target: &Target) -> Result<(TcpStream, Place), NoConnection> {
        self.0.dialler.tcp(target, Deadline::within(self.0.connect_timeout)).await
    }

    /// One that is ready; those that have ended meanwhile are dropped.
    fn take(&self, origin: &Arc<Origin>) -> Option<Sender> {
        loop {
            let kept = self.0.idle.lock().take(origin)?;
            match kept {
                Sender::Http1(sender) => {
                    if sender.is_ready() {
                        return Some(Sender::Http1(sender));
                    }
                }
                Sender::Http2(sender) => {
                    if !sender.is_closed() {
                        self.keep(origin, Sender::Http2(sender.clone()));
                        return Some(Sender::Http2(sender));
                    }
                }
            }
        }
    }

    async fn connect(&self, origin: &Arc<Origin>) -> Result<Sender, NoConnection> {
        let deadline = Deadline::within(self.0.connect_timeout);
        if !self.0.dialler.has_place() {
            let oldest = self.0.idle.lock().take_oldest();
            drop(oldest);
        }
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
        request: Request<Incoming>,
    ) -> Result<Result<Response<Relayed>, Box<Request<Incoming>>>, NoAnswer> {
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
            Ok(response) => Ok(Ok(response.map(|body| Relayed::new(body, back, self.0.idle_body)))),
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

fn unsent_or_broken(mut error: TrySendError<Request<Incoming>>) -> Result<Box<Request<Incoming>>, NoAnswer> {
    match error.take_message() {
        Some(request) => Ok(Box::new(request)),
        None => Err(NoAnswer::Broken(error.into_error())),
    }
}
