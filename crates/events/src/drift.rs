//! The event body about drifts of measured series.

use serde::{Deserialize, Serialize};

/// A measured series left its usual range or returned to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// Name of the series.
    pub name: String,
    /// Unit of the values, such as `seconds`.
    pub unit: String,
    /// Current value. `None` when there are too few measurements.
    pub value: Option<f64>,
    /// Value over the previous seven days. `None` when there are too few measurements.
    pub baseline: Option<f64>,
    /// `value` divided by `baseline`.
    pub ratio: Option<f64>,
    /// The values as human-readable text.
    pub detail: String,
}
