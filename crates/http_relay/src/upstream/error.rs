//! Errors of connections and responses of upstreams.

use std::fmt;
use std::sync::Arc;

use hyper::StatusCode;
use outbound::dial::DialError;
use outbound::guard::Refused;
use outbound::resolve::ResolveError;
use rustls::AlertDescription;

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// The connection failed. The error is shared by all requests that waited for it.
    #[error(transparent)]
    Connection(#[from] Arc<NoConnection>),
    /// The upstream did not respond within the timeout.
    #[error("the upstream did not answer in its time")]
    Late,
    /// The upstream closed the connection before its response was complete, or sent invalid HTTP.
    #[error("the upstream broke off: {0}")]
    Broken(hyper::Error),
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum NoConnection {
    /// The name cannot be resolved.
    #[error("its name is not resolved: {0}")]
    Name(#[from] ResolveError),
    /// No address can be reached.
    #[error("it is not reached: {0}")]
    Dial(DialError),
    /// The address is a listener of this process.
    #[error("that is this proxy itself")]
    Loop,
    /// The address belongs to this machine, but the client does not.
    #[error("its address is one that only the proxy's own machine reaches, for clients of that machine")]
    NotAllowed,
    /// The guard blocks every address.
    #[error(transparent)]
    Guarded(Refused),
    /// The rules reject every address.
    #[error("the rules reject its address")]
    Rejected,
    /// The TLS handshake failed.
    #[error("its TLS is refused: {0}")]
    Tls(std::io::Error),
    /// The TLS handshake exceeded its timeout.
    #[error("its TLS was not done in its time")]
    Late,
    /// A parent proxy did not connect.
    #[error("the parent proxy {parent}: {why}")]
    Parent {
        /// The parent's URL.
        parent: String,
        /// The reason.
        why: NoParent,
    },
    /// All connection slots are in use.
    #[error("there are as many connections as there may be")]
    Full,
    /// The upstream closed the new connection before a request was sent.
    #[error("it closed the connection at once")]
    ClosedAtOnce,
    /// The upstream does not speak HTTP.
    #[error("it does not speak HTTP: {0}")]
    Http(hyper::Error),
    /// The upstream supports only HTTP/2, and no WebSockets over it.
    #[error("it speaks HTTP/2 alone, and allows no WebSockets by it (RFC 8441)")]
    NoWebsockets,
}

impl NoConnection {
    pub(super) fn by(parent: &dyn fmt::Display, why: NoParent) -> Self {
        Self::Parent { parent: parent.to_string(), why }
    }

    /// Returns whether the upstream supports none of the offered ALPN protocols (RFC 7301 section 3.2).
    pub(super) fn wants_another_protocol(&self) -> bool {
        let Self::Tls(error) = self else { return false };
        let of_tls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
        matches!(of_tls, Some(rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol)))
    }
}

/// Why a parent proxy did not connect.
#[derive(Debug, thiserror::Error)]
pub enum NoParent {
    /// The parent cannot be reached.
    #[error("{0}")]
    Connection(Box<NoConnection>),
    /// The parent did not respond within the timeout.
    #[error("it did not connect in its time")]
    Late,
    /// The parent rejected CONNECT.
    #[error("it answered {0}")]
    Refused(StatusCode),
    /// The parent does not speak HTTP.
    #[error("it does not speak HTTP: {0}")]
    Http(#[from] hyper::Error),
    /// The target is not a valid authority.
    #[error("the name cannot be sent as SNI")]
    Name,
}
