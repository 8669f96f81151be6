//! Evaluation of a certificate against the current policies and profiles.

use std::sync::Arc;

use crate::error::DataError;
use crate::handle::Lifecycle;
use crate::judgement::{Judgement, judge};
use crate::managed::ManagedCertificate;
use crate::policy::{POLICIES_MAX, Policy, PolicySet};
use crate::surroundings::ProfileFacts;
use crate::tables;

impl Lifecycle {
    /// Returns all policies, from a cache that is at most a few seconds old.
    pub(crate) async fn policy_set(&self) -> Result<Arc<PolicySet>, DataError> {
        if let Some(set) = self.inner.policies.fresh() {
            return Ok(set);
        }
        let mut all = Vec::new();
        for document in tables::Policies::of(&self.inner.store).page(None, POLICIES_MAX).await?.rows {
            let policy: Policy = serde_json::from_str(&document.body).map_err(|error| {
                DataError::Unreadable(format!(
                    "the policy {:?} was written by another version of Bulla: {error}; save the policy again",
                    document.name
                ))
            })?;
            all.push((document.name, policy));
        }
        let set: Arc<PolicySet> = Arc::new(all.into_iter().collect());
        self.inner.policies.put(Arc::clone(&set));
        Ok(set)
    }

    /// Returns the settings of a profile. `None` if the internal CA has no profile of this name, for example because the profile
    /// belongs to an external issuer.
    pub(crate) async fn profile_facts(&self, name: &str) -> Result<Option<ProfileFacts>, DataError> {
        self.inner.internal_ca.profile(name).await
    }

    /// Returns the rules that apply to this certificate.
    pub(crate) async fn judge(&self, of: &ManagedCertificate) -> Result<Judgement, DataError> {
        let set = self.policy_set().await?;
        let facts = self.profile_facts(&of.profile).await?;
        Ok(judge(&set, facts, of))
    }
}
