//! Counts of certificates by issuer, owner, team and so on. Transactions that change certificates maintain counters. With a filter,
//! matching certificates are counted up to a limit.

use std::collections::BTreeMap;

use coded::named;
use store::DAY_US;

use super::handle::Managed;
use super::page::{Conditions, ManagedFilter, samples};
use super::row::{ManagedRow, NEVER_ISSUED_US};
use super::totals::{COUNTER_SLOTS, ManagedSummary};
use db::{BulkStatement, Column, Cost, StoreError, Tx, Value, contains};
use store::states::ManagedState;

/// Maximum certificates that are counted with a filter: 100,000 index rows take about 20 ms.
pub(super) const COUNTED_MAX: i64 = 100_000;
/// Maximum groups in a response, largest first.
pub(super) const GROUPS_MAX: i64 = 1_000;

named! {
    /// Field by which certificates are grouped.
    pub enum GroupBy: "grouping" {
        /// The issuer of the certificate.
        Issuer => "issuer",
        /// The profile of the certificate.
        Profile => "profile",
        /// The type of the certificate's key.
        Algorithm => "algorithm",
        /// The person who owns the certificate.
        Owner => "owner",
        /// The team that owns the certificate.
        Team => "team",
        /// The environment of the certificate.
        Environment => "environment",
        /// The state of the certificate.
        State => "status",
        /// The day (UTC) on which the served version expires; the newest version if none is served.
        ExpiryDay => "expiry_day",
    }
}

/// A value, and the number of certificates that have it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GroupTotal {
    /// The value: a text, the name of a state, or a day since 1970. `None` for certificates without a value.
    pub value: Option<String>,
    /// Number of certificates.
    pub count: u64,
}

/// Certificates grouped by one field.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Groups {
    /// Groups, largest first. Days are in chronological order.
    pub groups: Vec<GroupTotal>,
    /// Number of certificates counted.
    pub counted: u64,
    /// Whether all certificates were counted, and all groups are included.
    pub complete: bool,
}

/// Number of certificates that match a filter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ManagedCount {
    /// Number of certificates counted.
    pub value: u64,
    /// Whether all matching certificates were counted.
    pub exact: bool,
}

pub(super) const ADJUST: BulkStatement = db::bulk! { (facet text, value text, slot bigint, count bigint)
    "-- managed_groups_adjust
INSERT INTO managed_groups (facet, value, slot, count) VALUES (:facet, :value, :slot, :count)
ON CONFLICT (facet, value, slot) DO UPDATE SET count = managed_groups.count + excluded.count"
};

/// The largest groups of one field, from the maintained counters. Empty groups are left out.
pub(super) const KEPT: &str = "-- managed_groups_kept
SELECT value, CAST(sum(count) AS BIGINT) AS n FROM managed_groups WHERE facet = ?1
GROUP BY value HAVING sum(count) > 0 ORDER BY n DESC, value LIMIT ?2";

impl GroupBy {
    /// The groupings with maintained counters, and their columns.
    const KEPT: [Self; 6] =
        [Self::Issuer, Self::Profile, Self::Algorithm, Self::Owner, Self::Team, Self::Environment];

    pub(super) fn expression(self) -> String {
        match self {
            Self::Issuer | Self::Profile | Self::Algorithm | Self::Owner | Self::Team | Self::Environment => {
                self.column().to_owned()
            }
            Self::State => "CAST(state AS TEXT)".to_owned(),
            Self::ExpiryDay => format!(
                "CASE WHEN ends_at = {NEVER_ISSUED_US} THEN NULL ELSE CAST(ends_at / {DAY_US} AS TEXT) END"
            ),
        }
    }

    /// Returns the table column that [`Self::expression`] reads.
    pub(super) fn column(self) -> &'static str {
        match self {
            Self::Issuer => "issuer",
            Self::Profile => "profile",
            Self::Algorithm => "key_type",
            Self::Owner => "owner",
            Self::Team => "team",
            Self::Environment => "environment",
            Self::State => "state",
            Self::ExpiryDay => "ends_at",
        }
    }

    /// Returns the value of a row in this grouping; empty if it has none.
    fn of(self, row: &ManagedRow) -> String {
        match self {
            Self::Issuer => row.issuer.clone(),
            Self::Profile => row.profile.clone(),
            Self::Algorithm => row.key_type.clone(),
            Self::Owner => row.owner.clone().unwrap_or_default(),
            Self::Team => row.team.clone().unwrap_or_default(),
            Self::Environment => row.environment.clone().unwrap_or_default(),
            Self::State => row.state.name().to_owned(),
            Self::ExpiryDay => day_text(row.ends_at_us()).unwrap_or_default(),
        }
    }
}

fn day_text(ends_at_us: i64) -> Option<String> {
    (ends_at_us != NEVER_ISSUED_US).then(|| ends_at_us.div_euclid(DAY_US).to_string())
}

