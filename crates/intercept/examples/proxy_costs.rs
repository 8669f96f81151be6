//! What the proxy costs a request, in processor time of its own process alone, as client and upstream share the machine with it:
//! a new connection each to one host, to many, to hosts nobody asked for before; and on a connection that stays.
//!
//! `cargo run --release -p intercept --example proxy_costs -- [SECONDS] [CLIENTS]`

#![allow(clippy::unwrap_used, reason = "an example")]

#[path = "../tests/all/world.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod world;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use intercept::mint::Authority;
use intercept::proxy::{self, Options, ProxyMetrics};
use keys::PrivateKey;
use rustls::pki_types::ServerName;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use world::{Client, Upstream, ask, head};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const HOSTS_COLD: usize = 10_000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if first.as_deref() == Some("serve") {
        let files: Vec<Vec<u8>> = arguments.map(|path| std::fs::read(path).unwrap()).collect();
        return runtime.block_on(serve(&files[0], &files[1], &files[2]));
    }
    let seconds = first.map_or(5, |text| text.parse().unwrap());
    let clients = arguments.next().map_or(16, |text| text.parse().unwrap());
    runtime.block_on(all(Duration::from_secs(seconds), clients));
}

/// The proxy, until its standard input ends.
async fn serve(upstream_root: &[u8], root: &[u8], key: &[u8]) {
    let key = PrivateKey::from_der(key).unwrap();
    let authority = Authority::new(&[root.to_vec()], Arc::new(key), Vec::new()).unwrap();
    let options = Options {
        listen: ([127, 0, 0, 1], 0).into(),
        upstream_roots: vec![upstream_root.to_vec()],
        new_names_per_minute: 1_000_000,
        new_names_burst: 1_000_000,
        ..Options::default()
    };
    let running = proxy::start(options, authority, ProxyMetrics::default()).await.unwrap();
    println!("{}", running.address);
    for line in std::io::stdin().lines() {
        if line.is_ok() {
            println!("{}", running.store().counts().minted);
        }
    }
}

/// The proxy's process.
struct Proxy {
    process: Child,
    said: BufReader<std::process::ChildStdout>,
    address: String,
    client: Client,
}

impl Proxy {
    fn start(upstream: &Upstream) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = PrivateKey::generate(keys::KeyType::P256).unwrap();
        let root = intercept::mint::new_root(&key, world::now()).unwrap();
        let write = |name: &str, octets: &[u8]| {
            std::fs::write(folder.path().join(name), octets).unwrap();
            folder.path().join(name)
        };
        let files =
            [write("upstream", &upstream.root), write("root", &root), write("key", &key.to_pkcs8_der())];
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut process =
            command.arg("serve").args(files).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(process.stdout.take().unwrap());
        let mut address = String::new();
        said.read_line(&mut address).unwrap();
        Self { process, said, address: address.trim().to_owned(), client: Client::fresh(&root) }
    }

    fn minted(&mut self) -> u64 {
        let mut line = String::new();
        self.process.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        self.said.read_line(&mut line).unwrap();
        line.trim().parse().unwrap()
    }

    fn cpu(&self) -> Duration {
        cpu_of(self.process.id())
    }

    /// MiB that are in memory.
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

/// `man 5 proc`, utime and stime, in hundredths of a second.
fn cpu_of(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(10 * ticks)
}

async fn all(length: Duration, clients: usize) {
    let upstream = Upstream::for_all().await;
    println!("{clients} clients, {} s a row; P-256; processor time of the proxy alone", length.as_secs());
    println!(
        "{:<46} {:>9} {:>8} {:>8} {:>8} {:>7} {:>8}",
        "row", "a second", "p50 ms", "p99 ms", "ms each", "leaves", "MiB"
    );
    for (name, hosts, kept) in [
        ("new connection, one host, kept upstream", 1, false),
        ("new connection, 100 hosts, kept upstream", 100, false),
        ("new connection, 10,000 hosts, new upstream", HOSTS_COLD, false),
        ("connection that stays", 1, true),
    ] {
        let mut proxy = Proxy::start(&upstream);
        let row = run(&proxy, &upstream, hosts, kept, length, clients).await;
        let cpu = proxy.cpu().as_secs_f64() * 1_000.0 / row.took.len() as f64;
        let at = |part: usize| row.took[row.took.len() * part / 100].as_secs_f64() * 1_000.0;
        println!(
            "{name:<46} {:>9.0} {:>8.2} {:>8.2} {cpu:>8.3} {:>7} {:>8}",
            row.took.len() as f64 / row.length.as_secs_f64(),
            at(50),
            at(99),
            proxy.minted(),
            proxy.resident(),
        );
    }
}

struct Row {
    took: Vec<Duration>,
    length: Duration,
}

/// Each host is another name for the same upstream: it is asked of as `localhost`, which its certificate is for, on a port that
/// CONNECT names; what the leaf is for is told by the ClientHello.
async fn run(
    proxy: &Proxy,
    upstream: &Upstream,
    hosts: usize,
    kept: bool,
    length: Duration,
    clients: usize,
) -> Row {
    let (began, next) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
    let whole = hosts == HOSTS_COLD;
    let mut all = Vec::new();
    for _ in 0..clients {
        let (address, client) = (proxy.address.clone(), proxy.client.clone());
        let (target, next) = (format!("localhost:{}", upstream.address.port()), Arc::clone(&next));
        all.push(tokio::spawn(async move {
            let mut took = Vec::new();
            let mut stays = None;
            loop {
                let number = next.fetch_add(1, Relaxed);
                if if whole { number >= hosts } else { began.elapsed() >= length } {
                    return took;
                }
                let asked = Instant::now();
                let name = if hosts == 1 {
                    "localhost".to_owned()
                } else {
                    format!("h{}.localhost", number % hosts)
                };
                let mut stream = match stays.take() {
                    Some(stream) => stream,
                    None => {
                        let mut stream = TcpStream::connect(&address).await.unwrap();
                        stream.set_nodelay(true).unwrap();
                        let connect = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
                        stream.write_all(connect.as_bytes()).await.unwrap();
                        assert!(head(&mut stream).await.starts_with("HTTP/1.1 200"));
                        client.0.connect(ServerName::try_from(name).unwrap(), stream).await.unwrap()
                    }
                };
                let said = ask(&mut stream, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
                assert!(said.starts_with("HTTP/1.1 200"), "{said}");
                took.push(asked.elapsed());
                stays = kept.then_some(stream);
            }
        }));
    }
    let mut took = Vec::new();
    for one in all {
        took.extend(one.await.unwrap());
    }
    let length = began.elapsed();
    took.sort_unstable();
    Row { took, length }
}
