//! Evaluation of a batch before it is stored: storable texts, changes and counts.

use std::collections::{BTreeMap, HashMap};

use events::ProbeOutcome;
use x509::Severity;

use crate::inventory::model::{ChangeKind, NewCertificate, NewObservation, Recorded};
use db::sha256;

/// `leaf_not_after` of an endpoint without a known certificate, so that it sorts last.
pub(crate) const NO_CERTIFICATE_US: i64 = i64::MAX;

/// Returns the hash that identifies a chain: SHA-256 over its concatenated fingerprints.
pub(crate) fn chain_sha256<C: AsRef<NewCertificate>>(chain: &[C]) -> [u8; 32] {
    let mut fingerprints = Vec::with_capacity(chain.len() * 32);
    for certificate in chain {
        fingerprints.extend_from_slice(&certificate.as_ref().sha256);
    }
    sha256(&fingerprints)
}

/// An endpoint's row before an observation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Current {
    pub(crate) id: i64,
    pub(crate) answering: bool,
    pub(crate) outcome: ProbeOutcome,
    pub(crate) severity: Option<Severity>,
    pub(crate) leaf: Option<i64>,
    pub(crate) issuer: Option<i64>,
    pub(crate) last_observed_at: i64,
}

/// Row ids of a stored certificate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CertificateRef {
    pub(crate) id: i64,
    pub(crate) issuer: i64,
}

/// Returns how `seen` and its leaf differ from `current`. An observation older than the current state changes nothing.
pub(crate) fn change(
    current: Option<&Current>,
    seen: &NewObservation,
    leaf: Option<i64>,
) -> Option<ChangeKind> {
    let Some(current) = current else { return Some(ChangeKind::New) };
    if seen.observed_at_us < current.last_observed_at {
        return None;
    }
    let other_leaf = matches!((current.leaf, leaf), (Some(old), Some(new)) if old != new);
    match (current.answering, seen.answered) {
        (true, false) => Some(ChangeKind::Gone),
        (_, true) if other_leaf => Some(ChangeKind::CertificateChanged),
        (false, true) => Some(ChangeKind::Returned),
        _ if current.outcome != seen.outcome => Some(ChangeKind::OutcomeChanged),
        _ => None,
    }
}

/// Amounts that a transaction adds to the maintained counts.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) recorded: Recorded,
    pub(crate) answered: i64,
    endpoints: i64,
    answering: i64,
    severities: BTreeMap<Severity, i64>,
    /// Changes of the counts of each issuer: number of certificates, and of endpoints.
    pub(crate) issuers: BTreeMap<i64, (i64, i64)>,
    /// Times of the first and the last observation of each certificate.
    pub(crate) seen: BTreeMap<i64, (i64, i64)>,
}

impl Tally {
    pub(crate) fn duplicate(&mut self) {
        self.recorded.duplicates += 1;
    }

    pub(crate) fn count_new_certificate(&mut self, issuer: i64) {
        self.recorded.new_certificates += 1;
        self.issuers.entry(issuer).or_default().0 += 1;
    }

    pub(crate) fn certificate_seen(&mut self, id: i64, at: i64) {
        let span = self.seen.entry(id).or_insert((at, at));
        *span = (span.0.min(at), span.1.max(at));
    }

    /// Counts one stored observation, compared with its endpoint's previous row.
    pub(crate) fn observed(
        &mut self,
        current: Option<&Current>,
        seen: &NewObservation,
        leaf: Option<CertificateRef>,
        change: Option<ChangeKind>,
    ) {
        self.recorded.inserted += 1;
        self.answered += i64::from(seen.answered);
        self.recorded.changed += u64::from(change.is_some());
        if current.is_some_and(|current| seen.observed_at_us < current.last_observed_at) {
            return;
        }
        match current {
            None => self.endpoints += 1,
            Some(current) => {
                self.answering -= i64::from(current.answering);
                if let Some(severity) = current.severity {
                    *self.severities.entry(severity).or_default() -= 1;
                }
            }
        }
        self.answering += i64::from(seen.answered);
        if let Some(severity) = seen.severity {
            *self.severities.entry(severity).or_default() += 1;
        }
        let issuer_before = current.and_then(|current| current.issuer);
        if let Some(leaf) = leaf
            && issuer_before != Some(leaf.issuer)
        {
            self.issuers.entry(leaf.issuer).or_default().1 += 1;
            if let Some(before) = issuer_before {
                self.issuers.entry(before).or_default().1 -= 1;
            }
        }
    }

    /// Returns the changes of `totals`, sorted by name.
    pub(crate) fn totals(&self) -> Vec<(String, i64)> {
        let mut rows = vec![
            ("answering".to_owned(), self.answering),
            ("certificates".to_owned(), self.recorded.new_certificates as i64),
            ("endpoints".to_owned(), self.endpoints),
            ("observations".to_owned(), self.recorded.inserted as i64),
        ];
        rows.extend(
            self.severities.iter().map(|(severity, by)| (format!("severity.{:03}", severity.code()), *by)),
        );
        rows.retain(|(_, by)| *by != 0);
        rows
    }
}

