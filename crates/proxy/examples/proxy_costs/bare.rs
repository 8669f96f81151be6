//! The lower bound: only the work that every TLS-intercepting proxy must do with these libraries. CONNECT, a handshake with one
//! certificate for all hosts, a request and its response as bytes over a connection to the upstream, which is reused if it stays open.
//! No rules, no limits, and of HTTP only headers and lengths.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector, client};

use proxy::mint::{LeafKeyKind, LeafKeys, Minter};
use x509::HostOrIp;

type Upstream = client::TlsStream<TcpStream>;

struct MinimalProxy {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    idle: Mutex<Vec<Upstream>>,
}

/// Serves until the process is killed. Prints its address.
pub(crate) async fn serve(upstream_root: &[u8], authority: proxy::mint::Authority) {
    let minter = Minter::new(authority, Arc::new(LeafKeys::new().unwrap()), crate::DAY);
    let name = HostOrIp::parse("localhost").unwrap();
    let leaf = minter.mint(&name, LeafKeyKind::P256, crate::world::now()).await.unwrap();
    let mut server = ServerConfig::builder()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from((*leaf.certified).clone())));
    server.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(upstream_root.to_vec().into()).unwrap();
    let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let bare = Arc::new(MinimalProxy {
        acceptor: Arc::new(server).into(),
        connector: Arc::new(client).into(),
        idle: Mutex::default(),
    });
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let bare = Arc::clone(&bare);
        tokio::spawn(async move { bare.connection(stream).await });
    }
}

impl MinimalProxy {
    async fn connection(&self, mut stream: TcpStream) -> Option<()> {
        stream.set_nodelay(true).ok()?;
        let mut bytes = Vec::with_capacity(4_096);
        let connect = read_head(&mut stream, &mut bytes).await?;
        let port = connect.split(' ').nth(1)?.rsplit_once(':')?.1.parse().ok()?;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.ok()?;
        let mut stream = self.acceptor.accept(stream).await.ok()?;
        loop {
            read_head(&mut stream, &mut bytes).await?;
            let idle = self.idle.lock().unwrap().pop();
            let mut upstream = match idle {
                Some(upstream) => upstream,
                None => self.connect(port).await?,
            };
            upstream.write_all(&bytes).await.ok()?;
            let head = read_head(&mut upstream, &mut bytes).await?.to_ascii_lowercase();
            let begun = bytes.len();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
            let length: usize = length.parse().ok()?;
            let whole = head.len() + length;
            bytes.resize(whole, 0);
            upstream.read_exact(&mut bytes[begun..]).await.ok()?;
            if !head.contains("connection: close") {
                self.idle.lock().unwrap().push(upstream);
            }
            stream.write_all(&bytes).await.ok()?;
        }
    }

    async fn connect(&self, port: u16) -> Option<Upstream> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
        stream.set_nodelay(true).ok()?;
        self.connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.ok()
    }
}

/// Reads a header section. Leaves the bytes after it in `bytes`.
async fn read_head(stream: &mut (impl AsyncRead + Unpin), bytes: &mut Vec<u8>) -> Option<String> {
    bytes.clear();
    loop {
        if stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            return String::from_utf8(bytes[..end + 4].to_vec()).ok();
        }
    }
}
