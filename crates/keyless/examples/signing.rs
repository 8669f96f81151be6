//! Benchmark: signatures per second and latency of the service over mutual TLS, with a client on the same processors. The same run
//! measures the library alone and `openssl speed` for comparison. A further case measures local signatures on one connection while
//! other requests wait for a slow key.
//!
//! `cargo run --release -p keyless --example signing -- [--seconds 5] [--only throughput|native|line]`

#![allow(clippy::unwrap_used, reason = "a benchmark ends by a panic where it cannot go on")]

#[path = "../tests/all/certificates.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod certificates;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use certificates::{Authority, CLIENT_AUTH, SERVER_AUTH};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use keyless::native::proto::{SignRequest, sign_request};
use keyless::native::{CallOptions, Client, proto_scheme, signature};
use keyless::server::{Options, TlsOptions, start};
use keyless::wire::{HEADER, MessageItems, Ski, first};
use keyless::{KeySet, Metrics};
use keys::{Deadline, Hash, KeyRef, KeyType, PrivateKey, Scheme, SignError, Signer};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The measured operations: name, opcode, key type, scheme, and the name in `openssl speed`.
const WORK: [(&str, u8, KeyType, Scheme, &str); 3] = [
    ("RSA-2048 PSS", 0x35, KeyType::Rsa2048, Scheme::RsaPss(Hash::Sha256), "rsa2048"),
    ("P-256", 0x15, KeyType::P256, Scheme::Ecdsa(Hash::Sha256), "ecdsap256"),
    ("Ed25519", 0x18, KeyType::Ed25519, Scheme::Ed25519, "ed25519"),
];
/// Requests in flight, and the number of connections that they share.
const LOADS: [(usize, usize); 4] = [(1, 1), (16, 4), (128, 16), (1_024, 32)];
/// Signatures per second of gokeyless (the reference implementation) on two such processors, by operation and load.
const PEER: [[f64; 4]; 3] = [
    [781.0, 1_808.0, 1_712.0, 1_681.0],
    [4_464.0, 15_973.0, 17_943.0, 19_045.0],
    [5_488.0, 20_921.0, 22_642.0, 24_109.0],
];
/// Time for which the slow key waits before it signs.
const SLOW: Duration = Duration::from_secs(2);
/// Requests per second in the case with the slow key.
const LINE_RATE: u32 = 2_000;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let after = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    if let Some(folder) = after("--serve") {
        return serve(&folder).await;
    }
    let seconds: f64 = after("--seconds").map_or(5.0, |text| text.parse().unwrap());
    let span = Duration::from_secs_f64(seconds);
    let only = after("--only");
    let chosen = |name| only.as_deref().is_none_or(|only| only == name);
    let fixture = Fixture::start();
    println!("{} processors; each cell {seconds} s", processors());
    if chosen("throughput") {
        throughput(&fixture, span).await;
    }
    if chosen("native") {
        native(&fixture, span).await;
    }
    if chosen("line") {
        line(&fixture, span).await;
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A remote key that responds slowly.
#[derive(Debug)]
struct SlowKey(PrivateKey);

impl Signer for SlowKey {
    fn key_type(&self) -> KeyType {
        self.0.key_type()
    }

    fn spki(&self) -> &[u8] {
        self.0.spki()
    }

    fn sign<'a>(&'a self, _: &'a [u8], _: Deadline) -> BoxFuture<'a, Result<Vec<u8>, SignError>> {
        unreachable!("the protocol signs by scheme")
    }

    fn sign_digest<'a>(
        &'a self,
        scheme: Scheme,
        input: &'a [u8],
        _: Deadline,
    ) -> BoxFuture<'a, Result<Vec<u8>, SignError>> {
        Box::pin(async move {
            tokio::time::sleep(SLOW).await;
            self.0.sign_digest_now(scheme, input)
        })
    }
}

