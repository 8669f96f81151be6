//! Hooks: services over gRPC that decide about requests, and change requests and responses.

#[path = "../../examples/hook.rs"]
#[allow(dead_code, unreachable_pub, reason = "the example has a main function")]
mod example;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http_body_util::BodyExt;
use hyper::Request as HttpRequest;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use proxy::hooks::envoy::config::core::v3::{
    BoolValue, HeaderValue, HeaderValueOption, HttpStatus, header_value_option::HeaderAppendAction,
};
use proxy::hooks::envoy::service::auth::v3 as auth;
use proxy::hooks::envoy::service::auth::v3::authorization_server::{Authorization, AuthorizationServer};
use proxy::hooks::envoy::service::auth::v3::check_response::HttpResponse;
use proxy::hooks::envoy::service::ext_proc::v3 as ext_proc;
use proxy::hooks::envoy::service::ext_proc::v3::body_mutation::Mutation;
use proxy::hooks::envoy::service::ext_proc::v3::common_response::ResponseStatus;
use proxy::hooks::envoy::service::ext_proc::v3::external_processor_server::{
    ExternalProcessor, ExternalProcessorServer,
};
use proxy::hooks::envoy::service::ext_proc::v3::processing_request::Request as Message;
use proxy::hooks::envoy::service::ext_proc::v3::processing_response::Response as Answer;
use proxy::hooks::{HookOptions, HookProtocol, Hooks, OnError};
use proxy::requests::{AuditOptions, RequestRules};
use proxy::{Action, Options, Rules};
use serde_json::Value;
use testbed::until;
use tokio::net::TcpListener;
use tonic::{Request, Response, Status, Streaming};
use tower::Service;

use crate::requests::{CANARY, Store, inject, list};
use crate::world::{Client, TIMEOUT, Upstream, World, answer, exchange, get, http2};

/// All messages that hooks received, as texts.
type Seen = Arc<Mutex<Vec<String>>>;

/// A service of both protocols. The path of a request says what it answers.
#[derive(Clone, Default)]
struct TestHook {
    seen: Seen,
}

fn field(key: &str, value: &str) -> HeaderValueOption {
    HeaderValueOption {
        header: Some(HeaderValue { key: key.to_owned(), value: value.to_owned(), raw_value: Vec::new() }),
        append: None,
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
        keep_empty_value: false,
    }
}

fn denied(code: i32) -> auth::CheckResponse {
    auth::CheckResponse {
        status: Some(auth::Status { code: 7, message: "no".into() }),
        http_response: Some(HttpResponse::DeniedResponse(auth::DeniedHttpResponse {
            status: Some(HttpStatus { code }),
            headers: vec![field("x-reason", "of the hook")],
            body: "the hook says no".into(),
        })),
    }
}

fn allowed(ok: auth::OkHttpResponse) -> auth::CheckResponse {
    auth::CheckResponse {
        status: Some(auth::Status { code: 0, message: String::new() }),
        http_response: Some(HttpResponse::OkResponse(ok)),
    }
}

#[tonic::async_trait]
impl Authorization for TestHook {
    async fn check(
        &self,
        request: Request<auth::CheckRequest>,
    ) -> Result<Response<auth::CheckResponse>, Status> {
        let request = request.into_inner();
        self.seen.lock().push(format!("{request:?}"));
        let http = request.attributes.and_then(|of| of.request).and_then(|of| of.http).unwrap_or_default();
        let path = http.path.split('?').next().unwrap_or_default().to_owned();
        let ok = auth::OkHttpResponse::default();
        Ok(Response::new(match path.as_str() {
            "/change" => allowed(auth::OkHttpResponse {
                headers: vec![
                    field("x-hooked", "yes"),
                    HeaderValueOption { append: Some(BoolValue { value: true }), ..field("x-more", "2") },
                ],
                headers_to_remove: vec!["x-gone".into()],
                response_headers_to_add: vec![field("x-of-hook", "here")],
                ..ok
            }),
            "/deny" => denied(451),
            "/bare" => auth::CheckResponse { status: denied(0).status, http_response: None },
            "/empty" => auth::CheckResponse::default(),
            "/host" => {
                allowed(auth::OkHttpResponse { headers: vec![field(":authority", "evil.example")], ..ok })
            }
            "/silent" => std::future::pending().await,
            "/error" => return Err(Status::internal("it broke")),
            _ => allowed(ok),
        }))
    }
}

