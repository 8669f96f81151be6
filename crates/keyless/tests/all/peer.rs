//! A client of the protocol, certificates for both sides, and gated keys.

use std::path::Path;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use keyless::native::Client;
use keyless::server::{Options, Running, TlsOptions, start};
use keyless::wire::{HEADER, MessageItems, Ski, opcode};
use keyless::{KeySet, Metrics};
use keys::{Deadline, KeyRef, KeyType, PrivateKey, Scheme, SignError, Signer};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio_rustls::TlsConnector;

use crate::certificates::{Authority, CLIENT_AUTH, Identity, SERVER_AUTH};

/// A longer wait means that the test hangs.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(180);

/// Every key type that the protocol signs with.
pub(crate) const KINDS: [KeyType; 7] = [
    KeyType::Rsa2048,
    KeyType::Rsa3072,
    KeyType::Rsa4096,
    KeyType::P256,
    KeyType::P384,
    KeyType::P521,
    KeyType::Ed25519,
];

/// Returns one key of each type, shared by all tests.
pub(crate) fn keys() -> &'static [PrivateKey] {
    static KEYS: OnceLock<Vec<PrivateKey>> = OnceLock::new();
    KEYS.get_or_init(|| KINDS.iter().map(|kind| PrivateKey::generate(*kind).unwrap()).collect())
}

pub(crate) fn key(kind: KeyType) -> &'static PrivateKey {
    keys().iter().find(|key| key.key_type() == kind).unwrap()
}

pub(crate) fn ski(key: &dyn Signer) -> Ski {
    Ski::of_spki(key.spki())
}

/// Returns server options whose timeouts never expire on a slow machine.
pub(crate) fn patient() -> Options {
    Options { deadline: TIMEOUT, hello_timeout: TIMEOUT, handshake_timeout: TIMEOUT, ..Options::default() }
}

/// A server over TLS and a Unix socket, with a key of each type and any additional keys.
pub(crate) struct World {
    pub(crate) running: Running,
    pub(crate) keys: KeySet,
    pub(crate) metrics: Metrics,
    pub(crate) server_ca: Authority,
    pub(crate) client_ca: Authority,
    pub(crate) folder: tempfile::TempDir,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(patient(), Vec::new()).await
    }

    pub(crate) async fn with(options: Options, more: Vec<KeyRef>) -> Self {
        let (server_ca, client_ca) = (Authority::new("servers"), Authority::new("clients"));
        let folder = tempfile::tempdir().unwrap();
        let tls = TlsOptions {
            certificate: server_ca.leaf(&[SERVER_AUTH]).certified(),
            client_roots: vec![client_ca.der.clone()],
            client_crls: Vec::new(),
        };
        let set = KeySet::default();
        set.put("kinds", keys().iter().map(|key| Arc::new(key.clone()) as KeyRef).collect());
        set.put("more", more);
        let metrics = Metrics::default();
        let options = Options {
            tls: Some(("127.0.0.1:0".parse().unwrap(), tls)),
            socket: Some(folder.path().join("keys.sock")),
            native: Some("127.0.0.1:0".parse().unwrap()),
            native_socket: Some(folder.path().join("native.sock")),
            ..options
        };
        let running = start(options, set.clone(), metrics.clone()).await.unwrap();
        Self { running, keys: set, metrics, server_ca, client_ca, folder }
    }

    pub(crate) fn socket(&self) -> std::path::PathBuf {
        self.folder.path().join("keys.sock")
    }

    /// Connects over TLS 1.3 with an accepted certificate.
    pub(crate) async fn connect(&self) -> Peer {
        self.connect_with(Some(&self.client_ca.leaf(&[CLIENT_AUTH])), &TLS13).await.unwrap()
    }

    pub(crate) async fn connect_tls12(&self) -> Peer {
        self.connect_with(Some(&self.client_ca.leaf(&[CLIENT_AUTH])), &TLS12).await.unwrap()
    }

    pub(crate) async fn connect_socket(&self) -> Peer {
        Peer::over(&self.socket()).await
    }

    /// Connects over TLS. The client learns whether it is accepted only from the server's first reply: see [`Peer::is_let_in`].
    pub(crate) async fn connect_with(
        &self,
        identity: Option<&Identity>,
        version: &'static SupportedProtocolVersion,
    ) -> std::io::Result<Peer> {
        let stream = TcpStream::connect(self.running.address.unwrap()).await?;
        self.connect_over(stream, identity, version).await
    }

    /// As [`Self::connect_with`], over an existing connection.
    pub(crate) async fn connect_over(
        &self,
        stream: TcpStream,
        identity: Option<&Identity>,
        version: &'static SupportedProtocolVersion,
    ) -> std::io::Result<Peer> {
        let config = self.client_config(identity, version);
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        Ok(Peer::new(Box::new(stream)))
    }

    fn client_config(
        &self,
        identity: Option<&Identity>,
        version: &'static SupportedProtocolVersion,
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(self.server_ca.der.clone())).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots);
        match identity {
            Some(identity) => {
                let (chain, key) = identity.chain_and_key();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
            None => builder.with_no_client_auth(),
        }
    }

    /// Returns a client of the native protocol with an accepted certificate.
    pub(crate) fn native(&self) -> Client {
        self.native_with(Some(&self.client_ca.leaf(&[CLIENT_AUTH])), &TLS13)
    }

    pub(crate) fn native_with(
        &self,
        identity: Option<&Identity>,
        version: &'static SupportedProtocolVersion,
    ) -> Client {
        let address = self.running.native.unwrap().to_string();
        Client::tls(&address, "localhost", &self.client_config(identity, version)).unwrap()
    }

    pub(crate) fn native_path(&self) -> std::path::PathBuf {
        self.folder.path().join("native.sock")
    }

    /// Returns all metrics.
    pub(crate) fn figures(&self) -> String {
        let mut registry = prometheus_client::registry::Registry::default();
        self.metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }

    /// Returns one metric by its name and labels, written as in the exposition format.
    pub(crate) fn figure(&self, name: &str) -> f64 {
        let text = self.figures();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        line.unwrap_or_else(|| panic!("no {name} in {text}"))
    }
}

pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A received reply.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Reply {
    pub(crate) id: u32,
    pub(crate) opcode: u8,
    pub(crate) payload: Vec<u8>,
    /// Length of the whole message in bytes.
    pub(crate) length: usize,
}

impl Reply {
    /// Returns the error code, if the reply is an error.
    pub(crate) fn error(&self) -> Option<u8> {
        (self.opcode == opcode::ERROR).then(|| self.payload[0])
    }
}

/// A client with one connection.
pub(crate) struct Peer {
    stream: Box<dyn Stream>,
    next: u32,
}

impl Peer {
    fn new(stream: Box<dyn Stream>) -> Self {
        Self { stream, next: 0 }
    }

    /// Connects over a Unix socket. Messages are sent as raw bytes.
    pub(crate) async fn over(socket: &Path) -> Self {
        Self::new(Box::new(UnixStream::connect(socket).await.unwrap()))
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        tokio::time::timeout(TIMEOUT, self.stream.write_all(bytes)).await.expect("it is read")?;
        tokio::time::timeout(TIMEOUT, self.stream.flush()).await.expect("it is read")
    }

    /// Sends a request and returns its ID.
    pub(crate) async fn send_request(&mut self, items: &MessageItems<'_>) -> u32 {
        let id = self.next;
        self.next += 1;
        let mut message = Vec::new();
        items.encode(id, &mut message).unwrap();
        self.send(&message).await.unwrap();
        id
    }

    /// Returns the next message, or `None` at the end of the connection.
    pub(crate) async fn next(&mut self) -> Option<Reply> {
        tokio::time::timeout(TIMEOUT, self.read()).await.expect("an answer or an end")
    }

    async fn read(&mut self) -> Option<Reply> {
        let mut message = vec![0; HEADER];
        self.stream.read_exact(&mut message).await.ok()?;
        let body = usize::from(u16::from_be_bytes([message[2], message[3]]));
        message.resize(HEADER + body, 0);
        self.stream.read_exact(&mut message[HEADER..]).await.ok()?;
        let (header, body) = keyless::wire::first(&message).unwrap();
        let items = MessageItems::parse(body).unwrap();
        Some(Reply {
            id: header.id,
            opcode: items.opcode,
            payload: items.payload.to_vec(),
            length: message.len(),
        })
    }

    /// Sends a request and waits for its reply.
    pub(crate) async fn call(&mut self, items: &MessageItems<'_>) -> Reply {
        let id = self.send_request(items).await;
        let reply = self.next().await.expect("an answer");
        assert_eq!(reply.id, id);
        reply
    }

    pub(crate) async fn sign(&mut self, opcode: u8, ski: Ski, payload: &[u8]) -> Reply {
        self.call(&MessageItems { opcode, ski: Some(ski), payload, ..MessageItems::default() }).await
    }

    /// Returns whether a ping is answered.
    pub(crate) async fn is_let_in(&mut self) -> bool {
        let mut message = Vec::new();
        MessageItems { opcode: opcode::PING, payload: b"?", ..MessageItems::default() }
            .encode(0, &mut message)
            .unwrap();
        self.send(&message).await.is_ok() && self.next().await.is_some_and(|reply| reply.payload == b"?")
    }
}

/// A remote key that signs once its gate is open.
#[derive(Debug)]
pub(crate) struct Gated {
    key: PrivateKey,
    gate: watch::Receiver<bool>,
    pub(crate) requested: AtomicUsize,
    pub(crate) signed: AtomicUsize,
}

impl Gated {
    pub(crate) fn new(kind: KeyType) -> (Arc<Self>, watch::Sender<bool>) {
        Self::of(PrivateKey::generate(kind).unwrap())
    }

    pub(crate) fn of(key: PrivateKey) -> (Arc<Self>, watch::Sender<bool>) {
        let (open, gate) = watch::channel(false);
        (Arc::new(Self { key, gate, requested: AtomicUsize::new(0), signed: AtomicUsize::new(0) }), open)
    }
}

impl Signer for Gated {
    fn key_type(&self) -> KeyType {
        self.key.key_type()
    }

    fn spki(&self) -> &[u8] {
        self.key.spki()
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
        self.requested.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let opened = self.gate.clone().wait_for(|open| *open).await.map(drop);
            opened.map_err(|_| SignError::Unavailable("the gate is gone".to_owned()))?;
            self.signed.fetch_add(1, Ordering::Relaxed);
            self.key.sign_digest_now(scheme, input)
        })
    }
}

pub(crate) use testbed::openssl_verifies;

/// Waits until the condition holds.
pub(crate) async fn until(so: impl Fn() -> bool) {
    testbed::until("it comes to be", so).await;
}
