//! Counters of a whole scan, for the summary and the report's charts.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use scan::ProbeOutcome;
use scan::{EstateFinding, Observation};
use serde::Serialize;
use x509::Severity;

use super::record::{key_name, short_name};
use super::row::rank;
use scan::tls::names;

/// Maximum number of distinct words per chart. Further words count as "others", so that memory stays bounded if each certificate
/// has its own issuer.
const WORDS_MAX: usize = 10_000;
/// The word under which further words are counted.
const OTHERS: &str = "others";

/// Number of occurrences of each word in one chart, such as issuer names. Words beyond [`WORDS_MAX`] are counted as "others".
#[derive(Debug, Default)]
pub(crate) struct Words(HashMap<String, u64>);

impl Words {
    fn add(&mut self, word: &str) {
        if let Some(count) = self.0.get_mut(word) {
            *count += 1;
            return;
        }
        let word = if self.0.len() < WORDS_MAX { word } else { OTHERS };
        *self.0.entry(word.to_owned()).or_default() += 1;
    }

    /// Returns the `limit` most frequent words, and one entry "others" with the sum of all further words.
    pub(crate) fn top(&self, limit: usize) -> Vec<(String, u64)> {
        let mut all: Vec<_> = self.0.iter().map(|(word, count)| (word.clone(), *count)).collect();
        all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        if all.len() > limit {
            let rest = all.split_off(limit).iter().map(|(_, count)| count).sum();
            all.push((OTHERS.to_owned(), rest));
        }
        all
    }
}

/// Counters of a whole scan: endpoints by urgency, outcome and finding, and leaves by week of expiry.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) endpoints: u64,
    pub(crate) answered: u64,
    /// Endpoints that did not respond, without addresses from network ranges.
    pub(crate) no_answer: u64,
    /// Number of endpoints at each urgency rank, from 0 (no finding) to 6 (critical).
    pub(crate) by_rank: [u64; 7],
    pub(crate) by_outcome: BTreeMap<&'static str, u64>,
    /// Number of endpoints with each finding, by code.
    pub(crate) by_rule: BTreeMap<&'static str, u64>,
    pub(crate) issuers: Words,
    pub(crate) keys: Words,
    pub(crate) versions: Words,
    /// Number of leaves by week of expiry, counted from the scan's start. Week -1 counts all expired leaves; week [`WEEKS_MAX`]
    /// counts all later expiries.
    pub(crate) weeks: BTreeMap<i64, u64>,
    /// The worst finding of all, including findings about several endpoints.
    pub(crate) worst: Option<Severity>,
    started_at_s: i64,
}

/// Number of weeks shown. Later expiries count in the last one.
pub(crate) const WEEKS_MAX: i64 = 53;
const WEEK_S: i64 = 7 * 86_400;

impl Tally {
    /// Creates counters for a scan that began at `started_at_us`.
    pub(crate) fn new(started_at_us: i64) -> Self {
        Self { started_at_s: started_at_us.div_euclid(1_000_000), ..Self::default() }
    }

    /// Counts an observation.
    pub(crate) fn observe(&mut self, observation: &Observation) {
        self.endpoints += 1;
        let answered = observation.outcome == ProbeOutcome::Answered;
        self.answered += u64::from(answered);
        self.no_answer +=
            u64::from(observation.outcome.no_answer() && !observation.target.is_from_network_range());
        let severity = observation.severity();
        self.worst = self.worst.max(severity);
        self.by_rank[usize::from(rank(severity, answered))] += 1;
        *self.by_outcome.entry(observation.outcome.name()).or_default() += 1;
        for finding in &observation.findings {
            *self.by_rule.entry(finding.rule.code).or_default() += 1;
        }
        if let Some(version) = observation.session.as_ref().and_then(|session| session.version) {
            self.versions.add(&names::version(version));
        }
        let Some(leaf) = observation.leaf() else { return };
        self.issuers.add(short_name(&leaf.issuer));
        self.keys.add(&key_name(&leaf.public_key));
        let week = (leaf.not_after.0 - self.started_at_s).div_euclid(WEEK_S);
        *self.weeks.entry(week.clamp(-1, WEEKS_MAX)).or_default() += 1;
    }