/// Returns a message as a text.
fn text_of(message: &Message) -> String {
    let headers = |kind: &str, of: &ext_proc::HttpHeaders| {
        let fields = of.headers.iter().flat_map(|map| &map.headers);
        let lines: Vec<_> = fields
            .map(|field| {
                format!("{}: {}{}", field.key, field.value, String::from_utf8_lossy(&field.raw_value))
            })
            .collect();
        format!("{kind} end={} {}", of.end_of_stream, lines.join("; "))
    };
    let body = |kind: &str, of: &ext_proc::HttpBody| {
        format!("{kind} end={} {}", of.end_of_stream, String::from_utf8_lossy(&of.body))
    };
    match message {
        Message::RequestHeaders(of) => headers("request-headers", of),
        Message::ResponseHeaders(of) => headers("response-headers", of),
        Message::RequestBody(of) => body("request-body", of),
        Message::ResponseBody(of) => body("response-body", of),
    }
}

fn common(set: &[(&str, &str)], body: Option<Mutation>, status: ResponseStatus) -> ext_proc::CommonResponse {
    ext_proc::CommonResponse {
        status: status.into(),
        header_mutation: Some(ext_proc::HeaderMutation {
            set_headers: set.iter().map(|(name, value)| field(name, value)).collect(),
            remove_headers: Vec::new(),
        }),
        body_mutation: body.map(|mutation| ext_proc::BodyMutation { mutation: Some(mutation) }),
    }
}

/// Returns the answer to a message of a request for `path`; `None` ends the stream.
fn processed(path: &str, message: &Message) -> Option<Answer> {
    let go_on = || common(&[], None, ResponseStatus::Continue);
    let headers = |common| ext_proc::HeadersResponse { response: Some(common) };
    let body = |common| ext_proc::BodyResponse { response: Some(common) };
    let immediate = |code| {
        Answer::ImmediateResponse(ext_proc::ImmediateResponse {
            status: Some(HttpStatus { code }),
            headers: None,
            body: "at once".into(),
            details: String::new(),
        })
    };
    Some(match (path, message) {
        ("/end", Message::RequestHeaders(_)) => return None,
        ("/once", Message::ResponseHeaders(_)) => return None,
        ("/immediate", Message::RequestHeaders(_)) => immediate(418),
        ("/late", Message::ResponseBody(_)) => immediate(418),
        ("/mixed", Message::RequestHeaders(_)) => Answer::ResponseHeaders(headers(go_on())),
        ("/path", Message::RequestHeaders(_)) => {
            Answer::RequestHeaders(headers(common(&[(":path", "/other")], None, ResponseStatus::Continue)))
        }
        ("/replace", Message::RequestHeaders(_)) => Answer::RequestHeaders(headers(common(
            &[("x-hooked", "yes")],
            Some(Mutation::Body(b"of the hook".to_vec())),
            ResponseStatus::ContinueAndReplace,
        ))),
        ("/replace", Message::ResponseHeaders(_)) => Answer::ResponseHeaders(headers(common(
            &[("content-type", "text/plain")],
            Some(Mutation::Body(b"a new response".to_vec())),
            ResponseStatus::ContinueAndReplace,
        ))),
        ("/large", Message::ResponseBody(_)) => Answer::ResponseBody(body(common(
            &[],
            Some(Mutation::Body(vec![b'a'; 2_000])),
            ResponseStatus::Continue,
        ))),
        ("/change", Message::RequestBody(_)) => Answer::RequestBody(body(common(
            &[("x-body", "seen")],
            Some(Mutation::Body(b"changed".to_vec())),
            ResponseStatus::Continue,
        ))),
        ("/change", Message::ResponseBody(of)) => {
            let text = [of.body.as_slice(), b"and the hook was here"].concat();
            Answer::ResponseBody(body(common(
                &[("x-response", "seen")],
                Some(Mutation::Body(text)),
                ResponseStatus::Continue,
            )))
        }
        (_, Message::RequestHeaders(_)) => Answer::RequestHeaders(headers(go_on())),
        (_, Message::ResponseHeaders(_)) => Answer::ResponseHeaders(headers(go_on())),
        (_, Message::RequestBody(_)) => Answer::RequestBody(body(go_on())),
        (_, Message::ResponseBody(_)) => Answer::ResponseBody(body(go_on())),
    })
}

