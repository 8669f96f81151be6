//! Upstreams: connections that are kept for the next request, bounded in all, for each host, and in time.

mod body;
mod connect;
mod idle;
mod parent;
mod placed;
mod policy;
mod shared;
mod single;
mod websocket;

pub use body::{Relayed, TrailerFilter};
pub use connect::NoConnection;
pub use parent::NoParent;
pub use parent::{BadParent, Parent};
pub use policy::{UpstreamPolicies, UpstreamPolicy, UpstreamWay};

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::{TrySendError, http1};
use hyper::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Request, Response, StatusCode};
use outbound::Deadline;
use outbound::resolve::Resolver;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::target::{Origin, Target};
use crate::doors::Doors;
use crate::host::LeafName;
use crate::request_body::RequestBody;
use body::GiveBack;
use connect::{Dialler, Place};
use idle::Idle;
use parent::Link;
use policy::Policies;
use shared::{Http2, Stream};
use single::{HTTP1_ORIGINS_MAX, Making};
use websocket::{Http2Alone, is_websocket};

/// Kept connections that a request is tried on before a new one is made for it.
const KEPT_TRIES: usize = 3;
/// Between two looks for connections that have waited too long.
const SWEEP: Duration = Duration::from_secs(1);

/// What bounds a pool, and how others are reached.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// What differs for certain upstreams.
    pub policies: UpstreamPolicies,
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
    /// That had been kept.
    pub kept: Counter,
    /// Made for them.
    pub made: Counter,
}

