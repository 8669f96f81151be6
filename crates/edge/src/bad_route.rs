//! Errors in routes and upstreams, and their limits.

/// Maximum servers of one upstream.
pub const SERVERS_MAX: usize = 256;
/// Maximum names of all routes together.
pub(super) const NAMES_MAX: usize = 100_000;
/// Maximum ALPN protocols of a route. Each name has at most 255 bytes (RFC 7301 section 3.1).
pub(super) const ALPN_MAX: usize = 8;
/// Maximum bytes of an ALPN protocol name.
pub(super) const ALPN_BYTES_MAX: usize = 255;

/// ALPN name of HTTP/2.
pub(super) const HTTP_2: &str = "h2";
pub(super) const HTTP_1: &str = "http/1.1";

/// Errors in a route or an upstream.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadRoute {
    /// The text is not `HOST:PORT`.
    #[error("{0:?} is not an upstream: write HOST:PORT, or the name of an entry of edge.upstreams")]
    Upstream(String),
    /// The text is neither a host name nor `*.` and a host name.
    #[error("{0:?} is not a host name; *.HOST matches all names directly below HOST")]
    Name(String),
    /// Two routes have the same name.
    #[error("the name {0:?} is in two routes")]
    Twice(String),
    /// The route forwards HTTP requests, but a protocol in its ALPN list is not an HTTP version.
    #[error("mode = \"http\" supports only the alpn \"{HTTP_1}\" or \"{HTTP_2}\" to upstreams, not {0:?}")]
    Http(Vec<String>),
    /// The route combines `mode = "http"` with the PROXY protocol. Its upstream connections are shared by clients, so one header
    /// cannot name the client.
    #[error(
        "mode = \"http\" cannot be combined with proxy_protocol: header fields carry the client's address"
    )]
    ProxyProtocol,
    /// The upstream has no servers, or more than 256.
    #[error("the upstream {0:?} has no servers, or more than {SERVERS_MAX}")]
    Servers(String),
    /// The upstream lists a server twice.
    #[error("the server {0:?} is listed twice")]
    ServerTwice(String),
    /// The text is neither a host name nor an IP address.
    #[error("{0:?} is not a host name or address")]
    Host(String),
    /// The routes have more than 100,000 names.
    #[error("the routes have more than {NAMES_MAX} host names")]
    TooMany,
    /// An ALPN name is empty or too long, or the list has too many names.
    #[error("alpn may have at most {ALPN_MAX} names of 1 to {ALPN_BYTES_MAX} bytes each")]
    Alpn,
}
