//! Real servers for tests, and clients that visit them.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use agent::deploy::{Outcome, Target};
use enrollment::Material;
use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde_json::json;

use super::world::{Host, HostDeployer, target};

/// A server in the foreground that is stopped after the test.
pub(crate) struct Daemon(Child);

impl Daemon {
    /// Starts a server. `install` says how to install it.
    pub(crate) fn start(program: &str, arguments: &[&str], install: &str, port: u16) -> Self {
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}: {install}"));
        let mut daemon = Self(child);
        let until = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(daemon.0.try_wait().unwrap().is_none(), "{program} ended at once");
            assert!(Instant::now() < until, "{program} does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        daemon
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw).unwrap();
        // SIGTERM also stops the workers of the server.
        let _ = kill_process(pid, Signal::TERM);
        let _ = self.0.wait();
    }
}

/// Deploys the first files before the server starts.
pub(crate) async fn first(host: &Host, files: &[&str], material: &Material) -> HostDeployer {
    let mut bare = json!({"type": "files"});
    for name in files {
        bare[name] = json!(host.etc(&format!("{name}.pem")));
    }
    let deployer = host.deployer();
    assert_eq!(deployer.deploy(host.target, &target(bare), material).await.outcome, Outcome::Deployed);
    deployer
}

/// A client that sends its requests one after the other, each on a new connection.
#[derive(Clone)]
pub(crate) struct Visitor {
    config: Arc<ClientConfig>,
    port: u16,
    /// The maximum number of connections of one visit.
    attempts: usize,
}

impl Visitor {
    pub(crate) fn new(host: &Host, port: u16) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        let pem = host.issuer.root_pem();
        let (_, root) = x509::pem::certificates(pem.as_bytes()).next().unwrap();
        roots.add(CertificateDer::from(root)).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self { config: Arc::new(config), port, attempts: 1 }
    }

    /// Connects a second time if the first connection is reset before the server's first byte. A later reset still fails the visit.
    pub(crate) fn with_second_attempt(self) -> Self {
        Self { attempts: 2, ..self }
    }

    /// Sends a request; returns the fingerprint of the server's certificate.
    pub(crate) async fn visit(&self) -> Result<x509::Fingerprint, String> {
        let visitor = self.clone();
        let visited = tokio::task::spawn_blocking(move || visitor.request()).await.unwrap();
        visited.map_err(|error| error.to_string())
    }

    fn request(&self) -> io::Result<x509::Fingerprint> {
        let mut stream = self.connect();
        for _ in 1..self.attempts {
            if stream.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset) {
                stream = self.connect();
            }
        }
        let mut stream = stream?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")?;
        stream.flush()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        if !answer.starts_with(b"HTTP/1.1 200") {
            return Err(io::Error::other(format!("answered {:?}", String::from_utf8_lossy(&answer))));
        }
        let leaf = stream.conn.peer_certificates().and_then(<[_]>::first);
        Ok(x509::Fingerprint::of(leaf.ok_or(io::ErrorKind::InvalidData)?))
    }

    /// Opens a connection; returns once the server has begun to answer the ClientHello.
    fn connect(&self) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let name = ServerName::try_from("a.example").unwrap();
        let mut session = ClientConnection::new(Arc::clone(&self.config), name).unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        while session.wants_write() {
            session.write_tls(&mut stream)?;
        }
        stream.peek(&mut [0])?;
        Ok(StreamOwned::new(session, stream))
    }
}

/// Deploys `new` while clients send requests. Every request is answered, the last ones with the new certificate.
pub(crate) async fn undisturbed(
    host: &Host,
    deployer: &HostDeployer,
    target: &Target,
    visitor: &Visitor,
    new: &Material,
) {
    let (done, visits) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut visitors = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (visitor, done, visits) = (visitor.clone(), Arc::clone(&done), Arc::clone(&visits));
        visitors.spawn(async move {
            let mut last = None;
            // The number of requests is bounded in case the deployment hangs.
            for _ in 0..20_000 {
                // One more request after the deployment: a request in progress may still get the old certificate.
                let over = done.load(Ordering::SeqCst);
                last = Some(visitor.visit().await?);
                visits.fetch_add(1, Ordering::SeqCst);
                if over {
                    break;
                }
            }
            Ok::<_, String>(last)
        });
    }
    while visits.load(Ordering::SeqCst) < 20 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let report = deployer.deploy(host.target, target, new).await;
    assert_eq!(
        (report.outcome, report.error, report.served),
        (Outcome::Deployed, None, Some(new.fingerprint()))
    );
    let seen = visits.load(Ordering::SeqCst);
    while visits.load(Ordering::SeqCst) < seen + 40 && !visitors.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    done.store(true, Ordering::SeqCst);
    while let Some(visited) = visitors.join_next().await {
        assert_eq!(
            visited.unwrap(),
            Ok(Some(new.fingerprint())),
            "a request was dropped, or the old one lives on"
        );
    }
}
