//! Watches: scans that the server runs on a schedule.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// A watch.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct WatchView {
    /// Its identity.
    pub id: Uuid,
    /// Its name, unique.
    #[cfg_attr(feature = "schemas", schema(example = "edge"))]
    pub name: String,
    /// What it belongs to, for people; may be empty.
    pub group: String,
    /// `running`, `waiting` (for a node to take its run up), `due`, `planned` or `paused`.
    pub state: String,
    /// Targets as `bulla scan` takes them, of the network only.
    pub targets: Vec<String>,
    /// Clouds and clusters, by name, by provider, or `all`.
    pub sources: Vec<String>,
    /// Ports for targets that name none.
    pub ports: Option<String>,
    /// Server names to ask for at targets that name none.
    pub server_names: Vec<String>,
    /// Protocol spoken before TLS at targets without a scheme.
    pub starttls: Option<String>,
    /// Whether every address of a name is an endpoint of its own.
    pub all_addresses: bool,
    /// Seconds from one planned time to the next.
    pub interval_s: i64,
    /// Seconds a run may begin later than planned.
    pub jitter_s: i64,
    /// Whether runs begin.
    pub enabled: bool,
    /// When the next run is due.
    pub next_run_at: String,
    /// Seconds that a due run has waited for a node.
    pub lag_s: i64,
    /// The scan of the run under way.
    pub running_scan: Option<Uuid>,
    /// Since when it runs.
    pub running_since: Option<String>,
    /// How far the run under way has come.
    pub progress: Option<ProgressView>,
    /// The last run that ended.
    pub last_run: Option<LastRun>,
    /// Creation time.
    pub created_at: String,
    /// When it was last changed.
    pub updated_at: String,
}

/// How far a run has come.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = WatchProgress))]
pub struct ProgressView {
    /// Parts that it is cut into for nodes to share; 0 when it is not cut.
    pub parts: u64,
    /// Parts that have ended.
    pub parts_done: u64,
    /// Parts that some node is at.
    pub parts_under_way: u64,
    /// Endpoints looked at, and certificates listed, that are stored.
    pub endpoints_done: u64,
    /// Endpoints in all; null where clouds are listed, of which nobody knows how much they keep.
    pub endpoints: Option<u64>,
}

/// A run that ended.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct LastRun {
    /// Its scan in the inventory; none when it failed before.
    pub scan: Option<Uuid>,
    /// Start time.
    pub began_at: String,
    /// End time.
    pub ended_at: String,
    /// `finished` or `failed`.
    pub outcome: String,
    /// The error.
    pub error: Option<String>,
    /// `endpoints`, `answered`, `changed`, `new_certificates`; `worst_findings`: endpoints by severity; `not_listed`: parts
    /// of sources that could not be listed, with `not_listed_first` saying why; `not_read_first`: what could not be read
    /// beside, such as tags.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub counts: Value,
}

/// A watch to make, or what one shall be.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WatchBody {
    /// Unique: letters, digits, `.`, `_` and `-`.
    #[cfg_attr(feature = "schemas", schema(example = "edge", min_length = 1, max_length = 64))]
    pub name: String,
    /// What it belongs to, for people.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(max_length = 64))]
    pub group: String,
    /// Hosts, addresses, networks, URLs, as `bulla scan` takes them; no files. May be empty where there are sources.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(example = json!(["www.example.com", "10.0.0.0/24:8443", "smtp://mail.example.com"]), max_items = 10_000))]
    pub targets: Vec<String>,
    /// Clouds and clusters that the server is configured for, by name (`aws/123456789012`), by provider (`aws`), or `all`.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(example = json!(["aws", "kubernetes/prod"]), max_items = 1_000))]
    pub sources: Vec<String>,
    /// Ports for targets that name none: `443,8443,9000-9010`.
    #[serde(default)]
    pub ports: Option<String>,
    /// Server names to ask for at targets that name none.
    #[serde(default)]
    pub server_names: Vec<String>,
    /// Protocol spoken before TLS at targets without a scheme.
    #[serde(default)]
    pub starttls: Option<String>,
    /// Whether every address of a name is an endpoint of its own.
    #[serde(default)]
    pub all_addresses: bool,
    /// Seconds from one planned time to the next.
    #[cfg_attr(feature = "schemas", schema(example = 21_600, minimum = 60, maximum = 31_622_400))]
    pub interval_s: u64,
    /// Seconds a run may begin later than planned; at most the interval.
    #[serde(default)]
    pub jitter_s: u64,
    /// Whether runs begin.
    #[serde(default = "crate::patch::yes")]
    pub enabled: bool,
}
