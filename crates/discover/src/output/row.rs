//! An endpoint as a row of a table or report, and the order of rows by urgency.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use scan::Observation;
use scan::ProbeOutcome;
use x509::Severity;

use super::record::{key_name, short_name};
use scan::tls::names;

/// One endpoint in a table or a report.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Row {
    pub(crate) severity: Option<Severity>,
    pub(crate) outcome: ProbeOutcome,
    pub(crate) endpoint: String,
    pub(crate) address: String,
    /// The last second of the leaf's validity, as Unix time.
    pub(crate) not_after: Option<i64>,
    pub(crate) subject: String,
    pub(crate) issuer: String,
    pub(crate) key: String,
    pub(crate) tls: String,
    /// Codes of the findings, worst first.
    pub(crate) findings: Vec<&'static str>,
    /// The evidence of the worst finding, or the reason of the failure.
    pub(crate) remark: String,
}

impl Row {
    /// Builds the row of `observation`.
    pub(crate) fn of(observation: &Observation) -> Self {
        let leaf = observation.leaf();
        let version = observation.session.as_ref().and_then(|session| session.version);
        Self {
            severity: observation.severity(),
            outcome: observation.outcome,
            endpoint: observation.label(),
            address: observation.address.map(|a| a.to_string()).unwrap_or_default(),
            not_after: leaf.map(|leaf| leaf.not_after.0),
            subject: leaf.map(|leaf| short_name(&leaf.subject).to_owned()).unwrap_or_default(),
            issuer: leaf.map(|leaf| short_name(&leaf.issuer).to_owned()).unwrap_or_default(),
            key: leaf.map(|leaf| key_name(&leaf.public_key).into_owned()).unwrap_or_default(),
            tls: version.map(|v| names::version(v).into_owned()).unwrap_or_default(),
            findings: observation.findings.iter().map(|f| f.rule.code).collect(),
            remark: observation
                .findings
                .first()
                .map(|finding| finding.evidence.clone())
                .or_else(|| observation.detail.clone())
                .unwrap_or_default(),
        }
    }

    pub(crate) fn answered(&self) -> bool {
        self.outcome == ProbeOutcome::Answered
    }

    /// Returns the text of the first column: the severity, `no answer`, or `ok`.
    pub(crate) fn state(&self) -> &'static str {
        rank_name(self.rank())
    }

    /// Returns the urgency of this row. An endpoint without a certificate ranks above `info`, because its problems are unknown.
    pub(crate) fn rank(&self) -> u8 {
        rank(self.severity, self.answered())
    }

    /// Returns the codes of the findings, or the outcome if the endpoint did not respond.
    pub(crate) fn verdicts(&self) -> String {
        if self.findings.is_empty() && !self.answered() {
            return self.outcome.name().to_owned();
        }
        self.findings.join(", ")
    }

    fn key(&self) -> (std::cmp::Reverse<u8>, i64, &str, &str) {
        (std::cmp::Reverse(self.rank()), self.not_after.unwrap_or(i64::MAX), &self.endpoint, &self.address)
    }
}

/// Returns the rank of a severity: 6 for critical, down to 0 for no finding.
pub(crate) fn rank(severity: Option<Severity>, answered: bool) -> u8 {
    match severity {
        Some(Severity::Critical) => 6,
        Some(Severity::High) => 5,
        Some(Severity::Medium) => 4,
        Some(Severity::Low) => 3,
        _ if !answered => 2,
        Some(Severity::Info) => 1,
        None => 0,
    }
}

/// Returns the name of an urgency rank: a severity, `no answer` or `ok`.
pub(crate) fn rank_name(rank: u8) -> &'static str {
    ["ok", "info", "no answer", "low", "medium", "high", "critical"]
        .get(usize::from(rank))
        .copied()
        .unwrap_or("ok")
}

impl Ord for Row {
    /// Orders by worst finding, then earliest expiry, then name. The first row is the most urgent one.
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Row {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The most urgent rows so far, in bounded memory.
#[derive(Debug)]
pub(crate) struct UrgentRows {
    limit: usize,
    // The least urgent row is on top, so it is removed first.
    heap: BinaryHeap<Row>,
    seen: u64,
}

impl UrgentRows {
    /// Creates a collection of at most `limit` rows.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, heap: BinaryHeap::new(), seen: 0 }
    }

    /// Adds an observation. Builds no row if the collection is full and the observation has a lower rank than every stored row.
    pub(crate) fn observe(&mut self, observation: &Observation) {
        self.seen += 1;
        if self.heap.len() < self.limit {
            self.heap.push(Row::of(observation));
            return;
        }
        let Some(least) = self.heap.peek() else { return };
        let answered = observation.outcome == ProbeOutcome::Answered;
        if rank(observation.severity(), answered) < least.rank() {
            return;
        }
        let row = Row::of(observation);
        if row < *least {
            self.heap.pop();
            self.heap.push(row);
        }
    }

    /// Returns the number of observations so far.
    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// Returns the stored rows, most urgent first.
    pub(crate) fn into_rows(self) -> Vec<Row> {
        self.heap.into_sorted_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(severity: Option<Severity>, outcome: ProbeOutcome, not_after: Option<i64>, name: &str) -> Row {
        Row {
            severity,
            outcome,
            endpoint: name.into(),
            address: String::new(),
            not_after,
            subject: String::new(),
            issuer: String::new(),
            key: String::new(),
            tls: String::new(),
            findings: Vec::new(),
            remark: String::new(),
        }
    }

    #[test]
    fn rows_sort_by_severity_and_expiry_with_no_answer_above_info() {
        let mut rows = [
            row(None, ProbeOutcome::Answered, Some(5), "fine"),
            row(Some(Severity::Info), ProbeOutcome::Answered, Some(1), "info"),
            row(None, ProbeOutcome::BlackHole, None, "silent"),
            row(Some(Severity::High), ProbeOutcome::Answered, Some(9), "later"),
            row(Some(Severity::High), ProbeOutcome::Answered, Some(3), "sooner"),
            row(Some(Severity::Critical), ProbeOutcome::Answered, Some(99), "worst"),
        ];
        rows.sort();
        let names: Vec<_> = rows.iter().map(|r| r.endpoint.as_str()).collect();
        assert_eq!(names, ["worst", "sooner", "later", "silent", "info", "fine"]);
    }
}
