//! Targets of requests.

use std::fmt;
use std::net::SocketAddr;

use super::upstream::UpstreamTls;
use hyper::http::uri::{Authority, Scheme, Uri};
use x509::HostOrIp;

/// A host and a port, as a client named them.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Target {
    /// The host.
    pub name: HostOrIp,
    /// The port.
    pub port: u16,
    /// Whether the target is the original destination of a redirected connection.
    pub redirected: bool,
}

/// Where requests go: a target, spoken to in the clear or under a server's name, by HTTP/2 where it can be.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Origin {
    /// The host and port that the client named.
    pub target: Target,
    /// The server's name in TLS; none in the clear.
    pub server: Option<HostOrIp>,
    /// How TLS is spoken to it, where that is said for this upstream alone rather than by the pool's policies.
    pub tls: Option<UpstreamTls>,
    /// Whether HTTP/2 is offered to it; in the clear, whether it is spoken without asking (RFC 9113 section 3.3).
    pub http2: bool,
    /// Whether it is asked for by requests with a whole URL rather than behind CONNECT or SOCKS5.
    pub in_full: bool,
    /// Whether those who ask may reach what is of this machine alone. Part of what tells connections apart, so that one that was
    /// made for such a client never serves another.
    pub may_be_here: bool,
}

impl Target {
    /// Of `host:port`; a port is needed (RFC 9110 section 9.3.6).
    pub fn of_connect(uri: &Uri) -> Result<Self, String> {
        let authority = uri.authority().ok_or("CONNECT names a host and a port")?;
        let port = authority
            .port_u16()
            .filter(|port| *port > 0)
            .ok_or("CONNECT names a port, like a.example:443")?;
        Self::of(authority, port)
    }

    /// Of an absolute URI with the scheme http.
    pub fn of_absolute(uri: &Uri) -> Result<Self, String> {
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
        let name = HostOrIp::parse(authority.host()).map_err(|error| error.to_string())?;
        Ok(Self { name, port, redirected: false })
    }

    /// Where a client connected to that was redirected here.
    pub fn redirected(destination: SocketAddr) -> Self {
        Self { name: HostOrIp::Ip(destination.ip()), port: destination.port(), redirected: true }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            HostOrIp::Ip(std::net::IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
            name => write!(f, "{name}:{}", self.port),
        }
    }
}

impl Origin {
    /// Returns whether this is the address of a redirected connection, spoken to in the clear: nothing there proves a host's name, so that a
    /// client may name any host.
    pub fn is_unproven(&self) -> bool {
        self.target.redirected && self.server.is_none()
    }

    /// Whether the target speaks HTTP/2 without negotiation.
    pub(crate) fn is_http2_alone(&self) -> bool {
        self.http2 && self.server.is_none()
    }
}
