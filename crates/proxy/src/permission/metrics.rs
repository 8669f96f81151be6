//! Metrics of permission requests.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::question::{Question, Unanswered};

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct WhyLabel {
    why: &'static str,
}

type DecisionCache = flight::Cache<Question, bool, Unanswered>;

/// Metrics of permission requests. Clones share them.
#[derive(Clone)]
pub(crate) struct PermissionMetrics(Arc<MetricFamilies>);

struct MetricFamilies {
    questions: Family<OutcomeLabel, Counter>,
    durations: Histogram,
    refusals: Family<WhyLabel, Counter>,
    allowed_unanswered: Counter,
    answers: Arc<OnceLock<DecisionCache>>,
}

impl Default for PermissionMetrics {
    fn default() -> Self {
        Self(Arc::new(MetricFamilies {
            questions: Family::default(),
            // Buckets from 1 ms to about 16 s.
            durations: Histogram::new(exponential_buckets(0.001, 2.0, 15)),
            refusals: Family::default(),
            allowed_unanswered: Counter::default(),
            answers: Arc::default(),
        }))
    }
}

impl fmt::Debug for PermissionMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PermissionMetrics").finish_non_exhaustive()
    }
}

impl PermissionMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(Remembered(Arc::clone(&self.0.answers))));
        let registry = registry.sub_registry_with_prefix("bulla_intercept_permission");
        registry.register("questions", "Requests to the permission service", self.0.questions.clone());
        registry.register(
            "question_duration_seconds",
            "Duration of requests to the permission service, including timeouts",
            self.0.durations.clone(),
        );
        registry.register(
            "refusals",
            "Leaf certificates refused because the permission service denied or did not answer",
            self.0.refusals.clone(),
        );
        registry.register(
            "allowed_unanswered",
            "Requests without an answer from the permission service that were allowed; one connection may count twice",
            self.0.allowed_unanswered.clone(),
        );
    }

    /// Adds the number of cached decisions to the metrics.
    pub(super) fn watch(&self, answers: DecisionCache) {
        let _ = self.0.answers.set(answers);
    }

    /// Counts a request to the service. `None`: no decision was returned.
    pub(super) fn requested(&self, answer: Option<bool>, duration: Duration) {
        let outcome = match answer {
            Some(true) => "yes",
            Some(false) => "no",
            None => "failed",
        };
        self.0.questions.get_or_create(&OutcomeLabel { outcome }).inc();
        self.0.durations.observe(duration.as_secs_f64());
    }

    pub(super) fn refused(&self, why: &'static str) {
        self.0.refusals.get_or_create(&WhyLabel { why }).inc();
    }

    pub(super) fn allowed_unanswered(&self) {
        self.0.allowed_unanswered.inc();
    }
}

/// Metric of cached decisions, counted at each scrape.
#[derive(Clone)]
struct Remembered(Arc<OnceLock<DecisionCache>>);

impl fmt::Debug for Remembered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remembered").finish_non_exhaustive()
    }
}

impl Collector for Remembered {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(answers) = self.0.get() else { return Ok(()) };
        let cached = ConstGauge::new(i64::try_from(answers.entries()).unwrap_or(i64::MAX));
        cached.encode(encoder.encode_descriptor(
            "bulla_intercept_permission_answers",
            "Cached decisions of the permission service",
            None,
            cached.metric_type(),
        )?)
    }
}
