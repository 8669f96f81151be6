//! Points in time as certificates know them: whole seconds, UTC.

use serde::{Deserialize, Serialize};

/// Seconds since 1970-01-01T00:00:00Z, negative before it. Certificates reach from 1950 to 9999.
#[derive(
    Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UnixTime(pub i64);

/// Seconds in a day.
pub const DAY: i64 = 86_400;

impl UnixTime {
    /// This moment moved by `seconds`, saturating at the ends of time.
    #[must_use]
    pub fn plus(self, seconds: i64) -> Self {
        Self(self.0.saturating_add(seconds))
    }

    /// Seconds from `earlier` to this moment; negative when this moment came first.
    #[must_use]
    pub fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}
