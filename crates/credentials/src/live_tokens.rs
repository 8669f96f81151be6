//! A cache of tokens that are not revoked. An entry is valid for a few seconds.

use flight::Cache;
use uuid::Uuid;

/// Maximum tokens in the cache.
const REMEMBERED_MAX: u64 = 8_192;

/// Reason why an access token or refresh token is rejected.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TokenError {
    /// The token has expired.
    #[error("the token has expired")]
    Expired,
    /// The token has an invalid signature, or is of another type.
    #[error("the token is not valid")]
    Invalid,
    /// The token was revoked.
    #[error("the token was revoked")]
    Ended,
    /// The database is unavailable, so that the revocation check failed.
    #[error("the database does not answer")]
    Unavailable,
}

/// Results of revocation checks, by the id of the token.
pub(crate) type LiveTokens = Cache<Uuid, bool, TokenError>;

pub(crate) fn live_tokens() -> LiveTokens {
    Cache::with_entries_max(REMEMBERED_MAX)
}
