//! The agent gateway: `bulla proxy` with a policy, curl as the agent, and a server that echoes requests.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use data_encoding::{BASE64URL_NOPAD, HEXUPPER};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;
use testbed::{TIMEOUT, until_blocking};

use crate::key_service::Fixture;
use crate::proxy::{Proxy, World as ProxyWorld, curl, proxy_command};
use crate::world::{bulla, describe, run, stderr, stdout};

pub(crate) const SECRET: &str = "canary-of-the-gateway-81f4";

/// The heads of all requests that the server received.
pub(crate) type Seen = Arc<Mutex<Vec<String>>>;

/// Returns the TLS configuration of a server with these files.
pub(crate) fn server_config(certificate: &Path, key: &Path) -> Arc<ServerConfig> {
    let chain = CertificateDer::pem_file_iter(certificate).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(key).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    Arc::new(config)
}

/// Starts a server at `localhost` and 127.0.0.1. It speaks TLS and plain HTTP on one port, and echoes requests.
fn echo(certificate: &Path, key: &Path, seen: &Seen) -> u16 {
    let (listener, config) = (TcpListener::bind("127.0.0.1:0").unwrap(), server_config(certificate, key));
    let (port, seen) = (listener.local_addr().unwrap().port(), Arc::clone(seen));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (config, seen) = (Arc::clone(&config), Arc::clone(&seen));
            std::thread::spawn(move || {
                let mut first = [0];
                let is_tls = stream.peek(&mut first).is_ok_and(|read| read == 1) && first == [0x16];
                match is_tls {
                    true => say(StreamOwned::new(ServerConnection::new(config).unwrap(), stream), &seen),
                    false => say(stream, &seen),
                }
            });
        }
    });
    port
}

fn say(mut stream: impl Read + Write, seen: &Seen) {
    let head = head(&mut stream);
    seen.lock().unwrap().push(String::from_utf8_lossy(&head).into_owned());
    if head.starts_with(b"GET /repos/endless ") {
        let _ =
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n").and_then(|()| stream.flush());
        let _ = stream.read(&mut [0]);
        return;
    }
    let has_old = String::from_utf8_lossy(&head).contains(SECRET);
    if head.starts_with(b"GET /repos/rotating ") && has_old {
        let _ =
            stream.write_all(b"HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        let _ = stream.flush();
        return;
    }
    let answer = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", head.len());
    let _ = stream
        .write_all(answer.as_bytes())
        .and_then(|()| stream.write_all(&head))
        .and_then(|()| stream.flush());
}

pub(crate) struct World {
    pub(crate) fixture: Fixture,
    pub(crate) port: u16,
    pub(crate) seen: Seen,
}

impl World {
    pub(crate) fn new() -> Self {
        let fixture = Fixture::new();
        fixture.certified("DNS:localhost,IP:127.0.0.1");
        let secret = fixture.path("secret");
        std::fs::write(&secret, SECRET).unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        let seen = Seen::default();
        let port = echo(&fixture.path("up.pem"), &fixture.path("up.key"), &seen);
        Self { fixture, port, seen }
    }

    /// Returns the configuration of two agents with `more` rules. Only `ci` has the credential.
    pub(crate) fn configuration(&self, networks: &str, more: &str) -> String {
        let (port, secret) = (self.port, self.fixture.path("secret").display().to_string());
        let digest = |name: &str| x509::Fingerprint::of(format!("token-of-{name}").as_bytes());
        format!(
            "[proxy]\nupstream_ca_files = [\"ca.pem\"]\n\
             [proxy.requests]\naccess_log_file = \"access.log\"\n\
             [proxy.access]\ntokens = [{{ name = \"ci\", sha256 = \"{}\" }}, {{ name = \"other\", sha256 = \"{}\" }}]\n\
             [proxy.policy]\ndefault = \"deny\"\nallow_networks = [{networks}]\n\
             [[proxy.policy.identities]]\nname = \"ci\"\nteams = [\"platform\"]\nusers = [\"ci\"]\n\
             [[proxy.policy.identities]]\nname = \"other\"\nteams = [\"platform\"]\nusers = [\"other\"]\n\
             budget = {{ requests_per_minute = 3 }}\n\
             [[proxy.policy.rules]]\nname = \"no-keys\"\nhost = [\"localhost\"]\nport = [{port}]\npath = [\"/repos/*/keys\"]\naction = \"deny\"\n\
             [[proxy.policy.rules]]\nname = \"read\"\nteams = [\"platform\"]\nhost = [\"localhost\"]\nport = [{port}]\n\
             method = [\"GET\"]\npath = [\"/repos/**\"]\n\
             {more}\n\
             [[proxy.rules]]\nname = \"token\"\nhost = [\"localhost\"]\n\
             inject = {{ file = \"{secret}\", identities = [\"ci\"], port = [{port}], allow_echo = true }}\n",
            digest("ci"),
            digest("other")
        )
    }

    pub(crate) fn start(&self, configuration: &str) -> Proxy {
        std::fs::write(self.fixture.path("bulla.toml"), configuration).unwrap();
        let mut command = proxy_command(&self.fixture);
        command.args(["--config", "bulla.toml"]);
        ProxyWorld::start(&mut command)
    }

    /// Sends a request as `who`, as agents do: with name and token in the proxy URL.
    pub(crate) fn curl(&self, proxy: &Proxy, who: &str, arguments: &[&str]) -> RequestSeen {
        let address = proxy.address.replace("http://", &format!("http://{who}:token-of-{who}@"));
        let mut command = curl(&address, &self.authority());
        command.args(["-w", "\n%{http_connect} %{http_code}"]).args(arguments);
        let output = command.output().unwrap_or_else(|error| panic!("apt-get install -y curl ({error})"));
        let printed = stdout(&output);
        let (body, codes) = printed.rsplit_once('\n').unwrap_or(("", &printed));
        let (connect, status) = codes.split_once(' ').unwrap_or_default();
        RequestSeen { body: body.to_owned(), connect: connect.to_owned(), status: status.to_owned(), output }
    }

    /// Starts TLS with the proxy, as `localhost`.
    pub(crate) fn intercepted(&self, stream: TcpStream) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.authority()).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = "localhost".try_into().unwrap();
        StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream)
    }

    /// Returns the configuration with an audit log.
    pub(crate) fn audited(&self) -> String {
        let text = self.configuration("\"127.0.0.0/8\", \"::1/128\"", "");
        text.replacen("[proxy.requests]\n", "[proxy.requests]\naudit_file = \"audit.jsonl\"\n", 1)
    }

    pub(crate) fn verify(&self) -> Output {
        let mut verify = bulla();
        run(verify.current_dir(self.fixture.folder.path()).args([
            "audit",
            "verify",
            "--export",
            "audit.jsonl",
        ]))
    }

    /// Makes the running proxy load another configuration.
    pub(crate) fn change(&self, proxy: &Proxy, configuration: &str) {
        std::fs::write(self.fixture.path("bulla.toml"), configuration).unwrap();
        let mut kill = Command::new("kill");
        assert!(kill.args(["-HUP", &proxy.process_id().to_string()]).status().unwrap().success());
    }

    pub(crate) fn authority(&self) -> PathBuf {
        self.fixture.path("data/proxy-ca.pem")
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.port)
    }

    fn log(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.fixture.path("access.log")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    fn logged(&self, is_it: impl Fn(&Value) -> bool) -> Value {
        let mut found = None;
        until_blocking("the line is in the log", || {
            found = self.log().into_iter().find(|line| is_it(line));
            found.is_some()
        });
        found.unwrap()
    }
}