/// Runs the service in a separate process. Ends when standard input is closed.
async fn serve(folder: &str) {
    let (server_ca, client_ca) = (Authority::new("servers"), Authority::new("clients"));
    let put = |name: &str, bytes: &[u8]| std::fs::write(format!("{folder}/{name}"), bytes).unwrap();
    let (chain, key) = client_ca.leaf(&[CLIENT_AUTH]).chain_and_key();
    put("server-ca", &server_ca.der);
    put("client", &chain[0]);
    put("client-key", key.secret_der());
    let mut keys: Vec<KeyRef> = Vec::new();
    for (_, _, kind, _, _) in WORK {
        keys.push(Arc::new(PrivateKey::generate(kind).unwrap()));
    }
    keys.push(Arc::new(SlowKey(PrivateKey::generate(KeyType::Ed25519).unwrap())));
    let names: Vec<String> = keys.iter().map(|key| Ski::of_spki(key.spki()).to_string()).collect();
    let set = KeySet::default();
    set.put("bench", keys);
    let tls = TlsOptions {
        certificate: server_ca.leaf(&[SERVER_AUTH]).certified(),
        client_roots: vec![client_ca.der.clone()],
        client_crls: Vec::new(),
    };
    let anywhere = "127.0.0.1:0".parse().unwrap();
    let options = Options { tls: Some((anywhere, tls)), native: Some(anywhere), ..Options::default() };
    let running = start(options, set, Metrics::default()).await.unwrap();
    let ports = (running.address.unwrap().port(), running.native.unwrap().port());
    println!("{} {} {}", ports.0, ports.1, names.join(" "));
    let _ = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await;
    running.stop().await;
}

/// The process of the service, and its addresses.
struct Fixture {
    child: Child,
    port: u16,
    native_port: u16,
    names: Vec<Ski>,
    tls: Arc<ClientConfig>,
    _folder: tempfile::TempDir,
}

impl Fixture {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg("--serve")
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mut words = line.split_whitespace();
        let port = words.next().unwrap().parse().unwrap();
        let native_port = words.next().unwrap().parse().unwrap();
        let names = words.map(ski).collect();
        let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(read("server-ca"))).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(read("client-key")));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![CertificateDer::from(read("client"))], key)
            .unwrap();
        Self { child, port, native_port, names, tls: Arc::new(tls), _folder: folder }
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream).await.unwrap()
    }

    /// Returns the processor time so far in seconds.
    fn cpu(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
        // USER_HZ is 100 on every Linux.
        ticks / 100.0
    }

    /// Returns the processor time that the service uses between two future times.
    async fn spent(&self, from: Instant, end: Instant) -> f64 {
        tokio::time::sleep_until(from.into()).await;
        let before = self.cpu();
        tokio::time::sleep_until(end.into()).await;
        self.cpu() - before
    }

    /// Returns a value of `/proc/PID/status` in MiB.
    fn memory(&self, line: &str) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let found = status.lines().find_map(|text| text.strip_prefix(line)).unwrap();
        found.trim_matches([':', '\t', ' ']).split(' ').next().unwrap().parse::<f64>().unwrap() / 1024.0
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn ski(text: &str) -> Ski {
    Ski(data_encoding::HEXLOWER_PERMISSIVE.decode(text.as_bytes()).unwrap().try_into().unwrap())
}

/// Returns an encoded request without its id, which is in bytes 4 to 8.
fn request(opcode: u8, ski: Ski) -> Vec<u8> {
    let mut message = Vec::new();
    let items = MessageItems { opcode, ski: Some(ski), payload: &[0x5a; 32], ..MessageItems::default() };
    items.encode(0, &mut message).unwrap();
    message
}

async fn throughput(fixture: &Fixture, span: Duration) {
    let openssl = openssl_speed();
    println!("\nthe service at rest: {:.1} MiB", fixture.memory("VmRSS"));
    println!(
        "closed loop          |      /s |  p50 ms |  p99 ms | p99.9 ms | CPU µs | of bare | of openssl | of gokeyless"
    );
    for (which, (name, opcode, kind, scheme, _)) in WORK.into_iter().enumerate() {
        let bare = bare(kind, scheme);
        println!(
            "{name}: bare library {bare:.0}/s, openssl speed {:.0}/s, on {} processors",
            openssl[which],
            processors()
        );
        for (at, (in_flight, connections)) in LOADS.into_iter().enumerate() {
            let message = request(opcode, fixture.names[which]);
            let (rate, mut took, cpu) = closed_loop(fixture, &message, in_flight, connections, span).await;
            let cpu = cpu * 1e6 / took.len() as f64;
            took.sort_unstable();
            println!(
                "  c={in_flight:<5} {connections:>2} conns   | {rate:>7.0} | {:>7.3} | {:>7.3} | {:>8.3} | {cpu:>6.1} | {:>7.2} | {:>10.2} | {:>12.2}",
                part(&took, 0.5),
                part(&took, 0.99),
                part(&took, 0.999),
                rate / bare,
                rate / openssl[which],
                rate / PEER[which][at],
            );
        }
    }
    println!("the service at its peak: {:.1} MiB", fixture.memory("VmHWM"));
}