impl Reuse {
    fn request(&self, reused: bool) {
        if reused {
            self.kept.inc()
        } else {
            self.made.inc()
        };
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// One for all who have waited for the same connection.
    #[error(transparent)]
    Connection(#[from] Arc<NoConnection>),
    #[error("the upstream did not answer in its time")]
    Late,
    #[error("the upstream broke off: {0}")]
    Broken(hyper::Error),
}

/// What requests are sent on.
enum Sender {
    Http1(http1::SendRequest<RequestBody>),
    Http2(Http2),
}

/// A connection for one request.
struct Ready {
    sender: Sender,
    /// Its place on one that others share.
    stream: Option<Stream>,
    /// Whether it was there, or made for another.
    kept: bool,
}

/// Of an answer: whether its connection had been kept.
#[derive(Clone, Copy, Debug)]
pub struct Kept(pub bool);

/// A server that was spoken to before there was a request for it.
pub struct Introduced {
    /// What it showed.
    pub certificate: Option<CertificateDer<'static>>,
    /// Whether it speaks HTTP/2.
    pub http2: bool,
}

/// All of them. Cheap to clone.
#[derive(Clone)]
pub struct Upstreams(Arc<Inner>);

struct Inner {
    dialler: Dialler,
    idle: Mutex<Idle>,
    /// Whether any connection may wait for a request.
    keeps: bool,
    making: Making,
    http2_alone: Http2Alone,
    connect_timeout: Duration,
    response_timeout: Duration,
    idle_body: Duration,
    reuse: Reuse,
}

impl Upstreams {
    pub fn new(
        options: &PoolOptions,
        own: Vec<SocketAddr>,
        resolver: Resolver,
        roots: RootCertStore,
        doors: Doors,
        reuse: Reuse,
    ) -> Result<Self, rustls::Error> {
        let places = Arc::new(Semaphore::new(options.connections_max));
        let dialler = Dialler::new(
            resolver,
            Policies::new(&options.policies, roots)?,
            own,
            places,
            options.per_host_max,
            doors,
        );
        let idle = Idle::new(options.idle_max, options.idle_life);
        Ok(Self(Arc::new(Inner {
            dialler,
            idle: Mutex::new(idle),
            keeps: options.idle_max > 0,
            making: Making::with_entries(HTTP1_ORIGINS_MAX),
            http2_alone: websocket::http2_alone(),
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
            let gone = self.0.idle.lock().take_old();
            drop(gone);
        }
        let all = self.0.idle.lock().take_all();
        drop(all);
    }

    /// Asks `origin`. A request of which nothing was sent is sent again on another connection.
    pub async fn send(
        &self,
        origin: &Arc<Origin>,
        mut request: Request<RequestBody>,
        prepare: impl Fn(&mut Request<RequestBody>, bool),
    ) -> Result<Response<Relayed>, NoAnswer> {
        let is_websocket = is_websocket(&request);
        if is_websocket && (origin.is_http2_alone() || self.0.http2_alone.contains_key(origin)) {
            return Box::pin(self.send_by_connect(origin, request, prepare)).await;
        }
        for tries in 0.. {
            let kept = if tries < KEPT_TRIES { self.take(origin) } else { None };
            let ready = match kept {
                Some(ready) => ready,
                // Boxed: most requests go out on a kept one, and each carries what it may await.
                None if tries < KEPT_TRIES => match Box::pin(self.connection(origin)).await {
                    Err(error) if is_websocket && error.wants_another_protocol() => {
                        self.0.http2_alone.insert(Arc::clone(origin), ());
                        return Box::pin(self.send_by_connect(origin, request, prepare)).await;
                    }
                    made => made?,
                },
                None => Box::pin(self.connect(origin)).await.map_err(Arc::new)?,
            };
            let reused = ready.kept;
            self.0.reuse.request(reused);
            prepare(&mut request, matches!(ready.sender, Sender::Http2(_)));
            let parent = self.0.dialler.asked_by_request(origin);
            if let Some(parent) = parent {
                parent.address(&mut request, &origin.target);
            }
            match self.send_on(origin, ready, request).await? {
                // It is we who are asked, not our client.
                Ok(response) if response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                    return match parent {
                        Some(parent) => Err(refused(parent, response.status())),
                        None => Ok(marked(response, reused)),
                    };
                }
                Ok(response) => return Ok(marked(response, reused)),
                Err(unsent) if reused => request = *unsent,
                Err(_) => break,
            }
        }
        Err(NoAnswer::Connection(Arc::new(NoConnection::ClosedAtOnce)))
    }

    /// Whether it is known that nobody stands between when `origin` is spoken to.
    pub fn verifies(&self, origin: &Origin) -> bool {
        origin.server.is_some() && self.0.dialler.verifies(origin)
    }

    /// As many connections to a host from now on.
    pub fn limit_per_host(&self, most: usize) {
        self.0.dialler.limit_per_host(most);
    }

    /// Whether the proxy itself is at the other end of a connection that was accepted here.
    pub fn made(&self, from: SocketAddr, to: SocketAddr) -> bool {
        self.0.dialler.made(from, to)
    }

    /// Whether both names are believed and reached alike.
    pub fn treats_alike(&self, one: &LeafName, other: &LeafName) -> bool {
        self.0.dialler.treats_alike(one, other)
    }

    /// Makes a connection to `origin` as `server`, with HTTP/2 where both say so. It is kept for the first request of a client who is
    /// told to speak as the server does.
    pub async fn introduce(&self, origin: &Origin, server: &LeafName) -> Result<Introduced, NoConnection> {
        let deadline = Deadline::within(self.0.connect_timeout);
        self.make_room();
        let (mut sender, certificate) = self.0.dialler.connect_by_tls(origin, server, deadline).await?;
        if let Sender::Http1(sender) = &mut sender {
            // One that is kept can be used at once.
            let ready = tokio::time::timeout(deadline.remaining(), sender.ready()).await;
            ready.map_err(|_| NoConnection::Late)?.map_err(NoConnection::Http)?;
        }
        let http2 = matches!(sender, Sender::Http2(_));
        self.keep(&Arc::new(Origin { http2, ..origin.clone() }), sender);
        Ok(Introduced { certificate, http2 })
    }

    fn doors(&self) -> &Doors {
        self.0.dialler.doors()
    }

    /// Octets to `target`, by the way that `name` has, and their place; `may_be_here` as in [`Origin`].
    pub async fn link(
        &self,
        target: &Target,
        name: &LeafName,
        may_be_here: bool,
    ) -> Result<(Link, Place), NoConnection> {
        self.make_room();
        self.0.dialler.link(target, name, may_be_here, Deadline::within(self.0.connect_timeout)).await
    }

    /// One that is ready; those that have ended meanwhile are dropped.
    fn take(&self, origin: &Arc<Origin>) -> Option<Ready> {
        loop {
            let (sender, stream) = self.0.idle.lock().take(origin)?;
            match &sender {
                Sender::Http1(sender) if !sender.is_ready() => {}
                _ => return Some(Ready { sender, stream, kept: true }),
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

    /// A new one, which others may share from now on.
    async fn connect(&self, origin: &Arc<Origin>) -> Result<Ready, NoConnection> {
        let deadline = Deadline::within(self.0.connect_timeout);
        self.make_room();
        let sender = self.0.dialler.connect(origin, deadline).await?;
        let mut stream = None;
        if let Sender::Http2(shared) = &sender {
            stream = Some(shared.claim_first());
            self.keep(origin, Sender::Http2(shared.clone()));
        }
        Ok(Ready { sender, stream, kept: false })
    }

    async fn send_on(
        &self,
        origin: &Arc<Origin>,
        ready: Ready,
        request: Request<RequestBody>,
    ) -> Result<Result<Response<Relayed>, Box<Request<RequestBody>>>, NoAnswer> {
        let is_of_one = authenticates_connection(request.headers().get_all(AUTHORIZATION));
        let Ready { sender, stream, .. } = ready;
        let (sent, back) = match sender {
            Sender::Http1(mut sender) => {
                let sent = self.in_time(request, |request| sender.try_send_request(request)).await;
                (sent, Some(GiveBack { pool: self.clone(), origin: Arc::clone(origin), sender }))
            }
            Sender::Http2(Http2 { mut sender, .. }) => {
                (self.in_time(request, |request| sender.try_send_request(request)).await, None)
            }
        };
        match sent? {
            Ok(response) => {
                let asked_for = authenticates_connection(response.headers().get_all(WWW_AUTHENTICATE));
                let back = back.filter(|_| !is_of_one && !asked_for);
                Ok(Ok(response.map(|body| Relayed::new(body, back, stream, self.0.idle_body))))
            }
            Err(error) => unsent_or_broken(error).map(Err),
        }
    }

    /// What `send` comes to, unless the upstream takes too long over it.
    async fn in_time<F: Future>(
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

    /// For the next request.
    fn keep(&self, origin: &Arc<Origin>, sender: Sender) {
        let excess = self.0.idle.lock().put(origin, sender);
        // Closed outside of the lock.
        drop(excess);
    }
}

fn refused(parent: &Parent, status: StatusCode) -> NoAnswer {
    NoAnswer::Connection(Arc::new(NoConnection::by(parent, NoParent::Refused(status))))
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

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::net::TcpListener;

    use super::super::asked::Asked;
    use super::super::fields::{address, clean_trailers};
    use super::super::stall::Upload;
    use super::super::unanswered::reason_of;
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn pool(reuse: &Reuse) -> Upstreams {
        let options = PoolOptions {
            policies: UpstreamPolicies::default(),
            connections_max: 4,
            per_host_max: 4,
            idle_max: 4,
            idle_life: LONG,
            connect_timeout: LONG,
            response_timeout: LONG,
            idle: LONG,
        };
        let (resolver, roots) = (Resolver::system().unwrap(), RootCertStore::empty());
        Upstreams::new(&options, Vec::new(), resolver, roots, Doors::default(), reuse.clone()).unwrap()
    }

    fn origin(listener: &TcpListener, http2: bool) -> Arc<Origin> {
        let port = listener.local_addr().unwrap().port();
        let target = Target { name: LeafName::parse("127.0.0.1").unwrap(), port, redirected: false };
        Arc::new(Origin { target, server: None, http2, in_full: false, may_be_here: true })
    }

    async fn asked(pool: &Upstreams, origin: &Arc<Origin>) -> Result<(bool, String), NoAnswer> {
        let (upload, _) = Upload::within(LONG);
        let body = RequestBody::new(Asked::nothing(), None, upload, clean_trailers);
        let path = format!("/{}", "long".repeat(64));
        let request = Request::get(path).body(body).unwrap();
        let host = HeaderValue::from_static("a.example");
        let prepare =
            |request: &mut Request<RequestBody>, http2: bool| address(request, origin, &host, http2);
        let response = pool.send(origin, request, prepare).await?;
        let kept = response.extensions().get::<Kept>().unwrap().0;
        let body = response.into_body().collect().await.unwrap().to_bytes();
        Ok((kept, String::from_utf8(body.to_vec()).unwrap()))
    }

    /// A connection that is kept, and its other end.
    async fn keep_one(pool: &Upstreams, origin: &Arc<Origin>) -> DuplexStream {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (mut sender, connection) = http1::handshake(TokioIo::new(near)).await.unwrap();
        tokio::spawn(connection);
        sender.ready().await.unwrap();
        pool.keep(origin, Sender::Http1(sender));
        far
    }

    /// Has whoever connects first told `answer`, once so many octets have come.
    fn answers(listener: TcpListener, octets: usize, answer: &'static [u8]) {
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_exact(&mut vec![0; octets]).await.unwrap();
            stream.write_all(answer).await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
        });
    }

    #[tokio::test]
    async fn what_was_not_sent_goes_out_on_another_connection() {
        let (listener, reuse) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), Reuse::default());
        let (pool, origin) = (pool(&reuse), origin(&listener, false));
        answers(listener, 1, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        let far = keep_one(&pool, &origin).await;
        // Its task has no turn before the request is with it: nobody knows yet that it has ended.
        drop(far);
        let (kept, said) = asked(&pool, &origin).await.unwrap();
        assert_eq!((kept, said.as_str()), (false, "ok"));
        assert_eq!(
            (reuse.kept.get(), reuse.made.get()),
            (1, 1),
            "it had been tried on the one that was kept"
        );
    }

    #[tokio::test]
    async fn what_may_have_been_heard_is_not_said_again() {
        let (listener, reuse) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), Reuse::default());
        let (pool, origin) = (pool(&reuse), origin(&listener, false));
        answers(listener, 1, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        let mut far = keep_one(&pool, &origin).await;
        tokio::spawn(async move { far.read_u8().await.unwrap() });
        let error = asked(&pool, &origin).await.unwrap_err();
        assert!(matches!(error, NoAnswer::Broken(_)), "{error}");
        assert_eq!((reuse.kept.get(), reuse.made.get()), (1, 0));
        assert_eq!(reason_of(&error), (StatusCode::BAD_GATEWAY, "http_response_incomplete"));
    }

    #[tokio::test]
    async fn who_speaks_another_protocol_is_told_from_who_breaks_off() {
        const ALERT: &[u8] = &[21, 3, 1, 0, 2, 2, 10];
        for (http2, answer) in [
            (true, &b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"[..]),
            (false, ALERT),
            (true, ALERT),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let (pool, origin) = (pool(&Reuse::default()), origin(&listener, http2));
            // The request's head is among them: what comes before it, by HTTP/2 too, is shorter.
            answers(listener, 200, answer);
            let error = asked(&pool, &origin).await.unwrap_err();
            let wanted = (StatusCode::BAD_GATEWAY, "http_protocol_error");
            assert_eq!(reason_of(&error), wanted, "{http2}: {error:?}");
        }
    }
}
