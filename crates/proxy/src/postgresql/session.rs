//! A PostgreSQL client's connection, from its first packet to its end.

use std::sync::Arc;

use http_relay::client::Client;
use http_relay::upstream::Slot as UpstreamSlot;
use inbound::Silence;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use x509::HostOrIp;

use super::cancel::{CancelKey, CancelKeys, CancelTarget, IssuedKey};
use super::failure;
use super::login::{ALPN, LoginError, PostgresqlLogin};
use super::message::{
    ERROR, KEY, NOTICE, PASSWORD_BYTES_MAX, READY, SERVER_MESSAGE_BYTES_MAX, SETTING, authenticated,
    error_field, key, password, password_request, read, send, version_3_0,
};
use super::packet::{self, BadPacket, Packet, Startup, cancel_request};
use crate::metrics::End;
use crate::policy::{DatabaseSession, Phase, SessionProtocol};
use crate::proxy::Proxy;
use crate::sessions::{
    self, AdmittedSession, DatabaseListenerOptions, DatabaseServer, DialError, Failure, ServerConnection,
    ServerStream, SessionServer,
};

/// Maximum packets of a client before its startup message: requests for encryption.
const PACKETS_MAX: usize = 3;
/// Maximum messages of a server between the login and the first query.
const SETTINGS_MAX: usize = 1_000;
/// Maximum bytes of all messages of a server between the login and the first query.
const SETTINGS_BYTES_MAX: usize = 1 << 20;
/// Answer that accepts a request for encryption. [`NOT_ACCEPTED`] refuses it.
const ACCEPTED: u8 = b'S';
const NOT_ACCEPTED: u8 = b'N';

/// Server of the PostgreSQL sessions of one listener.
pub(crate) struct PostgresqlServer {
    proxy: Arc<Proxy>,
    server: DatabaseServer,
    keys: CancelKeys,
}

/// The first data of a client: a TLS handshake, or a packet.
enum FirstMessage {
    /// The client begins a TLS handshake.
    Tls,
    Packet(Packet),
}

/// An admitted session, logged in at the server.
struct Established {
    stream: ServerStream,
    /// The key by which the client cancels queries; `None` if the server sent no such key.
    key: Option<IssuedKey>,
    cancel: Option<CancelTarget>,
    _slot: UpstreamSlot,
}

impl SessionServer for PostgresqlServer {
    const TASK: &'static str = "proxy-postgresql";

    fn proxy(&self) -> &Arc<Proxy> {
        &self.proxy
    }

    async fn connection(&self, mut stream: TcpStream, client: Client, silence: Silence) -> End {
        let proxy = &self.proxy;
        let offers_tls = proxy.access.tls_acceptor().is_some();
        match timeout(proxy.options.head_timeout, read_first_message(&mut stream, offers_tls)).await {
            Ok(Ok(Ok(FirstMessage::Tls))) => {
                let serve = |stream, client| self.in_tls(stream, client, silence);
                sessions::in_tls(proxy, stream, client, ALPN, serve).await
            }
            Ok(Ok(Ok(FirstMessage::Packet(packet)))) => {
                Box::pin(self.serve_packet(stream, client, packet, false, silence)).await
            }
            Ok(Ok(Err(error))) => refuse(&mut stream, &client, &error.into()).await,
            Ok(_) | Err(_) => End::NoRequest,
        }
    }
}

impl PostgresqlServer {
    pub(crate) fn new(proxy: Arc<Proxy>, options: DatabaseListenerOptions) -> Self {
        Self { proxy, server: DatabaseServer::new(options), keys: CancelKeys::default() }
    }

