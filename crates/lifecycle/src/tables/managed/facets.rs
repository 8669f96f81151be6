//! Counts of certificates by several fields in one statement. The count of a field ignores the filter's condition on the same
//! field, so that other values of the field are counted too.

use super::groups::{
    COUNTED_MAX, GROUPS_MAX, GroupBy, GroupTotal, Groups, KEPT, groups_from_counters, name_part_condition,
    split_name_part, state_name,
};
use super::handle::Managed;
use super::page::{Conditions, ManagedFilter, samples};
use db::{Cost, StoreError, Value};

/// A field to count by, and the filter for this count.
pub type Facet = (GroupBy, ManagedFilter);

/// A row of the statements: the index of the facet, the value, and the number of certificates.
type FacetRow = (i64, Option<String>, u64);

/// Maximum matches of a filter that facets count. Grouping 5,000 rows by each field takes about 10 ms, and facets with two conditions
/// need three reads.
const MATCHES_MAX: i64 = 5_000;

/// Returns the maximum certificates that each read of facets with `filter` reads. Matches of a part of a name are found among the
/// certificates read.
fn read_max(filter: &ManagedFilter) -> i64 {
    if filter.reads_names() { COUNTED_MAX } else { MATCHES_MAX }
}

impl ManagedFilter {
    /// Returns a copy of the filter without the condition on a field.
    #[must_use]
    pub fn without(&self, by: GroupBy) -> Self {
        let mut rest = self.clone();
        match by {
            GroupBy::Issuer => rest.issuer = None,
            GroupBy::Profile => rest.profile = None,
            GroupBy::Algorithm => rest.key_type = None,
            GroupBy::Owner => rest.owner = None,
            GroupBy::Team => rest.team = None,
            GroupBy::Environment => rest.environment = None,
            GroupBy::State => rest.states.clear(),
            GroupBy::ExpiryDay => (rest.expires_before_us, rest.expires_from_us) = (None, None),
        }
        rest
    }
}

/// Returns a statement that counts facets with conditions. Facets with the same filter share one read of the certificates (a walk).
/// The row with facet `-1 - walk` has the number of certificates that this walk read.
fn counted(facets: &[(i64, &Facet)]) -> (String, Vec<Value>) {
    let mut walks: Vec<&ManagedFilter> = Vec::new();
    for (_, (_, filter)) in facets {
        if !walks.contains(&filter) {
            walks.push(filter);
        }
    }
    let (mut parameters, mut tables, mut counts, mut parts) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (walk, filter) in walks.iter().enumerate() {
        let (rest, part) = split_name_part(filter);
        let mut conditions = Conditions::with_mark_and_parameters(&rest, "", std::mem::take(&mut parameters));
        conditions.exclude_archived(filter);
        let limit = conditions.bind((read_max(filter) + 1).into());
        let mut columns: Vec<&str> = Vec::new();
        for (_, (by, _)) in facets.iter().filter(|(_, (_, of_facet))| of_facet == *filter) {
            if !columns.contains(&by.column()) {
                columns.push(by.column());
            }
        }
        // The names of 100,000 certificates take many megabytes, so they are read only for a condition on a part of a name.
        columns.extend(part.iter().flat_map(|_| ["name", "names"]));
        tables.push(format!(
            "m{walk} AS MATERIALIZED (SELECT {} FROM managed_certificates {}LIMIT {limit})",
            columns.join(", "),
            conditions.clause()
        ));
        counts.push(format!(
            "SELECT CAST({} AS BIGINT), CAST(NULL AS TEXT), count(*) FROM m{walk}",
            -1 - walk as i64
        ));
        parts.push(name_part_condition(part, &mut conditions));
        parameters = conditions.parameters;
    }
    parameters.push((GROUPS_MAX + 1).into());
    let limit = parameters.len();
    for (facet, (by, filter)) in facets {
        let walk = walks.iter().position(|known| *known == filter).unwrap_or_default();
        counts.push(format!(
            "SELECT * FROM (SELECT f, g, n FROM (SELECT CAST({facet} AS BIGINT) AS f, {} AS g, count(*) AS n FROM m{walk} {} \
             GROUP BY g) y ORDER BY {} LIMIT ?{limit}) f{facet}",
            by.expression(),
            parts[walk],
            if *by == GroupBy::ExpiryDay { "length(g), g" } else { "n DESC, g" },
        ));
    }
    (format!("-- managed_facets\nWITH {} {}", tables.join(", "), counts.join(" UNION ALL ")), parameters)
}

/// Returns a statement that reads facets without conditions from the maintained counters.
fn from_counters(facets: &[(i64, &Facet)]) -> (String, Vec<Value>) {
    let mut parameters: Vec<Value> = vec![(GROUPS_MAX + 1).into()];
    let mut selects = Vec::new();
    for (facet, (by, _)) in facets {
        parameters.push(by.name().into());
        let groups = KEPT.trim_start_matches("-- managed_groups_kept\n");
        let groups = groups.replace("?1", "?facet").replace("?2", "?1");
        let groups = groups.replace("?facet", &format!("?{}", parameters.len()));
        selects.push(format!("SELECT CAST({facet} AS BIGINT) AS f, value, n FROM ({groups}) f{facet}"));
    }
    (format!("-- managed_facets_kept\n{}", selects.join(" UNION ALL ")), parameters)
}

