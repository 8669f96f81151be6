//! What a node's monitor has done since it was opened, and how things stand, for metrics.

use std::collections::BTreeMap;

/// Counts since the start, and how things stood at the last look.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MonitorFigures {
    /// Domains that are watched.
    pub domains: usize,
    /// Number of verdicts, by name.
    pub verdicts: Vec<(&'static str, u64)>,
    /// By name.
    pub services: Vec<(String, ServiceFigures)>,
    /// By name.
    pub logs: Vec<(String, LogFigures)>,
}

/// A search service's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServiceFigures {
    /// Pages that were answered.
    pub answered: u64,
    /// Questions it did not take for now.
    pub throttled: u64,
    /// Questions that failed otherwise.
    pub failed: u64,
    /// Issuances that no source reported before.
    pub new: u64,
    /// Seconds since its longest overdue question was due, or since one fails; as the node sees it that judges.
    pub lag_s: f64,
}

/// A log's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LogFigures {
    /// Entries read.
    pub entries: u64,
    /// Issuances that no source reported before.
    pub new: u64,
    /// Entries of its tree at the last step.
    pub size: u64,
    /// Entries not read.
    pub behind: u64,
    /// Whether the log was inconsistent at the last check.
    pub inconsistent: bool,
    /// Tries that came to nothing.
    pub failed: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    verdicts: BTreeMap<&'static str, u64>,
    services: BTreeMap<String, ServiceFigures>,
    logs: BTreeMap<String, LogFigures>,
}

impl Counters {
    /// These are followed, and no others.
    pub(super) fn keep_logs<'n>(&mut self, names: impl Iterator<Item = &'n str>) {
        let kept = names.map(|name| (name.to_owned(), self.logs.get(name).copied().unwrap_or_default()));
        self.logs = kept.collect();
    }

    /// Whether a log is on a list.
    pub(super) fn follows(&self, name: &str) -> bool {
        self.logs.contains_key(name)
    }

    pub(super) fn verdict(&mut self, name: &'static str) {
        *self.verdicts.entry(name).or_default() += 1;
    }

    /// As many as are configured.
    pub(super) fn service(&mut self, name: &str) -> &mut ServiceFigures {
        self.services.entry(name.to_owned()).or_default()
    }

    /// As many as are on the lists.
    pub(super) fn log(&mut self, name: &str) -> &mut LogFigures {
        self.logs.entry(name.to_owned()).or_default()
    }

    pub(super) fn figures(&self, domains: usize) -> MonitorFigures {
        MonitorFigures {
            domains,
            verdicts: self.verdicts.iter().map(|(name, count)| (*name, *count)).collect(),
            services: self.services.iter().map(|(name, one)| (name.clone(), *one)).collect(),
            logs: self.logs.iter().map(|(name, one)| (name.clone(), *one)).collect(),
        }
    }
}
