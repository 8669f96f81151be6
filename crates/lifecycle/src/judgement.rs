//! Evaluation of certificates against policies and profiles, and a cache of the policies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::job::Consent;
use crate::managed::ManagedCertificate;
use crate::policy::{PolicySet, Violation};
use crate::renewal::RenewalRule;
use crate::surroundings::ProfileFacts;
use crate::tables::policies::ViolationRow;

/// Cache of the policies. An entry is reloaded when it is older than the cache's lifetime.
pub(crate) struct PolicyCache {
    lifetime: Duration,
    cached: Mutex<Option<(Instant, Arc<PolicySet>)>>,
}

impl PolicyCache {
    pub(crate) fn new(lifetime: Duration) -> Self {
        Self { lifetime, cached: Mutex::new(None) }
    }

    /// Returns the cached policies, unless they are older than the lifetime.
    pub(crate) fn fresh(&self) -> Option<Arc<PolicySet>> {
        let cached = self.cached.lock();
        cached.as_ref().filter(|(read, _)| read.elapsed() < self.lifetime).map(|(_, set)| Arc::clone(set))
    }

    pub(crate) fn put(&self, set: Arc<PolicySet>) {
        *self.cached.lock() = Some((Instant::now(), set));
    }

    pub(crate) fn forget(&self) {
        *self.cached.lock() = None;
    }
}

/// Rules that apply to a certificate, from its policies and its profile.
#[derive(Default)]
pub(crate) struct Judgement {
    /// Rule for the time of renewal.
    pub(crate) rule: RenewalRule,
    /// Reason why a second person must approve. `None` if no approval is needed.
    pub(crate) approval: Option<String>,
}

/// Error for a change after which a certificate would no longer need approval.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}, and this change would remove that requirement: another person must approve the change")]
pub struct LiftsApproval(pub(crate) String);

impl Judgement {
    /// Rejects a change after which a certificate would no longer need approval.
    pub(crate) fn check_approval_still_required(&self, after: &Self) -> Result<(), LiftsApproval> {
        match (&self.approval, &after.approval) {
            (Some(reason), None) => Err(LiftsApproval(reason.clone())),
            _ => Ok(()),
        }
    }

    pub(crate) fn consent(&self) -> Consent {
        if self.approval.is_some() { Consent::Needed } else { Consent::NotNeeded }
    }
}

pub(crate) fn judge(set: &PolicySet, facts: Option<ProfileFacts>, of: &ManagedCertificate) -> Judgement {
    let by_profile = facts
        .is_some_and(|facts| facts.requires_approval)
        .then(|| format!("the profile {} requires approval", of.profile));
    Judgement {
        rule: set.renewal_rule(of, facts.map(|facts| facts.renew_at)),
        approval: by_profile
            .or_else(|| set.approval_needed(of).map(|name| format!("the policy {name} requires approval"))),
    }
}

pub(crate) fn violation_row(certificate: i64, violation: &Violation, now_us: i64) -> ViolationRow {
    ViolationRow {
        certificate,
        policy: violation.policy.clone(),
        rule: violation.rule.to_owned(),
        severity: violation.severity,
        message: violation.message.clone(),
        found_at_us: now_us,
    }
}
