//! Serves connections of consumers: TLS handshake, client certificate and requests.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_relay::clock::now;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use inbound::{Acceptor, ConnectionHandler, Refusal, Silence, Slot, Slots, WhenFull};
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream, unix};
use tokio_rustls::TlsAcceptor;

use super::consumer::Consumer;
use super::http;
use super::listener::{ConsumerTls, Listener};
use super::service::MintingService;

/// Timeout of a TLS handshake with a consumer.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// Timeout of a request's header.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// Maximum bytes of a request's header.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Maximum concurrent requests of one connection: Envoy opens a stream for each name.
const REQUESTS_MAX: u32 = 4_096;
/// Maximum requests of one connection that are reset before they are processed (rapid reset, CVE-2023-44487).
const RESETS_MAX: usize = 64;
/// Interval of keep-alive pings on a silent connection.
const PING_EVERY: Duration = Duration::from_secs(20);

/// Accepts connections until the shutdown begins.
pub(super) async fn accept(shared: Arc<MintingService>, listener: Listener, slots: Slots) {
    // Consumers without TLS are identified immediately, by loopback address or socket, so their connections never count as silent.
    let evicts = matches!(&listener, Listener::Tcp(_, Some(_)));
    let when_full = if evicts { WhenFull::EvictSilent } else { WhenFull::Refuse };
    let acceptor = Acceptor::new(&shared.tasks, slots, when_full);
    match listener {
        Listener::Unix(listener, bound) => {
            acceptor.run(&listener, Arc::new(Consumers { shared, tls: None })).await;
            bound.remove();
        }
        Listener::Tcp(listener, tls) => acceptor.run(&listener, Arc::new(Consumers { shared, tls })).await,
    }
}

/// State for serving the connections of a listener. Connections without TLS come from this machine.
struct Consumers {
    shared: Arc<MintingService>,
    tls: Option<ConsumerTls>,
}

impl ConnectionHandler<UnixListener> for Consumers {
    async fn serve(self: Arc<Self>, stream: UnixStream, _: unix::SocketAddr, slot: &mut Slot) {
        slot.silence().end();
        serve(Arc::clone(&self.shared), stream, Consumer::local()).await;
    }

    fn refused(&self, _: UnixStream, reason: Refusal) {
        self.shared.metrics.refused(reason.name());
    }

    fn evicted(&self) {
        self.shared.metrics.refused(Refusal::Evicted.name());
    }
}

impl ConnectionHandler<TcpListener> for Consumers {
    async fn serve(self: Arc<Self>, stream: TcpStream, from: SocketAddr, slot: &mut Slot) {
        let (shared, silence) = (Arc::clone(&self.shared), slot.silence());
        match &self.tls {
            None => {
                silence.end();
                serve(shared, stream, Consumer::local()).await;
            }
            Some(tls) => over_tls(shared, stream, (from, silence), tls).await,
        }
    }

    fn refused(&self, _: TcpStream, reason: Refusal) {
        self.shared.metrics.refused(reason.name());
    }

    fn evicted(&self) {
        self.shared.metrics.refused(Refusal::Evicted.name());
    }
}

async fn over_tls(
    shared: Arc<MintingService>,
    stream: TcpStream,
    (from, silence): (SocketAddr, Silence),
    ConsumerTls { guarded: tls, roots }: &ConsumerTls,
) {
    let shaking = TlsAcceptor::from(tls.tls()).accept(stream);
    let stream = match tokio::time::timeout(HANDSHAKE_WITHIN, shaking).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            shared.metrics.refused("handshake-failed");
            return tracing::info!(%from, %error, "rejected a consumer");
        }
        Err(_) => return shared.metrics.refused("handshake-timed-out"),
    };
    let Some(consumer) = Consumer::of_chain(stream.get_ref().1.peer_certificates(), roots, from) else {
        return shared.metrics.refused("no-identity");
    };
    silence.end();
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).cloned();
    tokio::select! {
        // Polled before the requests are served, so that a consumer with a revoked certificate is never served.
        biased;
        () = tls.revoked(shown.map(CertificateDer::into_owned)) => {}
        () = serve(shared, stream, consumer) => {}
    }
}

async fn serve<S>(shared: Arc<MintingService>, stream: S, consumer: Consumer)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let _live = telemetry::tasks::guard("minting-connection");
    let stopping = shared.tasks.stopping();
    let ends = match consumer.until {
        Some(until) => Duration::from_secs(until.since(now()).max(0) as u64 + 1),
        None => Duration::MAX,
    };
    let answering = Arc::new(http::ConsumerService::new(shared, consumer));
    let service = service_fn(move |request: Request<Incoming>| {
        let answering = Arc::clone(&answering);
        async move { Ok::<_, Infallible>(answering.answer(request).await) }
    });
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN).max_buf_size(HEAD_BYTES_MAX);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(REQUESTS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .keep_alive_interval(PING_EVERY);
    let serving = http.serve_connection(TokioIo::new(stream), service);
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = tokio::time::sleep(ends) => return tracing::info!("a consumer's certificate has expired: closed its connection"),
        () = stopping.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a consumer's connection failed");
    }
}
