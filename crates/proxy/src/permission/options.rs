//! Options of the permission service.

use std::fmt;
use std::time::Duration;

use outbound::http::SetupError;
use zeroize::Zeroizing;

/// Default timeout of a request: a fifth of the usual handshake timeout, so that time remains for a lookup in the store and the
/// CA's signature.
pub const TIMEOUT: Duration = Duration::from_secs(2);
/// Default cache time of a permission. The proxy notices a revoked permission after this time at the latest.
pub const YES_FOR: Duration = Duration::from_secs(300);
/// Default cache time of a denial: shorter, because a user may be waiting for the permission.
pub const NO_FOR: Duration = Duration::from_secs(30);
/// Default maximum of cached decisions, about 300 bytes each; the least recently used are evicted first.
pub const ANSWERS_MAX: u64 = 65_536;
/// Default maximum of concurrent requests; enough for 25,000 requests per second that take 10 ms each.
pub const QUESTIONS_MAX: usize = 256;

/// The decision while the permission service is unavailable.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OutagePolicy {
    /// Deny the leaf.
    #[default]
    Refuse,
    /// Permit the leaf.
    Allow,
}

/// The bearer token for the permission service. Never logged.
#[derive(Clone)]
pub struct Token(pub(super) Zeroizing<String>);

impl Token {
    /// Wraps the text of a bearer token.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Options of the permission service.
#[derive(Clone, Debug)]
pub struct Options {
    /// URL of the service: https, or http on this machine. The request's parameters are added to the query.
    pub url: String,
    /// The token sent to the service.
    pub token: Option<Token>,
    /// Trust anchors (DER) of the service's certificate; `None` uses the system's trust anchors.
    pub roots: Option<Vec<Vec<u8>>>,
    /// Timeout of a request. Default: [`TIMEOUT`].
    pub timeout: Duration,
    /// Decision if the service does not respond.
    pub when_away: OutagePolicy,
    /// Time for which a permission is cached.
    pub yes_for: Duration,
    /// Time for which a denial is cached.
    pub no_for: Duration,
    /// Maximum cached decisions. Default: [`ANSWERS_MAX`].
    pub answers_max: u64,
    /// Maximum concurrent requests to the permission service. One client may use a quarter of them.
    pub questions_max: usize,
    /// Whether requests name the client, so that a decision is valid for that client only; otherwise it is valid for all.
    pub names_clients: bool,
}

impl Options {
    /// Creates options for the service at `url`, with defaults.
    #[must_use]
    pub fn new(url: String) -> Self {
        Self {
            url,
            token: None,
            roots: None,
            timeout: TIMEOUT,
            when_away: OutagePolicy::Refuse,
            yes_for: YES_FOR,
            no_for: NO_FOR,
            answers_max: ANSWERS_MAX,
            questions_max: QUESTIONS_MAX,
            names_clients: true,
        }
    }
}

/// An invalid configuration of the permission service.
#[derive(Debug, thiserror::Error)]
pub enum BadPermission {
    /// The URL is invalid, contains a user or password, or has a forbidden address.
    #[error("invalid URL of the permission service: {0}")]
    Url(#[from] outbound::guard::Refused),
    /// The URL is unencrypted and not on this machine, so responses could be forged.
    #[error("the permission service {0} must use https, unless it is on this machine")]
    InTheClear(String),
    /// The token cannot be sent in a header. The error does not show the token.
    #[error("the token for the permission service is empty, or has characters other than visible ASCII")]
    Token,
    /// The roots or the TLS library caused an error.
    #[error("cannot set up the client of the permission service: {0}")]
    Setup(#[from] SetupError),
}
