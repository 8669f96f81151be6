//! Permission to mint a leaf. The proxy asks a real HTTP service before any lookup.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, StreamBody};
use http_relay::access_log::AccessLog;
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_LENGTH, LOCATION};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::client::legacy::Client as Http;
use hyper_util::rt::{TokioExecutor, TokioIo};
use keys::Keyring;
use parking_lot::Mutex;
use proxy::certificate_store::{Backend, SecondLevel, SecondLevelOptions};
use proxy::minting::sds::TYPE_URL;
use proxy::minting::sds::proto::DiscoveryRequest;
use proxy::minting::sds::proto::secret_discovery_service_client::SecretDiscoveryServiceClient;
use proxy::permission::{Options, OutagePolicy, Token};
use proxy::tables::{CleanupCounts, LeafLeaseRequest, LeafLookup, NewLeaf};
use store::{Store, StoreError, StoreUrl};
use testbed::until;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tonic::transport::Endpoint;
use uuid::Uuid;

use crate::world::{Client, TIMEOUT, Upstream, World, authority, exchange};

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Response of the permission service.
#[derive(Clone, Debug)]
pub(crate) enum Behaviour {
    Status(u16),
    /// Denies requests that contain this text, and allows others.
    NoTo(&'static str),
    /// Never responds.
    Nothing,
    /// Redirects to another server, which would allow the request.
    Elsewhere(String),
    /// Allows the request, with an endless body.
    Endless,
    /// Allows the request, with a huge `Content-Length` and an endless body.
    Huge,
}

/// A permission service for tests.
#[derive(Clone)]
pub(crate) struct Judge {
    address: SocketAddr,
    behaviour: Arc<Mutex<Behaviour>>,
    /// Received requests: URI and `Authorization` header.
    questions: Arc<Mutex<Vec<(String, Option<String>)>>>,
    connections: Arc<AtomicUsize>,
    /// Number of requests that the proxy cancelled.
    given_up: Arc<AtomicUsize>,
}

/// Counts one cancelled request when it is dropped.
struct Waits(Arc<AtomicUsize>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Judge {
    pub(crate) async fn start_with(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let judge = Self {
            address: listener.local_addr().unwrap(),
            behaviour: Arc::new(Mutex::new(behaviour)),
            questions: Arc::default(),
            connections: Arc::default(),
            given_up: Arc::default(),
        };
        let serving = judge.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                serving.connections.fetch_add(1, SeqCst);
                let judge = serving.clone();
                let answer = service_fn(move |request| {
                    let judge = judge.clone();
                    async move { Ok::<_, Infallible>(judge.answer(&request).await) }
                });
                let http = hyper::server::conn::http1::Builder::new();
                tokio::spawn(http.serve_connection(TokioIo::new(stream), answer));
            }
        });
        judge
    }

    async fn answer(&self, request: &Request<Incoming>) -> Response<Body> {
        let shown = request.headers().get("authorization").map(|value| value.to_str().unwrap().to_owned());
        self.questions.lock().push((request.uri().to_string(), shown));
        let behaviour = self.behaviour.lock().clone();
        let mut response = Response::new(Empty::new().boxed_unsync());
        match behaviour {
            Behaviour::Status(status) => *response.status_mut() = status.try_into().unwrap(),
            Behaviour::NoTo(part) if request.uri().to_string().contains(part) => {
                *response.status_mut() = hyper::StatusCode::FORBIDDEN;
            }
            Behaviour::NoTo(_) => {}
            Behaviour::Nothing => {
                let _waits = Waits(Arc::clone(&self.given_up));
                std::future::pending::<()>().await;
            }
            Behaviour::Elsewhere(place) => {
                *response.status_mut() = hyper::StatusCode::FOUND;
                response.headers_mut().insert(LOCATION, place.parse().unwrap());
            }
            Behaviour::Endless | Behaviour::Huge => {
                let chunk = || Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b'x'; 4_096])));
                let endless = futures_util::stream::repeat_with(chunk);
                *response.body_mut() = StreamBody::new(endless).boxed_unsync();
                if matches!(behaviour, Behaviour::Huge) {
                    response.headers_mut().insert(CONTENT_LENGTH, (1_u64 << 40).into());
                }
            }
        }
        response
    }

    pub(crate) fn options(&self) -> Options {
        let url = format!("http://{}/leaf?for=proxy", self.address);
        // The timeout allows for a slow test machine.
        Options { timeout: TIMEOUT, ..Options::new(url) }
    }

    fn questions(&self) -> usize {
        self.questions.lock().len()
    }

    fn behaviour(&self, behaviour: Behaviour) {
        *self.behaviour.lock() = behaviour;
    }
}

