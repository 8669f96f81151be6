//! Why a route or an upstream cannot be, and the limits of both.

/// Servers of one upstream.
pub const SERVERS_MAX: usize = 256;
/// Names of all routes.
pub(super) const NAMES_MAX: usize = 100_000;
/// Protocols of a route, and bytes of each (RFC 7301 section 3.1).
pub(super) const ALPN_MAX: usize = 8;
pub(super) const ALPN_OCTETS_MAX: usize = 255;

/// What clients of a route of HTTP are offered, and what such upstreams may speak.
pub(super) const HTTP_2: &str = "h2";
pub(super) const HTTP_1: &str = "http/1.1";

/// Why there is no such route.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadRoute {
    /// Not HOST:PORT.
    #[error("{0:?} is no upstream: write HOST:PORT, or the name of an entry of edge.upstreams")]
    Upstream(String),
    /// Neither a host name nor one with a star before it.
    #[error("{0:?} is no host name; *.HOST stands for all right below HOST")]
    Name(String),
    /// A name twice.
    #[error("the name {0:?} has two routes")]
    Twice(String),
    /// A protocol of an upstream that is asked by requests.
    #[error("mode = \"http\" asks an upstream by \"{HTTP_1}\" or \"{HTTP_2}\": {0:?} is no alpn for it")]
    Http(Vec<String>),
    /// Its connections are of many clients.
    #[error("mode = \"http\" does not combine with proxy_protocol: header fields carry the client's address")]
    ProxyProtocol,
    /// None, or more than are held.
    #[error("the upstream {0:?} has no servers, or more than {SERVERS_MAX}")]
    Servers(String),
    /// A server of an upstream twice.
    #[error("the server {0:?} is named twice")]
    ServerTwice(String),
    /// Neither a name nor an address.
    #[error("{0:?} is no host name or address")]
    Host(String),
    /// More than are held.
    #[error("there are more than {NAMES_MAX} names")]
    TooMany,
    /// No protocol's name, or too many.
    #[error("alpn is at most {ALPN_MAX} names of 1 to {ALPN_OCTETS_MAX} bytes")]
    Alpn,
}
