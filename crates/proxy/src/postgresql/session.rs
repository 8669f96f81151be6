//! A PostgreSQL client's connection, from its first packet to its end.

use std::net::SocketAddr;
use std::sync::Arc;

use http_relay::access_log::{Entry, counted};
use http_relay::client::Client;
use http_relay::relay::{RelayEnd, relay};
use http_relay::target::Target;
use http_relay::upstream::Slot as UpstreamSlot;
use hyper::{HeaderMap, StatusCode};
use inbound::{ConnectionHandler, Refusal, Silence, Slot};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use x509::HostOrIp;

use super::cancel::{CancelKey, CancelKeys, CancelTarget, IssuedKey};
use super::failure::Failure;
use super::login::{LoginError, log_in};
use super::message::{
    ERROR, KEY, NOTICE, PASSWORD_BYTES_MAX, READY, SERVER_MESSAGE_BYTES_MAX, SETTING, authenticated,
    error_field, key, password, password_request, read, send, version_3_0,
};
use super::options::{PostgresqlOptions, UpstreamTlsMode};
use super::packet::{self, BadPacket, Packet, Startup};
use super::upstream::{ALPN, DatabaseServer, DialError, ServerConnection, ServerStream};
use crate::audited::AuditedDecision;
use crate::metrics::End;
use crate::policy::{Grantee, Phase, SESSION_METHOD};
use crate::proxy::Proxy;
use crate::requests::{CredentialSources, DatabaseEndpoint, Injected, Login};

/// Maximum packets of a client before its startup message: requests for encryption.
const PACKETS_MAX: usize = 3;
/// Maximum messages of a server between the login and the first query.
const SETTINGS_MAX: usize = 1_000;
/// Maximum bytes of all messages of a server between the login and the first query.
const SETTINGS_BYTES_MAX: usize = 1 << 20;
/// Maximum login attempts for a session. The second attempt uses another version of the credential.
const LOGINS_MAX: usize = 2;
/// Answer that accepts a request for encryption. [`NOT_ACCEPTED`] refuses it.
const ACCEPTED: u8 = b'S';
const NOT_ACCEPTED: u8 = b'N';

/// Handler of the PostgreSQL sessions of one listener.
pub(crate) struct DatabaseProxy {
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

impl ConnectionHandler for DatabaseProxy {
    async fn serve(self: Arc<Self>, stream: TcpStream, client: SocketAddr, slot: &mut Slot) {
        let _live = telemetry::tasks::guard("proxy-postgresql");
        let _open = self.proxy.metrics.connection();
        let end = self.connection(stream, client, slot.silence()).await;
        self.proxy.metrics.ended(end);
    }

    fn refused(&self, stream: TcpStream, reason: Refusal) {
        self.proxy.refused(stream, reason);
    }

    fn evicted(&self) {
        self.proxy.evicted();
    }

    fn cut_off(&self) {
        self.proxy.cut_off();
    }
}

impl DatabaseProxy {
    pub(crate) fn new(proxy: Arc<Proxy>, options: PostgresqlOptions) -> Self {
        let PostgresqlOptions { host, port, tls, .. } = options;
        let server = DatabaseServer { target: Target { name: host, port, redirected: false }, tls };
        Self { proxy, server, keys: CancelKeys::default() }
    }

