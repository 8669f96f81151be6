//! Counters of certificates, maintained by the transactions that change certificates.

use std::collections::BTreeMap;

use store::DAY_US;

use super::handle::Managed;
use db::{BulkStatement, Column, Cost, StoreError, Tx};
use store::states::ManagedState;

/// Number of rows that each counter is split into on PostgreSQL.
pub(super) const COUNTER_SLOTS: i64 = 16;

/// A counter of managed certificates. Rows are locked in the order of `Ord`, so that transactions do not deadlock.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum ManagedTotal {
    /// Certificates that expire on this day (days since 1970, UTC). Archived certificates are not counted.
    Expiry(i64),
    /// Certificates in this state.
    State(ManagedState),
}

impl ManagedTotal {
    /// Returns the counter for the day on which a version expires; `None` without a version.
    #[must_use]
    pub fn expiry(not_after_us: i64) -> Option<Self> {
        (not_after_us != super::row::NEVER_ISSUED_US).then(|| Self::Expiry(not_after_us.div_euclid(DAY_US)))
    }
}

/// Counters over all managed certificates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ManagedSummary {
    /// Number of certificates by state.
    pub states: Vec<(ManagedState, u64)>,
    /// Number of certificates that had expired at the time of the count.
    pub expired: u64,
    /// For each requested period: number of certificates that expire within the period. Certificates that have already expired are
    /// excluded.
    pub expiring: Vec<u64>,
    /// Number of certificates by the day of their expiry (days since 1970, UTC).
    pub by_day: BTreeMap<i64, u64>,
    /// Certificates whose newest version is not yet deployed to every target.
    pub undeployed: u64,
}

pub(super) const ADJUST: BulkStatement = db::bulk! { (kind text, bucket bigint, slot bigint, value bigint)
    "-- managed_totals_adjust
INSERT INTO managed_totals (kind, bucket, slot, value) VALUES (:kind, :bucket, :slot, :value)
ON CONFLICT (kind, bucket, slot) DO UPDATE SET value = managed_totals.value + excluded.value"
};

pub(super) const TOTALS: &str = "-- managed_totals
SELECT kind, bucket, CAST(sum(value) AS BIGINT) FROM managed_totals GROUP BY kind, bucket ORDER BY kind, bucket";

/// Counts certificates that expire on a day, up to a time of that day.
pub(super) const EXPIRING_TO: &str = db::with_codes!([ManagedState::{Archived}] "-- managed_expiring_to
SELECT count(*) FROM managed_certificates WHERE ends_at >= ?1 AND ends_at < ?2
  AND state <> {ManagedState::Archived}");

/// Counts certificates whose newest version is not yet deployed to every target.
pub(super) const UNDEPLOYED: &str =
    "-- managed_undeployed\nSELECT count(*) FROM managed_certificates WHERE undeployed_since IS NOT NULL";

/// Changes counters in the caller's transaction, in a single statement.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn adjust_managed_totals(
    tx: &mut Tx,
    changes: &BTreeMap<ManagedTotal, i64>,
) -> Result<(), StoreError> {
    // Each transaction uses a single slot and locks rows in order, so that transactions cannot deadlock.
    let slot = tx.counter_slot(COUNTER_SLOTS);
    let (mut kinds, mut buckets, mut slots, mut values) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (total, by) in changes.iter().filter(|(_, by)| **by != 0) {
        let (kind, bucket) = match total {
            ManagedTotal::Expiry(day) => ("expiry", *day),
            ManagedTotal::State(state) => ("state", state.code()),
        };
        kinds.push(kind.to_owned());
        buckets.push(bucket);
        slots.push(slot);
        values.push(*by);
    }
    let columns = vec![Column::Text(kinds), Column::Int(buckets), Column::Int(slots), Column::Int(values)];
    tx.bulk(&ADJUST, columns).await.map(drop)
}

impl Managed<'_> {
    /// Returns counters over all certificates. Reads the maintained counters, and the rows of the days that contain `now_us` and
    /// the ends of `within_us`, so the cost does not depend on the total number.
    ///
    /// # Errors
    /// Database errors.
    pub async fn summary(self, now_us: i64, within_us: &[i64]) -> Result<ManagedSummary, StoreError> {
        let mut summary = self.counters().await?;
        summary.expired = self.count_expiring_before(&summary.by_day, now_us).await?;
        for within in within_us {
            let before = self.count_expiring_before(&summary.by_day, now_us.saturating_add(*within)).await?;
            summary.expiring.push(before.saturating_sub(summary.expired));
        }
        summary.undeployed = self.undeployed().await?;
        Ok(summary)
    }

    /// Reads the maintained counters: the members `states` and `by_day` of the summary.
    pub(super) async fn counters(self) -> Result<ManagedSummary, StoreError> {
        let mut summary = ManagedSummary::default();
        for mut row in self.0.rows(Cost::Point, TOTALS, Vec::new()).await? {
            let kind = row.text()?;
            let bucket = row.int()?;
            let value = u64::try_from(row.int()?).unwrap_or(0);
            match kind.as_str() {
                _ if value == 0 => {}
                "state" => summary.states.push((db::coded(bucket, "managed_totals.bucket")?, value)),
                _ => {
                    summary.by_day.insert(bucket, value);
                }
            }
        }
        Ok(summary)
    }

    /// Counts certificates whose newest version is not yet deployed to every target.
    ///
    /// # Errors
    /// Database errors.
    pub async fn undeployed(self) -> Result<u64, StoreError> {
        self.0.row(UNDEPLOYED, Vec::new()).await?.map_or(Ok(0), |mut row| row.number::<u64>())
    }

    async fn count_expiring_before(self, by_day: &BTreeMap<i64, u64>, at_us: i64) -> Result<u64, StoreError> {
        let day = at_us.div_euclid(DAY_US);
        let whole_days: u64 = by_day.range(..day).map(|(_, count)| count).sum();
        if !by_day.contains_key(&day) {
            return Ok(whole_days);
        }
        let range = vec![(day * DAY_US).into(), at_us.into()];
        let Some(mut row) = self.0.row(EXPIRING_TO, range).await? else { return Ok(whole_days) };
        Ok(whole_days + row.number::<u64>()?)
    }
}
