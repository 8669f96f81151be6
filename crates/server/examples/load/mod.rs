//! The client process: HTTP/1.1 over keep-alive TLS connections, with one request in flight on each.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use keys::{KeyType, PrivateKey, Signer};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use server::listen::server_certificate;
use store::Clock;
use uuid::Uuid;
use x509::build::{self, CertificateSpec, Extension};
use x509::{GeneralName, SerialNumber};

/// The request that is repeated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LoadRequest {
    One,
    Unchanged,
    Page,
    Summary,
    Create,
    CreateMany,
    Walk,
    /// The request of a template file: see [`Template`].
    Template,
}

const REQUESTS: [LoadRequest; 8] = [
    LoadRequest::One,
    LoadRequest::Unchanged,
    LoadRequest::Page,
    LoadRequest::Summary,
    LoadRequest::Create,
    LoadRequest::CreateMany,
    LoadRequest::Walk,
    LoadRequest::Template,
];
/// Certificates per batch.
const BATCH: usize = 100;
/// Maximum pages of a walk.
const PAGES_MAX: usize = 200;

/// A request template: a file next to the file of ids, with the extension `.template`. Its lines are the method, the path, the body
/// and, optionally, the maximum number of requests. `{id}` is replaced by a line of the file of ids, `{n}` by the number of the
/// request, `{names}` by [`Plan::names`].
pub(crate) struct Template {
    method: String,
    path: String,
    body: String,
    requests: usize,
}

impl Template {
    fn of(plan: &Plan) -> Self {
        let text = std::fs::read_to_string(plan.ids.with_extension("template")).unwrap_or_default();
        let mut lines = text.lines().map(str::to_owned);
        let mut line = || lines.next().unwrap_or_default();
        let (method, path, body) = (line(), line(), line());
        Self { method, path, body, requests: line().parse().unwrap_or(usize::MAX) }
    }
}

/// Settings of one run.
pub(crate) struct Plan {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
    /// A file with one id per line.
    pub(crate) ids: PathBuf,
    pub(crate) request: LoadRequest,
    pub(crate) connections: usize,
    pub(crate) seconds: u64,
    /// Part of the names of created objects.
    pub(crate) names: String,
}

impl Plan {
    pub(crate) fn to_text(&self) -> String {
        let request = REQUESTS.iter().position(|one| *one == self.request).unwrap();
        format!(
            "{} {} {} {request} {} {} {}",
            self.address,
            self.token,
            self.ids.display(),
            self.connections,
            self.seconds,
            self.names
        )
    }

    fn of(text: &str) -> Self {
        let parts: Vec<&str> = text.split(' ').collect();
        let [address, token, ids, request, connections, seconds, names] = parts[..] else { panic!("{text}") };
        Self {
            address: address.parse().unwrap(),
            token: token.to_owned(),
            ids: ids.into(),
            request: REQUESTS[request.parse::<usize>().unwrap()],
            connections: connections.parse().unwrap(),
            seconds: seconds.parse().unwrap(),
            names: names.to_owned(),
        }
    }
}

/// Parses the output of [`client`]: number of requests (or created objects, or pages), seconds, median and 99th percentile in ms.
pub(crate) fn parse_results(output: &[u8]) -> [f64; 4] {
    let text = std::str::from_utf8(output).unwrap();
    let all: Vec<f64> = text.split_whitespace().map(|text| text.parse().unwrap()).collect();
    all.try_into().unwrap()
}

/// Runs the plan and prints the results, which [`parse_results`] parses.
pub(crate) fn client(plan: &str) {
    let plan = Arc::new(Plan::of(plan));
    let ids = std::fs::read_to_string(&plan.ids).unwrap();
    let ids: Arc<Vec<String>> = Arc::new(ids.lines().map(str::to_owned).collect());
    let tls = Arc::new(testbed::accepts_any_certificate());
    let next = Arc::new(AtomicUsize::new(0));
    let template = Arc::new(Template::of(&plan));
    let lanes = (0..plan.connections).map(|_| {
        let stream = connect(Arc::clone(&tls), plan.address);
        let template = template.clone();
        Lane { plan: plan.clone(), ids: ids.clone(), next: next.clone(), template, stream, input: Vec::new() }
    });
    let lanes: Vec<Lane> = lanes.collect();
    let began = Instant::now();
    let lanes: Vec<_> = lanes.into_iter().map(|mut lane| std::thread::spawn(move || lane.run())).collect();
    let mut took: Vec<Duration> = lanes.into_iter().flat_map(|lane| lane.join().unwrap()).collect();
    let seconds = began.elapsed().as_secs_f64();
    took.sort();
    let at = |part: f64| took[((took.len() - 1) as f64 * part) as usize].as_secs_f64() * 1_000.0;
    let each = if plan.request == LoadRequest::CreateMany { BATCH } else { 1 };
    println!("{} {seconds} {} {}", took.len() * each, at(0.5), at(0.99));
}

/// One keep-alive connection to the server, which sends one request after the other on a thread of its own.
struct Lane {
    plan: Arc<Plan>,
    ids: Arc<Vec<String>>,
    next: Arc<AtomicUsize>,
    template: Arc<Template>,
    stream: StreamOwned<ClientConnection, TcpStream>,
    input: Vec<u8>,
}

