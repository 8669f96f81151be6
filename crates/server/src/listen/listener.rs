//! The kinds of listeners, and how long each keeps a connection without a request.

use std::time::Duration;

use super::options::ServerOptions;

/// A connection to the credential store without a request, before it is closed: its clients ask once a minute and pay
/// every new connection with a whole handshake.
const CREDENTIALS_IDLE: Duration = Duration::from_secs(600);

/// What a listener serves.
#[derive(Clone, Copy)]
pub(super) enum Listener {
    Tls,
    Public,
    Credentials,
}

/// How long a connection without a request is kept.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    pub(super) head: Duration,
    pub(super) idle: Duration,
}

impl Listener {
    pub(super) fn patience(self, options: &ServerOptions) -> Patience {
        match self {
            Self::Credentials => Patience { head: CREDENTIALS_IDLE, idle: CREDENTIALS_IDLE },
            Self::Tls | Self::Public => Patience { head: options.head_timeout, idle: options.idle_timeout },
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
