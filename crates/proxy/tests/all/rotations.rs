//! Credential rotation under load: the server switches after the credential source, at the same time, or between two requests.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use keys::Secret;
use parking_lot::Mutex;
use proxy::requests::{Fetched, Fetching, InjectText, RequestRules, RuleText, Secrets};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::requests::list;
use crate::world::{
    Answers, AnyBody, Client, Speaks, Upstream, World, authority, exchange, get, head, http2,
};

const REQUESTS: usize = 10_000;
const ROTATIONS: usize = 20;
const CLIENTS: usize = 16;
const BODY: usize = 1_000;

/// The version that the server accepts.
static ACCEPTED: AtomicUsize = AtomicUsize::new(0);
/// Requests that the server has accepted.
static DONE: AtomicUsize = AtomicUsize::new(0);
static REFUSED: AtomicUsize = AtomicUsize::new(0);

/// Returns 401 for every version except the accepted one.
async fn answered(request: Request<Incoming>) -> Response<AnyBody> {
    let wanted = format!("Bearer version-{}", ACCEPTED.load(SeqCst));
    if request.headers()["authorization"] != wanted.as_str() {
        REFUSED.fetch_add(1, SeqCst);
        let mut response = Response::new(Full::<Bytes>::default().boxed_unsync());
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        return response;
    }
    let length = request.into_body().collect().await.map_or(0, |body| body.to_bytes().len());
    DONE.fetch_add(1, SeqCst);
    Response::new(Full::from(length.to_string()).boxed_unsync())
}

/// A store that caches a value until a caller reports that it was rejected.
#[derive(Debug, Default)]
struct Rotating {
    value: AtomicUsize,
    cached: Mutex<usize>,
}

impl Secrets for Rotating {
    fn fetch<'a>(&'a self, _: &'a str, _: &'a [Vec<String>]) -> Fetching<'a> {
        let version = *self.cached.lock();
        Box::pin(async move {
            let values = vec![Secret::new(format!("version-{version}"))];
            Ok(Fetched { values, version: Some(version.to_string()) })
        })
    }

    fn doubt(&self, _: &str) {
        *self.cached.lock() = self.value.load(SeqCst);
    }
}

async fn until_done(count: usize) {
    while DONE.load(SeqCst) < count {
        tokio::task::yield_now().await;
    }
}

