//! Metrics of the Certificate Transparency monitor on one node.

use std::collections::BTreeMap;

/// Counters since the monitor was opened, and the state at the last check.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MonitorFigures {
    /// Number of watched domains.
    pub domains: usize,
    /// Number of verdicts, by name.
    pub verdicts: Vec<(&'static str, u64)>,
    /// Metrics of the search services, by name.
    pub services: Vec<(String, ServiceFigures)>,
    /// Metrics of the logs, by name.
    pub logs: Vec<(String, LogFigures)>,
}

/// Request counters and lag of one search service.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServiceFigures {
    /// Number of pages received.
    pub answered: u64,
    /// Number of throttled requests.
    pub throttled: u64,
    /// Number of requests that failed for other reasons.
    pub failed: u64,
    /// Number of issuances that this service was the first source to report.
    pub new: u64,
    /// Lag in seconds: time since the oldest overdue search was due, or since a search began to fail. Set only on the node that
    /// judges.
    pub lag_s: f64,
}

/// Counters and state of one followed log.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LogFigures {
    /// Number of entries read.
    pub entries: u64,
    /// Number of issuances that this log was the first source to report.
    pub new: u64,
    /// Tree size at the last step.
    pub size: u64,
    /// Number of unread entries.
    pub behind: u64,
    /// Whether the log was inconsistent at the last check.
    pub inconsistent: bool,
    /// Number of failed steps.
    pub failed: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    verdicts: BTreeMap<&'static str, u64>,
    services: BTreeMap<String, ServiceFigures>,
    logs: BTreeMap<String, LogFigures>,
}

impl Counters {
    /// Removes the metrics of logs that are no longer followed.
    pub(super) fn retain_logs<'n>(&mut self, names: impl Iterator<Item = &'n str>) {
        let retained = names.map(|name| (name.to_owned(), self.logs.get(name).copied().unwrap_or_default()));
        self.logs = retained.collect();
    }

    /// Returns whether the log is followed.
    pub(super) fn follows(&self, name: &str) -> bool {
        self.logs.contains_key(name)
    }

    pub(super) fn verdict(&mut self, name: &'static str) {
        *self.verdicts.entry(name).or_default() += 1;
    }

    /// Returns the metrics of a service. There are as many entries as configured services.
    pub(super) fn service(&mut self, name: &str) -> &mut ServiceFigures {
        self.services.entry(name.to_owned()).or_default()
    }

    /// Returns the metrics of a log. There are as many entries as logs on the lists.
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
