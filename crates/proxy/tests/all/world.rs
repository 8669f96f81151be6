//! A test upstream, a proxy in front of it, and clients.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use keys::{KeyType, PrivateKey};
use proxy::mint::{Authority, LeafKeyKind, LeafKeys, Minter, new_root};
use proxy::{Options, ProxyMetrics, Running};
use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::Acceptor;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, TlsConnector};
use x509::{HostOrIp, UnixTime};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn now() -> UnixTime {
    UnixTime(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64)
}

/// Creates a CA. Returns its certificate too.
pub(crate) fn authority() -> (Authority, Vec<u8>) {
    let key = PrivateKey::generate(KeyType::P256).unwrap();
    let root = new_root(&key, now()).unwrap();
    (Authority::new(std::slice::from_ref(&root), Arc::new(key), Vec::new()).unwrap(), root)
}

/// A TLS upstream that echoes requests.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    pub(crate) root: Vec<u8>,
    pub(crate) connections: Arc<AtomicUsize>,
}

impl Upstream {
    pub(crate) async fn start(name: &str) -> Self {
        Self::with(Some(name), Speaks::default()).await
    }

    /// Starts an upstream for `localhost`.
    pub(crate) async fn start_with(speaks: Speaks) -> Self {
        Self::with(Some("localhost"), speaks).await
    }

    /// Starts an upstream with a certificate for any name.
    pub(crate) async fn for_all() -> Self {
        Self::with(None, Speaks::default()).await
    }

    async fn with(name: Option<&str>, speaks: Speaks) -> Self {
        let (authority, root) = authority();
        let keys = Arc::new(LeafKeys::new().unwrap());
        let minter = Minter::new(authority, keys, Duration::from_secs(86_400));
        let ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (counted, name) = (Arc::clone(&connections), name.map(str::to_owned));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                let _ = stream.set_nodelay(true);
                let (minter, name, ticketer) = (minter.clone(), name.clone(), Arc::clone(&ticketer));
                tokio::spawn(async move {
                    let Ok(start) = LazyConfigAcceptor::new(Acceptor::default(), stream).await else {
                        return;
                    };
                    let requested = start.client_hello().server_name().unwrap_or("localhost").to_owned();
                    tokio::time::sleep(speaks.takes).await;
                    let name = HostOrIp::parse(&name.unwrap_or(requested)).unwrap();
                    let leaf = minter.mint(&name, LeafKeyKind::P256, now()).await.unwrap();
                    let mut config = ServerConfig::builder()
                        .with_no_client_auth()
                        .with_cert_resolver(Arc::new(SingleCertAndKey::from((*leaf.certified).clone())));
                    config.alpn_protocols = speaks.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
                    config.ticketer = ticketer;
                    let Ok(stream) = start.into_stream(Arc::new(config)).await else { return };
                    let mut http = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    http.http2().max_concurrent_streams(speaks.streams_max);
                    if speaks.websockets {
                        http.http2().enable_connect_protocol();
                    }
                    let answer = move |request: Request<Incoming>| async move {
                        match speaks.answers {
                            Some(answers) if !request.uri().path().starts_with("/ws") => {
                                Ok(answers(request).await)
                            }
                            _ => echo_service(request).await,
                        }
                    };
                    let _ =
                        http.serve_connection_with_upgrades(TokioIo::new(stream), service_fn(answer)).await;
                });
            }
        });
        Self { address, root, connections }
    }

    pub(crate) fn made(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// Behavior of an upstream.
#[derive(Clone, Copy)]
pub(crate) struct Speaks {
    pub(crate) alpn: &'static [&'static str],
    /// Maximum concurrent requests of one connection.
    pub(crate) streams_max: u32,
    /// Duration of a handshake.
    pub(crate) takes: Duration,
    /// Whether the upstream supports WebSockets over HTTP/2.
    pub(crate) websockets: bool,
    /// Responses, except for WebSockets. Default: an echo of the request.
    pub(crate) answers: Option<Answers>,
}

/// Produces the responses of a server.
pub(crate) type Answers = fn(Request<Incoming>) -> Pin<Box<dyn Future<Output = Response<AnyBody>> + Send>>;

impl Default for Speaks {
    fn default() -> Self {
        Self {
            alpn: &["h2", "http/1.1"],
            streams_max: 200,
            takes: Duration::ZERO,
            websockets: false,
            answers: None,
        }
    }
}

