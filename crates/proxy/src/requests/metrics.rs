//! Metrics of rules, injected credentials, recordings and the access log.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct HookLabels {
    hook: String,
    outcome: &'static str,
}

/// Metrics of rules on requests. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RequestMetrics {
    reloads: Family<OutcomeLabel, Counter>,
    outdated: Gauge,
    injected: Family<OutcomeLabel, Counter>,
    answered: Counter,
    hooks: Family<HookLabels, Counter>,
    pub(super) recorded: Counter,
    pub(super) recordings_dropped: Counter,
    pub(crate) lines_dropped: Counter,
    pub(super) outcomes_lost: Counter,
}

impl RequestMetrics {
    /// Registers all metrics. `registry` must already have the prefix of the metric names.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("rule_reloads", "Rule reloads, by outcome", self.reloads.clone());
        registry.register(
            "rules_outdated",
            "1 while the configured rules are invalid and the previous rules stay in use",
            self.outdated.clone(),
        );
        registry.register(
            "credentials_injected",
            "Credentials injected into requests, by outcome",
            self.injected.clone(),
        );
        registry.register(
            "rule_answers",
            "Requests that a rule blocked or redirected",
            self.answered.clone(),
        );
        registry.register("hook_decisions", "Decisions of hooks, by hook and outcome", self.hooks.clone());
        registry.register("recordings", "Requests recorded", self.recorded.clone());
        registry.register(
            "recordings_dropped",
            "Recordings dropped because the queue was full or the write failed",
            self.recordings_dropped.clone(),
        );
        registry.register(
            "access_lines_dropped",
            "Access log lines dropped because the queue was full or the write failed",
            self.lines_dropped.clone(),
        );
        registry.register(
            "audit_outcomes_lost",
            "Ended requests whose outcome could not be written to the audit log",
            self.outcomes_lost.clone(),
        );
    }

    /// Counts a reload of the rules. `used`: false if the new rules are invalid and the old rules stay in use.
    pub fn reloaded(&self, used: bool) {
        let outcome = if used { "done" } else { "failed" };
        self.reloads.get_or_create(&OutcomeLabel { outcome }).inc();
        self.outdated.set(i64::from(!used));
    }

    pub(super) fn injected(&self, outcome: &'static str) {
        self.injected.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Counts the decision of a hook.
    pub(crate) fn hooked(&self, hook: &str, outcome: &'static str) {
        self.hooks.get_or_create(&HookLabels { hook: hook.to_owned(), outcome }).inc();
    }

    pub(crate) fn answered(&self) {
        self.answered.inc();
    }
}