    async fn connection(&self, mut stream: TcpStream, client: SocketAddr, silence: Silence) -> End {
        let proxy = &self.proxy;
        let client = proxy.access.client(client);
        if !proxy.permits_network(&client) {
            return End::Refused;
        }
        let _ = stream.set_nodelay(true);
        let tls_acceptor = proxy.access.tls_acceptor();
        let opened =
            timeout(proxy.options.head_timeout, read_first_message(&mut stream, tls_acceptor.is_some()))
                .await;
        match (opened, tls_acceptor) {
            (Ok(Ok(Ok(FirstMessage::Tls))), Some(tls_acceptor)) => {
                let Some((stream, client, shown)) =
                    proxy.accepted(tls_acceptor.accept_as(stream, ALPN), client).await
                else {
                    return End::NoRequest;
                };
                tokio::select! {
                    // Polled before the session is served, so that a client with a revoked certificate is never served.
                    biased;
                    () = tls_acceptor.guarded().revoked(shown) => End::CutOff,
                    end = Box::pin(self.in_tls(stream, client, silence)) => end,
                }
            }
            (Ok(Ok(Ok(FirstMessage::Packet(packet)))), _) => {
                Box::pin(self.serve_packet(stream, client, packet, false, silence)).await
            }
            (Ok(Ok(Err(error))), _) => refuse(&mut stream, &client, &error.into()).await,
            (Ok(_) | Err(_), _) => End::NoRequest,
        }
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
        let access = &self.proxy.access;
        let extensions = startup.extensions();
        if startup.minor > 0 || !extensions.is_empty() {
            send(stream, &version_3_0(&extensions)).await?;
        }
        if startup.replicates() {
            return Err(Failure::replication());
        }
        if !access.requires_authentication() || client.user.is_some() {
            return Ok(client.clone());
        }
        if !in_tls && !client.ip().is_loopback() {
            return Err(Failure::needs_tls());
        }
        send(stream, &password_request()).await?;
        let message = read(stream, PASSWORD_BYTES_MAX).await?;
        let sent = password(&message).ok_or_else(|| Failure::protocol("the client sent no password"))?;
        let known = access.authenticate_password(startup.user().as_bytes(), sent, client).await;
        known.inspect_err(|denied| self.proxy.metrics.denied(*denied)).map_err(Failure::from)
    }

