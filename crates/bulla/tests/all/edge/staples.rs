//! OCSP responses that the terminator fetches from a responder run with `openssl ocsp`.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::P256;
use super::upstream::hello;
use super::world::{Edge, World, sum};
use crate::key_service::until;
use crate::world::{describe, run};

/// A responder for one CA. It answers from its `index`, signed by `signer`. Without the file `up` it answers 503.
struct Responder {
    url: String,
    requests: Arc<AtomicUsize>,
}

impl Responder {
    fn new(folder: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/ocsp", listener.local_addr().unwrap());
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                answer(&stream.unwrap(), &folder);
                count.fetch_add(1, Relaxed);
            }
        });
        Self { url, requests }
    }
}

/// Answers `GET /ocsp/BASE64` (RFC 6960 appendix A.1).
fn answer(mut stream: &TcpStream, folder: &Path) {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().unwrap().unwrap();
    while !lines.next().unwrap().unwrap().is_empty() {}
    let path = first.strip_prefix("GET /ocsp/").unwrap().split(' ').next().unwrap();
    let text = path.replace("%2B", "+").replace("%2F", "/").replace("%3D", "=");
    if !folder.join("up").exists() {
        let unavailable = b"HTTP/1.1 503 Away\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        return stream.write_all(unavailable).unwrap();
    }
    std::fs::write(folder.join("asked.txt"), text).unwrap();
    openssl(folder, "base64 -d -A -in asked.txt -out asked.der");
    openssl(
        folder,
        "ocsp -index index -CA ca.pem -rsigner signer.pem -rkey signer.key -reqin asked.der -respout said.der -ndays 1",
    );
    let response = std::fs::read(folder.join("said.der")).unwrap();
    let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", response.len());
    stream.write_all(&[head.as_bytes(), &response].concat()).unwrap();
}

fn openssl(folder: &Path, arguments: &str) {
    let output = run(Command::new("openssl").current_dir(folder).args(arguments.split_whitespace()));
    assert!(output.status.success(), "{arguments}: {}", describe(&output));
}

/// Creates `a.example`, a must-staple certificate, with its issuer and the responder that it names.
fn world() -> (World, Responder) {
    let mut world = World::new(&[("a", P256, "DNS:a.example")]);
    let folder = world.fixture.folder.path().to_owned();
    let responder = Responder::new(folder.clone());
    openssl(
        &folder,
        &format!(
            "req -x509 -key keys/a.key -out leaf.pem -subj /CN=a -CA ca.pem -CAkey ca.key -set_serial 0x1234 \
             -addext subjectAltName=DNS:a.example -addext basicConstraints=critical,CA:FALSE \
             -addext tlsfeature=status_request -addext authorityInfoAccess=OCSP;URI:{}",
            responder.url
        ),
    );
    let chain =
        [std::fs::read(folder.join("leaf.pem")).unwrap(), std::fs::read(folder.join("ca.pem")).unwrap()];
    world.put("certs/a.pem", &chain.concat());
    put_status(&world, "V\t350101000000Z\t\t1234\tunknown\t/CN=a\n");
    put_signer(&world, "ca");
    world.serve(&[]);
    (world, responder)
}

fn put_status(world: &World, line: &str) {
    world.put("index", line.as_bytes());
}

fn put_signer(world: &World, name: &str) {
    for ending in ["pem", "key"] {
        let bytes = std::fs::read(world.fixture.path(&format!("{name}.{ending}"))).unwrap();
        world.put(&format!("signer.{ending}"), &bytes);
    }
}

fn start(world: &World) -> Edge {
    world.edge(&["--upstream", &hello()])
}

fn is_stapled(world: &World, edge: &Edge) -> bool {
    let response = world.s_client(edge, "-servername a.example -status", "");
    assert!(response.contains("BEGIN CERTIFICATE"), "it is presented in any case: {response}");
    response.contains("Cert Status: good")
}

fn fetched(edge: &Edge, outcome: &str) -> f64 {
    sum(&edge.figures(), "bulla_intercept_edge_staple_fetches_total", outcome)
}

fn bare(edge: &Edge) -> f64 {
    sum(&edge.figures(), "bulla_intercept_edge_bare_must_staple_certificates ", "")
}

#[test]
fn ocsp_staples_are_fetched_cached_and_validated() {
    let (world, responder) = world();
    let stored = || {
        let all = std::fs::read_dir(world.fixture.path("data/edge-staples")).ok()?;
        all.flatten().map(|entry| entry.path()).find(|path| path.extension().is_some_and(|end| end == "ocsp"))
    };

    // The responder is down: the chain is presented without a staple, and a metric counts the missing must-staple response.
    let edge = start(&world);
    until("the responder was asked", || fetched(&edge, "unanswered") == 1.0);
    assert!(!is_stapled(&world, &edge));
    assert_eq!(bare(&edge), 1.0);
    assert_eq!(edge.stop(), Some(0));

    // The responder is up.
    world.put("up", b"");
    let edge = start(&world);
    until("it is stapled", || is_stapled(&world, &edge));
    until("nothing is missing", || bare(&edge) == 0.0);
    let response = world.s_client(&edge, "-servername a.example -status -tls1_2", "");
    assert!(response.contains("Cert Status: good"), "{response}");
    assert_eq!(fetched(&edge, "read"), 1.0, "once, however many handshakes");
    until("it is kept", || stored().is_some());
    assert_eq!(edge.stop(), Some(0));

    // A cached response needs no responder.
    std::fs::remove_file(world.fixture.path("up")).unwrap();
    let requests = responder.requests.load(Relaxed);
    let edge = start(&world);
    assert!(is_stapled(&world, &edge), "with the first handshake");
    assert_eq!(edge.stop(), Some(0));
    assert_eq!(responder.requests.load(Relaxed), requests, "it is not yet time");

    // The cached response is not used if fetching is off, or if the file was modified.
    world.configure("[edge]\nfetch_staples = false\n");
    let edge = world.edge(&["--upstream", &hello(), "--config", "edge.toml"]);
    assert!(!is_stapled(&world, &edge));
    assert_eq!(edge.stop(), Some(0));
    let mut bytes = std::fs::read(stored().unwrap()).unwrap();
    // Changes the last digit of a signed time (GeneralizedTime, 15 bytes).
    let time = bytes.windows(2).position(|two| two == [0x18, 0x0f]).unwrap();
    bytes[time + 15] ^= 1;
    std::fs::write(stored().unwrap(), bytes).unwrap();
    let edge = start(&world);
    until("another is asked for", || fetched(&edge, "unanswered") == 1.0);
    assert!(!is_stapled(&world, &edge));
    assert_eq!(edge.stop(), Some(0));
}

#[test]
fn wrongly_signed_or_revoked_ocsp_responses_are_not_stapled() {
    let (world, _responder) = world();
    world.put("up", b"");
    // A response signed by another CA.
    world.fixture.openssl(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout other.key -out other.pem -subj /CN=ca",
    );
    put_signer(&world, "other");
    let edge = start(&world);
    until("its answer does not count", || fetched(&edge, "unusable") == 1.0);
    assert!(!is_stapled(&world, &edge));
    assert_eq!(edge.stop(), Some(0));
    // A correct response that says revoked.
    put_signer(&world, "ca");
    put_status(&world, "R\t350101000000Z\t240101000000Z\t1234\tunknown\t/CN=a\n");
    let edge = start(&world);
    until("it is found revoked", || fetched(&edge, "revoked") == 1.0);
    assert!(!is_stapled(&world, &edge));
    assert_eq!(bare(&edge), 1.0);
    assert_eq!(edge.stop(), Some(0));
}
