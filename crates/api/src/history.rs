//! The scanner compared with its last seven days.

use serde::Serialize;

/// What is measured, now and before.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SeriesView {
    /// Its name.
    #[cfg_attr(feature = "schemas", schema(example = "scan.duration/1000-9999"))]
    pub series: String,
    /// `seconds`, `share` (0 to 1), `rows` or `tasks`.
    pub unit: String,
    /// `steady`, `drifting` (people are told), `learning` (too little was measured), or `shown` (there is no rule).
    pub verdict: String,
    /// Time since when the alert is open.
    pub since: Option<String>,
    /// What is judged: the median, of a node where each is judged; of `provider.errors` the part that failed.
    pub value: Option<f64>,
    /// The same of the seven days before.
    pub baseline_value: Option<f64>,
    /// Ratio of this series to the other.
    pub ratio: Option<f64>,
    /// Of the last hour; of scans, errors and the pool as docs/watch.md says.
    pub last: Option<FiguresView>,
    /// Of the seven days before.
    pub baseline: Option<FiguresView>,
}

/// Values in figures, each within 0.25 %.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct FiguresView {
    /// How many there are.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// 95 % are at most this.
    pub p95: f64,
    /// 99 % are at most this.
    pub p99: f64,
}