/// Requests in flight, the number of connections that they share, and signatures per request of the native protocol (0: a stream).
const NATIVE_LOADS: [(usize, usize, usize); 5] =
    [(1, 1, 1), (128, 16, 1), (1, 1, 64), (16, 4, 64), (128, 16, 0)];

/// Measures the native protocol: single signatures, batches of 64, and streams.
async fn native(fixture: &Fixture, span: Duration) {
    println!(
        "\nnative protocol, closed loop        |   sig/s |  p50 ms |  p99 ms | p99.9 ms | CPU µs a signature"
    );
    for (which, (name, _, _, scheme, _)) in WORK.into_iter().enumerate() {
        println!("{name}");
        for (in_flight, connections, batch) in NATIVE_LOADS {
            let request = SignRequest {
                key: Some(sign_request::Key::Ski(fixture.names[which].0.to_vec())),
                scheme: proto_scheme(scheme).into(),
                input: vec![0x5a; 32],
                ..SignRequest::default()
            };
            let began = Instant::now();
            let (counts_from, end) = (began + span / 5, began + span + span / 5);
            let mut tasks = Vec::new();
            for _ in 0..connections {
                let address = format!("127.0.0.1:{}", fixture.native_port);
                let client = Client::tls(&address, "localhost", &fixture.tls).unwrap();
                if batch == 0 {
                    tasks.push(tokio::spawn(one_stream(
                        client,
                        request.clone(),
                        in_flight / connections,
                        counts_from,
                        end,
                    )));
                    continue;
                }
                for _ in 0..in_flight / connections {
                    let (client, request) = (client.clone(), request.clone());
                    tasks.push(tokio::spawn(one_caller(client, request, batch, counts_from, end)));
                }
            }
            let cpu = fixture.spent(counts_from, end).await;
            let mut took = Vec::new();
            for task in tasks {
                took.extend(task.await.unwrap());
            }
            let signatures = took.len() as f64 * batch.max(1) as f64;
            let cpu = cpu * 1e6 / signatures;
            took.sort_unstable();
            let what = if batch == 0 { "stream".to_owned() } else { format!("batch of {batch}") };
            println!(
                "  {what:<11} c={in_flight:<5} {connections:>2} conns | {:>7.0} | {:>7.3} | {:>7.3} | {:>8.3} | {cpu:>6.1}",
                signatures / span.as_secs_f64(),
                part(&took, 0.5),
                part(&took, 0.99),
                part(&took, 0.999),
            );
        }
    }
}

/// Makes one call after the other. Returns the latency of each in µs.
async fn one_caller(
    client: Client,
    request: SignRequest,
    batch: usize,
    counts_from: Instant,
    end: Instant,
) -> Vec<u32> {
    let mut took = Vec::new();
    loop {
        let began = Instant::now();
        let terms = CallOptions::until(began + Duration::from_secs(10));
        if batch == 1 {
            client.sign(request.clone(), terms).await.unwrap();
        } else {
            let replies = client.sign_batch(vec![request.clone(); batch], terms).await.unwrap();
            assert!(replies.iter().all(Result::is_ok));
        }
        let now = Instant::now();
        if now >= end {
            return took;
        }
        if now >= counts_from {
            took.push((now - began).as_micros() as u32);
        }
    }
}

/// Keeps a fixed number of requests in flight on one stream. Returns the latency of each in µs.
async fn one_stream(
    client: Client,
    request: SignRequest,
    in_flight: usize,
    counts_from: Instant,
    end: Instant,
) -> Vec<u32> {
    let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
    let requests = futures_util::stream::poll_fn(move |context| receive.poll_recv(context));
    let terms = CallOptions::until(Instant::now() + Duration::from_secs(10));
    let mut sent_at = vec![Instant::now(); in_flight];
    for id in 0..in_flight as u64 {
        send.send(SignRequest { id, ..request.clone() }).unwrap();
    }
    let mut replies = client.sign_stream(requests, terms).await.unwrap();
    let mut took = Vec::new();
    loop {
        let reply = replies.next().await.unwrap().unwrap();
        let (id, now) = (reply.id, Instant::now());
        signature(reply).unwrap();
        if now >= end {
            return took;
        }
        if now >= counts_from {
            took.push((now - sent_at[id as usize]).as_micros() as u32);
        }
        sent_at[id as usize] = now;
        send.send(SignRequest { id, ..request.clone() }).unwrap();
    }
}

