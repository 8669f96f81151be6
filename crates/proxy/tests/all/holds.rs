//! Requests that a rule of the policy holds until a person decides.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::ext::Protocol;
use hyper_util::rt::TokioIo;
use keys::Secret;
use proxy::holds::{HELD_PER_CLIENT_MAX, HeldRequest, Holds};
use proxy::policy::{Action, Policy, PolicyRuleText, PolicyText};
use proxy::requests::{AuditOptions, Fetched, Fetching, InjectText, RequestRules, RuleText, Secrets};
use proxy::{Action as ConnectionAction, Options, Rules};
use rustls::pki_types::ServerName;
use serde_json::Value;
use tempfile::TempDir;
use testbed::until;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::echo::{MASK, TEXT, read_frame, write_frame};
use crate::requests::list;
use crate::world::{AnyBody, Client, Http2, TIMEOUT, Upstream, World, answer, exchange, get, head, http2};

const HOUR: Duration = Duration::from_secs(3_600);

/// A store that counts how often a credential is read.
#[derive(Debug, Default)]
struct CountedSecrets(AtomicUsize);

impl Secrets for CountedSecrets {
    fn fetch<'a>(&'a self, _: &'a str, _: &'a [Vec<String>]) -> Fetching<'a> {
        self.0.fetch_add(1, SeqCst);
        Box::pin(async { Ok(Fetched { values: vec![Secret::new("injected-value")], version: None }) })
    }

    fn doubt(&self, _: &str) {}
}

/// An upstream, and a proxy that holds `/deploy` and `/ws` and allows all other requests.
struct HoldWorld {
    upstream: Upstream,
    world: World,
    holds: Holds,
    secrets: Arc<CountedSecrets>,
    folder: TempDir,
}

impl HoldWorld {
    async fn new() -> Self {
        Self::with(120, |_| {}).await
    }

    async fn with(hold_for_s: u64, change: impl FnOnce(&mut Options)) -> Self {
        let upstream = Upstream::start("localhost").await;
        let port = upstream.address.port();
        let (holds, secrets, folder) =
            (Holds::default(), Arc::new(CountedSecrets::default()), TempDir::new().unwrap());
        let inject = InjectText { credential: Some("/a".into()), port: vec![port], ..InjectText::default() };
        let rule = RuleText { host: list(&["localhost"]), inject: Some(inject), ..RuleText::default() };
        let store: Arc<dyn Secrets> = Arc::<CountedSecrets>::clone(&secrets);
        let world = World::new(&upstream.root, |options| {
            options.holds = Some(holds.clone());
            options.policy = policy(&["/deploy/**", "/ws"], hold_for_s);
            options.requests.rules = RequestRules::compile(&[rule]).unwrap();
            options.requests.secrets = Some(store);
            options.requests.audit =
                Some(AuditOptions { file: folder.path().join("audit.jsonl"), sync: false });
            change(options);
        })
        .await;
        Self { upstream, world, holds, secrets, folder }
    }

    fn target(&self) -> String {
        format!("localhost:{}", self.upstream.address.port())
    }

    fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.target())
    }

    async fn tls(&self, alpn: &str) -> TlsStream<TcpStream> {
        self.world.tls(&Client::of(&self.world.root, alpn), &self.target(), "localhost").await.unwrap()
    }

    async fn http2(&self) -> Http2 {
        http2(self.tls("h2").await).await.0
    }

    /// Sends a request, and waits until one more than `before` requests are held.
    async fn held_request(
        &self,
        sender: &Http2,
        path: &str,
        before: usize,
    ) -> tokio::task::JoinHandle<(u16, String)> {
        let (sender, request) = (sender.clone(), get(&self.url(path)));
        let requester = tokio::spawn(async move { answer(&sender, request).await });
        until("the request is held", || self.holds.list().len() > before).await;
        requester
    }

    fn only(&self) -> HeldRequest {
        let all = self.holds.list();
        assert_eq!(all.len(), 1, "{all:?}");
        all[0].clone()
    }

    /// Asserts that the proxy has neither opened a connection nor read a credential.
    #[track_caller]
    fn is_untouched(&self) {
        assert_eq!((self.upstream.made(), self.secrets.0.load(SeqCst)), (0, 0));
    }

    fn events(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.path().join("audit.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn actions(&self) -> Vec<String> {
        let events = self.events().into_iter();
        let all = events.map(|event| event["action"].as_str().unwrap().to_owned());
        all.filter(|action| !action.ends_with(".outcome")).collect()
    }
}

