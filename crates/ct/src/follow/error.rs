//! Errors of a follower's step.

use std::time::Duration;

use super::fetch::FetchError;
use super::position::Alarm;

/// Reason why a step through a log failed. The position in the log is unchanged.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FollowError {
    /// The log, or a proxy or cache before it, served inconsistent data.
    #[error(transparent)]
    Alarm(Box<Alarm>),
    /// The log is temporarily unavailable.
    #[error("{reason}")]
    Unavailable {
        /// Description of the failure.
        reason: String,
        /// Time until the next attempt.
        retry_after: Duration,
    },
}

impl From<FetchError> for FollowError {
    fn from(error: FetchError) -> Self {
        match error {
            // The log has signed a tree that contains this tile, so the log must serve the tile, possibly with a delay.
            FetchError::Missing(path) => Self::Unavailable {
                reason: format!("{path} is missing, but the checkpoint requires it"),
                retry_after: Duration::ZERO,
            },
            FetchError::Unavailable { reason, retry_after } => Self::Unavailable { reason, retry_after },
        }
    }
}

/// Creates the alarm for a tile that does not match the checkpoint in `note`.
pub(super) fn wrong_tile(path: String, reason: String, note: &str) -> FollowError {
    FollowError::Alarm(Box::new(Alarm::WrongTile { path, reason, note: note.to_owned() }))
}
