//! Tests of our TLS clients with a server that counts its handshakes.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use outbound::Deadline;
use outbound::tls::{Connector, Handshake, Handshakes, TlsError};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// The maximum number of probes until one resumes its session. A ticket that arrives late costs one more full handshake and does
/// not fail the test.
const PROBES_MAX: usize = 50;

struct Server {
    address: SocketAddr,
    root: Vec<u8>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns a self-signed certificate for `a.example` and `b.example`.
fn certificate() -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let folder = tempfile::tempdir().unwrap();
    let (key, certificate) = (folder.path().join("key.pem"), folder.path().join("certificate.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
        .args(["-subj", "/CN=a.example", "-days", "2"])
        .args(["-addext", "subjectAltName=DNS:a.example,DNS:b.example"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output()
        .expect("this test needs openssl: apt-get install -y openssl");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    (CertificateDer::from_pem_file(certificate).unwrap(), PrivateKeyDer::from_pem_file(key).unwrap())
}

impl Server {
    async fn start(versions: &[&'static rustls::SupportedProtocolVersion]) -> Self {
        let (certificate, key) = certificate();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if let Ok(mut stream) = acceptor.accept(stream).await {
                    let _ = stream.shutdown().await;
                }
            }
        });
        Self { address, root: certificate.to_vec(), task }
    }
}

fn soon() -> Deadline {
    Deadline::within(Duration::from_secs(60))
}

#[tokio::test]
async fn session_is_resumed_only_for_the_same_server_name() {
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let server = Server::start(&[version]).await;
        let connector = Connector::with_roots([server.root.clone()]).unwrap();
        let probe = async |name| connector.liveness(server.address, name, soon()).await.unwrap();
        assert_eq!(probe("a.example").await.handshake, Handshake::Full);
        let mut probes = 0;
        while probe("a.example").await.handshake == Handshake::Full {
            probes += 1;
            assert!(probes < PROBES_MAX, "{version:?} never resumes");
        }
        assert_eq!(probe("b.example").await.handshake, Handshake::Full, "another name");
        let Handshakes { full, resumed } = connector.handshakes();
        assert_eq!((full, resumed), (probes as u64 + 2, 1));
    }
}

#[tokio::test]
async fn liveness_ignores_the_certificate_and_connect_verifies_it() {
    let server = Server::start(rustls::ALL_VERSIONS).await;
    let trusting = Connector::with_roots([server.root.clone()]).unwrap();
    trusting.connect(server.address, "a.example", soon()).await.expect("trusted and of that name");
    trusting.liveness(server.address, "wrong.example", soon()).await.expect("alive");
    let error = trusting.connect(server.address, "wrong.example", soon()).await.unwrap_err();
    assert!(matches!(error, TlsError::Handshake { .. }), "{error}");
    let (stranger, _) = certificate();
    let wary = Connector::with_roots([stranger.to_vec()]).unwrap();
    let error = wary.connect(server.address, "a.example", soon()).await.unwrap_err();
    assert!(matches!(error, TlsError::Handshake { .. }), "{error}");
}

#[tokio::test]
async fn verified_connection_never_resumes_an_unverified_session() {
    let server = Server::start(rustls::ALL_VERSIONS).await;
    let (stranger, _) = certificate();
    let wary = Connector::with_roots([stranger.to_vec()]).unwrap();
    for _ in 0..3 {
        wary.liveness(server.address, "a.example", soon()).await.expect("alive");
    }
    wary.connect(server.address, "a.example", soon()).await.expect_err("not trusted");
}

#[tokio::test]
async fn errors_name_the_phase_that_failed() {
    let server = Server::start(rustls::ALL_VERSIONS).await;
    let connector = Connector::with_roots([server.root.clone()]).unwrap();
    let error = connector.liveness(server.address, "no name", soon()).await.unwrap_err();
    assert!(matches!(error, TlsError::BadName { .. }), "{error}");

    let silent = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = silent.local_addr().unwrap();
    let limit = Deadline::within(Duration::from_secs(1));
    let error = connector.liveness(address, "a.example", limit).await.unwrap_err();
    assert!(matches!(error, TlsError::TimedOut { .. }), "{error}");

    drop(silent);
    let error = connector.liveness(address, "a.example", soon()).await.unwrap_err();
    assert!(matches!(error, TlsError::Dial { .. }), "{error}");

    assert!(matches!(Connector::with_roots([]), Err(TlsError::NoRoots)));
    assert!(matches!(Connector::with_roots([vec![1, 2, 3]]), Err(TlsError::NoRoots)));
}
