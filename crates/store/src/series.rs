//! Event counts by hour and by day (UTC). The transaction that stores an event also counts it. So the time to read a range does not
//! depend on the size of other tables.

use std::collections::BTreeMap;

use coded::coded;

use db::{BulkStatement, Column, Cost, StoreError, Tx, Value};

/// Number of rows over which each count is spread on PostgreSQL, so that concurrent writers do not wait for the same row.
const SLOTS: i64 = 4;
/// One hour in µs.
pub const HOUR_US: i64 = 3_600_000_000;
/// One day in µs.
pub const DAY_US: i64 = 24 * HOUR_US;
/// Retention of hourly counts in µs: 100 days.
pub const HOURS_KEPT_US: i64 = 100 * DAY_US;
/// Retention of daily counts in µs: five years.
pub const DAYS_KEPT_US: i64 = 5 * 366 * DAY_US;

coded! {
    /// A kind of events that are counted by hour and by day.
    pub enum Series: "series" {
        /// Issued certificates: all certificates from the internal CA, over any protocol, and managed certificates from any issuer.
        Issued = 0 => "issued",
        /// Issued certificates that are new versions of managed certificates. Also counted in `issued`.
        Renewed = 1 => "renewed",
        /// Runs of managed certificates that failed.
        Failed = 2 => "failed",
        /// Certificates revoked.
        Revoked = 3 => "revoked",
        /// Runs whose certificate was deployed to all targets.
        Deployed = 4 => "deployed",
    }
}

coded! {
    /// Interval of event counts: an hour or a day.
    pub enum Step: "step" {
        /// Interval of one hour.
        Hour = 0 => "hour",
        /// Interval of one day (UTC).
        Day = 1 => "day",
    }
}

impl Step {
    /// Returns the length of the interval in µs.
    #[must_use]
    pub const fn length_us(self) -> i64 {
        match self {
            Self::Hour => HOUR_US,
            Self::Day => DAY_US,
        }
    }
}

/// Counts of one transaction, by series and team; `""` for no team. Sorted, because rows are locked in this order.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SeriesCounts(BTreeMap<(Series, String), i64>);

impl SeriesCounts {
    /// Adds `more` events of `series` to the count of `team`.
    pub fn add(&mut self, series: Series, team: Option<&str>, more: u64) {
        let more = i64::try_from(more).unwrap_or(i64::MAX);
        if more > 0 {
            *self.0.entry((series, team.unwrap_or_default().to_owned())).or_default() += more;
        }
    }
}

/// Number of events of one kind in one interval.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SeriesPoint {
    /// Kind of the counted events.
    pub series: Series,
    /// Start of the interval, µs.
    pub from_us: i64,
    /// Number of events in the interval.
    pub count: u64,
}

const COUNT: BulkStatement = db::bulk! { (step bigint, series bigint, from_at bigint, team text, slot bigint, count bigint)
    "-- series_count
INSERT INTO series_counts (step, series, from_at, team, slot, count)
VALUES (:step, :series, :from_at, :team, :slot, :count)
ON CONFLICT (step, series, from_at, team, slot) DO UPDATE SET count = series_counts.count + excluded.count"
};

const RANGE: &str = "-- series_range
SELECT from_at, CAST(sum(count) AS BIGINT) FROM series_counts
WHERE step = ?1 AND series = ?2 AND from_at >= ?3 AND from_at < ?4 GROUP BY from_at ORDER BY from_at";

/// Counts of one team in a range of time.
const RANGE_OF: &str = "-- series_range_of
SELECT from_at, CAST(sum(count) AS BIGINT) FROM series_counts
WHERE step = ?1 AND series = ?2 AND from_at >= ?3 AND from_at < ?4 AND team = ?5 GROUP BY from_at ORDER BY from_at";

const TRIM: &str = "-- series_trim
DELETE FROM series_counts WHERE step = ?1 AND series = ?2 AND from_at < ?3";

pub(crate) const ALL: &[&str] = &[RANGE, RANGE_OF, TRIM];
pub(crate) const BULKS: &[&BulkStatement] = &[&COUNT];

/// Adds `counts` to the hour and the day of `at_us`, in this transaction. Sends one statement, or none for empty counts.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn count_series(tx: &mut Tx, counts: &SeriesCounts, at_us: i64) -> Result<(), StoreError> {
    if counts.0.is_empty() {
        return Ok(());
    }
    let slot = tx.counter_slot(SLOTS);
    let rows = || Step::ALL.iter().flat_map(|step| counts.0.iter().map(move |row| (*step, row)));
    let columns = vec![
        Column::Int(rows().map(|(step, _)| step.code()).collect()),
        Column::Int(rows().map(|(_, ((series, _), _))| series.code()).collect()),
        Column::Int(rows().map(|(step, _)| at_us - at_us.rem_euclid(step.length_us())).collect()),
        Column::Text(rows().map(|(_, ((_, team), _))| team.clone()).collect()),
        Column::Int(rows().map(|_| slot).collect()),
        Column::Int(rows().map(|(_, (_, count))| *count).collect()),
    ];
    tx.bulk(&COUNT, columns).await.map(drop)
}

crate::handle! {
    /// Event counts by hour and by day.
    SeriesTable
}

impl SeriesTable<'_> {
    /// Returns the nonempty intervals from `from_us` to before `to_us`, of one team or of all.
    ///
    /// # Errors
    /// Database errors.
    pub async fn range(
        self,
        step: Step,
        series: Series,
        (from_us, to_us): (i64, i64),
        team: Option<&str>,
    ) -> Result<Vec<SeriesPoint>, StoreError> {
        let mut parameters: Vec<Value> =
            vec![step.code().into(), series.code().into(), from_us.into(), to_us.into()];
        let statement = match team {
            None => RANGE,
            Some(team) => {
                parameters.push(team.into());
                RANGE_OF
            }
        };
        let rows = self.0.rows(Cost::Point, statement, parameters).await?;
        rows.into_iter()
            .map(|mut row| Ok(SeriesPoint { series, from_us: row.int()?, count: row.number()? }))
            .collect()
    }

    /// Deletes counts after their retention. Returns the number of deleted rows.
    ///
    /// # Errors
    /// Database errors.
    pub async fn trim(self, now_us: i64) -> Result<u64, StoreError> {
        let mut trimmed = 0;
        for (step, retention_us) in [(Step::Hour, HOURS_KEPT_US), (Step::Day, DAYS_KEPT_US)] {
            for series in Series::ALL {
                let before = now_us.saturating_sub(retention_us);
                let parameters = vec![step.code().into(), series.code().into(), before.into()];
                trimmed += self.0.execute(TRIM, parameters).await?;
            }
        }
        Ok(trimmed)
    }
}
