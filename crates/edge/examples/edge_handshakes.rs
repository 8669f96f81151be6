//! Benchmark: connections per second through the terminator. The keys are in a key service behind a Unix socket, or in one with a
//! round-trip time of 100 ms. A bare rustls server with the keys in its process is measured for comparison. All do the same work:
//! handshake, one byte to an upstream and back, close. Times are of the handshake, including the TCP connection. The processor
//! time of a connection is of the whole process, which includes clients, upstream and key service in each case.
//!
//! `cargo run --release -p edge --example edge_handshakes -- [SECONDS] [CLIENTS] [CLIENTS OF THE FAR KEY]`

#[path = "../../keyless/tests/all/relay.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "the tests use more of it")]
mod relay;

use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use edge::{EdgeMetrics, Route, Routes};
use keyless::client::{Client, ClientMetrics, ClientOptions, Server};
use keyless::{KeySet, Metrics};
use keys::{KeyRef, KeyType, PrivateKey, Signer};
use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use x509::build::{CertificateSpec, Extension, signed, tbs_certificate};
use x509::{BasicConstraints, DistinguishedName, GeneralName, SerialNumber, UnixTime};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const HOST: &str = "a.example";
/// Latency of the far key service in one direction.
const FAR: Duration = Duration::from_millis(50);

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let seconds: u64 = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let clients: usize = arguments.next().map_or(Ok(16), |text| text.parse())?;
    let far: usize = arguments.next().map_or(Ok(512), |text| text.parse())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(all(Duration::from_secs(seconds), clients, far))
}

async fn all(length: Duration, clients: usize, far: usize) -> Outcome<()> {
    println!("{} s each; connections a second, ratio to a bare server with the key", length.as_secs());
    println!(
        "{:<8} {:<8} {:<8} {:<7} {:>7} {:>8} {:>8} {:>8} {:>6} {:>8} {:>8} {:>8} {:>6} {:>6} {:>6}",
        "key",
        "version",
        "session",
        "away",
        "clients",
        "edge",
        "p50 ms",
        "p99 ms",
        "CPU µs",
        "bare",
        "p50 ms",
        "p99 ms",
        "CPU µs",
        "ratio",
        "by CPU"
    );
    for kind in [KeyType::P256, KeyType::Rsa2048] {
        let fixture = Fixture::new(kind).await?;
        for (name, version) in [("TLS 1.3", &TLS13), ("TLS 1.2", &TLS12)] {
            for (session, resumes) in [("full", false), ("resumed", true)] {
                for (rtt, edge, clients) in [("0", fixture.edge, clients), ("100 ms", fixture.far_edge, far)]
                {
                    let edge = measure(&fixture, edge, version, resumes, length, clients).await?;
                    let bare = measure(&fixture, fixture.bare, version, resumes, length, clients).await?;
                    println!(
                        "{:<8} {name:<8} {session:<8} {rtt:<7} {clients:>7} {edge} {bare} {:>6.2} {:>6.2}",
                        kind.name(),
                        edge.rate / bare.rate,
                        bare.cpu_us / edge.cpu_us
                    );
                }
            }
        }
    }
    Ok(())
}

/// Results of one measurement.
struct Measured {
    rate: f64,
    p50_ms: f64,
    p99_ms: f64,
    cpu_us: f64,
}

impl Measured {
    fn of(mut took: Vec<Duration>, in_all: Duration, cpu: Duration) -> Self {
        took.sort_unstable();
        let part = |part: f64| {
            let at = (took.len().saturating_sub(1) as f64 * part) as usize;
            took.get(at).map_or(f64::NAN, |took| took.as_secs_f64() * 1_000.0)
        };
        let count = took.len() as f64;
        Self {
            rate: count / in_all.as_secs_f64(),
            p50_ms: part(0.5),
            p99_ms: part(0.99),
            cpu_us: cpu.as_secs_f64() * 1e6 / count,
        }
    }
}

impl std::fmt::Display for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:>8.0} {:>8.2} {:>8.2} {:>6.0}", self.rate, self.p50_ms, self.p99_ms, self.cpu_us)
    }
}

/// Both servers, with the same upstream.
struct Fixture {
    edge: SocketAddr,
    far_edge: SocketAddr,
    bare: SocketAddr,
    root: Vec<u8>,
    _running: [edge::Running; 2],
    _service: keyless::server::Running,
    _folder: tempfile::TempDir,
}

impl Fixture {
    async fn new(kind: KeyType) -> Outcome<Self> {
        let folder = tempfile::tempdir()?;
        let authority = PrivateKey::generate(KeyType::P256)?;
        let key = PrivateKey::generate(kind)?;
        let root = certificate(
            &authority,
            "CN=root",
            &authority,
            "CN=root",
            &[Extension::basic_constraints(BasicConstraints { ca: true, path_len: None })],
        )?;
        let host = GeneralName::Dns(HOST.to_owned());
        let names = [Extension::subject_alt_names(&[host])];
        let leaf = certificate(&authority, "CN=root", &key, &format!("CN={HOST}"), &names)?;
        std::fs::write(folder.path().join("a.pem"), x509::pem::encode("CERTIFICATE", &leaf))?;
        let upstream = upstream().await?;
        let bare = bare(&leaf, &key, upstream).await?;
        let (service, socket) = key_service(folder.path(), key).await?;
        let near = edge(folder.path(), socket.clone(), upstream).await?;
        let far = edge(folder.path(), far_socket(folder.path(), socket)?, upstream).await?;
        Ok(Self {
            edge: near.address,
            far_edge: far.address,
            bare,
            root,
            _running: [near, far],
            _service: service,
            _folder: folder,
        })
    }
}

