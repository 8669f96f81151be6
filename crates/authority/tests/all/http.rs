//! A small HTTP/1.1 server for protocol clients: one request for each connection.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use authority::{Peer, PresentedChain};
use bytes::Bytes;
use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// A listener on a free port that is closed on drop.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns a TLS server configuration with this chain and PKCS #8 key. Accepts client certificates signed by `anchor`.
pub(crate) fn tls(chain: &[Arc<[u8]>], key: &[u8], anchor: &[u8]) -> Arc<ServerConfig> {
    let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(anchor.to_vec())).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()
        .unwrap();
    let chain = chain.iter().map(|der| CertificateDer::from(der.to_vec())).collect();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, PrivateKeyDer::try_from(key.to_vec()).unwrap())
        .unwrap();
    Arc::new(config)
}

/// Serves until dropped, over TLS if there is a configuration.
pub(crate) async fn serve<H, F>(tls: Option<Arc<ServerConfig>>, handle: H) -> Server
where
    H: Fn(Request<Bytes>, Peer) -> F + Clone + Send + 'static,
    F: Future<Output = Response<Bytes>> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        while let Ok((stream, from)) = listener.accept().await {
            let (handle, tls) = (handle.clone(), tls.clone());
            tokio::spawn(async move {
                let mut peer = Peer::at(from.ip());
                let Some(tls) = tls else {
                    return answer(stream, peer, handle).await;
                };
                let Ok(stream) = TlsAcceptor::from(tls).accept(stream).await else { return };
                let session = stream.get_ref().1;
                peer.client_certificate =
                    PresentedChain::new(session.peer_certificates().unwrap_or_default());
                let binding = session.export_keying_material([0; 32], b"EXPORTER-Channel-Binding", None);
                peer.channel_binding = binding.ok();
                answer(stream, peer, handle).await;
            });
        }
    });
    Server { address, task }
}

async fn answer<S, H, F>(mut stream: S, peer: Peer, handle: H)
where
    S: AsyncRead + AsyncWrite + Unpin,
    H: Fn(Request<Bytes>, Peer) -> F,
    F: Future<Output = Response<Bytes>>,
{
    let Some(request) = read(&mut stream).await else { return };
    let response = handle(request, peer).await;
    let mut head = format!("HTTP/1.1 {}\r\n", response.status());
    for (name, value) in response.headers() {
        head += &format!("{name}: {}\r\n", value.to_str().unwrap());
    }
    head += &format!("content-length: {}\r\nconnection: close\r\n\r\n", response.body().len());
    let _ = stream.write_all(head.as_bytes()).await;
    let _ = stream.write_all(response.body()).await;
    let _ = stream.shutdown().await;
}

async fn read<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) -> Option<Request<Bytes>> {
    let mut received = Vec::new();
    let end = loop {
        if let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut received).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(received[..end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let mut request = Request::builder().method(first.next()?).uri(first.next()?);
    let mut length = 0;
    for line in lines {
        let (name, value) = line.split_once(':')?;
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap();
        }
        if name.eq_ignore_ascii_case("expect") {
            testbed::write_and_flush(stream, b"HTTP/1.1 100 Continue\r\n\r\n").await.ok()?;
        }
        request = request.header(name, value.trim());
    }
    let mut body = received.split_off(end + 4);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(request.body(body.into()).unwrap())
}