/// The result that curl got.
pub(crate) struct RequestSeen {
    pub(crate) body: String,
    pub(crate) connect: String,
    pub(crate) status: String,
    pub(crate) output: Output,
}

impl RequestSeen {
    #[track_caller]
    pub(crate) fn is_sent(&self) -> &Self {
        assert!(self.status == "200" && self.body.contains("HTTP/1.1"), "{}", describe(&self.output));
        self
    }

    /// Checks that the proxy rejects the request, and returns the problem document.
    #[track_caller]
    pub(crate) fn is_refused(&self, status: &str) -> Value {
        assert!(self.status == status, "{}", describe(&self.output));
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", describe(&self.output)))
    }

    #[track_caller]
    fn is_refused_at_connect(&self) {
        assert!(self.connect == "403" && self.status == "000", "{}", describe(&self.output));
    }
}

/// Returns the metrics of the proxy.
pub(crate) fn figures(proxy: &Proxy) -> String {
    let address = proxy.figures.trim_start_matches("http://").trim_end_matches("/metrics").to_owned();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut printed = String::new();
    let _ = stream.read_to_string(&mut printed);
    printed
}

/// Connects to the proxy, sends `request`, a method and a target, as `who`, and waits for the response.
pub(crate) fn exchange(proxy: &Proxy, who: &str, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(proxy.address.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let (_, target) = request.split_once(' ').unwrap();
    let host = target.trim_start_matches("http://").split('/').next().unwrap();
    let credential = format!("Proxy-Authorization: Bearer token-of-{who}");
    is_answered(&mut stream, &format!("{request} HTTP/1.1\r\nHost: {host}\r\n{credential}\r\n\r\n"));
    stream
}

#[track_caller]
fn is_answered(stream: &mut (impl Read + Write), request: &str) {
    stream.write_all(request.as_bytes()).unwrap();
    let head = head(stream);
    assert!(head.starts_with(b"HTTP/1.1 200"), "{request}: {}", String::from_utf8_lossy(&head));
}

/// Reads the head of a message, to its empty line or to the end of the stream.
pub(crate) fn head(stream: &mut impl Read) -> Vec<u8> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
        head.push(byte[0]);
    }
    head
}

/// Waits until a connection is closed. Without a close it may be idle for ten minutes.
#[track_caller]
fn is_closed(stream: &mut impl Read) {
    let ended = stream.read(&mut [0]);
    let is_reset = |error: &std::io::Error| {
        matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof)
    };
    assert!(matches!(ended, Ok(0)) || ended.as_ref().is_err_and(is_reset), "{ended:?}");
}

