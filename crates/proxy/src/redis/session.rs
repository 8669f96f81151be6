//! A Redis client's connection, from its first command to its end.

use std::io;
use std::sync::Arc;

use http_relay::client::Client;
use inbound::Silence;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::command::BadCommand;
use super::databases::{DatabaseGate, FIRST_DATABASE, redis};
use super::filter::CommandFilter;
use super::login::RedisLogin;
use super::opening::{Opening, SentToken, TokenDigest, opening};
use super::reply;
use super::stream::CommandStream;
use crate::metrics::End;
use crate::proxy::Proxy;
use crate::sessions::{
    self, AdmittedSession, DatabaseListenerOptions, DatabaseServer, Failure, ServerConnection, ServerLogin,
    SessionServer,
};

/// First byte of a TLS handshake (RFC 8446 section 5.1). A command begins with `*`.
const TLS_HANDSHAKE: u8 = 0x16;

/// Server of the Redis sessions of one listener.
pub(crate) struct RedisServer {
    proxy: Arc<Proxy>,
    server: DatabaseServer,
}

/// A client that may open a session.
struct Greeted {
    client: Client,
    /// The token with which the client authenticated; `None` if it needed none.
    token: Option<TokenDigest>,
    greeting: Greeting,
}

/// The answer to the first command of a client.
enum Greeting {
    /// The command needs no authentication, and waits for the decision about it.
    None,
    /// The proxy answers AUTH with `+OK`.
    Ok,
    /// The server answers this HELLO.
    Hello(Vec<u8>),
}

impl SessionServer for RedisServer {
    const TASK: &'static str = "proxy-redis";

    fn proxy(&self) -> &Arc<Proxy> {
        &self.proxy
    }

    async fn connection(&self, stream: TcpStream, client: Client, silence: Silence) -> End {
        let proxy = &self.proxy;
        let offers_tls = proxy.access.tls_acceptor().is_some();
        match timeout(proxy.options.head_timeout, first_byte(&stream)).await {
            Ok(Ok(Some(TLS_HANDSHAKE))) if offers_tls => {
                let serve = |stream, client| self.serve(stream, client, true, silence);
                sessions::in_tls(proxy, stream, client, RedisLogin::ALPN, serve).await
            }
            Ok(Ok(Some(_))) => Box::pin(self.serve(stream, client, false, silence)).await,
            Ok(Ok(None) | Err(_)) | Err(_) => End::NoRequest,
        }
    }
}

impl RedisServer {
    pub(crate) fn new(proxy: Arc<Proxy>, options: DatabaseListenerOptions) -> Self {
        Self { proxy, server: DatabaseServer::new(options) }
    }

    async fn serve<S>(&self, stream: S, client: Client, in_tls: bool, silence: Silence) -> End
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let mut commands = CommandStream::new(stream);
        let greeted = self.authenticate(&mut commands, &client, in_tls);
        let greeted = timeout(self.proxy.options.head_timeout, greeted).await;
        let greeted = match greeted.unwrap_or_else(|_| Err(Failure::late())) {
            Ok(Some(greeted)) => greeted,
            Ok(None) => return End::NoRequest,
            Err(failure) => return refuse(&mut commands, &client, &failure).await,
        };
        silence.end();
        let client = greeted.client.clone();
        match self.session(&mut commands, greeted).await {
            Ok(()) => End::Closed,
            Err(failure) => refuse(&mut commands, &client, &failure).await,
        }
    }

    /// Waits until the client authenticates, or sends its first command if it needs no token. Returns `None` if the client leaves.
    async fn authenticate<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        commands: &mut CommandStream<S>,
        client: &Client,
        in_tls: bool,
    ) -> Result<Option<Greeted>, Failure> {
        while commands.next().await?? {
            if !self.proxy.asks_for_token(client) {
                let client = client.clone();
                return Ok(Some(Greeted { client, token: None, greeting: Greeting::None }));
            }
            let opening = opening(&commands.head());
            commands.discard();
            let (sent, greeting) = match opening {
                Opening::Authenticate(sent) => (sent, Greeting::Ok),
                Opening::Greet(sent, hello) => (sent, Greeting::Hello(hello)),
                Opening::Answer(answer) => {
                    commands.send(&answer).await?;
                    continue;
                }
                Opening::Quit => {
                    commands.end(reply::OK).await;
                    return Ok(None);
                }
            };
            if !sessions::may_send_token(client, in_tls) {
                return Err(Failure::needs_tls(
                    "Connect with TLS: redis-cli --tls, or a URL with rediss://.",
                ));
            }
            let token = Some(sent.digest());
            let SentToken { name, token: value } = sent;
            let client = self.proxy.client_with_token(client, &name, &value).await?;
            return Ok(Some(Greeted { client, token, greeting }));
        }
        Ok(None)
    }

    /// Serves a session of an authenticated client until its end. Returns the error for the client if the session fails before its
    /// first command.
    async fn session<S: AsyncRead + AsyncWrite + Send + Unpin>(
        &self,
        commands: &mut CommandStream<S>,
        greeted: Greeted,
    ) -> Result<(), Failure> {
        let (proxy, target) = (&*self.proxy, &self.server.target);
        let Greeted { client, token, greeting } = &greeted;
        let served = proxy.served(client);
        let mut session = AdmittedSession::admit(proxy, client, target, redis(FIRST_DATABASE)).await?;
        let logged_in = tokio::select! {
            logged_in = sessions::log_in(proxy, &self.server, &mut session, &RedisLogin) => logged_in,
            () = proxy.stopped(&served) => Err(Failure::stopped()),
        };
        let (connection, injected) = session.established(logged_in)?;
        let ServerConnection { stream: server, slot: _slot, .. } = connection;
        let hello = match greeting {
            Greeting::None => &[][..],
            Greeting::Hello(hello) => hello,
            Greeting::Ok => {
                commands.send(reply::OK).await?;
                &[]
            }
        };
        let gate = DatabaseGate { proxy, client, target, grantee: session.grantee.clone(), injected };
        let (filter, added) = CommandFilter::new(commands, &gate, *token, hello.to_vec());
        session.relay(proxy, filter, server, gate.wait_until_not_admitted(added)).await;
        Ok(())
    }
}

impl From<BadCommand> for Failure {
    fn from(error: BadCommand) -> Self {
        Self::protocol(error, "Use a Redis client, and TLS only if the proxy has a certificate.")
    }
}

/// Returns the first byte of a client without reading it; `None` if the client sends nothing.
async fn first_byte(stream: &TcpStream) -> io::Result<Option<u8>> {
    let mut first = [0];
    let count = stream.peek(&mut first).await?;
    Ok((count > 0).then_some(first[0]))
}

/// Sends an error to the client, and ends the connection.
async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(
    commands: &mut CommandStream<S>,
    client: &Client,
    failure: &Failure,
) -> End {
    tracing::info!(%client, code = reply::code_of(failure), reason = failure.reason, message = failure.message, "refused a session");
    commands.end(&reply::failure(failure)).await;
    End::Refused
}
