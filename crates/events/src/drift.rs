//! The body about drifts.

use serde::{Deserialize, Serialize};

/// A measured series that left its usual range, or came back into it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// The series.
    pub name: String,
    /// The unit of the values: `seconds`.
    pub unit: String,
    /// The value now; `None` when too little was measured.
    pub value: Option<f64>,
    /// The value over the seven days before; `None` when too little was measured.
    pub baseline: Option<f64>,
    /// The value divided by that of the days before.
    pub ratio: Option<f64>,
    /// The values, for people.
    pub detail: String,
}