/// Holds requests for these paths, and allows all others.
fn policy(paths: &[&str], hold_for_s: u64) -> Policy {
    let hold = PolicyRuleText {
        name: "deploy".into(),
        path: list(paths),
        action: Some(Action::Hold),
        hold_for_s: Some(hold_for_s),
        ..PolicyRuleText::default()
    };
    let text = PolicyText { default: Some(Action::Allow), rules: vec![hold], ..PolicyText::default() };
    Policy::compile(&text).unwrap()
}

fn problem(reply: &(u16, String)) -> Value {
    serde_json::from_str(&reply.1).unwrap_or_else(|error| panic!("{error}: {reply:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn held_request_is_sent_once_after_an_approval_or_for_an_hour() {
    let world = HoldWorld::new().await;
    let sender = world.http2().await;
    let requester = world.held_request(&sender, "/deploy/a?token=secret", 0).await;
    world.is_untouched();
    let held_request = world.only();
    assert_eq!((held_request.method.as_str(), held_request.url.clone()), ("GET", world.url("/deploy/a")));
    assert_eq!((held_request.rule.as_str(), held_request.client.as_str()), ("deploy", "address:127.0.0.1"));
    assert_eq!(held_request.deadline.duration_since(held_request.since).as_secs(), 120);
    assert!(!serde_json::to_string(&held_request).unwrap().contains("secret"), "{held_request:?}");
    world.holds.approve(&held_request.id, None, "alice (uid 1000)").unwrap();
    let (status, reply) = requester.await.unwrap();
    assert_eq!(status, 200, "{reply}");
    assert_eq!(world.secrets.0.load(SeqCst), 1);
    // The approval was for one request.
    let requester = world.held_request(&sender, "/deploy/a", 0).await;
    let second = world.only();
    world.holds.approve(&second.id, Some(HOUR), "bob (uid 1001)").unwrap();
    assert_eq!(requester.await.unwrap().0, 200);
    assert_eq!(answer(&sender, get(&world.url("/deploy/a?other"))).await.0, 200);
    // Another path, and another method, are held again.
    let path = world.held_request(&sender, "/deploy/b", 0).await;
    let post = Request::post(world.url("/deploy/a")).body(Full::<Bytes>::default().boxed_unsync()).unwrap();
    let requester = sender.clone();
    let post = tokio::spawn(async move { answer(&requester, post).await });
    until("the request is held", || world.holds.list().len() == 2).await;
    path.abort();
    post.abort();
    until("no request is held", || world.holds.list().is_empty()).await;
    // Hold and decision are two events with the same id; the decision names the person.
    let events = world.events();
    let (first, decided) = (&events[0], &events[1]);
    assert_eq!(
        (&first["action"], &decided["action"]),
        (&"proxy.request.hold".into(), &"proxy.request.allow".into())
    );
    assert_eq!(first["details"]["sent"], false);
    assert_eq!(first["details"]["request"], decided["details"]["request"]);
    assert_eq!(
        (&decided["details"]["hold"], &decided["details"]["decided_by"]),
        (&held_request.id.as_str().into(), &"alice (uid 1000)".into())
    );
    let remembered = events.iter().filter(|event| event["details"]["hold"] == second.id.as_str());
    let allowed = remembered.filter(|event| event["action"] == "proxy.request.allow");
    assert!(allowed.clone().all(|event| event["details"]["decided_by"] == "bob (uid 1001)"));
    assert_eq!(allowed.count(), 2, "{events:?}");
    until("the events are written", || {
        world.actions().iter().filter(|action| *action == "proxy.request.deny").count() == 2
    })
    .await;
    let denied = world.events().into_iter().find(|event| event["action"] == "proxy.request.deny").unwrap();
    assert_eq!(denied["details"]["reason"], "hold-client-gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_and_late_requests_are_refused_and_nothing_is_sent() {
    let world = HoldWorld::with(1, |_| {}).await;
    let sender = world.http2().await;
    let late = world.held_request(&sender, "/deploy/late", 0).await.await.unwrap();
    let refusal = problem(&late);
    assert_eq!(
        (late.0, &refusal["reason"], &refusal["rule"]),
        (403, &"hold-deadline".into(), &"deploy".into())
    );
    assert!(refusal["detail"].as_str().unwrap().contains("held GET /deploy/late on localhost"), "{refusal}");
    assert!(refusal["advice"].as_str().unwrap().contains("bulla proxy approve"), "{refusal}");
    drop(sender);
    world.is_untouched();
    let world = HoldWorld::new().await;
    let sender = world.http2().await;
    let requester = world.held_request(&sender, "/deploy/a", 0).await;
    let id = world.only().id;
    world.holds.reject(&id, Some("not on Fridays".into()), "alice").unwrap();
    let rejected = requester.await.unwrap();
    let refusal = problem(&rejected);
    assert_eq!(
        (rejected.0, &refusal["reason"], &refusal["hold"]),
        (403, &"hold-rejected".into(), &id.as_str().into())
    );
    assert!(
        refusal["detail"].as_str().unwrap().ends_with("a person rejected it: not on Fridays"),
        "{refusal}"
    );
    assert!(!rejected.1.contains("alice"), "{refusal}");
    world.is_untouched();
    assert_eq!(world.actions(), ["proxy.request.hold", "proxy.request.deny"]);
    assert_eq!(world.events()[1]["details"]["decided_by"], "alice");
    assert!(world.holds.approve(&id, None, "alice").is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_ends_when_the_client_leaves_even_with_an_unread_body() {
    let world = HoldWorld::new().await;
    for request in [
        "GET /deploy/a HTTP/1.1\r\nHost: localhost\r\n\r\n",
        // The proxy does not read the body while it holds the request, so it does not read the end of the connection either.
        "POST /deploy/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nbegin",
    ] {
        let mut stream = world.tls("http/1.1").await;
        let request = request.replace("Host: localhost", &format!("Host: {}", world.target()));
        testbed::write_and_flush(&mut stream, request.as_bytes()).await.unwrap();
        until("the request is held", || world.holds.list().len() == 1).await;
        drop(stream);
        until("no request is held", || world.holds.list().is_empty()).await;
    }
    world.is_untouched();
    until("the events are written", || world.actions().len() == 4).await;
    assert_eq!(world.events()[3]["details"]["reason"], "hold-client-gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn body_is_read_after_the_approval() {
    let world = HoldWorld::new().await;
    let mut stream = world.tls("http/1.1").await;
    let request = format!(
        "POST /deploy/a HTTP/1.1\r\nHost: {}\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n",
        world.target()
    );
    testbed::write_and_flush(&mut stream, request.as_bytes()).await.unwrap();
    until("the request is held", || world.holds.list().len() == 1).await;
    world.is_untouched();
    world.holds.approve(&world.only().id, None, "alice").unwrap();
    assert!(head(&mut stream).await.starts_with("HTTP/1.1 100"));
    assert!(exchange(&mut stream, "body").await.contains("body of 4"));
}

#[tokio::test(flavor = "multi_thread")]
async fn other_streams_go_on_and_held_requests_of_a_client_are_limited() {
    let world = HoldWorld::new().await;
    let sender = world.http2().await;
    let mut all = Vec::new();
    for number in 0..HELD_PER_CLIENT_MAX {
        all.push(world.held_request(&sender, &format!("/deploy/{number}"), number).await);
    }
    world.is_untouched();
    let refused = answer(&sender, get(&world.url("/deploy/more"))).await;
    let refusal = problem(&refused);
    assert_eq!((refused.0, &refusal["reason"]), (429, &"hold-limit".into()));
    assert!(refusal["detail"].as_str().unwrap().contains("20 requests of this client are held"), "{refusal}");
    let (status, reply) = answer(&sender, get(&world.url("/other"))).await;
    assert_eq!(status, 200, "{reply}");
    for held_request in world.holds.list() {
        world.holds.approve(&held_request.id, None, "alice").unwrap();
    }
    for requester in all {
        assert_eq!(requester.await.unwrap().0, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn held_requests_are_answered_when_the_proxy_stops() {
    let world = HoldWorld::new().await;
    let sender = world.http2().await;
    let requester = world.held_request(&sender, "/deploy/a", 0).await;
    let HoldWorld { upstream, world: World { running, .. }, .. } = world;
    let stopped = tokio::spawn(running.stop(TIMEOUT));
    let answered = requester.await.unwrap();
    let refusal = problem(&answered);
    assert_eq!((answered.0, &refusal["reason"]), (503, &"hold-stopped".into()));
    assert!(refusal["advice"].as_str().unwrap().starts_with("Nothing was sent."), "{refusal}");
    assert_eq!(upstream.made(), 0);
    drop(sender);
    assert!(stopped.await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_policy_applies_to_an_approved_request() {
    let world = HoldWorld::new().await;
    let sender = world.http2().await;
    let requester = world.held_request(&sender, "/deploy/a", 0).await;
    let deny =
        PolicyRuleText { name: "stop".into(), action: Some(Action::Deny), ..PolicyRuleText::default() };
    // The connection stays open, because another rule allows other requests of the host.
    let rest = PolicyRuleText { port: vec![world.upstream.address.port()], ..PolicyRuleText::default() };
    let deny = PolicyRuleText { path: list(&["/deploy/**"]), ..deny };
    let policy = Policy::compile(&PolicyText { rules: vec![deny, rest], ..PolicyText::default() }).unwrap();
    world.world.running.change_rules(Rules::default(), policy, RequestRules::default(), None);
    world.holds.approve(&world.only().id, None, "alice").unwrap();
    let refusal = requester.await.unwrap();
    assert_eq!((refusal.0, &problem(&refusal)["rule"]), (403, &"stop".into()));
    world.is_untouched();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_approvals_a_held_request_is_refused_immediately() {
    let world = HoldWorld::with(120, |options| options.holds = None).await;
    let sender = world.http2().await;
    let refusal = answer(&sender, get(&world.url("/deploy/a"))).await;
    assert_eq!((refusal.0, &problem(&refusal)["reason"]), (403, &"hold-unavailable".into()));
    world.is_untouched();
}

#[tokio::test(flavor = "multi_thread")]
async fn websocket_opens_after_an_approval() {
    let world = HoldWorld::new().await;
    let sender = world.http2().await;
    // The SETTINGS frame of the proxy has arrived with this response.
    assert_eq!(answer(&sender, get(&world.url("/"))).await.0, 200);
    let connect_request: Request<AnyBody> = Request::connect(world.url("/ws"))
        .extension(Protocol::from_static("websocket"))
        .header("sec-websocket-version", "13")
        .body(Full::<Bytes>::default().boxed_unsync())
        .unwrap();
    let mut requester = sender.clone();
    let opened = tokio::spawn(async move { requester.send_request(connect_request).await.unwrap() });
    until("the request is held", || world.holds.list().len() == 1).await;
    assert_eq!(world.only().method, "GET");
    world.holds.approve(&world.only().id, None, "alice").unwrap();
    let response = opened.await.unwrap();
    assert_eq!(response.status(), 200);
    let mut stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    write_frame(&mut stream, TEXT, b"one", Some(MASK)).await.unwrap();
    let frame = tokio::time::timeout(TIMEOUT, read_frame(&mut stream)).await.expect("a frame");
    assert_eq!(frame, Some((TEXT, b"ONE".to_vec())));
}

#[tokio::test(flavor = "multi_thread")]
async fn tunnel_without_interception_is_held_before_its_connection() {
    let tunnelled = |options: &mut Options| {
        options.policy = policy(&[], 120);
        options.rules.add(&["localhost".to_owned()], ConnectionAction::Tunnel).unwrap();
    };
    let world = HoldWorld::with(120, tunnelled).await;
    let target = world.target();
    // Approved: the client talks to the upstream itself.
    let (reply, stream) = world.world.connect(&target).await;
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    until("the request is held", || world.holds.list().len() == 1).await;
    let held_request = world.only();
    assert_eq!(
        (held_request.method.as_str(), held_request.url.as_str(), held_request.path.as_str()),
        ("CONNECT", &*target, "")
    );
    world.is_untouched();
    world.holds.approve(&held_request.id, None, "alice").unwrap();
    let client = Client::of(&world.upstream.root, "http/1.1");
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = client.0.connect(name, stream).await.unwrap();
    let reply = exchange(&mut stream, &format!("GET /deploy/a HTTP/1.1\r\nHost: {target}\r\n\r\n")).await;
    assert!(reply.contains("GET /deploy/a"), "{reply}");
    drop(stream);
    // Rejected: the proxy closes the connection.
    let (_, mut stream) = world.world.connect(&target).await;
    until("the request is held", || world.holds.list().len() == 1).await;
    world.holds.reject(&world.only().id, None, "alice").unwrap();
    let end = tokio::time::timeout(TIMEOUT, stream.read_u8()).await.expect("an end");
    assert!(end.is_err());
    // The client leaves, with bytes that nobody has read.
    let (_, mut stream) = world.world.connect(&target).await;
    stream.write_all(b"hello").await.unwrap();
    until("the request is held", || world.holds.list().len() == 1).await;
    drop(stream);
    until("no request is held", || world.holds.list().is_empty()).await;
    assert_eq!(world.upstream.made(), 1);
    let actions = world.actions();
    assert_eq!(actions[..2], ["proxy.tunnel.hold", "proxy.tunnel.allow"], "{actions:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_of_a_host_whose_requests_are_all_held_is_not_mirrored() {
    let mirrored = |options: &mut Options| {
        options.policy = policy(&[], 120);
        options.rules = Rules::new(ConnectionAction::Mirror);
    };
    let world = HoldWorld::with(120, mirrored).await;
    let sender = world.http2().await;
    let requester = world.held_request(&sender, "/", 0).await;
    world.is_untouched();
    world.holds.approve(&world.only().id, None, "alice").unwrap();
    assert_eq!(requester.await.unwrap().0, 200);
}
