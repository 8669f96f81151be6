//! The listeners, and their idle timeouts.

use std::time::Duration;

use super::options::ServerOptions;

/// Idle timeout of connections to the credential store. Its clients send a request once a minute, and every new connection costs a
/// TLS handshake.
const CREDENTIALS_IDLE: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Listener {
    Tls,
    Public,
    Credentials,
}

/// Maximum interval of pings on an idle HTTP/2 connection.
const PING_EVERY: Duration = Duration::from_secs(30);

/// Timeouts of a connection without a request.
#[derive(Clone, Copy)]
pub(super) struct ConnectionTimeouts {
    /// Timeout of a request head, from its first byte. For the first request of a connection, from the end of the handshake.
    pub(super) head: Duration,
    /// Idle timeout between requests.
    pub(super) idle: Duration,
    /// Interval of pings (RFC 9113 section 6.7).
    pub(super) ping: Duration,
}

impl Listener {
    pub(super) fn timeouts(self, options: &ServerOptions) -> ConnectionTimeouts {
        match self {
            Self::Credentials => ConnectionTimeouts {
                head: options.head_timeout,
                idle: CREDENTIALS_IDLE,
                ping: CREDENTIALS_IDLE,
            },
            Self::Tls | Self::Public => ConnectionTimeouts {
                head: options.head_timeout,
                idle: options.idle_timeout,
                ping: PING_EVERY.min(options.idle_timeout),
            },
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tls => "tls",
            Self::Public => "public",
            Self::Credentials => "credentials",
        }
    }
}
