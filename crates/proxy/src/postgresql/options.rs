//! Options and listeners of PostgreSQL sessions.

use std::net::SocketAddr;

use tokio::net::TcpListener;
use x509::HostOrIp;

use crate::start_error::StartError;

/// A listener for PostgreSQL clients, and the server that it forwards sessions to.
#[derive(Clone, Debug)]
pub struct PostgresqlOptions {
    /// Address of the listener; port 0 takes a free port.
    pub listen: SocketAddr,
    /// Host name or address of the PostgreSQL server.
    pub host: HostOrIp,
    /// TCP port of the PostgreSQL server.
    pub port: u16,
    /// Whether the proxy uses TLS to the server.
    pub tls: UpstreamTlsMode,
}

/// TLS to a PostgreSQL server.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum UpstreamTlsMode {
    /// TLS with a verified certificate for the host.
    #[default]
    VerifyFull,
    /// No TLS. Anyone on the network path can read the session.
    Disable,
}

/// A listener for PostgreSQL clients before it accepts connections.
pub(crate) struct PostgresqlListener {
    pub(crate) listener: TcpListener,
    pub(crate) address: SocketAddr,
    pub(crate) options: PostgresqlOptions,
}

pub(crate) fn listen(all: &[PostgresqlOptions]) -> Result<Vec<PostgresqlListener>, StartError> {
    let open = |options: &PostgresqlOptions| {
        let failed = |source| StartError::Bind { address: options.listen, source };
        let listener = inbound::listen(options.listen).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(PostgresqlListener { listener, address, options: options.clone() })
    };
    all.iter().map(open).collect()
}
