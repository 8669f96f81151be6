//! Benchmark: processor time of the proxy per request. Only the proxy's own process counts, because client and upstream run on the same
//! machine. Cases: a new connection per request to one host, to many hosts and to new hosts; and keep-alive connections. Also counts
//! the leaf certificates that clients see when many request the same new hosts concurrently. The lower bound of the libraries (`bare`)
//! is measured for comparison.
//!
//! `cargo run --release -p proxy --example proxy_costs -- [SECONDS] [CLIENTS]`. Environment variables: `PEERS` has other proxies to
//! compare, one per line, as `NAME=COMMAND`. The shell command must listen on `ADDRESS`. It gets the PEM files `CA_CERT`, `CA_KEY` and
//! `UPSTREAM_ROOT`, and an empty folder `FOLDER`. `.ci/proxy-peers/run` starts some. `ROWS` selects cases by parts of their names,
//! separated by semicolons. `AUTHORITY=rsa2048` uses a CA key of this type. `AUDIT=FILE` writes an audit log, and `AUDIT_SYNC=yes`
//! waits for the disk.

#![allow(clippy::unwrap_used, reason = "an example")]

mod bare;
#[path = "../../tests/all/echo.rs"]
#[allow(dead_code, reason = "nobody asks for WebSockets here")]
mod echo;
#[path = "../../tests/all/world.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod world;

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use keys::PrivateKey;
use proxy::mint::Authority;
use proxy::requests::AuditOptions;
use proxy::{Options, ProxyMetrics};
use rustls::HandshakeKind;
use rustls::pki_types::ServerName;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use world::{Client, Upstream, exchange, head};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const HOSTS_COLD: usize = 10_000;
const DAY: Duration = Duration::from_secs(86_400);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if let Some(what @ ("bulla" | "limit")) = first.as_deref() {
        let files: Vec<Vec<u8>> = arguments.map(|path| std::fs::read(path).unwrap()).collect();
        let key = PrivateKey::from_der(&files[2]).unwrap();
        let authority = Authority::new(&[files[1].clone()], Arc::new(key), Vec::new()).unwrap();
        return match what {
            "limit" => runtime.block_on(bare::serve(&files[0], authority)),
            _ => runtime.block_on(serve(&files[0], authority)),
        };
    }
    let seconds = first.map_or(5, |text| text.parse().unwrap());
    let clients = arguments.next().map_or(16, |text| text.parse().unwrap());
    runtime.block_on(all(Duration::from_secs(seconds), clients));
}

/// Runs the proxy until the process is killed.
async fn serve(upstream_root: &[u8], authority: Authority) {
    let mut options = Options {
        listen: ([127, 0, 0, 1], 0).into(),
        upstream_roots: vec![upstream_root.to_vec()],
        new_names_per_minute: 1_000_000,
        new_names_burst: 1_000_000,
        // All clients have the same address.
        connections_per_address_max: Some(Options::default().connections_max),
        ..Options::default()
    };
    options.requests.audit = std::env::var("AUDIT")
        .ok()
        .map(|file| AuditOptions { file: file.into(), sync: std::env::var("AUDIT_SYNC").is_ok() });
    let running = proxy::start(options, authority, ProxyMetrics::default()).await.unwrap();
    println!("{}", running.address);
    std::future::pending::<()>().await;
}

/// The process of Bulla's proxy or of another proxy.
struct Proxy {
    process: Child,
    address: String,
    client: Client,
    /// TLS client that resumes sessions.
    resuming: Client,
    _folder: tempfile::TempDir,
}