/// Changes of the maintained counters, by grouping and value.
#[derive(Debug, Default)]
pub struct GroupChanges(BTreeMap<(&'static str, String), i64>);

impl GroupChanges {
    /// Adds a certificate to the counters (`by` is 1) or removes it (-1). Archived certificates are not counted.
    pub fn count(&mut self, row: &ManagedRow, by: i64) {
        if row.state == ManagedState::Archived {
            return;
        }
        for group in GroupBy::KEPT {
            *self.0.entry((group.name(), group.of(row))).or_default() += by;
        }
    }
}

/// Changes the maintained counters in the caller's transaction, in a single statement, or none if nothing changed.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn adjust_managed_groups(tx: &mut Tx, changes: &GroupChanges) -> Result<(), StoreError> {
    // Each transaction uses a single slot and locks rows in order, so that transactions cannot deadlock.
    let slot = tx.counter_slot(COUNTER_SLOTS);
    let moved = || changes.0.iter().filter(|(_, by)| **by != 0);
    if moved().next().is_none() {
        return Ok(());
    }
    let columns = vec![
        Column::Text(moved().map(|((facet, _), _)| (*facet).to_owned()).collect()),
        Column::Text(moved().map(|((_, value), _)| value.clone()).collect()),
        Column::Int(moved().map(|_| slot).collect()),
        Column::Int(moved().map(|(_, by)| *by).collect()),
    ];
    tx.bulk(&ADJUST, columns).await.map(drop)
}

/// Returns a statement that counts matching certificates, up to slightly more than [`COUNTED_MAX`].
fn counted(filter: &ManagedFilter) -> (String, Vec<Value>) {
    let mut conditions = Conditions::of(filter);
    let limit = conditions.bind((COUNTED_MAX + 1).into());
    let text = format!(
        "-- managed_count\nSELECT count(*) FROM (SELECT 1 FROM managed_certificates {}LIMIT {limit}) x",
        conditions.clause()
    );
    (text, conditions.parameters)
}

/// Separates the condition on a part of a name from the rest of the filter. The caller must apply this condition to a bounded
/// number of rows, because no index finds parts of names in the order of the table.
pub(super) fn split_name_part(filter: &ManagedFilter) -> (ManagedFilter, Option<&str>) {
    match filter.reads_names() {
        true => (ManagedFilter { contains: None, ..filter.clone() }, filter.contains.as_deref()),
        false => (filter.clone(), None),
    }
}

/// Returns the condition on a part of a name, for the rows of a subquery.
pub(super) fn name_part_condition(part: Option<&str>, conditions: &mut Conditions) -> String {
    part.map_or_else(String::new, |part| {
        let mark = conditions.bind(contains(part).into());
        format!("WHERE lower(name) LIKE {mark} ESCAPE '\\' OR lower(names) LIKE {mark} ESCAPE '\\'")
    })
}

/// Returns a statement that reads up to [`COUNTED_MAX`] certificates that match the other conditions. The statement counts the
/// certificates read, and the certificates whose name contains the part.
fn count_part_statement(filter: &ManagedFilter) -> (String, Vec<Value>) {
    let (rest, part) = split_name_part(filter);
    let mut conditions = Conditions::of(&rest);
    let limit = conditions.bind((COUNTED_MAX + 1).into());
    let clause = conditions.clause();
    let part = name_part_condition(part, &mut conditions).replacen("WHERE", "CASE WHEN", 1);
    let text = format!(
        "-- managed_count_part\nSELECT count(*), CAST(COALESCE(sum({part} THEN 1 ELSE 0 END), 0) AS BIGINT) \
         FROM (SELECT name, names FROM managed_certificates {clause}LIMIT {limit}) x"
    );
    (text, conditions.parameters)
}

/// Returns a statement that counts the groups of the first [`COUNTED_MAX`] matching certificates.
fn grouped(by: GroupBy, filter: &ManagedFilter) -> (String, Vec<Value>) {
    let (rest, part) = split_name_part(filter);
    let mut conditions = Conditions::of(&rest);
    conditions.exclude_archived(filter);
    let rows = conditions.bind((COUNTED_MAX + 1).into());
    let groups = conditions.bind((GROUPS_MAX + 1).into());
    let clause = conditions.clause();
    let part = name_part_condition(part, &mut conditions);
    let order = if by == GroupBy::ExpiryDay { "length(g), g" } else { "n DESC, g" };
    let text = format!(
        "-- managed_grouped\nSELECT g, n FROM (SELECT g, count(*) AS n FROM (SELECT {} AS g{} FROM managed_certificates \
         {clause}LIMIT {rows}) x {part} GROUP BY g) y ORDER BY {order} LIMIT {groups}",
        by.expression(),
        if part.is_empty() { "" } else { ", name, names" },
    );
    (text, conditions.parameters)
}

pub(super) fn composed() -> Vec<String> {
    let with_part = |filter: &ManagedFilter| filter.contains.is_some();
    let parts = samples().into_iter().filter(with_part).map(|filter| count_part_statement(&filter).0);
    let without = samples().into_iter().filter(|filter| filter.contains.is_none());
    let counts = without.map(|filter| counted(&filter).0).chain(parts);
    let groups = samples()
        .into_iter()
        .flat_map(|filter| GroupBy::ALL.iter().map(move |by| grouped(*by, &filter).0).collect::<Vec<_>>());
    counts.chain(groups).collect()
}

/// Returns the statements whose query plans a test checks.
pub(super) fn plans() -> Vec<(String, Vec<Value>)> {
    samples().iter().skip(1).filter(|filter| filter.contains.is_none()).map(counted).collect()
}

impl Managed<'_> {
    /// Counts the certificates that match. Without conditions, or with conditions on states only, the count is exact and comes from
    /// the maintained counters. Otherwise up to 100,000 matches are counted.
    ///
    /// # Errors
    /// Database errors.
    pub async fn count(self, filter: &ManagedFilter) -> Result<ManagedCount, StoreError> {
        let states_only = ManagedFilter { states: filter.states.clone(), ..ManagedFilter::default() };
        if *filter == states_only {
            let maintained = self.counted_states().await?;
            let wanted = |state| filter.states.is_empty() || filter.states.contains(state);
            let value = maintained.iter().filter(|(state, _)| wanted(state)).map(|(_, count)| count).sum();
            return Ok(ManagedCount { value, exact: true });
        }
        let filter = &*self.with_name_part_source(filter).await?;
        if filter.reads_names() {
            return self.count_name_part(filter).await;
        }
        let (text, parameters) = counted(filter);
        let found = self.0.row(&text, parameters).await?;
        let found = found.map_or(Ok(0), |mut row| row.number::<u64>())?;
        let most = COUNTED_MAX.unsigned_abs();
        Ok(ManagedCount { value: found.min(most), exact: found <= most })
    }

    /// Counts certificates by one field. Without conditions, the counts are read from the maintained counters. With conditions, the
    /// first 100,000 matches are counted.
    ///
    /// # Errors
    /// Database errors.
    pub async fn groups(self, by: GroupBy, filter: &ManagedFilter) -> Result<Groups, StoreError> {
        let filter = &*self.with_name_part_source(filter).await?;
        let found = if *filter == ManagedFilter::default() {
            self.counted_groups(by).await?
        } else {
            let (text, parameters) = grouped(by, filter);
            let rows = self.0.rows(Cost::Walk, &text, parameters).await?;
            rows.into_iter()
                .map(|mut row| Ok((row.maybe_text()?, row.number::<u64>()?)))
                .collect::<Result<Vec<_>, StoreError>>()?
        };
        let counted: u64 = found.iter().map(|(_, count)| count).sum();
        let most = GROUPS_MAX.unsigned_abs() as usize;
        let maintained = *filter == ManagedFilter::default();
        let all_counted = match filter.reads_names() {
            true => self.count_name_part(filter).await?.exact,
            false => maintained || counted <= COUNTED_MAX.unsigned_abs(),
        };
        let complete = found.len() <= most && all_counted;
        let mut groups = Vec::with_capacity(found.len().min(most));
        for (value, count) in found.into_iter().take(most) {
            let value = match (by, value) {
                (GroupBy::State, Some(code)) if !maintained => Some(state_name(&code)?),
                (_, value) => value.filter(|value| !value.is_empty()),
            };
            groups.push(GroupTotal { value, count });
        }
        Ok(Groups { groups, counted, complete })
    }

    async fn count_name_part(self, filter: &ManagedFilter) -> Result<ManagedCount, StoreError> {
        let (text, parameters) = count_part_statement(filter);
        let Some(mut row) = self.0.rows(Cost::Walk, &text, parameters).await?.into_iter().next() else {
            return Ok(ManagedCount { value: 0, exact: true });
        };
        let (rows_read, value) = (row.int()?, row.number()?);
        Ok(ManagedCount { value, exact: rows_read <= COUNTED_MAX })
    }

    async fn counted_states(self) -> Result<Vec<(ManagedState, u64)>, StoreError> {
        Ok(self.counters().await?.states)
    }

    async fn counted_groups(self, by: GroupBy) -> Result<Vec<(Option<String>, u64)>, StoreError> {
        if matches!(by, GroupBy::State | GroupBy::ExpiryDay) {
            return Ok(groups_from_counters(by, &self.counters().await?));
        }
        let parameters = vec![by.name().into(), (GROUPS_MAX + 1).into()];
        let rows = self.0.rows(Cost::Point, KEPT, parameters).await?;
        rows.into_iter().map(|mut row| Ok((Some(row.text()?), row.number::<u64>()?))).collect()
    }
}

/// Returns the groups by state or by day, from the maintained counters.
pub(super) fn groups_from_counters(by: GroupBy, counters: &ManagedSummary) -> Vec<(Option<String>, u64)> {
    if by == GroupBy::ExpiryDay {
        return counters.by_day.iter().map(|(day, count)| (Some(day.to_string()), *count)).collect();
    }
    let mut states = counters.states.clone();
    states.retain(|(state, _)| *state != ManagedState::Archived);
    states.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    states.into_iter().map(|(state, count)| (Some(state.name().to_owned()), count)).collect()
}

pub(super) fn state_name(code: &str) -> Result<String, StoreError> {
    let code = code.parse().unwrap_or(i64::MAX);
    db::coded::<ManagedState>(code, "managed_certificates.state").map(|state| state.name().to_owned())
}
