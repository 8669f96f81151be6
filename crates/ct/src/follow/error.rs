//! Why a step read nothing.

use std::time::Duration;

use super::fetch::FetchError;
use super::position::Alarm;

/// Why a step did nothing. The place holds.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FollowError {
    /// The log, or what stands before it, cannot be believed.
    #[error(transparent)]
    Alarm(Box<Alarm>),
    /// Temporarily unavailable.
    #[error("{reason}")]
    Unavailable {
        /// What happened.
        reason: String,
        /// When to come back.
        retry_after: Duration,
    },
}

impl From<FetchError> for FollowError {
    fn from(error: FetchError) -> Self {
        match error {
            // It signed a tree that has it, so it must serve it: perhaps it is only late.
            FetchError::Missing(path) => Self::Unavailable {
                reason: format!("{path} is missing, though the checkpoint needs it"),
                retry_after: Duration::ZERO,
            },
            FetchError::Unavailable { reason, retry_after } => Self::Unavailable { reason, retry_after },
        }
    }
}

/// The alarm about a tile that does not belong to the checkpoint of `note`.
pub(super) fn wrong(path: String, reason: String, note: &str) -> FollowError {
    FollowError::Alarm(Box::new(Alarm::WrongTile { path, reason, note: note.to_owned() }))
}
