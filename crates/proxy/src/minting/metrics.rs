//! Metrics of leaves for consumers.

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::revocation::RevocationMetrics;

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct AnswerLabels {
    door: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ReasonLabel {
    reason: &'static str,
}

/// Protocol of a consumer's request.
#[derive(Clone, Copy, Debug)]
pub(super) enum MintingProtocol {
    Http,
    Sds,
}

/// Outcome of a request for a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    Leaf,
    NotAllowed,
    NotPermitted,
    TooManyNames,
    Failed,
}

/// Metrics of minting for consumers. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct MintingMetrics(Arc<MetricFamilies>);

#[derive(Default)]
struct MetricFamilies {
    answers: Family<AnswerLabels, Counter>,
    streams: Gauge,
    refused: Family<ReasonLabel, Counter>,
    nacks: Counter,
    revocation: RevocationMetrics,
}

impl fmt::Debug for MintingMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MintingMetrics").finish_non_exhaustive()
    }
}

/// A secret discovery stream, counted until dropped.
pub(super) struct Streaming(Gauge);

impl Drop for Streaming {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl MintingMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        self.0.revocation.register(registry);
        let registry = registry.sub_registry_with_prefix("bulla_intercept_minting");
        registry.register("answers", "Leaf certificates requested by consumers", self.0.answers.clone());
        registry.register(
            "streams",
            "Streams of Envoy's secret discovery service (SDS)",
            self.0.streams.clone(),
        );
        registry.register("refused_connections", "Refused connections, by reason", self.0.refused.clone());
        registry.register("nacks", "Leaf certificates that a consumer rejected (NACK)", self.0.nacks.clone());
    }

    /// Returns the metrics of CRLs, shared with the other listeners.
    pub(crate) fn revocation(&self) -> RevocationMetrics {
        self.0.revocation.clone()
    }

    pub(super) fn answered(&self, door: MintingProtocol, outcome: Outcome) {
        let door = match door {
            MintingProtocol::Http => "http",
            MintingProtocol::Sds => "sds",
        };
        let outcome = match outcome {
            Outcome::Leaf => "leaf",
            Outcome::NotAllowed => "not-allowed",
            Outcome::NotPermitted => "not-permitted",
            Outcome::TooManyNames => "too-many-names",
            Outcome::Failed => "failed",
        };
        self.0.answers.get_or_create(&AnswerLabels { door, outcome }).inc();
    }

    pub(super) fn streaming(&self) -> Streaming {
        self.0.streams.inc();
        Streaming(self.0.streams.clone())
    }

    pub(super) fn refused(&self, reason: &'static str) {
        self.0.refused.get_or_create(&ReasonLabel { reason }).inc();
    }

    pub(super) fn nack(&self) {
        self.0.nacks.inc();
    }
}
