//! Targets of requests: host, port and protocol.

use std::fmt;
use std::net::SocketAddr;

use super::upstream::UpstreamTls;
use hyper::http::uri::{Authority, Scheme, Uri};
use x509::HostOrIp;

/// A host and a port, as named by a client.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Target {
    /// The host, as a DNS name or an IP address.
    pub name: HostOrIp,
    /// TCP port of the host.
    pub port: u16,
    /// Whether the target is the original destination of a redirected connection.
    pub redirected: bool,
}

/// Destination of requests: a target, reached unencrypted or by TLS, with HTTP/2 if possible.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Origin {
    /// The host and port that the client named.
    pub target: Target,
    /// Server name for TLS; `None` for an unencrypted connection.
    pub server: Option<HostOrIp>,
    /// TLS options for this upstream only; `None` uses the pool's policies.
    pub tls: Option<UpstreamTls>,
    /// Whether HTTP/2 is offered by ALPN. Without TLS, whether HTTP/2 is used without negotiation (RFC 9113 section 3.3).
    pub http2: bool,
    /// Whether clients send requests with absolute URLs to the proxy, rather than through CONNECT or SOCKS5.
    pub absolute_form: bool,
    /// Whether the clients of this origin may reach addresses of this machine. Part of the pool's key, so that a connection for
    /// such a client never serves a client without this permission.
    pub may_be_local: bool,
}

impl Target {
    /// Parses `host:port`. The port is required (RFC 9110 section 9.3.6).
    pub fn from_connect_uri(uri: &Uri) -> Result<Self, String> {
        let authority = uri.authority().ok_or("CONNECT requires a host and a port")?;
        let port = authority
            .port_u16()
            .filter(|port| *port > 0)
            .ok_or("CONNECT requires a port, such as a.example:443")?;
        Self::of(authority, port)
    }

    /// Parses an absolute URI with the scheme `http`.
    pub fn from_absolute_uri(uri: &Uri) -> Result<Self, String> {
        if uri.scheme() != Some(&Scheme::HTTP) {
            return Err(
                "only http:// URLs can be requested in absolute form; use CONNECT for https://".to_owned()
            );
        }
        let authority = uri.authority().ok_or("the request has no host")?;
        Self::of(authority, authority.port_u16().unwrap_or(80))
    }

    fn of(authority: &Authority, port: u16) -> Result<Self, String> {
        if authority.as_str().contains('@') {
            return Err("a user name in the host is not allowed".to_owned());
        }
        let name = HostOrIp::parse(authority.host()).map_err(|error| error.to_string())?;
        Ok(Self { name, port, redirected: false })
    }

    /// Returns the original destination of a redirected connection.
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
    /// Returns whether the target is an unencrypted redirected connection. Nothing verifies its host name, so a client may send any
    /// name.
    pub fn is_unverified(&self) -> bool {
        self.target.redirected && self.server.is_none()
    }

    /// Returns whether the target uses HTTP/2 without negotiation.
    pub(crate) fn is_http2_prior_knowledge(&self) -> bool {
        self.http2 && self.server.is_none()
    }
}
