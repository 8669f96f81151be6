//! Performance of the scanner, compared with the preceding seven days.

use serde::Serialize;

/// A measured series: its current value and its value in the preceding seven days.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SeriesView {
    /// Name of the series, such as `scan.duration/1-9` or `provider.errors/aws`.
    #[cfg_attr(feature = "schemas", schema(example = "scan.duration/1000-9999"))]
    pub series: String,
    /// Unit of the values: `seconds`, `share` (0 to 1), `rows` or `tasks`.
    pub unit: String,
    /// Verdict: `steady`, `drifting` (an alert is raised), `learning` (too few measurements), or `shown` (no rule applies to the
    /// series).
    pub verdict: String,
    /// Start of the open alert about the series, RFC 3339, if an alert is open.
    pub since: Option<String>,
    /// Value that the rule compares with the baseline: the median of the measurements, or for `provider.errors` the share of
    /// failures. If each node is judged separately, the value of one node.
    pub value: Option<f64>,
    /// Value of the preceding seven days, computed in the same way as `value`.
    pub baseline_value: Option<f64>,
    /// Ratio of `value` to `baseline_value`.
    pub ratio: Option<f64>,
    /// Statistics of the last hour. For scans, errors and the connection pool, docs/watch.md defines the period.
    pub last: Option<FiguresView>,
    /// Statistics of the preceding seven days.
    pub baseline: Option<FiguresView>,
}

/// Statistics of measured values. Each value is exact to 0.25 %.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct FiguresView {
    /// Number of values.
    pub count: u64,
    /// Arithmetic mean of the values.
    pub mean: f64,
    /// Median of the measured values.
    pub p50: f64,
    /// 95th percentile of the measured values.
    pub p95: f64,
    /// 99th percentile of the measured values.
    pub p99: f64,
}
