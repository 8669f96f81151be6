//! Connections of clients: TLS and authentication.

use std::net::SocketAddr;
use std::sync::Arc;

use http_relay::client::Client;
use inbound::{ConnectionHandler, Refusal, Silence, Slot};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::failure::Failure;
use crate::metrics::End;
use crate::proxy::Proxy;

/// Server of the sessions of one listener.
pub(crate) trait SessionServer: Send + Sync + 'static {
    /// Name of the tasks that serve connections.
    const TASK: &'static str;

    fn proxy(&self) -> &Arc<Proxy>;

    /// Serves a connection, whose client may use the proxy, until its end.
    fn connection(
        &self,
        stream: TcpStream,
        client: Client,
        silence: Silence,
    ) -> impl Future<Output = End> + Send;
}

/// Handler of the connections of one listener.
pub(crate) struct SessionHandler<S>(pub(crate) S);

impl<S: SessionServer> ConnectionHandler for SessionHandler<S> {
    async fn serve(self: Arc<Self>, stream: TcpStream, client: SocketAddr, slot: &mut Slot) {
        let _live = telemetry::tasks::guard(S::TASK);
        let proxy = self.0.proxy();
        let _open = proxy.metrics.connection();
        let client = proxy.access.client(client);
        let end = match proxy.permits_network(&client) {
            true => {
                let _ = stream.set_nodelay(true);
                self.0.connection(stream, client, slot.silence()).await
            }
            false => End::Refused,
        };
        proxy.metrics.ended(end);
    }

    fn refused(&self, stream: TcpStream, reason: Refusal) {
        self.0.proxy().refused(stream, reason);
    }

    fn evicted(&self) {
        self.0.proxy().evicted();
    }

    fn cut_off(&self) {
        self.0.proxy().cut_off();
    }
}

/// Accepts TLS of a client, and serves the connection until its end, or until the client's certificate is revoked. `alpn`: names of
/// the protocol in TLS.
pub(crate) async fn in_tls<F: Future<Output = End> + Send>(
    proxy: &Proxy,
    stream: TcpStream,
    client: Client,
    alpn: &[&[u8]],
    serve: impl FnOnce(TlsStream<TcpStream>, Client) -> F,
) -> End {
    let Some(tls_acceptor) = proxy.access.tls_acceptor() else { return End::NoRequest };
    let Some((stream, client, shown)) = proxy.accepted(tls_acceptor.accept_as(stream, alpn), client).await
    else {
        return End::NoRequest;
    };
    tokio::select! {
        // Polled before the session is served, so that a client with a revoked certificate is never served.
        biased;
        () = tls_acceptor.guarded().revoked(shown) => End::CutOff,
        end = Box::pin(serve(stream, client)) => end,
    }
}

/// Returns whether a client may send a password or a token in clear: over TLS, or from this machine.
pub(crate) fn may_send_token(client: &Client, in_tls: bool) -> bool {
    in_tls || client.ip().is_loopback()
}

impl Proxy {
    /// Returns whether the client must authenticate by a password or a token: authentication is required, and the client has no
    /// certificate.
    pub(crate) fn asks_for_token(&self, client: &Client) -> bool {
        self.access.requires_authentication() && client.user.is_none()
    }

    /// Authenticates a client by the name and the value of a token, or by user and password.
    pub(crate) async fn client_with_token(
        &self,
        client: &Client,
        name: &[u8],
        token: &[u8],
    ) -> Result<Client, Failure> {
        let known = self.access.authenticate_password(name, token, client).await;
        known.inspect_err(|denied| self.metrics.denied(*denied)).map_err(Failure::from)
    }
}
