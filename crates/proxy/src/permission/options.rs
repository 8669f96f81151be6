//! Options of the permission service.

use std::fmt;
use std::time::Duration;

use outbound::http::SetupError;
use zeroize::Zeroizing;

/// For a question, unless said otherwise: a fifth of a handshake's usual time, so that what is left does for a trip to the store
/// and the authority's signature.
pub const TIMEOUT: Duration = Duration::from_secs(2);
/// How long a yes counts, unless said otherwise: so late a name that is taken back is noticed.
pub const YES_FOR: Duration = Duration::from_secs(300);
/// How long a no counts: shorter, as somebody may be waiting for it to become a yes.
pub const NO_FOR: Duration = Duration::from_secs(30);
/// Answers remembered, some 300 bytes each; those that were asked for the longest ago go first.
pub const ANSWERS_MAX: u64 = 65_536;
/// Questions at once: at 10 ms each, 25,000 a second.
pub const QUESTIONS_MAX: usize = 256;

/// The decision while the permission service is unavailable.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum WhenAway {
    /// There is no leaf.
    #[default]
    Refuse,
    /// There is one.
    Allow,
}

/// The bearer token for the permission service. Never logged.
#[derive(Clone)]
pub struct Token(pub(super) Zeroizing<String>);

impl Token {
    /// With this text.
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
    /// Where: https, or http of this machine. What is asked is added to its query.
    pub url: String,
    /// The token sent to the service.
    pub token: Option<Token>,
    /// The only roots (DER) it may stand below; `None`: this system's.
    pub roots: Option<Vec<Vec<u8>>>,
    /// For a question.
    pub timeout: Duration,
    /// What becomes of a name when there is no answer.
    pub when_away: WhenAway,
    /// How long a yes counts.
    pub yes_for: Duration,
    /// How long a no counts.
    pub no_for: Duration,
    /// Answers remembered.
    pub answers_max: u64,
    /// Questions at once; of one client, a quarter of these.
    pub questions_max: usize,
    /// Whether the question says which client asks, and its answer counts for that one alone; else it counts for all.
    pub names_clients: bool,
}

impl Options {
    /// To ask at `url`, as usual.
    #[must_use]
    pub fn new(url: String) -> Self {
        Self {
            url,
            token: None,
            roots: None,
            timeout: TIMEOUT,
            when_away: WhenAway::Refuse,
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
    /// It is no URL, has a user or password, or an address that is not connected to.
    #[error("the permission service: {0}")]
    Url(#[from] outbound::guard::Refused),
    /// Anybody on the way could answer.
    #[error("the permission service {0} must use https, unless it is on this machine")]
    InTheClear(String),
    /// The token cannot be sent in a header. The error does not show the token.
    #[error("the token for the permission service is empty, or has characters other than visible ASCII")]
    Token,
    /// The roots, or the library.
    #[error("the permission service: {0}")]
    Setup(#[from] SetupError),
}
