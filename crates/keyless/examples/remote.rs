//! Benchmark: signatures per second that a node gets from another node over one connection with a given latency, compared with a node
//! without latency and with the limit that the latency sets.
//!
//! `cargo run --release -p keyless --example remote -- [--seconds 5]`

#![allow(clippy::unwrap_used, reason = "a benchmark ends by a panic where it cannot go on")]

#[path = "../tests/all/certificates.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod certificates;
#[path = "../tests/all/relay.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod relay;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use certificates::{Authority, CLIENT_AUTH, Identity, SERVER_AUTH};
use keyless::client::ClientTls;
use keyless::routing::{
    Member, NodeId, RoutedKey, Router, RouterOptions, RoutingMetrics, TENANT_IN_FLIGHT_MAX,
};
use keyless::server::{NodesOptions, Options, TlsOptions, start};
use keyless::{KeySet, Metrics, Source};
use keys::{Hash, KeyType, PrivateKey, Scheme, Signer};
use relay::Relay;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use x509::{GeneralName, SpkiHash};

const WORK: Scheme = Scheme::Ecdsa(Hash::Sha256);
/// Ids of the two nodes.
const HERE: NodeId = NodeId([1; 16]);
const THERE: NodeId = NodeId([2; 16]);

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
    let span = Duration::from_secs_f64(after("--seconds").map_or(5.0, |text| text.parse().unwrap()));
    let remote = RemoteProcess::start();
    println!("P-256, one connection, both nodes and the way between them on the same processors");
    println!(
        "{:>8} {:>9} {:>10} {:>8} {:>8} {:>8} {:>12} {:>14}",
        "way ms", "in flight", "a second", "p50 ms", "p99 ms", "p99.9", "of the way's", "CPU us (there)"
    );
    for round_trip_ms in [0, 20, 100] {
        for in_flight in [1, 128, 1_024, TENANT_IN_FLIGHT_MAX / 2, TENANT_IN_FLIGHT_MAX] {
            measure(&remote, round_trip_ms, in_flight, span).await;
        }
    }
}

fn identity(ca: &Authority, id: NodeId) -> Identity {
    let names = [GeneralName::Uri(id.uri()), GeneralName::Dns(id.dns())];
    ca.leaf_of("CN=node", &names, &[SERVER_AUTH, CLIENT_AUTH])
}

fn router(id: NodeId, certificate: Arc<CertifiedKey>, ca: &[u8]) -> Router {
    let tls = ClientTls { certificate, server_roots: vec![ca.to_vec()] };
    Router::new(id, &tls, RouterOptions::default(), RoutingMetrics::default()).unwrap()
}

fn member(id: NodeId, address: String, of: SpkiHash) -> Member {
    Member { id, name: "node".to_owned(), site: "site".to_owned(), address, tls_spki_sha256: of }
}

/// Runs the node that has the key, in a separate process. Ends when standard input is closed.
async fn serve(folder: &str) {
    let ca = Authority::new("nodes");
    let key = PrivateKey::generate(KeyType::P256).unwrap();
    let put = |name: &str, bytes: &[u8]| std::fs::write(format!("{folder}/{name}"), bytes).unwrap();
    let local = identity(&ca, HERE);
    let (chain, secret) = local.chain_and_key();
    put("ca", &ca.der);
    put("here", &chain[0]);
    put("here-key", secret.secret_der());
    put("spki", key.spki());
    let remote = identity(&ca, THERE);
    put("there-spki", remote.spki_sha256().as_bytes());
    let certificate = remote.certified();
    let router = router(THERE, certificate.clone(), &ca.der);
    // The address is not used: the node must only be a member.
    router.set_members(vec![member(HERE, "127.0.0.1:1".to_owned(), local.spki_sha256())]);
    let set = KeySet::default();
    set.put_sources("bench", vec![(String::new(), Source::Sealed(Arc::new(key)))]);
    let tls = TlsOptions { certificate, client_roots: vec![ca.der.clone()], client_crls: Vec::new() };
    let nodes = NodesOptions { address: "127.0.0.1:0".parse().unwrap(), tls, router };
    let options = Options { nodes: Some(nodes), ..Options::default() };
    let running = start(options, set, Metrics::default()).await.unwrap();
    println!("{}", running.nodes.unwrap());
    let _ = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await;
    running.stop().await;
}

struct RemoteProcess {
    child: Child,
    address: std::net::SocketAddr,
    folder: tempfile::TempDir,
}

impl RemoteProcess {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--serve", folder.path().to_str().unwrap()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        Self { child, address: line.trim().parse().unwrap(), folder }
    }

    fn file(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.folder.path().join(name)).unwrap()
    }

    /// Returns the processor time so far in µs.
    fn cpu_us(&self) -> f64 {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
        ticks * 10_000.0
    }
}

impl Drop for RemoteProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn measure(remote: &RemoteProcess, round_trip_ms: u64, in_flight: usize, span: Duration) {
    let relay = Relay::new(remote.address, Duration::from_millis(round_trip_ms) / 2).await;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(remote.file("here-key")));
    let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).unwrap();
    let certificate = Arc::new(CertifiedKey::new(vec![remote.file("here").into()], key));
    let router = router(HERE, certificate, &remote.file("ca"));
    let holders = router.holders(vec![THERE]);
    let of = SpkiHash::from_bytes(remote.file("there-spki").try_into().unwrap());
    router.set_members(vec![member(THERE, relay.address.to_string(), of)]);
    let key = Arc::new(router.key(&holders, &remote.file("spki")).unwrap());
    // Opens the connection, so that its latency is measured.
    key.sign_digest(WORK, &[1; 32], Instant::now() + Duration::from_secs(60)).await.unwrap();
    let (cpu, began) = (remote.cpu_us(), Instant::now());
    let callers: Vec<_> =
        (0..in_flight).map(|_| tokio::spawn(caller(Arc::clone(&key), began + span))).collect();
    let mut all = Vec::new();
    for caller in callers {
        all.extend(caller.await.unwrap());
    }
    let (took, cpu) = (began.elapsed().as_secs_f64(), remote.cpu_us() - cpu);
    all.sort_unstable();
    let part = |part: f64| f64::from(all[((all.len() - 1) as f64 * part) as usize]) / 1_000.0;
    let rate = all.len() as f64 / took;
    let allowed = if round_trip_ms == 0 {
        String::new()
    } else {
        format!("{:.2}", rate / (in_flight as f64 / round_trip_ms as f64 * 1_000.0))
    };
    println!(
        "{round_trip_ms:>8} {in_flight:>9} {rate:>10.0} {:>8.2} {:>8.2} {:>8.2} {allowed:>12} {:>14.0}",
        part(0.5),
        part(0.99),
        part(0.999),
        cpu / all.len() as f64
    );
    router.stop().await;
}

/// Sends requests one after the other. Returns the latency of each in µs.
async fn caller(key: Arc<RoutedKey>, until: Instant) -> Vec<u32> {
    let mut took = Vec::new();
    while Instant::now() < until {
        let began = Instant::now();
        key.sign_digest(WORK, &[1; 32], began + Duration::from_secs(60)).await.unwrap();
        took.push(began.elapsed().as_micros() as u32);
    }
    took
}