    async fn in_tls<S>(&self, mut stream: S, client: Client, silence: Silence) -> End
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        match timeout(self.proxy.options.head_timeout, packet::read(&mut stream)).await {
            Ok(Ok(Ok(packet))) => self.serve_packet(stream, client, packet, true, silence).await,
            Ok(Ok(Err(error))) => refuse(&mut stream, &client, &error.into()).await,
            Ok(Err(_)) | Err(_) => End::NoRequest,
        }
    }

    async fn serve_packet<S>(
        &self,
        mut stream: S,
        client: Client,
        packet: Packet,
        in_tls: bool,
        silence: Silence,
    ) -> End
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let startup = match packet {
            Packet::Startup(startup) => startup,
            Packet::Cancel(key) => {
                self.cancel(&key).await;
                return End::Closed;
            }
            Packet::Ssl | Packet::GssEncryption => return End::NoRequest,
        };
        let authenticated = self.authenticate(&mut stream, &client, &startup, in_tls);
        let client = match timeout(self.proxy.options.head_timeout, authenticated)
            .await
            .unwrap_or(Err(Failure::late()))
        {
            Ok(client) => client,
            Err(failure) => return refuse(&mut stream, &client, &failure).await,
        };
        silence.end();
        match self.session(&mut stream, &client, &startup).await {
            Ok(()) => End::Closed,
            Err(failure) => refuse(&mut stream, &client, &failure).await,
        }
    }

    /// Authenticates the client by its password, if authentication is required and the client has no certificate.
    async fn authenticate<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
        client: &Client,
        startup: &Startup,
        in_tls: bool,
    ) -> Result<Client, Failure> {
        let extensions = startup.extensions();
        if startup.minor > 0 || !extensions.is_empty() {
            send(stream, &version_3_0(&extensions)).await?;
        }
        if startup.replicates() {
            return Err(failure::replication());
        }
        if !self.proxy.asks_for_token(client) {
            return Ok(client.clone());
        }
        if !sessions::may_send_token(client, in_tls) {
            return Err(failure::needs_tls());
        }
        send(stream, &password_request()).await?;
        let message = read(stream, PASSWORD_BYTES_MAX).await?;
        let sent = password(&message).ok_or_else(|| failure::protocol("the client sent no password"))?;
        self.proxy.client_with_token(client, startup.user().as_bytes(), sent).await
    }

    /// Serves a session of an authenticated client until its end. Returns the error for the client if the session fails before its
    /// first query.
    async fn session<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
        client: &Client,
        startup: &Startup,
    ) -> Result<(), Failure> {
        let (proxy, target) = (&self.proxy, &self.server.target);
        let endpoint =
            DatabaseSession { protocol: SessionProtocol::Postgresql, database: startup.database() };
        let served = proxy.served(client);
        let mut session = AdmittedSession::admit(proxy, client, target, endpoint).await?;
        let established = tokio::select! {
            established = self.establish(stream, startup, &mut session) => established,
            () = proxy.stopped(&served) => Err(Failure::stopped()),
        };
        let Established { stream: server, key, cancel, _slot } = session.established(established)?;
        let not_admitted =
            proxy.wait_until_not_admitted(client, target, &target.name, Phase::Session(endpoint));
        let is_ended = session.relay(proxy, stream, server, not_admitted).await;
        drop(key);
        if !is_ended {
            // Cancels a running query, because the server notices the end of a connection only after the query.
            cancel.into_iter().for_each(|session| self.cancel_in_background(session));
        }
        Ok(())
    }

    /// Connects to the server and logs in. Forwards the server's messages to the client until the server is ready for the first
    /// query.
    async fn establish<S: AsyncWrite + Unpin>(
        &self,
        client: &mut S,
        startup: &Startup,
        session: &mut AdmittedSession<'_>,
    ) -> Result<Established, Failure> {
        let limit = self.proxy.options.connect_timeout;
        let login = PostgresqlLogin(startup);
        let (mut connection, _) = sessions::log_in(&self.proxy, &self.server, session, &login).await?;
        let begun = timeout(limit, self.begin(client, &mut connection)).await;
        let (key, cancel) = begun.unwrap_or(Err(LoginError::Late.into()))?;
        let ServerConnection { stream, slot, .. } = connection;
        Ok(Established { stream, key, cancel, _slot: slot })
    }

    /// Forwards the settings of the session to the client, until the session is ready. Replaces the server's cancel key by a key of
    /// the proxy.
    async fn begin<S: AsyncWrite + Unpin>(
        &self,
        client: &mut S,
        connection: &mut ServerConnection,
    ) -> Result<(Option<IssuedKey>, Option<CancelTarget>), Failure> {
        let mut settings = authenticated();
        let (mut issued, mut cancel) = (None, None);
        for _ in 0..SETTINGS_MAX {
            let message = read(&mut connection.stream, SERVER_MESSAGE_BYTES_MAX).await?;
            match message.kind {
                SETTING | NOTICE => settings.extend_from_slice(&message.encoded()),
                KEY => {
                    let key_of_server = CancelKey::parse(&message.body).ok_or(LoginError::Invalid)?;
                    let target = CancelTarget { key: key_of_server, address: connection.address };
                    let own = self.keys.issue(target).ok_or_else(failure::no_randomness)?;
                    settings.extend_from_slice(&key(&own.key));
                    (issued, cancel) = (Some(own), Some(target));
                }
                ERROR => {
                    // For example, the database does not exist. The text contains no credential, so the client may get it.
                    let code = error_field(&message.body, b'C').map(str::to_owned);
                    let text = error_field(&message.body, b'M').unwrap_or_default();
                    return Err(failure::of_server(code, text));
                }
                READY => {
                    settings.extend_from_slice(&message.encoded());
                    send(client, &settings).await?;
                    return Ok((issued, cancel));
                }
                _ => return Err(LoginError::Invalid.into()),
            }
            if settings.len() > SETTINGS_BYTES_MAX {
                return Err(LoginError::Invalid.into());
            }
        }
        Err(LoginError::Invalid.into())
    }

    /// Cancels the query of the session to which the proxy issued `key`, and waits until the server has processed the request or
    /// the timeout has passed.
    async fn cancel(&self, key: &CancelKey) {
        match self.keys.find(key) {
            Some(session) => self.cancel_at_server(session).await,
            None => tracing::debug!("a client sent an unknown key to cancel a query"),
        }
    }

    async fn cancel_at_server(&self, session: CancelTarget) {
        cancel_at(&self.proxy, &self.server, session).await;
    }

    fn cancel_in_background(&self, session: CancelTarget) {
        let (proxy, server) = (Arc::clone(&self.proxy), self.server.clone());
        self.proxy.tasks.spawn_bounded(async move {
            let _live = telemetry::tasks::guard("proxy-postgresql-cancel");
            cancel_at(&proxy, &server, session).await;
        });
    }
}

