//! A minimal server: mutual TLS and the five requests of agents, on HTTP/1.1. The real one is in the crate `server`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agent::deploy::PolicyFile;
use agent::work::{Assignment, Enrolment, GeneratedCsr, HostFacts, JobResult, Renewal, WorkError};
use agent::{AgentError, Agents, AgentsParts, EnrolError, NewToken, agent_uri};
use authority::keystore::KeyStore;
use keys::{Keyring, PrivateKey};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use store::{Clock, Store, StoreUrl};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use x509::build::Extension;
use x509::{Certificate, Fingerprint, GeneralName};

use super::source::{Authority, Source};
use crate::deploy::world::Issuer;

/// A temporary environment for tests of agents.
pub(crate) struct World {
    pub(crate) agents: Agents,
    pub(crate) source: Source,
    pub(crate) issuer: Arc<Issuer>,
    pub(crate) address: SocketAddr,
    pub(crate) leaf: Fingerprint,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) store: Store,
    /// Whether the server answers every request with 503.
    pub(crate) unavailable: Arc<AtomicBool>,
    stop: CancellationToken,
    _tasks: JoinSet<()>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with_life(None).await
    }

    /// Creates a world. The agents' clock is `clock`, or the system clock.
    pub(crate) async fn with_life(clock: Option<Clock>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("etc")).unwrap();
        let store = Store::open(&StoreUrl::sqlite(folder.path().join("bulla.db"))).await.unwrap();
        let (issuer, source) = (Arc::new(Issuer::new()), Source::default());
        let authority = Arc::new(Authority(Arc::clone(&issuer), source.clone()));
        let agents = Agents::new(AgentsParts {
            store: store.clone(),
            keystore: KeyStore::new(store.clone(), Keyring::ephemeral(), Clock::system()),
            clock: clock.unwrap_or_else(Clock::system),
            work: authority.clone(),
            certify: authority,
            identity: Arc::new(|uri| *x509::SpkiHash::of(uri.as_bytes()).as_bytes()),
            ca_pem: issuer.root_pem().into(),
        });
        let (stop, unavailable) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
        let mut tasks = JoinSet::new();
        let (running, stopping) = (agents.clone(), stop.clone());
        tasks.spawn(async move { running.run(stopping).await });
        let (address, leaf) = listen(&issuer, agents.clone(), Arc::clone(&unavailable), &mut tasks).await;
        Self { agents, source, issuer, address, leaf, folder, store, unavailable, stop, _tasks: tasks }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://localhost:{}", self.address.port())
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join("agent")
    }

    pub(crate) fn etc(&self, name: &str) -> PathBuf {
        self.folder.path().join("etc").join(name)
    }

    /// Writes a policy file of the agent's host with these lines.
    pub(crate) fn policy(&self, lines: &str) -> PolicyFile {
        let path = self.folder.path().join("agent.toml");
        std::fs::write(&path, lines).unwrap();
        PolicyFile::new(&path)
    }

    /// Returns policy lines that allow files in the directory of [`World::etc`].
    pub(crate) fn files_allowed(&self) -> String {
        format!("[[files]]\npath = \"{}/\"\n", self.folder.path().join("etc").display())
    }

    pub(crate) async fn token(&self) -> zeroize::Zeroizing<String> {
        let labels = [("env".to_owned(), "prod".to_owned())].into();
        self.agents.create_token(NewToken { labels, seconds: 600 }, "user:alice").await.unwrap().token
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn listen(
    issuer: &Issuer,
    agents: Agents,
    unavailable: Arc<AtomicBool>,
    tasks: &mut JoinSet<()>,
) -> (SocketAddr, Fingerprint) {
    let key = PrivateKey::generate(keys::KeyType::P256).unwrap();
    let names = Extension::subject_alt_names(&[GeneralName::parse("localhost").unwrap()]);
    let chain = issuer.chain("localhost", keys::Signer::spki(&key), &[names]);
    let leaf = Fingerprint::of(&chain[0]);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from(issuer.root().to_vec())).unwrap();
    let clients =
        rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .unwrap();
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_single_cert(
            chain.into_iter().map(CertificateDer::from).collect(),
            PrivatePkcs8KeyDer::from(key.to_pkcs8_der().to_vec()).into(),
        )
        .unwrap();
    // Listens on every address of localhost, because the resolver may return any of them first.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let six = TcpListener::bind(("::1", address.port())).await.ok();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    for listener in [Some(listener), six].into_iter().flatten() {
        let (acceptor, agents, unavailable) = (acceptor.clone(), agents.clone(), Arc::clone(&unavailable));
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(acceptor.clone(), stream, agents.clone(), Arc::clone(&unavailable)));
            }
        });
    }
    (address, leaf)
}