pub(super) fn composed() -> Vec<String> {
    let of = |filter: &ManagedFilter| -> Vec<Facet> {
        GroupBy::ALL.iter().map(|by| (*by, filter.without(*by))).collect()
    };
    let all = samples().into_iter().filter(|filter| *filter != ManagedFilter::default()).map(|filter| {
        let facets = of(&filter);
        counted(&numbered(&facets).collect::<Vec<_>>()).0
    });
    let none: Vec<Facet> = of(&ManagedFilter::default());
    let from_counters =
        from_counters(&numbered(&none).filter(|(_, (by, _))| !has_counters(*by)).collect::<Vec<_>>()).0;
    all.chain([from_counters]).collect()
}

fn numbered(facets: &[Facet]) -> impl Iterator<Item = (i64, &Facet)> {
    (0..).zip(facets)
}

/// Returns whether the counters by state and by day can answer the grouping by this field.
fn has_counters(by: GroupBy) -> bool {
    matches!(by, GroupBy::State | GroupBy::ExpiryDay)
}

impl Managed<'_> {
    /// Counts certificates by each of these fields, with at most four statements for any number of fields. Without conditions, the
    /// counts are read from the maintained counters. With conditions, the first 5,000 matches are counted.
    ///
    /// # Errors
    /// Database errors.
    pub async fn facets(self, facets: &[Facet]) -> Result<Vec<Groups>, StoreError> {
        let facets = &self.with_name_part_sources(facets).await?;
        let (without, with): (Vec<_>, Vec<_>) =
            numbered(facets).partition(|(_, (_, filter))| *filter == ManagedFilter::default());
        let (counters, other_counters): (Vec<_>, Vec<_>) =
            without.into_iter().partition(|(_, (by, _))| has_counters(*by));
        let mut rows: Vec<FacetRow> = Vec::new();
        if !counters.is_empty() {
            let found = self.counters().await?;
            for (facet, (by, _)) in counters {
                rows.extend(
                    groups_from_counters(*by, &found).into_iter().map(|(value, count)| (facet, value, count)),
                );
            }
        }
        if !other_counters.is_empty() {
            rows.extend(self.facet_rows(Cost::Point, from_counters(&other_counters)).await?);
        }
        let mut walked = Vec::new();
        if !with.is_empty() {
            let (read, groups): (Vec<_>, Vec<_>) = self
                .facet_rows(Cost::Walk, counted(&with))
                .await?
                .into_iter()
                .partition(|(facet, ..)| *facet < 0);
            rows.extend(groups);
            walked = read;
        }
        let most = facets.iter().map(|(_, filter)| read_max(filter)).max().unwrap_or(MATCHES_MAX);
        let all_read = walked.iter().all(|(.., read)| *read <= most.unsigned_abs());
        numbered(facets).map(|(number, facet)| groups_of(number, facet, &rows, all_read)).collect()
    }

    /// Sets the source of certificates with a part of a name. All facets have the same part.
    async fn with_name_part_sources(self, facets: &[Facet]) -> Result<Vec<Facet>, StoreError> {
        let Some((_, first)) = facets.first() else { return Ok(Vec::new()) };
        let source = self.with_name_part_source(first).await?.name_part_source;
        let with_source =
            |filter: &ManagedFilter| ManagedFilter { name_part_source: source, ..filter.clone() };
        Ok(facets.iter().map(|(by, filter)| (*by, with_source(filter))).collect())
    }

    async fn facet_rows(
        self,
        cost: Cost,
        (text, parameters): (String, Vec<Value>),
    ) -> Result<Vec<FacetRow>, StoreError> {
        let rows = self.0.rows(cost, &text, parameters).await?;
        rows.into_iter().map(|mut row| Ok((row.int()?, row.maybe_text()?, row.number::<u64>()?))).collect()
    }
}

/// Returns the groups of one facet from the rows of all facets.
fn groups_of(
    number: i64,
    (by, filter): &Facet,
    rows: &[FacetRow],
    all_read: bool,
) -> Result<Groups, StoreError> {
    let has_codes = *by == GroupBy::State && *filter != ManagedFilter::default();
    let mut groups = Vec::new();
    for (_, value, count) in rows.iter().filter(|(facet, ..)| *facet == number) {
        let value = value.clone().filter(|value| !value.is_empty());
        let value = if has_codes { value.as_deref().map(state_name).transpose()? } else { value };
        groups.push(GroupTotal { value, count: *count });
    }
    match by {
        GroupBy::ExpiryDay => {
            groups.sort_by_key(|group| {
                group.value.as_deref().map(|day| day.parse::<i64>().unwrap_or(i64::MAX))
            });
        }
        _ => {
            groups.sort_by(|one, other| other.count.cmp(&one.count).then_with(|| one.value.cmp(&other.value)))
        }
    }
    let most = usize::try_from(GROUPS_MAX).unwrap_or(usize::MAX);
    let complete = all_read && groups.len() <= most;
    let counted = groups.iter().map(|group| group.count).sum();
    groups.truncate(most);
    Ok(Groups { groups, counted, complete })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_reads_only_the_columns_that_it_counts() {
        let filter = ManagedFilter { issuer: Some("internal".to_owned()), ..ManagedFilter::default() };
        let text = |filter: &ManagedFilter| {
            let facets: Vec<Facet> =
                [GroupBy::Owner, GroupBy::ExpiryDay].map(|by| (by, filter.clone())).to_vec();
            counted(&numbered(&facets).collect::<Vec<_>>()).0
        };
        let read = text(&filter);
        assert!(read.contains("(SELECT owner, ends_at FROM managed_certificates "), "{read}");
        let with_part = text(&ManagedFilter { contains: Some("a".to_owned()), ..filter });
        assert!(with_part.contains("(SELECT owner, ends_at, name, names FROM"), "{with_part}");
    }
}
