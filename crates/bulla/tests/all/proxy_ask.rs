//! `[proxy.ask]`, `client_crl_files` and `leaf_keys` of `bulla proxy`.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::proxy::{Proxy, World};
use crate::world::{describe, run, stdout};

const TIMEOUT: Duration = Duration::from_secs(60);

/// A small permission service: the status line it answers with, and the requests it received.
struct Judge {
    address: SocketAddr,
    answer: Arc<Mutex<&'static str>>,
    /// Requests that contain this text are answered with 403.
    refuses: Arc<Mutex<Option<&'static str>>>,
    received: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
}

impl Judge {
    fn that(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let judge = Self {
            address: listener.local_addr().unwrap(),
            answer: Arc::new(Mutex::new(answer)),
            refuses: Arc::default(),
            received: Arc::default(),
            connections: Arc::default(),
        };
        let (answer, received) = (Arc::clone(&judge.answer), Arc::clone(&judge.received));
        let (connections, refuses) = (Arc::clone(&judge.connections), Arc::clone(&judge.refuses));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { continue };
                let (answer, received, refuses) =
                    (Arc::clone(&answer), Arc::clone(&received), Arc::clone(&refuses));
                connections.fetch_add(1, SeqCst);
                std::thread::spawn(move || {
                    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                    while let Some(first) = lines.next() {
                        let head: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
                        let token = head.iter().find(|line| line.starts_with("authorization:"));
                        received
                            .lock()
                            .unwrap()
                            .push(format!("{first} {}", token.map_or("", String::as_str)));
                        let answer = match *refuses.lock().unwrap() {
                            Some(part) if first.contains(part) => "403 Forbidden",
                            _ => *answer.lock().unwrap(),
                        };
                        let _ = write!(stream, "HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n");
                    }
                });
            }
        });
        judge
    }

    fn url(&self) -> String {
        format!("http://{}/leaf", self.address)
    }

    fn received(&self) -> Vec<String> {
        self.received.lock().unwrap().clone()
    }
}

/// Sets values of `[proxy.SECTION]`.
fn set(command: &mut Command, section: &str, settings: &[(&str, &str)]) {
    for (key, value) in settings {
        command.env(format!("BULLA_PROXY_{section}_{key}"), value);
    }
}

/// Leaves for every client with a certificate.
const MINTING: [(&str, &str); 5] = [
    ("LISTEN", "127.0.0.1:0"),
    ("NAMES", "*.sandbox.example"),
    ("CERTIFICATE_FILE", "up.pem"),
    ("KEY_FILE", "up.key"),
    ("CLIENT_CA_FILES", "ca.pem"),
];

fn figures(proxy: &Proxy) -> String {
    let received = Command::new("curl").args(["-sS", "--noproxy", "*", &proxy.figures]).output();
    stdout(&received.unwrap_or_else(|error| panic!("apt-get install -y curl ({error})")))
}