#[test]
fn agent_requests_are_limited_to_allowed_rules_and_budget() {
    let world = World::new();
    let proxy = world.start(&world.configuration("\"127.0.0.0/8\", \"::1/128\"", ""));
    let fetch = |who, arguments: &[&str]| world.curl(&proxy, who, arguments);
    let (read, keys, root) = (world.url("/repos/o/r"), world.url("/repos/r/keys"), world.url("/"));
    for version in ["--http1.1", "--http2"] {
        let sent = fetch("ci", &[version, &read]);
        assert!(
            sent.is_sent().body.to_lowercase().contains(&format!("authorization: bearer {SECRET}")),
            "{}",
            sent.body
        );
        // Rejected by method, by path, by a deny rule, and for paths that servers interpret differently.
        let problem = fetch("ci", &[version, "-X", "PUT", &read]).is_refused("403");
        assert_eq!(problem["reason"], "default");
        assert!(
            problem["detail"].as_str().unwrap().contains("denies identity ci PUT /repos/o/r on localhost"),
            "{problem}"
        );
        assert!(problem["advice"].as_str().unwrap().contains("bulla proxy explain"), "{problem}");
        fetch("ci", &[version, &root]).is_refused("403");
        assert_eq!(fetch("ci", &[version, &keys]).is_refused("403")["rule"], "no-keys");
        for path in
            ["/repos/../user", "/repos/%2e%2e/user", "/repos/r%2Fkeys", "/repos//keys", "/repos/r/keys%00"]
        {
            let problem = fetch("ci", &[version, "--path-as-is", &world.url(path)]).is_refused("403");
            assert_eq!(problem["reason"], "ambiguous-path", "{path} {problem}");
        }
    }
    let html = fetch("ci", &["-H", "Accept: text/html", "-X", "PUT", "-i", &read]);
    assert!(
        html.status == "403" && html.body.contains("text/html") && html.body.contains("<h1>"),
        "{}",
        html.body
    );
    // The other identity does not get the credential, and its own header is forwarded.
    let sent = fetch("other", &["-H", "Authorization: Bearer own", &read]);
    assert!(!sent.is_sent().body.contains(SECRET) && sent.body.contains("Bearer own"), "{}", sent.body);
    // The budget is three requests a minute. On a slow machine, it grows by another request meanwhile.
    fetch("other", &[&read]).is_sent();
    fetch("other", &[&read]).is_sent();
    let spent = (0..50).map(|_| fetch("other", &["-i", &read])).find(|printed| printed.status == "429");
    let spent = spent.expect("the budget is spent");
    assert!(spent.body.to_lowercase().contains("retry-after: "), "{}", spent.body);
    // Each decision is in the log, without the credential.
    let allowed = world.logged(|line| line["status"] == 200);
    assert_eq!(
        (&allowed["identity"], &allowed["decision"], &allowed["policy_rule"]),
        (&"ci".into(), &"allow".into(), &"read".into())
    );
    assert_eq!(
        allowed["credentials"][0].as_str().unwrap(),
        world.fixture.path("secret").display().to_string()
    );
    assert!(allowed["octets_down"].as_u64().unwrap() > 0, "{allowed}");
    let denied = world.logged(|line| line["policy_rule"] == "no-keys");
    assert_eq!(
        (&denied["decision"], &denied["status"], &denied["method"]),
        (&"deny".into(), &403.into(), &"GET".into())
    );
    assert!(!std::fs::read_to_string(world.fixture.path("access.log")).unwrap().contains(SECRET));
}

#[test]
fn host_mismatch_raw_addresses_and_plain_http_follow_the_policy() {
    let world = World::new();
    let port = world.port;
    let proxy = world.start(&world.configuration("\"127.0.0.0/8\", \"::1/128\"", ""));
    let fetch = |arguments: &[&str]| world.curl(&proxy, "ci", arguments);
    // CONNECT to the allowed host with another name in TLS. Then another Host header on a correct connection.
    let fronted = format!("https://evil.test:{port}/repos/o");
    let problem =
        fetch(&["--connect-to", &format!("evil.test:{port}:localhost:{port}"), &fronted]).is_refused("403");
    assert_eq!(problem["reason"], "host-mismatch");
    let problem = fetch(&["-H", "Host: evil.test", &world.url("/repos/o")]).is_refused("421");
    assert_eq!(problem["reason"], "host-mismatch");
    // Hosts and ports without a rule are rejected before DNS resolution, for CONNECT and SOCKS5.
    fetch(&["https://evil.test/"]).is_refused_at_connect();
    fetch(&[&format!("https://127.0.0.1:{port}/repos/o")]).is_refused_at_connect();
    fetch(&[&format!("https://[::ffff:127.0.0.1]:{port}/repos/o")]).is_refused_at_connect();
    fetch(&["https://localhost/repos/o"]).is_refused_at_connect();
    let socks = proxy.address.replace("http://", "socks5h://ci:token-of-ci@");
    let by_socks = |url: &str| {
        let output = run(curl(&socks, &world.authority()).arg(url));
        (output.status.success(), describe(&output))
    };
    let (ok, printed) = by_socks(&world.url("/repos/o"));
    assert!(ok && printed.contains(SECRET), "{printed}");
    let (ok, printed) = by_socks("https://evil.test/");
    assert!(!ok && !printed.contains("HTTP/1.1"), "{printed}");
    let (ok, printed) = by_socks(&world.url("/user"));
    assert!(ok && printed.contains("\"reason\":\"default\""), "{printed}");
    // Plain HTTP follows the same rules, and gets no credential.
    fetch(&["http://evil.test/"]).is_refused("403");
    fetch(&[&format!("http://localhost:{port}/user")]).is_refused("403");
    fetch(&["-X", "PUT", &format!("http://localhost:{port}/repos/o")]).is_refused("403");
    let plain = fetch(&[&format!("http://localhost:{port}/repos/o")]);
    assert!(!plain.body.contains(SECRET), "{}", plain.body);
    // A WebSocket is treated as a GET.
    let upgrade = ["-H", "Upgrade: websocket", "-H", "Connection: Upgrade", "--http1.1"];
    fetch(&[&upgrade[..], &[&*world.url("/user")]].concat()).is_refused("403");
}

