//! Counts of certificates that a caller may see: totals and groups.
//!
//! The database counts for callers that see everything. For all others each row is compared with the caller's grants and the
//! ownership of teams, as in the listing. A count therefore reveals nothing about certificates of other teams.

use std::collections::{BTreeMap, HashSet};

use api::listing::TotalView;
use authority::Authority;
use lifecycle::Lifecycle;
use lifecycle::managed::ManagedCertificate;
use lifecycle::state::State;
use lifecycle::tables::managed::{GroupBy, GroupTotal, Groups, ManagedFilter, ManagedOrder};
use store::DAY_US;

use super::scope::may_see;
use crate::access::{Caller, Permission};
use crate::problem::Problem;

/// Maximum certificates that one request compares for a caller who does not see everything: about 100 ms of processor time.
const EXAMINED_MAX: usize = 5_000;
/// Maximum certificates that one SQL statement reads.
const AT_ONCE: usize = 1_000;
/// Maximum lifetime of a public TLS certificate from March 2029 on (CA/Browser Forum ballot SC-081): 47 days.
const SHORT_SECONDS: i64 = 47 * 86_400;
/// Maximum profiles that one SQL statement reads.
const PROFILES_AT_ONCE: usize = 500;
/// Maximum groups in a response.
const GROUPS_MAX: usize = 1_000;

/// Counts the matching certificates that the caller may see.
pub(super) async fn total(
    lifecycle: &Lifecycle,
    caller: &Caller,
    filter: &ManagedFilter,
) -> Result<TotalView, Problem> {
    if caller.has_permission_everywhere(Permission::CertificateRead) {
        let count = lifecycle.count(filter).await?;
        return Ok(TotalView { value: count.value, exact: count.exact });
    }
    let mut value = 0;
    let (_, exact) = walk(lifecycle, caller, filter, EXAMINED_MAX, |_| value += 1).await?;
    Ok(TotalView { value, exact })
}

/// Returns the number of certificates whose profile issues for at most [`SHORT_SECONDS`].
pub(super) async fn short_lived(lifecycle: &Lifecycle, authority: &Authority) -> Result<u64, Problem> {
    let short = short_lived_profiles(authority).await?;
    let groups = lifecycle.groups(GroupBy::Profile, &ManagedFilter::default()).await?.groups;
    let is_short = |group: &&GroupTotal| group.value.as_ref().is_some_and(|name| short.contains(name));
    Ok(groups.iter().filter(is_short).map(|group| group.count).sum())
}

async fn short_lived_profiles(authority: &Authority) -> Result<HashSet<String>, Problem> {
    let (mut names, mut after) = (HashSet::new(), None);
    loop {
        let page = authority.profiles(after.as_ref(), PROFILES_AT_ONCE).await?;
        let profiles = page.rows.into_iter().map(|record| record.profile);
        let short = profiles.filter(|profile| profile.validity.default_seconds <= SHORT_SECONDS);
        names.extend(short.map(|profile| profile.name.clone()));
        after = page.next;
        if after.is_none() {
            return Ok(names);
        }
    }
}

/// Counts the certificates that match `filter` and that the caller may read, grouped by `by`.
pub(super) async fn groups(
    lifecycle: &Lifecycle,
    caller: &Caller,
    by: GroupBy,
    filter: &ManagedFilter,
) -> Result<Groups, Problem> {
    if caller.has_permission_everywhere(Permission::CertificateRead) {
        return Ok(lifecycle.groups(by, filter).await?);
    }
    let mut found = Found::new();
    let archived = !filter.states.is_empty();
    let walked = walk(lifecycle, caller, filter, EXAMINED_MAX, |certificate| {
        if archived || certificate.state != State::Archived {
            *found.entry(value(by, certificate)).or_default() += 1;
        }
    });
    let (_, exact) = walked.await?;
    Ok(sorted(by, found, exact))
}

/// Returns the groups of the matching certificates that the caller may see, by each of several fields. A field is counted without its
/// own condition of the filter.
pub(super) async fn facets(
    lifecycle: &Lifecycle,
    caller: &Caller,
    by: &[GroupBy],
    filter: &ManagedFilter,
) -> Result<Vec<Groups>, Problem> {
    if caller.has_permission_everywhere(Permission::CertificateRead) {
        return Ok(lifecycle.facets(by, filter).await?);
    }
    let mut all: Vec<Option<Groups>> = vec![None; by.len()];
    let walks = walks(by, filter);
    let mut budget = Budget { certificates: EXAMINED_MAX, walks: walks.len() };
    for (filter_of_walk, of_walk) in walks {
        let mut found = vec![Found::new(); of_walk.len()];
        let archived = !filter_of_walk.states.is_empty();
        let walked = walk(lifecycle, caller, &filter_of_walk, budget.next_share(), |certificate| {
            if archived || certificate.state != State::Archived {
                for (index, found) in of_walk.iter().zip(&mut found) {
                    *found.entry(value(by[*index], certificate)).or_default() += 1;
                }
            }
        });
        let (examined, exact) = walked.await?;
        budget.spend(examined);
        for (index, found) in of_walk.into_iter().zip(found) {
            all[index] = Some(sorted(by[index], found, exact));
        }
    }
    Ok(all.into_iter().flatten().collect())
}