    /// Serves a session of an authenticated client until its end. Returns the error for the client if the session fails before its
    /// first query.
    async fn session<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
        client: &Client,
        startup: &Startup,
    ) -> Result<(), Failure> {
        let (proxy, target, database) = (&self.proxy, &self.server.target, startup.database());
        let served = proxy.served(client);
        let (mut admission, audited) = proxy.admit_session(client, target, database).await?;
        let mut entry = proxy.requests.session(client, target, SESSION_METHOD, &format!("/{database}"));
        admission.note(&mut entry);
        if let Some(log) = proxy.requests.audit_log() {
            entry.keep(audited.outcome(log));
        }
        let established = tokio::select! {
            established = self.establish(stream, startup, &admission.grantee, (&audited, &mut *entry)) => established,
            () = proxy.stopped(&served) => Err(Failure::stopped()),
        };
        let Established { stream: server, key, cancel, _slot } = match established {
            Ok(established) => established,
            Err(failure) => {
                entry.set_refusal_reason(failure.reason);
                entry.answered(failure.status, &HeaderMap::new());
                return Err(failure);
            }
        };
        entry.answered(StatusCode::OK, &HeaderMap::new());
        let counted_bytes = proxy.metrics.tunnel();
        let is_ended = tokio::select! {
            ended = relay(counted(stream, Some(&*entry)), server, proxy.options.idle, &counted_bytes) => {
                tracing::debug!(%client, %target, ?ended, "a session ended");
                if matches!(ended, RelayEnd::Closed) {
                    entry.complete();
                }
                true
            }
            () = proxy.wait_until_not_admitted(client, target, &target.name, Phase::Session(database)) => false,
        };
        drop(key);
        if !is_ended {
            tracing::info!(%client, %target, database, "closed a session: the policy no longer allows it");
            entry.set_refusal_reason("stopped");
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
        grantee: &Grantee,
        (audited, entry): (&AuditedDecision, &mut Entry),
    ) -> Result<Established, Failure> {
        let limit = self.proxy.options.connect_timeout;
        let mut connection = self.log_in(startup, grantee, (audited, entry)).await?;
        if let Some(key) = connection.key {
            entry.server_key(key);
        }
        let begun = timeout(limit, self.begin(client, &mut connection)).await;
        let (key, cancel) = begun.unwrap_or(Err(LoginError::Late.into()))?;
        let ServerConnection { stream, slot, .. } = connection;
        Ok(Established { stream, key, cancel, _slot: slot })
    }

    /// Logs in at the server with the credential that a rule grants. If the server rejects the credential, tries another version of
    /// it once.
    async fn log_in(
        &self,
        startup: &Startup,
        grantee: &Grantee,
        (audited, entry): (&AuditedDecision, &mut Entry),
    ) -> Result<ServerConnection, Failure> {
        let proxy = &self.proxy;
        let Target { name: host, port, .. } = &self.server.target;
        let is_trusted = self.server.is_trusted(proxy);
        let endpoint = DatabaseEndpoint { host, port: *port, database: startup.database(), is_trusted };
        let (mut tried, mut rejection): (Vec<Injected>, Option<LoginError>) = (Vec::new(), None);
        loop {
            let rules = proxy.rules.now();
            let secrets = rules.secrets.as_deref();
            let sources = CredentialSources { secrets, leases: proxy.leases.as_ref() };
            let metrics = proxy.requests.metrics();
            let login = match rules.requests.login(endpoint, grantee, (sources, &tried), metrics).await {
                Ok(login) => login,
                Err(failure) => {
                    let _ = proxy.requests.audit(|| audited.unsent()).await;
                    return Err(failure.into());
                }
            };
            if let Some(error) = rejection.take_if(|_| login.injected.was_sent_last(&tried)) {
                return Err(error.into());
            }
            // Audited first: no credential is used without an audit event.
            proxy.requests.audit(|| audited.sent(std::slice::from_ref(&login.injected))).await?;
            entry.credential(login.injected.name());
            let logged_in = timeout(proxy.options.connect_timeout, self.try_login(startup, &login)).await;
            let error = match logged_in.unwrap_or(Ok(Err(LoginError::Late)))? {
                Ok(connection) => {
                    login.record_outcome(true, secrets);
                    return Ok(connection);
                }
                Err(error) => error,
            };
            tracing::warn!(%host, port, credential = %login.injected.name(), %error, "cannot log in at a database server");
            if error.is_of_credential() {
                login.record_outcome(false, secrets);
            }
            tried.push(login.injected);
            if !error.is_of_credential() || tried.len() >= LOGINS_MAX {
                return Err(error.into());
            }
            rejection = Some(error);
        }
    }

    async fn try_login(
        &self,
        startup: &Startup,
        login: &Login,
    ) -> Result<Result<ServerConnection, LoginError>, DialError> {
        let mut connection = self.server.dial(&self.proxy, None).await?;
        send(&mut connection.stream, &startup.packet_as(login.user.expose())).await?;
        let in_tls = self.server.tls == UpstreamTlsMode::VerifyFull;
        let logged_in = log_in(&mut connection.stream, (&login.user, &login.password), in_tls).await;
        Ok(logged_in.map(|()| connection))
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
                    let own = self.keys.issue(target).ok_or_else(Failure::no_randomness)?;
                    settings.extend_from_slice(&key(&own.key));
                    (issued, cancel) = (Some(own), Some(target));
                }
                ERROR => {
                    // For example, the database does not exist. The text contains no credential, so the client may get it.
                    let code = error_field(&message.body, b'C').map(str::to_owned);
                    let text = error_field(&message.body, b'M').unwrap_or_default();
                    return Err(Failure::of_server(code, text));
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

async fn cancel_at(proxy: &Proxy, server: &DatabaseServer, session: CancelTarget) {
    let name: &HostOrIp = &server.target.name;
    match timeout(proxy.options.connect_timeout, server.cancel(proxy, session)).await {
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
    tracing::info!(%client, code = %failure.code, reason = failure.reason, message = failure.message, "refused a session");
    let _ = send(stream, &failure.encoded()).await;
    End::Refused
}