/// Rotates the credential. The server switches late, immediately, or before the proxy has read the new version.
async fn rotate(store: &Rotating) {
    let each = REQUESTS / (ROTATIONS + 1);
    for version in 1..=ROTATIONS {
        until_done(version * each).await;
        store.value.store(version, SeqCst);
        if version % 3 == 0 {
            ACCEPTED.store(version, SeqCst);
            continue;
        }
        *store.cached.lock() = version;
        if version % 3 == 1 {
            until_done(version * each + each / 2).await;
        }
        ACCEPTED.store(version, SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_fails_during_twenty_credential_rotations() {
    let answers: Answers = |request| Box::pin(answered(request));
    let upstream = Upstream::start_with(Speaks { answers: Some(answers), ..Speaks::default() }).await;
    let port = upstream.address.port();
    let credential = Some("/team/api".to_owned());
    let inject = InjectText { credential, port: vec![port], ..InjectText::default() };
    let rule = RuleText { host: list(&["localhost"]), inject: Some(inject), ..RuleText::default() };
    let (rules, store) = (RequestRules::compile(&[rule]).unwrap(), Arc::new(Rotating::default()));
    let secrets: Arc<dyn Secrets> = Arc::<Rotating>::clone(&store);
    let world = World::new(&upstream.root, |options| {
        options.requests.rules = rules;
        options.requests.secrets = Some(secrets);
    })
    .await;
    let target = format!("localhost:{port}");
    let mut askers = Vec::new();
    for client in 0..CLIENTS {
        let stream = world.tls(&Client::of(&world.root, "h2"), &target, "localhost").await.unwrap();
        let ((sender, _), url) = (http2(stream).await, format!("https://{target}/rotating"));
        askers.push(tokio::spawn(async move {
            for number in 0..REQUESTS / CLIENTS {
                let mut request = get(&url);
                if number % 2 == 0 {
                    *request.method_mut() = Method::POST;
                    *request.body_mut() = Full::from(vec![b'x'; BODY]).boxed_unsync();
                }
                let (status, reply) = crate::world::answer(&sender, request).await;
                let wanted = if number % 2 == 0 { BODY.to_string() } else { "0".to_owned() };
                assert_eq!((status, reply), (200, wanted), "request {number} of client {client}");
            }
        }));
    }
    let rotating = tokio::spawn(async move { rotate(&store).await });
    for asker in askers {
        asker.await.unwrap();
    }
    rotating.await.unwrap();
    assert_eq!(DONE.load(SeqCst), REQUESTS, "none was done twice");
    let refused = REFUSED.load(SeqCst);
    assert!((ROTATIONS..REQUESTS / 4).contains(&refused), "{refused}: not a request for each try");
}

const UNAUTHORIZED: &[u8] =
    b"HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: 4\r\n\r\nnone";

/// Simulates a server that rejects a POST with the previous version. With the current version, the server reads the request and
/// closes the connection (`listens`), or cannot be reached.
async fn posted(listens: bool) -> String {
    let (_, root) = authority();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let credential = Some("/team/api".to_owned());
    let inject = InjectText { credential, port: vec![port], insecure: true, ..InjectText::default() };
    let rule = RuleText { host: list(&["localhost"]), inject: Some(inject), ..RuleText::default() };
    let rules = RequestRules::compile(&[rule]).unwrap();
    let secrets = Arc::new(Rotating { value: AtomicUsize::new(1), cached: Mutex::new(0) });
    let world = World::new(&root, |options| {
        options.requests.rules = rules;
        options.requests.secrets = Some(secrets);
    })
    .await;
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let listener = listens.then_some(listener);
        assert!(post_on(&mut stream).await.contains("Bearer version-0\r\n"));
        stream.write_all(UNAUTHORIZED).await.unwrap();
        drop(stream);
        let Some(listener) = listener else { return };
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(post_on(&mut stream).await.contains("Bearer version-1\r\n"));
    });
    let (_, mut stream) = world.connect(&format!("localhost:{port}")).await;
    let post = "POST /pay HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nok";
    let reply = exchange(&mut stream, post).await;
    server.await.unwrap();
    reply
}

/// Reads a POST of [`posted`], and returns its head.
async fn post_on(stream: &mut TcpStream) -> String {
    let head = head(stream).await;
    stream.read_exact(&mut [0; 2]).await.unwrap();
    head
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_may_have_been_done_is_not_called_refused() {
    let reply = posted(true).await;
    assert!(reply.starts_with("HTTP/1.1 502"), "{reply}");
    let reply = posted(false).await;
    assert!(reply.starts_with("HTTP/1.1 401") && reply.ends_with("none"), "{reply}");
}

/// Simulates a server that rejects the previous version with an error text.
async fn refused_with_text(request: Request<Incoming>) -> Response<AnyBody> {
    let is_new = request.headers()["authorization"] == "Bearer version-1";
    let mut response = Response::new(Full::from(if is_new { "done" } else { "the token has expired" }));
    if !is_new {
        *response.status_mut() = StatusCode::UNAUTHORIZED;
    }
    response.map(BodyExt::boxed_unsync)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_sent_again_although_its_host_has_one_connection_only() {
    let answers: Answers = |request| Box::pin(refused_with_text(request));
    let speaks = Speaks { answers: Some(answers), alpn: &["http/1.1"], ..Speaks::default() };
    let upstream = Upstream::start_with(speaks).await;
    let port = upstream.address.port();
    let credential = Some("/team/api".to_owned());
    let inject = InjectText { credential, port: vec![port], ..InjectText::default() };
    let rule = RuleText { host: list(&["localhost"]), inject: Some(inject), ..RuleText::default() };
    let rules = RequestRules::compile(&[rule]).unwrap();
    let secrets = Arc::new(Rotating { value: AtomicUsize::new(1), cached: Mutex::new(0) });
    let world = World::new(&upstream.root, |options| {
        options.requests.rules = rules;
        options.requests.secrets = Some(secrets);
        options.upstream_per_host_max = 1;
    })
    .await;
    let target = format!("localhost:{port}");
    let client = Client::of(&world.root, "http/1.1");
    let mut stream = world.tls(&client, &target, "localhost").await.unwrap();
    let reply = exchange(&mut stream, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(reply.starts_with("HTTP/1.1 200") && reply.ends_with("done"), "{reply}");
    assert_eq!(upstream.made(), 1);
}
