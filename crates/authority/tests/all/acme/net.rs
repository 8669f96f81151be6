//! Servers that validations connect to: a web server, a name server and a TLS server, all on loopback.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, CAA, CNAME, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use keys::{KeyType, PrivateKey, Signer as _};
use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use x509::build::{self, CertificateSpec, Extension};
use x509::{DistinguishedName, GeneralName, SerialNumber, UnixTime, der};

/// An HTTP response.
#[derive(Clone)]
pub(crate) enum Page {
    Text(String),
    Raw(String),
}

/// A DNS response.
#[derive(Clone)]
pub(crate) enum Reply {
    Records(Vec<RData>),
    Code(ResponseCode),
}

#[derive(Default)]
struct Shared {
    pages: Mutex<HashMap<String, Page>>,
    requests: Mutex<Vec<String>>,
    zone: Mutex<HashMap<(String, RecordType), Reply>>,
    questions: Mutex<Vec<String>>,
    folder: Mutex<Option<PathBuf>>,
    certificate: Mutex<Option<Arc<rustls::ServerConfig>>>,
}

/// The servers. They stop when this is dropped.
pub(crate) struct Net {
    shared: Arc<Shared>,
    pub(crate) http: SocketAddr,
    pub(crate) tls: SocketAddr,
    pub(crate) dns: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Net {
    pub(crate) async fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let mut tasks = JoinSet::new();
        let loopback = (Ipv4Addr::LOCALHOST, 0);
        let (http, tls) =
            (TcpListener::bind(loopback).await.unwrap(), TcpListener::bind(loopback).await.unwrap());
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind(loopback).await.unwrap();
            if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()).await {
                break (udp, tcp);
            }
        };
        let net = |tasks: JoinSet<()>| Self {
            shared: shared.clone(),
            http: http.local_addr().unwrap(),
            tls: tls.local_addr().unwrap(),
            dns: udp.local_addr().unwrap(),
            _tasks: tasks,
        };
        let mut net = net(JoinSet::new());
        tasks.spawn(serve_http(http, shared.clone()));
        tasks.spawn(serve_tls(tls, shared.clone()));
        tasks.spawn(serve_dns(udp, tcp, shared));
        net._tasks = tasks;
        net
    }

    /// Serves `text` for the token of a challenge.
    pub(crate) fn challenge(&self, token: &str, text: &str) {
        self.page(&format!("/.well-known/acme-challenge/{token}"), Page::Text(text.to_owned()));
    }

    pub(crate) fn page(&self, path: &str, page: Page) {
        self.shared.pages.lock().insert(path.to_owned(), page);
    }

    /// Returns the requested paths.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().clone()
    }

    pub(crate) fn reply(&self, name: &str, kind: RecordType, reply: Reply) {
        self.shared.zone.lock().insert((name.to_owned(), kind), reply);
    }

    pub(crate) fn txt(&self, name: &str, texts: &[&str]) {
        let record = |text: &&str| RData::TXT(TXT::new(text.as_bytes().chunks(200).map(text_of).collect()));
        self.reply(name, RecordType::TXT, Reply::Records(texts.iter().map(record).collect()));
    }

    /// Also answers TXT queries from files in this directory. Each name has a file with one record a line.
    pub(crate) fn txt_from(&self, folder: PathBuf) {
        *self.shared.folder.lock() = Some(folder);
    }

    pub(crate) fn alias(&self, name: &str, to: &str) {
        let to = Name::from_ascii(format!("{to}.")).unwrap();
        for kind in [RecordType::TXT, RecordType::CAA, RecordType::A] {
            self.reply(name, kind, Reply::Records(vec![RData::CNAME(CNAME(to.clone()))]));
        }
    }

    pub(crate) fn address(&self, name: &str, address: Ipv4Addr) {
        self.reply(name, RecordType::A, Reply::Records(vec![RData::A(A(address))]));
    }

    pub(crate) fn caa(&self, name: &str, critical: bool, tag: &str, value: &str) {
        let mut caa = CAA::new_issue(critical, None, Vec::new());
        (caa.tag, caa.value) = (tag.to_owned(), value.as_bytes().to_vec());
        self.reply(name, RecordType::CAA, Reply::Records(vec![RData::CAA(caa)]));
    }

    /// Returns the queries, as `NAME TYPE`.
    pub(crate) fn questions(&self) -> Vec<String> {
        self.shared.questions.lock().clone()
    }

    /// Serves a certificate over TLS with these application protocols, such as acme-tls/1.
    pub(crate) fn serve_certificate(&self, der: Vec<u8>, key: &PrivateKey, protocols: &[&str]) {
        let chain = vec![CertificateDer::from(der)];
        let key = PrivateKeyDer::try_from(key.to_pkcs8_der().to_vec()).unwrap();
        let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Always(Arc::new(CertifiedKey::new(chain, key)))));
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        *self.shared.certificate.lock() = Some(Arc::new(config));
    }
}

/// Returns this certificate for every request. The library rejects certificates with an unknown critical extension.
#[derive(Debug)]
struct Always(Arc<CertifiedKey>);

