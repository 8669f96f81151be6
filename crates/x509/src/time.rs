//! Points in time as in certificates: whole seconds, UTC.

use serde::{Deserialize, Serialize};

/// Seconds since 1970-01-01T00:00:00Z, negative before it. Certificates use the years 1950 to 9999.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixTime(pub i64);

/// Seconds in a day.
pub const DAY: i64 = 86_400;

impl UnixTime {
    /// Adds `seconds`, saturating at the limits of the type.
    #[must_use]
    pub fn plus(self, seconds: i64) -> Self {
        Self(self.0.saturating_add(seconds))
    }

    /// Returns the seconds from `earlier` to this time; negative if this time is before `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A date and time in the proleptic Gregorian calendar, UTC.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CivilDateTime {
    /// Year, negative before year 0.
    pub year: i64,
    /// Month, 1 to 12.
    pub month: i64,
    /// Day of the month, 1 to 31.
    pub day: i64,
    /// Hour, 0 to 23.
    pub hour: i64,
    /// Minute, 0 to 59.
    pub minute: i64,
    /// Second, 0 to 59.
    pub second: i64,
}

impl UnixTime {
    /// Converts the time to a calendar date and a time of day, UTC.
    #[must_use]
    pub fn civil(self) -> CivilDateTime {
        // Howard Hinnant's civil_from_days: years start in March, so the leap day is the last day.
        let days = self.0.div_euclid(DAY) + 719_468;
        let second = self.0.rem_euclid(DAY);
        let era = days.div_euclid(146_097);
        let day_of_era = days.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * day_of_year + 2) / 153;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        CivilDateTime {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month,
            day: day_of_year - (153 * shifted + 2) / 5 + 1,
            hour: second / 3_600,
            minute: second / 60 % 60,
            second: second % 60,
        }
    }

    /// Creates a time from a calendar date and a time of day, UTC. `None` for invalid values: 30 February, 24:00, and leap seconds,
    /// which Unix time cannot represent.
    #[must_use]
    pub fn from_civil(year: i64, month: i64, day: i64, hour: i64, minute: i64, second: i64) -> Option<Self> {
        let ranges = (-9_999..=9_999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=31).contains(&day)
            && (0..24).contains(&hour)
            && (0..60).contains(&minute)
            && (0..60).contains(&second);
        if !ranges {
            return None;
        }
        let shifted_year = year - i64::from(month <= 2);
        let era = shifted_year.div_euclid(400);
        let year_of_era = shifted_year.rem_euclid(400);
        let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        let days = era * 146_097 + day_of_era - 719_468;
        let moment = Self(days * DAY + hour * 3_600 + minute * 60 + second);
        (moment.civil().day == day).then_some(moment)
    }
}

impl std::fmt::Display for UnixTime {
    /// Writes RFC 3339 with whole seconds: `2026-11-21T05:00:00Z`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let c = self.civil();
        let (date, time) = ((c.year, c.month, c.day), (c.hour, c.minute, c.second));
        write!(f, "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", date.0, date.1, date.2, time.0, time.1, time.2)
    }
}
