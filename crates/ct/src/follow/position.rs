//! Position of a follower in a log, and the alarms about an inconsistent log.

use serde::{Deserialize, Serialize};

use crate::merkle::Hash;
use crate::note::Checkpoint;

/// Position of a follower in a log: a few hundred bytes, to be stored together with the matches up to this position.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LogPosition {
    /// Tree size of the last checkpoint that was verified to be consistent with all earlier ones.
    pub size: u64,
    /// Root hash of this checkpoint.
    #[serde(with = "hexadecimal")]
    pub root: Hash,
    /// Time at which the log signed the checkpoint, milliseconds since 1970-01-01 UTC.
    pub timestamp_ms: u64,
    /// The signed note of the checkpoint: evidence if the log later signs an inconsistent tree.
    pub note: String,
    /// Index of the first unread entry. All earlier entries were matched and returned.
    pub next: u64,
    /// Time, by the local clock, when the first unread entry of a partial tile was seen; ms since 1970-01-01 UTC. `None` if no such
    /// entry waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_since_ms: Option<i64>,
}

impl LogPosition {
    /// Returns the number of unread entries in the log.
    #[must_use]
    pub fn behind(&self) -> u64 {
        self.size.saturating_sub(self.next)
    }

    /// Returns the same position with a newer checkpoint.
    pub(super) fn at(&self, checkpoint: &Checkpoint, note: &str) -> Self {
        Self {
            size: checkpoint.size,
            root: checkpoint.root,
            timestamp_ms: checkpoint.timestamp_ms,
            note: note.to_owned(),
            ..self.clone()
        }
    }
}

/// Alarm about an inconsistent log, or about data that an intermediary altered. The position does not advance. Every further step
/// raises the alarm again until the data is consistent or an operator drops the position.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case", tag = "alarm")]
pub enum Alarm {
    /// The log signed two inconsistent trees. The two notes are proof for third parties.
    #[error("the log has forked: it signed two trees that are not consistent with each other")]
    Forked {
        /// The note verified earlier.
        old: String,
        /// The note that is inconsistent with `old`.
        new: String,
    },
    /// A later checkpoint has fewer entries.
    #[error("the log has rolled back from {from} entries to {to}")]
    RolledBack {
        /// The earlier note, with more entries.
        old: String,
        /// The later note, with fewer entries.
        new: String,
        /// Number of entries in the earlier note.
        from: u64,
        /// Number of entries in the later note.
        to: u64,
    },
    /// A tile did not match the checkpoint twice in a row: the log or a cache before it is broken.
    #[error("{path} does not match the checkpoint: {reason}")]
    WrongTile {
        /// Path of the tile below the monitoring prefix.
        path: String,
        /// Description of the mismatch.
        reason: String,
        /// The checkpoint that the tile was checked against.
        note: String,
    },
    /// The checkpoint is not valid for this log.
    #[error("invalid checkpoint: {reason}")]
    BadCheckpoint {
        /// Description of the error.
        reason: String,
    },
}

impl Alarm {
    /// Returns a machine-readable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Forked { .. } => "forked",
            Self::RolledBack { .. } => "rolled-back",
            Self::WrongTile { .. } => "wrong-tile",
            Self::BadCheckpoint { .. } => "bad-checkpoint",
        }
    }
}

mod hexadecimal {
    use serde::{Deserialize as _, Deserializer, Serializer};
    use x509::Fingerprint;

    use crate::merkle::Hash;

    pub(super) fn serialize<S: Serializer>(hash: &Hash, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Fingerprint::from_bytes(*hash))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Hash, D::Error> {
        Fingerprint::deserialize(deserializer).map(|hash| *hash.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_position_serializes_to_compact_json() {
        let position = LogPosition {
            size: 1_000,
            root: [0xab; 32],
            timestamp_ms: 7,
            note: "log.example\n".to_owned(),
            next: 256,
            waiting_since_ms: None,
        };
        let json = serde_json::to_string(&position).unwrap();
        assert_eq!(
            json,
            format!(
                r#"{{"size":1000,"root":"{}","timestamp_ms":7,"note":"log.example\n","next":256}}"#,
                "ab".repeat(32)
            )
        );
        assert_eq!(serde_json::from_str::<LogPosition>(&json).unwrap(), position);
        assert_eq!(position.behind(), 744);
    }
}