#[tonic::async_trait]
impl ExternalProcessor for TestHook {
    type ProcessStream = Pin<Box<dyn Stream<Item = Result<ext_proc::ProcessingResponse, Status>> + Send>>;

    async fn process(
        &self,
        request: Request<Streaming<ext_proc::ProcessingRequest>>,
    ) -> Result<Response<Self::ProcessStream>, Status> {
        let seen = Arc::clone(&self.seen);
        let start = (request.into_inner(), String::new(), seen);
        let answers = futures_util::stream::unfold(start, |(mut messages, mut path, seen)| async move {
            let message = messages.next().await?.ok()?.request?;
            let text = text_of(&message);
            if let Some(found) = text.split(":path: ").nth(1) {
                path = found.split([';', '?']).next().unwrap_or_default().to_owned();
            }
            seen.lock().push(text);
            if path == "/silent" {
                std::future::pending::<()>().await;
            }
            let response = processed(&path, &message)?;
            Some((Ok(ext_proc::ProcessingResponse { response: Some(response) }), (messages, path, seen)))
        });
        Ok(Response::new(Box::pin(answers)))
    }
}

impl TestHook {
    /// Serves both protocols at a free port.
    async fn start(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let this = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let this = this.clone();
                let answer = move |request: HttpRequest<hyper::body::Incoming>| {
                    let request = request.map(tonic::body::Body::new);
                    let (mut check, mut process) =
                        (AuthorizationServer::new(this.clone()), ExternalProcessorServer::new(this.clone()));
                    async move {
                        let is_check =
                            request.uri().path().starts_with("/envoy.service.auth.v3.Authorization/");
                        let response = match is_check {
                            true => check.call(request).await,
                            false => process.call(request).await,
                        };
                        Ok::<_, Infallible>(response.unwrap_or_else(|never| match never {}))
                    }
                };
                let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(
                    async move { http.serve_connection(TokioIo::new(stream), service_fn(answer)).await },
                );
            }
        });
        address
    }

    fn has_seen(&self, text: &str) -> bool {
        self.seen.lock().iter().any(|message| message.contains(text))
    }
}

fn options(protocol: HookProtocol, address: SocketAddr) -> HookOptions {
    HookOptions {
        timeout: TIMEOUT,
        ..HookOptions::new("guard".into(), protocol, format!("http://{address}"))
    }
}

/// An upstream that echoes requests, a hook, and a proxy that injects a credential.
struct HookWorld {
    upstream: Upstream,
    world: World,
    hook: TestHook,
}

impl HookWorld {
    async fn new(protocol: HookProtocol, change: impl FnOnce(&mut HookOptions)) -> Self {
        Self::with(protocol, change, |_| {}).await
    }

    async fn with(
        protocol: HookProtocol,
        change: impl FnOnce(&mut HookOptions),
        more: impl FnOnce(&mut Options),
    ) -> Self {
        let (upstream, hook) = (Upstream::start("localhost").await, TestHook::default());
        let mut hooked = options(protocol, hook.start().await);
        change(&mut hooked);
        let rules = RequestRules::compile(&[inject("localhost", upstream.address.port())]).unwrap();
        let world = World::new(&upstream.root, |options| {
            options.requests.rules = rules;
            options.requests.secrets = Some(Store::with(CANARY));
            options.hooks = vec![hooked];
            more(options);
        })
        .await;
        Self { upstream, world, hook }
    }

    fn target(&self) -> String {
        format!("localhost:{}", self.upstream.address.port())
    }

    /// Sends a request on a new HTTP/1.1 connection. Returns the whole response.
    async fn exchange(&self, head: &str, body: &str) -> String {
        let client = Client::of(&self.world.root, "http/1.1");
        let mut stream = self.world.tls(&client, &self.target(), "localhost").await.unwrap();
        let length =
            if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        exchange(&mut stream, &format!("{head}\r\nHost: {}\r\n{length}\r\n{body}", self.target())).await
    }

