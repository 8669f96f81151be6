//! Real servers under test, and their visitors.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use agent::deploy::{Deployer, Outcome, Target};
use enrollment::Material;
use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::world::{Host, target};

/// A server in the foreground, stopped with the test.
pub(crate) struct Daemon(Child);

impl Daemon {
    /// `install` tells how to get it.
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
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
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
        // TERM, so that it takes its workers with it.
        let _ = kill_process(pid, Signal::TERM);
        let _ = self.0.wait();
    }
}

/// Files at their places before the server starts.
pub(crate) async fn first(host: &Host, files: &[&str], material: &Material) -> Deployer {
    let mut bare = json!({"type": "files"});
    for name in files {
        bare[name] = json!(host.etc(&format!("{name}.pem")));
    }
    let deployer = host.deployer();
    assert_eq!(deployer.deploy(host.target, &target(bare), material).await.outcome, Outcome::Deployed);
    deployer
}

/// Requests on connections of their own, one after the other.
pub(crate) struct Visitor {
    connector: TlsConnector,
    port: u16,
}

impl Visitor {
    pub(crate) fn new(host: &Host, port: u16) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        let pem = host.issuer.root_pem();
        let (_, root) = x509::pem::certificates(pem.as_bytes()).next().unwrap();
        roots.add(CertificateDer::from(root)).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self { connector: TlsConnector::from(Arc::new(config)), port }
    }

    /// The leaf that answered.
    pub(crate) async fn visit(&self) -> Result<x509::Fingerprint, String> {
        let failed = |error: std::io::Error| error.to_string();
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await.map_err(failed)?;
        let name = ServerName::try_from("a.example").unwrap();
        let mut stream = self.connector.connect(name, stream).await.map_err(failed)?;
        let request = b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.map_err(failed)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.map_err(failed)?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        if !answer.starts_with("HTTP/1.1 200") {
            return Err(format!("answered {answer:?}"));
        }
        let leaf = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()).cloned();
        Ok(x509::Fingerprint::of(&leaf.ok_or("no certificate")?))
    }
}

/// Deploys `new` while visitors come and go: each is answered, the last ones by the new certificate.
pub(crate) async fn undisturbed(
    host: &Host,
    deployer: &Deployer,
    target: &Target,
    port: u16,
    new: &Material,
) {
    let visitor = Arc::new(Visitor::new(host, port));
    let (done, visits) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut visitors = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (visitor, done, visits) = (Arc::clone(&visitor), Arc::clone(&done), Arc::clone(&visits));
        visitors.spawn(async move {
            let mut last = None;
            // Bounded, should the deployment hang.
            for _ in 0..20_000 {
                // One more once it is done: a visit that was under way may be the old one's.
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