#[test]
fn credential_is_sent_only_to_its_host_and_tunnel_needs_pathless_rule() {
    let world = World::new();
    let port = world.port;
    let more = format!(
        "[[proxy.policy.rules]]\nname = \"address\"\nidentities = [\"ci\"]\nhost = [\"127.0.0.1\"]\nport = [{port}]\n"
    );
    let configuration = world.configuration("\"127.0.0.0/8\", \"::1/128\"", &more);
    let proxy = world.start(&configuration);
    let address = format!("https://127.0.0.1:{port}/repos/o");
    let sent = world.curl(&proxy, "ci", &[&address]);
    assert!(!sent.is_sent().body.contains(SECRET), "{}", sent.body);
    assert!(world.curl(&proxy, "ci", &[&world.url("/repos/o")]).is_sent().body.contains(SECRET));
    drop(proxy);
    // Both hosts are now tunneled. The rules of `localhost` need method and path, which a tunnel does not show.
    let tunnels =
        configuration.replacen("[proxy]\n", "[proxy]\ntunnel = [\"localhost\", \"127.0.0.1\"]\n", 1);
    let proxy = world.start(&tunnels);
    let ca = world.fixture.path("ca.pem");
    let ca = ["--cacert", ca.to_str().unwrap()];
    world.curl(&proxy, "ci", &[&ca[..], &[&*world.url("/repos/o")]].concat()).is_refused_at_connect();
    world.curl(&proxy, "ci", &[&ca[..], &[&*address]].concat()).is_sent();
    let line = world.logged(|line| line["reason"] == "not-intercepted");
    assert_eq!((&line["decision"], &line["policy_rule"]), (&"deny".into(), &"no-keys".into()));
}

#[test]
fn tunnel_is_closed_when_the_policy_no_longer_allows_it() {
    let world = World::new();
    let port = world.port;
    let more =
        format!("[[proxy.policy.rules]]\nidentities = [\"ci\"]\nhost = [\"127.0.0.1\"]\nport = [{port}]\n");
    let configured = |more: &str| {
        let text = world.configuration("\"127.0.0.0/8\"", more);
        text.replacen("[proxy]\n", "[proxy]\ntunnel = [\"127.0.0.1\"]\n", 1)
    };
    let proxy = world.start(&configured(&more));
    let mut stream = exchange(&proxy, "ci", &format!("CONNECT 127.0.0.1:{port}"));
    world.change(&proxy, &configured(""));
    is_closed(&mut stream);
}

#[test]
fn open_connections_close_when_token_or_identity_is_removed() {
    let world = World::new();
    let port = world.port;
    let more =
        format!("[[proxy.policy.rules]]\nteams = [\"platform\"]\nhost = [\"127.0.0.1\"]\nport = [{port}]\n");
    let text = world.configuration("\"127.0.0.0/8\", \"::1/128\"", &more);
    let text = text.replacen("[proxy]\n", "[proxy]\ntunnel = [\"127.0.0.1\"]\n", 1);
    let proxy = world.start(&text);
    // Requests in progress whose responses never end, and a tunnel.
    let tunnel = format!("CONNECT 127.0.0.1:{port}");
    let endless = |who| {
        let stream = exchange(&proxy, who, &format!("CONNECT localhost:{port}"));
        let mut stream = world.intercepted(stream);
        is_answered(&mut stream, &format!("GET /repos/endless HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n"));
        stream
    };
    let (mut of_ci, mut of_other) = (endless("ci"), endless("other"));
    let mut plain = exchange(&proxy, "ci", &format!("GET http://127.0.0.1:{port}/repos/endless"));
    let (mut tunnel_of_ci, mut tunnel_of_other) =
        (exchange(&proxy, "ci", &tunnel), exchange(&proxy, "other", &tunnel));
    // A new token replaces the old one under the same name.
    let digest = |value: &str| x509::Fingerprint::of(value.as_bytes()).to_string();
    let rotated = text.replacen(&digest("token-of-ci"), &digest("new-token"), 1);
    world.change(&proxy, &rotated);
    is_closed(&mut of_ci);
    is_closed(&mut plain);
    is_closed(&mut tunnel_of_ci);
    assert_eq!(world.curl(&proxy, "ci", &[&world.url("/repos/o")]).connect, "407");
    is_answered(&mut tunnel_of_other, &format!("GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"));
    // An identity is removed, while its token remains.
    let identity = rotated.find("[[proxy.policy.identities]]\nname = \"other\"").unwrap();
    let rules = rotated.find("[[proxy.policy.rules]]").unwrap();
    let mut without = rotated.clone();
    without.replace_range(identity..rules, "");
    world.change(&proxy, &without);
    is_closed(&mut of_other);
}

