//! Counts of certificates that a caller may see: totals and groups.
//!
//! The database counts for callers that see everything. For all others each row is compared with the caller's grants and the
//! ownership of teams, as in the listing. A count therefore reveals nothing about certificates of other teams.

use std::collections::BTreeMap;

use api::listing::TotalView;
use lifecycle::Lifecycle;
use lifecycle::managed::ManagedCertificate;
use lifecycle::state::State;
use lifecycle::tables::managed::{GroupBy, GroupTotal, Groups, ManagedFilter, ManagedOrder};
use store::DAY_US;

use super::scope::may_see;
use crate::access::{Caller, Permission};
use crate::problem::Problem;

/// Maximum certificates that are compared for a caller who does not see everything: some 100 ms of processor time.
const LOOKED_MAX: usize = 5_000;
/// Certificates read by one statement.
const AT_ONCE: usize = 1_000;
/// Maximum groups in a response.
const GROUPS_MAX: usize = 1_000;

/// Counts the matching certificates that the caller may see.
pub(super) async fn total(
    lifecycle: &Lifecycle,
    caller: &Caller,
    filter: &ManagedFilter,
) -> Result<TotalView, Problem> {
    if caller.holds_everywhere(Permission::CertificateRead) {
        let count = lifecycle.count(filter).await?;
        return Ok(TotalView { value: count.value, exact: count.exact });
    }
    let mut value = 0;
    let exact = walk(lifecycle, caller, filter, |_| value += 1).await?;
    Ok(TotalView { value, exact })
}

/// Returns the groups of the matching certificates that the caller may see.
pub(super) async fn groups(
    lifecycle: &Lifecycle,
    caller: &Caller,
    by: GroupBy,
    filter: &ManagedFilter,
) -> Result<Groups, Problem> {
    if caller.holds_everywhere(Permission::CertificateRead) {
        return Ok(lifecycle.groups(by, filter).await?);
    }
    let mut found: BTreeMap<Option<String>, u64> = BTreeMap::new();
    let archived = !filter.states.is_empty();
    let exact = walk(lifecycle, caller, filter, |certificate| {
        if archived || certificate.state != State::Archived {
            *found.entry(value(by, certificate)).or_default() += 1;
        }
    });
    let exact = exact.await?;
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
    Ok(Groups { groups, counted, complete })
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

/// Calls `count` for each matching certificate that the caller may see. Returns false when the limit was reached.
async fn walk(
    lifecycle: &Lifecycle,
    caller: &Caller,
    filter: &ManagedFilter,
    mut count: impl FnMut(&ManagedCertificate),
) -> Result<bool, Problem> {
    let (mut looked, mut after) = (0, None);
    loop {
        let page = lifecycle.page(filter, ManagedOrder::Created, after.as_ref(), AT_ONCE).await?;
        looked += page.rows.len();
        let seen = page.rows.iter().filter(|one| may_see(caller, Permission::CertificateRead, one));
        seen.for_each(&mut count);
        after = page.next;
        if after.is_none() {
            return Ok(true);
        }
        if looked >= LOOKED_MAX {
            return Ok(false);
        }
    }
}