impl ResolvesServerCert for Always {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

fn text_of(octets: &[u8]) -> String {
    String::from_utf8(octets.to_vec()).unwrap()
}

async fn serve_http(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((mut stream, _)) = listener.accept().await {
        let shared = shared.clone();
        connections.spawn(async move {
            let mut head = Vec::new();
            while !head.windows(4).any(|window| window == b"\r\n\r\n") {
                let mut part = [0; 1_024];
                match stream.read(&mut part).await {
                    Ok(length) if length > 0 => head.extend_from_slice(&part[..length]),
                    _ => return,
                }
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            shared.requests.lock().push(path.clone());
            let page = shared.pages.lock().get(&path).cloned();
            let answer = match page {
                Some(Page::Text(text)) => {
                    format!(
                        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
                        text.len()
                    )
                }
                Some(Page::Raw(raw)) => raw,
                None => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned(),
            };
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
        });
    }
}

async fn serve_tls(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let config = shared.certificate.lock().clone();
        connections.spawn(async move {
            if let Some(config) = config
                && let Ok(mut stream) = TlsAcceptor::from(config).accept(stream).await
            {
                let _ = stream.read_u8().await;
            }
        });
    }
}

async fn serve_dns(udp: UdpSocket, tcp: TcpListener, shared: Arc<Shared>) {
    let mut buffer = [0; 2_048];
    loop {
        tokio::select! {
            Ok((length, from)) = udp.recv_from(&mut buffer) => {
                if let Some(answer) = answer(&buffer[..length], &shared) {
                    let octets = answer.to_vec().unwrap();
                    let octets = if octets.len() > 1_232 { answer.truncate().to_vec().unwrap() } else { octets };
                    let _ = udp.send_to(&octets, from).await;
                }
            }
            Ok((mut stream, _)) = tcp.accept() => {
                let Ok(length) = stream.read_u16().await else { continue };
                let mut question = vec![0; length.into()];
                if stream.read_exact(&mut question).await.is_ok()
                    && let Some(answer) = answer(&question, &shared)
                {
                    let octets = answer.to_vec().unwrap();
                    let length = u16::try_from(octets.len()).unwrap().to_be_bytes();
                    let _ = stream.write_all(&[&length[..], &octets].concat()).await;
                }
            }
        }
    }
}

/// Answers that every name has the address 127.0.0.1, and no other records, unless the test sets a reply.
fn answer(question: &[u8], shared: &Shared) -> Option<Message> {
    let question = Message::from_vec(question).ok()?;
    let query = question.queries.first()?.clone();
    let name = query.name().to_ascii().trim_end_matches('.').to_ascii_lowercase();
    let kind = query.query_type();
    shared.questions.lock().push(format!("{name} {kind}"));
    let mut answer = Message::new(question.metadata.id, MessageType::Response, OpCode::Query);
    answer.metadata.recursion_available = true;
    answer.add_query(query.clone());
    let reply = shared.zone.lock().get(&(name.clone(), kind)).cloned();
    let file =
        shared.folder.lock().as_ref().filter(|_| kind == RecordType::TXT).map(|folder| folder.join(name));
    if let Some(text) = file.and_then(|file| std::fs::read_to_string(file).ok()) {
        for line in text.lines() {
            let data = RData::TXT(TXT::new(vec![line.to_owned()]));
            answer.add_answer(Record::from_rdata(query.name().clone(), 1, data));
        }
    }
    match reply {
        Some(Reply::Code(code)) => answer.metadata.response_code = code,
        Some(Reply::Records(records)) => {
            for data in records {
                answer.add_answer(Record::from_rdata(query.name().clone(), 1, data));
            }
        }
        None if kind == RecordType::A => {
            let data = RData::A(A(Ipv4Addr::LOCALHOST));
            answer.add_answer(Record::from_rdata(query.name().clone(), 1, data));
        }
        None => {}
    }
    Some(answer)
}

/// A certificate for tls-alpn-01 (RFC 8737) that tests can modify.
pub(crate) struct AlpnCertificate {
    pub(crate) names: Vec<GeneralName>,
    pub(crate) key_authorization: String,
    pub(crate) critical: bool,
    pub(crate) self_signed: bool,
}

impl AlpnCertificate {
    /// Returns a correct certificate.
    pub(crate) fn of(name: &str, key_authorization: &str) -> Self {
        let names = vec![GeneralName::parse(name).unwrap()];
        Self { names, key_authorization: key_authorization.to_owned(), critical: true, self_signed: true }
    }

    pub(crate) fn make(&self) -> (Vec<u8>, PrivateKey) {
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let signer = if self.self_signed { None } else { Some(PrivateKey::generate(KeyType::P256).unwrap()) };
        let signer = signer.as_ref().unwrap_or(&key);
        let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, self.key_authorization.as_bytes());
        let value = der::write(|w| {
            w.octets(hash.as_ref());
        });
        let name = DistinguishedName::from_text("CN=acme").unwrap();
        let tbs = build::tbs_certificate(&CertificateSpec {
            serial: &SerialNumber::from_random([1; 16]),
            signature: signer.algorithm(),
            issuer: &name.der,
            subject: &name.der,
            not_before: UnixTime(0),
            not_after: UnixTime(4_000_000_000),
            spki: key.spki(),
            extensions: &[
                Extension::subject_alt_names(&self.names),
                Extension::custom("1.3.6.1.5.5.7.1.31", value).critical(self.critical),
            ],
        });
        (build::signed(&tbs, &signer.algorithm(), &signer.sign_now(&tbs).unwrap()), key)
    }
}