#[test]
fn permission_service_decides_leaf_minting() {
    let world = World::new();
    let judge = Judge::that("403 Forbidden");
    std::fs::write(world.fixture.path("token"), "hunter2\n").unwrap();
    let log = world.fixture.path("access.log");
    let start_proxy = |no_s: &str| {
        let mut command = world.command(&[]);
        command
            .env("BULLA_PROXY_ASK_URL", judge.url())
            .env("BULLA_PROXY_ASK_TOKEN_FILE", world.fixture.path("token"))
            .env("BULLA_PROXY_ASK_TIMEOUT_MS", "5000")
            .env("BULLA_PROXY_ASK_NO_S", no_s)
            .env("BULLA_PROXY_REQUESTS_ACCESS_LOG_FILE", &log);
        World::start(&mut command)
    };
    let proxy = start_proxy("3600");
    for _ in 0..2 {
        let output = world.curl(&proxy, &["-v"]);
        let printed = describe(&output);
        assert!(!output.status.success() && printed.contains("403"), "{printed}");
        assert!(printed.contains("proxy-status: bulla; error=http_request_denied"), "{printed}");
    }
    let question = "GET /leaf?domain=localhost&client=127.0.0.1 HTTP/1.1 authorization: Bearer hunter2";
    assert_eq!(judge.received(), [question]);
    let printed = figures(&proxy);
    assert!(printed.contains("bulla_intercept_permission_questions_total{outcome=\"no\"} 1\n"), "{printed}");
    assert!(
        printed.contains("bulla_intercept_permission_refusals_total{why=\"not-permitted\"} 2\n"),
        "{printed}"
    );
    assert!(printed.contains("bulla_intercept_permission_answers 1\n"), "{printed}");
    assert!(printed.contains("bulla_intercept_leaves_minted_total 0\n"), "{printed}");
    let began = Instant::now();
    while std::fs::read_to_string(&log).unwrap_or_default().matches("\"reason\":\"not-permitted\"").count()
        < 2
    {
        assert!(began.elapsed() < TIMEOUT, "{}", std::fs::read_to_string(&log).unwrap());
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(proxy);
    *judge.answer.lock().unwrap() = "204 No Content";
    let proxy = start_proxy("1");
    for _ in 0..3 {
        assert!(world.curl(&proxy, &[]).status.success());
    }
    assert_eq!(
        (judge.received().len(), judge.connections.load(SeqCst)),
        (2, 2),
        "one question, one connection each"
    );
}

#[test]
fn invalid_ask_and_leaf_key_settings_are_rejected_with_a_hint() {
    let world = World::new();
    for (key, value, wanted) in [
        ("ASK_URL", "http://permission.example/", "must use https"),
        ("ASK_URL", "permission.example", "is not an http or https URL"),
        ("ASK_TOKEN_FILE", "token", "need proxy.ask.url"),
        ("ASK_TIMEOUT_MS", "60000", "proxy.ask.timeout_ms must be from 10 to 5000"),
        ("ASK_WHEN_AWAY", "perhaps", "refuse"),
        ("MINTING_CLIENT_CRL_FILES", "a.crl", "needs TLS"),
        ("ACCESS_CLIENT_CRL_FILES", "a.crl", "needs proxy.access.client_ca_files"),
        ("LEAF_KEYS", "by-moon", "by-host"),
        ("LEAF_KEYS", "by-user", "clients are not authenticated"),
    ] {
        let refused = run(world.command(&[]).env(format!("BULLA_PROXY_{key}"), value));
        let printed = describe(&refused);
        assert!(printed.contains(wanted) && printed.contains("hint:"), "{key}: {printed}");
        assert_eq!(refused.status.code(), Some(2), "{key}: {printed}");
    }
    // A token that is not valid in a header is rejected at startup, instead of failing on each request.
    let token = world.fixture.path("token");
    std::fs::write(&token, "two\nlines\n").unwrap();
    let mut command = world.command(&[]);
    command.env("BULLA_PROXY_ASK_URL", "http://127.0.0.1:1/").env("BULLA_PROXY_ASK_TOKEN_FILE", &token);
    let refused = run(&mut command);
    let printed = describe(&refused);
    assert_eq!(refused.status.code(), Some(2), "{printed}");
    assert!(printed.contains("proxy.ask.token_file must contain one line of visible ASCII"), "{printed}");
    assert!(!printed.contains("two"), "{printed}");
}

/// Workloads of one mesh: their certificates have the same subject, and a different SPIFFE id each.
#[test]
fn consumers_with_equal_subject_are_distinguished_by_spiffe_id() {
    let world = World::new();
    let (fixture, judge) = (&world.fixture, Judge::that("200 OK"));
    *judge.refuses.lock().unwrap() = Some("workload-b");
    for workload in ["a", "b"] {
        fixture.openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {workload}.key -out {workload}.csr -subj /O=SPIRE"
        ));
        let extensions = format!(
            "extendedKeyUsage=clientAuth\nsubjectAltName=URI:spiffe://mesh.example/workload-{workload}\n"
        );
        std::fs::write(fixture.path("names.cnf"), extensions).unwrap();
        fixture.openssl(&format!(
            "x509 -req -in {workload}.csr -CA ca.pem -CAkey ca.key -days 2 -extfile names.cnf -out {workload}.pem"
        ));
    }
    let mut command = world.command(&[]);
    command.env("BULLA_PROXY_ASK_URL", judge.url()).env("BULLA_PROXY_ASK_TIMEOUT_MS", "5000");
    set(&mut command, "MINTING", &MINTING);
    let proxy = World::start(&mut command);
    let port = proxy.minting.clone().unwrap().rsplit(':').next().unwrap().to_owned();
    let mint = |workload: &str| {
        let url = format!("https://localhost:{port}/certificate?server_name=a.sandbox.example");
        let mut curl = Command::new("curl");
        curl.current_dir(fixture.folder.path()).args(["-sS", "--max-time", "60", "--noproxy", "*"]);
        curl.args(["-w", "%{http_code}", "--cacert", "ca.pem"]);
        curl.args(["--cert", &format!("{workload}.pem"), "--key", &format!("{workload}.key"), &url]);
        curl.output().unwrap_or_else(|error| panic!("apt-get install -y curl ({error})"))
    };
    let of_a = mint("a");
    assert!(stdout(&of_a).contains("PRIVATE KEY") && stdout(&of_a).ends_with("200"), "{}", describe(&of_a));
    assert_eq!(stdout(&mint("b")), "204", "the yes for one is none for the other");
    let received = judge.received();
    let of = |workload: &str| {
        format!("consumer=O%3DSPIRE&consumer_name=spiffe%3A%2F%2Fmesh.example%2Fworkload-{workload} ")
    };
    assert_eq!(received.len(), 2, "{received:?}");
    assert!(received[0].contains(&of("a")) && received[1].contains(&of("b")), "{received:?}");
}

