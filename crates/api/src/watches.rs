//! Watches: scans that the server runs on a schedule.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// A watch: a scan that the server runs on a schedule.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct WatchView {
    /// UUID of the watch, used in `/api/v1/watches/{id}`.
    pub id: Uuid,
    /// Name of the watch, unique.
    #[cfg_attr(feature = "schemas", schema(example = "edge"))]
    pub name: String,
    /// Group of the watch, a label for people; may be empty.
    pub group: String,
    /// State: `running`, `waiting` (for a node to continue its run), `due`, `planned` or `paused`.
    pub state: String,
    /// Targets in the syntax of `bulla scan`, without files.
    pub targets: Vec<String>,
    /// Clouds and clusters, by name, by provider, or `all`.
    pub sources: Vec<String>,
    /// Ports for targets without a port.
    pub ports: Option<String>,
    /// Server names (SNI) to send to targets without one.
    pub server_names: Vec<String>,
    /// STARTTLS protocol for targets without a scheme.
    pub starttls: Option<String>,
    /// Whether every IP address of a name is a separate endpoint.
    pub all_addresses: bool,
    /// Interval between planned runs in seconds.
    pub interval_s: i64,
    /// Maximum random delay of a run in seconds.
    pub jitter_s: i64,
    /// Whether the watch runs on its schedule; false while it is paused.
    pub enabled: bool,
    /// Due time of the next run, RFC 3339.
    pub next_run_at: String,
    /// Seconds that a due run has waited for a node.
    pub lag_s: i64,
    /// Id of the scan of the run in progress.
    pub running_scan: Option<Uuid>,
    /// Start time of the run in progress, RFC 3339.
    pub running_since: Option<String>,
    /// Finished and total parts and endpoints of the run in progress.
    pub progress: Option<ProgressView>,
    /// The last run that ended.
    pub last_run: Option<LastRun>,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// Time of the last change, RFC 3339.
    pub updated_at: String,
}

/// Progress of a watch run, in parts and endpoints.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = WatchProgress))]
pub struct ProgressView {
    /// Number of parts into which the run is divided among nodes; 0 if it is not divided.
    pub parts: u64,
    /// Number of finished parts.
    pub parts_done: u64,
    /// Number of parts in progress.
    pub parts_under_way: u64,
    /// Number of scanned endpoints and listed certificates that are stored.
    pub endpoints_done: u64,
    /// Total number of endpoints; null if the run lists clouds, because their number of certificates is unknown.
    pub endpoints: Option<u64>,
}

/// The last run of a watch that ended, with its outcome.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct LastRun {
    /// Id of the run's scan in the inventory; null if the run failed before the scan began.
    pub scan: Option<Uuid>,
    /// Start time, RFC 3339.
    pub began_at: String,
    /// End time, RFC 3339.
    pub ended_at: String,
    /// Outcome: `finished` or `failed`.
    pub outcome: String,
    /// Error of a failed run.
    pub error: Option<String>,
    /// Counts: `endpoints`, `answered`, `changed`, `new_certificates`; `worst_findings`: number of endpoints by severity;
    /// `not_listed`: number of parts of sources that could not be listed, with the reason in `not_listed_first`; `not_read_first`:
    /// first error in reading other data, such as tags.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub counts: Value,
}

/// A watch to create or replace.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WatchBody {
    /// Name of the watch, unique: letters, digits, `.`, `_` and `-`.
    #[cfg_attr(feature = "schemas", schema(example = "edge", min_length = 1, max_length = 64))]
    pub name: String,
    /// Group of the watch, a label for people.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(max_length = 64))]
    pub group: String,
    /// Targets in the syntax of `bulla scan`: hosts, addresses, networks, URLs; no files. May be empty if `sources` is not.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(example = json!(["www.example.com", "10.0.0.0/24:8443", "smtp://mail.example.com"]), max_items = 10_000))]
    pub targets: Vec<String>,
    /// Clouds and clusters from the server's configuration, by name (`aws/123456789012`), by provider (`aws`), or `all`.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(example = json!(["aws", "kubernetes/prod"]), max_items = 1_000))]
    pub sources: Vec<String>,
    /// Ports for targets without a port: `443,8443,9000-9010`.
    #[serde(default)]
    pub ports: Option<String>,
    /// Server names (SNI) to send to targets without one.
    #[serde(default)]
    pub server_names: Vec<String>,
    /// STARTTLS protocol for targets without a scheme.
    #[serde(default)]
    pub starttls: Option<String>,
    /// Whether every IP address of a name is a separate endpoint.
    #[serde(default)]
    pub all_addresses: bool,
    /// Interval between planned runs in seconds.
    #[cfg_attr(feature = "schemas", schema(example = 21_600, minimum = 60, maximum = 31_622_400))]
    pub interval_s: u64,
    /// Maximum random delay of a run in seconds; at most the interval.
    #[serde(default)]
    pub jitter_s: u64,
    /// Whether the watch runs on its schedule; false pauses it.
    #[serde(default = "crate::patch::yes")]
    pub enabled: bool,
}