/// Cancels the query of a session. Returns when the server has closed the connection. The caller sets the timeout.
async fn send_cancel(proxy: &Proxy, server: &DatabaseServer, session: CancelTarget) -> Result<(), DialError> {
    let mut connection = server.dial::<PostgresqlLogin<'_>>(proxy, session.address).await?;
    send(&mut connection.stream, &cancel_request(&session.key)).await?;
    // The server sends nothing, and may close the connection without a close_notify.
    let _ = connection.stream.read_u8().await;
    Ok(())
}

async fn cancel_at(proxy: &Proxy, server: &DatabaseServer, session: CancelTarget) {
    let name: &HostOrIp = &server.target.name;
    match timeout(proxy.options.connect_timeout, send_cancel(proxy, server, session)).await {
        Ok(Ok(())) => tracing::debug!(%name, "cancelled the query of a session"),
        Ok(Err(error)) => tracing::info!(%name, %error, "cannot cancel the query of a session"),
        Err(_) => tracing::info!(%name, "timeout while cancelling the query of a session"),
    }
}

/// Reads the first packet that is not a request for encryption. `offers_tls`: whether the proxy accepts TLS.
async fn read_first_message(
    stream: &mut TcpStream,
    offers_tls: bool,
) -> std::io::Result<Result<FirstMessage, BadPacket>> {
    for _ in 0..PACKETS_MAX {
        match packet::read(stream).await? {
            Ok(Packet::Ssl) if offers_tls => {
                send(stream, &[ACCEPTED]).await?;
                return Ok(Ok(FirstMessage::Tls));
            }
            Ok(Packet::Ssl | Packet::GssEncryption) => send(stream, &[NOT_ACCEPTED]).await?,
            other => return Ok(other.map(FirstMessage::Packet)),
        }
    }
    Ok(Err(BadPacket::Length))
}

/// Sends an error to the client.
async fn refuse<S: AsyncWrite + Unpin>(stream: &mut S, client: &Client, failure: &Failure) -> End {
    tracing::info!(%client, code = %failure::sqlstate(failure), reason = failure.reason, message = failure.message, "refused a session");
    let _ = send(stream, &failure::encoded(failure)).await;
    End::Refused
}
