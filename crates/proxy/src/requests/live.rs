//! The rules in force, which a reload replaces.

use std::sync::Arc;

use tokio::sync::watch;

use super::compile::RequestRules;
use super::inject::Secrets;
use super::options::Options;
use crate::Rules;
use crate::policy::Policy;

/// One version of all rules. All rules are replaced together, so that a request never uses rules of two versions.
#[derive(Debug)]
pub(crate) struct RuleSet {
    pub(crate) names: Rules,
    pub(crate) policy: Policy,
    pub(crate) requests: RequestRules,
    pub(crate) secrets: Option<Arc<dyn Secrets>>,
}

/// The current rules, which can be replaced at runtime. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct LiveRules(watch::Sender<Arc<RuleSet>>);

impl LiveRules {
    pub(crate) fn new(names: Rules, policy: Policy, options: &Options) -> Self {
        let (requests, secrets) = (options.rules.clone(), options.secrets.clone());
        Self(watch::Sender::new(Arc::new(RuleSet { names, policy, requests, secrets })))
    }

    pub(crate) fn now(&self) -> Arc<RuleSet> {
        Arc::clone(&self.0.borrow())
    }

    /// Subscribes to changes of the rules.
    pub(crate) fn changes(&self) -> watch::Receiver<Arc<RuleSet>> {
        self.0.subscribe()
    }

    pub(crate) fn change(&self, new: RuleSet) {
        // The old rules are dropped outside of the lock.
        drop(self.0.send_replace(Arc::new(new)));
    }
}
