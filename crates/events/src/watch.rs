//! Event bodies about watches.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A run of a watch finished or failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WatchRun {
    /// Name of the watch that ran.
    pub name: String,
    /// The watch's group. May be empty.
    pub group: String,
    /// Scan with the results of the run. `None` when the run did not start.
    pub scan: Option<Uuid>,
    /// Reason why the run failed. `None` when it succeeded.
    pub error: Option<String>,
    /// Counters of the run. `None` if it failed.
    pub counts: Option<WatchCounts>,
}

/// Counters of a watch run: endpoints, certificates, findings and listing errors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WatchCounts {
    /// Number of stored observations of endpoints and of certificates in clouds.
    pub endpoints: u64,
    /// Number of endpoints that responded.
    pub answered: u64,
    /// Number of endpoints that this run observed as changed.
    pub changed: u64,
    /// Number of certificates seen for the first time.
    pub new_certificates: u64,
    /// Number of endpoints by severity of their worst finding.
    pub worst_findings: BTreeMap<String, u64>,
    /// Number of events left for later runs, because this run reached its limit.
    pub untold: u64,
    /// Number of parts into which the run was split; 1 if it was not split.
    pub parts: u64,
    /// Number of clouds and clusters that could not be listed completely.
    pub not_listed: u64,
    /// First errors of listing clouds and clusters.
    pub not_listed_first: Vec<String>,
    /// First errors that did not affect the certificates: no certificate is missing because of them.
    pub not_read_first: Vec<String>,
}

/// A watch was removed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WatchRemoved {
    /// Name of the removed watch.
    pub name: String,
}
