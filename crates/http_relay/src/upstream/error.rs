//! Errors of connections and responses of upstreams.

use std::fmt;
use std::sync::Arc;

use hyper::StatusCode;
use outbound::dial::DialError;
use outbound::guard::Refused;
use outbound::resolve::ResolveError;
use rustls::AlertDescription;

/// Reason why the upstream sent no response.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// The connection failed. The error is shared by all requests that waited for it.
    #[error(transparent)]
    Connection(#[from] Arc<UpstreamConnectError>),
    /// The upstream did not respond within the timeout.
    #[error("the upstream did not answer in time")]
    Late,
    /// The upstream closed the connection before its response was complete, or sent invalid HTTP.
    #[error("the upstream closed the connection early or sent invalid HTTP: {0}")]
    Broken(hyper::Error),
}

/// Reason why no connection to the upstream could be opened.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamConnectError {
    /// The name cannot be resolved.
    #[error("cannot resolve the host name: {0}")]
    Name(#[from] ResolveError),
    /// No address of the upstream accepts a connection.
    #[error("cannot connect: {0}")]
    Dial(DialError),
    /// The address is a listener of this process.
    #[error("the address is this proxy itself")]
    Loop,
    /// The address is on this machine, and this client may not reach such addresses.
    #[error("the address is local to the proxy's machine, and only clients on that machine may reach it")]
    NotAllowed,
    /// The guard blocks every address.
    #[error(transparent)]
    Guarded(Refused),
    /// The rules reject every address.
    #[error("a rule rejects the address")]
    Rejected,
    /// The TLS handshake failed.
    #[error("TLS handshake failed: {0}")]
    Tls(std::io::Error),
    /// The TLS handshake exceeded its timeout.
    #[error("TLS handshake timeout")]
    Late,
    /// The parent proxy did not open a connection to the upstream.
    #[error("cannot connect through the parent proxy {parent}: {why}")]
    Parent {
        /// URL of the parent proxy.
        parent: String,
        /// Reason why the parent proxy cannot be used.
        why: ParentProxyError,
    },
    /// All connection slots are in use.
    #[error("the maximum number of upstream connections is reached")]
    Full,
    /// The upstream closed the new connection before a request was sent.
    #[error("the server closed the connection before a request was sent")]
    ClosedAtOnce,
    /// The upstream does not speak HTTP.
    #[error("the server sent invalid HTTP: {0}")]
    Http(hyper::Error),
    /// The upstream supports only HTTP/2, without WebSockets over HTTP/2 (RFC 8441).
    #[error("the server supports HTTP/2 only, without WebSockets over HTTP/2 (RFC 8441)")]
    NoWebsockets,
}

impl UpstreamConnectError {
    pub(super) fn by(parent: &dyn fmt::Display, why: ParentProxyError) -> Self {
        Self::Parent { parent: parent.to_string(), why }
    }

    /// Returns whether the upstream supports none of the offered ALPN protocols (RFC 7301 section 3.2).
    pub(super) fn is_alpn_mismatch(&self) -> bool {
        let Self::Tls(error) = self else { return false };
        let of_tls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
        matches!(of_tls, Some(rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol)))
    }
}

/// Reason why a parent proxy did not open the tunnel.
#[derive(Debug, thiserror::Error)]
pub enum ParentProxyError {
    /// The parent proxy cannot be reached.
    #[error("{0}")]
    Connection(Box<UpstreamConnectError>),
    /// The parent proxy did not respond within the timeout.
    #[error("timeout")]
    Late,
    /// The parent proxy rejected CONNECT with this status.
    #[error("the parent proxy rejected CONNECT with the status {0}")]
    Refused(StatusCode),
    /// The parent proxy does not speak HTTP.
    #[error("invalid HTTP response: {0}")]
    Http(#[from] hyper::Error),
    /// The target is not a valid authority.
    #[error("the target is not a valid authority of an HTTP CONNECT request")]
    Name,
}