/// A consumer of leaves, also a proxy client, whose certificate is revoked while the proxy runs.
#[test]
fn revoked_consumer_gets_no_leaf_keys_and_no_proxy_access() {
    let world = World::new();
    let fixture = &world.fixture;
    fixture.openssl(
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout consumer.key -out consumer.csr -subj /CN=consumer",
    );
    std::fs::write(fixture.path("index.txt"), "").unwrap();
    std::fs::write(fixture.path("serial"), "1000\n").unwrap();
    std::fs::write(fixture.path("crlnumber"), "01\n").unwrap();
    std::fs::write(
        fixture.path("ca.cnf"),
        "[ca]\ndefault_ca=own\n[own]\ndatabase=index.txt\nserial=serial\nnew_certs_dir=.\ndefault_md=sha256\n\
         default_days=7\ndefault_crl_days=7\npolicy=any\nprivate_key=ca.key\ncertificate=ca.pem\n\
         crlnumber=crlnumber\nx509_extensions=client\n[any]\ncommonName=supplied\n\
         [client]\nbasicConstraints=CA:FALSE\nextendedKeyUsage=clientAuth\n",
    )
    .unwrap();
    fixture.openssl("ca -batch -config ca.cnf -in consumer.csr -out consumer.pem -notext");
    fixture.openssl("ca -config ca.cnf -gencrl -out empty.crl");
    fixture.openssl("ca -config ca.cnf -revoke consumer.pem");
    fixture.openssl("ca -config ca.cnf -gencrl -out newer.crl");
    // The file has an older CRL before and after the newer one.
    let list = |file: &str| std::fs::read_to_string(fixture.path(file)).unwrap();
    let both = [list("empty.crl"), list("newer.crl"), list("empty.crl")].concat();
    std::fs::write(fixture.path("revoked.crl"), both).unwrap();
    std::fs::copy(fixture.path("empty.crl"), fixture.path("clients.crl")).unwrap();
    let mut command = world.command(&[]);
    set(&mut command, "MINTING", &MINTING);
    set(&mut command, "MINTING", &[("CLIENT_CRL_FILES", "clients.crl")]);
    set(
        &mut command,
        "ACCESS",
        &[
            ("CERTIFICATE_FILE", "up.pem"),
            ("KEY_FILE", "up.key"),
            ("CLIENT_CA_FILES", "ca.pem"),
            ("CLIENT_CRL_FILES", "clients.crl"),
        ],
    );
    let proxy = World::start(&mut command);
    let door = proxy.address.rsplit(':').next().unwrap().to_owned();
    let through = || {
        let mut curl = Command::new("curl");
        curl.current_dir(fixture.folder.path()).args(["-sS", "--max-time", "60", "--noproxy", ""]);
        curl.args(["--proxy", &format!("https://localhost:{door}"), "--proxy-cacert", "ca.pem"]);
        curl.args(["--proxy-cert", "consumer.pem", "--proxy-key", "consumer.key", "--cacert"]);
        curl.arg(world.authority()).arg(format!("https://localhost:{}/", world.port));
        curl.output().unwrap_or_else(|error| panic!("apt-get install -y curl ({error})"))
    };
    let output = through();
    assert!(output.status.success(), "{}", describe(&output));
    let port = proxy.minting.clone().unwrap().rsplit(':').next().unwrap().to_owned();
    let mint = || {
        let url = format!("https://localhost:{port}/certificate?server_name=a.sandbox.example");
        let mut curl = Command::new("curl");
        curl.current_dir(fixture.folder.path()).args(["-sS", "--max-time", "60", "--noproxy", "*"]);
        curl.args(["--cacert", "ca.pem", "--cert", "consumer.pem", "--key", "consumer.key", &url]);
        curl.output().unwrap_or_else(|error| panic!("apt-get install -y curl ({error})"))
    };
    let output = mint();
    assert!(stdout(&output).contains("PRIVATE KEY"), "{}", describe(&output));
    let until = |what: &str, so: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !so() {
            assert!(began.elapsed() < TIMEOUT, "never: {what}");
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    // A broken CRL changes nothing, and a metric reports it.
    std::fs::write(fixture.path("clients.crl"), "no list").unwrap();
    let broken = |wanted: u8| {
        let line = format!("bulla_intercept_client_crls_broken{{door=\"minting\"}} {wanted}\n");
        figures(&proxy).contains(&line)
    };
    until("it is told", &|| broken(1));
    assert!(mint().status.success(), "the one before counts");
    // An open connection is closed when its certificate is revoked.
    let mut connection = Command::new("openssl")
        .current_dir(fixture.folder.path())
        .args(["s_client", "-connect", &format!("localhost:{port}"), "-CAfile", "ca.pem"])
        .args(["-cert", "consumer.pem", "-key", "consumer.key"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("apt-get install -y openssl ({error})"));
    let mut printed = BufReader::new(connection.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(printed.any(|line| line.contains("Verify return code: 0")), "no handshake");
    std::fs::rename(fixture.path("revoked.crl"), fixture.path("clients.crl")).unwrap();
    until("it is refused", &|| !mint().status.success());
    until("it is not let in", &|| !through().status.success());
    until("it is well", &|| broken(0));
    printed.by_ref().for_each(drop);
    connection.wait().unwrap();
    // A connection of a recent request may be closed too.
    let ended = figures(&proxy);
    let count = ended.lines().find_map(|line| {
        line.strip_prefix("bulla_intercept_client_crls_ended_connections_total{door=\"minting\"} ")
    });
    assert!(count.is_some_and(|count| count.parse::<u64>().is_ok_and(|count| count >= 1)), "{ended}");
}

#[test]
fn leaf_keys_by_host_gives_each_host_a_separate_key() {
    let world = World::new();
    let spki = |proxy: &Proxy, name: &str| {
        let shown = Command::new("sh")
            .args(["-c", "openssl s_client -proxy \"$0\" -servername \"$1\" -connect \"$2\" </dev/null 2>/dev/null | openssl x509 -noout -pubkey"])
            .args([proxy.address.trim_start_matches("http://"), name, &format!("localhost:{}", world.port)])
            .output()
            .unwrap();
        assert!(shown.status.success() && !stdout(&shown).is_empty(), "{}", describe(&shown));
        stdout(&shown)
    };
    let shared = world.proxy(&[]);
    assert_eq!(spki(&shared, "a.example"), spki(&shared, "b.example"));
    let by_host = World::start(world.command(&[]).env("BULLA_PROXY_LEAF_KEYS", "by-host"));
    let first = spki(&by_host, "a.example");
    assert_ne!(first, spki(&by_host, "b.example"));
    assert_eq!(first, spki(&by_host, "a.example"), "one leaf, one key");
    assert!(world.curl(&by_host, &[]).status.success());
}
