//! Time series: number of events per hour or day.

use serde::{Deserialize, Serialize};

/// Query parameters of `GET /api/v1/series`: the series, the interval length and the time range.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct SeriesQuery {
    /// Names of the series, separated by commas: `issued`, `renewed`, `failed`, `revoked`, `deployed`; all when absent.
    #[cfg_attr(feature = "schemas", param(example = "issued,failed"))]
    pub names: Option<String>,
    /// Length of an interval: `hour` (stored for 100 days) or `day` (UTC; stored for five years); `hour` when absent.
    #[cfg_attr(feature = "schemas", param(example = "hour"))]
    pub step: Option<String>,
    /// Time in the first interval, RFC 3339. When absent, the series begins 48 hours ago (`hour`) or 90 days ago (`day`).
    pub from: Option<String>,
    /// Time in the last interval, RFC 3339; now when absent.
    pub to: Option<String>,
    /// Only certificates of this team; all certificates when absent. A caller restricted to teams sees only the certificates of
    /// these teams.
    pub team: Option<String>,
}

/// Number of events for each interval.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SeriesCountsView {
    /// Length of an interval: `hour` or `day`.
    #[cfg_attr(feature = "schemas", schema(example = "hour"))]
    pub step: String,
    /// Length of an interval in seconds.
    #[cfg_attr(feature = "schemas", schema(example = 3600))]
    pub step_seconds: i64,
    /// Start of the first interval, RFC 3339.
    pub from: String,
    /// End of the last interval, RFC 3339.
    pub to: String,
    /// The requested series, each with its counts.
    pub series: Vec<SeriesOfView>,
}

/// One series: a count for each interval, earliest first; 0 for an interval without events.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SeriesOfView {
    /// Name of the series.
    #[cfg_attr(feature = "schemas", schema(example = "issued"))]
    pub name: String,
    /// Sum of the counts.
    #[cfg_attr(feature = "schemas", schema(example = 12))]
    pub total: u64,
    /// Count for each interval.
    #[cfg_attr(feature = "schemas", schema(example = json!([0, 3, 9])))]
    pub counts: Vec<u64>,
}
