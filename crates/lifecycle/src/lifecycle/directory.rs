//! What certificates are judged by: policies and profiles, kept at hand.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{Lifecycle, LifecycleError, ProfileFacts};
use crate::job::Consent;
use crate::managed::ManagedCertificate;
use crate::policy::{POLICIES_MAX, Policy, PolicySet};
use crate::renewal::RenewalRule;

/// The policies, read now and then.
pub(crate) struct PolicyCache {
    lifetime: Duration,
    kept: Mutex<Option<(Instant, Arc<PolicySet>)>>,
}

impl PolicyCache {
    pub(crate) fn new(lifetime: Duration) -> Self {
        Self { lifetime, kept: Mutex::new(None) }
    }

    pub(crate) fn forget(&self) {
        *self.kept.lock() = None;
    }
}

/// What a certificate is judged by, all of it read.
#[derive(Default)]
pub(crate) struct Judged {
    /// When it is renewed.
    pub(crate) rule: RenewalRule,
    /// Why a second person must agree, if one must.
    pub(crate) approval: Option<String>,
}

impl Judged {
    pub(crate) fn consent(&self) -> Consent {
        if self.approval.is_some() { Consent::Needed } else { Consent::NotNeeded }
    }
}

impl Lifecycle {
    /// Every policy, as it was within the last seconds.
    pub(crate) async fn policy_set(&self) -> Result<Arc<PolicySet>, LifecycleError> {
        let cache = &self.inner.policies;
        if let Some((read, set)) = &*cache.kept.lock()
            && read.elapsed() < cache.lifetime
        {
            return Ok(Arc::clone(set));
        }
        let mut all = Vec::new();
        for document in self.inner.store.policies(None, POLICIES_MAX).await?.rows {
            let policy: Policy = serde_json::from_str(&document.body).map_err(|error| {
                LifecycleError::Unreadable(format!(
                    "the policy {:?} is of another Bulla: {error}; put it again",
                    document.name
                ))
            })?;
            all.push((document.name, policy));
        }
        let set: Arc<PolicySet> = Arc::new(all.into_iter().collect());
        *cache.kept.lock() = Some((Instant::now(), Arc::clone(&set)));
        Ok(set)
    }

    /// What the profile says; nothing when our authority has none of this name, as with external issuers.
    pub(crate) async fn profile_facts(&self, name: &str) -> Result<Option<ProfileFacts>, LifecycleError> {
        self.inner.own.profile(name).await
    }

    /// By what this certificate is judged.
    pub(crate) async fn judge(&self, of: &ManagedCertificate) -> Result<Judged, LifecycleError> {
        let set = self.policy_set().await?;
        let facts = self.profile_facts(&of.profile).await?;
        Ok(judge(&set, facts, of))
    }
}

pub(crate) fn judge(set: &PolicySet, facts: Option<ProfileFacts>, of: &ManagedCertificate) -> Judged {
    let by_profile = facts
        .is_some_and(|facts| facts.requires_approval)
        .then(|| format!("the profile {} requires approval", of.profile));
    Judged {
        rule: set.renewal_rule(of, facts.map(|facts| facts.renew_at)),
        approval: by_profile
            .or_else(|| set.approval_needed(of).map(|name| format!("the policy {name} requires approval"))),
    }
}
