//! Where a follower is in a log, and what it says when a log is not what it was.

use serde::{Deserialize, Serialize};

use crate::merkle::Hash;
use crate::note::Checkpoint;

/// Where a follower is: a row of some hundred bytes, stored with the matches that came before it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LogPosition {
    /// Entries of the last checkpoint that was verified to go on from all before it.
    pub size: u64,
    /// Its root.
    #[serde(with = "hexadecimal")]
    pub root: Hash,
    /// When the log signed it, milliseconds since 1970 UTC.
    pub timestamp_ms: u64,
    /// The signed note: the evidence, should the log ever say otherwise.
    pub note: String,
    /// The first entry that has not been read: those before are matched and given out.
    pub next: u64,
    /// Since when, by our clock, entries wait in a tile that is not full; milliseconds since 1970 UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_since_ms: Option<i64>,
}

impl LogPosition {
    /// Entries that are in the log and have not been read.
    #[must_use]
    pub fn behind(&self) -> u64 {
        self.size.saturating_sub(self.next)
    }

    /// The same with a newer checkpoint.
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

/// The log breaks its promise, or somebody between it and us does. Never skipped: the place stays before it, and every
/// further step says it again until it is over or an operator drops the place.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case", tag = "alarm")]
pub enum Alarm {
    /// Two trees that cannot both be the log's, each signed by it: the notes prove it to anybody.
    #[error("the log has forked: it signed two trees of which neither goes on from the other")]
    Forked {
        /// The note verified before.
        old: String,
        /// The note that does not go on from it.
        new: String,
    },
    /// A later checkpoint with fewer entries.
    #[error("the log has rolled back from {from} entries to {to}")]
    RolledBack {
        /// The note with more entries.
        old: String,
        /// The later note with fewer.
        new: String,
        /// Entries before.
        from: u64,
        /// Entries after.
        to: u64,
    },
    /// What is served does not hash to the checkpoint, twice in a row: the log or a cache before it is broken.
    #[error("{path} does not belong to the checkpoint: {reason}")]
    WrongTile {
        /// Which, below the monitoring prefix.
        path: String,
        /// In which way.
        reason: String,
        /// The checkpoint it was held against.
        note: String,
    },
    /// The checkpoint is not one of this log's.
    #[error("the checkpoint cannot be believed: {reason}")]
    BadCheckpoint {
        /// Why.
        reason: String,
    },
}

impl Alarm {
    /// For programs.
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
    fn a_place_is_a_small_row() {
        let place = LogPosition {
            size: 1_000,
            root: [0xab; 32],
            timestamp_ms: 7,
            note: "log.example\n".to_owned(),
            next: 256,
            waiting_since_ms: None,
        };
        let json = serde_json::to_string(&place).unwrap();
        assert_eq!(
            json,
            format!(
                r#"{{"size":1000,"root":"{}","timestamp_ms":7,"note":"log.example\n","next":256}}"#,
                "ab".repeat(32)
            )
        );
        assert_eq!(serde_json::from_str::<LogPosition>(&json).unwrap(), place);
        assert_eq!(place.behind(), 744);
    }
}