async fn key_service(folder: &Path, key: PrivateKey) -> Outcome<(keyless::server::Running, PathBuf)> {
    let socket = folder.join("keys.sock");
    let set = KeySet::default();
    set.put("bench", vec![Arc::new(key) as KeyRef]);
    let options =
        keyless::server::Options { socket: Some(socket.clone()), ..keyless::server::Options::default() };
    Ok((keyless::server::start(options, set, Metrics::default()).await?, socket))
}

/// Starts a relay to the key service that delays each direction by [`FAR`].
fn far_socket(folder: &Path, near: PathBuf) -> Outcome<PathBuf> {
    let socket = folder.join("far.sock");
    let listener = UnixListener::bind(&socket)?;
    let (keep, link) = watch::channel(relay::LinkState::Open);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(service) = UnixStream::connect(&near).await else { continue };
            let ((near_out, near_in), (far_out, far_in)) = (stream.into_split(), service.into_split());
            tokio::spawn(relay::carry(near_out, far_in, FAR, link.clone()));
            tokio::spawn(relay::carry(far_out, near_in, FAR, link.clone()));
        }
        drop(keep);
    });
    Ok(socket)
}

async fn edge(folder: &Path, keys: PathBuf, upstream: SocketAddr) -> Outcome<edge::Running> {
    let options = ClientOptions { servers: vec![Server::Unix(keys)], ..ClientOptions::default() };
    let client = Client::start(&options, ClientMetrics::default())?;
    let options = edge::Options {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        certificates: folder.to_owned(),
        routes: Routes::new(Some(Route::new(&upstream.to_string(), &[])?)),
        ..edge::Options::default()
    };
    Ok(edge::start(options, client, EdgeMetrics::default()).await?.0)
}

/// Starts a server that does the same work with rustls and the key in this process.
async fn bare(leaf: &[u8], key: &PrivateKey, upstream: SocketAddr) -> Outcome<SocketAddr> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let pkcs8 = PrivatePkcs8KeyDer::from(key.to_pkcs8_der().to_vec());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(leaf.to_vec())], PrivateKeyDer::Pkcs8(pkcs8))?;
    config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new()?;
    config.send_tls13_tickets = 1;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = inbound::listen(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                stream.set_nodelay(true)?;
                let mut tls = acceptor.accept(stream).await?;
                let mut upstream = TcpStream::connect(upstream).await?;
                upstream.set_nodelay(true)?;
                copy_bidirectional(&mut tls, &mut upstream).await
            });
        }
    });
    Ok(address)
}

/// Starts an upstream that echoes all bytes.
async fn upstream() -> Outcome<SocketAddr> {
    let listener = inbound::listen(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                stream.set_nodelay(true)?;
                let (mut from, mut to) = stream.split();
                tokio::io::copy(&mut from, &mut to).await
            });
        }
    });
    Ok(address)
}

async fn measure(
    fixture: &Fixture,
    address: SocketAddr,
    version: &'static SupportedProtocolVersion,
    resumes: bool,
    length: Duration,
    clients: usize,
) -> Outcome<Measured> {
    let mut all = Vec::new();
    let (began, cpu) = (Instant::now(), processor_time()?);
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(fixture.root.clone()))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version])?;
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        if !resumes {
            config.resumption = Resumption::disabled();
        }
        let connector = TlsConnector::from(Arc::new(config));
        tasks.spawn(async move {
            let mut took = Vec::new();
            while began.elapsed() < length {
                took.push(one(&connector, address).await?);
            }
            Outcome::Ok(took)
        });
    }
    while let Some(ended) = tasks.join_next().await {
        all.extend(ended??);
    }
    Ok(Measured::of(all, began.elapsed(), processor_time()? - cpu))
}

/// Returns the user and system time of this process so far (proc(5), in units of 10 ms).
fn processor_time() -> Outcome<Duration> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| {
        fields.get(at).ok_or("no such field")?.parse::<u64>().map_err(Box::<dyn Error + Send + Sync>::from)
    };
    Ok(Duration::from_millis(10 * (ticks(11)? + ticks(12)?)))
}

/// Makes one connection. Returns the duration of its handshake.
async fn one(connector: &TlsConnector, address: SocketAddr) -> Outcome<Duration> {
    let began = Instant::now();
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut tls = connector.connect(ServerName::try_from(HOST)?, stream).await?;
    let took = began.elapsed();
    tls.write_all(b"?").await?;
    tls.flush().await?;
    // The ticket for the next connection arrives with the response.
    tls.read_exact(&mut [0; 1]).await?;
    tls.shutdown().await?;
    Ok(took)
}

fn certificate(
    issuer: &PrivateKey,
    issuer_name: &str,
    of: &PrivateKey,
    name: &str,
    extensions: &[Extension],
) -> Outcome<Vec<u8>> {
    let mut serial = [0; 16];
    aws_lc_rs::rand::fill(&mut serial)?;
    let tbs = tbs_certificate(&CertificateSpec {
        serial: &SerialNumber::from_random(serial),
        signature: issuer.algorithm(),
        issuer: &DistinguishedName::from_text(issuer_name)?.der,
        subject: &DistinguishedName::from_text(name)?.der,
        not_before: UnixTime(1_700_000_000),
        not_after: UnixTime(2_500_000_000),
        spki: of.spki(),
        extensions,
    });
    Ok(signed(&tbs, &issuer.algorithm(), &issuer.sign_now(&tbs)?))
}