#[test]
fn audit_log_has_every_decision_and_detects_altered_events() {
    let world = World::new();
    let text = world.audited();
    let read = || -> Vec<Value> {
        let text = std::fs::read_to_string(world.fixture.path("audit.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let proxy = world.start(&text);
    let sent = world.curl(&proxy, "ci", &[&world.url("/repos/o")]);
    sent.is_sent();
    // The decision is written before the request is sent. Only the outcome needs a wait, and no shutdown of the proxy.
    until_blocking("the outcome is written", || read().len() == 2);
    drop(proxy);
    let proxy = world.start(&text);
    world.curl(&proxy, "ci", &["-X", "PUT", &world.url("/repos/o")]).is_refused("403");
    world.curl(&proxy, "other", &["https://evil.test/"]).is_refused_at_connect();
    let mut events = read();
    let outcome = events.remove(1);
    let is = |at: usize, action: &str, actor: &str, details: Value| {
        let event = &events[at];
        assert_eq!((&event["action"], &event["actor"]), (&action.into(), &actor.into()), "{event}");
        for (key, value) in details.as_object().unwrap() {
            assert_eq!(&event["details"][key], value, "{event}");
        }
    };
    let secret = world.fixture.path("secret").display().to_string();
    let (path, port) = ("/repos/o", world.port);
    let body = sent.body.len() as u64;
    let written = std::fs::metadata(&secret).unwrap().modified().unwrap();
    let version = jiff::Timestamp::try_from(written).unwrap().to_string();
    let credentials = serde_json::json!([{ "name": secret, "version": version }]);
    let sent = serde_json::json!({ "credentials": credentials, "method": "GET", "path": path, "rule": "read", "sent": true });
    is(0, "proxy.request.allow", "identity:ci", sent);
    assert_eq!(events[0]["resource"], format!("localhost:{port}"));
    let refused =
        serde_json::json!({ "credentials": [], "method": "PUT", "reason": "default", "sent": false });
    is(1, "proxy.request.deny", "identity:ci", refused);
    is(2, "proxy.connection.deny", "identity:other", serde_json::json!({ "sent": false }));
    // The outcome refers to the decision by its id.
    let id = events[0]["details"]["request"].as_str().unwrap().to_owned();
    assert_eq!(
        (&outcome["action"], &outcome["actor"], &outcome["resource"]),
        (&"proxy.request.outcome".into(), &"identity:ci".into(), &events[0]["resource"])
    );
    let certificate = CertificateDer::from_pem_file(world.fixture.path("up.pem")).unwrap();
    let server_key = x509::Certificate::parse(&certificate).unwrap().public_key.spki_sha256.to_string();
    for (key, value) in [
        ("request", Value::from(id.as_str())),
        ("status", 200.into()),
        ("bytes_from_client", 0.into()),
        ("bytes_to_client", body.into()),
        ("complete", true.into()),
        ("reason", Value::Null),
        ("server_key_sha256", server_key.into()),
    ] {
        assert_eq!(outcome["details"][key], value, "{key}: {outcome}");
    }
    assert!(outcome["details"]["duration_ms"].is_u64(), "{outcome}");
    let list = |arguments: &[&str]| {
        let mut list = bulla();
        list.current_dir(world.fixture.folder.path()).args(["audit", "list", "--export", "audit.jsonl"]);
        let output = run(list.args(["--output", "jsonl"]).args(arguments));
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    assert_eq!(list(&["--request", &id]), [outcome, events[0].clone()], "the last one first");
    assert_eq!(list(&["--actor", "identity:other"]), [events[2].clone()]);
    assert_eq!(list(&["--limit", "1"]), [events[2].clone()]);
    let top = |arguments: &[&str]| {
        let mut top = bulla();
        top.current_dir(world.fixture.folder.path()).env("HOME", world.fixture.folder.path());
        top.args(["proxy", "top", "--config", "bulla.toml", "--once"]);
        stdout(&run(top.args(arguments)))
    };
    let all = top(&[]);
    let of_ci = all.lines().next().unwrap_or_default();
    assert!(
        of_ci.contains(&format!("GET localhost:{port}/repos/o  (read)")) && of_ci.contains("  200  "),
        "{all}"
    );
    assert_eq!(all.lines().count(), 3, "{all}");
    assert!(
        top(&["--denied", "--actor", "other"])
            .ends_with("deny      -       -       -         -         CONNECT evil.test:443\n"),
        "{all}"
    );
    assert_eq!(top(&["--find", "PUT "]).lines().count(), 1);
    let audit = std::fs::read_to_string(world.fixture.path("audit.jsonl")).unwrap();
    assert!(!audit.contains(SECRET));
    let verified = world.verify();
    assert!(verified.status.success(), "{}", describe(&verified));
    // An altered event is detected.
    std::fs::write(world.fixture.path("audit.jsonl"), audit.replacen("identity:other", "identity:nobody", 1))
        .unwrap();
    let verified = world.verify();
    assert!(!verified.status.success() && describe(&verified).contains("altered"), "{}", describe(&verified));
}

#[test]
fn sent_credentials_are_in_the_audit_log_even_after_sigkill() {
    let world = World::new();
    let text = world.audited();
    let proxy = world.start(&text);
    let address = proxy.address.replace("http://", "http://ci:token-of-ci@");
    let mut many = curl(&address, &world.authority());
    many.args(["--parallel", "--output", "/dev/null", &world.url("/repos/[1000-1999]")])
        .stderr(Stdio::null());
    let mut many = many.spawn().unwrap();
    until_blocking("many were sent", || world.seen.lock().unwrap().len() >= 100);
    // Kills the proxy with SIGKILL while requests are in progress.
    drop(proxy);
    let _ = many.kill();
    let _ = many.wait();
    let audit = std::fs::read_to_string(world.fixture.path("audit.jsonl")).unwrap();
    let seen = world.seen.lock().unwrap().clone();
    for head in seen.iter().filter(|head| head.contains(SECRET)) {
        let path = head.split(' ').nth(1).unwrap();
        assert!(
            audit.contains(&format!("\"path\":\"{path}\"")),
            "{path} was sent and is not in the audit log"
        );
    }
    // An outcome follows its decision, and only once. Outcomes of requests in progress are lost.
    let mut decided = std::collections::HashMap::new();
    for event in audit.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let id = event["details"]["request"].as_str().unwrap().to_owned();
        match event["action"] == "proxy.request.outcome" {
            true => assert_eq!(decided.insert(id, 2), Some(1), "{event}"),
            false => assert_eq!(decided.insert(id, 1), None, "{event}"),
        }
    }
    assert!(decided.values().any(|seen| *seen == 2), "{audit}");
    // The next start continues after the last complete event.
    drop(world.start(&text));
    let verified = world.verify();
    assert!(verified.status.success(), "{}", describe(&verified));
}

#[test]
fn request_is_retried_with_the_rotated_credential_after_401() {
    let world = World::new();
    let text = world.audited();
    let proxy = world.start(&text);
    assert!(world.curl(&proxy, "ci", &[&world.url("/repos/o")]).is_sent().body.contains(SECRET));
    std::fs::write(world.fixture.path("secret"), "the-new-canary").unwrap();
    let exchange = world.curl(&proxy, "ci", &[&world.url("/repos/rotating")]);
    assert!(exchange.is_sent().body.contains("the-new-canary"), "{}", exchange.body);
    // Both attempts are in the audit log.
    let audit = std::fs::read_to_string(world.fixture.path("audit.jsonl")).unwrap();
    assert_eq!(audit.lines().filter(|line| line.contains("/repos/rotating")).count(), 2, "{audit}");
    // A server that accepts neither credential gets one request: its response goes to the client.
    drop(proxy);
    std::fs::write(world.fixture.path("secret"), SECRET).unwrap();
    let proxy = world.start(&text);
    assert_eq!(world.curl(&proxy, "ci", &[&world.url("/repos/rotating")]).status, "401");
    let audit = std::fs::read_to_string(world.fixture.path("audit.jsonl")).unwrap();
    assert_eq!(audit.lines().filter(|line| line.contains("/repos/rotating")).count(), 3, "{audit}");
}

/// Creates a token with OpenSSL. The issuer's key set is in `jwks.json`.
fn jwt(fixture: &Fixture, claims: &Value) -> String {
    let key = fixture.path("issuer.key");
    if !key.exists() {
        fixture.openssl("genrsa -out issuer.key 2048");
        let modulus = String::from_utf8(fixture.openssl("rsa -in issuer.key -noout -modulus")).unwrap();
        let modulus = HEXUPPER.decode(modulus.trim().trim_start_matches("Modulus=").as_bytes()).unwrap();
        let jwk = serde_json::json!({ "kty": "RSA", "kid": "k", "n": BASE64URL_NOPAD.encode(&modulus), "e": "AQAB" });
        std::fs::write(fixture.path("jwks.json"), serde_json::json!({ "keys": [jwk] }).to_string()).unwrap();
    }
    let part = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    let signed = format!("{}.{}", part(&serde_json::json!({ "alg": "RS256", "kid": "k" })), part(claims));
    std::fs::write(fixture.path("signed"), &signed).unwrap();
    let signature = fixture.openssl("dgst -sha256 -sign issuer.key signed");
    format!("{signed}.{}", BASE64URL_NOPAD.encode(&signature))
}

#[test]
fn job_identity_is_matched_by_the_claims_of_its_jwt() {
    let world = World::new();
    let claims = |repository: &str| {
        let issuer = "https://jobs.example";
        serde_json::json!({ "iss": issuer, "aud": "bulla", "sub": "job", "exp": 4_000_000_000_i64, "repository": repository })
    };
    let (ours, theirs) =
        (jwt(&world.fixture, &claims("acme/shop")), jwt(&world.fixture, &claims("evil/shop")));
    let text = world.configuration("\"127.0.0.0/8\", \"::1/128\"", "");
    let identity = "users = [\"ci\"]\njwt = [{ issuer = \"jobs\", claims = { repository = \"acme/*\" } }]";
    let text = text.replacen("users = [\"ci\"]", identity, 1)
        + "[[proxy.access.issuers]]\nname = \"jobs\"\nissuer = \"https://jobs.example\"\n\
           audiences = [\"bulla\"]\njwks_file = \"jwks.json\"\n";
    let proxy = world.start(&text);
    let fetch = |token: &str| {
        let address = proxy.address.replace("http://", &format!("http://jwt:{token}@"));
        let output =
            run(curl(&address, &world.authority()).args(["-w", "%{http_connect}", &world.url("/repos/o")]));
        stdout(&output)
    };
    assert!(fetch(&ours).contains(SECRET));
    assert_eq!(fetch(&theirs), "403", "it has no identity");
    assert_eq!(fetch(&format!("{ours}x")), "407");
    let line = world.logged(|line| line["user"] == "jobs:job" && line["status"] == 200);
    assert_eq!(line["identity"], "ci");
}

#[test]
fn private_and_metadata_addresses_are_blocked_unless_opened() {
    let world = World::new();
    let port = world.port;
    let more = "[[proxy.policy.rules]]\nname = \"all\"\nidentities = [\"ci\"]\nport = [80, 443, ".to_owned()
        + &format!("{port}]\n");
    let proxy = world.start(&world.configuration("", &more));
    let fetch = |arguments: &[&str]| world.curl(&proxy, "ci", &[&["-i"], arguments].concat());
    for url in [
        world.url("/repos/o"),
        format!("http://127.0.0.1:{port}/"),
        format!("http://[::1]:{port}/"),
        format!("http://[64:ff9b::7f00:1]:{port}/"),
        "http://10.0.0.1/".to_owned(),
        "http://192.168.1.1/".to_owned(),
        "http://[fd00::1]/".to_owned(),
        "http://169.254.169.254/latest/meta-data".to_owned(),
        "http://[::ffff:169.254.169.254]/".to_owned(),
        "http://100.100.100.200/".to_owned(),
        "http://168.63.129.16/".to_owned(),
        "http://[fd00:ec2::254]/".to_owned(),
    ] {
        let exchange = fetch(&[&url]);
        assert!(
            exchange.status == "403" && exchange.body.contains("destination_ip_prohibited"),
            "{url}: {}",
            exchange.body
        );
    }
    drop(proxy);
    // One network is opened: other networks stay blocked.
    let proxy = world.start(&world.configuration("\"127.0.0.0/8\", \"::1/128\"", &more));
    let fetch = |url: &str| world.curl(&proxy, "ci", &["-i", url]);
    fetch(&world.url("/repos/o")).is_sent();
    assert!(fetch("http://169.254.169.254/").body.contains("destination_ip_prohibited"));
    assert!(fetch("http://10.0.0.1/").body.contains("destination_ip_prohibited"));
}

#[test]
fn policy_is_reloaded_and_an_invalid_file_keeps_the_old_one() {
    let world = World::new();
    let configuration = world.configuration("\"127.0.0.0/8\", \"::1/128\"", "");
    let proxy = world.start(&configuration);
    let status = || world.curl(&proxy, "ci", &["-o", "/dev/null", &world.url("/repos/o")]).status;
    assert_eq!(status(), "200");
    let until = |wanted: &str| until_blocking(wanted, || status() == wanted);
    let change = |text: &str| world.change(&proxy, text);
    change(&configuration.replace("method = [\"GET\"]", "method = [\"PUT\"]"));
    until("403");
    change(&configuration.replace("teams = [\"platform\"]\nhost", "teams = [\"typo\"]\nhost"));
    let is_outdated = || figures(&proxy).contains("bulla_intercept_proxy_rules_outdated 1");
    until_blocking("the file is refused", is_outdated);
    assert_eq!(status(), "403", "the previous policy stays");
    // A file without a policy does not open everything either.
    let failed = || -> u64 {
        let text = figures(&proxy);
        let line = text.lines().find(|line| line.contains("rule_reloads_total{outcome=\"failed\"}"));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
    };
    let before = failed();
    change("[proxy]\n");
    until_blocking("the file is refused", || failed() > before);
    assert_eq!(status(), "403", "the previous policy stays");
    change(&configuration);
    until("200");
}

fn explained(world: &World, arguments: &[&str]) -> Output {
    run(bulla()
        .current_dir(world.fixture.folder.path())
        .env("HOME", world.fixture.folder.path())
        .args(["proxy", "explain", "--config", "bulla.toml"])
        .args(arguments))
}

#[test]
fn explain_shows_decision_rule_and_credential() {
    let world = World::new();
    std::fs::write(world.fixture.path("bulla.toml"), world.configuration("", "")).unwrap();
    let url = world.url("/repos/o");
    let output = explained(&world, &["--as", "ci", &url]);
    let printed = stdout(&output);
    assert!(output.status.success(), "{}", describe(&output));
    for line in ["decision    allow", "rule        read", "identity    ci", "(rule token)"] {
        assert!(printed.contains(line), "{line} is not in {printed}");
    }
    let json = |arguments: &[&str]| -> Value {
        let output = explained(&world, &[&["--output", "json"], arguments].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", describe(&output)))
    };
    let denied = json(&["--as", "ci", &url, "-X", "PUT"]);
    assert_eq!(
        (&denied["decision"], &denied["rule"], &denied["credentials"]),
        (&"deny".into(), &Value::Null, &serde_json::json!([]))
    );
    let other = json(&["--as", "other", &url]);
    assert_eq!((&other["decision"], &other["credentials"]), (&"allow".into(), &serde_json::json!([])));
    assert_eq!(json(&[&url])["decision"], "deny");
    let unknown = explained(&world, &["--as", "nobody", &url]);
    assert!(
        unknown.status.code() == Some(2) && stderr(&unknown).contains("no identity \"nobody\""),
        "{}",
        describe(&unknown)
    );
}

#[test]
fn documented_configuration_gives_the_documented_decisions() {
    let document = include_str!("../../../../docs/agent-gateway.md");
    let block = |mark: &str| document.split(mark).nth(1).unwrap().split("```").next().unwrap();
    let world = World::new();
    std::fs::write(world.fixture.path("bulla.toml"), block("```toml\n")).unwrap();
    let shown: Vec<&str> = document.split("```console\n$ bulla proxy explain ").skip(1).collect();
    assert_eq!(shown.len(), 3);
    for shown in shown {
        let (arguments, wanted) = shown.split("```").next().unwrap().split_once('\n').unwrap();
        let output = explained(&world, &arguments.split(' ').collect::<Vec<_>>());
        assert_eq!(stdout(&output), wanted, "{arguments}: {}", describe(&output));
    }
    for (arguments, decision, credential) in [
        ("--as claude https://api.anthropic.com/v1/messages -X POST", "allow", "/etc/bulla/anthropic-key"),
        ("--as ci https://api.anthropic.com/v1/messages -X POST", "deny", "none"),
        (
            "--as claude https://api.github.com/repos/acme/shop/issues/7/comments -X POST",
            "allow",
            "github-token",
        ),
        ("--as claude https://api.github.com/repos/other/shop/issues/7/comments -X POST", "deny", "none"),
        (
            "--as claude https://github.com/acme/shop/info/refs?service=git-upload-pack",
            "allow",
            "github-token",
        ),
        ("--as claude https://github.com/acme/shop/info/refs?service=git-receive-pack", "deny", "none"),
        ("--as ci https://registry.npmjs.org/@scope%2fname", "allow", "none"),
        ("--as claude https://registry.npmjs.org/left-pad", "deny", "none"),
        ("--as claude http://api.github.com/repos/acme/shop", "deny", "none"),
        ("--as claude https://api.github.com/repos/a/../../user", "deny", "none"),
        ("https://api.github.com/repos/acme/shop", "deny", "none"),
    ] {
        let printed = stdout(&explained(&world, &arguments.split(' ').collect::<Vec<_>>()));
        let credentials = printed.lines().last().unwrap_or_default();
        assert!(printed.starts_with(&format!("decision    {decision}\n")), "{arguments}: {printed}");
        assert!(credentials.contains(credential), "{arguments}: {printed}");
    }
}

#[test]
fn invalid_policy_is_rejected_with_its_position() {
    let world = World::new();
    for (from, to, wanted) in [
        (
            "teams = [\"platform\"]\nhost",
            "teams = [\"typo\"]\nhost",
            "proxy.policy.rules[2] (read): teams: no identity has \"typo\"",
        ),
        (
            "users = [\"other\"]",
            "users = [\"stranger\"]",
            "proxy.policy.identities[2] (other): users: [proxy.access] has no token or user \"stranger\"",
        ),
        ("default = \"deny\"", "default = \"no\"", "proxy.policy.default: \"no\" is not an action"),
        (
            "users = [\"ci\"]",
            "jwt = [{ issuer = \"none\", claims = { sub = \"ci\" } }]",
            "proxy.policy.identities[1] (ci): jwt: [proxy.access] has no issuer \"none\"",
        ),
        (
            "identities = [\"ci\"], port",
            "identities = [\"cj\"], port",
            "proxy.rules: rule 1: inject: identities: no identity has \"cj\"",
        ),
        ("method = [\"GET\"]", "methods = [\"GET\"]", "unknown field `methods`"),
        (
            "name = \"no-keys\"\n",
            "name = \"no-keys\"\npreset = \"github-read\"\n",
            "(no-keys): preset: a preset cannot be combined with conditions",
        ),
    ] {
        let configuration = world.configuration("", "").replacen(from, to, 1);
        std::fs::write(world.fixture.path("bulla.toml"), &configuration).unwrap();
        let output = explained(&world, &["https://a.example/"]);
        let printed = stderr(&output);
        assert!(
            output.status.code() == Some(2) && printed.contains(wanted) && printed.contains("hint:"),
            "{wanted}: {printed}"
        );
    }
}
