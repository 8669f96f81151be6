//! Connections to the server of a listener.

use std::net::IpAddr;

use http_relay::access_log::ServerKey;
use http_relay::target::{Origin, Target};
use http_relay::upstream::Slot;
use tokio_util::either::Either;

use super::dial_error::DialError;
use super::options::{DatabaseListenerOptions, UpstreamTlsMode};
use super::protocol::{ServerLogin, ServerStream};
use crate::proxy::Proxy;

/// The database server that a listener forwards sessions to.
#[derive(Clone, Debug)]
pub(crate) struct DatabaseServer {
    pub(crate) target: Target,
    pub(crate) tls: UpstreamTlsMode,
}

/// An open connection to a server.
pub(crate) struct ServerConnection {
    pub(crate) stream: ServerStream,
    /// Address of the server, if it was dialled directly.
    pub(crate) address: Option<IpAddr>,
    /// Key of the server's verified certificate.
    pub(crate) key: Option<ServerKey>,
    pub(crate) slot: Slot,
}

impl DatabaseServer {
    pub(crate) fn new(options: DatabaseListenerOptions) -> Self {
        let DatabaseListenerOptions { host, port, tls, .. } = options;
        Self { target: Target { name: host, port, redirected: false }, tls }
    }

    /// Returns whether TLS verifies the server as the configured host, or the configuration disables TLS.
    pub(crate) fn is_trusted(&self, proxy: &Proxy) -> bool {
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

    /// Opens a connection for the protocol `P`; `only` restricts it to one address. The caller sets the timeout.
    pub(crate) async fn dial<P: ServerLogin>(
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
        P::request_tls(&mut link).await?;
        let alpn = P::ALPN.iter().map(|name| name.to_vec()).collect();
        let (stream, key) = proxy.upstreams.secure(link, name, alpn).await?;
        Ok(ServerConnection { stream: Either::Right(stream), address, key, slot })
    }
}