async fn serve(acceptor: TlsAcceptor, stream: TcpStream, agents: Agents, unavailable: Arc<AtomicBool>) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let shown =
        stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()).map(|der| der.to_vec());
    let mut stream = BufReader::new(stream);
    while let Some((target, body)) = request(&mut stream).await {
        let (status, answer) = if unavailable.load(Ordering::SeqCst) {
            (503, json!({"detail": "away"}))
        } else {
            answer(&agents, &target, &body, shown.as_deref()).await
        };
        let text = answer.to_string();
        let head = format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\n\r\n{text}", text.len());
        if stream.write_all(head.as_bytes()).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
}

async fn request(stream: &mut (impl AsyncBufReadExt + Unpin)) -> Option<(String, Vec<u8>)> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let target = line.split(' ').nth(1)?.to_owned();
    let mut length = 0;
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).await.ok()?;
        if header.trim().is_empty() {
            break;
        }
        if let Some(value) = header.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some((target, body))
}

async fn answer(agents: &Agents, target: &str, body: &[u8], shown: Option<&[u8]>) -> (u16, Value) {
    let url = reqwest::Url::parse(&format!("https://x{target}")).unwrap();
    let result = match url.path().trim_start_matches("/api/v1/agent/").split('/').collect::<Vec<_>>()[..] {
        ["enroll"] => {
            let request: Enrolment = serde_json::from_slice(body).unwrap();
            let enrolled = agents.enroll(&request).await;
            enrolled.map(|enrolled| json!(enrolled)).map_err(|error| match error {
                EnrolError::Token => (401, error.to_string()),
                other => (422, other.to_string()),
            })
        }
        ref rest => match caller(agents, shown).await {
            Err(error) => Err((403, error.to_string())),
            Ok(agent) => known(agents, agent, rest, &url, body).await,
        },
    };
    match result {
        Ok(value) => (200, value),
        Err((status, detail)) => (status, json!({"detail": detail})),
    }
}

async fn caller(agents: &Agents, shown: Option<&[u8]>) -> Result<Uuid, AgentError> {
    let shown = shown.ok_or(AgentError::OtherKey)?;
    let certificate = Certificate::parse(shown).unwrap();
    let Some(GeneralName::Uri(uri)) = certificate.subject_alt_names.first() else {
        return Err(AgentError::OtherKey);
    };
    let id = uri.rsplit('/').next().and_then(|id| id.parse().ok()).ok_or(AgentError::OtherKey)?;
    assert_eq!(*uri, agent_uri(id));
    agents.check_key(id, shown).await.map(|()| id)
}

async fn known(
    agents: &Agents,
    agent: Uuid,
    path: &[&str],
    url: &reqwest::Url,
    body: &[u8],
) -> Result<Value, (u16, String)> {
    let failed = |error: AgentError| match error {
        AgentError::Work(WorkError::NotFound) => (404, error.to_string()),
        AgentError::Work(WorkError::Unavailable(_)) => (503, error.to_string()),
        other => (422, other.to_string()),
    };
    match path {
        ["work"] => {
            let query: std::collections::HashMap<String, String> = url.query_pairs().into_owned().collect();
            let facts: HostFacts = serde_json::from_value(json!(query)).unwrap();
            let wait = query["wait"].parse().unwrap();
            let jobs = agents.poll(agent, facts, wait).await.map_err(failed)?;
            Ok(json!(Assignment { jobs }))
        }
        ["renew"] => {
            let renewal: Renewal = serde_json::from_slice(body).unwrap();
            let enrolled = agents.renew(agent, &renewal.csr_pem).await;
            enrolled.map(|enrolled| json!(enrolled)).map_err(|error| (422, error.to_string()))
        }
        ["jobs", job, "csr"] => {
            let made: GeneratedCsr = serde_json::from_slice(body).unwrap();
            agents.accept_csr(agent, job.parse().unwrap(), &made.csr_pem).await.map_err(failed)?;
            Ok(json!({}))
        }
        ["jobs", job, "result"] => {
            let result: JobResult = serde_json::from_slice(body).unwrap();
            agents.finished(agent, job.parse().unwrap(), result).await.map_err(failed)?;
            Ok(json!({}))
        }
        _ => Err((404, "no such path".to_owned())),
    }
}
