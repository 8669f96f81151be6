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
    asked: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
}

impl Judge {
    fn that(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let judge = Self {
            address: listener.local_addr().unwrap(),
            answer: Arc::new(Mutex::new(answer)),
            refuses: Arc::default(),
            asked: Arc::default(),
            connections: Arc::default(),
        };
        let (answer, asked) = (Arc::clone(&judge.answer), Arc::clone(&judge.asked));
        let (connections, refuses) = (Arc::clone(&judge.connections), Arc::clone(&judge.refuses));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { continue };
                let (answer, asked, refuses) =
                    (Arc::clone(&answer), Arc::clone(&asked), Arc::clone(&refuses));
                connections.fetch_add(1, SeqCst);
                std::thread::spawn(move || {
                    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                    while let Some(first) = lines.next() {
                        let head: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
                        let token = head.iter().find(|line| line.starts_with("authorization:"));
                        asked.lock().unwrap().push(format!("{first} {}", token.map_or("", String::as_str)));
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

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
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
    let asked = Command::new("curl").args(["-sS", "--noproxy", "*", &proxy.figures]).output();
    stdout(&asked.unwrap_or_else(|error| panic!("apt-get install -y curl ({error})")))
}

#[test]
fn permission_service_decides_leaf_minting() {
    let world = World::new();
    let judge = Judge::that("403 Forbidden");
    std::fs::write(world.place.path("token"), "hunter2\n").unwrap();
    let log = world.place.path("access.log");
    let asking = |no_s: &str| {
        let mut command = world.command(&[]);
        command
            .env("BULLA_PROXY_ASK_URL", judge.url())
            .env("BULLA_PROXY_ASK_TOKEN_FILE", world.place.path("token"))
            .env("BULLA_PROXY_ASK_TIMEOUT_MS", "5000")
            .env("BULLA_PROXY_ASK_NO_S", no_s)
            .env("BULLA_PROXY_REQUESTS_ACCESS_LOG_FILE", &log);
        World::start(&mut command)
    };
    let proxy = asking("3600");
    for _ in 0..2 {
        let output = world.curl(&proxy, &["-v"]);
        let said = describe(&output);
        assert!(!output.status.success() && said.contains("403"), "{said}");
        assert!(said.contains("proxy-status: bulla; error=http_request_denied"), "{said}");
    }
    let question = "GET /leaf?domain=localhost&client=127.0.0.1 HTTP/1.1 authorization: Bearer hunter2";
    assert_eq!(judge.asked(), [question]);
    let said = figures(&proxy);
    assert!(said.contains("bulla_intercept_permission_questions_total{outcome=\"no\"} 1\n"), "{said}");
    assert!(said.contains("bulla_intercept_permission_refusals_total{why=\"not-permitted\"} 2\n"), "{said}");
    assert!(said.contains("bulla_intercept_permission_answers 1\n"), "{said}");
    assert!(said.contains("bulla_intercept_leaves_minted_total 0\n"), "{said}");
    let began = Instant::now();
    while std::fs::read_to_string(&log).unwrap_or_default().matches("\"reason\":\"not-permitted\"").count()
        < 2
    {
        assert!(began.elapsed() < TIMEOUT, "{}", std::fs::read_to_string(&log).unwrap());
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(proxy);
    *judge.answer.lock().unwrap() = "204 No Content";
    let proxy = asking("1");
    for _ in 0..3 {
        assert!(world.curl(&proxy, &[]).status.success());
    }
    assert_eq!(
        (judge.asked().len(), judge.connections.load(SeqCst)),
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
        let said = describe(&refused);
        assert!(said.contains(wanted) && said.contains("hint:"), "{key}: {said}");
        assert_eq!(refused.status.code(), Some(2), "{key}: {said}");
    }
    // A token that is not valid in a header is rejected at startup, instead of failing on each request.
    let token = world.place.path("token");
    std::fs::write(&token, "two\nlines\n").unwrap();
    let mut command = world.command(&[]);
    command.env("BULLA_PROXY_ASK_URL", "http://127.0.0.1:1/").env("BULLA_PROXY_ASK_TOKEN_FILE", &token);
    let refused = run(&mut command);
    let said = describe(&refused);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("proxy.ask.token_file must contain one line of visible ASCII"), "{said}");
    assert!(!said.contains("two"), "{said}");
}

/// Workloads of one mesh: their certificates have the same subject, and a different SPIFFE id each.
#[test]
fn consumers_with_equal_subject_are_distinguished_by_spiffe_id() {
    let world = World::new();
    let (place, judge) = (&world.place, Judge::that("200 OK"));
    *judge.refuses.lock().unwrap() = Some("workload-b");
    for workload in ["a", "b"] {
        place.openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {workload}.key -out {workload}.csr -subj /O=SPIRE"
        ));
        let extensions = format!(
            "extendedKeyUsage=clientAuth\nsubjectAltName=URI:spiffe://mesh.example/workload-{workload}\n"
        );
        std::fs::write(place.path("names.cnf"), extensions).unwrap();
        place.openssl(&format!(
            "x509 -req -in {workload}.csr -CA ca.pem -CAkey ca.key -days 2 -extfile names.cnf -out {workload}.pem"
        ));
    }
    let mut command = world.command(&[]);
    command.env("BULLA_PROXY_ASK_URL", judge.url()).env("BULLA_PROXY_ASK_TIMEOUT_MS", "5000");
    set(&mut command, "MINTING", &MINTING);
    let proxy = World::start(&mut command);
    let port = proxy.minting.clone().unwrap().rsplit(':').next().unwrap().to_owned();
    let ask = |workload: &str| {
        let url = format!("https://localhost:{port}/certificate?server_name=a.sandbox.example");
        let mut curl = Command::new("curl");
        curl.current_dir(place.folder.path()).args(["-sS", "--max-time", "60", "--noproxy", "*"]);
        curl.args(["-w", "%{http_code}", "--cacert", "ca.pem"]);
        curl.args(["--cert", &format!("{workload}.pem"), "--key", &format!("{workload}.key"), &url]);
        curl.output().unwrap_or_else(|error| panic!("apt-get install -y curl ({error})"))
    };
    let of_a = ask("a");
    assert!(stdout(&of_a).contains("PRIVATE KEY") && stdout(&of_a).ends_with("200"), "{}", describe(&of_a));
    assert_eq!(stdout(&ask("b")), "204", "the yes for one is none for the other");
    let asked = judge.asked();
    let of = |workload: &str| {
        format!("consumer=O%3DSPIRE&consumer_name=spiffe%3A%2F%2Fmesh.example%2Fworkload-{workload} ")
    };
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(asked[0].contains(&of("a")) && asked[1].contains(&of("b")), "{asked:?}");
}

/// A consumer of leaves, also a proxy client, whose certificate is revoked while the proxy runs.
#[test]
fn revoked_consumer_gets_no_leaf_keys_and_no_proxy_access() {
    let world = World::new();
    let place = &world.place;
    place.openssl(
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout consumer.key -out consumer.csr -subj /CN=consumer",
    );
    std::fs::write(place.path("index.txt"), "").unwrap();
    std::fs::write(place.path("serial"), "1000\n").unwrap();
    std::fs::write(place.path("crlnumber"), "01\n").unwrap();
    std::fs::write(
        place.path("ca.cnf"),
        "[ca]\ndefault_ca=own\n[own]\ndatabase=index.txt\nserial=serial\nnew_certs_dir=.\ndefault_md=sha256\n\
         default_days=7\ndefault_crl_days=7\npolicy=any\nprivate_key=ca.key\ncertificate=ca.pem\n\
         crlnumber=crlnumber\nx509_extensions=client\n[any]\ncommonName=supplied\n\
         [client]\nbasicConstraints=CA:FALSE\nextendedKeyUsage=clientAuth\n",
    )
    .unwrap();
    place.openssl("ca -batch -config ca.cnf -in consumer.csr -out consumer.pem -notext");
    place.openssl("ca -config ca.cnf -gencrl -out empty.crl");
    place.openssl("ca -config ca.cnf -revoke consumer.pem");
    place.openssl("ca -config ca.cnf -gencrl -out newer.crl");
    // The file has an older CRL before and after the newer one.
    let list = |file: &str| std::fs::read_to_string(place.path(file)).unwrap();
    let both = [list("empty.crl"), list("newer.crl"), list("empty.crl")].concat();
    std::fs::write(place.path("revoked.crl"), both).unwrap();
    std::fs::copy(place.path("empty.crl"), place.path("clients.crl")).unwrap();
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
        curl.current_dir(place.folder.path()).args(["-sS", "--max-time", "60", "--noproxy", ""]);
        curl.args(["--proxy", &format!("https://localhost:{door}"), "--proxy-cacert", "ca.pem"]);
        curl.args(["--proxy-cert", "consumer.pem", "--proxy-key", "consumer.key", "--cacert"]);
        curl.arg(world.authority()).arg(format!("https://localhost:{}/", world.port));
        curl.output().unwrap_or_else(|error| panic!("apt-get install -y curl ({error})"))
    };
    let output = through();
    assert!(output.status.success(), "{}", describe(&output));
    let port = proxy.minting.clone().unwrap().rsplit(':').next().unwrap().to_owned();
    let ask = || {
        let url = format!("https://localhost:{port}/certificate?server_name=a.sandbox.example");
        let mut curl = Command::new("curl");
        curl.current_dir(place.folder.path()).args(["-sS", "--max-time", "60", "--noproxy", "*"]);
        curl.args(["--cacert", "ca.pem", "--cert", "consumer.pem", "--key", "consumer.key", &url]);
        curl.output().unwrap_or_else(|error| panic!("apt-get install -y curl ({error})"))
    };
    let output = ask();
    assert!(stdout(&output).contains("PRIVATE KEY"), "{}", describe(&output));
    let until = |what: &str, so: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !so() {
            assert!(began.elapsed() < TIMEOUT, "never: {what}");
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    // A broken CRL changes nothing, and a metric reports it.
    std::fs::write(place.path("clients.crl"), "no list").unwrap();
    let broken = |wanted: u8| {
        let line = format!("bulla_intercept_client_crls_broken{{door=\"minting\"}} {wanted}\n");
        figures(&proxy).contains(&line)
    };
    until("it is told", &|| broken(1));
    assert!(ask().status.success(), "the one before counts");
    // An open connection is closed when its certificate is revoked.
    let mut held = Command::new("openssl")
        .current_dir(place.folder.path())
        .args(["s_client", "-connect", &format!("localhost:{port}"), "-CAfile", "ca.pem"])
        .args(["-cert", "consumer.pem", "-key", "consumer.key"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("apt-get install -y openssl ({error})"));
    let mut said = BufReader::new(held.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.any(|line| line.contains("Verify return code: 0")), "no handshake");
    std::fs::rename(place.path("revoked.crl"), place.path("clients.crl")).unwrap();
    until("it is refused", &|| !ask().status.success());
    until("it is not let in", &|| !through().status.success());
    until("it is well", &|| broken(0));
    said.by_ref().for_each(drop);
    held.wait().unwrap();
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