/// Echoes the request line, the headers, and the length of the body. Paths below `/ws` open a WebSocket. `/held` returns only the
/// header, and its body never ends. `/closing` closes the HTTP/1.1 connection after the response.
pub(crate) async fn echo_service(
    request: Request<Incoming>,
) -> Result<Response<UnsyncBoxBody<Bytes, Infallible>>, Infallible> {
    if request.uri().path().starts_with("/ws") {
        return Ok(crate::echo::upgraded(request));
    }
    if request.uri().path() == "/held" {
        let never = futures_util::stream::pending::<Result<Frame<Bytes>, Infallible>>();
        return Ok(Response::new(StreamBody::new(never).boxed_unsync()));
    }
    let mut reply = format!("{} {} {:?}\n", request.method(), request.uri(), request.version());
    for (name, value) in request.headers() {
        reply.push_str(&format!("{name}: {}\n", value.to_str().unwrap_or("?")));
    }
    let closes = request.uri().path() == "/closing" && request.version() < Version::HTTP_2;
    if let Ok(body) = request.into_body().collect().await {
        for (name, value) in body.trailers().into_iter().flatten() {
            reply.push_str(&format!("trailer {name}: {}\n", value.to_str().unwrap_or("?")));
        }
        reply.push_str(&format!("body of {}\n", body.to_bytes().len()));
    }
    let mut response = Response::new(Full::new(reply.into()).boxed_unsync());
    if closes {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

/// A running proxy that trusts a given upstream root.
pub(crate) struct World {
    pub(crate) running: Running,
    pub(crate) root: Vec<u8>,
}

impl World {
    pub(crate) async fn new(upstream_root: &[u8], change: impl FnOnce(&mut Options)) -> Self {
        let (authority, root) = authority();
        let mut options = Options {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            upstream_roots: vec![upstream_root.to_vec()],
            ..Options::default()
        };
        change(&mut options);
        let running = proxy::start(options, authority, ProxyMetrics::default()).await.unwrap();
        Self { running, root }
    }

    pub(crate) async fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.running.address).await.unwrap()
    }

    /// Sends CONNECT. Returns the response and the stream.
    pub(crate) async fn connect(&self, target: &str) -> (String, TcpStream) {
        let mut stream = self.tcp().await;
        // The proxy may already have closed the connection.
        let _ =
            stream.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes()).await;
        (head(&mut stream).await, stream)
    }

    /// Opens TLS with `name` after CONNECT to `target`.
    pub(crate) async fn tls(
        &self,
        client: &Client,
        target: &str,
        name: &str,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let (reply, stream) = self.connect(target).await;
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
        client.0.connect(ServerName::try_from(name.to_owned()).unwrap(), stream).await
    }
}

/// A body of any type.
pub(crate) type AnyBody = UnsyncBoxBody<Bytes, Infallible>;
pub(crate) type Http2 = http2::SendRequest<AnyBody>;

/// Opens HTTP/2 over `stream`. The task of the connection ends with the connection.
pub(crate) async fn http2<S>(stream: S) -> (Http2, tokio::task::JoinHandle<hyper::Result<()>>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(Duration::from_millis(50))
        .keep_alive_timeout(TIMEOUT)
        .keep_alive_while_idle(true)
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    (sender, tokio::spawn(connection))
}

/// Builds a GET request with an empty body.
pub(crate) fn get(url: &str) -> Request<AnyBody> {
    Request::get(url).body(Full::<Bytes>::default().boxed_unsync()).unwrap()
}

/// Sends a request. Returns the status and the body of the response.
pub(crate) async fn answer(sender: &Http2, request: Request<AnyBody>) -> (u16, String) {
    let mut sender = sender.clone();
    let requested = async {
        let response = sender.send_request(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    };
    tokio::time::timeout(TIMEOUT, requested).await.expect("an answer")
}

/// Reads bytes up to the empty line.
pub(crate) async fn head(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut reply = Vec::new();
    let read = async {
        while !reply.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => reply.push(byte),
                Err(_) => break,
            }
        }
    };
    tokio::time::timeout(TIMEOUT, read).await.unwrap();
    String::from_utf8(reply).unwrap()
}

/// Sends an HTTP/1.1 request, and reads the whole response.
pub(crate) async fn exchange(
    stream: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin),
    request: &str,
) -> String {
    testbed::write_and_flush(stream, request.as_bytes()).await.unwrap();
    let mut reply = head(stream).await;
    let length = reply
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned));
    let mut body = vec![0; length.and_then(|text| text.parse().ok()).unwrap_or(0)];
    tokio::time::timeout(TIMEOUT, stream.read_exact(&mut body)).await.unwrap().unwrap();
    reply.push_str(&String::from_utf8(body).unwrap());
    reply
}

/// A TLS client that trusts one root.
#[derive(Clone)]
pub(crate) struct Client(pub(crate) TlsConnector);

impl Client {
    /// HTTP/1.1, with a full handshake each time.
    pub(crate) fn fresh(root: &[u8]) -> Self {
        Self::with(root, "http/1.1", Resumption::disabled())
    }

    pub(crate) fn of(root: &[u8], alpn: &str) -> Self {
        Self::with(root, alpn, Resumption::in_memory_sessions(64))
    }

    /// Returns a client that supports only RSA signatures.
    pub(crate) fn without_ecdsa(root: &[u8]) -> Self {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let rsa = |suite: &rustls::SupportedCipherSuite| {
            format!("{:?}", suite.suite()).starts_with("TLS_ECDHE_RSA")
        };
        let suites = provider.cipher_suites.iter().filter(|suite| rsa(suite)).copied().collect();
        Self::by(rustls::crypto::CryptoProvider { cipher_suites: suites, ..provider }, root)
    }

    /// Returns a client with the crypto provider `provider`.
    pub(crate) fn by(provider: rustls::crypto::CryptoProvider, root: &[u8]) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(root.to_vec())).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS12])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self(Arc::new(config).into())
    }

    fn with(root: &[u8], alpn: &str, resumption: Resumption) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(root.to_vec())).unwrap();
        let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        config.resumption = resumption;
        Self(Arc::new(config).into())
    }
}

/// Returns the leaf that the client received.
pub(crate) fn leaf(stream: &TlsStream<TcpStream>) -> x509::Certificate {
    x509::Certificate::parse(&stream.get_ref().1.peer_certificates().unwrap()[0]).unwrap()
}
