//! The kinds of listeners, and how long each keeps a connection without a request.

use std::time::Duration;

use super::options::ServerOptions;

/// A connection to the credential store without a request, before it is closed: its clients ask once a minute and pay
/// every new connection with a whole handshake.
const CREDENTIALS_IDLE: Duration = Duration::from_secs(600);

/// The service of a listener.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Listener {
    Tls,
    Public,
    Credentials,
}

/// Between two pings on an idle HTTP/2 connection, at most.
const PING_EVERY: Duration = Duration::from_secs(30);

/// How long a connection without a request is kept.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    /// For a head, from its first byte; for the first one from the end of the handshake.
    pub(super) head: Duration,
    /// Between requests.
    pub(super) idle: Duration,
    /// Between two pings (RFC 9113 section 6.7).
    pub(super) ping: Duration,
}

impl Listener {
    pub(super) fn patience(self, options: &ServerOptions) -> Patience {
        match self {
            Self::Credentials => {
                Patience { head: options.head_timeout, idle: CREDENTIALS_IDLE, ping: CREDENTIALS_IDLE }
            }
            Self::Tls | Self::Public => Patience {
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
