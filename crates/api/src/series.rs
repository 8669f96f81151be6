//! Time series: how often something happened, by hour or by day.

use serde::{Deserialize, Serialize};

/// Which series, and over which time.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct SeriesQuery {
    /// Names separated by commas: `issued`, `renewed`, `failed`, `revoked`, `deployed`; all when absent.
    #[cfg_attr(feature = "schemas", param(example = "issued,failed"))]
    pub names: Option<String>,
    /// The length of an interval: `hour` (kept for 100 days) or `day` (UTC; kept for five years); `hour` when absent.
    #[cfg_attr(feature = "schemas", param(example = "hour"))]
    pub step: Option<String>,
    /// From the interval of this time on, RFC 3339; 48 hours or 90 days back when absent.
    pub from: Option<String>,
    /// To the interval of this time, inclusive, RFC 3339; now when absent.
    pub to: Option<String>,
    /// Of certificates of this team; of all when absent. Callers of teams see those of their teams.
    pub team: Option<String>,
}

/// Counts by interval.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SeriesCountsView {
    /// `hour` or `day`.
    #[cfg_attr(feature = "schemas", schema(example = "hour"))]
    pub step: String,
    /// Seconds of an interval.
    #[cfg_attr(feature = "schemas", schema(example = 3600))]
    pub step_seconds: i64,
    /// Start of the first interval, RFC 3339.
    pub from: String,
    /// End of the last interval, RFC 3339.
    pub to: String,
    /// The series that were asked for.
    pub series: Vec<SeriesOfView>,
}

/// One series: a count for each interval, the earliest first, 0 where nothing happened.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SeriesOfView {
    /// Its name.
    #[cfg_attr(feature = "schemas", schema(example = "issued"))]
    pub name: String,
    /// The sum of its counts.
    #[cfg_attr(feature = "schemas", schema(example = 12))]
    pub total: u64,
    /// The counts.
    #[cfg_attr(feature = "schemas", schema(example = json!([0, 3, 9])))]
    pub counts: Vec<u64>,
}
