//! Handling of one connection, from accept to close.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_relay::client::Client;
use http_relay::relay::{RelayEnd, relay};
use inbound::Silence;
use s2n_tls::config::Config;
use s2n_tls::connection::{Builder, Connection};
use s2n_tls::enums::Mode;
use s2n_tls::error::Error;
use s2n_tls_tokio::TlsAcceptor;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::alert::{INTERNAL_ERROR, MISSING_EXTENSION, UNRECOGNIZED_NAME};
use super::flight::Flight;
use super::greeting::{HandshakeState, SelectedSite};
use super::metrics::{End, Handshake};
use super::proxy_protocol::{ProxiedConnection, header};
use super::requests::ConnectionClient;
use super::terminator::{Stream, Terminator};
use super::upstream::{Reach, UpstreamPreamble};

/// Builder of TLS connections that store the outcome of their handshakes.
#[derive(Clone)]
struct ConnectionBuilder {
    config: Config,
    greeting: HandshakeState,
}

impl Builder for ConnectionBuilder {
    type Output = Connection;

    fn build_connection(&self, mode: Mode) -> Result<Connection, Error> {
        let mut connection = self.config.build_connection(mode)?;
        // One read returns many records, instead of two reads for each record.
        connection.set_receive_buffering(true)?;
        connection.set_application_context(self.greeting.clone());
        Ok(connection)
    }
}

impl Terminator {
    /// Serves a connection to its end.
    pub(super) async fn connection(
        self: &Arc<Self>,
        stream: TcpStream,
        client: SocketAddr,
        silence: &Silence,
    ) -> End {
        let server = stream.local_addr().unwrap_or(client);
        let Some((tls, chosen)) = self.handshake(stream, client).await else { return End::NoHandshake };
        silence.end();
        let name = tls.as_ref().server_name().map(str::to_owned);
        let identity = match self.clients.as_ref().map(|clients| clients.identity(tls.as_ref())).transpose() {
            Ok(identity) => identity.flatten(),
            Err(refused) => {
                tracing::info!(%client, %refused, "rejected a client certificate");
                close(tls).await;
                return End::ClientRefused;
            }
        };
        let SelectedSite { route: Some(route), site } = chosen else {
            close(tls).await;
            return End::NoRoute;
        };
        if route.http.is_some() {
            let user = identity.as_ref().map(|identity| Arc::clone(&identity.subject));
            let connection_client = ConnectionClient { client: Client::at(client).known_as(user), identity };
            return Box::pin(self.serve_requests(tls, connection_client, name, site)).await;
        }
        let alpn = tls.as_ref().application_protocol().map(<[u8]>::to_vec);
        let details = ProxiedConnection { client, server, alpn: alpn.as_deref(), name: name.as_deref() };
        let header = if route.proxy_protocol { header(&details) } else { Vec::new() };
        let introduction = UpstreamPreamble { header, alpn: alpn.into_iter().collect() };
        let reach = Reach { resolver: &self.resolver, metrics: &self.metrics, limit: self.connect_timeout };
        let reached = reach.connect(&route.group, client.ip(), &introduction).await;
        let Some((upstream, _in_flight)) = reached else {
            close(tls).await;
            return End::NoUpstream;
        };
        match relay(tls, upstream, self.idle, self.metrics.relayed_bytes()).await {
            RelayEnd::Closed => End::Closed,
            RelayEnd::Idle => End::Idle,
            RelayEnd::Broken(error) => {
                tracing::debug!(%client, %error, "a connection failed");
                End::Broken
            }
        }
    }

    async fn handshake(&self, stream: TcpStream, client: SocketAddr) -> Option<(Stream, SelectedSite)> {
        let began = Instant::now();
        let greeting = HandshakeState::default();
        let alert = &greeting.alert;
        let acceptor =
            TlsAcceptor::new(ConnectionBuilder { config: self.config.clone(), greeting: greeting.clone() });
        let accepting = acceptor.accept(Flight::new(stream, alert.clone()));
        let accepting = with_hello_timeout(accepting, &greeting, self.handshake_timeout.min(HELLO_WITHIN));
        let outcome = match tokio::time::timeout(self.handshake_timeout, accepting).await {
            Ok(None) => Err(Handshake::Late),
            Err(_) => Err(Handshake::Late),
            Ok(Some(Ok(tls))) => Ok(tls),
            Ok(Some(Err(error))) => {
                let outcome = match alert.get() {
                    Some(INTERNAL_ERROR) => Handshake::NotSigned,
                    Some(UNRECOGNIZED_NAME) => Handshake::UnknownName,
                    Some(MISSING_EXTENSION) => Handshake::NoName,
                    _ => Handshake::Failed,
                };
                let details = TlsErrorText(&error);
                if outcome == Handshake::NotSigned {
                    tracing::info!(%client, error = %details, "a TLS handshake failed: the key service did not sign");
                } else {
                    tracing::debug!(%client, error = %details, "a handshake failed");
                }
                Err(outcome)
            }
        };
        match outcome {
            Ok(mut tls) => {
                tls.get_mut().open();
                let resumed = tls.as_ref().resumed();
                self.metrics
                    .handshake(if resumed { Handshake::Resumed } else { Handshake::Full }, began.elapsed());
                // Flushes the last held-back data. In TLS 1.2, this data completes the handshake.
                tls.flush().await.ok()?;
                Some((tls, greeting.chosen.get().cloned()?))
            }
            Err(outcome) => {
                self.metrics.handshake(outcome, began.elapsed());
                None
            }
        }
    }
}

/// The text of a TLS error: from the TLS library or, if a callback of this crate failed, from the callback's error.
struct TlsErrorText<'a>(&'a Error);

impl std::fmt::Display for TlsErrorText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.application_error() {
            Some(ours) => ours.fmt(f),
            None => write!(f, "{}: {}", self.0.name(), self.0.message()),
        }
    }
}

/// Timeout for a ClientHello, from the accept of the connection. A silent client must not occupy a connection slot.
const HELLO_WITHIN: Duration = Duration::from_secs(2);

/// Returns the result of `accepting`; `None` if no ClientHello arrives within `limit`.
async fn with_hello_timeout<F: Future>(
    accepting: F,
    greeting: &HandshakeState,
    limit: Duration,
) -> Option<F::Output> {
    let mut accepting = std::pin::pin!(accepting);
    match tokio::time::timeout(limit, accepting.as_mut()).await {
        Ok(accepted) => Some(accepted),
        Err(_) if greeting.has_client_hello() => Some(accepting.await),
        Err(_) => None,
    }
}

/// Timeout for the close_notify alert.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

async fn close(mut tls: Stream) {
    // The client may already have closed the connection; the result does not matter.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, tls.shutdown()).await;
}