impl Lane {
    fn run(&mut self) -> Vec<Duration> {
        if self.plan.request == LoadRequest::Walk {
            return self.walk();
        }
        let until = Instant::now() + Duration::from_secs(self.plan.seconds);
        let mut took = Vec::new();
        let tag = (self.plan.request == LoadRequest::Unchanged).then(|| {
            let (head, _) = self.request("GET", &format!("certificates/{}", self.ids[0]), "", "");
            header(&head, "etag").unwrap().to_owned()
        });
        while Instant::now() < until {
            let began = Instant::now();
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.template.requests {
                break;
            }
            let (head, body) = match (self.plan.request, &tag) {
                (LoadRequest::Unchanged, Some(tag)) => {
                    let path = format!("certificates/{}", self.ids[0]);
                    self.request("GET", &path, &format!("If-None-Match: {tag}\r\n"), "")
                }
                (LoadRequest::Page, _) => self.request("GET", "certificates?sort=expiry&limit=100", "", ""),
                (LoadRequest::Summary, _) => self.request("GET", "certificates/summary", "", ""),
                (LoadRequest::Create, _) => self.request("POST", "certificates", JSON, &self.entry(number)),
                (LoadRequest::Template, _) => self.templated(number),
                (LoadRequest::CreateMany, _) => {
                    let all: Vec<String> = (0..BATCH).map(|at| self.entry(number * BATCH + at)).collect();
                    let body = format!("{{\"certificates\":[{}]}}", all.join(","));
                    self.request("POST", "certificates/batch", JSON, &body)
                }
                _ => {
                    let id = self.ids[number.wrapping_mul(7_919) % self.ids.len()].clone();
                    self.request("GET", &format!("certificates/{id}"), "", "")
                }
            };
            took.push(began.elapsed());
            let status = &head[9..12];
            let missing = self.plan.request == LoadRequest::Template
                && self.template.path.contains("missing")
                && status == "404";
            assert!(missing || ["200", "201", "304"].contains(&status), "{head}{body}");
            assert!(!body.contains("\"status\":4"), "{body}");
        }
        took
    }

    /// Reads all pages of the listing, by the server's cursors.
    fn walk(&mut self) -> Vec<Duration> {
        let (mut took, mut cursor) = (Vec::new(), String::new());
        while took.len() < PAGES_MAX {
            let began = Instant::now();
            let (_, body) = self.request("GET", &format!("certificates?limit=500{cursor}"), "", "");
            took.push(began.elapsed());
            let page: serde_json::Value = serde_json::from_str(&body).unwrap();
            let Some(next) = page["next"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        took
    }

    fn templated(&mut self, number: usize) -> (String, String) {
        let template = Arc::clone(&self.template);
        let id = &self.ids[number.wrapping_mul(7_919) % self.ids.len()];
        let fill = |text: &str| {
            text.replace("{id}", id).replace("{n}", &number.to_string()).replace("{names}", &self.plan.names)
        };
        let (path, body) = (fill(&template.path), fill(&template.body));
        self.request(&template.method, &path, if body.is_empty() { "" } else { JSON }, &body)
    }

    fn entry(&self, number: usize) -> String {
        format!("{{\"names\":[\"n{number}.{}.example.net\"],\"profile\":\"web\"}}", self.plan.names)
    }

    /// Sends a request. Returns the header section and the body of the response.
    fn request(&mut self, method: &str, path: &str, headers: &str, body: &str) -> (String, String) {
        let request = format!(
            "{method} /api/v1/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {}\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            self.plan.token,
            body.len()
        );
        self.stream.write_all(request.as_bytes()).unwrap();
        self.stream.flush().unwrap();
        let end = loop {
            if let Some(at) = self.input.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            self.more();
        };
        let head: Vec<u8> = self.input.drain(..end).collect();
        let head = String::from_utf8(head).unwrap();
        let length = header(&head, "content-length").map_or(0, |text| text.parse().unwrap());
        while self.input.len() < length {
            self.more();
        }
        let body: Vec<u8> = self.input.drain(..length).collect();
        (head, String::from_utf8(body).unwrap())
    }

    fn more(&mut self) {
        let mut bytes = [0; 16_384];
        let read = self.stream.read(&mut bytes).unwrap();
        assert!(read > 0, "the server closed the connection");
        self.input.extend_from_slice(&bytes[..read]);
    }
}

const JSON: &str = "Content-Type: application/json\r\n";

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn connect(tls: Arc<ClientConfig>, address: SocketAddr) -> StreamOwned<ClientConnection, TcpStream> {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let name = ServerName::from(address.ip());
    StreamOwned::new(ClientConnection::new(tls, name).unwrap(), stream)
}

/// Returns a self-signed certificate for the loopback listener.
pub(crate) fn listener() -> Arc<rustls::sign::CertifiedKey> {
    let key = PrivateKey::generate(KeyType::P256).unwrap();
    let name = build::distinguished_name(&[]).der;
    let names = [GeneralName::parse("127.0.0.1").unwrap()];
    let now = Clock::system().now_seconds();
    let tbs = build::tbs_certificate(&CertificateSpec {
        serial: &SerialNumber::from_random(*Uuid::new_v4().as_bytes()),
        signature: key.algorithm(),
        issuer: &name,
        subject: &name,
        not_before: x509::UnixTime(now - 3_600),
        not_after: x509::UnixTime(now + 86_400),
        spki: key.spki(),
        extensions: &[Extension::subject_alt_names(&names).critical(true)],
    });
    let der = build::signed(&tbs, &key.algorithm(), &key.sign_now(&tbs).unwrap());
    server_certificate(&[der], &key).unwrap()
}

/// Returns the processor time of this process in µs (proc(5), utime and stime).
pub(crate) fn processor_us() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after = &stat[stat.rfind(')').unwrap() + 2..];
    let ticks: u64 = after.split(' ').skip(11).take(2).map(|text| text.parse::<u64>().unwrap()).sum();
    // A tick is 10 ms on Linux.
    ticks * 10_000
}