/// Starts a proxy that asks the service of `permission`, in front of `upstream`.
async fn world(upstream: &Upstream, permission: Options) -> World {
    World::new(&upstream.root, |options| options.permission = Some(permission)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_clients_cause_one_permission_request() {
    let upstream = Upstream::start("localhost").await;
    let judge = Judge::start_with(Behaviour::Status(204)).await;
    let permission = Options { token: Some(Token::new("hunter2".into())), ..judge.options() };
    let world = Arc::new(world(&upstream, permission).await);
    let target = format!("localhost:{}", upstream.address.port());
    let clients = (0..100).map(|_| {
        let (world, target) = (Arc::clone(&world), target.clone());
        tokio::spawn(async move {
            let client = Client::fresh(&world.root);
            let mut stream = world.tls(&client, &target, "localhost").await.unwrap();
            exchange(&mut stream, &format!("GET / HTTP/1.1\r\nHost: {target}\r\n\r\n")).await
        })
    });
    for reply in futures_util::future::join_all(clients).await {
        assert!(reply.unwrap().starts_with("HTTP/1.1 200"));
    }
    let questions = judge.questions.lock().clone();
    let (question, shown) = ("/leaf?for=proxy&domain=localhost&client=127.0.0.1", "Bearer hunter2");
    assert_eq!(questions, [(question.to_owned(), Some(shown.to_owned()))]);
    assert_eq!(world.running.store().counts().minted, 1);
    // Another name causes another request on the idle connection. A CONNECT to an address waits for the name.
    let (reply, _stream) = world.connect("other.example:443").await;
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    assert_eq!((judge.questions(), judge.connections.load(SeqCst)), (2, 1));
    let (reply, _stream) = world.connect("127.0.0.1:443").await;
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    assert_eq!(judge.questions(), 2);
}

/// A real store that counts its calls.
struct Watched(Store, Arc<AtomicUsize>);

impl Backend for Watched {
    fn lookup<'a>(&'a self, exchange: LeafLeaseRequest<'a>) -> BoxFuture<'a, Result<LeafLookup, StoreError>> {
        self.1.fetch_add(1, SeqCst);
        Backend::lookup(&self.0, exchange)
    }

    fn put<'a>(&'a self, leaf: NewLeaf<'a>) -> BoxFuture<'a, Result<bool, StoreError>> {
        self.1.fetch_add(1, SeqCst);
        Backend::put(&self.0, leaf)
    }

    fn put_key<'a>(
        &'a self,
        id: &'a str,
        sealed: &'a [u8],
        ends: i64,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.1.fetch_add(1, SeqCst);
        Backend::put_key(&self.0, id, sealed, ends)
    }

    fn release<'a>(&'a self, id: &'a str, holder: Uuid) -> BoxFuture<'a, Result<(), StoreError>> {
        Backend::release(&self.0, id, holder)
    }

    fn tidy(&self, _: Uuid, _: i64, _: Duration, _: u64) -> BoxFuture<'_, Result<CleanupCounts, StoreError>> {
        async { Ok(CleanupCounts::default()) }.boxed()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_names_never_reach_the_second_level_store() {
    let upstream = Upstream::start("localhost").await;
    let judge = Judge::start_with(Behaviour::Status(403)).await;
    let folder = tempfile::tempdir().unwrap();
    let place = Store::open(&StoreUrl::sqlite(folder.path().join("leaves.db"))).await.unwrap();
    let ring = Arc::new(Keyring::ephemeral());
    let trips = Arc::new(AtomicUsize::new(0));
    let watched = Watched(place, Arc::clone(&trips));
    let options = SecondLevelOptions { trip_timeout: TIMEOUT, ..SecondLevelOptions::default() };
    let level = SecondLevel::new(watched, ring, options);
    let log = folder.path().join("access.log");
    let world = World::new(&upstream.root, |options| {
        options.permission = Some(judge.options());
        options.second_level = Some(level);
        options.requests.access_log = Some(AccessLog::File(log.clone()));
    })
    .await;
    for _ in 0..2 {
        let (reply, mut stream) = world.connect("localhost:443").await;
        assert!(reply.starts_with("HTTP/1.1 403") && reply.contains("http_request_denied"), "{reply}");
        let mut page = [0; 45];
        stream.read_exact(&mut page).await.unwrap();
        let page = String::from_utf8_lossy(&page);
        assert!(page.contains("bulla proxy: localhost is not permitted here"), "{page}");
    }
    assert_eq!(judge.questions(), 1, "a no is remembered");
    // The same over SOCKS5.
    let mut stream = world.tcp().await;
    stream.write_all(b"\x05\x01\x00\x05\x01\x00\x03\x09localhost\x01\xbb").await.unwrap();
    let mut reply = [0; 12];
    stream.read_exact(&mut reply).await.unwrap();
    assert_eq!(reply[..4], [5, 0, 5, 2], "not allowed");
    // A name that CONNECT did not contain is denied after the ClientHello, before the handshake.
    let client = Client::fresh(&world.root);
    assert!(world.tls(&client, &upstream.address.to_string(), "localhost").await.is_err());
    assert_eq!((judge.questions(), trips.load(SeqCst), world.running.store().counts().minted), (1, 0, 0));
    // An allowed name is looked up, minted and stored.
    judge.behaviour(Behaviour::Status(200));
    let port = upstream.address.port();
    world.tls(&client, &format!("127.0.0.1:{port}"), "b.localhost").await.unwrap();
    assert_eq!((trips.load(SeqCst), world.running.store().counts().minted), (3, 1));
    assert!(world.running.stop(TIMEOUT).await);
    let lines = std::fs::read_to_string(&log).unwrap();
    let refused = lines.lines().filter(|line| line.contains(r#""reason":"not-permitted""#));
    assert_eq!(refused.clone().count(), 4, "{lines}");
    assert!(refused.clone().all(|line| line.contains(r#""status":403"#)), "{lines}");
}

#[tokio::test(flavor = "multi_thread")]
async fn permission_expires_even_for_a_cached_leaf() {
    let upstream = Upstream::start("localhost").await;
    let judge = Judge::start_with(Behaviour::Status(200)).await;
    let world = world(&upstream, Options { yes_for: Duration::from_millis(1), ..judge.options() }).await;
    let (client, target) = (Client::fresh(&world.root), upstream.address.to_string());
    world.tls(&client, &target, "localhost").await.unwrap();
    judge.behaviour(Behaviour::Status(404));
    let began = Instant::now();
    while world.tls(&client, &target, "localhost").await.is_ok() {
        assert!(began.elapsed() < TIMEOUT, "the yes counts for ever");
    }
    assert_eq!(world.running.store().counts().minted, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_permission_response_denies_or_allows_by_policy() {
    let upstream = Upstream::start("localhost").await;
    let elsewhere = Judge::start_with(Behaviour::Status(200)).await;
    let place = format!("http://{}/", elsewhere.address);
    for behaviour in [
        Behaviour::Nothing,
        Behaviour::Status(500),
        Behaviour::Elsewhere(place),
        Behaviour::Endless,
        Behaviour::Huge,
    ] {
        let judge = Judge::start_with(behaviour.clone()).await;
        let timeout = match behaviour {
            Behaviour::Nothing => Duration::from_secs(2),
            _ => TIMEOUT,
        };
        let options = Options { timeout, ..judge.options() };
        let refusing = world(&upstream, options.clone()).await;
        let (reply, _) = refusing.connect("localhost:443").await;
        assert!(
            reply.starts_with("HTTP/1.1 503") && reply.contains("proxy_internal_error"),
            "{behaviour:?}: {reply}"
        );
        let client = Client::fresh(&refusing.root);
        assert!(
            refusing.tls(&client, &upstream.address.to_string(), "localhost").await.is_err(),
            "{behaviour:?}"
        );
        assert_eq!(refusing.running.store().counts().minted, 0);
        let allowing = world(&upstream, Options { when_away: OutagePolicy::Allow, ..options }).await;
        let (reply, _stream) = allowing.connect("localhost:443").await;
        assert!(reply.starts_with("HTTP/1.1 200"), "{behaviour:?}: {reply}");
        let client = Client::fresh(&allowing.root);
        allowing.tls(&client, &upstream.address.to_string(), "localhost").await.unwrap();
        assert!(judge.questions() >= 2, "{behaviour:?}");
    }
    assert_eq!(elsewhere.questions(), 0, "redirects are not followed");
    // No server listens at this address.
    let unused_address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let options = Options { timeout: TIMEOUT, ..Options::new(format!("http://{unused_address}/")) };
    let (reply, _) = world(&upstream, options).await.connect("localhost:443").await;
    assert!(reply.starts_with("HTTP/1.1 503"), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unavailable_permission_service_is_probed_rarely_and_recovers() {
    let upstream = Upstream::start("localhost").await;
    let judge = Judge::start_with(Behaviour::Status(503)).await;
    let world = world(&upstream, Options { when_away: OutagePolicy::Allow, ..judge.options() }).await;
    let began = Instant::now();
    for number in 0..40 {
        let (reply, _stream) = world.connect(&format!("n{number}.example:443")).await;
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    }
    let most = 8 + 1 + began.elapsed().as_secs() as usize;
    assert!((8..=most).contains(&judge.questions()), "{} questions for 40 names", judge.questions());
    judge.behaviour(Behaviour::Status(403));
    let began = Instant::now();
    while !world.connect("back.example:443").await.0.starts_with("HTTP/1.1 403") {
        assert!(began.elapsed() < TIMEOUT, "never asked again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // From now on, each name causes one request.
    let questions = judge.questions();
    for number in 0..3 {
        let (reply, _) = world.connect(&format!("m{number}.example:443")).await;
        assert!(reply.starts_with("HTTP/1.1 403"), "{reply}");
    }
    assert_eq!(judge.questions(), questions + 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn permission_request_is_cancelled_with_its_last_waiter() {
    let upstream = Upstream::start("localhost").await;
    let judge = Judge::start_with(Behaviour::Nothing).await;
    let world = world(&upstream, Options { timeout: 10 * TIMEOUT, ..judge.options() }).await;
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let mut stream = world.tcp().await;
        stream.write_all(b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n").await.unwrap();
        waiting.push(stream);
    }
    until("it is asked", || judge.questions() == 1).await;
    waiting.clear();
    until("it is given up", || judge.given_up.load(SeqCst) == 1).await;
    assert_eq!(judge.questions(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn minting_consumers_require_permission_over_http_and_sds() {
    let (_, root) = authority();
    let judge = Judge::start_with(Behaviour::Status(200)).await;
    let world = World::new(&root, |options| {
        options.minting = Some(crate::minting::options());
        options.permission = Some(judge.options());
    })
    .await;
    let minting = world.running.minting.unwrap();
    let get = async |name: &str| {
        let http: Http<_, Empty<Bytes>> = Http::builder(TokioExecutor::new()).build_http();
        let uri = format!("http://{minting}/certificate?server_name={name}");
        http.request(Request::get(uri).body(Empty::new()).unwrap()).await.unwrap().status().as_u16()
    };
    let endpoint = Endpoint::from_shared(format!("http://{minting}")).unwrap();
    let mut discovery = SecretDiscoveryServiceClient::new(endpoint.connect().await.unwrap());
    let mut fetch = async |name: &str| {
        let request = DiscoveryRequest {
            type_url: TYPE_URL.to_owned(),
            resource_names: vec![name.to_owned()],
            ..DiscoveryRequest::default()
        };
        discovery.fetch_secrets(request).await.map(|reply| reply.into_inner().resources.len())
    };
    assert_eq!((get("a.example").await, fetch("a.example").await.unwrap()), (200, 1));
    assert_eq!(get("a.other").await, 204);
    let question = "/leaf?for=proxy&domain=a.example&client=127.0.0.1&consumer=local";
    let questions: Vec<_> = judge.questions.lock().iter().map(|(question, _)| question.clone()).collect();
    assert_eq!(questions, [question], "once for both doors, and never for what is none of its names");
    judge.behaviour(Behaviour::Status(403));
    assert_eq!((get("b.example").await, fetch("b.example").await.unwrap()), (204, 0));
    judge.behaviour(Behaviour::Status(500));
    assert_eq!(get("c.example").await, 503);
    let error = fetch("c.example").await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::Unavailable);
    assert_eq!(error.message(), "the permission service is unavailable", "why is nothing of a consumer's");
    assert_eq!(world.running.store().counts().minted, 1);
}