/// Returns the quantile `part` in ms.
fn part(sorted_us: &[u32], part: f64) -> f64 {
    let at = ((sorted_us.len() as f64 * part) as usize).min(sorted_us.len().saturating_sub(1));
    sorted_us.get(at).map_or(f64::NAN, |us| f64::from(*us) / 1e3)
}

/// Returns the replies per second, the latency of each in µs, and the processor time of the service in seconds. The first fifth of
/// the time is warm-up and is not counted.
async fn closed_loop(
    fixture: &Fixture,
    message: &[u8],
    in_flight: usize,
    connections: usize,
    span: Duration,
) -> (f64, Vec<u32>, f64) {
    let mut streams = Vec::new();
    for _ in 0..connections {
        streams.push(fixture.connect().await);
    }
    let began = Instant::now();
    let (counts_from, end) = (began + span / 5, began + span + span / 5);
    let tasks: Vec<_> = streams
        .into_iter()
        .map(|stream| {
            let message = message.to_vec();
            tokio::spawn(one_connection(stream, message, in_flight / connections, counts_from, end))
        })
        .collect();
    let cpu = fixture.spent(counts_from, end).await;
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    (all.len() as f64 / span.as_secs_f64(), all, cpu)
}

/// Keeps a fixed number of requests in flight on one connection. After each read, sends as many new requests in one write.
async fn one_connection(
    mut stream: TlsStream<TcpStream>,
    mut message: Vec<u8>,
    in_flight: usize,
    counts_from: Instant,
    end: Instant,
) -> Vec<u32> {
    let mut sent_at = vec![Instant::now(); in_flight];
    let (mut took, mut out, mut input, mut filled) = (Vec::new(), Vec::new(), vec![0; 128 << 10], 0);
    let mut next: Vec<u32> = (0..in_flight as u32).collect();
    loop {
        let now = Instant::now();
        if now >= end {
            return took;
        }
        out.clear();
        for id in next.drain(..) {
            sent_at[id as usize] = now;
            message[4..8].copy_from_slice(&id.to_be_bytes());
            out.extend_from_slice(&message);
        }
        stream.write_all(&out).await.unwrap();
        stream.flush().await.unwrap();
        while next.is_empty() {
            let count = stream.read(&mut input[filled..]).await.unwrap();
            assert!(count > 0, "the service hung up");
            filled += count;
            let now = Instant::now();
            let mut at = 0;
            while let Some((header, body)) = first(&input[at..filled]) {
                let items = MessageItems::parse(body).unwrap();
                assert_eq!(items.opcode, 0xf0, "error {:?}", items.payload);
                if now >= counts_from && now < end {
                    took.push((now - sent_at[header.id as usize]).as_micros() as u32);
                }
                next.push(header.id);
                at += HEADER + body.len();
            }
            input.copy_within(at..filled, 0);
            filled -= at;
        }
    }
}

