//! The log list, version 3 (`log_list.json` of Google's and Apple's CT programs): the known logs, their URLs and keys.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::merkle::{Hash, sha256};
use super::note::{BadLogKey, LogKey};

/// Longest accepted list in bytes. Google's list has about 100 kB; a list with every retired log would have less than 1 MB.
pub const LIST_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Maximum logs in one list; the CT programs know a few hundred, including the logs of past years.
pub const LOGS_MAX: usize = 4_096;

/// A parsed list of CT logs: tiled logs, and counts or descriptions of all other logs.
#[derive(Clone, Debug)]
pub struct LogList {
    /// `log_list_timestamp` of the list (RFC 3339).
    pub timestamp: Option<String>,
    /// Logs with tiles, in list order.
    pub tiled: Vec<TiledLog>,
    /// Number of logs with only the RFC 6962 API, which are not followed; for merged lists, the highest number of any list.
    pub rfc6962: usize,
    /// Descriptions of the logs that cannot be used, with the reason.
    pub unusable: Vec<String>,
}

/// A static-ct log, which publishes its entries as tiles.
#[derive(Clone, Debug)]
pub struct TiledLog {
    /// Name of the log's operator.
    pub operator: String,
    /// Human-readable description of the log.
    pub description: String,
    /// The log's name and key.
    pub key: LogKey,
    /// Monitoring prefix, with a trailing slash.
    pub monitoring_url: String,
    /// Maximum merge delay in seconds, and thus the maximum age of a checkpoint.
    pub mmd_seconds: u32,
    /// State of the log in the CT program.
    pub state: LogState,
    /// Accepted range of certificate expiry: start (inclusive) and end (exclusive), RFC 3339.
    pub interval: Option<(String, String)>,
}

/// State of a log in a CT program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogState {
    /// The log has applied for inclusion.
    Pending,
    /// The log will be trusted soon.
    Qualified,
    /// The log is trusted.
    Usable,
    /// The log is trusted but accepts no new entries.
    ReadOnly,
    /// Only SCTs from before the retirement are trusted.
    Retired,
    /// The log is not trusted.
    Rejected,
    /// The list has no state for the log.
    Unstated,
}

impl LogState {
    /// Returns whether the log must be watched: clients trust the log, or will trust it soon. Also true if the list has no state
    /// for the log.
    #[must_use]
    pub fn is_watched(self) -> bool {
        match self {
            Self::Qualified | Self::Usable | Self::ReadOnly | Self::Unstated => true,
            Self::Pending | Self::Retired | Self::Rejected => false,
        }
    }
}

/// Reason why a log list cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogListError {
    /// The list exceeds [`LIST_BYTES_MAX`].
    #[error("the log list is larger than {LIST_BYTES_MAX} bytes")]
    TooLong,
    /// The list is not valid JSON of the expected structure.
    #[error("the document is not a CT log list")]
    Shape(#[source] serde_json::Error),
    /// The list has more than [`LOGS_MAX`] logs.
    #[error("the log list has more than {LOGS_MAX} logs")]
    TooMany,
}

impl LogList {
    /// Parses a list. Logs that cannot be used are described in [`LogList::unusable`]; the others are returned.
    ///
    /// # Errors
    /// [`LogListError`].
    pub fn parse(json: &[u8]) -> Result<Self, LogListError> {
        if json.len() > LIST_BYTES_MAX {
            return Err(LogListError::TooLong);
        }
        let list: ListJson = serde_json::from_slice(json).map_err(LogListError::Shape)?;
        let count = |operator: &OperatorJson| operator.logs.len() + operator.tiled_logs.len();
        if list.operators.iter().map(count).sum::<usize>() > LOGS_MAX {
            return Err(LogListError::TooMany);
        }
        let mut read =
            Self { timestamp: list.log_list_timestamp, tiled: Vec::new(), rfc6962: 0, unusable: Vec::new() };
        for operator in list.operators {
            read.rfc6962 += operator.logs.len();
            for log in operator.tiled_logs {
                let description = log.description.clone().unwrap_or_else(|| log.monitoring_url.clone());
                match TiledLog::read(&operator.name, log) {
                    Ok(log) => read.tiled.push(log),
                    Err(error) => read.unusable.push(format!("{description}: {error}")),
                }
            }
        }
        Ok(read)
    }
}

impl LogList {
    /// Merges the lists of several CT programs; each log appears once. A log is watched if any of the programs trusts it, because
    /// that program's clients trust the log.
    #[must_use]
    pub fn merged(lists: impl IntoIterator<Item = Self>) -> Self {
        let mut all = Self { timestamp: None, tiled: Vec::new(), rfc6962: 0, unusable: Vec::new() };
        for list in lists {
            all.timestamp = all.timestamp.max(list.timestamp);
            all.rfc6962 = all.rfc6962.max(list.rfc6962);
            all.unusable.extend(list.unusable);
            for log in list.tiled {
                match all.tiled.iter_mut().find(|known| known.key.log_id() == log.key.log_id()) {
                    Some(known) if !known.state.is_watched() => *known = log,
                    Some(_) => {}
                    None => all.tiled.push(log),
                }
            }
        }
        all
    }
}

