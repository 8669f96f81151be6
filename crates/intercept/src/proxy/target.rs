//! Whom a request is for.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper::http::uri::{Authority, Scheme, Uri};
use tokio_util::task::TaskTracker;

use super::client::Client;
use super::{Action, Rules};
use crate::mint::LeafName;

/// A host and a port, as a client named them.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Target {
    pub(super) name: LeafName,
    pub(super) port: u16,
    /// Whether the client named nobody: it is where it connected to, before it was redirected here.
    pub(super) redirected: bool,
}

/// Where requests go: a target, spoken to in the clear or under a server's name, by HTTP/2 where it can be.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Origin {
    pub(super) target: Target,
    /// The server's name in TLS; none in the clear.
    pub(super) server: Option<LeafName>,
    /// Whether HTTP/2 is offered to it.
    pub(super) http2: bool,
    /// Whether it is asked for by requests with a whole URL rather than behind CONNECT or SOCKS5.
    pub(super) in_full: bool,
    /// Whether those who ask may reach what is of this machine alone. Part of what tells connections apart, so that one that was
    /// made for such a client never serves another.
    pub(super) may_be_here: bool,
}

impl Target {
    /// Of `host:port`; a port is needed (RFC 9110 section 9.3.6).
    pub(super) fn of_connect(uri: &Uri) -> Result<Self, String> {
        let authority = uri.authority().ok_or("CONNECT names a host and a port")?;
        let port = authority
            .port_u16()
            .filter(|port| *port > 0)
            .ok_or("CONNECT names a port, like a.example:443")?;
        Self::of(authority, port)
    }

    /// Of an absolute URI with the scheme http.
    pub(super) fn of_absolute(uri: &Uri) -> Result<Self, String> {
        if uri.scheme() != Some(&Scheme::HTTP) {
            return Err("only http:// is asked for in full; https:// begins with CONNECT".to_owned());
        }
        let authority = uri.authority().ok_or("the request names no host")?;
        Self::of(authority, authority.port_u16().unwrap_or(80))
    }

    fn of(authority: &Authority, port: u16) -> Result<Self, String> {
        if authority.as_str().contains('@') {
            return Err("a host is named without a user".to_owned());
        }
        let name = LeafName::parse(authority.host()).map_err(|error| error.to_string())?;
        Ok(Self { name, port, redirected: false })
    }

    /// Where a client connected to that was redirected here.
    pub(super) fn redirected(destination: SocketAddr) -> Self {
        Self { name: LeafName::Ip(destination.ip()), port: destination.port(), redirected: true }
    }

    /// What rules say of it before its client has said anything. An address that nobody named stands for itself alone: what becomes
    /// of all others in no list is decided by the name that is still to come.
    pub(super) fn action(&self, rules: &Rules) -> Option<Action> {
        if self.redirected { rules.listed(&self.name) } else { Some(rules.decide(&self.name)) }
    }
}

impl Origin {
    /// Whether it is an address that nobody named, and nobody there shows whose it is: any name may be asked for there.
    pub(super) fn is_unproven(&self) -> bool {
        self.target.redirected && self.server.is_none()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            LeafName::Ip(std::net::IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
            name => write!(f, "{name}:{}", self.port),
        }
    }
}

/// What all requests of a connection share.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) origin: Arc<Origin>,
    /// Whose they are.
    pub(super) client: Client,
    /// Whether the client was shown all names of the server's certificate, and may ask for any of them.
    pub(super) is_mirrored: bool,
    /// What goes on after the connection's own part has ended, which has to be waited for: changes of protocol.
    pub(super) tunnels: TaskTracker,
}
