//! Monthly partitions of the observations on PostgreSQL.

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use crate::inventory::handle::Scans;
use db::StoreError;

impl Scans<'_> {
    /// Creates the partition for a scan at this time. Does nothing on SQLite.
    pub(crate) async fn prepare(self, at_us: i64) -> Result<(), StoreError> {
        if !self.0.is_postgres() {
            return Ok(());
        }
        let month = MonthPartition::of(at_us)?;
        let create = partition_create(&month.name, month.from_us, month.to_us);
        self.0.create_table_if_missing(&month.name, &create).await
    }
}

/// Returns the statement that creates a month's partition.
fn partition_create(name: &str, from_us: i64, to_us: i64) -> String {
    format!(
        "-- partition_create
CREATE TABLE IF NOT EXISTS {name} PARTITION OF observations FOR VALUES FROM ({from_us}) TO ({to_us})"
    )
}

#[derive(Debug, PartialEq)]
struct MonthPartition {
    name: String,
    from_us: i64,
    to_us: i64,
}

impl MonthPartition {
    fn of(at_us: i64) -> Result<Self, StoreError> {
        let month = || -> Result<Self, jiff::Error> {
            let first = Timestamp::from_microsecond(at_us)?
                .to_zoned(TimeZone::UTC)
                .first_of_month()?
                .start_of_day()?;
            let next = first.checked_add(1.month())?;
            Ok(Self {
                name: format!("observations_{:04}_{:02}", first.year(), first.month()),
                from_us: first.timestamp().as_microsecond(),
                to_us: next.timestamp().as_microsecond(),
            })
        };
        month().map_err(|error| StoreError::Statement {
            statement: "partition_create".to_owned(),
            source: error.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn partition_name_and_bounds_match_the_month() {
        let month = MonthPartition::of(1_795_219_200_000_000).unwrap();
        assert_eq!(month.name, "observations_2026_11");
        assert_eq!((month.to_us - month.from_us) / 86_400_000_000, 30);
    }

    proptest! {
        #[test]
        fn timestamps_are_within_their_month_and_months_are_contiguous(at_us in 0..4_102_444_800_000_000_i64) {
            let month = MonthPartition::of(at_us).unwrap();
            prop_assert!(month.from_us <= at_us && at_us < month.to_us);
            prop_assert_eq!(&MonthPartition::of(month.to_us - 1).unwrap(), &month);
            prop_assert_eq!(MonthPartition::of(month.to_us).unwrap().from_us, month.to_us);
        }
    }
}