/// Returns the signatures per second of the library alone, on all processors.
fn bare(kind: KeyType, scheme: Scheme) -> f64 {
    const SPAN: Duration = Duration::from_secs(2);
    let key = PrivateKey::generate(kind).unwrap();
    let threads: Vec<_> = (0..processors())
        .map(|_| {
            let key = key.clone();
            std::thread::spawn(move || {
                let began = Instant::now();
                let mut count = 0_u32;
                while began.elapsed() < SPAN {
                    key.sign_digest_now(scheme, &[0x5a; 32]).unwrap();
                    count += 1;
                }
                f64::from(count) / began.elapsed().as_secs_f64()
            })
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).sum()
}

/// Returns the signatures per second of `openssl speed` on all processors, in the order of [`WORK`]. NaN if it prints no result.
fn openssl_speed() -> [f64; 3] {
    WORK.map(|(_, _, _, _, name)| {
        let multi = processors().to_string();
        let run =
            Command::new("openssl").args(["speed", "-mr", "-seconds", "2", "-multi", &multi, name]).output();
        let text = run.map(|run| String::from_utf8_lossy(&run.stdout).into_owned()).unwrap_or_default();
        // The last line has the sum of all processes. In +F2 (RSA) and +F4 (ECDSA), number and bits precede the signatures per second; in
        // +F6 (EdDSA), a name does, too.
        let line = text.lines().rfind(|line| line.starts_with("+F")).unwrap_or_default();
        let fields: Vec<&str> = line.split(':').collect();
        let at = if fields.first() == Some(&"+F6") { 4 } else { 3 };
        fields.get(at).and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
    })
}

/// Measures the latency of P-256, from the time when each request was due, at a fixed rate on one connection: alone, then with 40 % of
/// the requests to a key that waits for two seconds.
async fn line(fixture: &Fixture, span: Duration) {
    println!("\nopen loop, {LINE_RATE} requests/s on ONE connection, latency from when it was due");
    println!("                              | P-256 p50 |     p99 | p99.9 ms | slow p50 | errors");
    let span = span.max(SLOW * 3);
    let mut alone = f64::NAN;
    for (name, slow_percent) in [("P-256 alone", 0), ("60 % + 40 % that wait 2 s", 40)] {
        let before = fixture.memory("VmRSS");
        let (mut fast, mut slow, errors, peak) = open_loop(fixture, slow_percent, span).await;
        fast.sort_unstable();
        slow.sort_unstable();
        let p99 = part(&fast, 0.99);
        let ratio = if alone.is_nan() { String::new() } else { format!("; p99 × {:.2}", p99 / alone) };
        alone = p99;
        println!(
            "{name:<29} | {:>9.3} | {p99:>7.3} | {:>8.3} | {:>8.0} | {errors}{ratio}; {before:.1} → {peak:.1} MiB",
            part(&fast, 0.5),
            part(&fast, 0.999),
            part(&slow, 0.5),
        );
    }
}

/// Returns the latencies of fast and of slow requests in µs, the number of errors, and the service's memory in MiB near the end.
async fn open_loop(fixture: &Fixture, slow_percent: u32, span: Duration) -> (Vec<u32>, Vec<u32>, usize, f64) {
    let stream = fixture.connect().await;
    let (mut reader, mut writer) = tokio::io::split(stream);
    let total = (f64::from(LINE_RATE) * span.as_secs_f64()) as u32;
    let is_slow = move |id: u32| id % 100 < slow_percent;
    let began = Instant::now() + Duration::from_millis(100);
    let due = move |id: u32| began + Duration::from_secs(1) * id / LINE_RATE;
    let (mut fast, mut slow) = (request(0x15, fixture.names[1]), request(0x18, fixture.names[3]));
    let sending = tokio::spawn(async move {
        for id in 0..total {
            tokio::time::sleep_until(due(id).into()).await;
            let message = if is_slow(id) { &mut slow } else { &mut fast };
            message[4..8].copy_from_slice(&id.to_be_bytes());
            writer.write_all(message).await.unwrap();
            writer.flush().await.unwrap();
        }
        writer
    });
    let (mut took, mut errors, mut seen, mut peak) = ((Vec::new(), Vec::new()), 0, 0, 0.0);
    let (mut input, mut filled) = (vec![0; 128 << 10], 0);
    while seen < total {
        let count = reader.read(&mut input[filled..]).await.unwrap();
        assert!(count > 0, "the service hung up");
        filled += count;
        let (now, mut at) = (Instant::now(), 0);
        while let Some((header, body)) = first(&input[at..filled]) {
            let us = now.saturating_duration_since(due(header.id)).as_micros() as u32;
            match MessageItems::parse(body).unwrap().opcode {
                0xf0 if is_slow(header.id) => took.1.push(us),
                0xf0 => took.0.push(us),
                _ => errors += 1,
            }
            seen += 1;
            if seen == total / 2 {
                peak = fixture.memory("VmRSS");
            }
            at += HEADER + body.len();
        }
        input.copy_within(at..filled, 0);
        filled -= at;
    }
    let _writer = sending.await.unwrap();
    std::io::stdout().flush().unwrap();
    (took.0, took.1, errors, peak)
}
