//! Tokens known not to be revoked, cached for a few seconds.

use flight::Cache;
use uuid::Uuid;

/// Tokens remembered as not ended.
const REMEMBERED_MAX: u64 = 8_192;

/// Why a token is not accepted.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TokenError {
    /// The token was valid and expired.
    #[error("the token has expired")]
    Expired,
    /// It is not ours, was changed, or is of another kind.
    #[error("the token is not valid")]
    Invalid,
    /// The token was revoked.
    #[error("the token was ended")]
    Ended,
    /// The database did not say whether it was ended.
    #[error("the database does not answer")]
    Unavailable,
}

/// Tokens known not to be revoked, by identity.
pub(crate) type LiveTokens = Cache<Uuid, bool, TokenError>;

pub(crate) fn live_tokens() -> LiveTokens {
    Cache::with_entries(REMEMBERED_MAX)
}