    async fn get(&self, path: &str) -> String {
        self.exchange(&format!("GET {path} HTTP/1.1"), "").await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ext_authz_decides_about_requests_and_changes_their_headers() {
    let world = HookWorld::new(HookProtocol::ExtAuthz, |hook| hook.request_body = true).await;
    let head = "POST /change?a=b HTTP/1.1\r\nX-Gone: 1\r\nX-More: 1\r\nX-Hooked: no";
    let received = world.exchange(head, "the body").await;
    assert!(received.starts_with("HTTP/1.1 200") && received.contains("x-of-hook: here"), "{received}");
    assert!(
        received.contains("x-hooked: yes\n") && received.contains("x-more: 1\nx-more: 2\n"),
        "{received}"
    );
    assert!(!received.contains("x-gone") && received.contains("body of 8"), "{received}");
    // The credential is injected after the hook.
    assert!(received.contains(&format!("authorization: Bearer {CANARY}")), "{received}");
    for text in
        ["\"/change?a=b\"", "\"POST\"", "body: \"the body\"", "\"x-more\": \"1\"", "\"https\"", "size: 8"]
    {
        assert!(world.hook.has_seen(text), "{text}: {:?}", world.hook.seen.lock());
    }
    assert!(!world.hook.has_seen(CANARY), "{:?}", world.hook.seen.lock());
    let received = world.get("/deny").await;
    assert!(received.starts_with("HTTP/1.1 451") && received.ends_with("the hook says no"), "{received}");
    assert!(received.contains("x-reason: of the hook"), "{received}");
    // A hook that gives no response: the page names the hook.
    let received = world.get("/bare").await;
    assert!(
        received.starts_with("HTTP/1.1 403") && received.contains("the hook guard denies the request"),
        "{received}"
    );
    assert!(received.contains("\"reason\":\"hook\""), "{received}");
    // Answers that allow nothing.
    for path in ["/empty", "/host", "/error"] {
        let received = world.get(path).await;
        assert!(
            received.starts_with("HTTP/1.1 503") && received.contains("made no decision"),
            "{path}: {received}"
        );
        assert!(!received.contains("GET /"), "nothing was sent: {received}");
    }
    // Requests of HTTP/2, and bodies of unknown length.
    let client = Client::of(&world.world.root, "h2");
    let (sender, _task) = http2(world.world.tls(&client, &world.target(), "localhost").await.unwrap()).await;
    let (status, received) = answer(&sender, get(&format!("https://{}/change", world.target()))).await;
    assert!(status == 200 && received.contains("x-hooked: yes\n"), "{received}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ext_proc_changes_messages_and_never_gets_injected_values() {
    let world = HookWorld::new(HookProtocol::ExtProc, |hook| {
        (hook.request_body, hook.response_headers, hook.response_body) = (true, true, true);
    })
    .await;
    let received = world.exchange("POST /change HTTP/1.1\r\nX-Own: of-the-client", "the body").await;
    assert!(received.starts_with("HTTP/1.1 200") && received.contains("x-response: seen"), "{received}");
    assert!(
        received.contains("x-body: seen\n") && received.contains("body of 7"),
        "the upstream: {received}"
    );
    assert!(received.ends_with("and the hook was here"), "{received}");
    // The upstream got the credential. Its echo is masked for the hook, although the rule allows an echo.
    assert!(received.contains("authorization: Bearer ********************"), "{received}");
    for text in [
        "request-headers end=false :method: POST; :scheme: https; :authority: localhost",
        "x-own: of-the-client",
        "request-body end=true the body",
        "response-headers end=false :status: 200",
        "response-body end=true POST /change",
        "Bearer ********************",
    ] {
        assert!(world.hook.has_seen(text), "{text}: {:?}", world.hook.seen.lock());
    }
    let received = world.exchange("POST /replace HTTP/1.1", "the long body").await;
    assert!(
        received.ends_with("a new response") && received.contains("content-type: text/plain"),
        "{received}"
    );
    assert!(world.hook.has_seen("request-headers end=false :method: POST"), "{:?}", world.hook.seen.lock());
    assert!(!world.hook.has_seen("the long body"), "the hook replaced the body without it");
    let received = world.get("/immediate").await;
    assert!(received.starts_with("HTTP/1.1 418") && received.ends_with("at once"), "{received}");
    let received = world.get("/late").await;
    assert!(received.starts_with("HTTP/1.1 418") && received.ends_with("at once"), "{received}");
    // After an answer, the hook may end the stream.
    assert!(world.get("/once").await.contains("GET /once"));
    for (path, status) in [("/end", 503), ("/mixed", 503), ("/path", 503), ("/large", 200)] {
        let received = world.get(path).await;
        assert!(received.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {received}");
    }
    assert!(!world.hook.has_seen(CANARY), "{:?}", world.hook.seen.lock());
    assert!(!world.hook.has_seen(&data_encoding::BASE64.encode(CANARY.as_bytes())));
}

#[tokio::test(flavor = "multi_thread")]
async fn hook_without_an_answer_refuses_requests_unless_allowed() {
    for protocol in [HookProtocol::ExtAuthz, HookProtocol::ExtProc] {
        let short = |hook: &mut HookOptions| hook.timeout = Duration::from_millis(50);
        let world = HookWorld::new(protocol, short).await;
        let received = world.get("/silent").await;
        assert!(received.starts_with("HTTP/1.1 503") && !received.contains("GET /silent"), "{received}");
        let world = HookWorld::new(protocol, |hook| {
            short(hook);
            hook.on_error = OnError::Allow;
        })
        .await;
        assert!(world.get("/silent").await.contains("GET /silent"));
        // A service that does not run.
        let nowhere = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        for on_error in [OnError::Deny, OnError::Allow] {
            let world = HookWorld::new(protocol, |hook| {
                (hook.url, hook.on_error) = (format!("http://{nowhere}"), on_error);
            })
            .await;
            assert_eq!(world.get("/a").await.contains("GET /a"), on_error == OnError::Allow);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_and_calls_of_a_hook_are_limited() {
    let small = |hook: &mut HookOptions| {
        (hook.request_body, hook.body_bytes_max, hook.on_error) = (true, 8, OnError::Allow);
    };
    for protocol in [HookProtocol::ExtAuthz, HookProtocol::ExtProc] {
        let world = HookWorld::new(protocol, small).await;
        let (fits, long) = (world.exchange("POST /a HTTP/1.1", "12345678").await, "123456789");
        assert!(fits.contains("body of 8"), "{fits}");
        // A body of known length, and one whose length is not known.
        let received = world.exchange("POST /a HTTP/1.1", long).await;
        assert!(received.starts_with("HTTP/1.1 413") && received.contains("at most 8 bytes"), "{received}");
        let client = Client::of(&world.world.root, "h2");
        let (sender, _task) =
            http2(world.world.tls(&client, &world.target(), "localhost").await.unwrap()).await;
        let url = format!("https://{}/a", world.target());
        let pieces = futures_util::stream::iter(
            ["12345", "6789"].map(|chunk| Ok::<_, Infallible>(hyper::body::Frame::data(Bytes::from(chunk)))),
        );
        let body = http_body_util::StreamBody::new(pieces).boxed_unsync();
        let (status, received) = answer(&sender, HttpRequest::post(url).body(body).unwrap()).await;
        assert_eq!(status, 413, "{received}");
        assert!(!world.hook.has_seen(long));
    }
    let world = HookWorld::new(HookProtocol::ExtProc, |hook| {
        (hook.response_body, hook.body_bytes_max, hook.on_error) = (true, 8, OnError::Allow);
    })
    .await;
    let received = world.get("/a").await;
    assert!(received.starts_with("HTTP/1.1 502") && received.contains("at most 8 bytes"), "{received}");
    // One call at a time: while one waits, another is refused.
    let world = Arc::new(HookWorld::new(HookProtocol::ExtAuthz, |hook| hook.calls_max = 1).await);
    let waiting = Arc::clone(&world);
    let waits = tokio::spawn(async move { waiting.get("/silent").await });
    until("the hook got the first request", || world.hook.has_seen("/silent")).await;
    assert!(world.get("/a").await.starts_with("HTTP/1.1 503"));
    waits.abort();
    let _ = waits.await;
    // The client left, so that its slot is free.
    loop {
        if world.get("/a").await.contains("GET /a") {
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hook_decisions_are_audited_before_the_request_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let audit = Some(AuditOptions { file: file.clone(), sync: false });
    let world = HookWorld::with(
        HookProtocol::ExtProc,
        |hook| hook.response_headers = true,
        |options| options.requests.audit = audit,
    )
    .await;
    world.get("/a").await;
    world.get("/immediate").await;
    let events = || -> Vec<Value> {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    until("the outcome is written", || events().len() == 3).await;
    let of = |action: &str| {
        let all = events();
        all.into_iter().find(|event| event["action"] == action).unwrap_or_else(|| panic!("{action}"))
    };
    let allow = serde_json::json!([{ "decision": "allow", "hook": "guard" }]);
    let sent = of("proxy.request.allow");
    assert_eq!((&sent["details"]["hooks"], &sent["details"]["sent"]), (&allow, &true.into()));
    assert_eq!(of("proxy.request.outcome")["details"]["hooks"], allow);
    let refused = of("proxy.request.deny");
    let reply = serde_json::json!([{ "decision": "reply", "hook": "guard" }]);
    assert_eq!(
        (&refused["details"]["hooks"], &refused["details"]["reason"], &refused["details"]["sent"]),
        (&reply, &"hook".into(), &false.into())
    );
    let text = std::fs::read(&file).unwrap();
    let found = audit_proof::export::verify(&*text, &audit_proof::stored_heads::StoredHeads::default(), None)
        .unwrap();
    assert!(found.good, "{:?}", found.faults);
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_get_only_their_hosts_and_decide_about_tunnels() {
    for protocol in [HookProtocol::ExtAuthz, HookProtocol::ExtProc] {
        let other = |hook: &mut HookOptions| hook.hosts = list(&["a.example", "*.b.example"]);
        let world = HookWorld::new(protocol, other).await;
        assert!(world.get("/deny").await.contains("GET /deny"));
        assert_eq!(world.hook.seen.lock().len(), 0);
    }
    // A tunnel of a hook's host: the hook gets the CONNECT, and nothing of the bytes.
    for (url, is_open) in [(None, true), (Some("http://127.0.0.1:1"), false)] {
        let world = HookWorld::with(
            HookProtocol::ExtAuthz,
            |hook| {
                hook.hosts = list(&["localhost"]);
                hook.url = url.map_or(hook.url.clone(), str::to_owned);
            },
            |options| options.rules = Rules::new(Action::Tunnel),
        )
        .await;
        let client = Client::of(&world.upstream.root, "http/1.1");
        let opened = world.world.tls(&client, &world.target(), "localhost").await;
        assert_eq!(opened.is_ok(), is_open, "{opened:?}");
        assert_eq!(world.hook.has_seen("\"CONNECT\""), is_open);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn example_refuses_private_keys() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(example::serve(listener));
    let world = HookWorld::new(HookProtocol::ExtAuthz, |hook| {
        (hook.url, hook.request_body) = (url, true);
    })
    .await;
    let received = world.exchange("POST /a HTTP/1.1", "a body").await;
    assert!(received.starts_with("HTTP/1.1 200") && received.contains("body of 6"), "{received}");
    let received = world.exchange("POST /a HTTP/1.1", "-----BEGIN EC PRIVATE KEY-----").await;
    assert!(
        received.starts_with("HTTP/1.1 403") && received.contains("contains a private key"),
        "{received}"
    );
}

#[test]
fn invalid_hooks_are_rejected_with_their_key() {
    let usual = || HookOptions::new("a".into(), HookProtocol::ExtProc, "http://127.0.0.1:9001".into());
    assert_eq!(Hooks::check(&[usual()]), Ok(()));
    for (wrong, key) in [
        (HookOptions { name: String::new(), ..usual() }, "name"),
        (HookOptions { hosts: list(&["https://a"]), ..usual() }, "host"),
        (HookOptions { timeout: Duration::from_secs(61), ..usual() }, "timeout_ms"),
        (HookOptions { body_bytes_max: 5 << 20, ..usual() }, "body_bytes_max"),
        (HookOptions { calls_max: 0, ..usual() }, "calls_max"),
        (HookOptions { protocol: HookProtocol::ExtAuthz, response_body: true, ..usual() }, "protocol"),
    ] {
        assert_eq!(Hooks::check(&[wrong]).unwrap_err().key, key);
    }
    for url in
        ["", "hook", "http://hooks.example:9001", "https://hooks.example/path", "http://127.0.0.1:9001/?a=b"]
    {
        let wrong = Hooks::check(&[HookOptions { url: url.to_owned(), ..usual() }]).unwrap_err();
        assert_eq!(wrong.key, "url", "{url:?}: {wrong}");
    }
    let twice = Hooks::check(&[usual(), usual()]).unwrap_err();
    assert!(twice.to_string().contains("another hook has this name"), "{twice}");
}