/// Maximum number of ids in each cache. A full cache uses about 1 MiB. A scan often finds the same CA certificates again, but
/// rarely the same leaf certificates.
const CACHED_IDS_MAX: usize = 16_384;

/// Cache of ids of committed rows, so that repeated rows need no statement. Rows are never deleted, so an entry never becomes
/// stale.
#[derive(Debug, Default)]
pub(crate) struct RowIdCache {
    pub(crate) certificates: HashMap<[u8; 32], CertificateRef>,
    pub(crate) chains: HashMap<[u8; 32], i64>,
    pub(crate) issuers: HashMap<[u8; 32], i64>,
}

impl RowIdCache {
    /// Adds the ids of a committed transaction.
    pub(crate) fn merge(&mut self, new: RowIdCache) {
        extend_bounded(&mut self.certificates, new.certificates);
        extend_bounded(&mut self.chains, new.chains);
        extend_bounded(&mut self.issuers, new.issuers);
    }
}

fn extend_bounded<V>(known: &mut HashMap<[u8; 32], V>, new: HashMap<[u8; 32], V>) {
    if known.len() + new.len() > CACHED_IDS_MAX {
        // Clearing is cheaper than tracking the order of use: frequent ids return within one batch.
        known.clear();
    }
    known.extend(new.into_iter().take(CACHED_IDS_MAX));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::model::EndpointKey;

    fn seen(answered: bool, outcome: ProbeOutcome, at: i64) -> NewObservation {
        NewObservation {
            endpoint: EndpointKey {
                host: "h".into(),
                port: 443,
                protocol: "tls".into(),
                server_name: String::new(),
                address: String::new(),
            },
            address: None,
            observed_at_us: at,
            outcome,
            answered,
            tls_version: None,
            cipher_suite: None,
            chain: Vec::new(),
            trust: String::new(),
            severity: None,
            findings: "[]".into(),
            detail: "{}".into(),
        }
    }

    #[test]
    fn endpoint_changes_are_classified_by_observation() {
        let was = |answering, outcome: ProbeOutcome, leaf| Current {
            id: 1,
            answering,
            outcome,
            severity: None,
            leaf,
            issuer: leaf,
            last_observed_at: 10,
        };
        let table = [
            (None, seen(true, ProbeOutcome::Answered, 10), Some(1), Some(ChangeKind::New)),
            (None, seen(false, ProbeOutcome::Refused, 10), None, Some(ChangeKind::New)),
            (
                Some(was(true, ProbeOutcome::Answered, Some(1))),
                seen(true, ProbeOutcome::Answered, 11),
                Some(1),
                None,
            ),
            (
                Some(was(true, ProbeOutcome::Answered, Some(1))),
                seen(true, ProbeOutcome::Answered, 11),
                Some(2),
                Some(ChangeKind::CertificateChanged),
            ),
            (
                Some(was(true, ProbeOutcome::Answered, Some(1))),
                seen(false, ProbeOutcome::Refused, 11),
                None,
                Some(ChangeKind::Gone),
            ),
            (
                Some(was(false, ProbeOutcome::Refused, Some(1))),
                seen(true, ProbeOutcome::Answered, 11),
                Some(1),
                Some(ChangeKind::Returned),
            ),
            (
                Some(was(false, ProbeOutcome::Refused, Some(1))),
                seen(true, ProbeOutcome::Answered, 11),
                Some(2),
                Some(ChangeKind::CertificateChanged),
            ),
            (
                Some(was(false, ProbeOutcome::Refused, None)),
                seen(true, ProbeOutcome::Answered, 11),
                Some(2),
                Some(ChangeKind::Returned),
            ),
            (
                Some(was(false, ProbeOutcome::Refused, None)),
                seen(false, ProbeOutcome::Reset, 11),
                None,
                Some(ChangeKind::OutcomeChanged),
            ),
            (
                Some(was(false, ProbeOutcome::Refused, None)),
                seen(false, ProbeOutcome::Refused, 11),
                None,
                None,
            ),
            (
                Some(was(true, ProbeOutcome::Answered, Some(1))),
                seen(true, ProbeOutcome::Alert, 11),
                Some(1),
                Some(ChangeKind::OutcomeChanged),
            ),
            (
                Some(was(true, ProbeOutcome::Answered, Some(1))),
                seen(false, ProbeOutcome::Refused, 9),
                None,
                None,
            ),
        ];
        for (current, seen, leaf, expected) in table {
            assert_eq!(change(current.as_ref(), &seen, leaf), expected, "{current:?} {seen:?} {leaf:?}");
        }
    }
}
