//! Bodies about watches.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A run of a watch finished or failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WatchRun {
    /// The watch's name.
    pub name: String,
    /// The watch's group; may be empty.
    pub group: String,
    /// The scan that the run filled; `None` when the run never began.
    pub scan: Option<Uuid>,
    /// Why the run failed; `None` when it finished.
    pub error: Option<String>,
    /// Counters of the run; `None` if it failed.
    pub counts: Option<WatchCounts>,
}

/// What a run of a watch counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WatchCounts {
    /// Endpoints seen.
    pub endpoints: u64,
    /// Endpoints that answered.
    pub answered: u64,
    /// Endpoints that changed.
    pub changed: u64,
    /// Certificates seen for the first time.
    pub new_certificates: u64,
    /// Endpoints by the severity of their worst finding.
    pub worst_findings: BTreeMap<String, u64>,
    /// Events that later runs are to emit, because this run reached its limit.
    pub untold: u64,
    /// Parts that the run was cut into.
    pub parts: u64,
    /// Clouds and clusters that were not listed, or not completely.
    pub not_listed: u64,
    /// The first of their errors.
    pub not_listed_first: Vec<String>,
    /// The first errors beside the certificates: no certificate is missing because of them.
    pub not_read_first: Vec<String>,
}

/// A watch was removed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WatchRemoved {
    /// The watch's name.
    pub name: String,
}
