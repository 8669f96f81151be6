//! Metrics of the components, read at each scrape.

use std::fmt::{Debug, Error, Formatter};

use alerts::Alerts;
use authority::Authority;
use credentials::Credentials;
use ct::Monitor;
use ct::monitor::{LogFigures, MonitorFigures};
use issuers::Issuers;
use lifecycle::Lifecycle;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use scan::revocation::{FetchKind, LIST_AGES_S};
use sites::Sites;
use sites::policies::KeyPolicies;

use super::scan_environment::SharedRevocationChecker;

/// The components whose metrics are encoded at each scrape.
pub(super) struct Figures {
    pub(super) store: store::Store,
    pub(super) authority: Authority,
    pub(super) lifecycle: Lifecycle,
    pub(super) issuers: Issuers,
    pub(super) places: Sites,
    pub(super) key_policies: KeyPolicies,
    pub(super) alerts: Alerts,
    pub(super) monitor: Monitor,
    pub(super) credentials: Credentials,
    pub(super) revocation: SharedRevocationChecker,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct LoopLabel {
    r#loop: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct IssuerLabel {
    issuer: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct OrderLabels {
    issuer: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ServiceLabel {
    service: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct QuestionLabels {
    service: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct SourceLabel {
    source: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct LogLabel {
    log: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct VerdictLabel {
    verdict: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct FetchLabels {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct StateLabel {
    state: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct WhatLabel {
    what: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct NoLabel {}

impl Debug for Figures {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Figures").finish_non_exhaustive()
    }
}

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        self.replica(&mut encoder)?;
        self.authority(&mut encoder)?;
        self.loops(&mut encoder)?;
        self.orders(&mut encoder)?;
        self.searches(&mut encoder)?;
        self.logs(&mut encoder)?;
        self.revocation(&mut encoder)?;
        self.rotation(&mut encoder)?;
        self.leases(&mut encoder)?;
        self.nodes(&mut encoder)?;
        self.alerts(&mut encoder)
    }
}

impl Figures {
    fn replica(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let Some(read) = self.store.is_reading_replica() else { return Ok(()) };
        let help = "Whether reads use the standby, because the primary database is unreachable";
        gauge(encoder, "bulla_store_replica_read", help, vec![(NoLabel {}, f64::from(u8::from(read)))])
    }

    fn authority(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let figures = self.authority.figures();
        let outcomes = |all: &[(&'static str, u64)]| {
            all.iter().map(|(outcome, count)| (OutcomeLabel { outcome }, *count)).collect()
        };
        let requests = [
            ("issued", figures.issued),
            ("repeated", figures.repeated),
            ("refused", figures.refused),
            ("failed", figures.failed),
        ];
        counters(encoder, "bulla_authority_requests", "Requests for certificates", outcomes(&requests))?;
        gauge(
            encoder,
            "bulla_authority_requests_under_way",
            "Certificate requests between policy check and commit",
            vec![(NoLabel {}, figures.issuing as f64)],
        )?;
        gauge(
            encoder,
            "bulla_authority_requests_waiting",
            "Signed certificates waiting for their commit",
            vec![(NoLabel {}, figures.storing as f64)],
        )?;
        let one = |count| vec![(NoLabel {}, count)];
        counters(
            encoder,
            "bulla_authority_revocations",
            "Revocations by this process",
            one(figures.revoked),
        )?;
        counters(
            encoder,
            "bulla_authority_crls",
            "CRLs issued by this process, delta CRLs excluded",
            one(figures.crls),
        )?;
        let answers = [("kept", figures.ocsp_cached), ("signed", figures.ocsp_signed)];
        counters(
            encoder,
            "bulla_authority_ocsp_answers",
            "OCSP responses, from the cache or newly signed",
            outcomes(&answers),
        )
    }

    /// Encodes the progress of key rotation in this process. Only one node of a cluster rotates at a time.
    fn rotation(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let report = self.credentials.rotation_report();
        let counted = |all: &[(&'static str, u64)]| {
            all.iter().map(|(outcome, count)| (OutcomeLabel { outcome }, *count)).collect()
        };
        let rotations = [("rotated", report.rotated), ("step", report.steps), ("failed", report.failed)];
        let (name, help) = ("bulla_credential_rotations", "Due credentials, by outcome");
        counters(encoder, name, help, counted(&rotations))?;
        let calls = [("acknowledged", report.told), ("failed", report.undelivered)];
        counters(encoder, "bulla_credential_hook_calls", "Hooks notified of rotations", counted(&calls))?;
        let one = |count| vec![(NoLabel {}, count)];
        counters(
            encoder,
            "bulla_credential_rotation_failures",
            "Rotation rounds that ended early",
            one(report.broken),
        )?;
        let behind = vec![(NoLabel {}, report.behind_s as f64)];
        let help = "Delay of the credential that is overdue longest";
        gauge(encoder, "bulla_credential_rotation_lag_seconds", help, behind)
    }

    /// Encodes the metrics of lease revocations by this process. Only one node of a cluster revokes at a time.
    fn leases(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let report = self.credentials.lease_report();
        let attempts = [("revoked", report.revoked), ("failed", report.failed)];
        let attempts = attempts.map(|(outcome, count)| (OutcomeLabel { outcome }, count));
        let (name, help) = ("bulla_credential_lease_revocations", "Due leases, by outcome");
        counters(encoder, name, help, attempts.to_vec())?;
        let (name, help) = ("bulla_credential_lease_failures", "Lease revocation rounds that ended early");
        counters(encoder, name, help, vec![(NoLabel {}, report.broken)])?;
        let late = vec![(NoLabel {}, report.late_us as f64 / 1e6)];
        let help = "Delay of the lease whose revocation is overdue longest";
        gauge(encoder, "bulla_credential_lease_lag_seconds", help, late)
    }

    /// Encodes metrics of the key service's nodes: present and absent nodes, and failures of key policies at the last pass.
    fn nodes(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let (present, absent) = self.places.counts();
        let all = [("present", present), ("absent", absent)];
        let all = all.map(|(state, count)| (StateLabel { state }, count as f64));
        let help = "Nodes of the key service that are not retired";
        gauge(encoder, "bulla_lifecycle_key_nodes", help, all.to_vec())?;
        let (unmade, stuck) = self.key_policies.failures();
        let one = |count: usize| vec![(NoLabel {}, count as f64)];
        let help = "Wraps of key policies that the last pass failed to create";
        gauge(encoder, "bulla_lifecycle_key_wraps_unmade", help, one(unmade))?;
        let help = "Sealed keys that the last pass failed to re-encrypt";
        gauge(encoder, "bulla_lifecycle_sealed_keys_stuck", help, one(stuck))
    }

    fn loops(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let all = self.lifecycle.figures().loops();
        let label = |name: &&'static str| LoopLabel { r#loop: name };
        let counts = |get: fn(&lifecycle::LoopFigures) -> u64| {
            all.iter().map(move |(name, figures)| (label(name), get(figures))).collect()
        };
        let gauges = |get: fn(&lifecycle::LoopFigures) -> f64| {
            all.iter().map(move |(name, figures)| (label(name), get(figures))).collect()
        };
        counters(encoder, "bulla_lifecycle_loop_runs", "Rounds of a loop", counts(|one| one.runs))?;
        counters(encoder, "bulla_lifecycle_loop_failures", "Rounds that failed", counts(|one| one.failures))?;
        counters(encoder, "bulla_lifecycle_loop_done", "Items processed by a loop", counts(|one| one.done))?;
        counters(
            encoder,
            "bulla_lifecycle_loop_failed",
            "Items that failed in a loop",
            counts(|one| one.failed),
        )?;
        gauge(
            encoder,
            "bulla_lifecycle_loop_due",
            "Items due at the last round",
            gauges(|one| one.due as f64),
        )?;
        gauge(
            encoder,
            "bulla_lifecycle_loop_last_duration_seconds",
            "Duration of the last round of a loop",
            gauges(|one| one.last_seconds),
        )?;
        gauge(
            encoder,
            "bulla_lifecycle_loop_last_run_timestamp_seconds",
            "Start of the last round of a loop",
            gauges(|one| one.last_run_at_us as f64 / 1e6),
        )
    }

    fn orders(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let under_way = self.lifecycle.under_way();
        let under_way =
            under_way.into_iter().map(|(issuer, running)| (IssuerLabel { issuer }, running as f64));
        gauge(
            encoder,
            "bulla_lifecycle_orders_under_way",
            "Orders in progress at an issuer",
            under_way.collect(),
        )?;
        let mut outcomes = Vec::new();
        let mut busy = Vec::new();
        for (issuer, tally) in self.issuers.counts() {
            busy.push((IssuerLabel { issuer: issuer.clone() }, tally.busy_us as f64 / 1e6));
            let of = tally.outcomes.into_iter();
            outcomes
                .extend(of.map(|(outcome, count)| (OrderLabels { issuer: issuer.clone(), outcome }, count)));
        }
        counters(encoder, "bulla_lifecycle_orders", "Orders by issuer and outcome", outcomes)?;
        gauge(encoder, "bulla_lifecycle_order_busy_seconds", "Total time spent on an issuer's orders", busy)
    }

    fn searches(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let MonitorFigures { domains, verdicts, services, logs } = self.monitor.figures();
        gauge(encoder, "bulla_ct_domains", "Domains monitored in CT", vec![(NoLabel {}, domains as f64)])?;
        let mut questions = Vec::new();
        for (service, one) in &services {
            let outcomes = [("answered", one.answered), ("throttled", one.throttled), ("failed", one.failed)];
            let labels = |outcome| QuestionLabels { service: service.clone(), outcome };
            questions.extend(outcomes.map(|(outcome, count)| (labels(outcome), count)));
        }
        counters(encoder, "bulla_ct_questions", "Queries to CT search services", questions)?;
        let told = services.iter().map(|(name, one)| (name, one.new));
        let told = told.chain(logs.iter().map(|(name, one)| (name, one.new)));
        let told = told.map(|(name, new)| (SourceLabel { source: name.clone() }, new));
        counters(encoder, "bulla_ct_issuances", "Unknown issuances found", told.collect())?;
        let lag = services.into_iter().map(|(service, one)| (ServiceLabel { service }, one.lag_s));
        gauge(
            encoder,
            "bulla_ct_lag_seconds",
            "Time since a service's oldest query became due or began to fail, reported by the node that judges",
            lag.collect(),
        )?;
        let verdicts = verdicts.into_iter().map(|(verdict, count)| (VerdictLabel { verdict }, count));
        counters(encoder, "bulla_ct_verdicts", "Verdicts on issuances", verdicts.collect())
    }

    fn logs(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let logs = self.monitor.figures().logs;
        let gauges = |get: fn(&LogFigures) -> f64| {
            logs.iter().map(move |(log, one)| (LogLabel { log: log.clone() }, get(one))).collect()
        };
        let counts = |get: fn(&LogFigures) -> u64| {
            logs.iter().map(move |(log, one)| (LogLabel { log: log.clone() }, get(one))).collect()
        };
        counters(encoder, "bulla_ct_log_entries", "Entries read from a log", counts(|one| one.entries))?;
        counters(
            encoder,
            "bulla_ct_log_failures",
            "Failed steps of reading the log",
            counts(|one| one.failed),
        )?;
        gauge(
            encoder,
            "bulla_ct_log_size",
            "Entries of the log's verified tree",
            gauges(|one| one.size as f64),
        )?;
        gauge(
            encoder,
            "bulla_ct_log_behind",
            "Entries of the log not yet read",
            gauges(|one| one.behind as f64),
        )?;
        gauge(
            encoder,
            "bulla_ct_log_inconsistent",
            "Whether the log is inconsistent with its earlier state",
            gauges(|one| f64::from(u8::from(one.inconsistent))),
        )
    }

    fn revocation(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let counts = self.revocation.counts();
        let verdicts = counts.verdicts.into_iter().map(|(verdict, count)| (VerdictLabel { verdict }, count));
        counters(
            encoder,
            "bulla_revocation_verdicts",
            "Verdicts on the revocation status of certificates",
            verdicts.collect(),
        )?;
        let label = |what: FetchKind, outcome| FetchLabels { kind: what.name(), outcome };
        let fetches = counts.fetches.into_iter().map(|((what, outcome), n)| (label(what, outcome), n));
        counters(
            encoder,
            "bulla_revocation_fetches",
            "CRLs and OCSP responses fetched, by outcome",
            fetches.collect(),
        )?;
        let cache_hits = [(FetchKind::Crl, counts.crl_cache_hits), (FetchKind::Ocsp, counts.ocsp_cache_hits)];
        let cache_hits = cache_hits.into_iter().map(|(what, count)| (KindLabel { kind: what.name() }, count));
        counters(
            encoder,
            "bulla_revocation_hits",
            "CRLs and OCSP responses from the cache, cached failures included",
            cache_hits.collect(),
        )?;
        encode_crl_ages(encoder, &counts.list_ages, counts.list_ages_sum_s)
    }

    fn alerts(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let totals = self.alerts.totals();
        let all = [
            ("events", totals.events),
            ("raised", totals.raised),
            ("escalated", totals.escalated),
            ("sent", totals.sent),
            ("failed", totals.failed),
            ("dead", totals.dead),
        ];
        let all = all.into_iter().map(|(what, count)| (WhatLabel { what }, count)).collect();
        counters(
            encoder,
            "bulla_lifecycle_alerts",
            "Events read, alerts raised, messages sent, failed, abandoned",
            all,
        )
    }
}

/// Encodes the histogram of CRL ages. The age is measured when a revocation verdict uses the CRL.
fn encode_crl_ages(encoder: &mut DescriptorEncoder<'_>, counted: &[u64], sum_s: u64) -> Result<(), Error> {
    let (name, help) = ("bulla_revocation_list_age_seconds", "Age of the CRL used for each verdict");
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    let ends = LIST_AGES_S.iter().map(|end| *end as f64).chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = ends.zip(counted.iter().copied()).collect();
    let count = counted.iter().sum();
    metric.encode_histogram::<NoLabel>(sum_s as f64, count, &buckets, None)
}

fn counters<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    all: Vec<(L, u64)>,
) -> Result<(), Error> {
    let kind = ConstCounter::new(0_u64).metric_type();
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for (labels, count) in all {
        ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// Encodes one gauge with a sample for each pair of labels and value in `all`.
pub(super) fn gauge<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    all: Vec<(L, f64)>,
) -> Result<(), Error> {
    let kind = ConstGauge::new(0.0).metric_type();
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for (labels, value) in all {
        ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}
