//! Options and listeners of sessions with database servers.

use std::net::SocketAddr;

use tokio::net::TcpListener;
use x509::HostOrIp;

use crate::start_error::StartError;

/// A listener for clients of a database server, and the server that it forwards sessions to.
#[derive(Clone, Debug)]
pub struct DatabaseListenerOptions {
    /// Address of the listener; port 0 takes a free port.
    pub listen: SocketAddr,
    /// Host name or address of the server.
    pub host: HostOrIp,
    /// TCP port of the server.
    pub port: u16,
    /// Whether the proxy uses TLS to the server.
    pub tls: UpstreamTlsMode,
}

/// TLS to a database server.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum UpstreamTlsMode {
    /// TLS with a verified certificate for the host.
    #[default]
    VerifyFull,
    /// No TLS. Anyone on the network path can read the session.
    Disable,
}

/// A listener for clients of a database server before it accepts connections.
pub(crate) struct DatabaseListener {
    pub(crate) listener: TcpListener,
    pub(crate) address: SocketAddr,
    pub(crate) options: DatabaseListenerOptions,
}

pub(crate) fn listen(all: &[DatabaseListenerOptions]) -> Result<Vec<DatabaseListener>, StartError> {
    let open = |options: &DatabaseListenerOptions| {
        let failed = |source| StartError::Bind { address: options.listen, source };
        let listener = inbound::listen(options.listen).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(DatabaseListener { listener, address, options: options.clone() })
    };
    all.iter().map(open).collect()
}