impl TiledLog {
    fn read(operator: &str, log: TiledLogJson) -> Result<Self, BadLog> {
        let spki = STANDARD.decode(&log.key).map_err(|_| BadLog::Key)?;
        let log_id: Hash =
            STANDARD.decode(&log.log_id).ok().and_then(|id| id.try_into().ok()).ok_or(BadLog::Id)?;
        if sha256(&spki) != log_id {
            return Err(BadLog::Id);
        }
        let key = LogKey::new(&log.submission_url, &spki)?;
        let mut monitoring_url = log.monitoring_url;
        if !monitoring_url.ends_with('/') {
            monitoring_url.push('/');
        }
        Ok(Self {
            operator: operator.to_owned(),
            description: log.description.unwrap_or_else(|| key.origin().to_owned()),
            key,
            monitoring_url,
            mmd_seconds: log.mmd,
            state: log.state.map_or(LogState::Unstated, StateJson::read),
            interval: log.temporal_interval.map(|one| (one.start_inclusive, one.end_exclusive)),
        })
    }
}

#[derive(Debug, thiserror::Error)]
enum BadLog {
    #[error("the key is not base64")]
    Key,
    #[error("log_id is not the SHA-256 of the key")]
    Id,
    #[error(transparent)]
    Unreadable(#[from] BadLogKey),
}

#[derive(Deserialize)]
struct ListJson {
    log_list_timestamp: Option<String>,
    operators: Vec<OperatorJson>,
}

#[derive(Deserialize)]
struct OperatorJson {
    name: String,
    #[serde(default)]
    logs: Vec<serde::de::IgnoredAny>,
    #[serde(default)]
    tiled_logs: Vec<TiledLogJson>,
}

#[derive(Deserialize)]
struct TiledLogJson {
    description: Option<String>,
    log_id: String,
    key: String,
    submission_url: String,
    monitoring_url: String,
    mmd: u32,
    state: Option<StateJson>,
    temporal_interval: Option<IntervalJson>,
}

#[derive(Deserialize)]
struct IntervalJson {
    start_inclusive: String,
    end_exclusive: String,
}

/// An object with one key, the name of the state; the value differs by state.
#[derive(Deserialize)]
struct StateJson {
    pending: Option<serde::de::IgnoredAny>,
    qualified: Option<serde::de::IgnoredAny>,
    usable: Option<serde::de::IgnoredAny>,
    readonly: Option<serde::de::IgnoredAny>,
    retired: Option<serde::de::IgnoredAny>,
    rejected: Option<serde::de::IgnoredAny>,
}

impl StateJson {
    fn read(self) -> LogState {
        let stated = [
            (self.rejected, LogState::Rejected),
            (self.retired, LogState::Retired),
            (self.readonly, LogState::ReadOnly),
            (self.usable, LogState::Usable),
            (self.qualified, LogState::Qualified),
            (self.pending, LogState::Pending),
        ];
        stated.into_iter().find(|(stated, _)| stated.is_some()).map_or(LogState::Unstated, |(_, state)| state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A P-256 key for tests.
    const KEY: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEIoHdG+4XA8Eu4lDYqG5zaJGue66N\
                       1+AfRuau0wMemlONCkuwaPAFjOHMyOXWqn9Oor28ApHz1R57hiX9BUSQ+Q==";

    fn list(log_id: &str) -> String {
        format!(
            r#"{{"version":"90.1","log_list_timestamp":"2026-11-20T12:00:00Z","operators":[{{"name":"Example",
            "email":["ct@log.example"],"logs":[{{"description":"old","url":"https://old.log.example/"}}],
            "tiled_logs":[{{"description":"Example 2026h2","log_id":"{log_id}","key":"{KEY}",
            "submission_url":"https://log.example/2026h2/","monitoring_url":"https://mon.log.example/2026h2",
            "mmd":60,"state":{{"usable":{{"timestamp":"2025-10-01T00:00:00Z"}}}},
            "temporal_interval":{{"start_inclusive":"2026-07-01T00:00:00Z","end_exclusive":"2027-01-01T00:00:00Z"}}}}]
            }}]}}"#
        )
    }

    #[test]
    fn log_list_is_parsed() {
        let id = STANDARD.encode(sha256(&STANDARD.decode(KEY).unwrap()));
        let list = LogList::parse(list(&id).as_bytes()).unwrap();
        assert_eq!((list.tiled.len(), list.rfc6962, list.unusable.as_slice()), (1, 1, &[][..]));
        let log = &list.tiled[0];
        assert_eq!(log.key.origin(), "log.example/2026h2");
        assert_eq!(log.monitoring_url, "https://mon.log.example/2026h2/");
        assert_eq!((log.state, log.mmd_seconds), (LogState::Usable, 60));
        assert!(log.state.is_watched());
    }

    #[test]
    fn merged_log_is_watched_if_any_list_trusts_it() {
        let id = STANDARD.encode(sha256(&STANDARD.decode(KEY).unwrap()));
        let read = |state: &str| LogList::parse(list(&id).replace("usable", state).as_bytes()).unwrap();
        for (first, second, watched) in [
            ("retired", "usable", true),
            ("usable", "rejected", true),
            ("retired", "rejected", false),
            ("pending", "qualified", true),
        ] {
            let merged = LogList::merged([read(first), read(second)]);
            assert_eq!((merged.tiled.len(), merged.rfc6962), (1, 1));
            assert_eq!(merged.tiled[0].state.is_watched(), watched, "{first} and {second}");
        }
    }

    #[test]
    fn log_key_that_does_not_match_its_log_id_is_not_used() {
        let list = LogList::parse(list(&STANDARD.encode([7; 32])).as_bytes()).unwrap();
        assert!(list.tiled.is_empty());
        assert_eq!(list.unusable, ["Example 2026h2: log_id is not the SHA-256 of the key"]);
        assert!(matches!(LogList::parse(b"[]"), Err(LogListError::Shape(_))));
    }
}