impl Proxy {
    /// Starts `peer`, or without it Bulla's proxy or the lower bound, by `name`.
    async fn start(upstream: &Upstream, name: &str, peer: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kind = std::env::var("AUTHORITY").map_or(keys::KeyType::P256, |kind| kind.parse().unwrap());
        let key = PrivateKey::generate(kind).unwrap();
        let root = proxy::mint::new_root(&key, world::now()).unwrap();
        let write = |name: &str, bytes: &[u8]| {
            std::fs::write(folder.path().join(name), bytes).unwrap();
            folder.path().join(name)
        };
        let pem = |label: &str, der: &[u8]| x509::pem::encode(label, der).into_bytes();
        let (process, address) = match peer {
            None => {
                let der = key.to_pkcs8_der();
                let files = [write("upstream", &upstream.root), write("root", &root), write("key", &der)];
                let mut command = Command::new(std::env::current_exe().unwrap());
                let mut process = command.arg(name).args(files).stdout(Stdio::piped()).spawn().unwrap();
                let mut response = BufReader::new(process.stdout.take().unwrap());
                let mut address = String::new();
                response.read_line(&mut address).unwrap();
                (process, address.trim().to_owned())
            }
            Some(command) => {
                let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
                let process = Command::new("sh")
                    .args(["-c", command])
                    .env("ADDRESS", address.to_string())
                    .env("CA_CERT", write("root.pem", &pem("CERTIFICATE", &root)))
                    .env("CA_KEY", write("key.pem", &pem("PRIVATE KEY", &key.to_pkcs8_der())))
                    .env("UPSTREAM_ROOT", write("upstream.pem", &pem("CERTIFICATE", &upstream.root)))
                    .env("FOLDER", folder.path())
                    .stdout(Stdio::null())
                    .spawn()
                    .unwrap();
                (process, address.to_string())
            }
        };
        let began = Instant::now();
        while TcpStream::connect(&address).await.is_err() {
            assert!(began.elapsed() < world::TIMEOUT, "{peer:?} does not listen on {address}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let resuming = Client::of(&root, "http/1.1");
        Self { process, address, client: Client::fresh(&root), resuming, _folder: folder }
    }

    fn cpu(&self) -> Duration {
        cpu_of(self.process.id())
    }

    /// Returns the resident memory in MiB.
    fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1_024
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the processor time of a process (proc(5), utime and stime, in units of 10 ms).
fn cpu_of(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(10 * ticks)
}

/// The requests of one case.
struct Load {
    name: &'static str,
    hosts: usize,
    /// Total number of requests; `None`: until the time limit.
    requests: Option<usize>,
    clients: usize,
    /// Whether each client uses one keep-alive connection.
    keep_alive: bool,
    path: &'static str,
    resumes: bool,
    /// Whether all requests are sent once before the measurement.
    warm_up: bool,
    /// Whether the case is also measured for the lower bound.
    is_limited: bool,
}

async fn all(length: Duration, clients: usize) {
    let upstream = Upstream::for_all().await;
    let rows = std::env::var("ROWS").unwrap_or_default();
    let peers = std::env::var("PEERS").unwrap_or_default();
    let peers: Vec<(&str, &str)> = peers.lines().filter_map(|line| line.split_once('=')).collect();
    println!("{clients} clients, {} s a row; P-256; processor time of the proxy alone", length.as_secs());
    println!(
        "{:<44} {:<10} {:>9} {:>6} {:>8} {:>8} {:>8} {:>6} {:>8} {:>6}",
        "row", "proxy", "a second", "failed", "p50 ms", "p99 ms", "ms each", "leaves", "resumed", "MiB"
    );
    let load = |name, hosts, requests| {
        let (keep_alive, path, resumes, warm_up, is_limited) = (false, "/", false, false, hosts == 1);
        Load { name, hosts, requests, clients, keep_alive, path, resumes, warm_up, is_limited }
    };
    for load in [
        load("new connection, one host, kept upstream", 1, None),
        Load { resumes: true, ..load("the same, clients that resume", 1, None) },
        Load { path: "/closing", ..load("new connection, one host, new upstream", 1, None) },
        load("new connection, 100 hosts, kept upstream", 100, None),
        load("new connection, 10,000 hosts, new upstream", HOSTS_COLD, Some(HOSTS_COLD)),
        Load { warm_up: true, ..load("the same hosts again", HOSTS_COLD, Some(HOSTS_COLD)) },
        Load { keep_alive: true, ..load("connection that stays", 1, None) },
        Load { clients: 1_600, ..load("50 new hosts, 32 at once each", 50, Some(1_600)) },
    ] {
        if !rows.is_empty() && !rows.split(';').any(|part| load.name.contains(part)) {
            continue;
        }
        let ours = std::iter::once(("bulla", None));
        let limit = load.is_limited.then_some(("limit", None));
        let peers = peers.iter().map(|(name, command)| (*name, Some(*command)));
        let mut least = None;
        for (name, command) in ours.chain(limit).chain(peers) {
            let proxy = Proxy::start(&upstream, name, command).await;
            if load.warm_up {
                run(&proxy, &upstream, &load, length).await;
            }
            let before = proxy.cpu();
            let row = run(&proxy, &upstream, &load, length).await;
            let cpu = (proxy.cpu() - before).as_secs_f64() * 1_000.0 / row.took.len().max(1) as f64;
            let at = |part: usize| {
                row.took.get(row.took.len() * part / 100).copied().unwrap_or_default().as_secs_f64() * 1_000.0
            };
            let least = *least.get_or_insert(cpu);
            println!(
                "{:<44} {name:<10} {:>9.0} {:>6} {:>8.2} {:>8.2} {cpu:>8.3} {:>6} {:>7.1}% {:>6}   × {:.2}",
                load.name,
                row.took.len() as f64 / row.length.as_secs_f64(),
                row.failed,
                at(50),
                at(99),
                row.leaves,
                100.0 * row.resumed as f64 / row.handshakes.max(1) as f64,
                proxy.resident(),
                cpu / least,
            );
        }
    }
}

struct Row {
    took: Vec<Duration>,
    failed: usize,
    leaves: usize,
    resumed: usize,
    handshakes: usize,
    length: Duration,
}

/// Opens a connection through the proxy to a host.
async fn connect(proxy: &str, client: &Client, host: &str, port: u16) -> Option<Stream> {
    let mut stream = TcpStream::connect(proxy).await.ok()?;
    stream.set_nodelay(true).ok()?;
    let connect = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
    stream.write_all(connect.as_bytes()).await.ok()?;
    if !head(&mut stream).await.contains(" 200") {
        return None;
    }
    client.0.connect(ServerName::try_from(host.to_owned()).unwrap(), stream).await.ok()
}

type Stream = tokio_rustls::client::TlsStream<TcpStream>;

/// Runs a case. Each host is another name for the same upstream on this machine.
async fn run(proxy: &Proxy, upstream: &Upstream, load: &Load, length: Duration) -> Row {
    let (began, next) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
    let leaves = Arc::new(Mutex::new(HashSet::new()));
    let (resumed, handshakes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (hosts, requests, keep_alive, path) = (load.hosts, load.requests, load.keep_alive, load.path);
    let mut all = Vec::new();
    for _ in 0..load.clients {
        let client = if load.resumes { &proxy.resuming } else { &proxy.client };
        let (address, client) = (proxy.address.clone(), client.clone());
        let (resumed, handshakes) = (Arc::clone(&resumed), Arc::clone(&handshakes));
        let (port, next, leaves) = (upstream.address.port(), Arc::clone(&next), Arc::clone(&leaves));
        all.push(tokio::spawn(async move {
            let (mut took, mut failed, mut stays) = (Vec::new(), 0, None);
            loop {
                let number = next.fetch_add(1, Relaxed);
                if requests.map_or(began.elapsed() >= length, |requests| number >= requests) {
                    return (took, failed);
                }
                let started = Instant::now();
                let host = if hosts == 1 {
                    "localhost".to_owned()
                } else {
                    format!("h{}.localhost", number % hosts)
                };
                let stream = match stays.take() {
                    Some(stream) => Some(stream),
                    None => connect(&address, &client, &host, port).await,
                };
                let Some(mut stream) = stream else {
                    failed += 1;
                    continue;
                };
                if let Some([leaf, ..]) = stream.get_ref().1.peer_certificates() {
                    leaves.lock().unwrap().insert(leaf.to_vec());
                }
                if took.is_empty() || !keep_alive {
                    let kind = stream.get_ref().1.handshake_kind();
                    handshakes.fetch_add(1, Relaxed);
                    resumed.fetch_add((kind == Some(HandshakeKind::Resumed)).into(), Relaxed);
                }
                let request = format!("GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
                let response = exchange(&mut stream, &request).await;
                if !response.starts_with("HTTP/1.1 200") {
                    failed += 1;
                    continue;
                }
                took.push(started.elapsed());
                stays = keep_alive.then_some(stream);
            }
        }));
    }
    let (mut took, mut failed) = (Vec::new(), 0);
    for one in all {
        // A client that panicked or was aborted counts as one failure.
        let (part, of_it) = one.await.unwrap_or_else(|_| (Vec::new(), 1));
        took.extend(part);
        failed += of_it;
    }
    took.sort_unstable();
    let leaves = leaves.lock().unwrap().len();
    let (resumed, handshakes) = (resumed.load(Relaxed), handshakes.load(Relaxed));
    Row { took, failed, leaves, resumed, handshakes, length: began.elapsed() }
}