    /// Returns the number of endpoints that had not responded at the deadline of the scan.
    pub(crate) fn cancelled(&self) -> u64 {
        self.by_outcome.get(ProbeOutcome::Cancelled.name()).copied().unwrap_or_default()
    }

    /// Counts findings about several endpoints.
    pub(crate) fn observe_estate(&mut self, estate: &[EstateFinding]) {
        for shared in estate {
            let rule = shared.finding.rule;
            self.worst = self.worst.max(Some(rule.severity));
            *self.by_rule.entry(rule.code).or_default() += shared.count as u64;
        }
    }
}

/// The scan's inventory and id, and counts of the stored rows.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Stored {
    /// The database's address, without a password.
    pub(crate) inventory: String,
    pub(crate) scan: String,
    pub(crate) observations: u64,
    pub(crate) new_certificates: u64,
    pub(crate) changed: u64,
}

/// Result of the scan, known at its end.
#[derive(Clone, Debug)]
pub(crate) struct ScanSummary {
    pub(crate) started_at_us: i64,
    pub(crate) elapsed: Duration,
    pub(crate) interrupted: bool,
    pub(crate) invalid_targets: u64,
    pub(crate) repeated_targets: u64,
    /// Endpoints that were skipped because this scan had already observed them (`--resume`).
    pub(crate) skipped: u64,
    pub(crate) stored: Option<Stored>,
    /// The reason why nothing is stored.
    pub(crate) not_stored: &'static str,
    pub(crate) store_error: Option<String>,
    /// Whether there were more certificates than the comparison across endpoints supports.
    pub(crate) estate_overflowed: bool,
}

/// The summary of a scan in JSON, for programs and for the inventory.
#[derive(Serialize)]
pub(crate) struct Summary<'a> {
    pub(crate) started_at: String,
    pub(crate) elapsed_ms: u64,
    pub(crate) interrupted: bool,
    pub(crate) endpoints: u64,
    pub(crate) answered: u64,
    /// Endpoints that did not respond, without addresses from network ranges.
    pub(crate) no_answer: u64,
    pub(crate) endpoints_per_second: f64,
    /// Number of endpoints by their worst finding.
    pub(crate) by_severity: BTreeMap<&'static str, u64>,
    pub(crate) by_outcome: &'a BTreeMap<&'static str, u64>,
    pub(crate) by_finding: &'a BTreeMap<&'static str, u64>,
    pub(crate) invalid_targets: u64,
    pub(crate) repeated_targets: u64,
    pub(crate) skipped_by_resume: u64,
    pub(crate) stored: Option<&'a Stored>,
    pub(crate) store_error: Option<&'a str>,
    pub(crate) estate_comparison_complete: bool,
}

impl<'a> Summary<'a> {
    /// Creates the summary of a scan.
    pub(crate) fn of(tally: &'a Tally, closing: &'a ScanSummary) -> Self {
        let by_severity = Severity::ALL
            .into_iter()
            .map(|severity| (severity.name(), tally.by_rank[usize::from(rank(Some(severity), true))]))
            .collect();
        Self {
            started_at: cli::units::rfc3339_us(closing.started_at_us),
            elapsed_ms: u64::try_from(closing.elapsed.as_millis()).unwrap_or(u64::MAX),
            interrupted: closing.interrupted,
            endpoints: tally.endpoints,
            answered: tally.answered,
            no_answer: tally.no_answer,
            endpoints_per_second: rate(tally.endpoints, closing.elapsed),
            by_severity,
            by_outcome: &tally.by_outcome,
            by_finding: &tally.by_rule,
            invalid_targets: closing.invalid_targets,
            repeated_targets: closing.repeated_targets,
            skipped_by_resume: closing.skipped,
            stored: closing.stored.as_ref(),
            store_error: closing.store_error.as_deref(),
            estate_comparison_complete: !closing.estate_overflowed,
        }
    }
}

/// Returns the rate per second, with one decimal.
pub(crate) fn rate(count: u64, elapsed: Duration) -> f64 {
    let seconds = elapsed.as_secs_f64();
    if seconds <= 0.0 { 0.0 } else { (count as f64 / seconds * 10.0).round() / 10.0 }
}
