//! Connections to the server of a listener.

use std::io;
use std::net::IpAddr;

use http_relay::access_log::ServerKey;
use http_relay::target::{Origin, Target};
use http_relay::upstream::{Link, Slot, UpstreamConnectError};
use tokio::io::AsyncReadExt;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use super::cancel::CancelTarget;
use super::message::send;
use super::options::UpstreamTlsMode;
use super::packet::{cancel_request, ssl_request};
use crate::proxy::Proxy;

/// Name of the protocol in TLS (ALPN).
pub(crate) const ALPN: &[u8] = b"postgresql";
/// Answer of a server that accepts TLS.
const ACCEPTS_TLS: u8 = b'S';

/// A byte stream to a server.
pub(super) type ServerStream = Either<Link, TlsStream<Link>>;

/// The PostgreSQL server that a listener forwards sessions to.
#[derive(Clone, Debug)]
pub(super) struct DatabaseServer {
    pub(super) target: Target,
    pub(super) tls: UpstreamTlsMode,
}

/// An open connection to a server.
pub(super) struct ServerConnection {
    pub(super) stream: ServerStream,
    /// Address of the server, if it was dialled directly.
    pub(super) address: Option<IpAddr>,
    /// Key of the server's verified certificate.
    pub(super) key: Option<ServerKey>,
    pub(super) slot: Slot,
}

/// Reason why the proxy cannot connect to the PostgreSQL server.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    #[error(transparent)]
    Connect(#[from] UpstreamConnectError),
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    #[error("the database server does not accept TLS, which the proxy requires")]
    NoTls,
}

impl DatabaseServer {
    /// Returns whether TLS verifies the server as the configured host, or the configuration disables TLS.
    pub(super) fn is_trusted(&self, proxy: &Proxy) -> bool {
        let origin = Origin {
            target: self.target.clone(),
            server: Some(self.target.name.clone()),
            tls: None,
            http2: false,
            absolute_form: false,
            may_be_local: true,
        };
        self.tls == UpstreamTlsMode::Disable || proxy.upstreams.verifies(&origin)
    }

    /// Opens a connection; `only` restricts it to one address. The caller sets the timeout.
    pub(super) async fn dial(
        &self,
        proxy: &Proxy,
        only: Option<IpAddr>,
    ) -> Result<ServerConnection, DialError> {
        let (target, name) = (&self.target, &self.target.name);
        let is_meant = |address: IpAddr| only.is_none_or(|only| address.to_canonical() == only);
        // The operator configured the server, not the client, so the server may be on this machine.
        let (mut link, slot) = proxy.upstreams.link(target, name, true, &is_meant).await?;
        let address = link.peer();
        if self.tls == UpstreamTlsMode::Disable {
            return Ok(ServerConnection { stream: Either::Left(link), address, key: None, slot });
        }
        send(&mut link, &ssl_request()).await?;
        if link.read_u8().await? != ACCEPTS_TLS {
            return Err(DialError::NoTls);
        }
        let (stream, key) = proxy.upstreams.secure(link, name, vec![ALPN.to_vec()]).await?;
        Ok(ServerConnection { stream: Either::Right(stream), address, key, slot })
    }

    /// Cancels the query of a session. Returns when the server has closed the connection. The caller sets the timeout.
    pub(super) async fn cancel(&self, proxy: &Proxy, session: CancelTarget) -> Result<(), DialError> {
        let mut connection = self.dial(proxy, session.address).await?;
        send(&mut connection.stream, &cancel_request(&session.key)).await?;
        // The server sends nothing, and may close the connection without a close_notify.
        let _ = connection.stream.read_u8().await;
        Ok(())
    }
}
