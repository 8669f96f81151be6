//! Rules on requests: their actions, the targets of credentials, and recordings.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_relay::access_log::AccessLog;
use http_relay::upstream::UpstreamPolicy;
use keys::Secret;
use parking_lot::Mutex;
use proxy::policy::Policy;
use proxy::requests::{
    Fetched, Fetching, InjectText, RecordOptions, RequestRules, RewriteText, RuleText, SecretUnavailable,
    Secrets,
};
use proxy::{Options, Rules};

use crate::world::{Client, TIMEOUT, Upstream, World, exchange, head};

pub(crate) const CANARY: &str = "canary-4711-injected";

/// A store that has one credential or is unavailable.
#[derive(Debug, Default)]
pub(crate) struct Store {
    value: Mutex<Option<String>>,
    fetches: AtomicUsize,
}

impl Store {
    pub(crate) fn with(value: &str) -> Arc<Self> {
        Arc::new(Self { value: Mutex::new(Some(value.to_owned())), ..Self::default() })
    }
}

impl Secrets for Store {
    fn fetch<'a>(&'a self, path: &'a str, _: &'a [Vec<String>]) -> Fetching<'a> {
        self.fetches.fetch_add(1, Ordering::Relaxed);
        let value = self.value.lock().clone().map(Secret::new);
        Box::pin(async move {
            assert_eq!(path, "/team/api");
            let fetched = |value| Fetched { values: vec![value], version: Some("v1".to_owned()) };
            value.map(fetched).ok_or(SecretUnavailable::StoreUnavailable("it is a test".to_owned()))
        })
    }

    fn doubt(&self, _: &str) {}
}