/// The number of certificates that the remaining walks of a request may read in total. A walk reads the certificates that match one
/// filter.
struct Budget {
    certificates: usize,
    walks: usize,
}

impl Budget {
    /// Returns the number of certificates that the next walk may read. The part that this walk does not use is available to later
    /// walks.
    fn next_share(&self) -> usize {
        self.certificates / self.walks.max(1)
    }

    fn spend(&mut self, certificates: usize) {
        self.certificates = self.certificates.saturating_sub(certificates);
        self.walks = self.walks.saturating_sub(1);
    }
}

/// Returns the walks that count these fields: the filter of each walk, and the indexes of its fields in `by`. Fields with the
/// same filter share one walk.
fn walks(by: &[GroupBy], filter: &ManagedFilter) -> Vec<(ManagedFilter, Vec<usize>)> {
    let mut walks: Vec<(ManagedFilter, Vec<usize>)> = Vec::new();
    for (index, by) in by.iter().enumerate() {
        let of_field = filter.without(*by);
        match walks.iter_mut().find(|(filter, _)| *filter == of_field) {
            Some((_, fields)) => fields.push(index),
            None => walks.push((of_field, vec![index])),
        }
    }
    walks
}

/// The number of certificates for each value of a field.
type Found = BTreeMap<Option<String>, u64>;

fn sorted(by: GroupBy, found: Found, exact: bool) -> Groups {
    let mut groups: Vec<GroupTotal> =
        found.into_iter().map(|(value, count)| GroupTotal { value, count }).collect();
    if by == GroupBy::ExpiryDay {
        groups.sort_by_key(|group| group.value.as_deref().and_then(|day| day.parse::<i64>().ok()));
    } else {
        groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    }
    let counted = groups.iter().map(|group| group.count).sum();
    let complete = exact && groups.len() <= GROUPS_MAX;
    groups.truncate(GROUPS_MAX);
    Groups { groups, counted, complete }
}

fn value(by: GroupBy, certificate: &ManagedCertificate) -> Option<String> {
    match by {
        GroupBy::Issuer => Some(certificate.issuer.clone()),
        GroupBy::Profile => Some(certificate.profile.clone()),
        GroupBy::Algorithm => Some(certificate.key_type.to_string()),
        GroupBy::Owner => certificate.owner.clone(),
        GroupBy::Team => certificate.team.clone(),
        GroupBy::Environment => certificate.environment.clone(),
        GroupBy::State => Some(certificate.state.name().to_owned()),
        GroupBy::ExpiryDay => {
            certificate.current.as_ref().map(|current| current.not_after_us.div_euclid(DAY_US).to_string())
        }
    }
}

/// Reads at most `max_rows` matching certificates, and calls `count` for each one that the caller may see. Returns the number of
/// certificates read, and whether all matching certificates were read.
async fn walk(
    lifecycle: &Lifecycle,
    caller: &Caller,
    filter: &ManagedFilter,
    max_rows: usize,
    mut count: impl FnMut(&ManagedCertificate),
) -> Result<(usize, bool), Problem> {
    let (mut examined, mut after) = (0, None);
    loop {
        let limit = AT_ONCE.min(max_rows - examined);
        let page = lifecycle.page(filter, ManagedOrder::Created, after.as_ref(), limit).await?;
        examined += page.rows.len();
        let seen = page.rows.iter().filter(|one| may_see(caller, Permission::CertificateRead, one));
        seen.for_each(&mut count);
        after = page.next;
        if after.is_none() {
            return Ok((examined, true));
        }
        if examined >= max_rows {
            return Ok((examined, false));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_fields_of_a_request_share_one_limit() {
        let filter = ManagedFilter {
            issuer: Some("internal".to_owned()),
            owner: Some("ann".to_owned()),
            ..ManagedFilter::default()
        };
        let walks = walks(&GroupBy::ALL, &filter);
        let fields: Vec<usize> = walks.iter().map(|(_, fields)| fields.len()).collect();
        assert_eq!(fields, [1, 6, 1], "issuer and owner are counted without their own condition");
        let mut budget = Budget { certificates: EXAMINED_MAX, walks: walks.len() };
        let mut read = 0;
        for _ in &walks {
            let share = budget.next_share();
            assert!(share >= EXAMINED_MAX / 3);
            read += share;
            budget.spend(share);
        }
        assert!(read <= EXAMINED_MAX, "{read}");
        let mut budget = Budget { certificates: EXAMINED_MAX, walks: 2 };
        budget.spend(10);
        assert_eq!(budget.next_share(), EXAMINED_MAX - 10, "the rest of the first walk");
    }
}
