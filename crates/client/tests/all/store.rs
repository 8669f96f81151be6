//! A fake store on a Unix socket, and an agent in front of it.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use client::{Agent, AgentOptions, Client, Limits};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream;
use http::StatusCode;
use http::header::AUTHORIZATION;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::broadcast;
use tokio_util::sync::{CancellationToken, DropGuard};

/// After this time an event counts as not happening.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A request that the fake store received.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: String,
    /// The path with its query, as received.
    pub(crate) path: String,
    pub(crate) token: Option<String>,
    pub(crate) body: Bytes,
}

/// HTTP status and JSON body.
pub(crate) type StubResponse = (u16, Value);

type Answers = Arc<dyn Fn(ReceivedRequest) -> BoxFuture<'static, StubResponse> + Send + Sync>;

#[derive(Clone)]
struct Behind {
    answers: Answers,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
    feed: Option<Feed>,
}

/// The event stream of a fake store, and whether the store is unavailable.
#[derive(Clone)]
pub(crate) struct Feed {
    events: broadcast::Sender<Option<String>>,
    offline: Arc<AtomicBool>,
}

impl Feed {
    /// Sends an event.
    pub(crate) fn send(&self, kind: &str, data: &str) {
        self.events.send(Some(format!("event: {kind}\ndata: {data}\n\n"))).unwrap();
    }

    /// Ends the stream. All requests get 503 until [`Self::back`].
    pub(crate) fn offline(&self) {
        self.offline.store(true, SeqCst);
        self.events.send(None).unwrap();
    }

    pub(crate) fn back(&self) {
        self.offline.store(false, SeqCst);
    }

    fn stream(&self) -> Response {
        let begin = "event: ready\ndata: {\"resumed\":false}\n\nevent: access\ndata: {\"changed\":false}\n\n";
        let later = stream::unfold(self.events.subscribe(), |mut events| async move {
            let event = events.recv().await.ok().flatten()?;
            Some((Ok::<_, Infallible>(event), events))
        });
        Body::from_stream(stream::iter([Ok(begin.to_owned())]).chain(later)).into_response()
    }
}

/// A fake store that ends when it is dropped.
pub(crate) struct FakeStore {
    folder: tempfile::TempDir,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
    stop: CancellationToken,
    _stop: DropGuard,
}

impl FakeStore {
    /// Answers each request with the result of `answers`.
    pub(crate) fn start(
        answers: impl Fn(ReceivedRequest) -> BoxFuture<'static, StubResponse> + Send + Sync + 'static,
    ) -> Self {
        Self::start_with(answers, None)
    }

    /// Like [`Self::start`], with a stream of change events.
    pub(crate) fn start_with_events(
        answers: impl Fn(ReceivedRequest) -> BoxFuture<'static, StubResponse> + Send + Sync + 'static,
    ) -> (Self, Feed) {
        let feed = Feed { events: broadcast::Sender::new(16), offline: Arc::default() };
        (Self::start_with(answers, Some(feed.clone())), feed)
    }

    fn start_with(
        answers: impl Fn(ReceivedRequest) -> BoxFuture<'static, StubResponse> + Send + Sync + 'static,
        feed: Option<Feed>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("store")).unwrap();
        let received = Arc::default();
        let behind = Behind { answers: Arc::new(answers), received: Arc::clone(&received), feed };
        let router = Router::new().fallback(answered).with_state(behind);
        let stop = CancellationToken::new();
        let ended = stop.clone();
        tokio::spawn(async move {
            let serving = axum::serve(listener, router).into_future();
            let _ = ended.run_until_cancelled(serving).await;
        });
        Self { folder, received, _stop: stop.clone().drop_guard(), stop }
    }

    /// Returns a client with a token that does not follow changes.
    pub(crate) fn client(&self, limits: Limits) -> Client {
        let url = format!("unix:{}", self.folder.path().join("store").display());
        let limits = Limits { follow: false, ..limits };
        Client::builder(url).bearer("own-token").limits(limits).build().unwrap()
    }

    /// Returns a client with a token that follows changes.
    pub(crate) fn following(&self, token: &str, limits: Limits) -> Client {
        let url = format!("unix:{}", self.folder.path().join("store").display());
        Client::builder(url).bearer(token).limits(limits).build().unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts an agent with this client. Returns its socket.
    pub(crate) async fn agent(&self, client: &Client) -> PathBuf {
        let socket = self.folder.path().join("agent");
        let options = AgentOptions { socket: socket.clone(), mode: 0o600 };
        let agent = Agent::bind(client.clone(), options).await.unwrap();
        tokio::spawn(agent.serve(self.stop.clone()));
        socket
    }

    pub(crate) fn received(&self) -> Vec<ReceivedRequest> {
        self.received.lock().clone()
    }

    pub(crate) fn lookups(&self) -> usize {
        self.received().iter().filter(|received| received.path == "/api/v1/lookup").count()
    }
}

async fn answered(State(behind): State<Behind>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let token = parts.headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
    let received = ReceivedRequest {
        method: parts.method.to_string(),
        path: parts.uri.path_and_query().unwrap().to_string(),
        token,
        body: axum::body::to_bytes(body, usize::MAX).await.unwrap(),
    };
    if let Some(feed) = &behind.feed {
        if feed.offline.load(SeqCst) {
            return (StatusCode::SERVICE_UNAVAILABLE, axum::Json(json!({ "error": "away" }))).into_response();
        }
        if received.path == "/api/v1/events" {
            return feed.stream();
        }
    }
    behind.received.lock().push(received.clone());
    let (status, document) = (behind.answers)(received).await;
    (StatusCode::from_u16(status).unwrap(), axum::Json(document)).into_response()
}

/// Answers a lookup: each name has a password with this value.
pub(crate) fn found(received: &ReceivedRequest, value: &str) -> StubResponse {
    let body: Value = serde_json::from_slice(&received.body).unwrap();
    let one = |names: &Value| {
        json!({
            "name": names[0], "type": "password", "id": "01939e5c-0000-7000-8000-000000000001", "metadata": null,
            "version_created_at": "2026-11-21T05:00:00Z", "value": value,
        })
    };
    let results: Vec<Value> = body["lookups"].as_array().unwrap().iter().map(one).collect();
    (200, json!({ "results": results }))
}

/// Sends a request over a socket, with the path unchanged (as `curl --path-as-is`). Returns status and body.
pub(crate) async fn send_request(socket: &PathBuf, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, rest) = answer.split_once("\r\n\r\n").unwrap();
    (status, rest.to_owned())
}