pub(crate) fn list(all: &[&str]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

fn rule(path: &str) -> RuleText {
    RuleText { path: list(&[path]), ..RuleText::default() }
}

pub(crate) fn inject(host: &str, port: u16) -> RuleText {
    let credential = Some("/team/api".to_owned());
    // The upstream echoes the credential, so the test can check it in the response.
    let inject = InjectText { credential, port: vec![port], allow_echo: true, ..InjectText::default() };
    RuleText { host: list(&[host]), inject: Some(inject), ..RuleText::default() }
}

async fn world(upstream: &Upstream, rules: &[RuleText], change: impl FnOnce(&mut Options)) -> World {
    let rules = RequestRules::compile(rules).unwrap();
    World::new(&upstream.root, |options| {
        options.requests.rules = rules;
        change(options);
    })
    .await
}

/// Sends a GET request on a new connection.
async fn get(world: &World, target: &str, name: &str, path: &str, more: &str) -> String {
    let client = Client::of(&world.root, "http/1.1");
    let mut stream = world.tls(&client, target, name).await.unwrap();
    exchange(&mut stream, &format!("GET {path} HTTP/1.1\r\nHost: {name}\r\n{more}\r\n")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_block_redirect_rewrite_and_change_headers() {
    let upstream = Upstream::for_all().await;
    let of = |name: &str, value: &str| [(name.to_owned(), value.to_owned())].into();
    let port = upstream.address.port();
    let rules = [
        RuleText { block: Some(451), page: Some("<p>not here".into()), ..rule("/admin*") },
        RuleText {
            redirect: Some("https://b.example/x".into()),
            redirect_status: Some(308),
            ..rule("/moved")
        },
        RuleText {
            set_request_headers: of("X-Team", "ours"),
            remove_request_headers: list(&["X-Gone"]),
            set_response_headers: of("X-Seen", "by us"),
            rewrite: Some(RewriteText { path: Some("/old/".into()), to: Some("/new/".into()), host: None }),
            ..rule("/old/*")
        },
        RuleText { remove_response_headers: list(&["X-Seen"]), ..rule("/old/gone") },
        RuleText { response_type: list(&["text/*"]), block: Some(403), ..rule("/*") },
        RuleText {
            rewrite: Some(RewriteText { host: Some(format!("localhost:{port}")), ..RewriteText::default() }),
            host: list(&["*.a.example"]),
            delay_ms: Some(1),
            ..RuleText::default()
        },
    ];
    let world = world(&upstream, &rules, |_| {}).await;
    let target = format!("127.0.0.1:{port}");
    for spelling in ["/admin", "/%61dmin/x", "/x/../admin"] {
        let response = get(&world, &target, "b.example", spelling, "").await;
        assert!(
            response.starts_with("HTTP/1.1 451") && response.contains("<p>not here"),
            "{spelling}: {response}"
        );
        assert!(response.contains("content-type: text/html"), "{response}");
    }
    let response = get(&world, &target, "b.example", "/moved", "").await;
    assert!(
        response.starts_with("HTTP/1.1 308") && response.contains("location: https://b.example/x"),
        "{response}"
    );
    let more = "X-Team: theirs\r\nX-Gone: 1\r\nX-Team: twice\r\n";
    let response = get(&world, &target, "b.example", "/old/y?q=1", more).await;
    assert!(
        response.contains("GET /new/y?q=1 HTTP/1.1\n") && response.contains("x-team: ours\n"),
        "{response}"
    );
    assert!(
        !response.contains("theirs") && !response.contains("twice") && !response.contains("x-gone"),
        "{response}"
    );
    assert!(response.contains("x-seen: by us\r\n"), "{response}");
    let response = get(&world, &target, "b.example", "/old/gone", "").await;
    assert!(response.contains("GET /new/gone HTTP/1.1\n") && !response.contains("x-seen"), "{response}");
    // The rewritten host applies to the Host header and to the verification of the upstream.
    let response = get(&world, "127.0.0.1:1", "x.a.example", "/", "").await;
    assert!(response.contains(&format!("host: localhost:{port}\n")), "{response}");
}

#[tokio::test(flavor = "multi_thread")]
async fn credential_is_injected_only_for_the_host_of_its_rule() {
    let upstream = Upstream::for_all().await;
    let store = Store::with(CANARY);
    let secrets: Arc<dyn Secrets> = Arc::<Store>::clone(&store);
    let port = upstream.address.port();
    let world = world(&upstream, &[inject("localhost", port)], |options| {
        options.requests.secrets = Some(secrets);
    })
    .await;
    let target = format!("localhost:{port}");
    let response = get(&world, &target, "localhost", "/", "Authorization: mine\r\n").await;
    assert!(
        response.contains(&format!("authorization: Bearer {CANARY}\n")) && !response.contains("mine"),
        "{response}"
    );
    assert!(!get(&world, &target, "other.example", "/", "").await.contains("canary"));
    // A connection for another name does not receive the credential, although the request names the host.
    let client = Client::of(&world.root, "http/1.1");
    let mut stream = world.tls(&client, &target, "evil.example").await.unwrap();
    let response = exchange(&mut stream, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(response.starts_with("HTTP/1.1 421") && !response.contains("canary"), "{response}");
    // Another server does not receive the credential under that name, whatever its certificate.
    let elsewhere = format!("127.0.0.1:{port}");
    let response = get(&world, &elsewhere, "localhost", "/", "").await;
    assert!(response.starts_with("HTTP/1.1 421") && !response.contains("canary"), "{response}");
    // Over plain HTTP the proxy does not inject the credential. The proxy rejects TRACE.
    let mut stream = world.tcp().await;
    let response = exchange(&mut stream, "GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(response.starts_with("HTTP/1.1 403") && response.contains("plain HTTP"), "{response}");
    let mut stream = world.tls(&client, &target, "localhost").await.unwrap();
    let response = exchange(&mut stream, "TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(response.starts_with("HTTP/1.1 405") && !response.contains("canary"), "{response}");
    // Without the credential the proxy sends no request.
    *store.value.lock() = None;
    let made = upstream.made();
    let response = get(&world, &target, "localhost", "/", "").await;
    assert!(
        response.starts_with("HTTP/1.1 503") && response.contains("proxy-status: bulla; error="),
        "{response}"
    );
    assert!(!response.contains("/team/api"), "where it stands is nobody's business: {response}");
    assert_eq!(upstream.made(), made);
}

#[tokio::test(flavor = "multi_thread")]
async fn insecure_credential_is_not_injected_for_another_target() {
    let upstream = Upstream::for_all().await;
    let (port, plain) = (upstream.address.port(), crate::ways::plain().await);
    let mut rule = inject("localhost", port);
    let inject = rule.inject.as_mut().unwrap();
    (inject.insecure, inject.port) = (true, vec![port, plain]);
    let world = world(&upstream, &[rule], |options| {
        options.requests.secrets = Some(Store::with(CANARY));
        let policy = UpstreamPolicy { verify: false, ..UpstreamPolicy::default() };
        options.upstreams.add(&["localhost".to_owned(), "127.0.0.1".to_owned()], policy).unwrap();
    })
    .await;
    let (host, bearer) = ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", format!("Bearer {CANARY}"));
    for (server, status) in [("localhost", "200"), ("127.0.0.1", "421")] {
        // Plain HTTP after CONNECT: the host of the request may differ from the CONNECT target.
        let (_, mut stream) = world.connect(&format!("{server}:{plain}")).await;
        let response = exchange(&mut stream, host).await;
        assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{server}: {response}");
        assert_eq!(response.contains(&bearer), status == "200", "{server}: {response}");
        // TLS without verification: the SNI is only a claim of the client, too.
        let response = get(&world, &format!("{server}:{port}"), "localhost", "/", "").await;
        assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{server}: {response}");
        assert_eq!(response.contains(&bearer), status == "200", "{server}: {response}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn credential_is_injected_only_for_the_ports_of_its_rule() {
    let (upstream, other) = (Upstream::for_all().await, Upstream::for_all().await);
    let rules = [inject("localhost", upstream.address.port())];
    let world = world(&upstream, &rules, |options| {
        options.requests.secrets = Some(Store::with(CANARY));
        options.upstream_roots.push(other.root.clone());
    })
    .await;
    let of = |upstream: &Upstream| format!("localhost:{}", upstream.address.port());
    let response = get(&world, &of(&upstream), "localhost", "/", "").await;
    assert!(response.contains(CANARY), "{response}");
    let response = get(&world, &of(&other), "localhost", "/", "").await;
    assert!(response.starts_with("HTTP/1.1 421") && response.contains("port"), "{response}");
    assert_eq!(other.made(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn path_encodings_cannot_bypass_block_or_inject_rules() {
    let upstream = Upstream::for_all().await;
    let port = upstream.address.port();
    let rules = [
        RuleText { block: Some(451), ..rule("/admin*") },
        RuleText { block: Some(451), ..rule("/@evil/*") },
        RuleText { block: Some(451), ..rule("/caf%C3%A9") },
        RuleText { path: list(&["/v1/*"]), ..inject("localhost", port) },
    ];
    let world =
        world(&upstream, &rules, |options| options.requests.secrets = Some(Store::with(CANARY))).await;
    let target = format!("localhost:{port}");
    for (path, wanted) in [
        ("/v1//x/./y?a=//..", "GET /v1/x/y?a=//.. HTTP/1.1\n"),
        ("/v1/a%3bb%21/%7e", "GET /v1/a%3Bb%21/~ HTTP/1.1\n"),
        ("/v2//x", "GET /v2//x HTTP/1.1\n"),
        ("/v2/%2e%2e/x", "GET /x HTTP/1.1\n"),
        ("/v2/a%2Fb", "GET /v2/a%2Fb HTTP/1.1\n"),
    ] {
        let response = get(&world, &target, "localhost", path, "").await;
        assert!(response.contains(wanted), "{path}: {response}");
        assert_eq!(response.contains(CANARY), path.starts_with("/v1/"), "{path}: {response}");
    }
    for (path, status) in [
        ("/v1/x%2F..%2F..%2Fadmin", "400"),
        ("/v1/..;/admin", "400"),
        ("/v1/a%2fb", "400"),
        ("/v1/a\\b", "400"),
        ("/v1/a%00", "400"),
        ("/v1/%252e%252e/other", "400"),
        ("/v1/%252e%252e/admin", "451"),
        ("/v2/..%2fadmin", "400"),
        ("/v1//../admin", "451"),
        ("//admin", "451"),
        ("/%40evil/x", "451"),
        ("/caf\u{e9}", "451"),
        // Some servers decode these once more.
        ("/v2%2F%2Fx%2F", "200"),
        ("/%2Fadmin", "451"),
        ("/%5cadmin", "451"),
        ("/%252Fadmin", "451"),
        ("/%2561dmin", "451"),
        ("/v2/%252e%252e/admin", "451"),
        ("/v2/%25252e%25252e/%2561dmin", "451"),
        ("/@evil%2fx", "451"),
        ("/@evil;a=b/x", "451"),
        ("/caf%25C3%25A9%00.png", "451"),
    ] {
        let response = get(&world, &target, "localhost", path, "").await;
        assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {response}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_content_type_cannot_bypass_rules() {
    let upstream = Upstream::for_all().await;
    let rules = [RuleText { request_type: list(&["text/x"]), block: Some(451), ..RuleText::default() }];
    let world = world(&upstream, &rules, |_| {}).await;
    let target = format!("127.0.0.1:{}", upstream.address.port());
    for (headers, status) in [
        ("Content-Type: text/y\r\n", "200"),
        ("Content-Type: TEXT/x ; a=b\r\n", "451"),
        ("Content-Type: text/y\r\nContent-Type: text/x\r\n", "400"),
        ("Content-Type: text/y, text/x\r\n", "451"),
        // `Connection` names this header, so the proxy removes it before it applies the rules and asks the upstream.
        ("Content-Type: text/x\r\nConnection: content-type\r\n", "200"),
    ] {
        let response = get(&world, &target, "b.example", "/", headers).await;
        assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{headers}: {response}");
        assert!(status != "200" || !response.contains("text/x"), "{response}");
    }
}

/// Waits until the file has the wanted content, and returns that.
pub(crate) async fn until(path: &Path, wanted: impl Fn(&str) -> bool) -> String {
    let began = std::time::Instant::now();
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if wanted(&text) {
            return text;
        }
        assert!(began.elapsed() < TIMEOUT, "{}: {text}", path.display());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Waits for `count` recorded entries, and returns them all. A recording has two files if an hour ends during the test.
pub(crate) async fn recorded(folder: &Path, count: usize) -> (String, Vec<serde_json::Value>) {
    let began = std::time::Instant::now();
    loop {
        let mut files: Vec<_> =
            std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let text: Vec<String> = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
        let all: Vec<serde_json::Value> =
            text.iter().filter_map(|text| serde_json::from_str(text).ok()).collect();
        let entries: Vec<serde_json::Value> =
            all.iter().flat_map(|one| one["log"]["entries"].as_array().unwrap().clone()).collect();
        if entries.len() == count {
            for one in &all {
                let creator = &one["log"]["creator"]["name"];
                assert_eq!((&one["log"]["version"], creator), (&"1.2".into(), &"bulla".into()));
            }
            return (text.concat(), entries);
        }
        assert!(began.elapsed() < TIMEOUT, "{text:?}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_logged_and_recorded_as_har_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let (har, log) = (folder.path().join("har"), folder.path().join("access.log"));
    let upstream = Upstream::for_all().await;
    let record = RecordOptions {
        folder: har.clone(),
        body_bytes_max: 16,
        bytes_max: 1 << 20,
        redact_headers: list(&["X-Mine"]),
        redact_query: list(&["token"]),
    };
    let port = upstream.address.port();
    let rules =
        [RuleText { name: "seen".into(), record: true, ..RuleText::default() }, inject("localhost", port)];
    let world = world(&upstream, &rules, |options| {
        options.requests.secrets = Some(Store::with(CANARY));
        options.requests.record = Some(record);
        options.requests.access_log = Some(AccessLog::File(log.clone()));
    })
    .await;
    let target = format!("127.0.0.1:{port}");
    let client = Client::of(&world.root, "http/1.1");
    let mut stream = world.tls(&client, &target, "b.example").await.unwrap();
    let body = "0123456789abcdefghij";
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let request = format!(
        "POST /x?token=hidden-1&b=2 HTTP/1.1\r\nHost: b.example\r\nAuthorization: hidden-2\r\nCookie: hidden-3\r\nX-Mine: hidden-4\r\n\
         Content-Type: text/plain\r\ntraceparent: 00-{trace}-b7ad6b7169203331-01\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let response = exchange(&mut stream, &request).await;
    assert!(response.contains("hidden-4"), "the server has it all: {response}");
    exchange(&mut stream, "GET /again HTTP/1.1\r\nHost: b.example\r\n\r\n").await;
    get(&world, &format!("localhost:{port}"), "localhost", "/secret", "").await;
    let text = until(&log, |text| text.lines().count() == 3).await;
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let first = &lines[0];
    assert_eq!(
        (&first["method"], &first["host"], &first["path"]),
        (&"POST".into(), &"b.example".into(), &"/x".into())
    );
    assert_eq!((&first["status"], &first["octets_up"]), (&200.into(), &20.into()));
    assert_eq!((&first["upstream"], &first["rules"]), (&"new".into(), &serde_json::json!(["seen"])));
    assert_eq!((&first["trace_id"], &first["client"]), (&trace.into(), &"127.0.0.1".into()));
    assert_eq!(lines[1]["upstream"], "kept");
    assert!(first["octets_down"].as_u64() > Some(20), "{first}");
    let (recorded, entries) = recorded(&har, 3).await;
    for entry in &entries {
        for key in ["startedDateTime", "time", "request", "response", "cache", "timings"] {
            assert!(!entry[key].is_null(), "{key}: {entry}");
        }
    }
    let entry = &entries[0];
    assert_eq!(entry["request"]["url"], "https://b.example/x?token=[redacted]&b=2");
    assert_eq!(entry["request"]["queryString"][1], serde_json::json!({ "name": "b", "value": "2" }));
    assert_eq!(entry["request"]["postData"]["text"], "0123456789abcdef");
    assert_eq!((&entry["request"]["bodySize"], &entry["response"]["status"]), (&20.into(), &200.into()));
    // The 16 bytes end where the token of the query starts.
    assert_eq!(entry["response"]["content"]["text"], "POST /x?token=[redacted]");
    let answered = entries[2]["response"]["content"]["text"].as_str().unwrap();
    assert!(answered.starts_with("GET /secret"), "{answered}");
    assert!(entries[2]["request"]["headers"].to_string().contains("[redacted]"), "{}", entries[2]);
    for (what, text) in [("the log", &text), ("the recording", &recorded)] {
        assert!(!text.contains("hidden") && !text.contains("canary"), "{what}: {text}");
    }
    // After the log file is moved away, the proxy creates it again.
    std::fs::rename(&log, folder.path().join("old.log")).unwrap();
    world.running.reopen();
    until(&log, |_| log.exists()).await;
    exchange(&mut stream, "GET /third HTTP/1.1\r\nHost: b.example\r\n\r\n").await;
    until(&log, |text| text.contains("/third")).await;
    // The new rules reject this CONNECT.
    let mut names = Rules::new(proxy::Action::Intercept);
    names.add(&list(&["no.example"]), proxy::Action::Reject).unwrap();
    world.running.change_rules(names, Policy::default(), RequestRules::default(), None);
    let (response, _) = world.connect("no.example:443").await;
    assert!(response.starts_with("HTTP/1.1 403"), "{response}");
    let text = until(&log, |text| text.contains("no.example:443")).await;
    assert!(text.contains("\"method\":\"CONNECT\"") && text.contains("\"status\":403"), "{text}");
    // Shutdown writes all pending log lines.
    let last = b"GET /last HTTP/1.1\r\nHost: b.example\r\nConnection: close\r\n\r\n";
    testbed::write_and_flush(&mut stream, last).await.unwrap();
    head(&mut stream).await;
    drop(stream);
    assert!(world.running.stop(TIMEOUT).await);
    assert!(std::fs::read_to_string(&log).unwrap().contains("/last"));
}

#[tokio::test(flavor = "multi_thread")]
async fn recording_and_logged_rules_depend_on_the_response() {
    let folder = tempfile::tempdir().unwrap();
    let (har, log) = (folder.path().join("har"), folder.path().join("access.log"));
    let upstream = Upstream::for_all().await;
    let of_type = |name: &str, kind: &str, record| RuleText {
        name: name.into(),
        response_type: list(&[kind]),
        record,
        set_response_headers: [("X-Seen".to_owned(), name.to_owned())].into(),
        ..RuleText::default()
    };
    let rules = [
        RuleText { block: Some(403), ..rule("/blocked") },
        of_type("pages", "text/html", true),
        of_type("problems", "application/problem+json", false),
        RuleText { record: true, name: "all".into(), ..rule("/seen") },
    ];
    let world = world(&upstream, &rules, |options| {
        options.requests.record = Some(RecordOptions {
            folder: har.clone(),
            body_bytes_max: 16,
            bytes_max: 1 << 20,
            redact_headers: Vec::new(),
            redact_query: Vec::new(),
        });
        options.requests.access_log = Some(AccessLog::File(log.clone()));
    })
    .await;
    let target = format!("127.0.0.1:{}", upstream.address.port());
    // Neither the proxy's own response nor the upstream's is `text/html`.
    get(&world, &target, "b.example", "/blocked", "").await;
    get(&world, &target, "b.example", "/other", "").await;
    get(&world, &target, "b.example", "/seen", "").await;
    let (_, entries) = recorded(&har, 1).await;
    assert_eq!(entries[0]["request"]["url"], "https://b.example/seen");
    assert_eq!(entries[0]["_rules"], serde_json::json!(["all"]));
    // The log names a rule that matches the response, and truncates a long method.
    let blocks = RuleText { name: "later".into(), block: Some(403), ..of_type("", "text/*", false) };
    let typed = RequestRules::compile(&[blocks]).unwrap();
    world.running.change_rules(Rules::default(), Policy::default(), typed, None);
    let typed = crate::ways::typed("text/html").await;
    let (_, mut stream) = world.connect(&format!("localhost:{typed}")).await;
    let method = "M".repeat(1_000);
    let response =
        exchange(&mut stream, &format!("{method} /typed HTTP/1.1\r\nHost: localhost\r\n\r\n")).await;
    assert!(response.starts_with("HTTP/1.1 403"), "{response}");
    let text = until(&log, |text| text.contains("/typed")).await;
    let line: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!((&line["rules"], &line["method"]), (&serde_json::json!(["later"]), &"M".repeat(32).into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_rules_apply_from_the_next_request_without_failures() {
    let upstream = Upstream::for_all().await;
    let of = |value: &str| {
        let set = [("X-Rule".to_owned(), value.to_owned())].into();
        RequestRules::compile(&[RuleText { set_request_headers: set, ..RuleText::default() }]).unwrap()
    };
    let world = Arc::new(World::new(&upstream.root, |options| options.requests.rules = of("0")).await);
    let target = format!("127.0.0.1:{}", upstream.address.port());
    let client = Client::of(&world.root, "http/1.1");
    let mut askers = Vec::new();
    for _ in 0..8 {
        let mut stream = world.tls(&client, &target, "b.example").await.unwrap();
        askers.push(tokio::spawn(async move {
            for _ in 0..100 {
                let response = exchange(&mut stream, "GET / HTTP/1.1\r\nHost: b.example\r\n\r\n").await;
                assert!(response.starts_with("HTTP/1.1 200") && response.contains("x-rule: "), "{response}");
            }
            stream
        }));
    }
    let mut time = 0;
    while time < 50 || !askers.iter().all(tokio::task::JoinHandle::is_finished) {
        time += 1;
        world.running.change_rules(Rules::default(), Policy::default(), of(&time.to_string()), None);
        tokio::task::yield_now().await;
    }
    world.running.change_rules(Rules::default(), Policy::default(), of("last"), None);
    for asker in askers {
        let mut stream = asker.await.unwrap();
        let response = exchange(&mut stream, "GET / HTTP/1.1\r\nHost: b.example\r\n\r\n").await;
        assert!(response.contains("x-rule: last\n"), "a connection that was there: {response}");
    }
}
